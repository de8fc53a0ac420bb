//! Prepacked weights: packed forms of arguments that the host stores from one run to the next, and
//! of the operands of a loop that the host stores from one iteration to the next.

use crate::HostDevice;
use girih_runtime::{Buffer, Device, PrepackKey, Prepacked};
use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The fraction of the device's memory that prepacked weights may take: one byte in this many
/// bytes.
const MEMORY_FRACTION: usize = 8;

/// A store of prepacked weights.
pub(crate) trait PrepackedStore {
    /// The prepacked weights with that key of a buffer, of `bytes` bytes. If the store decides to
    /// create them, `pack` writes them, and returns false on failure.
    fn get_or_pack(
        &self,
        buffer: usize,
        key: &PrepackKey,
        bytes: usize,
        pack: &mut dyn FnMut(*mut u8) -> bool,
    ) -> Option<PrepackedWeights>;

    /// Allocates memory of that many bytes for weights that are prepacked during a run; `None` if
    /// the store cannot provide it.
    fn allocate(&self, bytes: usize) -> Option<PrepackedWeights>;
}

/// Prepacked weights with their address.
#[derive(Clone)]
pub(crate) struct PrepackedWeights {
    /// Keeps the weights alive.
    #[allow(dead_code, reason = "held for its drop")]
    pub packed: Arc<dyn Any + Send + Sync>,
    pub start: *mut u8,
}

/// The number of bytes of all prepacked forms of a device's buffers.
#[derive(Clone, Default)]
pub(crate) struct PrepackedBytes(Arc<AtomicUsize>);

/// The number of bytes of one prepacked form.
struct Counted {
    all: PrepackedBytes,
    bytes: usize,
}

impl PrepackedBytes {
    /// Adds bytes to the count, unless it would exceed `max`.
    fn count(&self, bytes: usize, max: usize) -> Option<Box<dyn Send + Sync>> {
        let more = |all: usize| all.checked_add(bytes).filter(|all| *all <= max);
        self.0.fetch_update(Relaxed, Relaxed, more).ok()?;
        Some(Box::new(Counted { all: self.clone(), bytes }))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Relaxed);
    }
}

/// The weights of a launch.
pub(crate) struct LaunchWeights<'a> {
    pub device: &'a HostDevice,
    pub weights: &'a [(usize, Arc<Buffer>)],
}

impl LaunchWeights<'_> {
    /// Memory of the device, counted as prepacked weights.
    fn prepare(&self, bytes: usize) -> Option<Prepacked> {
        let max = self.device.properties().memory_bytes / MEMORY_FRACTION;
        let accounting = self.device.prepacked_bytes().count(bytes, max)?;
        let buffer = self.device.allocator().allocate(bytes).ok()?;
        Some(Prepacked { buffer, accounting })
    }

    fn weights(&self, packed: Arc<Prepacked>, bytes: usize) -> Option<PrepackedWeights> {
        let start = packed.buffer.address(bytes, self.device).ok()? as *mut u8;
        Some(PrepackedWeights { start, packed })
    }
}

impl PrepackedStore for LaunchWeights<'_> {
    fn get_or_pack(
        &self,
        buffer: usize,
        key: &PrepackKey,
        bytes: usize,
        pack: &mut dyn FnMut(*mut u8) -> bool,
    ) -> Option<PrepackedWeights> {
        let (_, memory) = self.weights.iter().find(|(of, _)| *of == buffer)?;
        let packed = memory.prepacked(key, || {
            let packed = self.prepare(bytes)?;
            let start = packed.buffer.address(bytes, self.device).ok()? as *mut u8;
            pack(start).then_some(packed)
        })?;
        self.weights(packed, bytes)
    }

    fn allocate(&self, bytes: usize) -> Option<PrepackedWeights> {
        self.weights(Arc::new(self.prepare(bytes)?), bytes)
    }
}

/// The weights of one run of a loop. The first iteration prepacks them, unless the surrounding
/// program's store has them.
pub(crate) struct LoopWeights<'a> {
    surrounding: &'a dyn PrepackedStore,
    packed: RefCell<Vec<(PrepackKey, PrepackedWeights)>>,
}

impl<'a> LoopWeights<'a> {
    pub fn new(surrounding: &'a dyn PrepackedStore) -> LoopWeights<'a> {
        LoopWeights { surrounding, packed: RefCell::default() }
    }
}

/// The weights of a program that a loop or a branch runs.
pub(crate) struct ProgramWeights<'a> {
    pub weights: &'a LoopWeights<'a>,
    /// For each buffer of the program, the buffer of the surrounding program whose contents it has
    /// in every iteration.
    pub constants: &'a [Option<usize>],
    /// Whether the program runs so often that packing for this run alone pays.
    pub repeats: bool,
}

impl PrepackedStore for ProgramWeights<'_> {
    fn get_or_pack(
        &self,
        buffer: usize,
        key: &PrepackKey,
        bytes: usize,
        pack: &mut dyn FnMut(*mut u8) -> bool,
    ) -> Option<PrepackedWeights> {
        let outer = self.constants[buffer]?;
        let LoopWeights { surrounding, packed } = self.weights;
        // The key contains the address of the contents, so it distinguishes operands.
        if let Some((_, weights)) = packed.borrow().iter().find(|(of, _)| of == key) {
            return Some(weights.clone());
        }
        let weights = surrounding.get_or_pack(outer, key, bytes, pack).or_else(|| {
            let weights = self.repeats.then(|| surrounding.allocate(bytes)).flatten()?;
            pack(weights.start).then_some(weights)
        })?;
        packed.borrow_mut().push((*key, weights.clone()));
        Some(weights)
    }

    fn allocate(&self, bytes: usize) -> Option<PrepackedWeights> {
        self.weights.surrounding.allocate(bytes)
    }
}

/// A store for tests.
#[cfg(test)]
pub(crate) mod testing {
    use super::{PrepackKey, PrepackedStore, PrepackedWeights};
    use std::cell::Cell;
    use std::sync::Arc;

    /// Counts the requests. The store packs each time if `packs`, and otherwise never.
    #[derive(Default)]
    pub(crate) struct CountingStore {
        pub packs: bool,
        pub asked: Cell<usize>,
        pub allocated: Cell<usize>,
    }

    impl PrepackedStore for CountingStore {
        fn get_or_pack(
            &self,
            _: usize,
            _: &PrepackKey,
            bytes: usize,
            pack: &mut dyn FnMut(*mut u8) -> bool,
        ) -> Option<PrepackedWeights> {
            self.asked.set(self.asked.get() + 1);
            let weights = self.packs.then(|| memory(bytes))?;
            pack(weights.start).then_some(weights)
        }

        fn allocate(&self, bytes: usize) -> Option<PrepackedWeights> {
            self.allocated.set(self.allocated.get() + 1);
            Some(memory(bytes))
        }
    }

    fn memory(bytes: usize) -> PrepackedWeights {
        let mut words = vec![0u128; bytes.div_ceil(16)];
        let start = words.as_mut_ptr() as *mut u8;
        PrepackedWeights { packed: Arc::new(words), start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prepacked_weights_stay_within_their_memory_limit() {
        let all = PrepackedBytes::default();
        let first = all.count(60, 100);
        assert!(
            first.is_some() && all.count(50, 100).is_none() && all.count(usize::MAX, 100).is_none()
        );
        drop(first);
        assert!(all.count(100, 100).is_some());
        assert_eq!(all.0.load(Relaxed), 0);
    }
}
