//! Golden plans of graphs with control flow, and the memory of temporaries.

use super::memory::Temporaries;
use super::*;
use girih_ir::ops::control::Regions;
use girih_ir::{Literal, Op, OpCode, TensorSpec};

/// A back end with one program per op; the programs do nothing.
struct OneByOne;

impl Backend for OneByOne {
    fn compile(&self, graph: &Graph, _: CompileOptions) -> Result<ExecutionPlan> {
        let mut plan =
            ExecutionPlan { arguments: ArgumentSpec::of_graph(graph), ..ExecutionPlan::default() };
        let mut arguments = 0;
        for (id, node) in graph.nodes() {
            assert!(node.op.as_control().is_none(), "{graph}");
            let placement = match node.op.takes_argument() {
                true => {
                    arguments += 1;
                    Placement::Argument(arguments - 1)
                }
                false if graph.outputs().contains(&id) => Placement::Output,
                false => Placement::Temporary(128 * id.index()),
            };
            plan.buffers.push(PlannedBuffer { placement, size_bytes: node.spec.size_bytes() });
            if !node.op.takes_argument() {
                plan.operations.push(Operation::compute(node.op.name(), plan.binaries.len()));
                plan.binaries.push(Arc::new(id));
            }
        }
        let last = |b: &PlannedBuffer| match b.placement {
            Placement::Temporary(at) => at + b.size_bytes,
            _ => 0,
        };
        plan.temporary_bytes = plan.buffers.iter().map(last).max().unwrap_or(0);
        let output = |&id: &NodeId| OutputSpec { spec: graph.spec(id).clone(), buffer: id.index() };
        plan.outputs = graph.outputs().iter().map(output).collect();
        Ok(plan)
    }
}

fn numbers() -> TensorSpec {
    TensorSpec::new([4], DType::F32)
}

/// The operations of a graph's plan as text; checks that the plan is valid.
fn operations(graph: &Graph) -> String {
    let backend = HostControlFlow::new(Arc::new(OneByOne));
    let plan = backend.compile(graph, CompileOptions::default()).unwrap();
    plan.validate().unwrap();
    let text = plan.to_string();
    let memory = |line: &&str| line.starts_with("  %") || line.starts_with("  $");
    let lines = text.lines().skip(1).skip_while(memory);
    let operations = lines.take_while(|line| !line.starts_with("  plan") && *line != "}");
    operations.map(|line| format!("{line}\n")).collect()
}

/// The graph that `f` builds from inputs of these specs.
fn graph(
    specs: &[TensorSpec],
    f: impl FnOnce(&mut GraphBuilder, &[NodeId]) -> Vec<NodeId>,
) -> Graph {
    let mut b = GraphBuilder::default();
    let inputs: Vec<NodeId> = specs.iter().map(|spec| b.input(spec.clone())).collect();
    let outputs = f(&mut b, &inputs);
    b.finish(outputs)
}

fn double() -> Graph {
    graph(&[numbers()], |b, x| vec![b.add(x[0], x[0]).unwrap()])
}

#[test]
fn a_conditional_compiles_to_a_branch_of_calls() {
    let regions = Regions::new(vec![double(), graph(&[numbers()], |_, x| vec![x[0]])]);
    let control = Arc::new(Control { regions, ..Control::default() });
    let index = TensorSpec::scalar(DType::I32);
    let program = graph(&[index, numbers()], |b, x| {
        let y = b.exp(x[1]).unwrap();
        let chosen = b.emit(Op::control(OpCode::Cond, control, 0), &[x[0], y]).unwrap();
        vec![b.exp(chosen).unwrap()]
    });
    assert_eq!(
        operations(&program),
        "  segment {
    call plan 0
  }
  cond {
    copy_from_device %0 -> $0
    host choose a branch
    branch $1 = 0 {
      call plan 1
    }
    branch $1 = 1 {
      copy_on_device 16 bytes %2+0 -> %3+0
    }
  }
  segment {
    call plan 2
  }
"
    );
}

