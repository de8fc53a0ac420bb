//! Strides, tails, chunks, and every core over many shapes.

use super::*;

/// A kernel with these extents, `parallel` of them parallel, and no operands yet.
fn blank(name: &str, extents: &[usize], parallel: usize) -> Kernel {
    Kernel {
        name: name.to_string(),
        extents: SmallVec::from_slice(extents),
        parallel,
        accesses: vec![],
        core: Core::Map,
        body: Block::default(),
        stores: vec![],
    }
}

fn store(k: &mut Kernel, m: &mut Memory, dtype: DType, value: Val) {
    let extents = k.extents[..k.parallel].to_vec();
    let id = m.blank(dtype, extents.iter().product());
    k.stores.push(Store { access: dense(id, dtype, &extents), value });
}

fn access(k: &mut Kernel, a: Access) -> AccessId {
    k.accesses.push(a);
    AccessId(k.accesses.len() as u32 - 1)
}

/// Reduces a dense operand whose dimensions are in memory in the order `layout`.
pub(super) fn reduction(
    m: &mut Memory,
    op_: ReduceOp,
    dtype: DType,
    extents: &[usize],
    parallel: usize,
    layout: &[usize],
) -> Kernel {
    let mut k = blank(&format!("{op_:?} {dtype} {extents:?} {layout:?}"), extents, parallel);
    let values = numbers(dtype, extents.iter().product(), 5);
    let buffer = m.buffer(dtype, &values);
    let mut strides: SmallVec<[isize; 6]> = SmallVec::from_elem(0, extents.len());
    let mut step = 1;
    for &d in layout.iter().rev() {
        strides[d] = step;
        step *= extents[d] as isize;
    }
    let id = access(&mut k, Access { buffer, dtype, offset: 0, strides });
    let mut prologue = Block::default();
    let value = prologue.push(Inst::Load(id));
    k.core = Core::Reduce { prologue, value, op: op_, stores: vec![] };
    let arg = matches!(op_, ReduceOp::ArgMax | ReduceOp::ArgMin);
    let out = if arg { DType::I64 } else { dtype };
    let v = k.body.push(Inst::Core { dtype: out });
    store(&mut k, m, out, v);
    k
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2e-3,
        DType::BF16 => 2e-2,
        DType::F32 => 3e-5,
        _ => 1e-13,
    }
}

#[test]
fn every_reduction_on_every_dtype_in_both_orders() {
    use ReduceOp::*;
    for op in [Sum, Prod, Max, Min, Any, All, ArgMax, ArgMin] {
        for dtype in reals() {
            let logical = matches!(op, Any | All);
            if logical != (dtype == DType::Bool) {
                continue;
            }
            let exact = !dtype.is_float() || !matches!(op, Sum | Prod);
            let tolerance = if exact { 0.0 } else { tolerance(dtype) };
            for (extents, parallel) in
                [(vec![7, 5], 1), (vec![3, 700], 1), (vec![1500], 0), (vec![4, 3, 9, 5], 2)]
            {
                let forward: Vec<usize> = (0..extents.len()).collect();
                let mut rotated = forward.clone();
                rotated.rotate_left(parallel);
                for layout in [forward, rotated] {
                    let mut m = Memory::new();
                    let k = reduction(&mut m, op, dtype, &extents, parallel, &layout);
                    m.check(&k, tolerance);
                }
            }
        }
    }
}

#[test]
fn long_reductions_are_split_and_still_right() {
    for (extents, parallel) in [(vec![700_000], 0), (vec![2, 400_001], 1), (vec![33, 20_011], 1)] {
        let forward: Vec<usize> = (0..extents.len()).collect();
        let mut rotated = forward.clone();
        rotated.rotate_left(parallel);
        for layout in [forward, rotated] {
            for (op, dtype) in [
                (ReduceOp::Sum, DType::F32),
                (ReduceOp::Sum, DType::I32),
                (ReduceOp::Max, DType::F16),
                (ReduceOp::ArgMin, DType::I64),
            ] {
                let mut m = Memory::new();
                let k = reduction(&mut m, op, dtype, &extents, parallel, &layout);
                let split = matches!(op, ReduceOp::Sum | ReduceOp::Max) && extents[0] < 33;
                assert!(!split || Prepared::new(&k).phases() == 2, "{}", k.name);
                m.check(&k, 1e-4);
            }
        }
    }
}

