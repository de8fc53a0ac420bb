//! Control kernels: a branch or a loop over programs of its own. One launch runs all of it; between
//! iterations nothing is compiled, allocated or asked of the host.
//!
//! What the programs compute lies in the kernel's workspace, placed by [`Layout`] when the graph is
//! lowered. Carries have two places in turn, so that an iteration never writes what it reads; where
//! a carry's history is wanted, it is written there and read from there. A carry of which the body
//! replaces parts has one place: iterations write those parts and nothing else.

use crate::ir::{BufferId, BufferKind, Program};
use crate::place::{ALIGNMENT, place, updates};
use girih_ir::{DType, Literal};
use serde::{Deserialize, Serialize};

/// When the programs of a control kernel run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Flow {
    /// One of them, once: the one of the number that a scalar holds, or the nearest there is.
    Cond {
        /// Holds the number.
        index: BufferId,
        /// Its dtype, bool or an integer.
        dtype: DType,
    },
    /// The only one, once.
    Call,
    /// The second again and again, while the first gives true.
    While,
    /// The only one, for each part of the slices.
    Scan {
        /// How often.
        length: usize,
        /// From the last part to the first.
        reverse: bool,
    },
}

/// What an operand of the programs is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Feed {
    /// What a buffer holds.
    Buffer(BufferId),
    /// One value everywhere, with which a carry starts.
    Splat {
        /// The value.
        value: Splat,
        /// Number of elements.
        numel: usize,
    },
    /// No program takes it from memory: it is a constant to them.
    Nothing,
}

/// Where the value of a splat comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Splat {
    /// From the program.
    Literal(Literal),
    /// From the run-time scalar that is the argument of that position.
    Scalar {
        /// Position among the graph's arguments.
        argument: usize,
        /// Its dtype.
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

/// A branch or a loop. A program's argument of position `i` is the operand `i`: of a carry what the
/// iteration before gave, of a slice its part. Results are, by number, those of the op: the carries
/// in the end, what the body gives beside them (of a scan stacked), a scan's histories.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Control {
    /// When the programs run.
    pub flow: Flow,
    /// How many leading operands are carries.
    pub carries: usize,
    /// How many operands behind them are slices.
    pub slices: usize,
    /// What the programs take.
    pub operands: Vec<Feed>,
    /// The buffers of those results that are needed.
    pub results: Vec<Option<BufferId>>,
    /// Bytes for what is neither operand nor result.
    pub workspace: Option<BufferId>,
    /// What is run.
    pub programs: Vec<Program>,
}

impl Control {
    /// The program whose results are the op's.
    pub fn body(&self) -> &Program {
        &self.programs[self.programs.len() - 1]
    }

    /// Number of iterations, where it is known.
    pub fn trips(&self) -> Option<usize> {
        match self.flow {
            Flow::Cond { .. } | Flow::Call => Some(1),
            Flow::While => None,
            Flow::Scan { length, .. } => Some(length),
        }
    }

    /// Buffers it reads.
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

    /// Buffers it writes.
    pub fn writes(&self) -> impl Iterator<Item = BufferId> + '_ {
        self.results.iter().copied().flatten().chain(self.workspace)
    }

    /// All of its buffers, to be numbered anew.
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

    /// The bytes of an operand's element of each iteration.
    pub(crate) fn taken_bytes(&self, operand: usize) -> usize {
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

    /// True if the body gives a carry back as it takes it and nobody asks for its history: then it
    /// stays where it is.
    pub(crate) fn is_fixed(&self, carry: usize) -> bool {
        let body = self.body();
        let own = body.buffers[body.outputs[carry].0 as usize].kind;
        own == BufferKind::Argument(carry) && self.history(carry).is_none()
    }

    /// True if the body replaces parts of a carry and nobody asks for its history: then the carry stays
    /// in one place, where it is put before the first iteration.
    pub(crate) fn is_updated(&self, carry: usize) -> bool {
        let body = self.body();
        let argument = |b: &crate::ir::Buffer| b.kind == BufferKind::Argument(carry);
        let Some(argument) = body.buffers.iter().position(argument) else { return false };
        let output = body.outputs[carry];
        let alone = body.outputs[..carry].iter().all(|o| *o != output);
        alone && self.history(carry).is_none() && updates(body, BufferId(argument as u32), output)
    }

    /// The buffer of a carry's history, if that is needed.
    pub(crate) fn history(&self, carry: usize) -> Option<BufferId> {
        let scan = matches!(self.flow, Flow::Scan { .. });
        let at = self.body().outputs.len() + carry;
        self.results.get(at).copied().flatten().filter(|_| scan)
    }

    /// True if a result of a program has a place of its own: a carry, or what is asked for.
    fn has_place(&self, program: usize, output: usize) -> bool {
        let branches = matches!(self.flow, Flow::Cond { .. });
        (branches || program + 1 == self.programs.len())
            && (output < self.carries || self.results.get(output).is_some_and(Option::is_some))
    }

    /// Where everything lies in the workspace.
    pub fn layout(&self) -> Layout {
        let programs: Vec<Table> = (0..self.programs.len()).map(|p| Table::new(self, p)).collect();
        let mut bytes = programs.iter().map(|p| p.bytes).max().unwrap_or(0);
        let mut take = |size: usize| {
            let offset = bytes;
            bytes += size.next_multiple_of(ALIGNMENT);
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
        Layout { programs, slots, bytes }
    }
}

/// What one of a program's buffers is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    /// An operand.
    Operand(usize),
    /// The place of one of the program's results.
    Result(usize),
    /// Bytes of the workspace.
    Workspace(usize),
    /// No kernel uses it.
    Nothing,
}

/// How a program's buffers are bound.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// By buffer.
    pub bound: Vec<Bound>,
    /// Results that are elsewhere and have to be copied: number and buffer.
    pub copies: Vec<(usize, BufferId)>,
    /// Bytes of each result.
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
        let placed = place(program, |id| owner[id.0 as usize].is_some());
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

/// Where a control kernel has what in its workspace.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(crate) programs: Vec<Table>,
    /// Two places of each carry, by turns, or twice the same; none if that is the result's buffer.
    pub(crate) slots: Vec<[Option<usize>; 2]>,
    /// Bytes in all.
    pub bytes: usize,
}

impl Program {
    /// Numbers anew the arguments of scalars and random leaves, and those of buffers. Programs
    /// inside of kernels have buffers of their own, but share the scalars.
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
