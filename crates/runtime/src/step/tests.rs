//! Tests of operations and steps on a device that stores bytes and logs launches.

use super::*;
use crate::plan::PlannedBuffer;
use crate::testing::{MockDevice, QueueDevice};
use crate::{Completion, DeviceHandle, LoadedPlan, Scheduler, Stream, Value};
use girih_sync::Mutex;
use std::time::Duration;

/// A plan whose programs are numbers, with buffers of these sizes and slots of these sizes.
fn plan(operations: Vec<Operation>, sizes: &[usize], slots: &[usize]) -> LoadedPlan {
    let placement = Placement::Temporary(0);
    let buffer = |&size_bytes: &usize| PlannedBuffer { placement, size_bytes };
    let programs: Vec<crate::Binary> = (0..4).map(|n: u32| Arc::new(n) as _).collect();
    LoadedPlan::of(ExecutionPlan {
        operations,
        binaries: programs.clone(),
        programs,
        buffers: sizes.iter().map(buffer).collect(),
        temporary_bytes: sizes.iter().copied().max().unwrap_or(0),
        slots: slots.to_vec(),
        ..ExecutionPlan::default()
    })
}

struct Run {
    device: Arc<MockDevice>,
    stream: Stream,
    block: Arc<ArgumentBlock>,
}

impl Run {
    /// Allocates the plan's buffers, with `first` in the first one, and its slots.
    fn new(plan: &LoadedPlan, first: &[u8]) -> Run {
        let device = MockDevice::new(Duration::ZERO);
        let stream = Stream::new(&Scheduler::new(device.clone()));
        let pool = device.allocator().pool_id();
        let mut block = ArgumentBlock { pool, ..ArgumentBlock::default() };
        for buffer in &plan.buffers {
            let memory = Arc::new(device.allocator().allocate(buffer.size_bytes).unwrap());
            let address = memory.address(buffer.size_bytes, &*device).unwrap();
            device
                .copy_to_device(None, &vec![0; buffer.size_bytes], memory.whole().place())
                .unwrap();
            block.addresses.push(address);
            block.handles.push(memory.handle());
            block.buffers.push(memory);
        }
        let slot = |&bytes: &usize| Arc::new(Mutex::new(vec![0; bytes].into()));
        block.slots = Some(plan.slots.iter().map(slot).collect());
        if let Some(memory) = block.buffers.first() {
            device.copy_to_device(None, first, memory.whole().place()).unwrap();
        }
        Run { device, stream, block: Arc::new(block) }
    }

    fn run(&self, plan: &LoadedPlan) -> Result<()> {
        plan.validate().unwrap();
        let completion = Completion::pending();
        self.stream.run(plan, &self.block, SmallVec::new(), completion, true)
    }

    fn bytes(&self, buffer: usize) -> Vec<u8> {
        let memory = &self.block.buffers[buffer];
        let mut bytes = vec![0; memory.size_bytes()];
        self.device.copy_from_device(None, memory.whole().place(), &mut bytes).unwrap();
        bytes
    }

    fn launches(&self) -> Vec<u32> {
        self.device.log.lock().unwrap().clone()
    }
}

#[test]
fn operations_of_every_kind_run_in_order() {
    let copy = || Step::CopyToDevice { source: [7; 4].into(), buffer: 0 };
    let operations = vec![
        Operation::compute("one", 1),
        Operation::compute_after("two", [copy(), Step::Launch(3)], 2),
        Operation::steps("three", [copy()]),
        Operation::default(),
    ];
    let plan = plan(operations, &[4], &[]);
    assert_eq!(plan.launches(), 3);
    let run = Run::new(&plan, &[0; 4]);
    run.run(&plan).unwrap();
    assert_eq!((run.launches(), run.bytes(0)), (vec![1, 3, 2], vec![7; 4]));
    // The primitives, in order.
    let operands = Operands::Plan(&plan, &run.block);
    let lowering = Lowering::new(&*run.device, operands).unwrap();
    let mut blocks = SmallVec::new();
    plan.operations.iter().try_for_each(|o| lowering.operation(o, &mut blocks)).unwrap();
    let names: Vec<String> = blocks.iter().map(|block| format!("{block:?}")).collect();
    assert_eq!(names, ["launch", "copy_to_device", "launch", "launch", "copy_to_device"]);
}