#[test]
fn layout_points_and_splits_change_no_bit_of_a_sum() {
    for n in [5, 31, 33, 100, 513, 1500, 70_001] {
        let row = |m: &Memory, k: &Kernel, p: usize| m.run_everywhere(k).get(BufferId(1), p);
        let data = numbers(DType::F32, n, 17);
        let mut m = Memory::new();
        let k = reduction(&mut m, ReduceOp::Sum, DType::F32, &[n], 0, &[0]);
        for (i, v) in data.iter().enumerate() {
            m.set(BufferId(0), i, *v);
        }
        let want = row(&m, &k, 0);
        for points in [2, 9, 300, 700].into_iter().filter(|points| points * n < 1 << 25) {
            for layout in [[0, 1], [1, 0]] {
                let mut m = Memory::new();
                let k = reduction(&mut m, ReduceOp::Sum, DType::F32, &[points, n], 1, &layout);
                let p = points - 1;
                for (i, v) in data.iter().enumerate() {
                    m.set(BufferId(0), if layout[0] == 0 { p * n + i } else { i * points + p }, *v);
                }
                let got = m.run(&k, Isa::best(), true).expect("runs").get(BufferId(1), p);
                assert_eq!(got, want, "{n} {points} {layout:?}");
            }
        }
    }
}

#[test]
fn a_nan_in_the_middle_of_a_row_wins() {
    for op in [ReduceOp::Max, ReduceOp::Min, ReduceOp::Sum, ReduceOp::ArgMax, ReduceOp::ArgMin] {
        for layout in [[0, 1], [1, 0]] {
            let mut m = Memory::new();
            let k = reduction(&mut m, op, DType::F32, &[5, 67], 1, &layout);
            let nan = Literal::from_f64(DType::F32, f64::NAN);
            m.set(BufferId(0), 150, nan);
            m.set(BufferId(0), 151, nan);
            m.check(&k, 1e-4);
        }
    }
}

#[test]
fn sums_of_a_million_ones_are_exact_and_of_tenths_accurate() {
    let mut m = Memory::new();
    let k = reduction(&mut m, ReduceOp::Sum, DType::F32, &[1 << 20], 0, &[0]);
    for i in 0..1 << 20 {
        m.set(BufferId(0), i, Literal::from_f64(DType::F32, 0.1));
    }
    let got = m.run_everywhere(&k).get(BufferId(1), 0).as_f64();
    let want = 0.1f32 as f64 * (1 << 20) as f64;
    assert!((got - want).abs() / want < 1e-6, "{got} {want}");
}

#[test]
fn views_of_all_strides_are_read_and_written() {
    // Transposed, flipped, broadcast, sliced with a step; stored transposed.
    let (rows, cols) = (37, 53);
    for dtype in [DType::F32, DType::BF16, DType::I8, DType::F64] {
        let mut m = Memory::new();
        let mut k = blank("views", &[rows, cols], 2);
        let a = m.buffer(dtype, &numbers(dtype, rows * cols, 1));
        let b = m.buffer(dtype, &numbers(dtype, 2 * cols, 2));
        let (r, c) = (rows as isize, cols as isize);
        let views = [
            (a, 0, [1, r]),
            (a, (rows * cols) as isize - 1, [-c, -1]),
            (b, 0, [0, 2]),
            (b, 3, [1, 0]),
            (b, 7, [0, 0]),
        ];
        let mut sum = None;
        for (buffer, offset, strides) in views {
            let strides = SmallVec::from_slice(&strides);
            let id = access(&mut k, Access { buffer, dtype, offset, strides });
            let v = k.body.push(Inst::Load(id));
            sum = Some(sum.map_or(v, |s| k.body.push(op(OpCode::Add, &[s, v], dtype))));
        }
        let value = sum.expect("five views");
        store(&mut k, &mut m, dtype, value);
        let out = m.blank(dtype, rows * cols);
        let strides = SmallVec::from_slice(&[1, r]);
        k.stores.push(Store { access: Access { buffer: out, dtype, offset: 0, strides }, value });
        m.check(&k, 0.0);
    }
}

