//! The executor against a naive interpreter: one point at a time, one scalar at a time.

mod c;
mod complex;
mod interpreter;
mod lowered;
mod ops;
mod shapes;
mod short;

use super::*;
use girih_ir::ops::ScatterMode;
use girih_ir::{DType, Element, Literal, OpCode};
use girih_kernel::ir::*;
use interpreter::interpret;
use smallvec::SmallVec;

/// Buffers of a test, as literals; `None` marks an output of that dtype and length.
pub(super) struct Memory {
    dtypes: Vec<DType>,
    words: Vec<Vec<u64>>,
    lens: Vec<usize>,
    pub arguments: Vec<[u64; 2]>,
}

impl Memory {
    pub fn new() -> Memory {
        Memory { dtypes: vec![], words: vec![], lens: vec![], arguments: vec![] }
    }

    pub fn buffer(&mut self, dtype: DType, values: &[Literal]) -> BufferId {
        let id = self.blank(dtype, values.len());
        for (i, v) in values.iter().enumerate() {
            self.set(id, i, *v);
        }
        id
    }

    pub fn blank(&mut self, dtype: DType, len: usize) -> BufferId {
        self.dtypes.push(dtype);
        self.words.push(vec![0xa5a5_a5a5_a5a5_a5a5; (len * dtype.size()).div_ceil(8)]);
        self.lens.push(len);
        BufferId(self.dtypes.len() as u32 - 1)
    }

    fn bytes(&self, id: BufferId) -> &[u8] {
        let words = &self.words[id.0 as usize];
        // SAFETY: plain memory of that many bytes.
        unsafe { std::slice::from_raw_parts(words.as_ptr() as *const u8, words.len() * 8) }
    }

    pub fn get(&self, id: BufferId, i: usize) -> Literal {
        let dtype = self.dtypes[id.0 as usize];
        assert!(i < self.lens[id.0 as usize], "element {i} of buffer {}", id.0);
        let mut bits = [0u8; 8];
        bits[..dtype.size()].copy_from_slice(&self.bytes(id)[i * dtype.size()..][..dtype.size()]);
        Literal { dtype, bits: u64::from_le_bytes(bits) }
    }

    pub fn set(&mut self, id: BufferId, i: usize, value: Literal) {
        let dtype = self.dtypes[id.0 as usize];
        assert!(dtype == value.dtype && i < self.lens[id.0 as usize]);
        let shift = i * dtype.size() % 8 * 8;
        let mask = if dtype.size() == 8 { u64::MAX } else { (1 << (dtype.size() * 8)) - 1 };
        let word = &mut self.words[id.0 as usize][i * dtype.size() / 8];
        *word = *word & !(mask << shift) | (value.bits & mask) << shift;
    }

    /// An element of any dtype.
    pub fn element(&self, id: BufferId, i: usize) -> Element {
        let dtype = self.dtypes[id.0 as usize];
        if !dtype.is_complex() {
            return self.get(id, i).into();
        }
        let part = dtype.size() / 2;
        let bits = |at: usize| {
            let mut bits = [0u8; 8];
            bits[..part].copy_from_slice(&self.bytes(id)[at..at + part]);
            u64::from_le_bytes(bits)
        };
        Element::from_bits(dtype, bits(i * 2 * part), bits(i * 2 * part + part))
    }

    pub fn values(&self, id: BufferId) -> Vec<Literal> {
        (0..self.lens[id.0 as usize]).map(|i| self.get(id, i)).collect()
    }

    /// Runs the kernel on a copy of the memory at one level; chunks in reverse order if
    /// `backwards`.
    pub fn run(&self, kernel: &Kernel, isa: Isa, backwards: bool) -> Result<Memory, ExecError> {
        self.run_prepared(&Prepared::with_isa(kernel, isa), backwards)
    }

    /// As [`Memory::run`] for a prepared kernel.
    pub fn run_prepared(&self, prepared: &Prepared, backwards: bool) -> Result<Memory, ExecError> {
        let mut copy = Memory { words: self.words.clone(), ..self.shallow() };
        let pointers: Vec<*mut u8> =
            copy.words.iter_mut().map(|w| w.as_mut_ptr() as *mut u8).collect();
        let mut workspace = vec![Line([0; 64]); prepared.workspace_bytes().div_ceil(64)];
        let sizes = self.lens.iter().zip(&self.dtypes);
        let bounds: Vec<Bounds> =
            sizes.map(|(len, dtype)| Bounds::of(len * dtype.size())).collect();
        let bindings = Bindings {
            buffers: &pointers,
            arguments: &self.arguments,
            workspace: workspace.as_mut_ptr() as *mut u8,
            bounds: Some(&bounds),
        };
        let mut scratch = [Scratch::new(), Scratch::new()];
        for phase in 0..prepared.phases() {
            let n = prepared.chunks(phase);
            for i in 0..n {
                let chunk = if backwards { n - 1 - i } else { i };
                // SAFETY: the buffers live in `copy`; the tests build accesses inside them.
                unsafe {
                    prepared.run_chunk(phase, chunk, &bindings, &mut scratch[i % 2], &Alone)?
                };
            }
        }
        Ok(copy)
    }

