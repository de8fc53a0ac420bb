//! Generated code against the portable executor, to the bit.

mod even;
mod fold;
mod form;
mod random;
mod rows;
mod short;
mod stream;

use crate::compiler::HostCompiler;
use girih_exec::{Bindings, Bounds, Isa, Prepared, Scratch};
use girih_ir::{DType, Literal, OpCode};
use girih_kernel::{
    Access, AccessId, Block, Buffer, BufferId, BufferKind, Core, Inst, Kernel, KernelProgram,
    Store, Val,
};
use girih_linalg::Alone;
use random::random;
use smallvec::SmallVec;
use std::cell::Cell;

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::BF16, DType::F64];
const INTEGERS: [DType; 8] =
    [DType::I32, DType::U32, DType::I8, DType::U8, DType::I16, DType::U16, DType::I64, DType::U64];

thread_local! {
    /// The level that code is generated for in this thread, if not the best.
    pub(super) static LEVEL: Cell<Option<Isa>> = const { Cell::new(None) };
    /// Whether code for VNNI and for AMX is generated in this thread, if not as the machine has
    /// them.
    pub(super) static EXTENSIONS: Cell<Option<[bool; 2]>> = const { Cell::new(None) };
}

/// Calls `f`, in which code is generated for a machine of this level, with or without VNNI and AMX.
/// The code must not be run.
pub(crate) fn as_if<R>(isa: Isa, extensions: [bool; 2], f: impl FnOnce() -> R) -> R {
    LEVEL.set(Some(isa));
    EXTENSIONS.set(Some(extensions));
    let result = f();
    LEVEL.set(None);
    EXTENSIONS.set(None);
    result
}

/// Calls `f` for each level of vectors that this machine can run and code is generated for.
pub(crate) fn on_each_level(mut f: impl FnMut()) {
    for isa in Isa::available().into_iter().filter(|&isa| isa >= Isa::Avx2) {
        LEVEL.set(Some(isa));
        f();
    }
    LEVEL.set(None);
}

/// True if code is generated on this machine.
pub(crate) fn generates() -> bool {
    super::function::enabled()
}

/// Runs a test for each level that code is generated for on this machine.
fn at_each_level(test: impl Fn()) {
    if !super::function::enabled() {
        return;
    }
    for isa in Isa::available().into_iter().filter(|&isa| isa >= Isa::Avx2) {
        LEVEL.set(Some(isa));
        test();
    }
    LEVEL.set(None);
}

/// A kernel under construction, over `[rows, row]` points.
struct Maker {
    kernel: Kernel,
    /// Elements of each buffer.
    buffers: Vec<(DType, usize)>,
    dtypes: Vec<DType>,
}

/// The access pattern of a load.
#[derive(Clone, Copy, Debug)]
enum Walk {
    Dense,
    /// Every second element of a row.
    Even,
    /// One row for all rows.
    Row,
    /// One element per row.
    Column,
    /// One element.
    Point,
}

impl Maker {
    fn new(rows: usize, row: usize) -> Maker {
        let kernel = Kernel {
            name: "test".into(),
            extents: SmallVec::from_slice(&[rows, row]),
            parallel: 2,
            accesses: vec![],
            core: Core::Map,
            body: Block::default(),
            stores: vec![],
        };
        Maker { kernel, buffers: vec![], dtypes: vec![] }
    }

    fn access(&mut self, dtype: DType, walk: Walk, offset: usize) -> Access {
        let (rows, row) = (self.kernel.extents[0], self.kernel.extents[1] as isize);
        let (strides, numel) = match walk {
            Walk::Dense => ([row, 1], rows * row as usize),
            Walk::Even => ([2 * row + 1, 2], rows * (2 * row as usize + 1) - 2),
            Walk::Row => ([0, 1], row as usize),
            Walk::Column => ([1, 0], rows),
            Walk::Point => ([0, 0], 1),
        };
        self.buffers.push((dtype, numel + offset));
        Access {
            buffer: BufferId(self.buffers.len() as u32 - 1),
            dtype,
            offset: offset as isize,
            strides: SmallVec::from_slice(&strides),
        }
    }

