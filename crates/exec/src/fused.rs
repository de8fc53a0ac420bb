//! Compiles sequences of loops to one function each.
//!
//! Steps are sorted into units. A unit begins with the steps that no function can compute (strided
//! reads, gathers, draws) and whose operands are available, followed by all loops whose operands
//! are then available. The loops of a unit are a [`Chain`]. Its function reads loads in memory and
//! writes results to their destination wherever elements are contiguous for long enough. So a block
//! that consists of loops needs no memory of its own.

use super::BLOCK;
use super::chain::{Chain, ChainFold, ChainOp, Compiler, Def};
use super::code::{Direct, NONE, Reg, Step, Write};
use super::lower::Register;
use super::stream::{Fused, Stream};
use super::walk::Walk;
use smallvec::SmallVec;

/// The minimum number of elements, summed over all streams that a function would follow, for which
/// a call of the function pays; fewer elements are copied first.
const WORTH: usize = 64;

/// The largest stride, in elements, with which a function reads.
const FURTHEST: isize = 64;

/// The maximum number of ops of one chain.
const LONGEST: usize = 400;

/// A fold that a chain is to compute.
#[derive(Clone, Copy)]
pub(super) struct FoldOf {
    /// The fold; its value is not known yet.
    pub fold: ChainFold,
    /// The register to be folded.
    pub value: Reg,
    /// The register of the results.
    pub total: Reg,
    /// The number of consecutive points of a fold. A run of the code has several whole rows; if
    /// rows are longer than a block, one row; and if such rows do not consist of whole blocks, at
    /// most a block.
    pub row: usize,
}

/// The shortest run length for which a function call pays, if all runs of at least this length are
/// made by calls.
fn shortest_worth(mut runs: SmallVec<[usize; 8]>) -> Option<usize> {
    runs.sort_unstable();
    let worth = |&(i, run): &(usize, usize)| run.saturating_mul(runs.len() - i) >= WORTH;
    runs.iter().copied().enumerate().find(worth).map(|(_, run)| run)
}

/// The state while the loops of a code are compiled.
pub(super) struct Fuse<'a> {
    /// The kernel's name.
    name: &'a str,
    regs: &'a [Register],
    directs: &'a mut Vec<Direct>,
    writes: &'a mut Vec<Write>,
    keep: &'a [Reg],
    fold: Option<FoldOf>,
    /// Whether the stores are large.
    pub streamed: bool,
    /// Whether a chain computes the fold, so that its value is not stored.
    folded: bool,
    /// For each register, the steps that read it.
    users: Vec<SmallVec<[u32; 2]>>,
    /// For each step, its unit, if the step is a loop that a chain may include.
    units: Vec<Option<u32>>,
    segment: usize,
    /// Reads that a function follows, by the register that they defined.
    walks: Vec<(Reg, u32, Walk)>,
}

