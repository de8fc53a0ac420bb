//! A prepared block of the kernel IR: registers are placed, loops are chosen, loads are classified.
//!
//! A register is the address of a value's elements for the current range of points. Values are in
//! slots of the scratch memory. A dense load of a compute type is not copied but read in memory,
//! and a value that is stored densely is computed directly into its destination. Loop-invariant
//! values are set up once per chunk.

use super::chain::{ChainOp, Compiled};
use super::copy::{Indexed, IndexedAxis, prefetch, read, splat, write};
use super::isa::BlockFn;
use super::stream::{Fused, Pointers, Stream};
use super::walk::Walk;
use super::{BLOCK, Bindings, ExecError};
use crate::philox::{RandomFn, RandomKey};
use smallvec::SmallVec;

/// A register's number. [`NONE`] where a step has fewer operands.
pub(crate) type Reg = u16;
/// No register.
pub(crate) const NONE: Reg = Reg::MAX;

/// The location of a register's elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RegisterPlace {
    /// In the slots, at that byte.
    Slot(u32),
    /// In the constants, at that word.
    Const(u32),
    /// Set for each range of points: a dense load or the core's value.
    Outside,
}

/// The source of a loop-invariant value.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// A run-time scalar.
    Argument(u32),
    /// An element of a buffer.
    Element(u32, isize),
}

/// One step of the straight-line program.
pub(crate) enum Step {
    /// A loop over the block.
    Call { op: ChainOp, run: BlockFn, out: Reg, args: [Reg; 3] },
    /// Copies one element to the whole block.
    Splat { source: Source, size: u8, out: Reg },
    /// Copies strided elements into the block.
    Read { buffer: u32, walk: Walk, size: u8, out: Reg },
    /// The positions of a walk, as i64.
    Positions { walk: Walk, out: Reg },
    /// Elements at indices (i64), which are checked.
    Gather { buffer: u32, at: Box<Indexed>, index: Reg, size: u8, out: Reg },
    /// Indices (i64) counted from the front and checked.
    Wrap { index: Reg, axis: IndexedAxis, label: bool, out: Reg },
    /// Random draws along a walk.
    Random { draw: RandomFn, argument: u32, walk: Walk, size: u8, out: Reg },
    /// A compiled chain.
    Fused(Box<Fused>),
}

impl Step {
    /// The register that the step defines; [`NONE`] for a chain, which may define several
    /// registers.
    pub fn out(&self) -> Reg {
        match *self {
            Step::Call { out, .. }
            | Step::Splat { out, .. }
            | Step::Read { out, .. }
            | Step::Positions { out, .. }
            | Step::Gather { out, .. }
            | Step::Wrap { out, .. }
            | Step::Random { out, .. } => out,
            Step::Fused(_) => NONE,
        }
    }

    /// The registers that the step defines.
    pub fn outs(&self) -> Registers {
        match self {
            Step::Fused(fused) => registers(&fused.streams[fused.inputs..]),
            step => [step.out()].into_iter().collect(),
        }
    }

    /// The registers that the step reads.
    pub fn uses(&self) -> Registers {
        match *self {
            Step::Call { args, .. } => {
                // Operands come first.
                let count = args.iter().position(|&r| r == NONE).unwrap_or(args.len());
                Registers::from_slice(&args[..count])
            }
            Step::Gather { index, .. } | Step::Wrap { index, .. } => {
                Registers::from_slice(&[index])
            }
            Step::Fused(ref fused) => registers(&fused.streams[..fused.inputs]),
            _ => Registers::new(),
        }
    }
}

/// The registers of a step.
pub(crate) type Registers = SmallVec<[Reg; 3]>;

fn registers(streams: &[Stream]) -> Registers {
    let of = |s: &Stream| match s {
        Stream::Register { reg, .. } | Stream::Total { reg, .. } => Some(*reg),
        Stream::Memory { .. } => None,
    };
    streams.iter().filter_map(of).collect()
}

/// A dense load that is read in memory.
pub(crate) struct Direct {
    pub reg: Reg,
    pub buffer: u32,
    pub offset: isize,
    pub size: u8,
}

/// A load that is read in memory whatever its strides.
pub(crate) struct Load {
    pub buffer: u32,
    pub walk: Walk,
    pub size: u8,
}

