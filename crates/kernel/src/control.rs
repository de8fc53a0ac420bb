//! Control kernels: a branch or a loop over programs of its own. One launch runs the whole kernel;
//! between iterations nothing is compiled or allocated, and the host is not involved.
//!
//! Temporaries of the programs are in the kernel's workspace, which [`WorkspaceParts`] divides when the
//! graph is lowered. Each carry has two buffers in turn (double buffering), so an iteration never
//! writes a carry that it reads. If the history of a carry is a result, iterations write it there
//! and read it from there. A carry that the body updates in part has a single buffer: iterations
//! write only these parts.

use crate::ir::{BufferId, BufferKind, KernelProgram};
use crate::place::{PlacementLimits, place, updates};
use girih_ir::{DType, Literal};
use serde::{Deserialize, Serialize};

/// The control flow: the programs of a control kernel that run, and the number of times that they
/// run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flow {
    /// One of the programs, once: the program whose number is in a scalar, clamped to the existing
    /// programs.
    Cond {
        /// The scalar.
        index: BufferId,
        /// The dtype of the scalar: bool or an integer.
        dtype: DType,
    },
    /// The only program, once.
    Call,
    /// The second program, repeatedly, while the first program returns true.
    While,
    /// The only program, once for each part of the slices.
    Scan {
        /// The number of iterations.
        length: usize,
        /// Whether the parts are taken from the last to the first.
        reverse: bool,
    },
}

/// The source of an operand of the programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Feed {
    /// The contents of a buffer.
    Buffer(BufferId),
    /// A carry whose elements all start with one value.
    Splat {
        /// The value.
        value: Splat,
        /// The number of elements.
        numel: usize,
    },
    /// No program reads the operand from memory, because it is a constant in the programs.
    Nothing,
}

/// The source of the value of a splat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Splat {
    /// A constant.
    Literal(Literal),
    /// The run-time scalar that is the argument with that position.
    Scalar {
        /// The position among the graph's arguments.
        argument: usize,
        /// The dtype of the scalar.
        dtype: DType,
    },
}

impl Splat {
    /// The value's dtype.
    pub fn dtype(&self) -> DType {
        match self {
            Splat::Literal(literal) => literal.dtype,
            Splat::Scalar { dtype, .. } => *dtype,
        }
    }
}

/// A branch or a loop. The programs' argument with position `i` is operand `i`: for a carry, the
/// value from the previous iteration; for a slice, the part of the slice. Results have the numbers
/// of the op's results: the final carries, the further results of the body (stacked for a scan), a
/// scan's histories of carries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// The control flow.
    pub flow: Flow,
    /// The number of leading operands that are carries.
    pub carries: usize,
    /// The number of following operands that are slices.
    pub slices: usize,
    /// The operands of the programs.
    pub operands: Vec<Feed>,
    /// The buffers of the results; `None` for results that are not needed.
    pub results: Vec<Option<BufferId>>,
    /// The buffer for temporaries and carries.
    pub workspace: Option<BufferId>,
    /// The programs.
    pub programs: Vec<KernelProgram>,
}

impl Control {
    /// The program whose results are the results of the op.
    pub fn body(&self) -> &KernelProgram {
        &self.programs[self.programs.len() - 1]
    }

    /// The number of iterations, if it is known.
    pub fn trips(&self) -> Option<usize> {
        match self.flow {
            Flow::Cond { .. } | Flow::Call => Some(1),
            Flow::While => None,
            Flow::Scan { length, .. } => Some(length),
        }
    }

