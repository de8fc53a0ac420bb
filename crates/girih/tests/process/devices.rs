//! Tests of several devices in one process: the placement of tensors, mixed devices, transfers
//! between devices, and gradients across devices.

use crate::alone;
use girih::runtime::{Backend, CompileOptions, Error as Runtime, ExecutionPlan, Lookup};
use girih::{
    Attribute, Context, DType, Device, DeviceScope, Error, Executor, ExecutorConfig, Result,
    Stream, StreamScope, Tensor, TensorState, apply, async_eval, cache_stats, compile, cond,
    devices, eval, grad, memory_stats, register_device, synchronize, vmap,
};
use girih_cpu::{HostBackend, HostDevice};
use girih_mock::{Fault, Faulty, MockAccelerator, MockBackend, MockConfig, Pace};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn mock() -> Device {
    Device::named("mock").unwrap()
}

fn data(values: &[f32]) -> Tensor {
    Tensor::from_slice(values, [values.len()]).unwrap()
}

#[test]
fn results_are_where_their_operands_are() -> Result<()> {
    let _alone = alone();
    let x = data(&[1.0, 2.0, 3.0]);
    assert_eq!(x.device(), Device::CPU);
    let there = x.to_device(mock())?;
    assert_eq!((there.device(), there.state()), (mock(), TensorState::Lazy));
    let y = there.mul(&there)?.add(1.0)?.sum_all()?;
    assert_eq!(y.device(), mock());
    assert_eq!(y.item::<f32>()?, 17.0);
    assert_eq!(Device::of(&y.value()?), mock());
    assert!(x.to_device(Device::CPU)?.is_same(&x));
    let back = y.to_device(Device::CPU)?;
    assert_eq!((back.device(), back.item::<f32>()?), (Device::CPU, 17.0));
    assert_eq!(Device::of(&back.value()?), Device::CPU);
    Ok(())
}

#[test]
fn every_dtype_and_shape_round_trips_through_a_device() -> Result<()> {
    let _alone = alone();
    for dtype in DType::ALL {
        for shape in [&[][..], &[0], &[1], &[3, 0, 2], &[2, 3], &[700, 301]] {
            let x = Tensor::arange(0..shape.iter().product::<usize>() as i64, DType::I64)?;
            let shape: Vec<i64> = shape.iter().map(|&size| size as i64).collect();
            let x = x.remainder(100)?.astype(dtype)?.reshape(&shape)?;
            x.eval()?;
            let back = x.to_device(mock())?.to_device(Device::CPU)?;
            assert_eq!(back.to_bytes()?, x.to_bytes()?, "{dtype} {shape:?}");
        }
    }
    Ok(())
}

#[test]
fn operands_of_two_devices_are_refused_where_they_are_mixed() -> Result<()> {
    let _alone = alone();
    let (x, y) = (data(&[1.0, 2.0]), data(&[3.0, 4.0]).to_device(mock())?);
    let Err(error @ Error::MixedDevices { .. }) = x.add(&y) else { panic!("they are mixed") };
    let text = error.to_string();
    for part in ["add", "f32[2] on cpu", "f32[2] on mock", "to_device"] {
        assert!(text.contains(part), "{text} has no {part}");
    }
    assert!(matches!(girih::concat(&[&x, &y, &x], 0), Err(Error::MixedDevices { .. })));
    // Both operands stay usable.
    assert_eq!(x.add(1.0)?.to_vec::<f32>()?, [2.0, 3.0]);
    assert_eq!(y.add(1.0)?.to_vec::<f32>()?, [4.0, 5.0]);
    // A scalar on the host is moved to the other operand's device, on either side.
    let number = Tensor::from_slice(&[10.0f32], [])?;
    assert_eq!(y.mul(&number)?.to_vec::<f32>()?, [30.0, 40.0]);
    assert_eq!(number.sub(&y)?.device(), mock());
    let there = number.to_device(mock())?;
    assert!(matches!(there.add(&x), Err(Error::MixedDevices { .. })));
    Ok(())
}