/// Does all work that a device with queues of its own has, and returns the positions and kinds of its
/// primitives.
fn drained(device: &QueueDevice, queue: usize) -> Vec<(u64, &'static str)> {
    let mut found = vec![];
    while let Some(primitive) = device.next(queue) {
        found.push(primitive);
        device.step(queue);
    }
    found
}

#[test]
fn copies_and_launches_of_a_stream_are_primitives_of_its_one_queue_in_order() {
    let device = QueueDevice::new();
    let stream = Stream::new(&Scheduler::new(device.clone()));
    let queue = stream.queue().index();
    let tensor = |bytes| Value::new(device.allocator().allocate(bytes).unwrap());
    let tensors = [tensor(4), tensor(8)];
    let slot: HostBytes = Arc::new(Mutex::new(vec![0; 4].into()));
    let slots = std::slice::from_ref(&slot);
    // A tensor is loaded by one copy; nothing is launched.
    let load = Operation::copy_to_device([1, 2, 3, 4].into());
    stream.launch(&load, Operands::Tensors(&tensors, &[])).unwrap();
    let copy = Operation::copy_on_device(2, 4, Runs::dense(2));
    stream.launch(&copy, Operands::Tensors(&tensors, &[])).unwrap();
    let plan = plan(vec![Operation::compute("one", 1)], &[], &[]);
    let block = Arc::new(ArgumentBlock::default());
    stream.launch(&plan.operations[0], Operands::Plan(&plan, &block)).unwrap();
    stream.queue().launch(&plan, 2, &block).unwrap();
    let whole = [tensors[1].clone()];
    let part = whole[0].skip(4);
    let read = Operation::copy_from_device();
    let done = stream.launch(&read, Operands::Tensors(&[part], slots)).unwrap();
    assert_eq!((done.poll(), device.log().len()), (None, 0), "all of it waits for the device");
    let kinds = ["copy_to_device", "copy_on_device", "launch", "launch", "copy_from_device"];
    assert_eq!(drained(&device, queue), (0..).zip(kinds).collect::<Vec<_>>());
    assert_eq!((done.poll(), device.log()), (Some(Ok(())), vec![1, 2]));
    assert_eq!(slot.lock().unwrap()[..2], [3, 4]);
}

#[test]
fn operations_name_only_tensors_that_they_are_launched_with() {
    let device = MockDevice::new(Duration::ZERO);
    let stream = Stream::new(&Scheduler::new(device.clone()));
    let tensor = Value::new(device.allocator().allocate(4).unwrap());
    let other = Value::new(MockDevice::new(Duration::ZERO).allocator().allocate(4).unwrap());
    let refused = |operation: Operation, operands: Operands<'_>| {
        stream.launch(&operation, operands).unwrap_err()
    };
    let tensors = Operands::Tensors(std::slice::from_ref(&tensor), &[]);
    let copy = |bytes: usize| Operation::copy_to_device(vec![0; bytes].into());
    stream.launch(&copy(4), tensors).unwrap().wait().unwrap();
    assert!(matches!(refused(copy(5), tensors), Error::InvalidHandle { size: 5, .. }));
    let stranger = Operands::Tensors(std::slice::from_ref(&other), &[]);
    let foreign = stream.launch(&copy(4), stranger).and_then(|done| done.wait());
    assert!(matches!(foreign, Err(Error::InvalidHandle { .. })), "{foreign:?}");
    let error = refused(Operation::copy_from_device(), tensors).to_string();
    assert!(error.contains("slot 0"), "{error}");
    let error = refused(Operation::copy_on_device(0, 0, Runs::dense(1)), tensors).to_string();
    assert!(error.contains("tensor 1"), "{error}");
    let compute = Operation::compute("of no plan", 3);
    assert_eq!(refused(compute, tensors), Error::NotLoaded { index: 3 });
}