#[test]
fn large_maps_in_many_chunks_with_scalars_iota_and_constants() {
    for n in [1, 511, 512, 513, 200_003] {
        let mut m = Memory::new();
        m.arguments = vec![[Literal::from_f64(DType::F16, 0.3).bits, 0]];
        let mut k = blank("scalars", &[n], 1);
        let x = m.buffer(DType::F16, &numbers(DType::F16, n, 4));
        let id = access(&mut k, dense(x, DType::F16, &[n]));
        let x = k.body.push(Inst::Load(id));
        let s = k.body.push(Inst::Scalar { argument: 0, dtype: DType::F16 });
        let c = k.body.push(Inst::Literal(Literal::from_f64(DType::F16, 1.1)));
        let sc = k.body.push(op(OpCode::Mul, &[s, c], DType::F16));
        let strides = SmallVec::from_slice(&[-3]);
        let i = k.body.push(Inst::Iota { offset: 5, strides, dtype: DType::F16 });
        let y = k.body.push(op(OpCode::Mul, &[x, sc], DType::F16));
        let z = k.body.push(op(OpCode::Add, &[y, i], DType::F16));
        store(&mut k, &mut m, DType::F16, z);
        store(&mut k, &mut m, DType::F16, s);
        store(&mut k, &mut m, DType::F16, x);
        m.check(&k, 0.0);
    }
}

#[test]
fn an_operand_may_be_overwritten_in_place() {
    let mut m = Memory::new();
    let n = 3000;
    let data = numbers(DType::F32, n, 9);
    let x = m.buffer(DType::F32, &data);
    let mut k = blank("in_place", &[n], 1);
    let id = access(&mut k, dense(x, DType::F32, &[n]));
    let v = k.body.push(Inst::Load(id));
    let y = k.body.push(op(OpCode::Add, &[v, v], DType::F32));
    let z = k.body.push(op(OpCode::Mul, &[y, v], DType::F32));
    k.stores.push(Store { access: dense(x, DType::F32, &[n]), value: y });
    store(&mut k, &mut m, DType::F32, z);
    store(&mut k, &mut m, DType::F32, v);
    let out = m.run_everywhere(&k);
    for (i, d) in data.iter().enumerate() {
        let d = d.as_f64() as f32;
        let got = [0, 1, 2].map(|b| out.get(BufferId(b), i).as_f64() as f32);
        assert_eq!(got, [d + d, (d + d) * d, d]);
    }
}

#[test]
fn random_leaves_do_not_depend_on_blocks_or_views() {
    for (code, dtype) in [
        (OpCode::RandomUniform, DType::F32),
        (OpCode::RandomUniform, DType::F16),
        (OpCode::RandomUniform, DType::BF16),
        (OpCode::RandomNormal, DType::F32),
        (OpCode::RandomBits, DType::I64),
    ] {
        for (offset, strides) in [(0, [41, 1]), (1700, [-41, -1]), (1, [1, 60])] {
            let mut m = Memory::new();
            m.arguments = vec![[42, 1 << 33]];
            let mut k = blank("random", &[40, 41], 2);
            let strides = SmallVec::from_slice(&strides);
            let v = k.body.push(Inst::Random { code, argument: 0, offset, strides, dtype });
            store(&mut k, &mut m, dtype, v);
            m.check(&k, 0.0);
        }
    }
}

