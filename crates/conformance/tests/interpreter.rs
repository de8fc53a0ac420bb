//! A complete example of a device, which `docs/devices.md` explains: it has its own memory, and the
//! reference evaluator interprets its programs. It passes the suite, so all of Girih works on it.

use girih_conformance::{Subject, suite};
use girih_ir::{Array, Graph, OpCode, TensorSpec};
use girih_reference::evaluate;
use girih_runtime::plan::PlannedBuffer;
use girih_runtime::{
    Allocator, ArgumentSpec, Backend, Binary, Buffer, CompileOptions, Device, DeviceId, Error,
    ExecutionPlan, Launch, LoadedProgram, Operation, OutputSpec, Place, Placement, Properties,
    Result,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The size of the device's only region in bytes, and its base address.
const MEMORY: usize = 16 << 20;
const BASE: u64 = 0x1000;

/// A compiled program: the graph, with the index of the plan's buffer for each argument and output.
struct Interpreted {
    graph: Graph,
    /// The buffer of each argument; `None` for scalars and keys.
    arguments: Vec<Option<usize>>,
    outputs: Vec<usize>,
}

/// A back end whose plans have one operation that launches one program.
struct Interpreter;

impl Backend for Interpreter {
    fn compile(&self, graph: &Graph, _: CompileOptions) -> Result<ExecutionPlan> {
        let mut plan = ExecutionPlan::default();
        let mut program =
            Interpreted { graph: graph.clone(), arguments: Vec::new(), outputs: Vec::new() };
        for id in graph.arguments() {
            let (op, spec) = (&graph.node(id).op, graph.spec(id));
            let position = plan.arguments.len();
            let (argument, buffer) = match op.code {
                OpCode::Constant => (ArgumentSpec::Scalar(spec.dtype), None),
                _ if op.is_random() => (ArgumentSpec::RandomKey, None),
                _ => {
                    let placement = Placement::Argument(position);
                    let buffer = PlannedBuffer { placement, size_bytes: spec.size_bytes() };
                    plan.buffers.push(buffer);
                    (ArgumentSpec::Tensor(spec.clone()), Some(plan.buffers.len() - 1))
                }
            };
            plan.arguments.push(argument);
            program.arguments.push(buffer);
        }
        for &id in graph.outputs() {
            let (spec, buffer) = (graph.spec(id).clone(), plan.buffers.len());
            let (placement, size_bytes) = (Placement::Output, spec.size_bytes());
            plan.buffers.push(PlannedBuffer { placement, size_bytes });
            plan.outputs.push(OutputSpec { spec, buffer });
            program.outputs.push(buffer);
        }
        plan.binaries.push(Arc::new(program));
        plan.operations.push(Operation::compute("interpret", 0));
        Ok(plan)
    }
}

struct InterpreterDevice {
    properties: Properties,
    allocator: Arc<Allocator>,
    memory: Mutex<Vec<u8>>,
}

impl InterpreterDevice {
    fn new() -> Arc<InterpreterDevice> {
        let allocator = Allocator::new(DeviceId::unique(), "interpreter", &[MEMORY]);
        allocator.place_regions(&[BASE]);
        Arc::new(InterpreterDevice {
            properties: Properties {
                name: "interpreter".into(),
                target: "interpreter".into(),
                memory_bytes: MEMORY,
                concurrency: 1,
                copy_engines: false,
                own_queues: false,
                host_memory: false,
            },
            allocator,
            memory: Mutex::new(vec![0; MEMORY]),
        })
    }

    fn memory(&self) -> MutexGuard<'_, Vec<u8>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, reason: impl Into<String>) -> Error {
        let (operation, device) = ("interpret".into(), self.properties.name.clone());
        Error::Launch { operation, device, reason: reason.into() }
    }

    fn read(&self, address: u64, spec: &TensorSpec) -> Array {
        let start = (address - BASE) as usize;
        Array::from_bytes(spec.clone(), &self.memory()[start..start + spec.size_bytes()])
    }

    /// The values of the graph's arguments, in order.
    fn arguments(&self, program: &Interpreted, given: Launch<'_>) -> Result<Vec<Array>> {
        let value = |(at, (id, buffer)): (usize, (_, &Option<usize>))| {
            let (op, spec) = (&program.graph.node(id).op, program.graph.spec(id));
            if let Some(buffer) = buffer {
                return Ok(self.read(given.addresses()[*buffer], spec));
            }
            let [low, high] = given.words()[at];
            match op.code {
                OpCode::Constant => {
                    let scalar = TensorSpec::scalar(spec.dtype);
                    let bytes = [low, high].map(u64::to_le_bytes).concat();
                    Ok(Array::from_bytes(scalar.clone(), &bytes[..scalar.size_bytes()]))
                }
                OpCode::RandomUniform => {
                    let word = |i| girih_ir::random::word(low, high.wrapping_add(i)) >> 11;
                    let draw = |i| word(i) as f64 / (1u64 << 53) as f64;
                    let draws: Vec<f64> = (0..spec.numel() as u64).map(draw).collect();
                    Ok(Array::from_f64(spec.shape.clone(), spec.dtype, &draws))
                }
                _ => Err(self.failed("only uniform numbers are drawn here")),
            }
        };
        program.graph.arguments().zip(&program.arguments).enumerate().map(value).collect()
    }
}

impl Device for InterpreterDevice {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    fn copy_to_device(&self, _: Option<usize>, source: &[u8], target: Place<'_>) -> Result<()> {
        let start = (target.address(source.len(), self)? - BASE) as usize;
        self.memory()[start..start + source.len()].copy_from_slice(source);
        Ok(())
    }

    fn copy_from_device(
        &self,
        _: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        let start = (source.address(target.len(), self)? - BASE) as usize;
        target.copy_from_slice(&self.memory()[start..start + target.len()]);
        Ok(())
    }

    fn load(&self, binary: &Binary, _: Option<Arc<Buffer>>) -> Result<LoadedProgram> {
        Ok(binary.clone())
    }

    fn launch(&self, _: Option<usize>, launch: Launch<'_>) -> Result<()> {
        let Some(program) = launch.program().downcast_ref::<Interpreted>() else {
            return Err(self.failed("the program was compiled for another device"));
        };
        let values = self.arguments(program, launch)?;
        let results = evaluate(&program.graph, &values).map_err(|error| match error {
            girih_ir::Error::IndexOutOfBounds { index, size, .. } => {
                Error::IndexOutOfBounds { operation: "interpret".into(), index, size }
            }
            error => self.failed(error.to_string()),
        })?;
        for (result, &buffer) in results.iter().zip(&program.outputs) {
            let start = (launch.addresses()[buffer] - BASE) as usize;
            let bytes = result.to_bytes();
            self.memory()[start..start + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }
}

suite!(interpreter, Subject::new(Interpreter, InterpreterDevice::new));
