//! Tests of tensor files: round trips over all dtypes and shapes, files of other programs, and
//! errors for malformed files.

use girih::io::{self, Format};
use girih::ir::testing::Rng;
use girih::{DType, Error, Shape, Tensor, TensorSpec};
use std::path::PathBuf;

/// Tensors of every dtype, with scalar, empty, size-one and odd shapes.
fn tensors() -> Vec<(String, Tensor)> {
    let mut rng = Rng(2);
    let mut out = Vec::new();
    for dtype in DType::ALL {
        for shape in [&[][..], &[0], &[1], &[3, 0, 2], &[2, 3], &[5, 1, 7]] {
            let spec = TensorSpec::new(shape, dtype);
            let mut bytes: Vec<u8> = (0..spec.size_bytes()).map(|_| rng.bits() as u8).collect();
            if dtype == DType::Bool {
                bytes.iter_mut().for_each(|b| *b &= 1);
            }
            out.push((format!("{dtype} {shape:?} é"), Tensor::from_bytes(&spec, bytes).unwrap()));
        }
    }
    out
}

fn same(a: &Tensor, b: &Tensor) {
    assert_eq!(a.spec(), b.spec());
    assert_eq!(a.to_bytes().unwrap(), b.to_bytes().unwrap(), "{}", a.spec());
}

#[track_caller]
fn same_by_name(read: &[(String, Tensor)], written: &[(String, Tensor)]) {
    assert_eq!(read.len(), written.len());
    for (name, tensor) in written {
        let found = read.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}"));
        same(&found.1, tensor);
    }
}

fn path(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("girih-io-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

#[test]
fn every_dtype_and_shape_survives_every_format() {
    let all = tensors();
    same_by_name(&io::from_npz(&io::to_npz(&all).unwrap()).unwrap(), &all);
    for (_, tensor) in &all {
        same(&io::from_npy(&io::to_npy(tensor).unwrap()).unwrap(), tensor);
    }
    // The format has no complex numbers of 128 bits.
    let (some, none): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, tensor)| tensor.dtype().name() != "complex128");
    same_by_name(&io::from_safetensors(&io::to_safetensors(&some).unwrap()).unwrap(), &some);
    assert!(none.is_empty() || io::to_safetensors(&none).is_err());
    assert!(io::from_npz(&io::to_npz(&[]).unwrap()).unwrap().is_empty());
    assert!(io::from_safetensors(&io::to_safetensors(&[]).unwrap()).unwrap().is_empty());
}

#[test]
fn files_are_mapped_and_their_tensors_compute() {
    let all: Vec<_> =
        tensors().into_iter().filter(|(_, t)| t.dtype().name() != "complex128").collect();
    for name in ["mapped.npz", "mapped.safetensors"] {
        let file = path(name);
        io::save(&file, &all).unwrap();
        let read = io::load(&file).unwrap();
        same_by_name(&read, &all);
        let (_, x) = read.iter().find(|(n, _)| n.starts_with("float32 [5, 1, 7]")).unwrap();
        let sum = x.astype(DType::F64).unwrap().abs().unwrap().sum_all().unwrap();
        drop(std::fs::remove_file(&file));
        sum.eval().unwrap();
    }
    let file = path("one.npy");
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3]).unwrap();
    io::save(&file, &[(String::new(), x.clone())]).unwrap();
    let read = io::load(&file).unwrap();
    // The elements share the file's mapping, so their alignment is that of the data in the file.
    let (address, _value) = read[0].1.address().unwrap();
    assert_eq!(address % 64, 0);
    same(&read[0].1, &x);
    assert_eq!(read[0].1.mul(2.0).unwrap().to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0]);
}

#[test]
fn saving_is_refused_where_the_format_cannot() {
    let x = Tensor::zeros([1], DType::F32).unwrap();
    let twice = [("a".to_string(), x.clone()), ("a".to_string(), x.clone())];
    for name in ["a.npz", "a.safetensors", "a.npy"] {
        assert!(matches!(io::save(path(name), &twice), Err(Error::InvalidArgument(_))), "{name}");
        assert!(!path(name).exists());
    }
    assert!(io::save(path("a.safetensors"), &[("__metadata__", &x)]).is_err());
    assert!(io::save(path("a.bin"), &twice[..1]).unwrap_err().to_string().contains(".safetensors"));
    let nowhere = io::save(path("no/such/a.npz"), &twice[..1]).unwrap_err();
    assert!(matches!(nowhere, Error::Io { kind: std::io::ErrorKind::NotFound, .. }));
    assert!(matches!(io::load(path("none.npy")), Err(Error::Io { .. })));
    assert_eq!(Format::of("x.npz").unwrap(), Format::Npz);
}