    /// The buffers that the kernel reads.
    pub fn reads(&self) -> impl Iterator<Item = BufferId> + '_ {
        let index = match self.flow {
            Flow::Cond { index, .. } => Some(index),
            _ => None,
        };
        let buffer = |feed: &Feed| match feed {
            Feed::Buffer(id) => Some(*id),
            _ => None,
        };
        index.into_iter().chain(self.operands.iter().filter_map(buffer))
    }

    /// The buffers that the kernel writes.
    pub fn writes(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.results.iter().copied().flatten().chain(self.workspace)
    }

    /// All buffers of the kernel, for renumbering.
    pub fn buffers_mut(&mut self) -> impl Iterator<Item = &mut BufferId> {
        let index = match &mut self.flow {
            Flow::Cond { index, .. } => Some(index),
            _ => None,
        };
        let operands = self.operands.iter_mut().filter_map(|feed| match feed {
            Feed::Buffer(id) => Some(id),
            _ => None,
        });
        let results = self.results.iter_mut().flatten().chain(&mut self.workspace);
        results.chain(index).chain(operands)
    }

    /// The size in bytes of an operand in one iteration.
    pub fn taken_bytes(&self, operand: usize) -> usize {
        if operand < self.carries {
            let body = self.body();
            return body.buffers[body.outputs[operand].0 as usize].size_bytes();
        }
        let taken = self
            .programs
            .iter()
            .flat_map(|p| &p.buffers)
            .find_map(|b| (b.kind == BufferKind::Argument(operand)).then(|| b.size_bytes()));
        taken.unwrap_or(0)
    }

    /// Whether the body returns a carry unchanged and the carry's history is not needed: then the
    /// carry stays in its buffer.
    pub fn is_fixed(&self, carry: usize) -> bool {
        let body = self.body();
        let own = body.buffers[body.outputs[carry].0 as usize].kind;
        own == BufferKind::Argument(carry) && self.history(carry).is_none()
    }

    /// Whether the body replaces parts of a carry and the carry's history is not needed: then the
    /// carry has a single buffer, to which it is copied before the first iteration.
    pub fn is_updated(&self, carry: usize) -> bool {
        let body = self.body();
        let argument = |b: &crate::ir::Buffer| b.kind == BufferKind::Argument(carry);
        let Some(argument) = body.buffers.iter().position(argument) else { return false };
        let output = body.outputs[carry];
        let alone = body.outputs[..carry].iter().all(|o| *o != output);
        alone && self.history(carry).is_none() && updates(body, BufferId(argument as u32), output)
    }

    /// For each buffer of a program, the buffer of the surrounding program whose contents it has in
    /// every iteration; `None` for carries that change, slices and computed values.
    pub fn constants(&self, program: usize) -> Vec<Option<BufferId>> {
        let constant = |operand: usize| match self.operands[operand] {
            Feed::Buffer(id) if operand < self.carries => self.is_fixed(operand).then_some(id),
            Feed::Buffer(id) => (operand >= self.carries + self.slices).then_some(id),
            _ => None,
        };
        let of = |buffer: &crate::ir::Buffer| match buffer.kind {
            BufferKind::Argument(operand) => constant(operand),
            BufferKind::Computed => None,
        };
        self.programs[program].buffers.iter().map(of).collect()
    }

    /// The buffer of a carry's history, if the history is needed.
    pub fn history(&self, carry: usize) -> Option<BufferId> {
        let scan = matches!(self.flow, Flow::Scan { .. });
        let at = self.body().outputs.len() + carry;
        self.results.get(at).copied().flatten().filter(|_| scan)
    }

    /// Whether a result of a program has a buffer outside the program's temporaries: the buffer of
    /// a carry, or of a needed result.
    fn has_place(&self, program: usize, output: usize) -> bool {
        let branches = matches!(self.flow, Flow::Cond { .. });
        (branches || program + 1 == self.programs.len())
            && (output < self.carries || self.results.get(output).is_some_and(Option::is_some))
    }

    /// The division of the workspace.
    pub fn workspace_parts(&self) -> WorkspaceParts {
        let programs: Vec<Table> = (0..self.programs.len()).map(|p| Table::new(self, p)).collect();
        let mut bytes = programs.iter().map(|p| p.bytes).max().unwrap_or(0);
        let mut take = |size: usize| {
            let offset = bytes;
            bytes += size.next_multiple_of(PlacementLimits::INSIDE_KERNELS.alignment);
            offset
        };
        let mut slots = Vec::with_capacity(self.carries);
        for carry in 0..self.carries {
            let size = self.taken_bytes(carry);
            let splat = matches!(self.operands[carry], Feed::Splat { .. });
            slots.push(match self.is_fixed(carry) {
                true if !splat => [None, None],
                true => [None, Some(take(size))],
                false => {
                    let wanted = self.results.get(carry).is_some_and(Option::is_some);
                    let first = (!wanted).then(|| take(size));
                    let second = if self.is_updated(carry) { first } else { Some(take(size)) };
                    [first, second]
                }
            });
        }
        WorkspaceParts { programs, slots, bytes }
    }
}

