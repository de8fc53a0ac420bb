//! Stored programs that were altered: the checksum of their file may be right, but they never run.

use girih_compile::StoredProgram as Stored;
use girih_cpu::{HostBackend, HostDevice};
use girih_ir::{AxisSet, DType, Graph, GraphBuilder, OpCode, TensorSpec};
use girih_kernel::{BufferId, BufferKind, Core, FusionOptions, Inst, Kernel, Local, Target, lower};
use girih_runtime::{
    Argument, ArgumentSpec, Backend, CompileOptions, Completion, Device, DiskCache, DiskLimits,
    Error, PlanExecutor, Value,
};
use smallvec::SmallVec;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A softmax times a run-time scalar, a kernel over rows with locals.
fn graph() -> Graph {
    let mut b = GraphBuilder::default();
    let x = b.input(TensorSpec::new([32, 40], DType::F32));
    let factor = b.leaf(OpCode::Constant.into(), TensorSpec::scalar(DType::F32));
    let max = b.max(x, AxisSet::one(1), true).unwrap();
    let shifted = b.sub(x, max).unwrap();
    let e = b.exp(shifted).unwrap();
    let sum = b.sum(e, AxisSet::one(1), true).unwrap();
    let y = b.div(e, sum).unwrap();
    let factor = b.broadcast_to(factor, [32, 40]).unwrap();
    let y = b.mul(y, factor).unwrap();
    b.finish([y])
}

fn stored() -> Stored {
    let graph = graph();
    let program = lower(&graph, FusionOptions::ALL, &Target::CPU).unwrap();
    let outputs = graph.outputs().iter().map(|&id| graph.spec(id).clone()).collect();
    Stored { program, arguments: ArgumentSpec::of_graph(&graph), outputs }
}

fn parts(stored: &mut Stored) -> &mut Vec<Kernel> {
    let Core::Rows(rows) = &mut stored.program.kernels[0].core else { panic!("no softmax") };
    &mut rows.parts
}

