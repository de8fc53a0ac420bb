//! Naive evaluators against which lowering is tested: one for graphs, one for programs. Every value
//! is an f64, and every loop is explicit.

use crate::ir::{
    Access, Block, BufferKind, Core, Inst, Kernel, KernelProgram, ReduceOp, Store, Val,
};
use girih_ir::{Attrs, Class, Graph, Literal, Node, NodeId, OpCode};

/// A tensor's or buffer's elements.
pub type Data = Vec<f64>;

/// All indices of a space, row-major.
pub fn points(extents: &[usize]) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for &extent in extents {
        let extend = |p: &Vec<usize>| {
            let p = p.clone();
            (0..extent).map(move |i| p.iter().copied().chain([i]).collect())
        };
        all = all.iter().flat_map(extend).collect();
    }
    all
}

fn at(offset: isize, strides: &[isize], point: &[usize]) -> usize {
    let moved: isize = strides.iter().zip(point).map(|(s, &i)| s * i as isize).sum();
    usize::try_from(offset + moved).expect("accesses stay inside")
}

/// Any function of leaf and position can stand for a random draw.
fn draw(argument: usize, position: usize) -> f64 {
    ((position * 7919 + argument * 104_729) % 1000) as f64 / 1000.0
}

fn op(code: OpCode, a: &[f64], integer: bool) -> f64 {
    let truth = |b: bool| b as u8 as f64;
    match code {
        OpCode::Neg => -a[0],
        OpCode::Abs => a[0].abs(),
        OpCode::Exp => a[0].exp(),
        OpCode::Tanh => a[0].tanh(),
        OpCode::Erfc => 1.0 - (a[0] * 1.1).tanh(),
        OpCode::Sqrt => a[0].sqrt(),
        OpCode::Rsqrt => 1.0 / a[0].sqrt(),
        OpCode::Cast if integer => a[0].trunc(),
        OpCode::Cast => a[0],
        OpCode::Add => a[0] + a[1],
        OpCode::Sub => a[0] - a[1],
        OpCode::Mul => a[0] * a[1],
        OpCode::Div => a[0] / a[1],
        OpCode::Maximum => a[0].max(a[1]),
        OpCode::Minimum => a[0].min(a[1]),
        OpCode::Lt => truth(a[0] < a[1]),
        OpCode::Where if a[0] != 0.0 => a[1],
        OpCode::Where => a[2],
        code => unimplemented!("{code:?}"),
    }
}

fn reduce(op: ReduceOp, values: &[f64]) -> f64 {
    let best = |better: fn(f64, f64) -> bool| {
        let pick = |best: usize, i: usize| if better(values[i], values[best]) { i } else { best };
        (1..values.len()).fold(0, pick)
    };
    match op {
        ReduceOp::Sum => values.iter().fold(0.0, |a, b| a + b),
        ReduceOp::Prod => values.iter().product(),
        ReduceOp::Max => values[best(|a, b| a > b)],
        ReduceOp::Min => values[best(|a, b| a < b)],
        ReduceOp::Any => values.iter().any(|v| *v != 0.0) as u8 as f64,
        ReduceOp::All => values.iter().all(|v| *v != 0.0) as u8 as f64,
        ReduceOp::ArgMax => best(|a, b| a > b) as f64,
        ReduceOp::ArgMin => best(|a, b| a < b) as f64,
    }
}

fn wrap(index: f64, size: usize) -> isize {
    let index = index as isize;
    let index = if index < 0 { index + size as isize } else { index };
    assert!((0..size as isize).contains(&index), "index {index} of {size}");
    index
}

fn load(buffers: &[Data], access: &Access, more: isize, point: &[usize]) -> f64 {
    buffers[access.buffer.0 as usize][at(access.offset + more, &access.strides, point)]
}

struct Run<'a> {
    kernel: &'a Kernel,
    buffers: &'a [Data],
    arguments: &'a [Data],
}