#[test]
fn constants_and_random_leaves_move_to_the_device_of_their_users() -> Result<()> {
    let _alone = alone();
    let x = data(&[1.0, 2.0]).to_device(mock())?;
    let ramp = Tensor::arange(0..2, DType::F32)?;
    assert_eq!(ramp.device(), Device::CPU);
    let sum = x.add(&ramp)?;
    assert_eq!((sum.device(), sum.to_vec::<f32>()?), (mock(), vec![1.0, 3.0]));
    // This also holds after it was computed elsewhere.
    let doubled = ramp.mul(2.0)?;
    eval([&ramp, &doubled])?;
    assert_eq!(x.add(&doubled.add(&ramp)?)?.to_vec::<f32>()?, [1.0, 5.0]);
    girih::random::manual_seed(7);
    let here = Tensor::rand([4], DType::F32)?.to_vec::<f32>()?;
    girih::random::manual_seed(7);
    let there = Tensor::rand([4], DType::F32)?.to_device(mock())?;
    assert_eq!(there.to_vec::<f32>()?, here);
    assert_eq!(Device::of(&there.value()?), mock());
    Ok(())
}

#[test]
fn a_device_scope_places_new_data() -> Result<()> {
    let _alone = alone();
    {
        let _scope = DeviceScope::new(mock());
        let (x, ones) = (data(&[1.0, 2.0]), Tensor::ones([2], DType::F32)?);
        assert_eq!((x.device(), ones.device()), (mock(), mock()));
        assert_eq!(Context::current().device(), mock());
        {
            let _inner = DeviceScope::new(Device::CPU);
            assert_eq!(data(&[1.0]).device(), Device::CPU);
        }
        assert_eq!(devices()?[0], mock());
        assert_eq!(Stream::new(0)?.device(), mock());
        assert_eq!(Device::of(&ones.value()?), mock());
    }
    assert_eq!((Context::current().device(), data(&[1.0]).device()), (Device::CPU, Device::CPU));
    Ok(())
}

#[test]
fn gradients_go_back_across_devices() -> Result<()> {
    let _alone = alone();
    let w = data(&[0.5, -1.0]).to_device(mock())?;
    let f = |x: &[Tensor]| {
        let h = x[0].exp()?.to_device(mock())?;
        h.mul(&x[1])?.sum_all()?.to_device(Device::CPU)
    };
    let x = data(&[1.0, 2.0]);
    let gradients = grad(f)(&[x.clone(), w.clone()])?;
    assert_eq!(gradients.iter().map(Tensor::device).collect::<Vec<_>>(), [Device::CPU, mock()]);
    let expected = [0.5 * 1.0f32.exp(), -(2.0f32.exp())];
    assert_eq!(gradients[0].to_vec::<f32>()?, expected);
    assert_eq!(gradients[1].to_vec::<f32>()?, [1.0f32.exp(), 2.0f32.exp()]);

    x.set_requires_grad(true)?;
    f(&[x.clone(), w])?.backward()?;
    assert_eq!(x.grad().unwrap().to_vec::<f32>()?, expected);

    let rows = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [2, 2])?;
    let moved = vmap(|x| Ok(vec![x[0].to_device(mock())?.mul(2.0)?]), &[Some(0)])(&[rows])?;
    assert_eq!((moved[0].device(), moved[0].to_vec::<f32>()?), (mock(), vec![2.0, 4.0, 6.0, 8.0]));
    Ok(())
}

#[test]
fn a_compiled_function_runs_where_its_arguments_are() -> Result<()> {
    let _alone = alone();
    let f = compile(|x| Ok(vec![x[0].mul(&x[0])?.add(1.0)?]));
    let (x, there) = (data(&[1.0, 2.0]), data(&[3.0, 4.0]).to_device(mock())?);
    for _ in 0..2 {
        assert_eq!(f.call(&[&x])?[0].to_vec::<f32>()?, [2.0, 5.0]);
        let result = f.call(&[&there])?.swap_remove(0);
        assert_eq!((result.device(), result.to_vec::<f32>()?), (mock(), vec![10.0, 17.0]));
    }
    assert_eq!(f.num_programs(), 1, "the program is that of all devices");
    let sum = compile(|x| Ok(vec![x[0].add(&x[1])?]));
    assert!(matches!(sum.call(&[&x, &there]), Err(Error::MixedDevices { .. })));
    // A floating tensor is computed on the device of the others.
    let ramp = Tensor::arange(0..2, DType::F32)?;
    assert_eq!(sum.call(&[&there, &ramp])?[0].to_vec::<f32>()?, [3.0, 5.0]);
    let moves = compile(|x| Ok(vec![x[0].to_device(mock())?]));
    assert!(matches!(moves.call(&[&x]), Err(Error::InvalidArgument(_))));
    Ok(())
}