#[test]
fn an_operation_may_read_results_and_process_them_on_the_host() {
    let double = HostStep::new("double", |slots| {
        slots[0].lock().unwrap().iter_mut().for_each(|byte| *byte *= 2);
        Ok(())
    });
    let steps = [
        Step::CopyToDevice { source: [1, 2, 3].into(), buffer: 0 },
        Step::Launch(1),
        Step::CopyFromDevice { buffer: 0, slot: 0 },
        Step::Host(double),
        Step::CopyFromSlot { slot: 0, buffer: 1 },
    ];
    let plan = plan(vec![Operation::steps("round trip", steps)], &[3, 3], &[3]);
    let run = Run::new(&plan, &[]);
    run.run(&plan).unwrap();
    assert_eq!((run.bytes(1), run.launches()), (vec![2, 4, 6], vec![1]));
}

#[test]
fn an_error_of_the_host_ends_the_run() {
    let fails = HostStep::new("fails", |_| Err(Error::Compile("asked to".into())));
    let steps = [Step::Host(fails), Step::Launch(1)];
    let plan = plan(vec![Operation::steps("fails", steps)], &[], &[]);
    let run = Run::new(&plan, &[]);
    assert_eq!(run.run(&plan), Err(Error::Compile("asked to".into())));
    assert!(run.launches().is_empty());
}

