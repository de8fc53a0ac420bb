//! Checks of operations with other steps than a launch.

use crate::Random;
use crate::rig::{Rig, Subject, no_control};
use girih_ir::{Array, DType, Graph, GraphBuilder, TensorSpec};
use girih_runtime::plan::PlannedBuffer;
use girih_runtime::{
    ArgumentBlock, CachedPlan, CompileOptions, Completion, Error, ExecutionPlan, HostBytes,
    HostStep, Operands, Operation, Placement, Result, Step,
};
use std::sync::Arc;

const COUNT: usize = 6;

fn spec() -> TensorSpec {
    TensorSpec::new([COUNT], DType::F32)
}

/// `x + x`.
fn double() -> Graph {
    let mut b = GraphBuilder::default();
    let x = b.input(spec());
    let y = b.add(x, x).expect("one spec");
    b.finish([y])
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    Array::from_bytes(spec(), bytes).to_f64()
}

/// The programs of `x + x` in plans whose operations the test chooses, with slots.
struct Steps {
    rig: Rig,
    slots: Vec<usize>,
    /// The buffers of the argument and the result.
    input: usize,
    output: usize,
    launches: Vec<Step>,
    /// The slots of the last run.
    last: Vec<Vec<u8>>,
}

impl Steps {
    fn new(subject: &Subject, slots: &[usize]) -> Steps {
        let rig = subject.rig();
        let plan = rig.executor.plan(&double(), CompileOptions::default()).unwrap().plan.clone();
        let is_input = |b: &PlannedBuffer| matches!(b.placement, Placement::Argument(0));
        let input = plan.buffers.iter().position(is_input).expect("the argument is read");
        let output = plan.outputs[0].buffer;
        let steps = |operation: &Operation| {
            let compute = operation.compute.map(Step::Launch);
            operation.steps.iter().cloned().chain(compute).collect::<Vec<Step>>()
        };
        let launches = plan.operations.iter().flat_map(steps).collect();
        Steps { rig, slots: slots.into(), input, output, launches, last: Vec::new() }
    }

    /// A loaded plan with these steps.
    fn plan(&self, steps: Vec<Step>) -> CachedPlan {
        let compiled = self.rig.executor.plan(&double(), CompileOptions::default()).unwrap();
        let plan = ExecutionPlan {
            operations: vec![Operation::steps("steps", steps)],
            binaries: compiled.plan.binaries.clone(),
            buffers: compiled.plan.buffers.clone(),
            temporary_bytes: compiled.plan.temporary_bytes,
            arguments: compiled.plan.arguments.clone(),
            outputs: compiled.plan.outputs.clone(),
            slots: self.slots.clone(),
            ..ExecutionPlan::default()
        };
        self.rig.executor.load_plan(plan).expect("the suite's steps fit the plan")
    }

    fn bind(&self, plan: &CachedPlan) -> Arc<ArgumentBlock> {
        let arguments = self.rig.arguments(&[Random::new(6).array(&spec())]).unwrap();
        self.rig.executor.bind(plan, &arguments, no_control()).unwrap().0
    }

    fn run(&mut self, steps: Vec<Step>) -> Result<()> {
        let plan = self.plan(steps);
        let block = self.bind(&plan);
        let (stream, completion) = (self.rig.executor.stream(), Completion::pending());
        stream.run(&plan.plan, &block, Default::default(), completion, true)?;
        let bytes = |slot: &HostBytes| slot.lock().unwrap_or_else(|e| e.into_inner()).to_vec();
        self.last = block.slots().iter().map(bytes).collect();
        Ok(())
    }

    fn slot(&self, slot: usize) -> &[u8] {
        &self.last[slot]
    }
}

