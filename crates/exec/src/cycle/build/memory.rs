//! Vectors of which a cycle reads and replaces single elements: they stay in memory.

use super::{Arguments, Build, Item, Values, is_dense, is_known};
use crate::chain::ChainOp;
use crate::cycle::{CycleDef, CycleMemory, Held, Kind, Origin};
use girih_ir::ops::ScatterMode;
use girih_ir::{DType, OpCode};
use girih_kernel::control::{Control, Feed};
use girih_kernel::{Access, BufferKind, Core, Inst, Kernel, KernelProgram};
use smallvec::smallvec;

/// The carry that a kernel of the body copies to its result, so that others replace elements of it.
pub(super) fn copied_carry(control: &Control, kernel: &Kernel) -> Option<usize> {
    let body = control.body();
    let (Core::Map, [Inst::Load(id)], [store]) =
        (&kernel.core, &kernel.body.insts[..], &kernel.stores[..])
    else {
        return None;
    };
    let (from, to) = (kernel.access(*id), &store.access);
    let buffer = &body.buffers.get(from.buffer.0 as usize)?;
    let BufferKind::Argument(carry) = buffer.kind else { return None };
    let own = carry < control.carries && body.outputs[carry] == to.buffer;
    let dense = |access: &Access| is_dense(access, &kernel.extents, buffer.numel);
    let scattered =
        |k: &Kernel| matches!(k.core, Core::Scatter { .. }) && k.writes().any(|id| id == to.buffer);
    let replaced = own && buffer.numel > 1 && body.kernels.iter().any(scattered);
    (replaced && dense(from) && dense(to) && control.history(carry).is_none()).then_some(carry)
}

/// How the steps change a carry.
pub(super) fn kind(control: &Control, carry: usize) -> Kind {
    let copies = |kernel: &Kernel| copied_carry(control, kernel) == Some(carry);
    match control.is_fixed(carry) {
        true => Kind::Fixed,
        false if control.body().kernels.iter().any(copies) => Kind::Memory,
        false => Kind::State,
    }
}

impl Build<'_> {
    /// An index as i64.
    pub(super) fn index(&mut self, index: u16, from: DType) -> Option<u16> {
        match from {
            DType::I64 => Some(index),
            DType::U64 => None,
            _ => self.op(ChainOp::Cast(from, DType::I64), smallvec![index], DType::I64),
        }
    }

    /// The element at an index. Equal gathers are one, so that none may follow a replacement.
    pub(super) fn gather(&mut self, memory: u16, index: u16, dtype: DType) -> Option<u16> {
        match self.held[memory as usize].1 {
            true => None,
            false => self.def(CycleDef::Gather { memory, index, dtype }),
        }
    }

    /// The memory of an operand.
    pub(super) fn memory(&mut self, operand: usize, numel: usize, dtype: DType) -> Option<u16> {
        if let Some(found) = self.held.iter().position(|held| held.0 == operand) {
            return Some(found as u16);
        }
        if !is_known(dtype) {
            return None;
        }
        let (mut advance, kind) = (0, self.places.get(operand).map(|place| place.kind));
        let held = match (kind, self.control.operands[operand]) {
            (Some(Kind::State), _) => return None,
            (Some(Kind::Memory), _) => Held::Carry(operand),
            (_, Feed::Buffer(id)) => {
                let mut start = 0;
                if self.slice(operand) {
                    (start, advance) = self.walk(numel * dtype.size())?;
                }
                Held::Read(Origin::Buffer(id, start))
            }
            _ => return None,
        };
        self.chain.memories.push(CycleMemory { size: numel, advance });
        self.memories.push(held);
        self.held.push((operand, false));
        Some(self.memories.len() as u16 - 1)
    }

    /// The memory of a buffer of which all elements are indexed.
    pub(super) fn memory_of(
        &mut self,
        program: &KernelProgram,
        access: &Access,
        size: usize,
        arguments: Arguments<'_>,
        values: &Values,
    ) -> Option<u16> {
        let at = access.buffer.0 as usize;
        let buffer = &program.buffers[at];
        if access.offset != 0 || size != buffer.numel || !matches!(arguments, Arguments::Loop) {
            return None;
        }
        match (values[at], buffer.kind) {
            (Some(Item::Memory(memory)), _) => Some(memory),
            (None, BufferKind::Argument(operand)) => {
                self.memory(operand, buffer.numel, buffer.dtype)
            }
            _ => None,
        }
    }

    /// A scatter of one element into a memory. Each step must replace it once, so that there are no
    /// vectors.
    pub(super) fn scatter(
        &mut self,
        program: &KernelProgram,
        kernel: &Kernel,
        arguments: Arguments<'_>,
        values: &mut Values,
    ) -> Option<()> {
        let Core::Scatter { mode, zeroed: false, index, stride: 1, size, .. } = &kernel.core else {
            return None;
        };
        let [store] = &kernel.stores[..] else { return None };
        let memory = self.memory_of(program, &store.access, *size, arguments, values)?;
        let carry = matches!(self.memories[memory as usize], Held::Carry(_));
        if !carry || self.points > 1 || kernel.points() != 1 {
            return None;
        }
        let vals = self.block(program, kernel, arguments, values)?;
        let (mut value, dtype) = (vals[store.value.0 as usize], store.access.dtype);
        if program.buffers[index.buffer.0 as usize].numel != 1 {
            return None;
        }
        let at = self.buffer(program, index.buffer, arguments, values)?;
        let index = self.index(at, index.dtype)?;
        match mode {
            ScatterMode::Set => {}
            ScatterMode::Add if dtype != DType::Bool => {
                let old = self.gather(memory, index, dtype)?;
                value = self.op(ChainOp::Op(OpCode::Add, dtype), smallvec![old, value], dtype)?;
            }
            _ => return None,
        }
        self.held[memory as usize].1 = true;
        self.def(CycleDef::Put { memory, index, value, dtype })?;
        Some(())
    }
}