impl Load {
    /// The address of the element at a point.
    pub fn address(&self, point: usize, bindings: &Bindings<'_>) -> *const u8 {
        let base = bindings.buffers[self.buffer as usize];
        base.wrapping_offset(self.walk.at(point) * self.size as isize)
    }

    /// In checked mode, checks the elements at `n` points from a point on.
    pub fn check(
        &self,
        (point, n): (usize, usize),
        bindings: &Bindings<'_>,
    ) -> Result<(), ExecError> {
        match bindings.is_checked() {
            true => bindings.check_walk(
                self.buffer as usize,
                &self.walk,
                self.size as usize,
                (point, n),
            ),
            false => Ok(()),
        }
    }
}

/// A store of a register's elements.
pub(crate) struct Write {
    pub reg: Reg,
    pub buffer: u32,
    pub walk: Walk,
    pub size: u8,
    /// Whether the register may be computed directly into the destination.
    pub forward: bool,
}

/// A prepared block.
pub(crate) struct Code {
    pub places: Vec<RegisterPlace>,
    /// Constants, one block each, in words of eight bytes.
    pub consts: Vec<u64>,
    pub setup: Vec<Step>,
    pub steps: Vec<Step>,
    pub directs: Vec<Direct>,
    pub writes: Vec<Write>,
    /// The buffers that are read, to check that a forwarded write does not alias them.
    pub reads: Vec<u32>,
    /// The register of the core's value; [`NONE`] if there is no core.
    pub core: Reg,
    /// The register of the results of each segment's fold, if a chain computes the requested fold.
    pub total: Option<Reg>,
    /// The maximum number of points per call of the steps.
    pub block: usize,
    /// Whether loop-invariant values are read as one element, never as a block.
    pub narrow: bool,
    /// The size of the slots in bytes.
    pub slot_bytes: usize,
    /// The approximate time of one element in picoseconds.
    pub cost_ps: usize,
}

impl Code {
    /// The generated functions.
    pub fn functions(&self) -> impl Iterator<Item = &dyn Compiled> {
        self.steps.iter().filter_map(|step| match step {
            Step::Fused(fused) => Some(&*fused.function),
            _ => None,
        })
    }

    /// The function that computes the whole code, if a single one does.
    pub fn only_function(&self) -> Option<&Fused> {
        match (&self.steps[..], &self.writes[..], &self.directs[..]) {
            ([Step::Fused(fused)], [], []) => Some(fused),
            _ => None,
        }
    }

    /// The load of a register at the `points` points of the space, if the code does nothing else.
    pub fn only_load(&self, reg: Reg, points: usize) -> Option<Load> {
        if !self.setup.is_empty() || !self.writes.is_empty() {
            return None;
        }
        match (&self.steps[..], &self.directs[..]) {
            ([], [direct]) if direct.reg == reg => {
                let walk = Walk::new(direct.offset, std::iter::once((points, 1)));
                Some(Load { buffer: direct.buffer, walk, size: direct.size })
            }
            ([Step::Read { buffer, walk, size, out }], []) if *out == reg => {
                Some(Load { buffer: *buffer, walk: walk.clone(), size: *size })
            }
            _ => None,
        }
    }

    /// Prefetches the memory that [`Frame::run_rows`] accesses, except data that is the same in
    /// each row. The hardware prefetcher does not follow rows that are short and far apart.
    pub fn prefetch_rows(
        &self,
        p: usize,
        n: usize,
        (rows, row): (usize, usize),
        bindings: &Bindings<'_>,
    ) {
        let [Step::Fused(fused)] = &self.steps[..] else { return };
        if n > fused.segment_left(p) {
            return;
        }
        let Some(steps) = fused.row_steps(p, (rows, row), (self.core, 0)) else { return };
        let mut prefetched: SmallVec<[*mut u8; 16]> = SmallVec::new();
        for (stream, step) in fused.streams.iter().zip(steps) {
            let Stream::Memory { buffer, walk, size } = stream else { continue };
            let size = *size as isize;
            let start = bindings.buffers[*buffer as usize].wrapping_offset(walk.at(p) * size);
            // A buffer that is updated in place is both read and written.
            if step == 0 || prefetched.contains(&start) {
                continue;
            }
            prefetched.push(start);
            for i in 0..rows as isize {
                prefetch(start.wrapping_offset(i * step).cast_const(), n * size as usize);
            }
        }
    }
}