/// A name, and a change that makes the kernels touch memory that nothing provides.
type Change = (&'static str, fn(&mut Stored));

const CHANGES: [Change; 11] = [
    ("a store beyond the result", |s| {
        parts(s).last_mut().unwrap().stores[0].access.offset = 1 << 20;
    }),
    ("a load before the argument", |s| parts(s)[0].accesses[0].offset = -1),
    ("a stride", |s| parts(s)[0].accesses[0].strides[0] *= 2),
    ("a buffer that does not exist", |s| parts(s)[0].accesses[0].buffer = BufferId(77)),
    ("a local that nothing reads", |s| {
        let Core::Rows(rows) = &mut s.program.kernels[0].core else { panic!("no softmax") };
        let first = rows.parts[0].clone();
        rows.parts = vec![first];
        rows.locals.truncate(1);
    }),
    ("a local too small", |s| {
        let Core::Rows(rows) = &mut s.program.kernels[0].core else { panic!("no softmax") };
        rows.locals[0].row_bytes = 1;
    }),
    ("the result as a local", |s| {
        let buffer = s.program.outputs[0];
        let row_bytes = 160;
        let Core::Rows(rows) = &mut s.program.kernels[0].core else { panic!("no softmax") };
        rows.locals.push(Local { buffer, row_bytes });
    }),
    ("a larger argument", |s| {
        s.program.buffers[0].numel *= 1000;
        parts(s)[0].accesses[0].offset = 40_000;
    }),
    ("an argument that does not exist", |s| {
        s.program.buffers[0].kind = BufferKind::Argument(9);
    }),
    ("a scalar that does not exist", |s| {
        for part in parts(s) {
            for inst in &mut part.body.insts {
                if let Inst::Scalar { argument, .. } = inst {
                    *argument = 1 << 40;
                }
            }
        }
    }),
    ("a smaller result", |s| s.outputs[0] = TensorSpec::new([2, 2], DType::F32)),
];

#[test]
fn a_program_with_altered_kernels_is_refused() {
    let bytes = stored().to_bytes();
    assert!(Stored::from_bytes(&bytes).is_ok(), "nothing was changed");
    for (name, change) in CHANGES {
        let mut altered = stored();
        change(&mut altered);
        let bytes = altered.to_bytes();
        assert_ne!(bytes, stored().to_bytes(), "{name} is no change");
        let refused = Stored::from_bytes(&bytes);
        assert!(matches!(refused, Err(Error::Compile(_))), "{name} was taken");
    }
}

/// Runs the graph with a cache in that directory; returns the result and the number of graphs that
/// were compiled.
fn run(directory: &Path) -> (Vec<f32>, u64) {
    let device: Arc<dyn Device> = Arc::new(HostDevice::of_process().unwrap());
    let executor =
        PlanExecutor::new(device.clone(), Arc::new(HostBackend::default()), Some(disk(directory)));
    let data: Vec<u8> = (0..32 * 40).flat_map(|i| (i as f32 / 100.0).to_le_bytes()).collect();
    let spec = TensorSpec::new([32, 40], DType::F32);
    let block = device.allocator().allocate(data.len()).unwrap();
    // SAFETY: only this thread uses the block.
    device.copy_to_device(None, &data, unsafe { block.place() }).unwrap();
    let arguments =
        [Argument::Tensor(Value::new(block), spec), Argument::Scalar(u64::from(2.0f32.to_bits()))];
    let plan = executor.plan(&graph(), CompileOptions::default()).unwrap();
    let control = executor.control(None, false);
    let (block, values) = executor.bind(&plan, &arguments, control).unwrap();
    let (completion, after) = (Completion::pending(), SmallVec::new());
    executor.start(executor.stream(), &plan.plan, &block, after, completion, true).unwrap();
    let bytes = executor.stream().download(&values[0], data.len()).unwrap();
    executor.disk().unwrap().flush();
    let number = |four: &[u8]| f32::from_le_bytes(four.try_into().unwrap());
    (bytes.chunks(4).map(number).collect(), executor.num_compiles())
}

fn disk(directory: &Path) -> Arc<DiskCache> {
    let limits = DiskLimits { bytes: 1 << 20, compile_time: Duration::ZERO };
    Arc::new(DiskCache::open(directory, &HostBackend::default().fingerprint(), limits).unwrap())
}

/// The key of the only program in a directory: see the head of a file in `disk.rs` of the runtime.
fn key(directory: &Path) -> Vec<u8> {
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let file = files.into_iter().find(|path| path.extension().is_some_and(|e| e == "plan"));
    let bytes = std::fs::read(file.unwrap()).unwrap();
    let length = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    bytes[88..88 + length].to_vec()
}

#[test]
fn an_altered_program_with_a_valid_checksum_is_compiled_again() {
    let directory = std::env::temp_dir().join(format!("girih-altered-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let (expected, compiled) = run(&directory);
    assert_eq!(compiled, 1);
    assert_eq!(run(&directory), (expected.clone(), 0), "the file is read");
    let key = key(&directory);
    let another: Change = ("the program of another graph", |s| {
        s.arguments.truncate(1);
        for part in parts(s) {
            for inst in &mut part.body.insts {
                if let Inst::Scalar { dtype, .. } = *inst {
                    *inst = Inst::Literal(girih_ir::Literal::from_f64(dtype, 1.0));
                }
            }
        }
    });
    for (name, change) in CHANGES.into_iter().chain([another]) {
        let mut altered = stored();
        change(&mut altered);
        let cache = disk(&directory);
        // The cache writes the file as it writes others, with a checksum that is right.
        cache.store_later(&key, Box::new(move || altered.to_bytes()), Duration::ZERO);
        cache.flush();
        assert_eq!(run(&directory), (expected.clone(), 1), "{name}");
        // The file of the new program has replaced the altered one.
        assert_eq!(run(&directory).1, 0, "{name}");
    }
    let _ = std::fs::remove_dir_all(&directory);
}
