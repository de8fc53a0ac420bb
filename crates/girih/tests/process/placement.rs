//! On which device each op runs: random programs over three devices, whose back ends note the ops
//! that they compile, compared with the places that the rules of placement allow.

use crate::alone;
use girih::ir::{Graph, OpCode};
use girih::runtime::{
    Backend, CompileOptions, ExecutionPlan, OptimizedGraph, Result as RuntimeResult,
};
use girih::{DType, Device, DeviceScope, Result, Tensor, eval, register_device};
use girih_cpu::{HostBackend, HostDevice};
use girih_mock::{MockAccelerator, MockBackend, MockConfig};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex};

/// A back end that notes the ops of the graphs that it compiles.
struct Noting {
    inside: MockBackend,
    seen: Arc<Mutex<Vec<OpCode>>>,
}

impl Noting {
    fn note(&self, graph: &Graph) {
        self.seen.lock().unwrap().extend(graph.nodes().map(|(_, node)| node.op.code));
    }
}

impl Backend for Noting {
    fn compile(&self, graph: &Graph, options: CompileOptions) -> RuntimeResult<ExecutionPlan> {
        self.note(graph);
        self.inside.compile(graph, options)
    }

    fn optimize(&self, graph: &Graph, options: CompileOptions) -> RuntimeResult<OptimizedGraph> {
        self.note(graph);
        self.inside.optimize(graph, options)
    }

    fn lower(
        &self,
        original: &Graph,
        optimized: &Graph,
        live_arguments: &[usize],
        options: CompileOptions,
    ) -> RuntimeResult<ExecutionPlan> {
        self.inside.lower(original, optimized, live_arguments, options)
    }
}

struct Noted {
    device: Device,
    seen: Arc<Mutex<Vec<OpCode>>>,
}

impl Noted {
    fn new(name: &str) -> Noted {
        let seen: Arc<Mutex<Vec<OpCode>>> = Arc::default();
        let inside = MockBackend::new(Arc::new(HostBackend::default()), false);
        let backend = Arc::new(Noting { inside, seen: seen.clone() });
        let config = MockConfig { name: name.into(), ..MockConfig::default() };
        let host = Arc::new(HostDevice::of_process().unwrap());
        let device = MockAccelerator::new(host, config).unwrap();
        Noted { device: register_device(name, device, backend).unwrap(), seen }
    }

    /// The ops compiled since the last call.
    fn take(&self) -> Vec<OpCode> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

static DEVICES: LazyLock<[Noted; 3]> =
    LazyLock::new(|| ["here", "there", "beyond"].map(Noted::new));

type Unary = fn(&Tensor) -> Result<Tensor>;

/// The ops of a program, each used once, so that an op identifies its node.
const OPS: [(OpCode, Unary); 10] = [
    (OpCode::Sin, Tensor::sin),
    (OpCode::Cos, Tensor::cos),
    (OpCode::Tan, Tensor::tan),
    (OpCode::Atan, Tensor::atan),
    (OpCode::Tanh, Tensor::tanh),
    (OpCode::Asinh, Tensor::asinh),
    (OpCode::Erf, Tensor::erf),
    (OpCode::Sigmoid, Tensor::sigmoid),
    (OpCode::Exp, Tensor::exp),
    (OpCode::Expm1, Tensor::expm1),
];

/// A node of the model of a program.
#[derive(Clone)]
struct Modelled {
    tensor: Tensor,
    /// The same value, computed on the host.
    expected: Tensor,
    /// Index of the device, and whether the value is committed to it.
    at: usize,
    committed: bool,
    op: Option<OpCode>,
    operands: Vec<usize>,
    is_move: bool,
}

struct Program {
    nodes: Vec<Modelled>,
    state: u64,
    size: usize,
}

impl Program {
    fn draw(&mut self, below: usize) -> usize {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) as usize % below
    }

    fn source(&mut self) -> Result<()> {
        let (at, committed) = (self.draw(3), self.draw(2) == 0);
        let values: Vec<f32> = (0..self.size).map(|i| 0.01 * (1 + i % 7) as f32).collect();
        let scope = DeviceScope::new(DEVICES[at].device);
        let tensor = match committed {
            true => Tensor::from_slice(&values, [self.size])?,
            false => Tensor::ones([self.size], DType::F32)?.mul(0.25)?,
        };
        drop(scope);
        let expected = match committed {
            true => Tensor::from_slice(&values, [self.size])?,
            false => Tensor::ones([self.size], DType::F32)?.mul(0.25)?,
        };
        if self.draw(2) == 0 {
            tensor.eval()?;
        }
        let node = Modelled {
            tensor,
            expected,
            at,
            committed,
            op: None,
            operands: vec![],
            is_move: false,
        };
        self.nodes.push(node);
        Ok(())
    }

    fn unary(&mut self, (code, f): (OpCode, fn(&Tensor) -> Result<Tensor>)) -> Result<()> {
        let of = self.draw(self.nodes.len());
        let x = &self.nodes[of];
        let node = Modelled {
            tensor: f(&x.tensor)?,
            expected: f(&x.expected)?,
            op: Some(code),
            operands: vec![of],
            is_move: false,
            ..x.clone()
        };
        self.nodes.push(node);
        Ok(())
    }