/// The memory that a buffer of a program is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// An operand.
    Operand(usize),
    /// The buffer of one of the program's results.
    Result(usize),
    /// An offset in the workspace.
    Workspace(usize),
    /// No memory: no kernel uses the buffer.
    Nothing,
}

/// The bindings of a program's buffers.
#[derive(Clone, Debug)]
pub struct Table {
    /// The binding of each buffer.
    pub bound: Vec<Bound>,
    /// The results that are in other buffers and must be copied: their number and the buffer.
    pub copies: Vec<(usize, BufferId)>,
    /// The size of each result in bytes.
    pub result_bytes: Vec<usize>,
    bytes: usize,
}

impl Table {
    fn new(control: &Control, number: usize) -> Table {
        let program = &control.programs[number];
        let mut owner = vec![None; program.buffers.len()];
        let mut copies = Vec::new();
        for (i, output) in program.outputs.iter().enumerate() {
            let at = output.0 as usize;
            if !control.has_place(number, i) {
                continue;
            }
            match program.buffers[at].kind {
                BufferKind::Computed if owner[at].is_none() => owner[at] = Some(i),
                BufferKind::Argument(a) if a == i && i < control.carries && control.is_fixed(i) => {
                }
                _ => copies.push((i, *output)),
            }
        }
        let limits = PlacementLimits::INSIDE_KERNELS;
        let placed = place(program, limits, |id| owner[id.0 as usize].is_some());
        let bound = |(i, buffer): (usize, &crate::ir::Buffer)| match (buffer.kind, owner[i]) {
            (BufferKind::Argument(a), _) => Bound::Operand(a),
            (_, Some(result)) => Bound::Result(result),
            _ => placed.offsets[i].map_or(Bound::Nothing, Bound::Workspace),
        };
        let bound = program.buffers.iter().enumerate().map(bound).collect();
        let size = |o: &BufferId| program.buffers[o.0 as usize].size_bytes();
        let result_bytes = program.outputs.iter().map(size).collect();
        Table { bound, copies, result_bytes, bytes: placed.bytes }
    }
}

/// The division of a control kernel's workspace.
#[derive(Clone, Debug)]
pub struct WorkspaceParts {
    /// The bindings of each program.
    pub programs: Vec<Table>,
    /// The two buffers of each carry, which may be equal; `None` for the result's buffer.
    pub slots: Vec<[Option<usize>; 2]>,
    /// The size of the workspace in bytes.
    pub bytes: usize,
}

impl KernelProgram {
    /// The positions of the arguments that the program's scalars and random leaves take, repeats
    /// included.
    pub fn scalars(&self) -> Vec<usize> {
        let taken = std::cell::RefCell::new(Vec::new());
        let note = |argument: usize| {
            taken.borrow_mut().push(argument);
            argument
        };
        self.clone().renumber_arguments(&note, &|buffer| buffer);
        taken.into_inner()
    }

    /// Renumbers the arguments of scalars and random leaves, and the arguments of buffers. Programs
    /// inside kernels have buffers of their own, but share the scalars.
    pub fn renumber_arguments(
        &mut self,
        scalar: &dyn Fn(usize) -> usize,
        buffer: &dyn Fn(usize) -> usize,
    ) {
        for b in &mut self.buffers {
            if let BufferKind::Argument(i) = &mut b.kind {
                *i = buffer(*i);
            }
        }
        for kernel in &mut self.kernels {
            kernel.renumber_scalars(scalar);
        }
    }
}