/// The registers of a code while it runs over one chunk.
pub(crate) struct Frame<'a> {
    code: &'a Code,
    regs: *mut *mut u8,
    bindings: &'a Bindings<'a>,
    forward: bool,
}

impl<'a> Frame<'a> {
    /// Sets the registers and runs the setup for blocks of at most `n` points.
    ///
    /// # Safety
    /// `slots` is valid for `code.slot_bytes` bytes, aligned to 64, and `regs` for a pointer per
    /// register; both stay so, and unused by others, while the frame lives. `n <= code.block`. The
    /// bindings fulfil [`Bindings`]' contract for the kernel the code was made from.
    pub unsafe fn new(
        code: &'a Code,
        slots: *mut u8,
        regs: *mut *mut u8,
        bindings: &'a Bindings<'a>,
        n: usize,
    ) -> Frame<'a> {
        for (i, place) in code.places.iter().enumerate() {
            let address = match *place {
                // SAFETY: the offset lies within the `slot_bytes` the caller provides.
                RegisterPlace::Slot(offset) => unsafe { slots.add(offset as usize) },
                RegisterPlace::Const(word) => code.consts[word as usize..].as_ptr() as *mut u8,
                RegisterPlace::Outside => std::ptr::null_mut(),
            };
            // SAFETY: `regs` holds a pointer per register.
            unsafe { *regs.add(i) = address };
        }
        let address = |b: u32| bindings.buffers[b as usize];
        let aliased = |w: &Write| code.reads.iter().any(|&r| address(r) == address(w.buffer));
        let forward = !code.writes.iter().any(|w| w.forward && aliased(w));
        let frame = Frame { code, regs, bindings, forward };
        let n = if code.narrow { 1 } else { n.min(BLOCK) };
        // In checked mode, the first block reports a setup that would leave a buffer.
        let setup = match bindings.is_checked() && code.check_setup(bindings).is_err() {
            true => &[],
            false => &code.setup[..],
        };
        for step in setup {
            // SAFETY: the registers are placed. Setup reads no position, so it cannot fail.
            let done = unsafe { frame.step(step, 0, n) };
            debug_assert!(done.is_ok(), "setup steps do not gather");
        }
        frame
    }

    /// The code.
    pub(crate) fn code(&self) -> &'a Code {
        self.code
    }

    /// The bindings.
    pub(crate) fn bindings(&self) -> &'a Bindings<'a> {
        self.bindings
    }

    /// The address that a register holds.
    ///
    /// # Safety
    /// `reg` is a register of the code.
    #[inline(always)]
    pub unsafe fn reg(&self, reg: Reg) -> *mut u8 {
        debug_assert!((reg as usize) < self.code.places.len());
        // SAFETY: `regs` holds a pointer per register.
        unsafe { *self.regs.add(reg as usize) }
    }

    /// Sets the address of the core's value for the next block.
    ///
    /// # Safety
    /// `value` is valid for reads of the next block's elements.
    #[inline]
    pub unsafe fn set_core(&self, value: *const u8) {
        if self.code.core != NONE {
            // SAFETY: `regs` holds a pointer per register.
            unsafe { *self.regs.add(self.code.core as usize) = value as *mut u8 };
        }
    }

    /// Computes all values at the points `[p, p + n)`, `n` at most the frame's.
    ///
    /// # Safety
    /// The points lie in the code's space, and the core's value, if it has one, is set.
    #[inline]
    pub unsafe fn compute(&self, p: usize, n: usize) -> Result<(), ExecError> {
        self.check(p, n)?;
        for d in &self.code.directs {
            let element = d.offset + p as isize;
            let base = self.bindings.buffers[d.buffer as usize];
            // SAFETY: accesses stay inside their buffers; `regs` holds a pointer per register.
            unsafe { *self.regs.add(d.reg as usize) = base.offset(element * d.size as isize) };
        }
        if self.forward {
            for w in self.code.writes.iter().filter(|w| w.forward) {
                let element = w.walk.offset + p as isize;
                let base = self.bindings.buffers[w.buffer as usize];
                // SAFETY: as above; only dense writes are forwarded.
                unsafe { *self.regs.add(w.reg as usize) = base.offset(element * w.size as isize) };
            }
        }
        for step in &self.code.steps {
            // SAFETY: registers are set, and steps stand in the order of their dependencies.
            unsafe { self.step(step, p, n)? };
        }
        Ok(())
    }

    /// Computes and stores the results at the points `[p, p + n)`.
    ///
    /// # Safety
    /// As [`Frame::compute`]; no other thread touches the elements stored at these points.
    #[inline]
    pub unsafe fn run(&self, p: usize, n: usize) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        unsafe { self.compute(p, n)? };
        for w in &self.code.writes {
            if w.forward && self.forward {
                continue;
            }
            let base = self.bindings.buffers[w.buffer as usize];
            // SAFETY: the register holds `n` elements; accesses stay inside their buffers.
            unsafe { write(base, &w.walk, w.size, self.reg(w.reg), p, n) };
        }
        Ok(())
    }

    /// The number of points from a point on that [`Frame::run_rows`] can compute of each row.
    pub fn points_of_rows(&self, p: usize) -> usize {
        self.code.only_function().map_or(usize::MAX, |fused| fused.segment_left(p))
    }

    /// Computes and stores `n` points of each of some rows, from point `p` on, if a single function
    /// computes the whole code; returns whether this is so. `core` and `core_step` are the address
    /// of the core's value for the first row, and the number of bytes from there to the value for
    /// the next row.
    ///
    /// # Safety
    /// As [`Frame::run`] for each row; `n` is at most [`Frame::points_of_rows`].
    pub unsafe fn run_rows(
        &self,
        p: usize,
        n: usize,
        rows: (usize, usize),
        (core, core_step): (*const u8, isize),
    ) -> Result<bool, ExecError> {
        let Some(fused) = self.code.only_function() else { return Ok(false) };
        let Some(steps) = fused.row_steps(p, rows, (self.code.core, core_step)) else {
            return Ok(false);
        };
        // SAFETY: the caller's promise.
        unsafe {
            self.set_core(core);
            self.follow(fused, (p, n), rows.0, &steps)?;
        }
        Ok(true)
    }

    /// Computes and stores `n` points of each of some lines, from point `p` on, if a single
    /// function computes the whole code and the points are in one segment of it; returns whether
    /// this is so. In the buffer `buffer`, lines are `pitch` bytes apart instead of the bytes of
    /// `line` points.
    ///
    /// # Safety
    /// As [`Frame::run`] for each line; the buffer is only written.
    pub unsafe fn run_lines(
        &self,
        p: usize,
        n: usize,
        lines: (usize, usize),
        (buffer, pitch): (usize, isize),
    ) -> Result<bool, ExecError> {
        let fused = self.code.only_function().filter(|fused| n <= fused.segment_left(p));
        let Some(fused) = fused else { return Ok(false) };
        let Some(mut steps) = fused.row_steps(p, lines, (NONE, 0)) else { return Ok(false) };
        for (stream, step) in fused.streams.iter().zip(&mut steps) {
            if matches!(stream, Stream::Memory { buffer: to, .. } if *to as usize == buffer) {
                *step = pitch;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.follow(fused, (p, n), lines.0, &steps)? };
        Ok(true)
    }

    /// Runs a function over `n` points of each of some rows, from point `p` on.
    ///
    /// # Safety
    /// As [`Frame::run`] for each row; the points are in one segment, and the streams advance by
    /// these steps from row to row.
    unsafe fn follow(
        &self,
        fused: &Fused,
        (p, n): (usize, usize),
        rows: usize,
        steps: &[isize],
    ) -> Result<(), ExecError> {
        let mut pointers = Pointers::new();
        // SAFETY: the caller's promise; accesses stay inside their buffers.
        unsafe {
            self.point(fused, p, (0, 0), &mut pointers);
            if self.bindings.is_checked() {
                self.code.check_setup(self.bindings)?;
                fused.check_call(&pointers, (n, rows), steps, self.bindings)?;
            }
            fused.function.run_rows(&mut pointers, n, (rows, steps));
        }
        Ok(())
    }

    /// Sets `pointers` to the addresses of a chain's streams at a point; `done` points and
    /// `segments` segments of the run precede it.
    ///
    /// # Safety
    /// As [`Frame::step`].
    unsafe fn point(
        &self,
        fused: &Fused,
        point: usize,
        (done, segments): (usize, usize),
        pointers: &mut Pointers,
    ) {
        pointers.clear();
        for (stream, element) in fused.streams.iter().zip(fused.elements(point)) {
            // SAFETY: accesses stay inside their buffers, and registers hold an element for each
            // point of the run (one, if they are the same at all points: then `size` is 0), or a
            // fold of each segment. In checked mode, the call is checked before it happens.
            pointers.push(unsafe {
                match stream {
                    Stream::Register { reg, size } => self.reg(*reg).add(done * *size as usize),
                    Stream::Total { reg, size } => self.reg(*reg).add(segments * *size as usize),
                    Stream::Memory { buffer, size, .. } => {
                        let base = self.bindings.buffers[*buffer as usize];
                        base.wrapping_offset(element * *size as isize)
                    }
                }
            });
        }
    }

    /// # Safety
    /// As [`Frame::step`].
    unsafe fn fused(&self, fused: &Fused, p: usize, n: usize) -> Result<(), ExecError> {
        let (mut done, mut segments) = (0, 0);
        let mut pointers = Pointers::new();
        while done < n {
            let (count, len) = fused.run_from(p + done, n - done);
            // SAFETY: the caller's promise.
            unsafe {
                self.point(fused, p + done, (done, segments), &mut pointers);
                if self.bindings.is_checked() {
                    fused.check_call(&pointers, (len, count), &fused.steps, self.bindings)?;
                }
                fused.run_segments(&mut pointers, len, count);
            }
            done += count * len;
            segments += count;
        }
        Ok(())
    }

    /// # Safety
    /// The step's operands hold `n` elements, and its result has room for them.
    #[inline(always)]
    unsafe fn step(&self, step: &Step, p: usize, n: usize) -> Result<(), ExecError> {
        let b = self.bindings;
        // SAFETY: registers are valid by the contract; absent operands repeat the result's address,
        // which the loop does not read. Slots of a step's operands and result are distinct.
        unsafe {
            match step {
                Step::Call { run, out, args, .. } => {
                    let arg = |r: Reg| if r == NONE { std::ptr::null_mut() } else { self.reg(r) };
                    run(self.reg(*out), arg(args[0]), arg(args[1]), arg(args[2]), n);
                }
                Step::Splat { source, size, out } => {
                    let from = match *source {
                        Source::Argument(a) => b.arguments[a as usize].as_ptr() as *const u8,
                        Source::Element(buffer, element) => {
                            b.buffers[buffer as usize].offset(element * *size as isize)
                        }
                    };
                    splat(self.reg(*out), from, *size, n);
                }
                Step::Read { buffer, walk, size, out } => {
                    read(self.reg(*out), b.buffers[*buffer as usize], walk, *size, p, n);
                }
                Step::Positions { walk, out } => {
                    let out = super::ops::slice_mut::<i64>(self.reg(*out), n);
                    walk.grids(p, n, |done, element, (run_stride, runs), (stride, len)| {
                        for (run, out) in out[done..][..runs * len].chunks_mut(len).enumerate() {
                            let first = element + run_stride * run as isize;
                            for (i, o) in out.iter_mut().enumerate() {
                                *o = (first + stride * i as isize) as i64;
                            }
                        }
                    });
                }
                Step::Gather { buffer, at, index, size, out } => {
                    let (buffer, indices) = (*buffer as usize, self.reg(*index));
                    let indices = super::ops::slice::<i64>(indices, n);
                    if b.is_checked() {
                        at.check(b, buffer, indices, p, *size as usize)?;
                    }
                    at.gather(self.reg(*out), b.buffers[buffer], indices, p, *size)?;
                }
                Step::Wrap { index, axis, label, out } => {
                    let index = super::ops::slice::<i64>(self.reg(*index), n);
                    let out = super::ops::slice_mut::<i64>(self.reg(*out), n);
                    let checked = if *label { IndexedAxis::label } else { IndexedAxis::wrap };
                    for (o, &i) in out.iter_mut().zip(index) {
                        *o = checked(*axis, i)? as i64;
                    }
                }
                Step::Random { draw, argument, walk, size, out } => {
                    let [key, offset] = b.arguments[*argument as usize];
                    let out = self.reg(*out);
                    walk.runs(p, n, |done, element, stride, len| {
                        let out = out.add(done * *size as usize);
                        draw(out, RandomKey { key, offset }, element, stride, len);
                    });
                }
                Step::Fused(fused) => self.fused(fused, p, n)?,
            }
        }
        Ok(())
    }
}