/// An `.npy` file with this header and these elements.
fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((header.len() as u16).to_le_bytes());
    out.extend(header.bytes());
    out.extend(data);
    out
}

#[test]
fn arrays_in_other_orders_are_read() {
    let header = |descr: &str, fortran: &str, shape: &str| {
        format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}")
    };
    let read = |header: &str, data: &[u8]| io::from_npy(&npy(header, data)).unwrap();
    let x = read(&header("<i2", "True", "(2, 3)"), &[1, 0, 4, 0, 2, 0, 5, 0, 3, 0, 6, 0]);
    assert_eq!(
        (x.shape(), x.to_vec::<i16>().unwrap()),
        (Shape::from([2, 3]), vec![1, 2, 3, 4, 5, 6])
    );
    let x = read(&header(">f4", "False", "(2,)"), &[0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0]);
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0, -2.0]);
    let x = read(&header(">i4", "True", "(1L, 2L)"), &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe]);
    assert_eq!(x.to_vec::<i32>().unwrap(), [1, -2]);
    assert_eq!(read(&header("|b1", "False", "()"), &[7]).to_vec::<bool>().unwrap(), [true]);
    assert_eq!(read(&header("|u1", "True", "(0, 4)"), &[]).shape(), Shape::from([0, 4]));
    let cube: Vec<u8> = (0..24).collect();
    let x = read(&header("|u1", "True", "(2, 3, 4)"), &cube);
    let at = |i: usize, j: usize, k: usize| (i + 2 * j + 6 * k) as u8;
    let expected: Vec<u8> = (0..24).map(|n| at(n / 12, n / 4 % 3, n % 4)).collect();
    assert_eq!(x.to_vec::<u8>().unwrap(), expected);
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, part: &str) {
    match result {
        Err(Error::Record(error)) if matches!(*error, girih::ir::Error::Format { .. }) => {
            assert!(error.to_string().contains(part), "{error}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("accepted; expected: {part}"),
    }
}

#[test]
fn malformed_tensor_files_are_refused() {
    refused(io::from_npy(b""), "expected the mark");
    refused(io::from_npy(b"\x93NUMPY\x09\x00\x00\x00"), "version 9");
    refused(io::from_npy(b"\x93NUMPY\x01\x00\xff\xff{"), "does not fit");
    let bad =
        |header: &str, data: &[u8], part: &str| refused(io::from_npy(&npy(header, data)), part);
    bad(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}",
        &[0; 7],
        "takes 8 bytes, found 7",
    );
    bad("{'descr': '|O', 'fortran_order': False, 'shape': (2,)}", &[], "dtype '|O'");
    bad(
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
        &[],
        "arrays of records",
    );
    bad("{'descr': '<f4', 'shape': (2,)}", &[], "lacks");
    bad("{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", &[], "True or False");
    bad("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", &[], "'-1' is no size");
    bad(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 99999999999)}",
        &[],
        "bytes",
    );
    bad("{'descr': '<f4', 'evil': 1}", &[], "unexpected key 'evil'");
    bad("[]", &[], "expected '{'");
    refused(io::from_npz(b"PK"), "no zip directory");
    let mut damaged = io::to_npz(&[("x".into(), Tensor::ones([4], DType::F32).unwrap())]).unwrap();
    damaged[130] ^= 1;
    refused(io::from_npz(&damaged), "checksum");
    let st = |header: &str, data: &[u8]| {
        let mut out = (header.len() as u64).to_le_bytes().to_vec();
        out.extend(header.bytes());
        out.extend(data);
        io::from_safetensors(&out)
    };
    refused(io::from_safetensors(&[1, 2]), "header's length");
    refused(io::from_safetensors(&u64::MAX.to_le_bytes()), "does not fit");
    refused(st("[1]", &[]), "no JSON object");
    refused(st(&"[".repeat(100_000), &[]), "no JSON object");
    refused(
        st(r#"{"a": {"dtype": "F7", "shape": [1], "data_offsets": [0, 4]}}"#, &[0; 4]),
        "dtype \"F7\"",
    );
    refused(
        st(r#"{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 5]}}"#, &[0; 5]),
        "do not hold 4",
    );
    refused(
        st(r#"{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}"#, &[0; 8]),
        "lies at 4",
    );
    refused(
        st(r#"{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}"#, &[0; 8]),
        "4 bytes belong",
    );
    refused(
        st(r#"{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}"#, &[0; 4]),
        "lies at 0",
    );
    let meta = r#"{"__metadata__": {"k": "v"}, "a": {"dtype": "I8", "shape": [], "data_offsets": [0, 1]}}"#;
    assert_eq!(st(meta, &[5]).unwrap()[0].1.item::<i8>().unwrap(), 5);
}
