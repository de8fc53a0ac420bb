//! Checks of tiled launches: the results are the same as without tiles.

use crate::rig::{Rig, Subject};
use crate::{Random, random_program};
use girih_ir::ops::Sample;
use girih_ir::{
    Array, AxisSet, Class, DType, Graph, GraphBuilder, NodeId, OpCode, ProgramFactors, ProgramRole,
    TensorSpec,
};
use girih_mock::{Hooks, Wrapped};
use girih_reference::evaluate;
use girih_runtime::{
    Argument, CompileOptions, Device, Error, KernelPlan, KernelRun, LaunchPath, Place, Remainder,
    Replay, Result, RunControl, Runs, Strides, TileArgument, TileOptions, TileResult, TileSource,
    TiledProgram, TiledRun,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn program(rig: &Rig, graph: &Graph) -> TiledProgram {
    rig.executor.tiled(graph, CompileOptions::default()).expect("the tile's program compiles")
}

fn on_device(rig: &Rig, arrays: &[Array]) -> Vec<TileArgument> {
    let argument = |x: &Array| TileArgument::Device(rig.upload(x).unwrap(), x.spec().clone());
    arrays.iter().map(argument).collect()
}

fn on_host(arrays: &[Array]) -> Vec<TileArgument> {
    let argument = |x: &Array| TileArgument::Host(Arc::new(x.to_bytes()), x.spec().clone());
    arrays.iter().map(argument).collect()
}

fn launch(
    rig: &Rig,
    program: &TiledProgram,
    arguments: &[TileArgument],
    options: TileOptions,
) -> Result<(Vec<Array>, usize)> {
    let stream = rig.executor.stream();
    let TiledRun { results, completion, tiles } =
        rig.executor.launch_tiled(stream, program, arguments, options)?;
    completion.wait()?;
    Ok((read_all(rig, &results)?, tiles))
}

fn read_all(rig: &Rig, results: &[TileResult]) -> Result<Vec<Array>> {
    let read = |result: &TileResult| match result {
        TileResult::Device(value, spec) => rig.download(value, spec),
        TileResult::Host(bytes, spec) => {
            let bytes = bytes.lock().unwrap_or_else(|e| e.into_inner());
            Ok(Array::from_bytes(spec.clone(), &bytes))
        }
    };
    results.iter().map(read).collect()
}

/// The graph for larger sizes than the tile's, with arguments.
fn whole(graph: &Graph, sizes: &[usize], random: &mut Random) -> Option<(Graph, Vec<Array>)> {
    let whole = ProgramFactors::of(graph).resized(graph, sizes)?;
    let arguments = whole.arguments().map(|id| random.array(whole.spec(id))).collect();
    Some((whole, arguments))
}

fn matrices(shapes: &[[usize; 2]]) -> (GraphBuilder, Vec<NodeId>) {
    let mut b = GraphBuilder::default();
    let inputs = shapes.iter().map(|&shape| b.input(TensorSpec::new(shape, DType::F32))).collect();
    (b, inputs)
}

/// `a @ b` for a tile of these sizes.
fn matmul(m: usize, k: usize, n: usize) -> Graph {
    let (mut b, x) = matrices(&[[m, k], [k, n]]);
    let y = b.matmul(x[0], x[1]).expect("shapes fit");
    b.finish([y])
}

/// A matmul is tiled along rows, columns and the contracted dimension, separately and combined,
/// with and without remainders, from device and host memory.
pub fn matmuls_are_tiled_in_every_dimension(subject: &Subject) {
    let rig = subject.rig();
    let mut random = Random::new(8);
    let tile = matmul(4, 6, 5);
    let program = program(&rig, &tile);
    assert_eq!(program.factors().to_string(), "i j, j k -> i k; j: add");
    for sizes in [[4, 6, 5], [16, 6, 5], [4, 6, 15], [4, 18, 5], [8, 12, 10], [11, 20, 13]] {
        let (graph, arguments) = whole(&tile, &sizes, &mut random).unwrap();
        let expected = [4, 6, 5].iter().zip(sizes).map(|(t, s)| s.div_ceil(*t)).product::<usize>();
        for to_host in [false, true] {
            for given in [on_device(&rig, &arguments), on_host(&arguments)] {
                let options = TileOptions { to_host, ..TileOptions::default() };
                let (found, tiles) = launch(&rig, &program, &given, options).unwrap();
                assert_eq!(tiles, expected);
                rig.compare(&format!("{sizes:?}"), &graph, &arguments, &found);
            }
        }
    }
}

/// Loops are row-major with the contracted dimension innermost.
pub fn tiles_come_row_by_row_with_the_contracted_dimension_innermost(subject: &Subject) {
    let rig = subject.rig();
    let program = program(&rig, &matmul(4, 6, 5));
    let specs = [[16, 12], [12, 5]].map(|shape| TensorSpec::new(shape, DType::F32));
    let specs: Vec<&TensorSpec> = specs.iter().collect();
    let tiling = program.tiling(&specs, Remainder::Strict).unwrap();
    assert_eq!((&tiling.loops[..], &tiling.counts[..]), (&[0, 1][..], &[4, 2][..]));
    let order: Vec<Vec<usize>> = tiling.tiles().collect();
    assert_eq!(order, [[0, 0], [0, 1], [1, 0], [1, 1], [2, 0], [2, 1], [3, 0], [3, 1]]);
    assert_eq!(tiling.results[0], TensorSpec::new([16, 5], DType::F32));
}

/// With sizes that are not multiples of the tile's, the last tile is exact or padded, or the launch
/// is an error that names the sizes.
pub fn remainders_are_exact_padded_or_refused(subject: &Subject) {
    let rig = subject.rig();
    let mut random = Random::new(9);
    // A small version of 4000 rows in tiles of 1024: 3 tiles and most of another one.
    let tile = matmul(16, 8, 3);
    let program = program(&rig, &tile);
    for sizes in [[61, 8, 3], [16, 8, 7], [61, 21, 7]] {
        let (graph, arguments) = whole(&tile, &sizes, &mut random).unwrap();
        for remainder in [Remainder::Exact, Remainder::Padded] {
            let options = TileOptions { remainder, ..TileOptions::default() };
            for given in [on_device(&rig, &arguments), on_host(&arguments)] {
                let (found, _) = launch(&rig, &program, &given, options).unwrap();
                rig.compare(&format!("{sizes:?} {remainder:?}"), &graph, &arguments, &found);
            }
        }
        let options = TileOptions { remainder: Remainder::Strict, ..TileOptions::default() };
        let given = on_device(&rig, &arguments);
        let error = launch(&rig, &program, &given, options).unwrap_err();
        let text = error.to_string();
        let numbers = [(sizes[0], 16), (sizes[1], 8), (sizes[2], 3)];
        let (size, tile) = numbers.iter().find(|(size, tile)| size % tile != 0).unwrap();
        assert!(text.contains(&size.to_string()) && text.contains(&tile.to_string()), "{text}");
    }
}

/// Reductions of every kind are accumulated over tiles; remainders are padded with the neutral
/// element.
pub fn partial_reductions_are_combined(subject: &Subject) {
    let rig = subject.rig();
    let mut random = Random::new(10);
    for (code, all) in [
        (OpCode::ReduceSum, true),
        (OpCode::ReduceMax, true),
        (OpCode::ReduceMin, true),
        (OpCode::ReduceProd, true),
        (OpCode::ReduceSum, false),
    ] {
        let (mut b, x) = matrices(&[[3, 4]]);
        let axes = if all { AxisSet::all(2) } else { AxisSet::one(1) };
        let y = b.reduce(code, x[0], axes, false).unwrap();
        let tile = b.finish([y]);
        let program = program(&rig, &tile);
        let (graph, arguments) = whole(&tile, &[10, 11], &mut random).unwrap();
        for remainder in [Remainder::Exact, Remainder::Padded] {
            let options = TileOptions { remainder, ..TileOptions::default() };
            let (found, tiles) = launch(&rig, &program, &on_host(&arguments), options).unwrap();
            assert_eq!(tiles, 12);
            rig.compare(&format!("{code:?} {remainder:?}"), &graph, &arguments, &found);
        }
    }
}

/// If only pointwise factors are tiled, the results of random programs are bitwise equal to those
/// without tiles.
pub fn random_programs_tile_to_the_same_bits(subject: &Subject) {
    let rig = subject.rig();
    let (mut tiled, mut refused) = (0, 0);
    for seed in 100..160 {
        let (tile, _) = random_program(seed);
        let program = program(&rig, &tile);
        let mut random = Random::new(seed);
        let grow = |&size: &usize| size * (1 + random.below(3)) + random.below(size.min(3) + 1);
        let sizes: Vec<usize> = program.tile().iter().map(grow).collect();
        let Some((graph, arguments)) = whole(&tile, &sizes, &mut random) else { continue };
        let factors = program.factors().factors().iter().enumerate();
        let grown = factors.filter(|(f, _)| sizes[*f] > program.tile()[*f]);
        let roles: Vec<&ProgramRole> = grown.map(|(_, factor)| &factor.role).collect();
        let given = match seed % 2 {
            0 => on_device(&rig, &arguments),
            _ => on_host(&arguments),
        };
        let found = launch(&rig, &program, &given, TileOptions::default());
        if roles.iter().any(|role| matches!(role, ProgramRole::Whole(_))) {
            assert!(matches!(found, Err(Error::Tiling(_))), "program {seed}");
            refused += 1;
            continue;
        }
        let (found, _) = found.unwrap_or_else(|e| panic!("program {seed}: {e}\n{tile}"));
        rig.compare(&format!("program {seed}"), &graph, &arguments, &found);
        let (found_in_place, _) = launch(&rig, &program, &on_device(&rig, &arguments), in_place())
            .unwrap_or_else(|e| panic!("program {seed} in place: {e}\n{tile}"));
        rig.compare(&format!("program {seed} in place"), &graph, &arguments, &found_in_place);
        if roles.iter().all(|role| **role == ProgramRole::Pointwise) {
            let at_once = rig.run(&graph, &arguments).unwrap();
            for (tiled, whole) in found.iter().zip(&at_once) {
                assert!(tiled.to_bytes() == whole.to_bytes(), "program {seed}\n{tile}");
            }
        }
        tiled += 1;
    }
    assert!(tiled > 10 && refused > 5, "{tiled} tiled, {refused} refused");
}

/// Every op with a factor that can be tiled.
pub fn every_op_with_factors_is_tiled(subject: &Subject) {
    let rig = subject.rig();
    let mut tiled = 0;
    for &code in OpCode::ALL {
        tiled += code.samples().iter().filter(|sample| tile_sample(&rig, sample)).count();
    }
    assert!(tiled > 150, "{tiled}");
}

/// Tiles each factor of a sample in turn, with and without a remainder. Returns whether there is
/// such a factor.
fn tile_sample(rig: &Rig, sample: &Sample) -> bool {
    let mut b = GraphBuilder::default();
    let inputs: Vec<NodeId> = sample.inputs.iter().map(|x| b.input(x.spec().clone())).collect();
    let y = b.emit(sample.op.clone(), &inputs).expect("the op takes the sample");
    let tile = b.finish([y]);
    let program = program(rig, &tile);
    let mut any = false;
    for (f, factor) in program.factors().factors().iter().enumerate() {
        let (whole, size) = (matches!(factor.role, ProgramRole::Whole(_)), program.tile()[f]);
        let given = program.factors().arguments().iter().flatten().flatten().any(|&g| g == f);
        if whole || size == 0 || !given {
            continue;
        }
        for larger in [3 * size, 2 * size + 1] {
            let mut sizes = program.tile().to_vec();
            sizes[f] = larger;
            let Some(graph) = program.factors().resized(&tile, &sizes) else { continue };
            let Some(arguments) = arguments(sample, &program, &graph, f) else { continue };
            let what = format!("{:?} along factor {f} of size {larger}", sample.op);
            let found = launch(rig, &program, &on_device(rig, &arguments), TileOptions::default());
            let (found, tiles) = found.unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(tiles, 3, "{what}");
            rig.compare(&what, &graph, &arguments, &found);
            let (found_in_place, _) =
                launch(rig, &program, &on_device(rig, &arguments), in_place())
                    .unwrap_or_else(|e| panic!("{what} in place: {e}"));
            rig.compare(&format!("{what} in place"), &graph, &arguments, &found_in_place);
            // A matmul with one row or column may be computed as a matrix-vector product, which
            // adds in another order.
            let vectors = multiplies(&graph) && (size == 1 || larger % size == 1);
            if factor.role == ProgramRole::Pointwise && !vectors {
                let at_once = rig.run(&graph, &arguments).unwrap();
                assert!(found[0].to_bytes() == at_once[0].to_bytes(), "{what}: other bits");
            }
            any = true;
        }
    }
    any
}

/// Whether a graph computes matmuls.
fn multiplies(graph: &Graph) -> bool {
    let primitives = graph.decomposed().expect("the suite's ops have definitions");
    let is_matmul = |op: &girih_ir::Op| op.class() == Class::Contraction;
    primitives.as_ref().unwrap_or(graph).any_op(&is_matmul)
}

/// Arguments for a sample's op at a larger size of a factor: each tile has a rotation of the
/// sample's elements or, for ops that restrict their arguments, such as to positive definite
/// matrices, the sample itself. `None` if the factor is not the outermost one of its axis.
fn arguments(
    sample: &Sample,
    program: &TiledProgram,
    graph: &Graph,
    factor: usize,
) -> Option<Vec<Array>> {
    let specs: Vec<&TensorSpec> = graph.arguments().map(|id| graph.spec(id)).collect();
    let all = |turn: usize| -> Option<Vec<Array>> {
        let axes = program.factors().arguments().iter();
        let inputs = sample.inputs.iter().zip(axes).zip(&specs);
        inputs.map(|((x, axes), spec)| larger(x, axes, factor, spec, turn)).collect()
    };
    let takes = |arguments: &Vec<Array>| evaluate(graph, arguments).is_ok();
    let varied = if matches!(sample.op.class(), Class::Library) { None } else { Some(all(1)?) };
    varied.filter(takes).or_else(|| all(0).filter(takes))
}

/// An array with that spec, which is larger along the axis with the factor: concatenated copies of
/// `x`, each rotated by `turn` more elements than the previous one.
fn larger(
    x: &Array,
    axes: &[girih_ir::factors::AxisFactors],
    factor: usize,
    spec: &TensorSpec,
    turn: usize,
) -> Option<Array> {
    let Some(axis) = axes.iter().position(|axis| axis.contains(&factor)) else {
        return Some(x.clone());
    };
    if axes[axis][0] != factor {
        return None;
    }
    let size = x.spec().shape[axis];
    let inner: usize = spec.shape[axis + 1..].iter().product();
    let (len, row) = (x.spec().numel(), spec.shape[axis] * inner);
    let element = |at: usize| {
        let (outer, position) = (at / row, at % row / inner);
        let own = (outer * size + position % size) * inner + at % inner;
        x.get((own + turn * (position / size)) % len)
    };
    Some(Array::new(spec.clone(), (0..spec.numel()).map(element)))
}

/// Tensors that the tiles do not support are errors, with sizes and reasons.
pub fn tensors_that_tiles_do_not_cover_are_refused(subject: &Subject) {
    let rig = subject.rig();
    let program = program(&rig, &matmul(4, 6, 5));
    let refused = |shapes: [[usize; 2]; 2], parts: &[&str]| {
        let specs = shapes.map(|shape| TensorSpec::new(shape, DType::F32));
        let specs: Vec<&TensorSpec> = specs.iter().collect();
        let error = program.tiling(&specs, Remainder::Exact).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    refused([[3, 6], [6, 5]], &["argument 0", "size 3", "axis 0", "4"]);
    refused([[8, 12], [6, 5]], &["argument 1", "6", "argument 0", "12"]);
    let one = TensorSpec::new([4, 6], DType::F32);
    assert!(matches!(program.tiling(&[&one], Remainder::Exact), Err(Error::ArgumentCount { .. })));
    let ints = TensorSpec::new([4, 6], DType::I32);
    let error = program.tiling(&[&ints, &one], Remainder::Exact).unwrap_err();
    assert!(matches!(error, Error::ArgumentMismatch { index: 0, .. }), "{error}");
    // Softmax needs the whole row.
    let (mut b, x) = matrices(&[[4, 6]]);
    let y = b.softmax(x[0], 1).unwrap();
    let softmax = rig.executor.tiled(&b.finish([y]), CompileOptions::default()).unwrap();
    let wide = TensorSpec::new([4, 12], DType::F32);
    let error = softmax.tiling(&[&wide], Remainder::Exact).unwrap_err().to_string();
    assert!(error.contains("softmax") && error.contains("12"), "{error}");
    // The array's memory is too short.
    let short = TileArgument::Host(Arc::new(vec![0u8; 8]), TensorSpec::new([4, 6], DType::F32));
    let given =
        [short, on_host(&[Random::new(1).array(&TensorSpec::new([6, 5], DType::F32))]).remove(0)];
    assert!(launch(&rig, &program, &given, TileOptions::default()).is_err());
}

fn in_place() -> TileOptions {
    TileOptions { in_place: true, ..TileOptions::default() }
}

/// Counts copies within the device.
#[derive(Default)]
struct CopiesOnDevice(AtomicUsize);

impl Hooks for CopiesOnDevice {
    fn copy_on_device(
        &self,
        inside: &dyn Device,
        queue: Option<usize>,
        places: (Place<'_>, Place<'_>),
        runs: &Runs,
    ) -> Result<()> {
        self.0.fetch_add(1, Relaxed);
        inside.copy_on_device(queue, places, runs)
    }
}

/// Tiles that are not dense are read in place by a program for their strides, which is compiled
/// once, and are not copied.
pub fn tiles_are_read_in_place(subject: &Subject) {
    let device = Arc::new(Wrapped::with_hooks(subject.device(), CopiesOnDevice::default()));
    let rig = subject.rig_on(device.clone());
    let tile = matmul(4, 6, 5);
    let program = program(&rig, &tile);
    // The columns of the right operand are tiled: two tiles of rows times three of columns.
    let (graph, arguments) = whole(&tile, &[8, 6, 15], &mut Random::new(13)).unwrap();
    let given = on_device(&rig, &arguments);
    let run = |options: TileOptions| {
        let copies = device.hooks().0.load(Relaxed);
        let compiles = rig.executor.counters().compiles;
        let (found, tiles) = launch(&rig, &program, &given, options).unwrap();
        assert_eq!(tiles, 6);
        rig.compare(&format!("{options:?}"), &graph, &arguments, &found);
        let copies = device.hooks().0.load(Relaxed) - copies;
        (copies, rig.executor.counters().compiles - compiles)
    };
    assert_eq!(run(TileOptions::default()), (6 + 6, 0), "each operand's tile and each result's");
    assert_eq!(run(in_place()), (6, 1), "the tiles of results are copied");
    assert_eq!(run(in_place()), (6, 0), "the strides are part of the key");
    // Tiles of both operands, with remainders: the program for each tile size has its own strides.
    let (graph, arguments) = whole(&tile, &[11, 20, 13], &mut Random::new(14)).unwrap();
    let (found, _) = launch(&rig, &program, &on_device(&rig, &arguments), in_place()).unwrap();
    rig.compare("remainders", &graph, &arguments, &found);
}

/// Strided arguments are checked like dense ones.
pub fn strided_arguments_are_checked(subject: &Subject) {
    let rig = subject.rig();
    let (graph, options) = (matmul(2, 3, 2), CompileOptions::default());
    let strides: Strides = [7, 1].into();
    let plan = rig.executor.plan_strided(&graph, &[Some(strides.clone()), None], options).unwrap();
    let [a, b] = [[2, 3], [3, 2]].map(|shape| TensorSpec::new(shape, DType::F32));
    let mut random = Random::new(15);
    let (larger, dense) = (random.array(&TensorSpec::new([10], DType::F32)), random.array(&b));
    let (larger_value, dense_value) = (rig.upload(&larger).unwrap(), rig.upload(&dense).unwrap());
    let second = Argument::Tensor(dense_value.clone(), b.clone());
    let given =
        [Argument::Strided(larger_value.clone(), a.clone(), strides.clone()), second.clone()];
    let replay = Replay::of(&rig.executor, || Ok(plan.clone())).unwrap();
    let values = replay.call(rig.executor.stream(), &given, None).unwrap();
    let gathered: Vec<f64> = [0, 1, 2, 7, 8, 9].map(|at| larger.to_f64()[at]).into();
    let gathered = Array::from_f64([2, 3], DType::F32, &gathered);
    let results = rig.results(&graph, &values).unwrap();
    rig.compare("strided", &graph, &[gathered, dense], &results);
    let refused = |first: Argument, parts: &[&str]| {
        let bound = rig.executor.bind(&plan, &[first, second.clone()], RunControl::default());
        let error = bound.map(drop).unwrap_err().to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    let other: Strides = [8, 1].into();
    refused(Argument::Strided(larger_value.clone(), a.clone(), other), &["[7, 1]", "[8, 1]"]);
    refused(Argument::Strided(dense_value.clone(), a.clone(), strides), &["40 bytes", "24 bytes"]);
    refused(Argument::Tensor(larger_value, a), &["[7, 1]"]);
}

/// A compiled tile runs on a larger tensor without another compilation.
pub fn a_tiles_program_is_compiled_once(subject: &Subject) {
    let rig = subject.rig();
    let tile = matmul(8, 8, 8);
    let program = program(&rig, &tile);
    let compiles = rig.executor.counters().compiles;
    let (graph, arguments) = whole(&tile, &[32, 8, 8], &mut Random::new(3)).unwrap();
    let launches = rig.executor.counters().launches;
    let given = on_device(&rig, &arguments);
    let (found, tiles) = launch(&rig, &program, &given, TileOptions::default()).unwrap();
    rig.compare("rows", &graph, &arguments, &found);
    let counters = rig.executor.counters();
    assert_eq!((counters.compiles, tiles), (compiles, 4));
    assert_eq!(counters.launches - launches, 4 * program_launches(&rig, &tile));
}

fn program_launches(rig: &Rig, graph: &Graph) -> u64 {
    rig.executor.plan(graph, CompileOptions::default()).unwrap().plan.launches() as u64
}

/// Each program of a sequence is launched whole or tile by tile, depending on its tensors; if the
/// tensors do not fit one program, none is launched.
pub fn each_program_of_a_plan_is_launched_whole_or_tiled(subject: &Subject) {
    let rig = subject.rig();
    let mut random = Random::new(12);
    // The weights are normalised as a whole; rows are multiplied tile by tile, then summed.
    let normalise = {
        let (mut b, x) = matrices(&[[6, 5]]);
        let y = b.softmax(x[0], 1).unwrap();
        b.finish([y])
    };
    let multiply = matmul(4, 6, 5);
    let sum = {
        let (mut b, x) = matrices(&[[4, 5]]);
        let y = b.reduce(OpCode::ReduceSum, x[0], AxisSet::one(0), false).unwrap();
        b.finish([y])
    };
    let result = |program| TileSource::Result { program, output: 0 };
    let plan = KernelPlan::new(vec![
        (program(&rig, &normalise), vec![TileSource::Input(1)]),
        (program(&rig, &multiply), vec![TileSource::Input(0), result(0)]),
        (program(&rig, &sum), vec![result(1)]),
    ])
    .unwrap();
    let weights = random.array(&TensorSpec::new([6, 5], DType::F32));
    let (whole, tiled) = (LaunchPath::Whole, LaunchPath::Tiled);
    for (rows, paths) in [
        (4, [whole, whole, whole]),
        (16, [whole, tiled(4), tiled(4)]),
        (10, [whole, tiled(3), tiled(3)]),
    ] {
        let x = random.array(&TensorSpec::new([rows, 6], DType::F32));
        let given = on_device(&rig, &[x.clone(), weights.clone()]);
        let normalised = evaluate(&normalise, std::slice::from_ref(&weights)).unwrap();
        let operands = [x, normalised[0].clone()];
        let resized = |graph: &Graph, sizes: &[usize]| {
            ProgramFactors::of(graph).resized(graph, sizes).unwrap()
        };
        let matmuls = evaluate(&resized(&multiply, &[rows, 6, 5]), &operands).unwrap();
        let last = ProgramFactors::of(&sum);
        let factor = |f: &girih_ir::factors::ProgramFactor| f.size.known().unwrap();
        let sizes: Vec<usize> = last.factors().iter().map(factor).collect();
        let sizes: Vec<usize> = sizes.iter().map(|&s| if s == 4 { rows } else { s }).collect();
        for to_host in [false, true] {
            let options = TileOptions { to_host, ..TileOptions::default() };
            let stream = rig.executor.stream();
            let KernelRun { results, completion, paths: taken } =
                rig.executor.launch_kernels(stream, &plan, &given, options).unwrap();
            completion.wait().unwrap();
            assert_eq!(taken, paths, "{rows} rows");
            let found = read_all(&rig, &results).unwrap();
            rig.compare(&format!("{rows} rows"), &resized(&sum, &sizes), &matmuls, &found);
        }
    }
    let launches = rig.executor.counters().launches;
    let wide = random.array(&TensorSpec::new([6, 10], DType::F32));
    let x = random.array(&TensorSpec::new([4, 6], DType::F32));
    let (given, stream) = (on_device(&rig, &[x, wide]), rig.executor.stream());
    let error = rig.executor.launch_kernels(stream, &plan, &given, TileOptions::default());
    assert!(matches!(error.err(), Some(Error::Tiling(_))), "softmax takes the row at once");
    let error = rig.executor.launch_kernels(stream, &plan, &given[..1], TileOptions::default());
    assert!(matches!(error.err(), Some(Error::ArgumentCount { expected: 2, found: 1 })));
    assert_eq!(rig.executor.counters().launches, launches);
    let early = KernelPlan::new(vec![(program(&rig, &sum), vec![result(0)])]);
    assert!(matches!(early.err(), Some(Error::ArgumentMismatch { index: 0, .. })));
}