    fn push(&mut self, inst: Inst, dtype: DType) -> Val {
        self.dtypes.push(dtype);
        self.kernel.body.push(inst)
    }

    fn load(&mut self, dtype: DType, walk: Walk, offset: usize) -> Val {
        let access = self.access(dtype, walk, offset);
        self.kernel.accesses.push(access);
        self.push(Inst::Load(AccessId(self.kernel.accesses.len() as u32 - 1)), dtype)
    }

    fn op(&mut self, code: OpCode, args: &[Val], dtype: DType) -> Val {
        self.push(Inst::Op { code, args: SmallVec::from_slice(args), dtype }, dtype)
    }

    fn store(&mut self, value: Val) {
        let dtype = self.dtypes[value.0 as usize];
        let access = self.access(dtype, Walk::Dense, 0);
        self.kernel.stores.push(Store { access, value });
    }
}

impl Maker {
    /// The kernel as a program, for the verifier.
    fn program(&self) -> KernelProgram {
        let stored: Vec<u32> = self.kernel.stores.iter().map(|s| s.access.buffer.0).collect();
        let buffer = |(b, &(dtype, numel)): (usize, &(DType, usize))| Buffer {
            dtype,
            numel,
            kind: match stored.contains(&(b as u32)) {
                true => BufferKind::Computed,
                false => BufferKind::Argument(b),
            },
        };
        KernelProgram {
            buffers: self.buffers.iter().enumerate().map(buffer).collect(),
            kernels: vec![self.kernel.clone()],
            outputs: stored.into_iter().map(BufferId).collect(),
        }
    }
}

/// Special values of the dtype, then pseudo-random ones.
fn element(dtype: DType, i: usize, seed: u64) -> u64 {
    let word = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.rotate_left(17);
    let word = (word ^ word >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.0,
        88.7,
        89.5,
        -104.0,
        -87.5,
        1e-40,
        -1e-40,
        3.4e38,
        0.625,
        0.93,
        4.1,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        1e-8,
        65504.0,
        65520.0,
        6e-8,
        127.5,
        1e6,
        -3e7,
        1e22,
        1.5e300,
        -129.0,
        2147483648.0,
        4294967295.5,
        -2147483649.0,
        9.3e18,
        1.9e19,
    ];
    let float = match word % 4 {
        0 => special[(word >> 8) as usize % special.len()],
        1 => (word >> 40) as f64 / (1 << 22) as f64 - 2.0,
        2 if dtype == DType::F64 => f64::from_bits(word.rotate_left(23)),
        2 => f32::from_bits((word >> 20) as u32) as f64,
        // Close to the ties of rounding to half precision.
        _ => 1.0 + 2f64.powi(-11) + 2f64.powi(-8 - (word >> 58) as i32),
    };
    let integers = [0, 1, u64::MAX, i64::MIN as u64, i64::MAX as u64, 7, 1 << 31, 0x7fff_ffff];
    let narrow = dtype.size() < 4 || word & 16 == 0;
    match dtype {
        DType::Bool => word >> 13 & 1,
        d if d.is_float() => Literal::from_f64(d, float).bits,
        _ if word.is_multiple_of(3) => {
            let unused = 64 - 8 * dtype.size() as u32;
            let pick = integers[(word >> 8) as usize % integers.len()];
            // Shift extreme values to those of the dtype.
            if pick >> 62 == 0 || pick == u64::MAX { pick } else { (pick as i64 >> unused) as u64 }
        }
        _ if narrow => word >> 56,
        _ => word.rotate_left(32),
    }
}

