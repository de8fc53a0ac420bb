//! Loops that are one function have the bits of the portable executor.

use super::*;
use girih_exec::run_program;
use girih_ir::ops::{Attrs, ScatterMode};
use girih_ir::testing::Rng;
use girih_ir::{Literal, NodeId};

const DTYPES: [DType; 8] = [
    DType::F32,
    DType::I32,
    DType::F64,
    DType::I64,
    DType::Bool,
    DType::U8,
    DType::I16,
    DType::U32,
];

/// A random loop: its carries, slices and captured values are scalars, or vectors of one length.
struct Loop {
    specs: Vec<TensorSpec>,
    carries: usize,
    slices: usize,
    dtypes: Vec<DType>,
    points: usize,
}

impl Loop {
    fn new(rng: &mut Rng) -> Loop {
        let points = [1, 1, 3, 8, 13, 16, 40, 100][rng.below(8)];
        let (first, count) = (rng.below(DTYPES.len()), 1 + rng.below(2));
        let dtypes: Vec<DType> =
            (0..count).map(|i| DTYPES[(first + i * (1 + rng.below(5))) % DTYPES.len()]).collect();
        let most = if rng.below(8) == 0 { 9 } else { 3 };
        let (carries, slices) = (1 + rng.below(most), rng.below(3));
        let mut specs = vec![];
        for _ in 0..carries + slices + 2 {
            let dtype = dtypes[rng.below(dtypes.len())];
            let vector = points > 1 && rng.below(3) > 0;
            specs.push(TensorSpec::new(if vector { vec![points] } else { vec![] }, dtype));
        }
        Loop { specs, carries, slices, dtypes, points }
    }

    /// Appends an op on some of the values, if they fit.
    fn op(&self, b: &mut GraphBuilder, values: &[NodeId], rng: &mut Rng) -> Option<NodeId> {
        let x = values[rng.below(values.len())];
        let dtype = b.dtype(x);
        let alike: Vec<NodeId> = values.iter().copied().filter(|&v| b.dtype(v) == dtype).collect();
        let y = alike[rng.below(alike.len())];
        let float = dtype.is_float();
        if dtype == DType::I32 && b.shape(x).rank() == 0 && rng.below(3) == 0 {
            return self.indexed(b, values, x, rng);
        }
        let found = match rng.below(12) {
            0 | 1 => b.add(x, y),
            2 => b.mul(x, y),
            3 => b.maximum(x, y),
            4 if float => b.sin(x),
            4 => b.op(OpCode::Remainder, &[x, y]),
            5 => b.op(OpCode::Div, &[x, y]),
            6 => b.sub(x, y),
            7 => b.cast(x, self.dtypes[rng.below(self.dtypes.len())]),
            8 => {
                let constant = b.constant(Literal::from_f64(dtype, 3.0), []);
                b.op(OpCode::Minimum, &[x, constant])
            }
            9 => b.lt(x, y).and_then(|mask| b.select(mask, y, x)),
            _ => return self.branch(b, x, y, rng),
        };
        found.ok()
    }

    /// Reads or replaces the element of a vector at an index within its bounds.
    fn indexed(
        &self,
        b: &mut GraphBuilder,
        values: &[NodeId],
        index: NodeId,
        rng: &mut Rng,
    ) -> Option<NodeId> {
        let vectors: Vec<NodeId> =
            values.iter().copied().filter(|&v| b.shape(v).rank() == 1).collect();
        let x = *vectors.get(rng.below(vectors.len().max(1)))?;
        let size = b.scalar(DType::I32, self.points as f64);
        let mut at = b.op(OpCode::Remainder, &[index, size]).ok()?;
        if rng.below(2) == 0 {
            at = b.sub(at, size).ok()?;
        }
        if rng.below(2) == 0 {
            let take = Op::new(OpCode::Take, Attrs::Axis(0));
            return b.emit(take, &[x, at]).ok();
        }
        let mode = if rng.below(3) == 0 { ScatterMode::Add } else { ScatterMode::Set };
        let dtype = b.dtype(x);
        let fits = |v: &&NodeId| b.dtype(**v) == dtype && b.shape(**v).rank() == 0;
        let value = *values.iter().find(fits)?;
        let set = Op::new(OpCode::Scatter, Attrs::ScatterInto { axis: 0, mode });
        b.emit(set, &[x, at, value]).ok()
    }