/// One operation copies in, launches, copies out, calls a host function, copies in and launches
/// again.
pub fn copies_launches_and_host_functions_run_in_order(subject: &Subject) {
    let mut steps = Steps::new(subject, &[COUNT * 4]);
    let array = Array::from_f64([COUNT], DType::F32, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let negate = HostStep::new("negate", |slots| {
        let mut bytes = slots[0].lock().unwrap_or_else(|e| e.into_inner());
        let negated: Vec<f64> = numbers(&bytes).iter().map(|x| -x).collect();
        bytes.copy_from_slice(&Array::from_f64([COUNT], DType::F32, &negated).to_bytes());
        Ok(())
    });
    let (input, output) = (steps.input, steps.output);
    let mut list = vec![Step::CopyToDevice { source: array.to_bytes().into(), buffer: input }];
    list.extend(steps.launches.clone());
    list.push(Step::CopyFromDevice { buffer: output, slot: 0 });
    list.push(Step::Host(negate));
    list.push(Step::CopyFromSlot { slot: 0, buffer: input });
    list.extend(steps.launches.clone());
    list.push(Step::CopyFromDevice { buffer: output, slot: 0 });
    steps.run(list).unwrap();
    let found = numbers(steps.slot(0));
    assert!(!subject.computes() || found == [-4.0, -8.0, -12.0, -16.0, -20.0, -24.0], "{found:?}");
}

/// Control flow by the host, for devices without control flow: doubles until the first number
/// exceeds 100, then takes one of two branches.
pub fn loops_and_branches_run_from_the_host(subject: &Subject) {
    if !subject.computes() {
        return;
    }
    let mut steps = Steps::new(subject, &[COUNT * 4, 1, 1]);
    let ones = Array::from_f64([COUNT], DType::F32, &[1.0; COUNT]);
    let small = HostStep::new("small", |slots| {
        let first = numbers(&slots[0].lock().unwrap_or_else(|e| e.into_inner()))[0];
        slots[1].lock().unwrap_or_else(|e| e.into_inner())[0] = u8::from(first < 100.0);
        slots[2].lock().unwrap_or_else(|e| e.into_inner())[0] = u8::from(first == 128.0);
        Ok(())
    });
    let (input, output) = (steps.input, steps.output);
    let mut body = steps.launches.clone();
    body.push(Step::CopyFromDevice { buffer: output, slot: 0 });
    body.push(Step::CopyFromSlot { slot: 0, buffer: input });
    let clear = HostStep::new("clear", |slots| {
        slots[0].lock().unwrap_or_else(|e| e.into_inner()).fill(0);
        Ok(())
    });
    let branches = [vec![], vec![Step::Host(clear)]].map(Vec::into_boxed_slice);
    let list = vec![
        Step::CopyToDevice { source: ones.to_bytes().into(), buffer: input },
        Step::CopyFromDevice { buffer: input, slot: 0 },
        Step::Loop { condition: [Step::Host(small)].into(), slot: 1, body: body.into() },
        Step::CopyFromDevice { buffer: output, slot: 0 },
        Step::Branch { slot: 2, branches: branches.into() },
    ];
    steps.run(list).unwrap();
    assert_eq!(numbers(steps.slot(0)), [0.0; COUNT], "the loop ended at 128, the branch cleared");
}

/// Arguments serve the plan for which they were bound, and an operation of another plan is checked
/// before it runs. A host function that replaces a slot by a longer one writes no other block.
pub fn arguments_of_other_plans_are_refused(subject: &Subject) {
    let mut steps = Steps::new(subject, &[COUNT * 4]);
    let (own, other) = (steps.plan(steps.launches.clone()), steps.plan(Vec::new()));
    let (block, stream) = (steps.bind(&own), steps.rig.executor.stream().clone());
    let done = Completion::pending;
    let run = |plan: &CachedPlan, wait| {
        let after = Default::default();
        steps.rig.executor.start(&stream, &plan.plan, &block, after, done(), wait)
    };
    assert_eq!(
        (run(&other, true), run(&other, false)),
        (Err(Error::OtherPlan), Err(Error::OtherPlan))
    );
    let operation = &own.plan.operations[0];
    assert_eq!(
        stream.launch(operation, Operands::Plan(&other.plan, &block)).err(),
        Some(Error::OtherPlan)
    );
    stream.launch(operation, Operands::Plan(&own.plan, &block)).unwrap().wait().unwrap();
    let long = Step::CopyToDevice { source: vec![0; COUNT * 4 + 1].into(), buffer: steps.output };
    let refused =
        stream.launch(&Operation::steps("long", [long]), Operands::Plan(&own.plan, &block)).err();
    assert!(matches!(refused, Some(Error::Compile(_))), "{refused:?}");
    let grow = HostStep::new("grow", |slots| {
        *slots[0].lock().unwrap_or_else(|e| e.into_inner()) = vec![0; 1 << 16].into();
        Ok(())
    });
    let copy = Step::CopyFromSlot { slot: 0, buffer: steps.output };
    let error = steps.run(vec![Step::Host(grow), copy]).expect_err("the slot is too long");
    assert!(matches!(error, Error::InvalidHandle { .. }), "{error}");
}

/// A buffer without memory cannot be copied to, whatever a plan says.
pub fn copies_to_buffers_without_memory_are_refused(subject: &Subject) {
    let steps = Steps::new(subject, &[]);
    let nothing = PlannedBuffer { placement: Placement::Unused, size_bytes: 64 };
    let copy = Step::CopyToDevice { source: [1; 64].into(), buffer: 0 };
    let plan = ExecutionPlan {
        operations: vec![Operation::steps("nowhere", [copy])],
        buffers: vec![nothing],
        ..ExecutionPlan::default()
    };
    let executor = &steps.rig.executor;
    let plan = executor.load_plan(plan).unwrap();
    let (block, _) = executor.bind(&plan, &[], no_control()).unwrap();
    let (stream, after) = (executor.stream(), Default::default());
    let error = executor.start(stream, &plan.plan, &block, after, Completion::pending(), true);
    assert!(matches!(error, Err(Error::InvalidHandle { .. })), "{error:?}");
}
