//! The search for the op that computed a NaN. A program whose results contain a NaN is run again
//! with every value as a result; iterations and branches of control flow are run one by one.

use crate::executor::DeviceExecutor;
use girih_ir::ops::control::{Control, ControlOp};
use girih_ir::{Class, DType, Graph, Literal, Node, NodeId, TensorSpec};
use girih_runtime::{Argument, CompileOptions, Completion, Error, NanInside, Result, Value};
use smallvec::SmallVec;

/// Fails if a result of a graph contains a NaN, with the first op whose result contains a NaN.
///
/// Errors: [`Error::NotANumber`]; those of running the graph.
pub fn check(
    executor: &DeviceExecutor,
    graph: &Graph,
    arguments: &[Argument],
    results: &[(NodeId, Value)],
) -> Result<()> {
    for (id, value) in results {
        if has_nan(executor, graph.spec(*id), value)? {
            let (first, _) = Search { executor }.run(graph, arguments)?;
            let (id, inside) = first.unwrap_or((*id, None));
            let op = graph.node(id).op.name().to_string();
            return Err(Error::NotANumber { op, node: id.0, inside });
        }
    }
    Ok(())
}

/// A search on one executor.
struct Search<'a> {
    executor: &'a DeviceExecutor,
}

/// A node whose value contains a NaN and, for a control-flow op, the op of a region that computed
/// the NaN.
type Site = (NodeId, Option<Box<NanInside>>);