impl<'a> Fuse<'a> {
    pub fn new(
        name: &'a str,
        regs: &'a [Register],
        directs: &'a mut Vec<Direct>,
        writes: &'a mut Vec<Write>,
        keep: &'a [Reg],
        fold: Option<FoldOf>,
    ) -> Fuse<'a> {
        let (users, units) = (vec![SmallVec::new(); regs.len()], Vec::new());
        let (segment, walks, folded, streamed) = (usize::MAX, Vec::new(), false, false);
        Fuse {
            name,
            regs,
            directs,
            writes,
            keep,
            fold,
            streamed,
            folded,
            users,
            units,
            segment,
            walks,
        }
    }

    /// The steps, in an order that respects their dependencies, and the register of the fold's
    /// results, if a step computes the fold.
    pub fn run(mut self, compiler: &dyn Compiler, steps: Vec<Step>) -> (Vec<Step>, Option<Reg>) {
        for (i, step) in steps.iter().enumerate() {
            step.uses().iter().for_each(|&r| self.users[r as usize].push(i as u32));
        }
        let known = |f: &FoldOf| {
            let dtype = self.regs[f.value as usize].dtype;
            compiler.knows(ChainOp::Op(f.fold.op, dtype))
        };
        self.fold = self.fold.filter(known);
        let ranks = self.rank(compiler, &steps);
        let direct = self.fold.filter(|f| self.directs.iter().any(|d| d.reg == f.value));
        if self.units.iter().all(Option::is_none) && direct.is_none() {
            return (steps, None);
        }
        self.choose_segment(&steps);
        let mut slots: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
        let mut out = Vec::new();
        let last = ranks.iter().copied().max().unwrap_or(0);
        for unit in 0..=last {
            for i in 0..slots.len() {
                if self.units[i].is_none() && ranks[i] == unit && !self.follows(&slots[i]) {
                    out.extend(slots[i].take());
                }
            }
            let members: Vec<usize> =
                (0..slots.len()).filter(|&i| self.units[i] == Some(unit)).collect();
            self.unit(compiler, &mut slots, &members, unit == last, &mut out);
        }
        if direct.is_some() {
            out.extend(self.chain(compiler, &[], &[], true).map(|f| Step::Fused(Box::new(f))));
        }
        self.drop_unused(&out);
        let total = self.fold.filter(|_| self.folded).map(|f| f.total);
        (out, total)
    }

    /// Computes the unit of each step, and the loops that the compiler supports.
    fn rank(&mut self, compiler: &dyn Compiler, steps: &[Step]) -> Vec<u32> {
        // For each register, the first unit whose loops can read it, and the first unit whose other
        // steps can read it.
        let mut ready = vec![(0u32, 0u32); self.regs.len()];
        let mut ranks = Vec::with_capacity(steps.len());
        for step in steps {
            let uses = step.uses();
            let of = |f: fn(&(u32, u32)) -> u32| {
                uses.iter().map(|&r| f(&ready[r as usize])).max().unwrap_or(0)
            };
            let known = matches!(step, Step::Call { op, .. } if compiler.knows(*op));
            let rank = if known { of(|r| r.0) } else { of(|r| r.1) };
            ready[step.out() as usize] = (rank, rank + known as u32);
            self.units.push(known.then_some(rank));
            ranks.push(rank);
        }
        ranks
    }

    /// Whether only members of chains read the register.
    fn only_chained(&self, reg: Reg) -> bool {
        let chained = |&u: &u32| self.units[u as usize].is_some();
        self.users[reg as usize].iter().all(chained) && !self.kept(reg)
    }

    fn kept(&self, reg: Reg) -> bool {
        self.keeps(reg) || self.writes.iter().any(|w| w.reg == reg)
    }

    /// Whether the caller reads the register when all steps are done.
    fn keeps(&self, reg: Reg) -> bool {
        !self.folded && self.keep.contains(&reg)
    }

    /// Chooses a segment length such that as many reads and writes as possible are contiguous
    /// within a segment.
    fn choose_segment(&mut self, steps: &[Step]) {
        let dense = |walk: &Walk| walk.inner().0 > 1 && walk.inner().1 == 1;
        let follows = |walk: &Walk, size: u8| match walk.inner() {
            (1, _) => false,
            (_, 0 | 1) => true,
            (_, stride) => matches!(size, 4 | 8) && (2..=FURTHEST).contains(&stride),
        };
        let mut found: Vec<(Reg, u32, Walk)> = Vec::new();
        for step in steps {
            if let Step::Read { buffer, walk, size, out } = step
                && self.only_chained(*out)
                && follows(walk, *size)
            {
                found.push((*out, *buffer, walk.clone()));
            }
        }
        let strided = self.writes.iter().filter(|w| !w.walk.is_dense() && dense(&w.walk));
        let extents = found.iter().map(|f| &f.2).chain(strided.map(|w| &w.walk));
        let extents = extents.map(|w| w.inner().0);
        self.segment = shortest_worth(extents.collect()).unwrap_or(usize::MAX);
        self.cut_for_fold();
        found.retain(|f| f.2.inner().0.is_multiple_of(self.segment));
        self.walks = found;
    }

    /// Splits rows of whole blocks into blocks, and separates rows shorter than a block, so that a
    /// run over several of them folds each. Gives the fold up if the segments would split it.
    fn cut_for_fold(&mut self) {
        let Some(FoldOf { row, .. }) = self.fold else { return };
        let whole = |of: usize| self.segment == usize::MAX || self.segment.is_multiple_of(of);
        let folded = if row.is_multiple_of(BLOCK) { BLOCK } else { row };
        match whole(folded) {
            true if folded <= BLOCK => self.segment = folded,
            true => {}
            false => self.fold = None,
        }
    }

    /// Whether the step is a read that functions follow.
    fn follows(&self, step: &Option<Step>) -> bool {
        matches!(step, Some(Step::Read { out, .. }) if self.walk(*out).is_some())
    }

    fn walk(&self, reg: Reg) -> Option<&(Reg, u32, Walk)> {
        self.walks.iter().find(|w| w.0 == reg)
    }

    /// Appends the functions of a unit's loops; if the compiler refuses to compile all loops as one
    /// function, compiles each half of the loops.
    fn unit(
        &mut self,
        compiler: &dyn Compiler,
        slots: &mut [Option<Step>],
        members: &[usize],
        last: bool,
        out: &mut Vec<Step>,
    ) {
        if members.is_empty() {
            return;
        }
        if members.len() <= LONGEST
            && let Some(fused) = self.chain(compiler, slots, members, last)
        {
            members.iter().for_each(|&m| slots[m] = None);
            return out.push(Step::Fused(Box::new(fused)));
        }
        if members.len() == 1 {
            // The read that the function would have followed is needed after all.
            let step = slots[members[0]].take().expect("each step is taken once");
            for &reg in &step.uses() {
                self.read_after_all(reg, slots, out);
            }
            return out.push(step);
        }
        let (first, second) = members.split_at(members.len() / 2);
        self.unit(compiler, slots, first, false, out);
        self.unit(compiler, slots, second, last, out);
    }

    fn read_after_all(&mut self, reg: Reg, slots: &mut [Option<Step>], out: &mut Vec<Step>) {
        if self.walk(reg).is_none() {
            return;
        }
        let read =
            slots.iter_mut().find(|s| matches!(s, Some(Step::Read { out, .. }) if *out == reg));
        out.extend(read.and_then(Option::take));
        self.walks.retain(|w| w.0 != reg);
    }

    /// The function of some loops of a unit; `None` if the compiler refuses to compile them.
    fn chain(
        &mut self,
        compiler: &dyn Compiler,
        slots: &[Option<Step>],
        members: &[usize],
        last: bool,
    ) -> Option<Fused> {
        let mut chain = Chain::default();
        let mut streams = Vec::new();
        let mut values: Vec<(Reg, u16)> = Vec::new();
        let mut pending = Vec::new();
        for &m in members {
            let Some(Step::Call { op, out, args, .. }) = &slots[m] else {
                unreachable!("members are loops")
            };
            let args = args.iter().filter(|&&r| r != NONE);
            let args: SmallVec<[u16; 3]> = args
                .map(|&reg| match values.iter().rev().find(|v| v.0 == reg) {
                    Some(&(_, value)) => value,
                    None => {
                        let value = self.leaf(reg, &mut chain, &mut streams);
                        values.push((reg, value));
                        value
                    }
                })
                .collect();
            values.push((*out, chain.defs.len() as u16));
            pending.push((*out, chain.defs.len() as u16));
            let dtype = self.regs[*out as usize].dtype;
            chain.defs.push(Def::Op { op: *op, args, dtype });
        }
        let folded = self.folded_by(&pending, &mut chain, &mut streams);
        let inputs = streams.len();
        let mut written = Vec::new();
        for &(reg, value) in &pending {
            self.outputs(reg, value, members, last, &mut chain, &mut streams, &mut written);
        }
        if let (Some(value), Some(FoldOf { fold, total, .. })) = (folded, self.fold) {
            chain.fold = Some(ChainFold { value, ..fold });
            let size = self.regs[total as usize].dtype.size() as u8;
            streams.push(Stream::Total { reg: total, size });
        }
        let in_memory = |s: &Stream| matches!(s, Stream::Memory { .. });
        chain.streamed = self.streamed && streams[inputs..].iter().all(in_memory);
        let function = match compiler.compile(&chain, self.name) {
            None if chain.fold.is_some() => {
                // Try again without the fold.
                self.fold = None;
                return if members.is_empty() {
                    None
                } else {
                    self.chain(compiler, slots, members, last)
                };
            }
            function => function?,
        };
        self.folded |= chain.fold.is_some();
        let mut at = 0..;
        self.writes.retain(|_| !written.contains(&at.next().expect("an endless range")));
        let besides = besides(&chain);
        let mut fused = Fused::new(function, streams, inputs, self.segment);
        fused.besides = besides;
        Some(fused)
    }

    /// The number of the value to be folded, if these ops compute it. If there are no ops, the
    /// number of the load, which is added to the chain.
    fn folded_by(
        &self,
        pending: &[(Reg, u16)],
        chain: &mut Chain,
        streams: &mut Vec<Stream>,
    ) -> Option<u16> {
        let value = self.fold?.value;
        match pending {
            [] => Some(self.leaf(value, chain, streams)),
            _ => pending.iter().rev().find(|p| p.0 == value).map(|p| p.1),
        }
    }

    /// The operand for a register that is defined outside of the chain.
    fn leaf(&self, reg: Reg, chain: &mut Chain, streams: &mut Vec<Stream>) -> u16 {
        let Register { dtype, invariant, constant } = self.regs[reg as usize];
        let number = chain.defs.len() as u16;
        if let Some(bits) = constant {
            chain.defs.push(Def::Constant { dtype, bits });
            return number;
        }
        let size = dtype.size() as u8;
        let direct = self.directs.iter().find(|d| d.reg == reg);
        let (stream, step) = match (self.walk(reg), direct) {
            (Some((_, buffer, walk)), _) => {
                let stream = Stream::Memory { buffer: *buffer, walk: walk.clone(), size };
                (stream, walk.inner().1 as u8)
            }
            (None, Some(d)) if self.only_chained(reg) => {
                let walk = Walk::new(d.offset, [(usize::MAX, 1)].into_iter());
                (Stream::Memory { buffer: d.buffer, walk, size }, 1)
            }
            _ if invariant => (Stream::Register { reg, size: 0 }, 0),
            _ => (Stream::Register { reg, size }, 1),
        };
        let beside = beside(&stream, chain, streams);
        if beside.is_none() {
            streams.push(stream);
        }
        chain.defs.push(Def::Input { dtype, step, beside });
        number
    }

    /// The destinations of a chain's value: a register, if other steps read it; memory, if it is
    /// stored and no later step or store reads from memory.
    #[expect(clippy::too_many_arguments, reason = "the parts of a chain being made")]
    fn outputs(
        &self,
        reg: Reg,
        value: u16,
        members: &[usize],
        last: bool,
        chain: &mut Chain,
        streams: &mut Vec<Stream>,
        written: &mut Vec<usize>,
    ) {
        let size = self.regs[reg as usize].dtype.size() as u8;
        let addressed = |w: &Write| self.directs.iter().any(|d| d.reg == w.reg);
        let may_write = last && !self.writes.iter().any(addressed);
        let folded = self.fold.is_some_and(|f| f.value == reg);
        let mut register = self.keeps(reg) && !folded
            || self.users[reg as usize].iter().any(|u| !members.contains(&(*u as usize)));
        for (i, write) in self.writes.iter().enumerate().filter(|w| w.1.reg == reg) {
            let (extent, stride) = write.walk.inner();
            let follows = write.walk.is_dense()
                || stride == 1 && extent.is_multiple_of(self.segment) && self.segment != usize::MAX;
            if !may_write || !follows {
                register = true;
                continue;
            }
            written.push(i);
            chain.outputs.push(value);
            let walk = write.walk.clone();
            streams.push(Stream::Memory { buffer: write.buffer, walk, size });
        }
        if register {
            chain.outputs.push(value);
            streams.push(Stream::Register { reg, size });
        }
    }

    /// Drops loads that only functions read.
    fn drop_unused(&mut self, steps: &[Step]) {
        let read = |reg: Reg| steps.iter().any(|s| s.uses().contains(&reg));
        let kept: Vec<bool> =
            self.directs.iter().map(|d| read(d.reg) || self.kept(d.reg)).collect();
        let mut at = kept.iter();
        self.directs.retain(|_| at.next().copied().unwrap_or(true));
    }
}

