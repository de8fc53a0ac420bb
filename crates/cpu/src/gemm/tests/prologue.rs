//! GEMMs with fused operands: the same bits as the maps and the GEMM run one after another.

use super::*;
use crate::gemm::microkernels::{Multiply, Stored, TILE_ROWS};
use girih_kernel::{Local, RowwiseCore, Target, Val};

/// Buffers: the sources of the two operands, a scale per column, the result, the operands.
const X: u32 = 0;
const W: u32 = 1;
const SCALE: u32 = 2;
const OUT: u32 = 3;
const LEFT: u32 = 4;
const RIGHT: u32 = 5;

#[derive(Clone, Copy, Debug)]
struct Prologue {
    dtype: DType,
    /// Batch, M, N, K.
    sizes: [usize; 4],
    /// B is column-major.
    transposed: bool,
    /// Which operands are computed.
    computed: [bool; 2],
    body: bool,
}

fn access(buffer: u32, dtype: DType, strides: &[usize]) -> Access {
    let strides = strides.iter().map(|&s| s as isize).collect();
    Access { buffer: BufferId(buffer), dtype, offset: 0, strides }
}

fn op(body: &mut Block, code: OpCode, args: &[Val], dtype: DType) -> Val {
    body.push(Inst::Op { code, args: SmallVec::from_slice(args), dtype })
}

impl Prologue {
    /// A: twice the source.
    fn left(&self) -> Kernel {
        let [b, m, _, k] = self.sizes;
        let mut body = Block::default();
        let x = body.push(Inst::Load(AccessId(0)));
        let value = op(&mut body, OpCode::Add, &[x, x], self.dtype);
        let points = [b * m * k];
        Kernel {
            name: "double".into(),
            extents: SmallVec::from_slice(&points),
            parallel: 1,
            accesses: vec![access(X, self.dtype, &[1])],
            core: Core::Map,
            body,
            stores: vec![Store { access: access(LEFT, self.dtype, &[1]), value }],
        }
    }

    /// B: bytes times a scale per column, in the order of B.
    fn right(&self) -> Kernel {
        let [b, _, n, k] = self.sizes;
        let mut body = Block::default();
        let bytes = body.push(Inst::Load(AccessId(0)));
        let wide = op(&mut body, OpCode::Cast, &[bytes], self.dtype);
        let scale = body.push(Inst::Load(AccessId(1)));
        let value = op(&mut body, OpCode::Mul, &[wide, scale], self.dtype);
        let (sizes, of) = if self.transposed { ([n, k], [1, 0]) } else { ([k, n], [0, 1]) };
        let place = [sizes[0] * sizes[1], sizes[1], 1];
        Kernel {
            name: "scale".into(),
            extents: SmallVec::from_slice(&[b, sizes[0], sizes[1]]),
            parallel: 3,
            accesses: vec![
                access(W, DType::I8, &place),
                access(SCALE, self.dtype, &[0, of[0], of[1]]),
            ],
            core: Core::Map,
            body,
            stores: vec![Store { access: access(RIGHT, self.dtype, &place), value }],
        }
    }

    /// The maps, and the GEMM of their results.
    fn parts(&self) -> Vec<Kernel> {
        let [b, m, n, k] = self.sizes;
        let mut body = Block::default();
        let mut value = body.push(Inst::Core { dtype: self.dtype });
        if self.body {
            value = op(&mut body, OpCode::Neg, &[value], self.dtype);
        }
        let (column, row) = if self.transposed { (k, 1) } else { (1, n) };
        let gemm = Kernel {
            name: "gemm".into(),
            extents: SmallVec::from_slice(&[b, m, n, k]),
            parallel: 3,
            accesses: vec![],
            core: Core::Gemm {
                lhs: access(LEFT, self.dtype, &[m * k, k, 0, 1]),
                rhs: access(RIGHT, self.dtype, &[k * n, 0, column, row]),
                dtype: self.dtype,
                rows: 1,
                columns: 1,
            },
            body,
            stores: vec![Store { access: access(OUT, self.dtype, &[m * n, n, 1]), value }],
        };
        let maps = [self.left(), self.right()].into_iter().zip(self.computed);
        maps.filter(|(_, computed)| *computed).map(|(map, _)| map).chain([gemm]).collect()
    }

    /// Elements of each buffer.
    fn elements(&self) -> [usize; 6] {
        let [b, m, n, k] = self.sizes;
        [b * m * k, b * k * n, n, b * m * n, b * m * k, b * k * n]
    }