    /// A branch by the first element of a scalar.
    fn branch(&self, b: &mut GraphBuilder, x: NodeId, y: NodeId, rng: &mut Rng) -> Option<NodeId> {
        let specs = [b.spec(x).clone(), b.spec(y).clone()];
        let scalars = [x, y].into_iter().find(|&v| b.shape(v).rank() == 0)?;
        if specs[0] != specs[1] {
            return None;
        }
        let side = |code: Option<OpCode>| {
            let mut b = GraphBuilder::default();
            let inputs = specs.clone().map(|s| b.input(s));
            let out = code.map_or(Ok(inputs[0]), |code| b.op(code, &inputs)).ok()?;
            Some(b.finish([out]))
        };
        let codes = [None, Some(OpCode::Maximum), Some(OpCode::Minimum)];
        let sides = vec![side(codes[rng.below(3)])?, side(codes[rng.below(3)])?];
        let zero = b.scalar_like(scalars, 0.0);
        let index = b.op(OpCode::Ne, &[scalars, zero]).ok()?;
        let op = Op::control(OpCode::Cond, Arc::new(Regions::default().with_regions(sides)), 0);
        b.emit(op, &[index, x, y]).ok()
    }

    /// The body: the next carries, then further results; `counter` is a carry before the others
    /// that counts the steps.
    fn body(&self, counter: bool, further: usize, rng: &mut Rng) -> Graph {
        let mut specs = self.specs.clone();
        if counter {
            specs.insert(0, TensorSpec::scalar(DType::I32));
        }
        region(&specs, |b, inputs| {
            let mut values = inputs[counter as usize..].to_vec();
            for _ in 0..rng.below(9) {
                values.extend(self.op(b, &values, rng));
            }
            let mut outputs = vec![];
            if counter {
                let one = b.scalar(DType::I32, 1.0);
                outputs.push(b.add(inputs[0], one)?);
            }
            for spec in &self.specs[..self.carries] {
                let fit: Vec<NodeId> =
                    values.iter().copied().filter(|&v| b.spec(v) == spec).collect();
                let last = fit[fit.len() - 1 - rng.below(fit.len().min(2))];
                outputs.push(last);
            }
            outputs.extend((0..further).map(|_| values[rng.below(values.len())]));
            Ok(outputs)
        })
    }

    /// The operands outside of a loop, which divides slices if it has a length: some of the unsliced ones are constants.
    fn operands(&self, b: &mut GraphBuilder, length: Option<usize>, rng: &mut Rng) -> Vec<NodeId> {
        let mut operands = vec![];
        for (i, spec) in self.specs.iter().enumerate() {
            let slice = (self.carries..self.carries + self.slices).contains(&i);
            let mut dims = if spec.shape.rank() == 0 { vec![] } else { vec![self.points] };
            if let (true, Some(length)) = (slice, length) {
                dims.insert(0, length);
            }
            operands.push(match slice || rng.below(4) > 0 {
                true => b.input(TensorSpec::new(dims, spec.dtype)),
                false => b.constant(Literal::from_f64(spec.dtype, 2.0), dims),
            });
        }
        operands
    }

    fn scan(&self, rng: &mut Rng) -> Graph {
        let (further, length) = (rng.below(3), [0, 1, 2, 7, 30][rng.below(5)]);
        let body = self.body(false, further, rng);
        let control = Regions {
            carries: self.carries as u32,
            slices: self.slices as u32,
            length: length.into(),
            reverse: rng.below(2) == 0,
            ..Regions::default()
        };
        let control = Arc::new(control.with_regions(vec![body]));
        let mut b = GraphBuilder::default();
        let operands = self.operands(&mut b, Some(length), rng);
        // Final carries, stacked results, and all values of carries.
        let results = self.carries * 2 + further;
        let result = |n| b.emit(Op::control(OpCode::Scan, control.clone(), n), &operands).unwrap();
        let wanted = (0..results).filter(|n| *n == 0 || rng.below(3) > 0);
        let outputs: Vec<NodeId> = wanted.map(result).collect();
        b.finish(outputs)
    }

    fn repeated(&self, rng: &mut Rng) -> Graph {
        let limit = rng.below(20) as f64;
        let mut specs = self.specs.clone();
        specs.insert(0, TensorSpec::scalar(DType::I32));
        let condition = region(&specs, |b, x| {
            let limit = b.scalar(DType::I32, limit);
            Ok(vec![b.lt(x[0], limit)?])
        });
        let body = self.body(true, 0, rng);
        let carries = self.carries as u32 + 1;
        let control = Regions { carries, ..Regions::default() };
        let control = Arc::new(control.with_regions(vec![condition, body]));
        let mut b = GraphBuilder::default();
        let mut operands = self.operands(&mut b, None, rng);
        operands.insert(0, b.constant(Literal::from_f64(DType::I32, 0.0), []));
        let op = |n| Op::control(OpCode::WhileLoop, control.clone(), n);
        let outputs: Vec<NodeId> =
            (0..carries as usize).map(|n| b.emit(op(n), &operands).unwrap()).collect();
        b.finish(outputs)
    }
}