#[test]
fn each_device_has_programs_of_its_own() -> Result<()> {
    let _alone = alone();
    let devices = ["one", "two"].map(|name| registered(name, MockConfig::default()));
    let compiled = |device| {
        let _scope = DeviceScope::new(device);
        cache_stats().map(|stats| stats.compiles)
    };
    let x = Tensor::from_slice(&[0.5f32; 77], [7, 11])?;
    for device in [devices[0], devices[1], devices[0], devices[1]] {
        x.to_device(device)?.matmul(&x.to_device(device)?.t()?)?.tanh()?.eval()?;
    }
    assert_eq!([compiled(devices[0])?, compiled(devices[1])?], [1, 1]);
    Ok(())
}

#[test]
fn devices_that_do_not_exist_are_refused_by_number() -> Result<()> {
    let _alone = alone();
    let x = data(&[1.0, 2.0]);
    let number = |n| Attribute::Int(n);
    let moved = apply("to_device", &[&x], &[("from", number(0)), ("to", number(63))]);
    assert!(matches!(moved, Err(Error::InvalidArgument(_))));
    let moved = apply("to_device", &[&x], &[("from", number(0)), ("to", number(0))])?;
    assert_eq!(moved.to_vec::<f32>()?, [1.0, 2.0]);
    Ok(())
}

#[test]
fn bodies_of_branches_and_loops_stay_on_one_device() -> Result<()> {
    let _alone = alone();
    let x = data(&[1.0, 2.0]).to_device(mock())?;
    let positive = x.sum_all()?.gt(0.0)?;
    let twice = |x: &[Tensor]| Ok(vec![x[0].mul(2.0)?]);
    let same = |x: &[Tensor]| Ok(vec![x[0].clone()]);
    let y = cond(&positive, twice, same, std::slice::from_ref(&x))?;
    assert_eq!((y[0].device(), y[0].to_vec::<f32>()?), (mock(), vec![2.0, 4.0]));
    let away = |x: &[Tensor]| Ok(vec![x[0].to_device(Device::CPU)?]);
    let Err(Error::InvalidArgument(text)) = cond(&positive, away, same, &[x]) else {
        panic!("a body moves a tensor")
    };
    assert!(text.contains("cond") && text.contains("device"), "{text}");
    Ok(())
}

#[test]
fn one_evaluation_serves_several_devices() -> Result<()> {
    let _alone = alone();
    let x = data(&[1.0, 2.0]);
    let there = x.mul(2.0)?.to_device(mock())?;
    let (a, b) = (x.add(1.0)?, there.add(&there.to_device(mock())?)?);
    let c = b.to_device(Device::CPU)?.add(&a)?;
    eval([&a, &b, &c])?;
    for tensor in [&a, &b, &c] {
        assert_eq!(tensor.state(), TensorState::Available);
    }
    assert_eq!(c.to_vec::<f32>()?, [6.0, 11.0]);
    Ok(())
}

#[test]
fn evaluations_across_devices_run_in_the_background() -> Result<()> {
    let _alone = alone();
    let mut x = data(&[1.0; 1000]);
    for step in 0..20 {
        let device = if step % 2 == 0 { mock() } else { Device::CPU };
        x = x.add(1.0)?.to_device(device)?.mul(1.5)?;
        async_eval([&x])?;
    }
    synchronize(None)?;
    let expected = (0..20).fold(1.0f32, |x, _| (x + 1.0) * 1.5);
    assert_eq!(x.to_vec::<f32>()?, vec![expected; 1000]);
    synchronize(Some(mock()))
}

