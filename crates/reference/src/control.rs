//! Reference semantics of control flow: regions are evaluated as graphs, in sequence.

use super::evaluate;
use girih_ir::ops::control::{Control, stacked};
use girih_ir::{Array, Element, Graph, Node, OpCode, Result, TensorSpec};

pub(super) fn run(node: &Node, operands: &[&Array]) -> Result<Array> {
    let (result, control) = node.op.as_control().expect("the op's rule asks for regions");
    let operands: Vec<Array> = operands.iter().map(|&x| x.clone()).collect();
    match node.op.code {
        OpCode::Cond => {
            let last = control.regions.len() as i128 - 1;
            let branch = operands[0].get(0).as_int().clamp(0, last) as usize;
            Ok(evaluate(&control.regions[branch], &operands[1..])?.swap_remove(result))
        }
        OpCode::WhileLoop => repeat(control, operands, result),
        OpCode::Call => Ok(evaluate(control.body(), &operands)?.swap_remove(result)),
        _ => scan(control, &operands, result, &node.spec),
    }
}

fn repeat(control: &Control, mut values: Vec<Array>, result: usize) -> Result<Array> {
    let [condition, body] = &control.regions[..] else { unreachable!("there are two") };
    while evaluate(condition, &values)?[0].get(0).as_int() != 0 {
        let carries = evaluate(body, &values)?;
        values.splice(..carries.len(), carries);
    }
    Ok(values.swap_remove(result))
}

/// The slice of an array at an index of its leading axis.
fn part(x: &Array, at: usize) -> Array {
    let shape = x.spec().shape[1..].iter().copied().collect();
    let spec = TensorSpec { shape, dtype: x.spec().dtype };
    let len = spec.numel();
    Array::new(spec, (at * len..(at + 1) * len).map(|i| x.get(i)))
}

fn scan(control: &Control, operands: &[Array], result: usize, spec: &TensorSpec) -> Result<Array> {
    let (carries, slices) = (control.carries as usize, control.slices as usize);
    let body: &Graph = &control.regions[0];
    let given = body.outputs().len();
    let mut values = operands[..carries].to_vec();
    let length = control.length.hint();
    let mut parts: Vec<Option<Array>> = vec![None; length];
    for t in 0..length {
        let at = control.position(t);
        let slices = operands[carries..carries + slices].iter().map(|x| part(x, at));
        let rest = operands[carries + control.slices as usize..].iter().cloned();
        let taken: Vec<Array> = values.iter().cloned().chain(slices).chain(rest).collect();
        let mut out = evaluate(body, &taken)?;
        let own = if result < given { &out[result] } else { &values[result - given] };
        parts[at] = Some(own.clone());
        out.truncate(carries);
        values = out;
    }
    if result < carries {
        return Ok(values.swap_remove(result));
    }
    debug_assert!(parts.iter().flatten().all(|p| stacked(control.length, p.spec()) == *spec));
    let elements: Vec<Element> =
        parts.iter().flatten().flat_map(|p| p.elements().collect::<Vec<_>>()).collect();
    Ok(Array::new(spec.clone(), elements))
}