/// The bytes of an argument: small numbers.
fn bytes_of(spec: &TensorSpec, seed: usize) -> Vec<u8> {
    let value = |i: usize| ((i * 7 + seed * 3) % 11) as f64 * 0.75 - 3.0;
    let bits = |i| Literal::from_f64(spec.dtype, value(i)).bits;
    let size = spec.dtype.size();
    (0..spec.numel()).flat_map(|i| bits(i).to_le_bytes()[..size].to_vec()).collect()
}

/// Runs a program with generated code; also returns whether a loop is one function.
fn run_generated(
    program: &KernelProgram,
    arguments: &[Vec<u8>],
) -> (Result<Vec<Vec<u8>>, ExecError>, bool) {
    let mut buffers: Vec<Vec<Line>> = program
        .buffers
        .iter()
        .map(|b| vec![Line::of(0xff); b.size_bytes().div_ceil(64) + 2])
        .collect();
    let starts: Vec<*mut u8> =
        buffers.iter_mut().map(|b| b.as_mut_ptr().wrapping_add(1).cast()).collect();
    for (buffer, &start) in program.buffers.iter().zip(&starts) {
        if let BufferKind::Argument(position) = buffer.kind {
            let bytes = &arguments[position];
            // SAFETY: the buffer has that many bytes, between two lines.
            unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
    }
    let (workspace, pool) = (std::ptr::null_mut(), Pool::new(1));
    let bindings = Bindings { buffers: &starts, arguments: &[], workspace, bounds: None };
    let (mut fused, mut outcome) = (false, Ok(()));
    for kernel in &program.kernels {
        let loaded = LoadedKernel::load(kernel, false, false);
        fused |= matches!(loaded.form, Implementation::Cycle(_));
        // SAFETY: the buffers have their sizes.
        outcome = outcome.and_then(|()| unsafe { loaded.run(&bindings, &pool) });
    }
    for (buffer, &start) in program.buffers.iter().zip(&starts) {
        for at in (1..=64).map(|i| -i).chain((0..64).map(|i| i + buffer.size_bytes() as isize)) {
            // SAFETY: there is a line before the buffer, and at least one after it.
            assert_eq!(unsafe { *start.offset(at) }, 0xff, "byte {at} is outside of the buffer");
        }
    }
    let bytes = |id: &girih_kernel::BufferId| {
        let at = id.0 as usize;
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(starts[at], program.buffers[at].size_bytes()) }.to_vec()
    };
    (outcome.map(|()| program.outputs.iter().map(bytes).collect()), fused)
}

/// Elements as text, in which all NaNs are alike.
fn shown(bytes: &[u8], dtype: DType) -> Vec<String> {
    let show = |c: &[u8]| match dtype {
        DType::F32 if f32::from_le_bytes(c.try_into().unwrap()).is_nan() => "nan".to_string(),
        DType::F64 if f64::from_le_bytes(c.try_into().unwrap()).is_nan() => "nan".to_string(),
        _ => format!("{c:?}"),
    };
    bytes.chunks(dtype.size()).map(show).collect()
}

/// Checks a loop; returns whether it is one function.
#[track_caller]
fn check_loop(graph: &Graph) -> bool {
    let specs = graph.arguments().map(|id| graph.spec(id).clone()).enumerate();
    let arguments: Vec<Vec<u8>> = specs.map(|(i, spec)| bytes_of(&spec, i)).collect();
    let program = lower(graph, FusionOptions::ALL, &Target::CPU).unwrap();
    let want = run_program(&program, &arguments, &[]);
    let (got, fused) = run_generated(&program, &arguments);
    let (got, want) = match (got, want) {
        (Ok(got), Ok(want)) => (got, want),
        (got, want) => {
            assert_eq!(got.map(drop), want.map(drop), "of\n{program}");
            return fused;
        }
    };
    for (number, (got, want)) in got.iter().zip(&want).enumerate() {
        let dtype = program.buffers[program.outputs[number].0 as usize].dtype;
        assert_eq!(shown(got, dtype), shown(want, dtype), "result {number} of\n{program}");
    }
    fused
}