#[test]
fn gemms_of_all_dtypes_layouts_and_batches_with_an_epilogue() {
    let (b, mm, n, kk) = (3, 7, 19, 11);
    for dtype in reals().filter(|&d| d != DType::Bool) {
        for transposed in [false, true] {
            let mut m = Memory::new();
            let mut k = blank("matmul", &[b, mm, n, kk], 3);
            let lhs = m.buffer(dtype, &numbers(dtype, b * mm * kk, 1));
            let rhs = m.buffer(dtype, &numbers(dtype, kk * n, 2));
            let s = |v: [usize; 4]| v.iter().map(|&x| x as isize).collect();
            let (ls, rs) = match transposed {
                false => (s([mm * kk, kk, 0, 1]), s([0, 0, 1, n])),
                true => (s([mm * kk, 1, 0, mm]), s([0, 0, kk, 1])),
            };
            k.core = Core::Gemm {
                lhs: Access { buffer: lhs, dtype, offset: 0, strides: ls },
                rhs: Access { buffer: rhs, dtype, offset: 0, strides: rs },
                dtype,
                rows: 1,
                columns: 1,
            };
            let bias = m.buffer(dtype, &numbers(dtype, n, 3));
            let strides = SmallVec::from_slice(&[0, 0, 1]);
            let id = access(&mut k, Access { buffer: bias, dtype, offset: 0, strides });
            let c = k.body.push(Inst::Core { dtype });
            let bias = k.body.push(Inst::Load(id));
            let v = k.body.push(op(OpCode::Add, &[c, bias], dtype));
            store(&mut k, &mut m, dtype, v);
            m.check(&k, if dtype.is_float() { tolerance(dtype) } else { 0.0 });
        }
    }
}

#[test]
fn gemms_extend_operands_of_narrower_integers_as_they_read_them() {
    let ints = || DType::ALL.into_iter().filter(|d| d.is_int());
    let (mm, n, kk) = (3, 5, 7);
    for dtype in ints() {
        let narrow = || ints().filter(|d| *d == dtype || d.size() < dtype.size());
        for (left, right) in narrow().flat_map(|l| narrow().map(move |r| (l, r))) {
            for strides in [[n as isize, 1], [1, kk as isize]] {
                let mut m = Memory::new();
                let mut k = blank("matmul", &[mm, n, kk], 2);
                let lhs = m.buffer(left, &numbers(left, mm * kk, 1));
                let rhs = m.buffer(right, &numbers(right, kk * n, 2));
                let access = |buffer, dtype, s: [isize; 3]| Access {
                    buffer,
                    dtype,
                    offset: 0,
                    strides: SmallVec::from_slice(&s),
                };
                k.core = Core::Gemm {
                    lhs: access(lhs, left, [kk as isize, 0, 1]),
                    rhs: access(rhs, right, [0, strides[1], strides[0]]),
                    dtype,
                    rows: 1,
                    columns: 1,
                };
                let c = k.body.push(Inst::Core { dtype });
                store(&mut k, &mut m, dtype, c);
                m.check(&k, 0.0);
            }
        }
    }
}

#[test]
fn gemms_over_windows_of_an_image_with_several_dimensions_of_each_kind() {
    // M [2, 2], N [3, 7] with windows two and one apart, K [3 channels, 2, 3].
    let (channels, height, width) = (3, 7, 9);
    for dtype in reals().filter(|&d| d != DType::Bool) {
        let mut m = Memory::new();
        let mut k = blank("matmul", &[2, 2, 3, 7, channels, 2, 3], 4);
        let weights = m.buffer(dtype, &numbers(dtype, 4 * channels * 6, 1));
        let image = m.buffer(dtype, &numbers(dtype, channels * height * width, 2));
        // The weights' channels are outermost.
        let (ls, rs) = ([6, 12, 0, 0, 24, 3, 1], [0, 0, 2 * 9, 1, 7 * 9, 9, 1]);
        let access = |buffer, s: &[isize]| Access {
            buffer,
            dtype,
            offset: 0,
            strides: SmallVec::from_slice(s),
        };
        let (lhs, rhs) = (access(weights, &ls), access(image, &rs));
        k.core = Core::Gemm { lhs, rhs, dtype, rows: 2, columns: 2 };
        let c = k.body.push(Inst::Core { dtype });
        store(&mut k, &mut m, dtype, c);
        m.check(&k, if dtype.is_float() { tolerance(dtype) } else { 0.0 });
    }
}