/// Runs a kernel and returns the bytes that it stores, with a single NaN for all NaNs.
fn outputs(
    kernel: &Kernel,
    buffers: &[(DType, usize)],
    seed: u64,
    workspace_bytes: usize,
    run: impl Fn(&Bindings<'_>),
) -> Vec<Vec<u64>> {
    let mut memory: Vec<Vec<u8>> = Vec::new();
    for (b, &(dtype, numel)) in buffers.iter().enumerate() {
        let bytes = |i| element(dtype, i, seed ^ (b as u64) << 7).to_le_bytes();
        memory.push((0..numel).flat_map(|i| bytes(i)[..dtype.size()].to_vec()).collect());
    }
    let pointers: Vec<*mut u8> = memory.iter_mut().map(|m| m.as_mut_ptr()).collect();
    let arguments = [[element(DType::F32, 5, seed), 0]];
    let mut workspace = vec![0u64; workspace_bytes.div_ceil(8)];
    let workspace = workspace.as_mut_ptr() as *mut u8;
    let bounds: Vec<Bounds> = memory.iter().map(|m| Bounds::of(m.len())).collect();
    let bounds = Some(&bounds[..]);
    run(&Bindings { buffers: &pointers, arguments: &arguments, workspace, bounds });
    let stored = kernel.stores.iter().map(|s| (s.access.buffer.0 as usize, s.access.dtype));
    stored
        .map(|(b, dtype)| {
            let word = |bytes: &[u8]| {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                let literal = Literal { dtype, bits: u64::from_le_bytes(word) };
                if dtype.is_float() && literal.as_f64().is_nan() { u64::MAX } else { literal.bits }
            };
            memory[b].chunks_exact(dtype.size()).map(word).collect()
        })
        .collect()
}

fn generated(kernel: &Kernel) -> Prepared {
    Prepared::compiled(kernel, &HostCompiler, false)
}

/// The code of a kernel that has a single function.
fn code_of(kernel: &Kernel) -> Vec<u8> {
    let prepared = generated(kernel);
    let [function] = prepared.functions()[..] else { panic!("one function for\n{kernel}") };
    function.code().to_vec()
}

/// Checks that a kernel has generated code and gives the portable executor's bits.
fn check(maker: &Maker, seed: u64) {
    let functions = check_bits(maker, seed);
    assert!(functions > 0, "nothing generated for\n{}", maker.kernel);
}

/// Checks that a kernel gives the portable executor's bits, and counts its generated functions.
fn check_bits(maker: &Maker, seed: u64) -> usize {
    girih_kernel::verify::verify(&maker.program()).unwrap();
    let map = generated(&maker.kernel);
    let prepared = Prepared::new(&maker.kernel);
    let bytes = prepared.workspace_bytes();
    let expected = outputs(&maker.kernel, &maker.buffers, seed, bytes, |bindings| {
        // SAFETY: the buffers have the sizes of the kernel.
        unsafe { prepared.run(bindings, &mut Scratch::new()).unwrap() };
    });
    let bytes = map.workspace_bytes();
    let found = outputs(&maker.kernel, &maker.buffers, seed, bytes, |bindings| {
        for phase in 0..map.phases() {
            for chunk in (0..map.chunks(phase)).rev() {
                // SAFETY: as above.
                unsafe {
                    map.run_chunk(phase, chunk, bindings, &mut Scratch::new(), &Alone).unwrap()
                };
            }
        }
    });
    // As a kernel in the body of a loop, and by a single call if one call computes the kernel.
    let often = Prepared::compiled(&maker.kernel, &HostCompiler, true);
    let bytes = often.workspace_bytes();
    let in_a_loop = outputs(&maker.kernel, &maker.buffers, seed, bytes, |bindings| {
        // SAFETY: as above.
        unsafe { often.run(bindings, &mut Scratch::new()).unwrap() };
    });
    for found in [found, in_a_loop] {
        for (store, (found, expected)) in found.iter().zip(&expected).enumerate() {
            for (i, (f, e)) in found.iter().zip(expected).enumerate() {
                assert_eq!(f, e, "store {store}, element {i} of\n{}", maker.kernel);
            }
        }
    }
    map.functions().len()
}

/// The kernel of `row` points that adds a scalar of the program's arguments, or a constant.
fn adding(row: usize, argument: bool) -> Maker {
    let dtype = DType::F32;
    let mut maker = Maker::new(1, row);
    let x = maker.load(dtype, Walk::Dense, 0);
    let y = match argument {
        true => maker.push(Inst::Scalar { argument: 0, dtype }, dtype),
        false => maker.push(Inst::Literal(Literal::from_f64(dtype, 0.5)), dtype),
    };
    let sum = maker.op(OpCode::Add, &[x, y], dtype);
    maker.store(sum);
    maker
}

#[test]
fn frequent_one_point_kernels_are_single_calls() {
    if !super::function::enabled() {
        return;
    }
    for (row, argument) in [(1, false), (1, true), (40, false), (40, true)] {
        let maker = adding(row, argument);
        check_bits(&maker, 3);
        assert_eq!(generated(&maker.kernel).functions().is_empty(), row == 1, "{}", maker.kernel);
        let often = Prepared::compiled(&maker.kernel, &HostCompiler, true);
        let single = Cell::new(false);
        outputs(&maker.kernel, &maker.buffers, 3, 0, |bindings| {
            // SAFETY: the buffers have the sizes of the kernel.
            single.set(unsafe { often.run_single_call(bindings) });
        });
        assert!(single.get(), "{}", maker.kernel);
    }
}

/// Ops by operands: codes, dtypes of the operands, dtype of the result if it is another.
fn known() -> Vec<(OpCode, Vec<DType>, DType)> {
    use OpCode::*;
    let mut all = vec![];
    for d in FLOATS {
        for code in [Neg, Abs, Sign, Floor, Ceil, Round, Trunc, Sqrt, Rsqrt] {
            all.push((code, vec![d], d));
        }
        for code in [
            Exp, Exp2, Expm1, Log, Log1p, Log2, Log10, Sin, Cos, Tan, Asin, Acos, Atan, Sinh, Cosh,
            Tanh, Asinh, Acosh, Atanh, Erf, Erfc,
        ] {
            all.push((code, vec![d], d));
        }
        for code in [IsNan, IsInf, IsFinite, Signbit] {
            all.push((code, vec![d], DType::Bool));
        }
        for code in [Add, Sub, Mul, Div, Maximum, Minimum, Copysign, Pow, Atan2] {
            all.push((code, vec![d, d], d));
        }
        if d.size() > 2 {
            all.push((Nextafter, vec![d, d], d));
        }
        if d != DType::F64 {
            all.push((Hypot, vec![d, d], d));
        }
    }
    for d in INTEGERS {
        for code in [Neg, Not, Abs, Sign, Floor] {
            all.push((code, vec![d], d));
        }
        for code in [Add, Sub, Mul, And, Or, Xor, Maximum, Minimum, ShiftLeft, ShiftRight] {
            all.push((code, vec![d, d], d));
        }
        if d.size() < 8 {
            all.push((FloorDivide, vec![d, d], d));
            all.push((Remainder, vec![d, d], d));
        }
    }
    for d in FLOATS.into_iter().chain(INTEGERS) {
        for code in [Eq, Ne, Lt, Le, Gt, Ge] {
            all.push((code, vec![d, d], DType::Bool));
        }
        for to in FLOATS.into_iter().chain(INTEGERS).filter(|&to| to != d) {
            all.push((Cast, vec![d], to));
        }
        all.push((Cast, vec![d], DType::Bool));
        all.push((Cast, vec![DType::Bool], d));
        all.push((Where, vec![DType::Bool, d, d], d));
    }
    let words = [DType::I32, DType::U32].map(|integer| (DType::F32, integer));
    let wide = [DType::I64, DType::U64].map(|integer| (DType::F64, integer));
    for (float, integer) in words.into_iter().chain(wide) {
        all.push((Bitcast, vec![float], integer));
        all.push((Bitcast, vec![integer], float));
    }
    for code in [And, Or, Xor, Eq, Ne, Lt, Le, Gt, Ge] {
        all.push((code, vec![DType::Bool; 2], DType::Bool));
    }
    all.push((Not, vec![DType::Bool], DType::Bool));
    all.push((Where, vec![DType::Bool; 3], DType::Bool));
    all
}

#[test]
fn every_op_gives_the_portable_executors_bits() {
    at_each_level(|| {
        for (code, operands, to) in known() {
            for seed in 0..2 {
                let mut maker = Maker::new(1, 5000 + seed as usize);
                let args: Vec<Val> =
                    operands.iter().map(|&d| maker.load(d, Walk::Dense, 0)).collect();
                let y = maker.op(code, &args, to);
                maker.store(y);
                check(&maker, seed);
            }
        }
    });
}

#[test]
fn every_length_and_alignment_is_written_exactly() {
    at_each_level(|| {
        for row in 0..70 {
            for offset in [0, 1, 3] {
                // A single point is invariant, so no loop is generated.
                let row = row.max(2);
                let mut maker = Maker::new(1, row);
                let x = maker.load(DType::F32, Walk::Dense, offset);
                let h = maker.load(DType::F16, Walk::Dense, offset);
                let b = maker.load(DType::Bool, Walk::Dense, offset);
                let e = maker.op(OpCode::Exp, &[x], DType::F32);
                let h2 = maker.op(OpCode::Add, &[h, h], DType::F16);
                let n = maker.op(OpCode::Not, &[b], DType::Bool);
                [e, h2, n].into_iter().for_each(|v| maker.store(v));
                check(&maker, offset as u64);
            }
        }
    });
}

#[test]
fn chunks_may_split_rows() {
    at_each_level(|| {
        let mut maker = Maker::new(331, 1001);
        let x = maker.load(DType::F32, Walk::Dense, 0);
        let row = maker.load(DType::F32, Walk::Row, 2);
        let column = maker.load(DType::F16, Walk::Column, 1);
        let column = maker.op(OpCode::Cast, &[column], DType::F32);
        let point = maker.load(DType::F32, Walk::Point, 3);
        let scalar = maker.push(Inst::Scalar { argument: 0, dtype: DType::F32 }, DType::F32);
        let mut y = maker.op(OpCode::Mul, &[x, row], DType::F32);
        for v in [column, point, scalar] {
            y = maker.op(OpCode::Add, &[y, v], DType::F32);
        }
        let y = maker.op(OpCode::Tanh, &[y], DType::F32);
        maker.store(y);
        assert!(generated(&maker.kernel).chunks(0) > 3);
        check(&maker, 1);
    });
}

#[test]
fn more_values_than_registers_are_kept_in_memory() {
    at_each_level(|| {
        let mut maker = Maker::new(3, 100);
        let x: Vec<Val> = (0..7).map(|i| maker.load(DType::F32, Walk::Dense, i)).collect();
        let points: Vec<Val> = (0..15).map(|_| maker.load(DType::F32, Walk::Column, 0)).collect();
        let mut values = vec![];
        for (i, &p) in points.iter().enumerate() {
            for &x in &x {
                let code = [OpCode::Mul, OpCode::Add, OpCode::Sub][i % 3];
                values.push(maker.op(code, &[x, p], DType::F32));
            }
        }
        // Use the values in another order, so that all are live at once.
        let mut sum = values[0];
        for i in 0..values.len() {
            sum = maker.op(OpCode::Add, &[sum, values[i * 37 % values.len()]], DType::F32);
        }
        maker.store(sum);
        check(&maker, 9);
    });
}

#[test]
fn unsupported_ops_are_not_generated() {
    let unknown = |make: &dyn Fn(&mut Maker)| {
        let mut maker = Maker::new(2, 64);
        make(&mut maker);
        generated(&maker.kernel).functions().is_empty()
    };
    assert!(unknown(&|m| {
        let x = m.load(DType::I64, Walk::Dense, 0);
        let y = m.op(OpCode::FloorDivide, &[x, x], DType::I64);
        m.store(y);
    }));
    assert!(unknown(&|m| {
        let x = m.load(DType::F64, Walk::Dense, 0);
        let y = m.op(OpCode::Hypot, &[x, x], DType::F64);
        m.store(y);
    }));
    assert!(unknown(&|m| {
        let x = m.load(DType::F32, Walk::Dense, 0);
        m.kernel.accesses[0].strides = SmallVec::from_slice(&[1, 2]);
        m.store(x);
    }));
}

#[test]
fn equal_chains_share_a_function_until_the_table_is_cleared() {
    let choices: Vec<(u8, u8, u8, u8)> = (0..20).map(|i| (i * 11, i, i * 5, i)).collect();
    at_each_level(|| {
        let address = || {
            let prepared = generated(&random(&choices, 2, 40).kernel);
            prepared.functions().first().map(|f| f.code().as_ptr() as usize)
        };
        // Another test may have filled the table and emptied it in between.
        assert!(address().is_some() && (0..3).any(|_| address() == address()));
        let before = address();
        super::forget();
        assert_ne!(address(), before);
    });
}