impl Search<'_> {
    /// Computes a graph without passes. Returns the first node, in the graph's order, whose value
    /// contains a NaN, and the values of the graph's outputs.
    fn run(&self, graph: &Graph, arguments: &[Argument]) -> Result<(Option<Site>, Vec<Value>)> {
        let computed = |id: &NodeId| {
            let node = graph.node(*id);
            node.op.class() != Class::Leaf && may_be_nan(node.spec.dtype)
        };
        let mut nodes: Vec<NodeId> = graph.ids().filter(computed).collect();
        let count = nodes.len();
        nodes.extend(graph.outputs());
        let mut values = self.values(graph, &nodes, arguments)?;
        let outputs = values.split_off(count);
        for (&id, value) in nodes.iter().zip(&values) {
            if has_nan(self.executor, graph.spec(id), value)? {
                let node = graph.node(id);
                let inside = match node.op.class() {
                    Class::Control => {
                        let operands = self.values(graph, &node.inputs, arguments)?;
                        self.inside(graph, node, operands)?
                    }
                    _ => None,
                };
                return Ok((Some((id, inside)), outputs));
            }
        }
        Ok((None, outputs))
    }

    /// The values of some nodes of a graph.
    fn values(&self, graph: &Graph, of: &[NodeId], arguments: &[Argument]) -> Result<Vec<Value>> {
        let mut graph = graph.clone();
        graph.set_outputs(of.iter().copied());
        let runtime = self.executor.runtime();
        let options = CompileOptions { passes: 0, fusion: 0, user: 0 };
        let plan = runtime.plan(&graph, options)?;
        let control = runtime.control(self.executor.limit(), false);
        let (block, values) = runtime.bind(&plan, arguments, control)?;
        let (completion, after) = (Completion::pending(), SmallVec::new());
        runtime.start(&runtime.thread_stream(), &plan.plan, &block, after, completion, true)?;
        Ok(values.into_iter().collect())
    }

    /// The first op with a NaN in the regions that a control-flow op runs on these operands.
    fn inside(
        &self,
        graph: &Graph,
        node: &Node,
        operands: Vec<Value>,
    ) -> Result<Option<Box<NanInside>>> {
        let (_, control) = node.op.as_control().expect("ops of control have regions");
        match node.op.code.control().expect("its class is control") {
            ControlOp::Cond => {
                let index = graph.spec(node.inputs[0]);
                let last = control.regions.len() as i64 - 1;
                let chosen = self.integer(index.dtype, &operands[0])?.clamp(0, last) as usize;
                let region = &control.regions[chosen];
                let place = || match index.dtype {
                    DType::Bool => format!("the {} branch of cond", chosen == 1),
                    _ => format!("branch {chosen} of switch"),
                };
                Ok(self.region(region, &operands[1..], place)?.err())
            }
            ControlOp::Call => {
                Ok(self.region(control.body(), &operands, || "a call".into())?.err())
            }
            ControlOp::WhileLoop => self.while_loop(control, operands),
            ControlOp::Scan => self.scan(control, operands),
        }
    }

    fn while_loop(
        &self,
        control: &Control,
        mut values: Vec<Value>,
    ) -> Result<Option<Box<NanInside>>> {
        let [condition, body] = &control.regions[..] else { unreachable!("there are two") };
        for iteration in 0.. {
            let given = arguments(condition, &values);
            let goes_on = self.values(condition, condition.outputs(), &given)?;
            if self.integer(DType::Bool, &goes_on[0])? == 0 {
                break;
            }
            let place = || format!("iteration {iteration} of while_loop");
            match self.region(body, &values, place)? {
                Ok(carries) => drop(values.splice(..carries.len(), carries)),
                Err(inside) => return Ok(Some(inside)),
            }
        }
        Ok(None)
    }

    fn scan(&self, control: &Control, operands: Vec<Value>) -> Result<Option<Box<NanInside>>> {
        let body = control.body();
        let carries = control.carries as usize;
        let sliced = carries..carries + control.slices as usize;
        let specs: Vec<&TensorSpec> = body.arguments().map(|id| body.spec(id)).collect();
        let length = control.length.hint();
        let mut slices = Vec::with_capacity(sliced.len());
        for i in sliced.clone() {
            let bytes = specs[i].size_bytes() * length;
            slices.push(self.executor.runtime().download(&operands[i], bytes)?);
        }
        let mut values = operands;
        for t in 0..length {
            let at = control.position(t);
            for (slice, i) in slices.iter().zip(sliced.clone()) {
                let size = specs[i].size_bytes();
                let part = &slice[at * size..(at + 1) * size];
                values[i] = self.executor.runtime().upload(part)?;
            }
            match self.region(body, &values, || format!("iteration {t} of scan"))? {
                Ok(given) => drop(values.splice(..carries, given.into_iter().take(carries))),
                Err(inside) => return Ok(Some(inside)),
            }
        }
        Ok(None)
    }

    /// Runs a region once. Returns the results of the region, or its first op with a NaN. `place`
    /// describes the run.
    fn region(
        &self,
        region: &Graph,
        operands: &[Value],
        place: impl FnOnce() -> String,
    ) -> Result<Result<Vec<Value>, Box<NanInside>>> {
        let (id, inner) = match self.run(region, &arguments(region, operands))? {
            (None, outputs) => return Ok(Ok(outputs)),
            (Some(site), _) => site,
        };
        let node = region.node(id);
        Ok(Err(match inner {
            Some(mut inner) => {
                inner.place = format!("{} in {}", inner.place, place());
                inner
            }
            None => Box::new(NanInside {
                op: node.op.name().to_string(),
                spec: node.spec.clone(),
                place: place(),
                source: region.source(id),
            }),
        }))
    }

    /// The value of an integer or bool scalar.
    fn integer(&self, dtype: DType, value: &Value) -> Result<i64> {
        let bytes = self.executor.runtime().download(value, dtype.size())?;
        Ok(Literal { dtype, bits: bits(&bytes) }.as_i64())
    }
}

/// Converts the operands of a region to its arguments.
fn arguments(region: &Graph, operands: &[Value]) -> Vec<Argument> {
    let pairs = region.arguments().zip(operands);
    pairs.map(|(id, value)| Argument::Tensor(value.clone(), region.spec(id).clone())).collect()
}

fn may_be_nan(dtype: DType) -> bool {
    dtype.is_float() || dtype.is_complex()
}

/// Reads a little-endian number from at most eight bytes.
fn bits(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | byte as u64)
}

fn has_nan(executor: &DeviceExecutor, spec: &TensorSpec, value: &Value) -> Result<bool> {
    let part = match spec.dtype {
        DType::C64 => DType::F32,
        DType::C128 => DType::F64,
        dtype => dtype,
    };
    if !may_be_nan(part) {
        return Ok(false);
    }
    let bytes = executor.runtime().download(value, spec.size_bytes())?;
    let is_nan = |bytes: &[u8]| Literal { dtype: part, bits: bits(bytes) }.as_f64().is_nan();
    Ok(bytes.chunks_exact(part.size()).any(is_nan))
}