#[test]
fn streams_are_of_one_device() -> Result<()> {
    let _alone = alone();
    let stream = Stream::on(mock(), 0)?;
    let _scope = StreamScope::new(&stream);
    let (x, there) = (data(&[1.0, 2.0]), data(&[3.0]).to_device(mock())?);
    assert_eq!(Context::current().stream()?.device(), Device::CPU);
    let (a, b) = (x.exp()?, there.exp()?);
    async_eval([&a, &b])?;
    stream.synchronize()?;
    assert_eq!(b.to_vec::<f32>()?, [3.0f32.exp()]);
    assert_eq!(a.to_vec::<f32>()?, [1.0f32.exp(), 2.0f32.exp()]);
    assert_eq!(format!("{stream:?}"), format!("Stream(device=mock, index={})", stream.index()));
    Ok(())
}

#[test]
fn memory_is_counted_for_each_device() -> Result<()> {
    let _alone = alone();
    let device = registered("counted", MockConfig::default());
    let before = memory_stats(Some(device))?;
    let x = data(&[0.0; 1 << 10]).to_device(device)?;
    x.eval()?;
    assert_eq!(memory_stats(Some(device))?.in_use - before.in_use, 4 << 10);
    drop(x);
    assert_eq!(memory_stats(Some(device))?.in_use, before.in_use);
    Ok(())
}

fn registered(name: &str, config: MockConfig) -> Device {
    let config = MockConfig { name: name.into(), ..config };
    let host = Arc::new(HostDevice::of_process().unwrap());
    let backend = MockBackend::new(Arc::new(HostBackend::default()), config.corrections);
    let device = MockAccelerator::new(host, config).unwrap();
    register_device(name, device, Arc::new(backend)).unwrap()
}

#[test]
fn registered_devices_are_found_by_name() -> Result<()> {
    let _alone = alone();
    let device = registered("mine", MockConfig::default());
    assert_eq!((Device::named("mine")?, device.name()), (device, "mine"));
    assert!(devices()?.contains(&device));
    assert_eq!(device.info()?.name, "mine");
    let x = data(&[2.0]).to_device(device)?.to_device(mock())?.to_device(device)?;
    assert_eq!(x.mul(3.0)?.to_vec::<f32>()?, [6.0]);
    let host = || Arc::new(HostDevice::of_process().unwrap());
    for taken in ["mine", "cpu", "mock", "cs2", "", "a:b", " x"] {
        let error = register_device(taken, host(), Arc::new(HostBackend::default()));
        assert!(matches!(error, Err(Error::InvalidArgument(_))), "{taken}");
    }
    for unknown in ["gpu", "cpu:x", "mock:fast"] {
        assert!(matches!(Device::named(unknown), Err(Error::UnknownDevice { .. })), "{unknown}");
    }
    for absent in ["cs3", "cpu:9"] {
        let error = Device::named(absent);
        assert!(matches!(error, Err(Error::DeviceUnavailable { .. })), "{absent}");
    }
    let executor = Executor::new(ExecutorConfig { device: "mine".into(), ..Default::default() })?;
    assert_eq!(executor.device(), device);
    let (here, floats) = (data(&[1.0]).mul(2.0)?, Tensor::arange(0..3, DType::F32)?.mul(2.0)?);
    let run = |tensor: &Tensor| executor.execute(&girih::current_graph(), &[tensor.id()]);
    let error = run(&here).error.expect("it is on another device");
    assert!(error.to_string().contains("on cpu"), "{error}");
    assert!(run(&floats).success);
    assert_eq!(Device::of(&floats.value()?), device);
    Ok(())
}

/// A back end that compiles with the host's and puts its own name before each operation's.
#[derive(Default)]
struct Named(HostBackend);

impl Named {
    fn named(&self, mut plan: ExecutionPlan) -> ExecutionPlan {
        plan.operations.iter_mut().for_each(|op| op.name.insert_str(0, "named: "));
        plan
    }
}

impl Backend for Named {
    fn compile(
        &self,
        graph: &girih::ir::Graph,
        options: CompileOptions,
    ) -> Result<ExecutionPlan, Runtime> {
        Ok(self.named(self.0.compile(graph, options)?))
    }
}

