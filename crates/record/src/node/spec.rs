//! The shape and dtype of a node in few bytes, and the tables of shapes that do not fit.

use crate::error::{Error, Result};
use girih_ir::{DType, Shape, TensorSpec};
use girih_sync::{Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use std::sync::PoisonError;

/// Sizes up to rank 4 below 2^32 are inline; other shapes are interned, with the id in the first
/// word. A table holds the shape as long as the node lives if the shape is symbolic, which occurs
/// only while tracing, or if the interner is full.
pub(super) type CompactShape = [u32; 4];

/// A spec in the form that nodes store. If two compact specs are equal, the specs are equal. A
/// compact spec whose shape is in the table of a live node, or belongs to a failed node, never
/// compares equal.
#[derive(Clone, Copy, Debug)]
pub struct CompactSpec {
    pub(super) shape: CompactShape,
    pub(super) form: Form,
}

/// The dtype in the low five bits, and in the others the rank of an inline shape, or where the
/// shape is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Form(u8);

const DTYPE_BITS: u32 = 5;
/// Ranks of shapes that are not inline. Those above [`INTERNED`] are in a table of live nodes.
const INTERNED: u8 = 5;
const IN_TABLE: u8 = 6;
const FAILED: u8 = 7;

impl Form {
    #[inline]
    fn new(rank: u8, dtype: DType) -> Form {
        Form(rank << DTYPE_BITS | dtype as u8)
    }

    #[inline]
    fn rank(self) -> u8 {
        self.0 >> DTYPE_BITS
    }

    #[inline]
    pub fn dtype(self) -> DType {
        const DTYPES: [DType; 1 << DTYPE_BITS] = {
            let mut table = [DType::Bool; 1 << DTYPE_BITS];
            let mut at = 0;
            while at < DType::ALL.len() {
                table[DType::ALL[at] as usize] = DType::ALL[at];
                at += 1;
            }
            table
        };
        DTYPES[usize::from(self.0) & (DTYPES.len() - 1)]
    }
}

impl PartialEq for CompactSpec {
    #[inline]
    fn eq(&self, other: &CompactSpec) -> bool {
        self.shape == other.shape && self.form == other.form && self.form.rank() <= INTERNED
    }
}

impl CompactSpec {
    /// The slot for this spec in a hash table of `entries` entries, a power of two.
    #[inline]
    pub fn slot(&self, entries: usize) -> usize {
        let [a, b, c, d] = self.shape;
        let mixed = a ^ b.rotate_left(7) ^ c.rotate_left(13) ^ d.rotate_left(19);
        (mixed.wrapping_mul(0x9e37_79b9) >> 20) as usize & (entries - 1)
    }

    /// Converts a spec; `None` if only a node can hold it.
    #[inline]
    pub fn of(spec: &TensorSpec) -> Option<CompactSpec> {
        let (shape, rank) = compact(&spec.shape)?;
        Some(CompactSpec { shape, form: Form::new(rank, spec.dtype) })
    }

    /// Converts a spec for a node, which [releases](CompactSpec::release) it.
    pub(super) fn of_node(spec: &TensorSpec) -> CompactSpec {
        CompactSpec::of(spec).unwrap_or_else(|| {
            let shape = [NodeTable::lock(&LARGE_SHAPES).insert(spec.shape.clone()), 0, 0, 0];
            CompactSpec { shape, form: Form::new(IN_TABLE, spec.dtype) }
        })
    }

    /// The spec of a node that carries an error, which [releases](CompactSpec::release) it.
    pub(super) fn failed(spec: &TensorSpec, error: Error) -> CompactSpec {
        let shape = [NodeTable::lock(&FAILURES).insert((spec.shape.clone(), error)), 0, 0, 0];
        CompactSpec { shape, form: Form::new(FAILED, spec.dtype) }
    }

    /// Returns the error that the node with this spec carries, if any.
    #[inline]
    pub(super) fn check(&self) -> Result<()> {
        match self.form.rank() == FAILED {
            false => Ok(()),
            true => Err(NodeTable::lock(&FAILURES).get(self.shape[0]).1.clone()),
        }
    }

    /// The sizes of the dimensions.
    pub(super) fn shape(&self) -> Shape {
        match self.form.rank() {
            IN_TABLE => NodeTable::lock(&LARGE_SHAPES).get(self.shape[0]).clone(),
            FAILED => NodeTable::lock(&FAILURES).get(self.shape[0]).0.clone(),
            INTERNED => {
                let table = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
                let table = table.as_ref().expect("the shape was interned when the node was made");
                table.shapes[self.shape[0] as usize].clone()
            }
            rank => Shape::inline(self.shape.map(|d| d as usize), rank as usize),
        }
    }

    /// Removes what the tables hold for the node with this spec, which is dropped.
    #[inline]
    pub(super) fn release(&self) {
        match self.form.rank() {
            IN_TABLE => NodeTable::lock(&LARGE_SHAPES).release(self.shape[0]),
            FAILED => NodeTable::lock(&FAILURES).release(self.shape[0]),
            _ => {}
        }
    }
}

/// The maximum number of interned shapes, about 6 MB.
const MAX_INTERNED: usize = 1 << 16;

static LARGE_SHAPES: Mutex<NodeTable<Shape>> = Mutex::new(NodeTable::new());
/// The error and the shape of each live failed node.
static FAILURES: Mutex<NodeTable<(Shape, Error)>> = Mutex::new(NodeTable::new());

/// A table of values that belong to live nodes.
struct NodeTable<T> {
    entries: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> NodeTable<T> {
    const fn new() -> NodeTable<T> {
        NodeTable { entries: Vec::new(), free: Vec::new() }
    }

    fn lock(table: &'static Mutex<NodeTable<T>>) -> MutexGuard<'static, NodeTable<T>> {
        table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&mut self, entry: T) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.entries[id as usize] = Some(entry);
                id
            }
            None => {
                self.entries.push(Some(entry));
                self.entries.len() as u32 - 1
            }
        }
    }

    fn get(&self, id: u32) -> &T {
        self.entries[id as usize].as_ref().expect("kept as long as its node lives")
    }

    fn release(&mut self, id: u32) {
        self.entries[id as usize] = None;
        self.free.push(id);
    }
}

