//! GEMM micro-kernels of all shapes, against chains of multiply-adds.

use super::*;
use crate::jit::tile_shapes::reads_in_place;
use crate::jit::{as_if, on_each_level};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

pub(in crate::jit) const STORED: [Stored; 3] = [Stored::F32, Stored::F16, Stored::BF16];

pub(in crate::jit) fn draw(n: usize, seed: usize) -> Vec<f32> {
    // Few bits, so that the values are exact in every format.
    (0..n).map(|i| ((i * 7919 + seed * 104_729) % 251) as f32 / 32.0 - 4.0).collect()
}

pub(in crate::jit) fn bytes(values: &[f32], stored: Stored) -> Vec<u8> {
    let of = |&x: &f32| match stored {
        Stored::F32 => x.to_le_bytes().to_vec(),
        Stored::F16 => half::f16::from_f32(x).to_le_bytes().to_vec(),
        Stored::BF16 => half::bf16::from_f32(x).to_le_bytes().to_vec(),
        _ => unreachable!("integers are tested in `gemm`"),
    };
    values.iter().flat_map(of).collect()
}

/// Runs a tile over `k` rows of B, some of them in a second call.
fn run(kernel: Microkernel, k: usize) {
    let Some(function) = kernel.compile() else { return };
    let columns = (kernel.vectors - 1) * LANES + kernel.tail;
    let pitch = columns + 3;
    let a = draw(k * kernel.mr, 1);
    // The same A with each row along K.
    let rows: Vec<f32> = (0..a.len()).map(|i| a[i % k * kernel.mr + i / k]).collect();
    let b: Vec<f32> = draw(k * pitch, 2).iter().map(|x| x.round()).collect();
    let stored = bytes(&b, kernel.stored);
    let mut c = vec![7.0f32; kernel.mr * pitch];
    let mut packed_b = vec![0f32; k * kernel.vectors * LANES];
    let first = k.div_ceil(3);
    for (start, end) in [(0, first), (first, k)] {
        if start == end {
            continue;
        }
        let step = pitch * kernel.stored.size();
        let call = MicrokernelCall {
            a: match kernel.a {
                SourceOfA::InPlace => &rows[start..],
                _ => &a[start * kernel.mr..],
            }
            .as_ptr(),
            b: stored[start * step..].as_ptr(),
            ldb: step as isize,
            c: c.as_mut_ptr(),
            ldc: 4 * pitch as isize,
            k: end - start,
            accumulate: (start > 0) as usize,
            packed_b: packed_b[start * kernel.vectors * LANES..].as_mut_ptr(),
            prefetch: stored.as_ptr(),
            prefetch_stride: 64,
            lda: 4 * k as isize,
        };
        // SAFETY: the operands and the result have these sizes.
        unsafe { function.call(&call) };
    }
    for r in 0..kernel.mr {
        for j in 0..pitch {
            let dot = (0..k).fold(0f32, |s, i| a[i * kernel.mr + r].mul_add(b[i * pitch + j], s));
            let want = if j < columns { dot } else { 7.0 };
            assert_eq!(c[r * pitch + j], want, "{kernel:?} k {k} at {r} {j}");
        }
    }
    if kernel.packs_b {
        for (i, &packed) in packed_b.iter().enumerate() {
            let (row, column) = (i / (kernel.vectors * LANES), i % (kernel.vectors * LANES));
            let want = if column < columns { b[row * pitch + column] } else { 0.0 };
            assert_eq!(packed, want, "{kernel:?} packed {row} {column}");
        }
    }
}

#[test]
fn tiles_of_every_shape_are_chains_of_multiply_adds_within_their_columns() {
    on_each_level(run_every_shape);
}

fn run_every_shape() {
    for vectors in 1..=8 {
        for rows in 1..=24 {
            let i = rows + vectors;
            let (stored, b_in_place) = (STORED[i % 3], i % 4 < 2);
            let packs_b = b_in_place && i % 2 == 0;
            for a in [SourceOfA::Packed, SourceOfA::InPlace] {
                let packed = Microkernel::packed(rows, LANES * vectors);
                let kernel = Microkernel { stored, b_in_place, packs_b, a, ..packed };
                for (k, tail) in [(1, 16), (2, 1), (5, 7), (16, 15), (7, 8), (3, 11)] {
                    let kernel = Microkernel { tail, ..kernel };
                    if kernel.fits() && reads_in_place(stored, tail) {
                        run(kernel, k);
                    }
                }
            }
        }
    }
}

fn names(kernel: Microkernel) -> Vec<Mnemonic> {
    let code = kernel.emit();
    let decoder = Decoder::with_ip(64, &code, 0, DecoderOptions::NONE);
    // Constants follow the code.
    let code = decoder.into_iter().map(|i| i.mnemonic());
    code.take_while(|mnemonic| *mnemonic != Mnemonic::Ret).collect()
}

#[test]
fn a_tile_of_eight_rows_and_three_vectors_loads_eleven_times_for_24_multiply_adds() {
    let kernel = Microkernel::packed(8, 47);
    let names = as_if(Isa::Avx512, [false; 2], || names(kernel));
    assert!(!names.contains(&Mnemonic::INVALID));
    let count = |name| names.iter().filter(|m| **m == name).count();
    assert_eq!(count(Mnemonic::Vfmadd231ps), 24);
    assert_eq!(count(Mnemonic::Vbroadcastss), 8);
    // The loads of a row of B, and those and the stores of the result.
    assert_eq!(count(Mnemonic::Vmovups), 3 + 2 * 24);
}

#[test]
fn a_tile_of_six_rows_on_avx2_has_twelve_accumulators() {
    let kernel = Microkernel::packed(6, 13);
    let names = as_if(Isa::Avx2, [false; 2], || names(kernel));
    assert!(!names.contains(&Mnemonic::INVALID));
    let count = |name| names.iter().filter(|m| **m == name).count();
    // The loop is unrolled four times, and one row of B follows.
    assert_eq!(count(Mnemonic::Vfmadd231ps), 5 * 12);
    assert_eq!(count(Mnemonic::Vbroadcastss), 5 * 6);
    // The second register of a row has five columns, which the result is masked to.
    assert_eq!(count(Mnemonic::Vmaskmovps), 6 + 6);
}

#[test]
fn a_tile_of_bytes_extends_them_as_it_loads_and_broadcasts_as_it_multiplies() {
    let kernel = Microkernel { stored: Stored::I8, ..Microkernel::packed(8, 47) };
    let names = as_if(Isa::Avx512, [false; 2], || names(kernel));
    assert!(!names.contains(&Mnemonic::INVALID));
    let count = |name| names.iter().filter(|m| **m == name).count();
    assert_eq!((count(Mnemonic::Vpmovsxbd), count(Mnemonic::Vbroadcastss)), (3, 0));
    assert_eq!((count(Mnemonic::Vpmulld), count(Mnemonic::Vpaddd)), (24, 24));
}
