//! Checks of operations with other steps than a launch.

use crate::Random;
use crate::rig::{Rig, Subject, no_control};
use girih_ir::{Array, DType, Graph, GraphBuilder, TensorSpec};
use girih_runtime::plan::PlannedBuffer;
use girih_runtime::{
    ArgumentBlock, CompileOptions, Completion, Error, ExecutionPlan, HostBytes, HostStep,
    Operation, Placement, Result, Step,
};
use girih_sync::Mutex;
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

/// A plan with the programs of `x + x`, whose operations the test chooses, and slots.
struct Steps {
    rig: Rig,
    plan: ExecutionPlan,
    /// The buffers of the argument and the result.
    input: usize,
    output: usize,
    block: Arc<ArgumentBlock>,
    launches: Vec<Step>,
}

impl Steps {
    fn new(subject: &Subject, slots: &[usize]) -> Steps {
        let rig = subject.rig();
        let graph = double();
        let loaded = rig.executor.plan(&graph, CompileOptions::default()).unwrap().plan.clone();
        let array = Random::new(6).array(&spec());
        let arguments = rig.arguments(&[array]).unwrap();
        let (block, _) =
            rig.executor.bind(&loaded.clone().into(), &arguments, no_control()).unwrap();
        let mut block = Arc::into_inner(block).expect("nobody else has the block");
        let slot = |&bytes: &usize| HostBytes::new(Mutex::new(vec![0; bytes].into()));
        block.slots = Some(slots.iter().map(slot).collect());
        let is_input = |b: &PlannedBuffer| matches!(b.placement, Placement::Argument(0));
        let input = loaded.buffers.iter().position(is_input).expect("the argument is read");
        let output = loaded.outputs[0].buffer;
        let steps = |operation: &Operation| {
            let compute = operation.compute.map(Step::Launch);
            operation.steps.iter().cloned().chain(compute).collect::<Vec<Step>>()
        };
        let launches = loaded.operations.iter().flat_map(steps).collect();
        let plan = ExecutionPlan {
            binaries: loaded.binaries.clone(),
            programs: loaded.programs.clone(),
            buffers: loaded.buffers.clone(),
            temporary_bytes: loaded.temporary_bytes,
            arguments: loaded.arguments.clone(),
            outputs: loaded.outputs.clone(),
            slots: slots.to_vec(),
            ..ExecutionPlan::default()
        };
        Steps { rig, plan, input, output, block: Arc::new(block), launches }
    }

    fn run(&mut self, steps: Vec<Step>) -> Result<()> {
        self.plan.operations = vec![Operation::steps("steps", steps)];
        self.plan.validate().expect("the suite's steps fit the plan");
        let (stream, completion) = (self.rig.executor.stream(), Completion::pending());
        stream.run(&self.plan, &self.block, Default::default(), completion, true)
    }

    fn slot(&self, slot: usize) -> Vec<u8> {
        self.block.slots()[slot].lock().unwrap_or_else(|e| e.into_inner()).to_vec()
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
    let found = numbers(&steps.slot(0));
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
    assert_eq!(numbers(&steps.slot(0)), [0.0; COUNT], "the loop ended at 128, the branch cleared");
}

/// Running a plan that is not loaded is an error.
pub fn plans_that_are_not_loaded_are_refused(subject: &Subject) {
    let mut steps = Steps::new(subject, &[]);
    steps.plan.programs.clear();
    let launches = steps.launches.clone();
    let error = steps.run(launches).expect_err("nothing is loaded");
    assert!(matches!(error, Error::NotLoaded { .. }), "{error}");
}