/// A scan with a counter, a vector of which elements are read and replaced, a scalar, a slice and a
/// table. Some indices are out of bounds.
fn indexed_scan(rng: &mut Rng) -> Graph {
    let dtype = DTYPES[rng.below(DTYPES.len())];
    let at = [DType::I32, DType::I64, DType::I16, DType::U8][rng.below(4)];
    let (size, length, scalar) = (2 + rng.below(9), rng.below(7), TensorSpec::scalar(dtype));
    let vector = |n: usize| TensorSpec::new([n], dtype);
    let specs = [TensorSpec::scalar(at), vector(size), scalar.clone(), vector(3), vector(8)];
    let replaces = rng.below(4) > 0;
    let body = region(&specs, |b, x| {
        let (one, mut values, mut vector) = (b.scalar(at, 1.0), vec![x[2]], x[1]);
        let next = b.add(x[0], one)?;
        for _ in 0..1 + rng.below(5) {
            let from = [x[1], x[3], x[4]][rng.below(3)];
            let three = b.scalar(at, 3.0);
            let index = match (from == x[3], rng.below(3)) {
                (true, _) => b.op(OpCode::Remainder, &[x[0], three])?,
                (_, 0) => b.sub(x[0], three)?,
                _ => x[0],
            };
            let read = b.emit(Op::new(OpCode::Take, Attrs::Axis(0)), &[from, index])?;
            values.push(b.op(OpCode::Maximum, &[values[rng.below(values.len())], read])?);
        }
        let last = values[values.len() - 1];
        if replaces {
            let add = dtype != DType::Bool && rng.below(2) == 0;
            let mode = if add { ScatterMode::Add } else { ScatterMode::Set };
            let set = Op::new(OpCode::Scatter, Attrs::ScatterInto { axis: 0, mode });
            vector = b.emit(set, &[vector, x[0], last])?;
        }
        Ok(vec![next, vector, last, values[rng.below(values.len())]])
    });
    let control = Regions { carries: 3, slices: 1, length: length.into(), ..Regions::default() };
    let control = Arc::new(control.with_regions(vec![body]));
    let mut b = GraphBuilder::default();
    let start = b.constant(Literal::from_f64(at, 0.0), []);
    let slice = b.input(TensorSpec::new([length, 3], dtype));
    let operands = [start, b.input(vector(size)), b.input(scalar), slice, b.input(vector(8))];
    let first = 1 + rng.below(2);
    let result = |n| b.emit(Op::control(OpCode::Scan, control.clone(), n), &operands).unwrap();
    let outputs: Vec<NodeId> = (first..4).map(result).collect();
    b.finish(outputs)
}

#[test]
fn loops_that_index_vectors_have_the_bits_and_errors_of_the_portable_executor() {
    if !crate::jit::generates() {
        return;
    }
    crate::jit::on_each_level(|| {
        let check = |seed| check_loop(&indexed_scan(&mut Rng(seed))) as usize;
        let fused = (0..400).map(check).sum::<usize>();
        assert!(fused > 200, "{fused} of 400 loops are one function");
    });
}

#[test]
fn random_loops_have_the_bits_of_the_portable_executor() {
    if !crate::jit::generates() {
        return;
    }
    crate::jit::on_each_level(|| {
        let (mut scans, mut whiles) = (0, 0);
        for seed in 0..400 {
            let mut rng = Rng(seed);
            scans += check_loop(&Loop::new(&mut rng).scan(&mut rng)) as usize;
            whiles += check_loop(&Loop::new(&mut rng).repeated(&mut rng)) as usize;
        }
        assert!(scans > 150 && whiles > 150, "{scans} and {whiles} of 400 loops are one function");
    });
}

#[test]
fn the_code_has_only_instructions_of_avx2_on_every_machine() {
    use iced_x86::CpuidFeature::*;
    if !crate::jit::generates() {
        return;
    }
    for seed in 0..100 {
        let mut rng = Rng(seed);
        let of = Loop::new(&mut rng);
        let graph = if seed % 2 == 0 { of.scan(&mut rng) } else { of.repeated(&mut rng) };
        let program = lower(&graph, FusionOptions::ALL, &Target::CPU).unwrap();
        let kernel = LoadedKernel::load(&program.kernels[0], false, false);
        if !matches!(kernel.form, Implementation::Cycle(_)) {
            continue;
        }
        for code in kernel.code() {
            for (inst, line) in crate::disassembly::x86::disassemble(&code) {
                let known = inst.cpuid_features().iter().all(|feature| {
                    matches!(feature, INTEL8086 | INTEL386 | SSE | X64 | MULTIBYTENOP)
                        || matches!(feature, AVX | AVX2 | F16C | FMA)
                });
                assert!(!inst.is_invalid() && known, "{line} of\n{program}");
            }
        }
    }
}