static SHAPES: Mutex<Option<Interner>> = Mutex::new(None);

#[derive(Default)]
struct Interner {
    shapes: Vec<Shape>,
    ids: FxHashMap<Shape, u32>,
}

impl Interner {
    /// The id of a shape; `None` if the interner is full.
    fn intern(&mut self, shape: &Shape, most: usize) -> Option<u32> {
        if let Some(&id) = self.ids.get(shape) {
            return Some(id);
        }
        let id = self.shapes.len() as u32;
        if self.shapes.len() >= most {
            return None;
        }
        self.shapes.push(shape.clone());
        self.ids.insert(shape.clone(), id);
        Some(id)
    }
}

/// The shape, inline or interned; `None` for symbolic shapes, and if the interner is full.
fn compact(shape: &Shape) -> Option<(CompactShape, u8)> {
    if shape.is_symbolic() {
        return None;
    }
    let mut dims = [0; 4];
    let fits = shape.rank() <= 4 && shape.iter().all(|&d| u32::try_from(d).is_ok());
    if !fits {
        let mut table = SHAPES.lock().unwrap_or_else(PoisonError::into_inner);
        dims[0] = table.get_or_insert_default().intern(shape, MAX_INTERNED)?;
        return Some((dims, INTERNED));
    }
    for (dim, &size) in dims.iter_mut().zip(shape.iter()) {
        *dim = size as u32;
    }
    Some((dims, shape.rank() as u8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_beyond_the_inline_ones_survive() {
        for shape in [
            Shape::from([1, 2, 3, 4, 5]),
            Shape::from([1 << 40, 2]),
            Shape::scalar(),
            Shape::from([0, 7]),
        ] {
            let spec = TensorSpec::new(shape.clone(), DType::I8);
            let compact = CompactSpec::of_node(&spec);
            assert_eq!(compact.shape(), shape);
            assert_eq!(compact, CompactSpec::of(&spec).unwrap());
        }
    }

    #[test]
    fn every_dtype_fits_a_form_with_every_rank() {
        for (rank, dtype) in (0..=FAILED).flat_map(|rank| DType::ALL.map(|dtype| (rank, dtype))) {
            let form = Form::new(rank, dtype);
            assert_eq!((form.rank(), form.dtype()), (rank, dtype));
        }
    }

    #[test]
    fn shapes_are_shared_up_to_a_number_of_them() {
        let mut interner = Interner::default();
        let shape = |size| Shape::from([1, 1, 1, 1, size]);
        for size in 0..100 {
            assert_eq!(interner.intern(&shape(size), 10).is_some(), size < 10);
        }
        assert_eq!(interner.intern(&shape(3), 10), interner.intern(&shape(3), 10));
        assert_eq!((interner.shapes.len(), interner.ids.len()), (10, 10));
        // A symbolic shape has no compact spec, so the node's table holds it.
        let symbolic = Shape::of_dims([girih_ir::Dim::symbol("n", 8, 1, None)]);
        assert!(CompactSpec::of(&TensorSpec::new(symbolic, DType::F32)).is_none());
    }
}