impl Run<'_> {
    fn block(&self, block: &Block, point: &[usize], core: f64) -> Data {
        let mut vals: Data = Vec::new();
        for inst in &block.insts {
            let get = |v: &Val| vals[v.0 as usize];
            let value = match inst {
                Inst::Literal(l) => l.as_f64(),
                Inst::Scalar { argument, .. } => self.arguments[*argument][0],
                Inst::Load(id) => load(self.buffers, self.kernel.access(*id), 0, point),
                Inst::Gather { access, index, stride, size } => {
                    let more = wrap(get(index), *size) * stride;
                    load(self.buffers, self.kernel.access(*access), more, point)
                }
                Inst::Wrap { index, size, .. } => wrap(get(index), *size) as f64,
                Inst::Iota { offset, strides, .. } => at(*offset, strides, point) as f64,
                Inst::Random { argument, offset, strides, .. } => {
                    draw(*argument, at(*offset, strides, point))
                }
                Inst::Core { .. } => core,
                Inst::Op { code, args, dtype } => {
                    let args: Data = args.iter().map(get).collect();
                    op(*code, &args, dtype.is_int())
                }
            };
            vals.push(value);
        }
        vals
    }

    fn core(&self, point: &[usize]) -> f64 {
        let reduced = points(&self.kernel.extents[self.kernel.parallel..]);
        let full = reduced.iter().map(|r| [point, r].concat());
        match &self.kernel.core {
            Core::Map | Core::Scatter { .. } => f64::NAN,
            Core::Library(_) | Core::Control(_) | Core::Rows(_) => {
                unreachable!("their loops are their own")
            }
            Core::Reduce { prologue, value, op, .. } => {
                let one = |p: Vec<usize>| self.block(prologue, &p, f64::NAN)[value.0 as usize];
                reduce(*op, &full.map(one).collect::<Data>())
            }
            Core::Gemm { lhs, rhs, .. } => {
                let one =
                    |p: Vec<usize>| load(self.buffers, lhs, 0, &p) * load(self.buffers, rhs, 0, &p);
                reduce(ReduceOp::Sum, &full.map(one).collect::<Data>())
            }
        }
    }

    /// The elements written: buffer, element, value, and the op that combines it with the old
    /// value.
    fn writes(&self) -> Vec<(usize, usize, f64, Option<OpCode>)> {
        let mut out = Vec::new();
        if let Core::Reduce { prologue, stores, .. } = &self.kernel.core {
            for point in points(&self.kernel.extents) {
                let vals = self.block(prologue, &point, f64::NAN);
                for Store { access, value } in stores {
                    let element = at(access.offset, &access.strides, &point);
                    out.push((access.buffer.0 as usize, element, vals[value.0 as usize], None));
                }
            }
        }
        for point in points(&self.kernel.extents[..self.kernel.parallel]) {
            let vals = self.block(&self.kernel.body, &point, self.core(&point));
            for store in &self.kernel.stores {
                let (mut more, mut met) = (0, None);
                if let Core::Scatter { mode, index, stride, size, .. } = &self.kernel.core {
                    more = wrap(load(self.buffers, index, 0, &point), *size) * stride;
                    met = mode.op();
                }
                let access = &store.access;
                let element = at(access.offset + more, &access.strides, &point);
                out.push((access.buffer.0 as usize, element, vals[store.value.0 as usize], met));
            }
        }
        out
    }
}

/// Runs a program; arguments by position.
pub fn program(program: &KernelProgram, arguments: &[Data]) -> Vec<Data> {
    let buffer = |b: &crate::ir::Buffer| match b.kind {
        BufferKind::Argument(i) => arguments[i].clone(),
        BufferKind::Computed => vec![f64::NAN; b.numel],
    };
    let mut buffers: Vec<Data> = program.buffers.iter().map(buffer).collect();
    let mut kernels: Vec<&Kernel> = Vec::new();
    for kernel in &program.kernels {
        match &kernel.core {
            Core::Rows(rows) => kernels.extend(&rows.parts),
            _ => kernels.push(kernel),
        }
    }
    for kernel in kernels {
        if let Core::Scatter { zeroed: true, .. } = kernel.core {
            buffers[kernel.stores[0].access.buffer.0 as usize].fill(0.0);
        }
        for (buffer, element, value, met) in (Run { kernel, buffers: &buffers, arguments }).writes()
        {
            let place = &mut buffers[buffer][element];
            *place = met.map_or(value, |code| op(code, &[*place, value], false));
        }
    }
    program.outputs.iter().map(|o| buffers[o.0 as usize].clone()).collect()
}

/// Runs a graph; arguments by position.
pub fn graph(graph: &Graph, arguments: &[Data]) -> Vec<Data> {
    let mut values: Vec<Data> = Vec::new();
    let mut next = 0;
    for (id, node) in graph.nodes() {
        let argument = next;
        next += node.op.takes_argument() as usize;
        let value = match node.op.class() {
            Class::Leaf => leaf(graph, id, argument, arguments),
            Class::Reshape => values[node.inputs[0].index()].clone(),
            Class::Combine => combine(graph, node, &values),
            Class::Index => index(graph, node, &values),
            _ => nest(graph, id, &values),
        };
        assert_eq!(value.len(), node.spec.numel(), "{id}");
        values.push(value);
    }
    graph.outputs().iter().map(|o| values[o.index()].clone()).collect()
}

fn leaf(graph: &Graph, id: NodeId, argument: usize, arguments: &[Data]) -> Data {
    let node = graph.node(id);
    let numel = node.spec.numel();
    match (node.op.code, &node.op.attrs) {
        (OpCode::Input | OpCode::Parameter, _) => arguments[argument].clone(),
        (OpCode::Constant, Attrs::Value(_)) => vec![graph.literal(id).unwrap().as_f64(); numel],
        (OpCode::Constant, _) => vec![arguments[argument][0]; numel],
        (OpCode::Iota, &Attrs::Axis(axis)) => {
            points(&node.spec.shape).iter().map(|p| p[axis as usize] as f64).collect()
        }
        _ => (0..numel).map(|i| draw(argument, i)).collect(),
    }
}