    fn shallow(&self) -> Memory {
        Memory {
            dtypes: self.dtypes.clone(),
            words: vec![],
            lens: self.lens.clone(),
            arguments: self.arguments.clone(),
        }
    }

    /// Runs at all levels and in both chunk orders, which must agree in all bits (NaNs count as
    /// equal), and returns the result.
    pub fn run_everywhere(&self, kernel: &Kernel) -> Memory {
        let first = self.run(kernel, Isa::Baseline, false).expect("the kernel runs");
        for isa in Isa::available() {
            for backwards in [false, true] {
                let other = self.run(kernel, isa, backwards).expect("the kernel runs");
                for store in &kernel.stores {
                    let id = store.access.buffer;
                    for i in 0..self.lens[id.0 as usize] {
                        let (a, b) = (first.element(id, i), other.element(id, i));
                        assert!(same(a, b), "{}: {isa:?} element {i}: {a:?} {b:?}", kernel.name);
                    }
                }
            }
        }
        first
    }

    /// Runs everywhere and compares with the interpreter: equal bits, or within `ulps` of the
    /// dtype's precision relative to the value.
    #[track_caller]
    pub fn check(&self, kernel: &Kernel, tolerance: f64) {
        let got = self.run_everywhere(kernel);
        let want = interpret(kernel, self).expect("the interpreter runs");
        for store in &kernel.stores {
            let id = store.access.buffer;
            for (i, (g, w)) in got.values(id).into_iter().zip(want.values(id)).enumerate() {
                let (x, y) = (g.as_f64(), w.as_f64());
                let close = tolerance > 0.0 && (x - y).abs() <= tolerance * y.abs().max(1.0);
                assert!(
                    same(g.into(), w.into()) || close,
                    "{} element {i}: {g:?}, expected {w:?}",
                    kernel.name
                );
            }
        }
    }
}

/// Equal bits, or both NaN, for each part.
pub(super) fn same(a: Element, b: Element) -> bool {
    let nan =
        |x: Literal, y: Literal| x.dtype.is_inexact() && x.as_f64().is_nan() && y.as_f64().is_nan();
    let imag = |e: Element| Literal { dtype: e.dtype.real(), bits: e.imag_bits() };
    let real = a.bits == b.bits || nan(*a, *b);
    a.dtype == b.dtype && real && (imag(a).bits == imag(b).bits || nan(imag(a), imag(b)))
}

/// The dtypes whose values all fit a [`Literal`].
pub(super) fn reals() -> impl Iterator<Item = DType> {
    DType::ALL.into_iter().filter(|d| !d.is_complex())
}

/// A dense access over some dimensions.
pub(super) fn dense(buffer: BufferId, dtype: DType, extents: &[usize]) -> Access {
    let mut strides: SmallVec<[isize; 6]> = SmallVec::new();
    let mut step = 1;
    for &e in extents.iter().rev() {
        strides.insert(0, step);
        step *= e as isize;
    }
    Access { buffer, dtype, offset: 0, strides }
}

pub(super) fn op(code: OpCode, args: &[Val], dtype: DType) -> Inst {
    Inst::Op { code, args: SmallVec::from_slice(args), dtype }
}

/// A map of one op over dense operands.
pub(super) fn map_of(
    memory: &mut Memory,
    code: OpCode,
    operands: &[(DType, Vec<Literal>)],
    out: DType,
) -> Kernel {
    let n = operands[0].1.len();
    let mut body = Block::default();
    let mut accesses = vec![];
    let mut args = vec![];
    for (dtype, values) in operands {
        let id = memory.buffer(*dtype, values);
        accesses.push(dense(id, *dtype, &[n]));
        args.push(body.push(Inst::Load(AccessId(accesses.len() as u32 - 1))));
    }
    let value = body.push(op(code, &args, out));
    let result = memory.blank(out, n);
    Kernel {
        name: format!("{} {}", code.def().name, operands[operands.len() - 1].0),
        extents: SmallVec::from_slice(&[n]),
        parallel: 1,
        accesses,
        core: Core::Map,
        body,
        stores: vec![Store { access: dense(result, out, &[n]), value }],
    }
}

/// Pseudo-random small numbers.
pub(super) fn numbers(dtype: DType, n: usize, seed: u64) -> Vec<Literal> {
    (0..n as u64)
        .map(|i| {
            let h = (i + seed * 1_000_003).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            match dtype {
                DType::Bool => Literal::from_i64(dtype, (h & 1) as i64),
                d if d.is_float() => Literal::from_f64(d, h as f64 / (1 << 23) as f64 - 1.0),
                d => Literal::from_i64(d, (h % 200) as i64 - 100),
            }
        })
        .collect()
}
