//! Tensors on a mesh of the host's devices, compared with the same computation on one device.

use crate::alone;
use girih::ir::TensorSpec;
use girih::sharding::{DeviceMesh, Kind, P, plan};
use girih::{DType, Device, Error, Result, Tensor, set_host_devices, value_and_grad};

fn mesh(shape: &[usize], axes: &[&str]) -> DeviceMesh {
    set_host_devices(shape.iter().product()).unwrap();
    DeviceMesh::new(shape, axes).unwrap()
}

fn p(text: &str) -> P {
    text.parse().unwrap()
}

/// Numbers in -1..1 that differ.
fn numbers(shape: &[usize], seed: usize) -> Tensor {
    let len: usize = shape.iter().product();
    let at = |i: usize| ((i * 37 + seed * 101) % 97) as f32 / 48.5 - 1.0;
    Tensor::from_slice(&(0..len).map(at).collect::<Vec<_>>(), shape).unwrap()
}

fn close(found: &Tensor, expected: &Tensor) {
    assert_eq!(found.spec(), expected.spec());
    let (found, expected) = (found.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    for (f, e) in found.iter().zip(&expected) {
        assert!((f - e).abs() <= 1e-5 * e.abs().max(1.0), "{f} for {e}");
    }
}

fn spec_of(tensor: &Tensor) -> String {
    tensor.sharding().expect("it is on a mesh").spec().to_string()
}

#[test]
fn a_tensor_is_cut_gathered_and_put_together_again() {
    let _alone = alone();
    let mesh = mesh(&[2, 4], &["dp", "tp"]);
    let x = numbers(&[10, 3], 1);
    for (spec, rows) in
        [("<(dp, tp)>", vec![2, 2, 2, 2, 2, 0, 0, 0]), ("<tp>", vec![3, 3, 3, 1, 3, 3, 3, 1])]
    {
        let cut = x.shard(&mesh, &p(spec)).unwrap();
        assert_eq!((spec_of(&cut), cut.devices().len()), (spec.to_string(), 8));
        let shards = cut.shards().unwrap();
        let found: Vec<usize> = shards.iter().map(|shard| shard.shape()[0]).collect();
        assert_eq!(found, rows);
        assert!(shards.iter().zip(cut.devices()).all(|(shard, device)| shard.device() == device));
        close(&cut, &x);
        close(&cut.to_device(Device::CPU).unwrap(), &x);
        close(&cut.to_device(Device::named("cpu:3").unwrap()).unwrap(), &x);
        let again = Tensor::from_shards([10, 3], cut.sharding().unwrap(), &shards).unwrap();
        close(&again.add(&cut).unwrap(), &x.add(&x).unwrap());
    }
}

#[test]
fn ops_follow_the_mesh() {
    let _alone = alone();
    let mesh = mesh(&[2, 2], &["dp", "tp"]);
    let (x, w, v) = (numbers(&[8, 6], 1), numbers(&[6, 4], 2), numbers(&[4, 6], 3));
    let sx = x.shard(&mesh, &p("<dp>")).unwrap();
    let (sw, sv) = (w.shard(&mesh, &p("<*, tp>")).unwrap(), v.shard(&mesh, &p("<tp>")).unwrap());
    let hidden = sx.matmul(&sw).unwrap();
    assert_eq!(spec_of(&hidden), "<dp, tp>");
    let out = hidden.relu().unwrap().matmul(&sv).unwrap();
    assert_eq!(spec_of(&out), "<dp>");
    let dense = x.matmul(&w).unwrap().relu().unwrap().matmul(&v).unwrap();
    close(&out, &dense);
    assert_eq!(out.shards().unwrap()[0].spec(), TensorSpec::new([4, 6], DType::F32));
    let loss = out.mul(&out).unwrap().sum(..).unwrap();
    close(&loss, &dense.mul(&dense).unwrap().sum(..).unwrap());
}

/// The loss of an MLP with one hidden layer.
fn loss(x: &Tensor, w: &Tensor, v: &Tensor) -> Result<Tensor> {
    let out = x.matmul(w)?.add(0.25)?.relu()?.matmul(v)?;
    out.mul(&out)?.sum_all()?.mul(0.5)
}

#[test]
fn gradients_have_the_shardings_of_their_arguments() {
    let _alone = alone();
    let mesh = mesh(&[2, 2], &["dp", "tp"]);
    let (x, w, v) = (numbers(&[9, 6], 1), numbers(&[6, 5], 2), numbers(&[5, 3], 3));
    let f = value_and_grad(|a| loss(&a[0], &a[1], &a[2]));
    let (value, gradients) = f(&[x.clone(), w.clone(), v.clone()]).unwrap();
    for specs in
        [["<dp>", "<>", "<>"], ["<dp>", "<*, tp>", "<tp>"], ["<(dp, tp)>", "<dp, tp>", "<*, tp>"]]
    {
        let [sx, sw, sv] = [(&x, 0), (&w, 1), (&v, 2)]
            .map(|(tensor, at)| tensor.shard(&mesh, &p(specs[at])).unwrap());
        let (found, grads) = f(&[sx.clone(), sw.clone(), sv.clone()]).unwrap();
        let found_specs: Vec<String> = grads.iter().map(spec_of).collect();
        assert_eq!(found_specs, specs);
        close(&found, &value);
        grads.iter().zip(&gradients).for_each(|(found, expected)| close(found, expected));
        // By the tape.
        for tensor in [&sx, &sw, &sv] {
            tensor.set_requires_grad(true).unwrap();
        }
        loss(&sx, &sw, &sv).unwrap().backward().unwrap();
        for ((tensor, expected), spec) in [&sx, &sw, &sv].iter().zip(&gradients).zip(specs) {
            let grad = tensor.grad().unwrap();
            assert_eq!(spec_of(&grad), spec);
            close(&grad, expected);
        }
    }
}

#[test]
fn a_data_parallel_step_is_one_all_reduce_per_gradient() {
    let _alone = alone();
    let mesh = mesh(&[2], &["dp"]);
    let (x, w, v) = (numbers(&[8, 6], 1), numbers(&[6, 5], 2), numbers(&[5, 3], 3));
    let x = x.shard(&mesh, &p("<dp>")).unwrap();
    let [w, v] = [w, v].map(|t| t.shard(&mesh, &P::default()).unwrap());
    let (_, grads) = value_and_grad(|a| loss(&x, &a[0], &a[1]))(&[w, v]).unwrap();
    let (_, found) = plan(&grads.iter().collect::<Vec<_>>()).unwrap();
    assert_eq!(found.len(), 2);
    let bytes: Vec<usize> = found.iter().map(|collective| collective.bytes).collect();
    // 2(n - 1)N for N bytes over n processors.
    assert_eq!(bytes, [2 * 30 * 4, 2 * 15 * 4]);
    assert!(found.iter().all(|c| matches!(c.kind, Kind::AllReduce(_)) && c.axes == ["dp"]));
}

#[test]
fn constants_draws_and_values_on_a_device_of_the_mesh_follow_it() {
    let _alone = alone();
    let mesh = mesh(&[2, 2], &["dp", "tp"]);
    let x = numbers(&[6, 5], 1);
    let cut = x.shard(&mesh, &p("<dp, tp>")).unwrap();
    let row = numbers(&[5], 2);
    for row in [row.clone(), row.to_device(Device::named("cpu:2").unwrap()).unwrap()] {
        let sum = cut.add(&row).unwrap().mul(2.5).unwrap();
        assert_eq!(spec_of(&sum), "<dp, tp>");
        close(&sum, &x.add(&row.to_device(Device::CPU).unwrap()).unwrap().mul(2.5).unwrap());
    }
    girih::random::manual_seed(7);
    let dense = x.add(&Tensor::randn([6, 5], DType::F32).unwrap()).unwrap();
    girih::random::manual_seed(7);
    let drawn = cut.add(&Tensor::randn([6, 5], DType::F32).unwrap()).unwrap();
    close(&drawn, &dense);
    let zeros = cut.zeros_like().unwrap();
    assert_eq!(spec_of(&zeros), "<dp, tp>");
    close(&zeros, &x.zeros_like().unwrap());
    // Outside of the mesh.
    set_host_devices(5).unwrap();
    let other = row.to_device(Device::named("cpu:4").unwrap()).unwrap();
    let error = cut.add(&other).unwrap_err();
    assert!(matches!(error, Error::MixedDevices { .. }), "{error}");
    assert!(error.to_string().contains("<dp, tp>") && error.to_string().contains("cpu:4"));
}

#[test]
fn bad_shardings_are_refused_where_they_are_recorded() {
    let _alone = alone();
    let mesh = mesh(&[2, 2], &["dp", "tp"]);
    let x = numbers(&[6, 5], 1);
    for (spec, says) in [("<ep>", "ep"), ("<dp, dp>", "dp"), ("<*, *, tp>", "3")] {
        let error = x.shard(&mesh, &p(spec)).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let absent = DeviceMesh::new(&[2], &["x"]).unwrap().with_devices(&[0, 63]).unwrap();
    let error = x.shard(&absent, &p("<x>")).unwrap_err();
    assert!(matches!(&error, Error::DeviceUnavailable { name, .. } if name.contains("63")));
    // A ghost mesh has shapes and shardings, but no values.
    let ghost = DeviceMesh::new(&[1024], &["x"]).unwrap().ghost();
    let planned = x.shard(&ghost, &p("<x>")).unwrap().exp().unwrap();
    assert_eq!(spec_of(&planned), "<x>");
    assert!(matches!(planned.to_vec::<f32>(), Err(Error::DeviceUnavailable { .. })));
}