#[test]
fn a_registered_device_runs_what_its_own_back_end_compiles() -> Result<()> {
    let _alone = alone();
    let host = Arc::new(HostDevice::numbered(7)?);
    let device = register_device("with its own back end", host, Arc::new(Named::default()))?;
    let y = data(&[1.0, 2.0]).to_device(device)?.mul(3.0)?;
    // Its memory is the host's, which does not make the host's back end compile for it.
    let info = girih::compile_graph([&y])?;
    assert!(info.kernels.contains("named: mul"), "{}", info.kernels);
    let explanation = girih::explain([&y])?;
    assert_eq!(explanation.operations[0].name, "named: mul");
    assert_eq!(explanation.kernels[0].name, "named: mul");
    assert_eq!(explanation.to_c(), None);
    assert_eq!((explanation.memory.output_bytes, explanation.memory.argument_bytes), (8, 8));
    assert_eq!(explanation.cache, Lookup::Hit, "compile_graph has compiled what runs");
    assert_eq!(y.to_vec::<f32>()?, [3.0, 6.0]);
    Ok(())
}

#[test]
fn a_device_explains_the_plan_that_it_runs() -> Result<()> {
    let _alone = alone();
    let config = MockConfig { corrections: true, ..MockConfig::default() };
    let corrected = registered("explained with corrections", config);
    let y = data(&[1.0, 2.0]).to_device(corrected)?.mul(3.0)?;
    let explanation = girih::explain([&y])?;
    assert_eq!(explanation.kernels.len(), 1);
    assert!(explanation.to_c().is_some_and(|c| c.contains("void program")), "{explanation}");
    let steps = &explanation.operations[0].steps;
    assert!(steps.len() > 1 && steps[0].contains("copy"), "no correction in {steps:?}");
    // Loops that the host runs are calls of plans.
    let looping = Device::named("mock:host_control_flow")?;
    let x = data(&[1.0, 2.0]).to_device(looping)?;
    let doubled = girih::fori_loop(0, 3, |_, carry| Ok(vec![carry[0].mul(2.0)?]), &[x])?;
    let explanation = girih::explain(&doubled)?;
    assert!(!explanation.kernels.is_empty() && explanation.to_c().is_none(), "{explanation}");
    assert_eq!(doubled[0].to_vec::<f32>()?, [8.0, 16.0]);
    Ok(())
}

#[test]
fn a_device_that_fails_leaves_the_tensors_lazy_and_the_others_unharmed() -> Result<()> {
    let _alone = alone();
    let host = Arc::new(HostDevice::of_process()?);
    let config = MockConfig { name: "failing".into(), ..MockConfig::default() };
    let faulty = Faulty::new(MockAccelerator::new(host, config)?);
    let backend = Arc::new(MockBackend::new(Arc::new(HostBackend::default()), false));
    let device = register_device("failing", faulty.clone(), backend)?;
    let x = data(&[1.0, 2.0]);
    let y = x.to_device(device)?.mul(2.0)?;
    let z = y.to_device(Device::CPU)?.add(&x)?;
    faulty.inject(Fault::Launch, 0);
    let Err(Error::Evaluation { source, .. }) = z.eval() else { panic!("the launch fails") };
    assert!(matches!(*source, Runtime::Launch { .. }), "{source}");
    assert_eq!((y.state(), z.state()), (TensorState::Lazy, TensorState::Lazy));
    assert_eq!(x.add(1.0)?.to_vec::<f32>()?, [2.0, 3.0]);
    assert_eq!(z.to_vec::<f32>()?, [3.0, 6.0]);
    Ok(())
}

#[test]
fn copies_to_a_slow_device_do_not_block() -> Result<()> {
    let _alone = alone();
    let slow = MockConfig {
        pace: Pace::Real,
        latency: Duration::from_millis(400),
        ..MockConfig::default()
    };
    let device = registered("slow", slow);
    let x = data(&[1.0, 2.0]).mul(2.0)?;
    let there = x.to_device(device)?;
    async_eval([&there])?;
    assert_ne!(there.state(), TensorState::Available, "the copy alone takes 400 ms");
    // The copy completes although nothing reads it.
    let start = Instant::now();
    while there.state() != TensorState::Available {
        assert!(start.elapsed() < Duration::from_secs(60), "the copy has not begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(there.add(1.0)?.to_vec::<f32>()?, [3.0, 5.0]);
    Ok(())
}