    fn moved(&mut self) -> Result<()> {
        let (of, at) = (self.draw(self.nodes.len()), self.draw(3));
        let x = &self.nodes[of];
        let tensor = x.tensor.to_device(DEVICES[at].device)?;
        assert_eq!(tensor.device(), DEVICES[at].device);
        let node = Modelled {
            tensor,
            at,
            committed: true,
            op: None,
            operands: vec![of],
            is_move: x.at != at,
            ..x.clone()
        };
        self.nodes.push(node);
        Ok(())
    }

    fn sum(&mut self) -> Result<()> {
        let (a, b) = (self.draw(self.nodes.len()), self.draw(self.nodes.len()));
        let (x, y) = (&self.nodes[a], &self.nodes[b]);
        if x.committed && y.committed && x.at != y.at {
            assert!(x.tensor.add(&y.tensor).is_err(), "the operands are on two devices");
            return Ok(());
        }
        let place = if x.committed || !y.committed { x } else { y };
        let node = Modelled {
            tensor: x.tensor.add(&y.tensor)?,
            expected: x.expected.add(&y.expected)?,
            at: place.at,
            committed: place.committed,
            op: None,
            operands: vec![a, b],
            is_move: false,
        };
        self.nodes.push(node);
        Ok(())
    }

    /// The devices on which each node may run: a committed node on its device; a floating one on
    /// its own device, and where nodes run that use it other than by a move.
    fn allowed(&self) -> Vec<BTreeSet<usize>> {
        let mut allowed: Vec<BTreeSet<usize>> =
            self.nodes.iter().map(|node| BTreeSet::from([node.at])).collect();
        for (i, node) in self.nodes.iter().enumerate().rev() {
            for &operand in &node.operands {
                if !self.nodes[operand].committed && !node.is_move {
                    let users = allowed[i].clone();
                    allowed[operand].extend(users);
                }
            }
        }
        allowed
    }
}

#[test]
fn every_op_runs_where_its_operands_are() -> Result<()> {
    let _alone = alone();
    for seed in 0..60 {
        // A size of its own, so that no program is in the cache.
        let mut program = Program { nodes: Vec::new(), state: seed, size: 3 + seed as usize };
        for _ in 0..3 {
            program.source()?;
        }
        for op in OPS {
            match program.draw(3) {
                0 => program.moved()?,
                1 => program.sum()?,
                _ => {}
            }
            program.unary(op)?;
        }
        DEVICES.iter().for_each(|noted| drop(noted.take()));
        eval(program.nodes.iter().map(|node| &node.tensor))?;
        let seen = DEVICES.each_ref().map(Noted::take);
        let allowed = program.allowed();
        for (node, allowed) in program.nodes.iter().zip(&allowed) {
            let Some(op) = node.op else { continue };
            let ran: BTreeSet<usize> = (0..3).filter(|&at| seen[at].contains(&op)).collect();
            assert!(ran.is_subset(allowed), "seed {seed}: {op:?} ran on {ran:?}, not {allowed:?}");
            assert!(!node.committed || ran.contains(&node.at), "seed {seed}: {op:?} ran nowhere");
        }
        assert!(seen.iter().flatten().all(|&op| op != OpCode::ToDevice), "seed {seed}: a move ran");
        for node in &program.nodes {
            assert_eq!(node.tensor.device(), DEVICES[node.at].device);
            assert_eq!(node.tensor.to_vec::<f32>()?, node.expected.to_vec::<f32>()?, "seed {seed}");
        }
    }
    Ok(())
}

#[test]
fn a_value_stays_where_it_was_evaluated() -> Result<()> {
    let _alone = alone();
    let [here, there, _] = &*DEVICES;
    for size in [8, 1 << 14] {
        let scope = DeviceScope::new(here.device);
        let x = Tensor::ones([size], DType::F32)?.mul(0.5)?;
        x.eval()?;
        drop(scope);
        DEVICES.iter().for_each(|noted| drop(noted.take()));
        let y = x.exp()?.to_device(there.device)?.sin()?.add(1.0)?;
        assert_eq!(y.to_vec::<f32>()?, vec![0.5f32.exp().sin() + 1.0; size]);
        let (first, second) = (here.take(), there.take());
        assert!(first.contains(&OpCode::Exp) && !first.contains(&OpCode::Sin), "{first:?}");
        assert!(second.contains(&OpCode::Sin) && !second.contains(&OpCode::Exp), "{second:?}");
        assert_eq!(Device::of(&x.value()?), here.device);
    }
    Ok(())
}

#[test]
fn a_move_to_the_own_device_commits_without_a_move() -> Result<()> {
    let _alone = alone();
    let [here, there, _] = &*DEVICES;
    let scope = DeviceScope::new(here.device);
    let x = Tensor::ones([5], DType::F32)?.mul(0.5)?;
    drop(scope);
    x.set_requires_grad(true)?;
    let committed = x.to_device(here.device)?;
    let text = girih::graph_of([&committed])?.to_string();
    assert!(!text.contains("to_device"), "{text}");
    let other = Tensor::from_slice(&[1.0f32; 5], [5])?.to_device(there.device)?;
    assert!(committed.add(&other).is_err(), "the tensor is committed");
    assert_eq!(x.add(&other)?.device(), there.device);
    committed.mul(3.0)?.sum_all()?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, [3.0; 5]);
    Ok(())
}