/// Ops with a loop nest: elementwise, views, reductions, GEMMs.
fn nest(graph: &Graph, id: NodeId, values: &[Data]) -> Data {
    let node = graph.node(id);
    let nest = graph.iteration(id).unwrap();
    let operands = |point: &[usize]| -> Data {
        let one = |(map, &input): (&girih_ir::IndexMap, &NodeId)| {
            let strides = graph.spec(input).shape.strides();
            let (offset, strides) = map.strides(&strides, nest.extents.len());
            values[input.index()][at(offset, &strides, point)]
        };
        nest.operands.iter().zip(&node.inputs).map(one).collect()
    };
    let combined = |point: Vec<usize>| -> f64 {
        let reduced = points(&nest.extents[nest.parallel..]);
        let all = reduced.iter().map(|r| operands(&[point.as_slice(), r].concat()));
        match node.op.class() {
            Class::Contraction => {
                reduce(ReduceOp::Sum, &all.map(|v| v[0] * v[1]).collect::<Data>())
            }
            Class::Reduction => {
                let op = super::super::kernel::reduce_op(node.op.code);
                reduce(op, &all.map(|v| v[0]).collect::<Data>())
            }
            Class::Elementwise => op(node.op.code, &operands(&point), node.spec.dtype.is_int()),
            _ => operands(&point)[0],
        }
    };
    points(&nest.extents[..nest.parallel]).into_iter().map(combined).collect()
}

fn combine(graph: &Graph, node: &Node, values: &[Data]) -> Data {
    let strides = node.spec.shape.strides();
    let mut out = vec![0.0; node.spec.numel()];
    let mut before = 0;
    for &input in &node.inputs {
        let shape = &graph.spec(input).shape;
        if let Attrs::Pad(pad) = &node.op.attrs {
            let dtype = node.spec.dtype;
            out.fill(Literal { dtype, bits: pad.1 }.as_f64());
        }
        for (point, value) in points(shape).into_iter().zip(&values[input.index()]) {
            let place: Vec<usize> = match &node.op.attrs {
                Attrs::Pad(pad) => {
                    let moved =
                        |(i, d): (&usize, &girih_ir::ops::PadDim)| d.low + i * (d.interior + 1);
                    point.iter().zip(&pad.0).map(moved).collect()
                }
                Attrs::Axis(axis) => {
                    let axis = *axis as usize;
                    let moved = |(a, i): (usize, &usize)| i + before * (a == axis) as usize;
                    point.iter().enumerate().map(moved).collect()
                }
                // First the tensor itself, then the slice.
                Attrs::Slice(_) if input == node.inputs[0] => point.clone(),
                Attrs::Slice(dims) => {
                    let moved = |(i, d): (&usize, &girih_ir::ops::SliceDim)| d.start + i * d.step;
                    point.iter().zip(dims.iter()).map(moved).collect()
                }
                attrs => unreachable!("{attrs:?}"),
            };
            out[at(0, &strides, &place)] = *value;
        }
        if let Attrs::Axis(axis) = node.op.attrs {
            before += shape[axis as usize];
        }
    }
    out
}

fn index(graph: &Graph, node: &Node, values: &[Data]) -> Data {
    let data = |i: usize| (graph.spec(node.inputs[i]), &values[node.inputs[i].index()]);
    if let Attrs::Size(size) = node.op.attrs {
        return data(0).1.iter().map(|&i| wrap(i, size) as f64).collect();
    }
    let zeros = vec![0.0; node.spec.numel()];
    let last = node.inputs.len() - 1;
    let (axis, (indices, index), met, mut out) = match node.op.attrs {
        Attrs::Axis(axis) => (axis as usize, data(1), None, zeros),
        Attrs::Scatter { axis, .. } => (axis as usize, data(0), Some(OpCode::Add), zeros),
        Attrs::ScatterInto { axis, mode } => (axis as usize, data(1), mode.op(), data(0).1.clone()),
        _ => unreachable!(),
    };
    let scatters = !matches!(node.op.attrs, Attrs::Axis(_));
    let whole = matches!(node.op.code, OpCode::Take | OpCode::ScatterAdd | OpCode::Scatter);
    let (indexed, moving) = match scatters {
        true => (&node.spec, data(last).0),
        false => (data(0).0, &node.spec),
    };
    let rank = if whole { indices.shape.rank() } else { 1 };
    for (i, point) in points(&moving.shape).into_iter().enumerate() {
        let key = if whole { &point[axis..axis + rank] } else { &point[..] };
        let at_index = wrap(index[at(0, &indices.shape.strides(), key)], indexed.shape[axis]);
        let place = [&point[..axis], &[at_index as usize], &point[axis + rank..]].concat();
        let place = at(0, &indexed.shape.strides(), &place);
        if scatters {
            let value = data(last).1[i];
            out[place] = met.map_or(value, |code| op(code, &[out[place], value], false));
        } else {
            out[i] = data(0).1[place];
        }
    }
    out
}