    /// One kernel of all parts, whose locals are the computed operands.
    fn fused(&self) -> Kernel {
        let all = [LEFT, RIGHT].into_iter().zip(self.computed).filter(|(_, computed)| *computed);
        let local = |(buffer, _): (u32, bool)| {
            let row_bytes = self.elements()[buffer as usize] * self.dtype.size();
            Local { buffer: BufferId(buffer), row_bytes }
        };
        let rows = RowwiseCore { parts: self.parts(), locals: all.map(local).collect() };
        Kernel {
            name: "fused".into(),
            extents: SmallVec::from_slice(&[1]),
            parallel: 1,
            accesses: vec![],
            core: Core::Rows(Box::new(rows)),
            body: Block::default(),
            stores: vec![],
        }
    }

    /// The contents of the buffers after these kernels.
    fn run(&self, kernels: &[Kernel], threads: usize) -> Vec<Vec<u64>> {
        let mut buffers: Vec<Vec<u64>> = vec![];
        for (id, n) in self.elements().into_iter().enumerate() {
            let dtype = if id == W as usize { DType::I8 } else { self.dtype };
            let mut words = vec![0u64; (n * dtype.size()).div_ceil(8)];
            for i in 0..n {
                let x = ((i * 7919 + id * 104_729) % 17) as f64 - 8.0;
                let bit = i * dtype.size() % 8 * 8;
                words[i * dtype.size() / 8] |= Literal::from_f64(dtype, x).bits << bit;
            }
            buffers.push(words);
        }
        let pointers: Vec<*mut u8> = buffers.iter_mut().map(|b| b.as_mut_ptr().cast()).collect();
        let bounds: Vec<Bounds> = buffers.iter().map(|b| Bounds::of(8 * b.len())).collect();
        let workspace = std::ptr::null_mut();
        let bindings =
            Bindings { buffers: &pointers, arguments: &[], workspace, bounds: Some(&bounds) };
        for kernel in kernels {
            // SAFETY: the accesses stay inside buffers of these sizes.
            unsafe { LoadedKernel::checked(kernel).run(&bindings, &Pool::new(threads)) }.unwrap();
        }
        buffers
    }

    fn check(&self) {
        let want = self.run(&self.parts(), 1);
        for threads in 1..=3 {
            let got = self.run(&[self.fused()], threads);
            assert!(got[OUT as usize] == want[OUT as usize], "{threads} threads, {self:?}");
            // An operand that is computed as it is packed has no memory.
            let untouched = self.run(&[], 1);
            for buffer in [LEFT, RIGHT].map(|id| id as usize) {
                assert!(got[buffer] == untouched[buffer], "{self:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn computing_operands_as_they_are_packed_changes_no_bit(
        dtype in prop_oneof![Just(DType::F32), Just(DType::BF16), Just(DType::F16), Just(DType::I32)],
        sizes in (1usize..3, 1usize..40, 1usize..150, 1usize..90),
        transposed in any::<bool>(),
        computed in prop_oneof![Just([true, false]), Just([false, true]), Just([true, true])],
        body in any::<bool>(),
    ) {
        let (b, m, n, k) = sizes;
        Prologue { dtype, sizes: [b, m, n, k], transposed, computed, body }.check();
    }
}

#[test]
fn large_operands_are_computed_block_by_block() {
    use DType::{BF16, F32, I8};
    for (dtype, sizes) in [
        (F32, [1, 1, 1500, 3000]),
        (F32, [1, 4, 700, 2100]),
        (F32, [1, 40, 1100, 700]),
        (F32, [2, 300, 140, 260]),
        (F32, [1, 1100, 300, 130]),
        (BF16, [1, 1, 600, 1027]),
        (BF16, [1, 70, 330, 320]),
        (BF16, [2, 530, 70, 705]),
        (I8, [1, 33, 70, 300]),
        (I8, [1, 530, 300, 256]),
    ] {
        for (transposed, computed) in
            [(false, [true, true]), (true, [true, true]), (false, [true, false])]
        {
            Prologue { dtype, sizes, transposed, computed, body: transposed }.check();
        }
    }
}

/// Instructions that multiply groups of K indices pack B along K. The target has these operands,
/// whatever instructions this machine has.
#[test]
fn the_target_has_the_operands_that_are_packed_along_k() {
    let operands = [
        (DType::F32, Stored::F32),
        (DType::F16, Stored::F16),
        (DType::BF16, Stored::BF16),
        (DType::I8, Stored::I8),
        (DType::U8, Stored::U8),
        (DType::I16, Stored::I16),
        (DType::U16, Stored::U16),
        (DType::I32, Stored::I32),
        (DType::U32, Stored::I32),
    ];
    for (dtype, stored) in operands {
        for rows in [1, TILE_ROWS - 1, TILE_ROWS, 1000] {
            let along_k = match Multiply::of(stored, stored) {
                None => false,
                Some(Multiply::BF16) => rows >= TILE_ROWS,
                Some(Multiply::Bytes(..)) => true,
            };
            let limits = Target::CPU.prologue;
            assert!(limits.packed.contains(dtype), "{dtype}");
            assert_eq!(limits.packs_along_k(dtype, rows), along_k, "{dtype}, {rows} rows");
        }
    }
}
