//! Loaded kernels against the portable executor, over shapes, layouts, dtypes and thread counts.

use girih_cpu::{LoadedKernel, Pool};
use girih_exec::{Bindings, Bounds, Prepared, Scratch};
use girih_ir::{DType, Literal, OpCode};
use girih_kernel::*;
use smallvec::SmallVec;

/// `[batch, m, n | k]` with operands dense or transposed, and optionally a bias.
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
        core: Core::Gemm { lhs, rhs, dtype, rows: 1, columns: 1 },
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

/// Copies bytes to memory that is aligned for all dtypes.
fn aligned(bytes: &[u8]) -> Vec<u64> {
    let mut words = vec![0u64; bytes.len().div_ceil(8)];
    for (i, b) in bytes.iter().enumerate() {
        words[i / 8] |= (*b as u64) << (i % 8 * 8);
    }
    words
}

/// `sizes` are those of A, B, bias and result.
fn run(kernel: &Kernel, dtype: DType, sizes: [usize; 4], threads: Option<usize>) -> Vec<u8> {
    let [left, right, bias, result] = sizes;
    let inputs = [fill(dtype, left, 1), fill(dtype, right, 2), fill(dtype, bias, 3)];
    let mut buffers: Vec<Vec<u64>> = inputs.iter().map(|i| aligned(i)).collect();
    buffers.push(vec![0; (result * dtype.size()).div_ceil(8)]);
    let pointers: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr() as *mut u8).collect();
    let bounds = sizes.map(|n| Bounds::of(n * dtype.size()));
    let workspace = std::ptr::null_mut();
    let bindings =
        Bindings { buffers: &pointers, arguments: &[], workspace, bounds: Some(&bounds) };
    // SAFETY: the kernels' accesses stay inside buffers of these sizes.
    unsafe {
        match threads {
            None => Prepared::new(kernel).run(&bindings, &mut Scratch::new()),
            Some(t) => LoadedKernel::checked(kernel).run(&bindings, &Pool::new(t)),
        }
    }
    .expect("no gathers");
    let out = &buffers[3];
    out.iter().flat_map(|w| w.to_le_bytes()).take(result * dtype.size()).collect()
}

#[test]
fn gemms_agree_with_the_portable_executor_on_any_number_of_threads() {
    use DType::*;
    let dims =
        [[1, 1, 1, 1], [2, 3, 5, 7], [1, 300, 200, 150], [1, 8, 1000, 600], [40, 20, 30, 33]];
    for dtype in [F32, F64, F16, BF16, I32] {
        for dims in dims {
            for (transposed, bias) in [(false, false), (true, true)] {
                let [b, m, n, k] = dims;
                let kernel = matmul(dtype, dims, transposed, bias);
                check(&kernel, dtype, [b * m * k, k * n, n, b * m * n]);
            }
        }
    }
}

/// A convolution with the windows of an image as columns, `step` apart:
/// `[images, 5 rows, 7, 11 columns | 4 channels, 3, 3]`.
fn convolution(dtype: DType, images: usize, step: usize, body: bool) -> (Kernel, [usize; 4]) {
    let (height, width) = (6 * step + 3, 10 * step + 3);
    let image = 4 * height * width;
    let access = |buffer, strides: &[usize]| Access {
        buffer: BufferId(buffer),
        dtype,
        offset: 0,
        strides: strides.iter().map(|&s| s as isize).collect(),
    };
    let mut kernel = matmul(dtype, [images, 5, 77, 36], false, body);
    kernel.extents = SmallVec::from_slice(&[images, 5, 7, 11, 4, 3, 3]);
    kernel.parallel = 4;
    let right = [image, 0, step * width, step, height * width, width, 1];
    kernel.core = Core::Gemm {
        lhs: access(0, &[0, 36, 0, 0, 9, 3, 1]),
        rhs: access(1, &right),
        dtype,
        rows: 1,
        columns: 2,
    };
    kernel.accesses = vec![access(2, &[0, 0, 11, 1])];
    kernel.stores[0].access = access(3, &[5 * 77, 77, 11, 1]);
    (kernel, [5 * 36, images * image, 77, images * 5 * 77])
}

#[test]
fn gemms_over_windows_agree_with_the_portable_executor() {
    use DType::*;
    for dtype in [F32, F64, F16, BF16, I32] {
        for (images, step, body) in [(1, 1, false), (3, 1, true), (2, 2, false), (1, 3, true)] {
            let (kernel, sizes) = convolution(dtype, images, step, body);
            check(&kernel, dtype, sizes);
        }
    }
}

/// The gradient of a convolution's weights: `[5 rows, 4 channels, 3, 3 | images, 23, 30]`, whose K
/// is longer than a block.
fn weights_gradient(dtype: DType, images: usize, step: usize, body: bool) -> (Kernel, [usize; 4]) {
    let (height, width) = (22 * step + 3, 29 * step + 3);
    let plane = height * width;
    let access = |buffer, strides: &[usize]| Access {
        buffer: BufferId(buffer),
        dtype,
        offset: 0,
        strides: strides.iter().map(|&s| s as isize).collect(),
    };
    let mut kernel = matmul(dtype, [1, 5, 36, 690], false, body);
    kernel.extents = SmallVec::from_slice(&[5, 4, 3, 3, images, 23, 30]);
    kernel.parallel = 4;
    kernel.core = Core::Gemm {
        lhs: access(0, &[690, 0, 0, 0, 5 * 690, 30, 1]),
        rhs: access(1, &[0, plane, width, 1, 4 * plane, step * width, step]),
        dtype,
        rows: 1,
        columns: 3,
    };
    kernel.accesses = vec![access(2, &[0, 9, 3, 1])];
    kernel.stores[0].access = access(3, &[36, 9, 3, 1]);
    (kernel, [images * 5 * 690, images * 4 * plane, 36, 180])
}

#[test]
fn gradients_over_windows_agree_with_the_portable_executor() {
    use DType::*;
    for dtype in [F32, F64, I32] {
        for (images, step, body) in [(1, 1, false), (3, 1, true), (2, 2, false), (1, 3, true)] {
            let (kernel, sizes) = weights_gradient(dtype, images, step, body);
            check(&kernel, dtype, sizes);
        }
    }
}

/// Compares a loaded kernel with the portable executor, and one thread with two.
fn check(kernel: &Kernel, dtype: DType, sizes: [usize; 4]) {
    let want = run(kernel, dtype, sizes, None);
    let got = run(kernel, dtype, sizes, Some(1));
    assert_eq!(got, run(kernel, dtype, sizes, Some(2)), "threads change bits");
    let epsilon = match dtype {
        DType::F16 => 1e-2,
        DType::BF16 => 8e-2,
        _ => 1e-4,
    };
    for i in 0..want.len() / dtype.size() {
        let (g, w) = (value(dtype, &got, i), value(dtype, &want, i));
        let close = (g - w).abs() <= epsilon * w.abs().max(1.0);
        assert!(close, "{dtype} {:?} {i}: {g} {w}", kernel.extents);
    }
}