#[test]
fn strided_copies_within_the_device() {
    // The second and third columns of a matrix of 3 x 4 bytes, transposed in pairs.
    let repeats = SmallVec::from_iter([Repeat { count: 3, source: 4, target: 2 }]);
    let copy = Step::CopyOnDevice { source: (0, 1), target: (1, 2), run: 2, repeats };
    let plan = plan(vec![Operation::steps("copy", [copy])], &[12, 9], &[]);
    let run = Run::new(&plan, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    run.run(&plan).unwrap();
    assert_eq!(run.bytes(1), [0, 0, 1, 2, 5, 6, 9, 10, 0]);
}

#[test]
fn loops_and_branches_depend_on_values_in_memory() {
    // Decrements the slot's first byte to 0 and launches the branch with that index.
    let count_down = HostStep::new("count down", |slots| {
        slots[0].lock().unwrap()[0] -= 1;
        Ok(())
    });
    let read = || Step::CopyFromDevice { buffer: 0, slot: 0 };
    let branches = [0, 1, 2].map(|program| Box::from([Step::Launch(program)]));
    let body = [
        Step::Branch { slot: 0, branches: branches.into() },
        Step::Host(count_down),
        Step::CopyFromSlot { slot: 0, buffer: 0 },
    ];
    let control = Step::Loop { condition: [read()].into(), slot: 0, body: body.into() };
    let plan = plan(vec![Operation::steps("loop", [control])], &[1], &[1]);
    let run = Run::new(&plan, &[4]);
    run.run(&plan).unwrap();
    assert_eq!(run.launches(), [2, 2, 2, 1], "numbers beyond the branches take the last");
    assert_eq!(run.bytes(0), [0]);
}

#[test]
fn a_loop_that_does_not_end_is_stopped_with_its_run() {
    let control = Step::Loop { condition: [].into(), slot: 0, body: [].into() };
    let plan = plan(vec![Operation::steps("loop", [control])], &[], &[1]);
    let run = Run::new(&plan, &[]);
    run.block.slots()[0].lock().unwrap()[0] = 1;
    let completion = Completion::pending();
    let submitted = run.stream.run(&plan, &run.block, SmallVec::new(), completion.clone(), false);
    submitted.unwrap();
    run.block.control.cancel();
    assert!(matches!(completion.wait(), Err(Error::Cancelled { .. })));
}

#[test]
fn handles_are_copied_for_a_correction_in_the_order_of_the_arguments() {
    let copy = Step::CopyArguments { buffers: [1, 0].into(), target: 2 };
    let operation = Operation::compute_after("matmul", [copy, Step::Launch(0)], 1);
    let plan = plan(vec![operation], &[128, 256, 2 * HANDLE_BYTES], &[]);
    let run = Run::new(&plan, &[]);
    run.run(&plan).unwrap();
    let words: Vec<u64> =
        (run.bytes(2).chunks(8)).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    // The offset, and the index of region 0 plus 1.
    assert_eq!(words, [128, 1, 0, 1]);
    assert_eq!(run.launches(), [0, 1]);
    // For physical addresses, the same step writes the address and 0.
    let handles = [0x4000, 0x1000].map(|at| DeviceHandle::physical(run.device.id(), at));
    let block = Arc::new(ArgumentBlock { handles: handles.into(), ..Default::default() });
    let bytes = super::lowering::handles(&block, &[1, 0]);
    assert_eq!(bytes[..16], [0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(bytes[16..], [0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_correction_whose_handles_another_operation_copies_is_refused() {
    let copy = || Step::CopyArguments { buffers: [1, 0].into(), target: 2 };
    let buffers = [128, 256, 2 * HANDLE_BYTES];
    let whole = Operation::compute_after("matmul", [copy(), Step::Launch(0)], 1);
    plan(vec![whole], &buffers, &[]).validate().unwrap();
    let apart = vec![
        Operation::steps("handles", [copy()]),
        Operation::compute_after("matmul", [Step::Launch(0)], 1),
    ];
    let defects = plan(apart, &buffers, &[]).validate().unwrap_err();
    let missing = "handles are copied, but no correction and compute follow in this operation";
    assert_eq!(defects, [format!("handles: {missing}")]);
    // Each compute has a correction of its own.
    let defects = |steps: &[Step]| {
        let operation = Operation::compute_after("two", steps.iter().cloned(), 1);
        plan(vec![operation], &buffers, &[]).validate().err().unwrap_or_default()
    };
    let launch = |program| Step::Launch(program);
    assert!(defects(&[copy(), launch(0), launch(2), copy(), launch(0)]).is_empty());
    let second = "two: program 1 is launched without a correction before it";
    assert_eq!(defects(&[copy(), launch(0), launch(2)]), [second]);
    let first = "two: program 2 is launched without a correction before it";
    assert_eq!(defects(&[launch(2), copy(), launch(0)]), [first]);
    let again = "two: handles are copied again after 1 of 2 launches";
    assert_eq!(defects(&[copy(), launch(0), copy(), launch(0)]), [again]);
    let twice = [copy(), launch(0), launch(2), copy()];
    assert_eq!(defects(&twice), ["two: handles are copied, and 1 of 2 launches follow"]);
}

#[test]
fn defects_of_steps_are_all_listed() {
    let steps = [
        Step::CopyToDevice { source: [0; 5].into(), buffer: 0 },
        Step::CopyFromDevice { buffer: 0, slot: 3 },
        Step::CopyFromSlot { slot: 0, buffer: 0 },
        Step::CopyArguments { buffers: [0, 9].into(), target: 0 },
        Step::CopyOnDevice { source: (0, 2), target: (0, 0), run: 3, repeats: SmallVec::new() },
        Step::Loop { condition: [Step::Launch(8)].into(), slot: 1, body: [].into() },
        Step::Branch { slot: 0, branches: [].into() },
    ];
    let plan = plan(vec![Operation::steps("all", steps)], &[4], &[8, 0]);
    let defects = plan.validate().unwrap_err();
    let expected = [
        "all: 5 bytes do not fit buffer 0",
        "all: slot 3 does not exist",
        "all: the 8 bytes of slot 0 are not in buffer 0",
        "all: 2 handles take 32 bytes, buffer 0 has 4",
        "all: buffer 9 does not exist",
        "all: 3 bytes from 2 on are not in buffer 0",
        "all: slot 1 must have a byte for the predicate of the loop",
        "all: program 8 does not exist",
        "all: slot 0 must have bytes for the number of a branch, of which there are 0",
        "all: handles are copied, but no correction and compute follow in this operation",
    ];
    assert_eq!(defects, expected);
}

#[test]
fn queues_copy_within_the_device_and_refuse_bytes_beyond_the_buffers() {
    let run = Run::new(&plan(Vec::new(), &[8, 8], &[]), &[1, 2, 3, 4, 5, 6, 7, 8]);
    let (from, to) = (&run.block.buffers[0], &run.block.buffers[1]);
    let queue = run.stream.queue();
    queue.copy_on_device((from, 4), (to, 0), 4, &[]).unwrap().wait().unwrap();
    assert_eq!(run.bytes(1), [5, 6, 7, 8, 0, 0, 0, 0]);
    for (source, target) in [(5, 0), (0, 5)] {
        let error = queue.copy_on_device((from, source), (to, target), 4, &[]).unwrap_err();
        assert!(matches!(error, Error::InvalidHandle { .. }), "{error}");
    }
}