#[test]
fn a_loop_runs_while_its_condition_holds_and_keeps_a_carry_that_stays() {
    let limit = TensorSpec::scalar(DType::F32);
    let condition = graph(&[limit.clone(), numbers()], |b, x| {
        let one = b.constant(Literal::from_f64(DType::F32, 1.0), []);
        vec![b.op(OpCode::Lt, &[x[0], one]).unwrap()]
    });
    let body = graph(&[limit.clone(), numbers()], |b, x| vec![x[0], b.add(x[1], x[1]).unwrap()]);
    let regions = Regions::new(vec![condition, body]);
    let control = Arc::new(Control { regions, carries: 2, ..Control::default() });
    let program = graph(&[limit, numbers()], |b, x| {
        vec![b.emit(Op::control(OpCode::WhileLoop, control, 1), x).unwrap()]
    });
    assert_eq!(
        operations(&program),
        "  while_loop {
    copy_on_device 4 bytes %0+0 -> %3+0
    copy_on_device 16 bytes %1+0 -> %2+0
    loop $0 {
      call plan 0
      copy_from_device %4 -> $0
    } while $0 {
      call plan 1
      copy_on_device 16 bytes %6+0 -> %2+0
    }
  }
"
    );
}

#[test]
fn parameters_are_tensors_of_the_caller() {
    let regions = Regions::new(vec![double(), graph(&[numbers()], |_, x| vec![x[0]])]);
    let control = Arc::new(Control { regions, ..Control::default() });
    let mut b = GraphBuilder::default();
    let index = b.input(TensorSpec::scalar(DType::I32));
    let weights = b.leaf(OpCode::Parameter.into(), numbers());
    let y = b.exp(weights).unwrap();
    let chosen = b.emit(Op::control(OpCode::Cond, control, 0), &[index, y]).unwrap();
    let program = b.finish([chosen]);
    assert!(operations(&program).starts_with("  segment {\n    call plan 0\n  }\n  cond {\n"));
}

#[test]
fn a_reverse_scan_reads_and_writes_slices_from_the_last_to_the_first() {
    let part = TensorSpec::new([2], DType::F32);
    let body = graph(&[part.clone(), part.clone()], |b, x| {
        let sum = b.add(x[0], x[1]).unwrap();
        vec![sum, b.exp(sum).unwrap()]
    });
    let regions = Regions::new(vec![body]);
    let (carries, slices, length, reverse) = (1, 1, 5.into(), true);
    let control =
        Arc::new(Control { regions, carries, slices, length, reverse, ..Control::default() });
    let parts = TensorSpec::new([5, 2], DType::F32);
    let program = graph(&[part, parts], |b, x| {
        // The exponentials, and the carry before each iteration.
        [1, 2]
            .map(|result| b.emit(Op::control(OpCode::Scan, control.clone(), result), x).unwrap())
            .into()
    });
    assert_eq!(
        operations(&program),
        "  scan {
    copy_on_device 8 bytes %0+0 -> %4+0
    repeat 5 times, t from 0 {
      copy_on_device 8 bytes %1+32-8t -> %5+0
      copy_on_device 8 bytes %4+0 -> %3+32-8t
      call plan 0
      copy_on_device 8 bytes %7+0 -> %4+0
      copy_on_device 8 bytes %6+0 -> %2+32-8t
    }
  }
"
    );
}

#[test]
fn allocations_that_are_needed_at_different_times_share_memory() {
    let mut temporaries = Temporaries::default();
    let sizes_and_times = [(100, (0, 1)), (300, (2, 3)), (100, (1, 2)), (50, (4, 9)), (0, (0, 9))];
    for (buffer, (size, times)) in sizes_and_times.into_iter().enumerate() {
        temporaries.add(size, times, &[(buffer, 0)]);
    }
    let unplaced = PlannedBuffer { placement: Placement::Unused, size_bytes: 0 };
    let mut buffers = [unplaced; 5];
    assert_eq!(temporaries.place(&mut buffers), 384 + 100);
    let places = buffers.map(|buffer| match buffer.placement {
        Placement::Temporary(at) => at,
        placement => panic!("{placement:?}"),
    });
    assert_eq!(places[..4], [0, 0, 384, 0]);
}

#[test]
fn integers_of_any_size_are_read() {
    let cases = [
        (vec![1], DType::Bool, 1),
        (vec![0xff], DType::U8, 255),
        (vec![0xfe, 0xff], DType::I16, -2),
        (vec![7, 0, 0, 0], DType::I32, 7),
        (vec![0xff; 8], DType::U64, i128::from(u64::MAX)),
    ];
    for (bytes, dtype, expected) in cases {
        assert_eq!(integer(&bytes, dtype), expected);
    }
}
