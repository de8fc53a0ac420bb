//! Loaded kernels against the portable executor, over shapes, layouts, dtypes and thread counts.

use girih_cpu::{LoadedKernel, Pool};
use girih_ir::{DType, Literal, OpCode};
use girih_kernel::*;
use smallvec::SmallVec;

/// `[batch, m, n | k]` with operands dense or transposed, and a bias if asked.
fn matmul(dtype: DType, dims: [usize; 4], transposed: bool, bias: bool) -> Kernel {
    let [_, m, n, k] = dims;
    let access = |buffer, strides: [usize; 4], count: usize| Access {
        buffer: BufferId(buffer),
        dtype,
        offset: 0,
        strides: strides[..count].iter().map(|&s| s as isize).collect(),
    };
    let (lhs, rhs) = match transposed {
        false => (access(0, [m * k, k, 0, 1], 4), access(1, [0, 0, 1, n], 4)),
        true => (access(0, [m * k, 1, 0, m], 4), access(1, [0, 0, k, 1], 4)),
    };
    let mut body = Block::default();
    let mut value = body.push(Inst::Core { dtype });
    if bias {
        let x = body.push(Inst::Load(AccessId(0)));
        value = body.push(Inst::Op {
            code: OpCode::Add,
            args: SmallVec::from_slice(&[value, x]),
            dtype,
        });
    }
    Kernel {
        name: "matmul".into(),
        extents: SmallVec::from_slice(&dims),
        parallel: 3,
        accesses: vec![access(2, [0, 0, 1, 0], 3)],
        core: Core::Matmul { lhs, rhs },
        body,
        stores: vec![Store { access: access(3, [m * n, n, 1, 0], 3), value }],
    }
}

fn fill(dtype: DType, n: usize, seed: usize) -> Vec<u8> {
    (0..n)
        .flat_map(|i| {
            let x = ((i * 7919 + seed * 104_729) % 1000) as f64 / 500.0 - 1.0;
            let l = Literal::from_f64(dtype, x);
            l.bits.to_le_bytes()[..dtype.size()].to_vec()
        })
        .collect()
}

fn value(dtype: DType, bytes: &[u8], i: usize) -> f64 {
    let mut bits = [0; 8];
    bits[..dtype.size()].copy_from_slice(&bytes[i * dtype.size()..][..dtype.size()]);
    Literal { dtype, bits: u64::from_le_bytes(bits) }.as_f64()
}

/// Memory of bytes at an alignment that suits all dtypes.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    for (i, b) in bytes.iter().enumerate() {
        words[i / 8] |= (*b as u64) << (i % 8 * 8);
    }
    words
}

fn run(kernel: &Kernel, dtype: DType, dims: [usize; 4], threads: Option<usize>) -> Vec<u8> {
    let [b, m, n, k] = dims;
    let inputs = [fill(dtype, b * m * k, 1), fill(dtype, k * n, 2), fill(dtype, n, 3)];
    let mut buffers: Vec<Vec<u64>> = inputs.iter().map(|i| aligned(i)).collect();
    buffers.push(vec![0; (b * m * n * dtype.size()).div_ceil(8)]);
    let pointers: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr() as *mut u8).collect();
    let bindings = Bindings { buffers: &pointers, arguments: &[], workspace: std::ptr::null_mut() };
    // SAFETY: the accesses of `matmul` stay inside buffers of these sizes.
    unsafe {
        match threads {
            None => Prepared::new(kernel).run(&bindings, &mut Scratch::new()),
            Some(t) => LoadedKernel::new(kernel).run(&bindings, &Pool::new(t)),
        }
    }
    .expect("no gathers");
    let out = &buffers[3];
    out.iter().flat_map(|w| w.to_le_bytes()).take(b * m * n * dtype.size()).collect()
}

#[test]
fn products_agree_with_the_portable_executor_on_any_number_of_threads() {
    use DType::*;
    let dims =
        [[1, 1, 1, 1], [2, 3, 5, 7], [1, 300, 200, 150], [1, 8, 1000, 600], [40, 20, 30, 33]];
    for dtype in [F32, F64, F16, BF16, I32] {
        for dims in dims {
            for (transposed, bias) in [(false, false), (true, true)] {
                let kernel = matmul(dtype, dims, transposed, bias);
                let want = run(&kernel, dtype, dims, None);
                let got = run(&kernel, dtype, dims, Some(1));
                assert_eq!(got, run(&kernel, dtype, dims, Some(2)), "threads change bits");
                let epsilon = match dtype {
                    F16 => 1e-2,
                    BF16 => 8e-2,
                    _ => 1e-4,
                };
                for i in 0..want.len() / dtype.size() {
                    let (g, w) = (value(dtype, &got, i), value(dtype, &want, i));
                    let close = (g - w).abs() <= epsilon * w.abs().max(1.0);
                    assert!(close, "{dtype} {dims:?} {i}: {g} {w}");
                }
            }
        }
    }
}