/// `take` along axis 0 of a `[rows, cols]` table.
fn take(m: &mut Memory, rows: usize, cols: usize, index: &[i64], dtype: DType) -> Kernel {
    let mut k = blank("take", &[index.len(), cols], 2);
    let table = m.buffer(DType::F32, &numbers(DType::F32, rows * cols, 1));
    let values: Vec<Literal> = index.iter().map(|&i| Literal::from_i64(dtype, i)).collect();
    let index = m.buffer(dtype, &values);
    let of = |buffer, dtype, strides: [isize; 2]| Access {
        buffer,
        dtype,
        offset: 0,
        strides: SmallVec::from_slice(&strides),
    };
    let table = access(&mut k, of(table, DType::F32, [0, 1]));
    let index = access(&mut k, of(index, dtype, [1, 0]));
    let i = k.body.push(Inst::Load(index));
    let stride = cols as isize;
    let v = k.body.push(Inst::Gather { access: table, index: i, stride, size: rows });
    store(&mut k, m, DType::F32, v);
    k
}

#[test]
fn gathers_wrap_negative_indices_and_refuse_the_rest() {
    for dtype in [DType::I8, DType::I64] {
        let mut m = Memory::new();
        let k = take(&mut m, 10, 77, &[3, -1, 0, 9, -10], dtype);
        m.check(&k, 0.0);
        for bad in [10, -11] {
            let mut m = Memory::new();
            let k = take(&mut m, 10, 77, &[3, bad], dtype);
            let error = m.run(&k, Isa::best(), false).err();
            assert_eq!(error, Some(ExecError::IndexOutOfBounds { index: bad.into(), size: 10 }));
        }
    }
}

#[test]
fn scatters_add_in_order_whatever_the_chunks() {
    for (tokens, cols) in [(5, 3), (400, 70), (3000, 1), (40, 3000)] {
        for dtype in [DType::F32, DType::BF16, DType::I16] {
            for independent in [true, false] {
                let mut m = Memory::new();
                let mut k = blank("scatter", &[tokens, cols], 2);
                let rows = 9;
                let updates = m.buffer(dtype, &numbers(dtype, tokens * cols, 1));
                let index: Vec<Literal> = (0..tokens as i64)
                    .map(|i| Literal::from_i64(DType::I32, i * 7 % rows as i64 - (i & 1) * 9))
                    .collect();
                let index = m.buffer(DType::I32, &index);
                let id = access(&mut k, dense(updates, dtype, &[tokens, cols]));
                let value = k.body.push(Inst::Load(id));
                let out = m.blank(dtype, rows * cols);
                let of = |buffer, dtype, strides: [isize; 2]| Access {
                    buffer,
                    dtype,
                    offset: 0,
                    strides: SmallVec::from_slice(&strides),
                };
                k.core = Core::Scatter {
                    mode: ScatterMode::Add,
                    zeroed: true,
                    index: of(index, DType::I32, [1, 0]),
                    stride: cols as isize,
                    size: rows,
                    independent: if independent {
                        SmallVec::from_slice(&[1])
                    } else {
                        SmallVec::new()
                    },
                };
                k.stores.push(Store { access: of(out, dtype, [0, 1]), value });
                m.check(&k, 0.0);
            }
        }
    }
}
