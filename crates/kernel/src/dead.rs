//! Removes what no result needs: stores to buffers that nothing reads, and the instructions, loads
//! and kernels that only such stores need.
//!
//! A plan stores a value for the kernels that it expects to load it. A kernel may compute the value
//! again instead (the part of an update that is taken from the updated value itself), and then
//! nothing reads the buffer.

use crate::ir::{AccessId, Block, Core, Inst, Kernel, Store, Val};
use smallvec::SmallVec;

/// Removes the stores of kernels, which run in this order, to buffers that are neither live nor read
/// by a later kernel; `live` is by buffer, and then includes the buffers that the kernels use.
/// Returns for each kernel whether it is needed. A kernel that finds an index out of bounds stops
/// the program, so it is needed whatever it stores.
pub(crate) fn remove_dead_stores(kernels: &mut [Kernel], live: &mut [bool]) -> Vec<bool> {
    let mut needed = vec![true; kernels.len()];
    for (kernel, needed) in kernels.iter_mut().zip(&mut needed).rev() {
        let is_live = |store: &Store| live[store.access.buffer.0 as usize];
        *needed = match kernel.core {
            Core::Map | Core::Reduce { .. } | Core::Gemm { .. } => {
                match kernel.all_stores().filter(|store| is_live(store)).count() {
                    0 => kernel.checks_indices(),
                    count if count == kernel.all_stores().count() => true,
                    _ => {
                        if let Core::Reduce { stores, .. } = &mut kernel.core {
                            stores.retain(|store| is_live(store));
                        }
                        kernel.stores.retain(|store| is_live(store));
                        kernel.sweep();
                        true
                    }
                }
            }
            Core::Scatter { .. } | Core::Rows(_) | Core::Library(_) | Core::Control(_) => true,
        };
        if *needed {
            kernel.reads().chain(kernel.writes()).for_each(|id| live[id.0 as usize] = true);
        }
    }
    needed
}

/// Whether an instruction fails for an index out of bounds.
fn checks_index(inst: &Inst) -> bool {
    matches!(inst, Inst::Gather { .. } | Inst::Wrap { .. })
}

/// The values that an instruction uses.
pub(crate) fn operands(inst: &Inst) -> SmallVec<[Val; 3]> {
    match inst {
        Inst::Op { args, .. } => args.clone(),
        Inst::Gather { index, .. } | Inst::Wrap { index, .. } => [*index].into_iter().collect(),
        _ => SmallVec::new(),
    }
}

impl Kernel {
    /// Whether an instruction of the kernel fails for an index out of bounds.
    fn checks_indices(&self) -> bool {
        self.blocks().any(|block| block.insts.iter().any(checks_index))
    }

    /// The prologue, if there is one, and the body.
    fn blocks(&self) -> impl Iterator<Item = &Block> {
        let prologue = match &self.core {
            Core::Reduce { prologue, .. } => Some(prologue),
            _ => None,
        };
        prologue.into_iter().chain([&self.body])
    }

    /// Removes instructions whose values are not used, and accesses that no instruction names. An
    /// index out of bounds is an error even if its value is not used.
    pub(crate) fn sweep(&mut self) {
        let mut accesses = Vec::new();
        let mut kept = |id: &mut AccessId| {
            let access = &self.accesses[id.0 as usize];
            let at = accesses.iter().position(|a| a == access).unwrap_or_else(|| {
                accesses.push(access.clone());
                accesses.len() - 1
            });
            *id = AccessId(at as u32);
        };
        if let Core::Reduce { prologue, value, stores, .. } = &mut self.core {
            let used = stores.iter_mut().map(|store| &mut store.value).chain([value]);
            prologue.keep(used.collect(), &mut kept);
        }
        let used = self.stores.iter_mut().map(|store| &mut store.value);
        self.body.keep(used.collect(), &mut kept);
        self.accesses = accesses;
    }
}

impl Block {
    /// Keeps the instructions of some values, which are renumbered, and calls `kept` with each
    /// access that is still used.
    fn keep(&mut self, values: Vec<&mut Val>, kept: &mut impl FnMut(&mut AccessId)) {
        let mut live: Vec<bool> = self.insts.iter().map(checks_index).collect();
        values.iter().for_each(|value| live[value.0 as usize] = true);
        for v in (0..live.len()).rev() {
            if live[v] {
                operands(&self.insts[v]).iter().for_each(|a| live[a.0 as usize] = true);
            }
        }
        let mut renamed: Vec<Val> = Vec::with_capacity(live.len());
        let mut block = Block::default();
        for (mut inst, live) in std::mem::take(&mut self.insts).into_iter().zip(live) {
            if !live {
                renamed.push(Val(u32::MAX));
                continue;
            }
            match &mut inst {
                Inst::Op { args, .. } => args.iter_mut().for_each(|a| *a = renamed[a.0 as usize]),
                Inst::Gather { index, .. } | Inst::Wrap { index, .. } => {
                    *index = renamed[index.0 as usize];
                }
                _ => {}
            }
            if let Inst::Load(id) | Inst::Gather { access: id, .. } = &mut inst {
                kept(id);
            }
            renamed.push(block.push(inst));
        }
        values.into_iter().for_each(|value| *value = renamed[value.0 as usize]);
        *self = block;
    }
}