/// The inputs of a chain without an address of their own: the stream whose address they are read by,
/// and the number of bytes from it.
fn besides(chain: &Chain) -> Vec<(u16, i32)> {
    let owns = |def: &&Def| matches!(def, Def::Input { beside: None, .. });
    let stream = |number: u16| chain.defs[..number as usize].iter().filter(owns).count() as u16;
    let beside = |def: &Def| match def {
        Def::Input { beside: Some((of, distance)), .. } => Some((stream(*of), *distance)),
        _ => None,
    };
    chain.defs.iter().filter_map(beside).collect()
}

/// An input of the chain with the same walk as the stream, and the bytes from that input to the
/// stream: the windows of a pooling and the elements of a short row then share one address.
fn beside(stream: &Stream, chain: &Chain, streams: &[Stream]) -> Option<(u16, i32)> {
    let Stream::Memory { buffer, walk, size } = stream else { return None };
    let owns = |def: &Def| matches!(def, Def::Input { beside: None, .. });
    let inputs = (0..).zip(&chain.defs).filter(|(_, def)| owns(def)).map(|(number, _)| number);
    inputs.zip(streams).find_map(|(number, other)| {
        let Stream::Memory { buffer: from, walk: first, size: bytes } = other else { return None };
        let alike = from == buffer && bytes == size && first.is_parallel(walk);
        let distance = (walk.offset - first.offset).checked_mul(*size as isize)?;
        alike.then_some((number, i32::try_from(distance).ok()?))
    })
}
