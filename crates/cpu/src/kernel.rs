//! A kernel that is ready to run on the CPU: loops, generated where possible, a GEMM, or a branch
//! or loop over kernels. The kernel runs on the pool.

use crate::checked;
use crate::compiler::HostCompiler;
#[cfg(target_arch = "x86_64")]
use crate::gemm::GeneratedGemm;
use crate::library_gemm::LibraryGemm;
use crate::pool::Pool;
use crate::prepacked::{LoopWeights, PrepackedStore, ProgramWeights};
use crate::strategy::{Part, Strategy};
use crate::threads::Threads;
use girih_exec::{
    Bindings, Bounds, Driver, ExecError, FusedCycle, Hooks, Prepared, StridedIterations,
};
use girih_kernel::{Core, Kernel, KernelProgram, Local, RowwiseCore};
use smallvec::SmallVec;
use std::cell::Cell;

/// A kernel that is ready to run, shared freely between threads.
pub struct LoadedKernel {
    form: Implementation,
    /// In checked mode, the kernel that it was prepared from.
    definition: Option<Box<Kernel>>,
}

/// The minimum number of iterations for which a loop prepacks weights that only the loop can use.
const MIN_TRIPS: usize = 4;

/// The number of iterations of a loop between two checks of the clock. Long kernels check the clock
/// themselves.
const CLOCK_ITERATIONS: u32 = 32;

enum Implementation {
    Portable(Box<Prepared>),
    LibraryGemm(Box<(LibraryGemm, Prepared)>),
    #[cfg(target_arch = "x86_64")]
    GeneratedGemm(Box<(GeneratedGemm, Prepared)>),
    InOrder(Box<InOrder>),
    Control(Box<LoadedControl>),
    Cycle(Box<FusedCycle>),
}

/// The maximum memory for locals that a thread reuses for the next kernel.
const MAX_REUSED_BYTES: usize = 1 << 26;

/// 64 bytes, aligned to a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(crate) struct Line(#[allow(dead_code)] [u8; 64]);

impl Line {
    /// A line of equal bytes.
    pub fn of(byte: u8) -> Line {
        Line([byte; 64])
    }
}

/// Calls `f` with memory of the thread that grows to the largest request and is reused. The memory
/// is taken while in use, so a nested call gets memory of its own.
pub(crate) fn with_memory<R>(
    slot: &'static std::thread::LocalKey<Cell<Vec<Line>>>,
    bytes: usize,
    f: impl FnOnce(*mut u8) -> R,
) -> R {
    if bytes == 0 {
        return f(std::ptr::dangling_mut::<Line>() as *mut u8);
    }
    if checked::is_on() {
        return checked::with_guarded(bytes, f);
    }
    let mut memory = slot.take();
    let lines = bytes.div_ceil(64);
    if memory.len() < lines {
        memory.resize(lines, Line([0; 64]));
    }
    let result = f(memory.as_mut_ptr() as *mut u8);
    slot.set(memory);
    result
}

thread_local! {
    static WORKSPACE: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    static LOCALS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
}

/// The parts of a kernel over one row, one after another, each on all threads: a GEMM with fused
/// operands for which there are no generated micro-kernels.
struct InOrder {
    kernels: Vec<LoadedKernel>,
    /// For each local, its buffer, its offset in the memory for locals, and its size in bytes.
    locals: Vec<(usize, usize, usize)>,
    bytes: usize,
}

impl InOrder {
    fn new(rows: &RowwiseCore, often: bool, checked: bool) -> InOrder {
        let mut bytes = 0;
        let place = |local: &Local| {
            let at = bytes;
            bytes += local.row_bytes.next_multiple_of(64);
            (local.buffer.0 as usize, at, local.row_bytes)
        };
        let locals = rows.locals.iter().map(place).collect();
        let load = |part: &Kernel| LoadedKernel::load(part, often, checked);
        let kernels = rows.parts.iter().map(load).collect();
        InOrder { kernels, locals, bytes }
    }

    /// # Safety
    /// As [`LoadedKernel::run`].
    unsafe fn run(&self, bindings: &Bindings<'_>, pool: &Pool) -> Result<(), ExecError> {
        let mut table: SmallVec<[*mut u8; 32]> = SmallVec::from_slice(bindings.buffers);
        let mut bounds: Option<SmallVec<[Bounds; 32]>> = bindings.bounds.map(SmallVec::from_slice);
        let done = with_memory(&LOCALS, self.bytes, |memory| {
            for &(buffer, at, bytes) in &self.locals {
                table[buffer] = memory.wrapping_add(at);
                if let Some(bounds) = &mut bounds {
                    bounds[buffer] = Bounds::of(bytes);
                }
            }
            let bindings = Bindings { buffers: &table, bounds: bounds.as_deref(), ..*bindings };
            // SAFETY: the caller's promise; the locals have their memory.
            self.kernels.iter().try_for_each(|kernel| unsafe { kernel.run(&bindings, pool) })
        });
        if self.bytes > MAX_REUSED_BYTES {
            LOCALS.take();
        }
        done
    }
}

impl LoadedKernel {
    /// Prepares a verified kernel.
    ///
    /// Panics: if the kernel is not well formed.
    pub fn new(kernel: &Kernel) -> LoadedKernel {
        LoadedKernel::load(kernel, false, checked::is_on())
    }

    /// Prepares a verified kernel to run in checked mode, whatever `GIRIH_CHECK` is. Its bindings
    /// must have bounds.
    ///
    /// Panics: as [`LoadedKernel::new`].
    pub fn checked(kernel: &Kernel) -> LoadedKernel {
        LoadedKernel::load(kernel, false, true)
    }

    fn of(form: Implementation) -> LoadedKernel {
        LoadedKernel { form, definition: None }
    }

    /// Prepares a kernel; `often` means that the kernel is in the body of a loop.
    fn load(kernel: &Kernel, often: bool, checked: bool) -> LoadedKernel {
        let definition = checked.then(|| Box::new(kernel.clone()));
        LoadedKernel { definition, ..LoadedKernel::form_of(kernel, often, checked) }
    }

    /// The kernel in the form in which it runs.
    fn form_of(kernel: &Kernel, often: bool, checked: bool) -> LoadedKernel {
        if let Core::Control(control) = &kernel.core {
            // The accesses of kernels are checked, those of a cycle are not.
            let cycle = match checked {
                true => None,
                false => FusedCycle::new(control, &kernel.name, &HostCompiler),
            };
            if let Some(cycle) = cycle {
                return LoadedKernel::of(Implementation::Cycle(Box::new(cycle)));
            }
            let often = often || control.trips() != Some(1);
            let load = |k: &Kernel| LoadedKernel::load(k, often, checked);
            let load = |p: &KernelProgram| p.kernels.iter().map(load).collect();
            let constants = |program| {
                let constants = control.constants(program).into_iter();
                constants.map(|id| id.map(|id| id.0 as usize)).collect()
            };
            return LoadedKernel::of(Implementation::Control(Box::new(LoadedControl {
                kernels: control.programs.iter().map(load).collect(),
                constants: (0..control.programs.len()).map(constants).collect(),
                driver: Driver::new(control),
            })));
        }
        let prepare = |kernel, often| Prepared::compiled(kernel, &HostCompiler, often);
        LoadedKernel::of(match Strategy::of(kernel, Part::Whole) {
            #[cfg(target_arch = "x86_64")]
            Strategy::Generated { gemm, kernel } => {
                Implementation::GeneratedGemm(Box::new((gemm, prepare(kernel, false))))
            }
            Strategy::Library(gemm) => {
                Implementation::LibraryGemm(Box::new((gemm, prepare(kernel, often))))
            }
            Strategy::InOrder(rows) => {
                Implementation::InOrder(Box::new(InOrder::new(rows, often, checked)))
            }
            Strategy::Portable | Strategy::Rowwise(_) => {
                Implementation::Portable(Box::new(prepare(kernel, often)))
            }
        })
    }

    /// The machine code that was generated for the kernel, one entry per function, including
    /// constants; for branches and loops, the code of all their kernels.
    pub fn code(&self) -> Vec<Vec<u8>> {
        match &self.form {
            Implementation::Portable(prepared) => prepared.code(),
            Implementation::LibraryGemm(form) => form.1.code(),
            #[cfg(target_arch = "x86_64")]
            Implementation::GeneratedGemm(form) => [form.0.code(), form.1.code()].concat(),
            Implementation::InOrder(form) => {
                form.kernels.iter().flat_map(LoadedKernel::code).collect()
            }
            Implementation::Control(form) => {
                form.kernels.iter().flatten().flat_map(LoadedKernel::code).collect()
            }
            Implementation::Cycle(cycle) => vec![cycle.code().to_vec()],
        }
    }

    /// The approximate time of the kernel on one thread, in nanoseconds. A loop whose number of
    /// iterations is unknown counts as one iteration.
    pub(crate) fn cost_ns(&self) -> u64 {
        let sum = |kernels: &[LoadedKernel]| {
            kernels.iter().map(LoadedKernel::cost_ns).fold(0, u64::saturating_add)
        };
        match &self.form {
            Implementation::Portable(prepared) => prepared.cost_ns(),
            Implementation::LibraryGemm(form) => form.1.cost_ns(),
            #[cfg(target_arch = "x86_64")]
            Implementation::GeneratedGemm(form) => form.0.cost_ns(),
            Implementation::InOrder(form) => sum(&form.kernels),
            Implementation::Control(form) => {
                let once = form.kernels.iter().map(|kernels| sum(kernels));
                let runs = form.driver.trips().unwrap_or(1) as u64;
                once.fold(0, u64::saturating_add).saturating_mul(runs)
            }
            Implementation::Cycle(cycle) => cycle.cost_ns(),
        }
    }

    /// The kernels of each program of a branch or a loop; empty for other kernels, and for loops
    /// that are one function.
    pub(crate) fn programs(&self) -> &[Vec<LoadedKernel>] {
        match &self.form {
            Implementation::Control(form) => &form.kernels,
            _ => &[],
        }
    }

    /// Whether the kernel is a reduction that runs a loop for each result.
    pub(crate) fn loops_per_result(&self) -> bool {
        matches!(&self.form, Implementation::Portable(prepared) if prepared.loops_per_result())
    }

    /// Whether one thread runs the whole kernel: there is a single chunk.
    pub(crate) fn has_one_chunk(&self) -> bool {
        matches!(&self.form, Implementation::Portable(prepared) if prepared.chunks(0) == 1)
    }

    /// The buffer that a GEMM packs before it multiplies, and the time of packing on one thread in
    /// nanoseconds.
    pub(crate) fn packing(&self) -> Option<(usize, u64)> {
        match &self.form {
            #[cfg(target_arch = "x86_64")]
            Implementation::GeneratedGemm(form) => form.0.packing(),
            _ => None,
        }
    }

    /// Runs the kernel to its end. The workspace of the bindings is not used, since the kernel has
    /// its own.
    ///
    /// Errors: [`ExecError::IndexOutOfBounds`]; if several chunks fail, the error of the first one.
    /// Cost: no allocation once the threads' scratch memory has grown to the kernel's needs, except
    /// for library routines and the tables of branches and loops.
    ///
    /// # Safety
    /// The bindings fulfil [`Bindings`]' contract except for the workspace.
    pub unsafe fn run(&self, bindings: &Bindings<'_>, pool: &Pool) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        unsafe { self.run_with_prepacked(bindings, pool, None) }
    }

    /// The buffers that the kernel can read prepacked.
    pub(crate) fn prepackable(&self) -> SmallVec<[usize; 1]> {
        match &self.form {
            #[cfg(target_arch = "x86_64")]
            Implementation::GeneratedGemm(form) => form.0.prepackable().into_iter().collect(),
            Implementation::Control(form) => form.prepackable(),
            _ => SmallVec::new(),
        }
    }

    /// Runs the kernel as [`LoadedKernel::run`] does; `store` has prepacked weights of earlier
    /// runs.
    ///
    /// # Safety
    /// As [`LoadedKernel::run`].
    pub(crate) unsafe fn run_with_prepacked(
        &self,
        bindings: &Bindings<'_>,
        pool: &Pool,
        store: Option<&dyn PrepackedStore>,
    ) -> Result<(), ExecError> {
        // SAFETY: the caller's promise.
        unsafe {
            match &self.definition {
                Some(definition) if bindings.is_checked() => {
                    checked::run(self, definition, bindings, pool)
                }
                _ => self.run_form(bindings, pool, store),
            }
        }
    }

    /// In checked mode, checks what is known before the kernel runs.
    ///
    /// Errors: [`ExecError::OutsideOfBuffer`].
    pub(crate) fn check(&self, bindings: &Bindings<'_>) -> Result<(), ExecError> {
        match &self.form {
            Implementation::Portable(prepared) => prepared.check(bindings),
            Implementation::LibraryGemm(form) => form.1.check(bindings),
            #[cfg(target_arch = "x86_64")]
            Implementation::GeneratedGemm(form) => form.1.check(bindings),
            // Their kernels check themselves.
            Implementation::InOrder(_) | Implementation::Control(_) => Ok(()),
            Implementation::Cycle(_) => unreachable!("cycles are not run in checked mode"),
        }
    }

    /// Runs the kernel in its form, without the checks around it.
    ///
    /// # Safety
    /// As [`LoadedKernel::run`].
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables, reason = "no form is used"))]
    pub(crate) unsafe fn run_form(
        &self,
        bindings: &Bindings<'_>,
        pool: &Pool,
        store: Option<&dyn PrepackedStore>,
    ) -> Result<(), ExecError> {
        match &self.form {
            // SAFETY: the caller's promise; the GEMM is of the same kernel.
            Implementation::LibraryGemm(form) => unsafe { form.0.run(&form.1, bindings, pool) },
            // SAFETY: as for the GEMM of the library.
            #[cfg(target_arch = "x86_64")]
            Implementation::GeneratedGemm(form) => unsafe {
                form.0.run(&form.1, bindings, pool, store)
            },
            // SAFETY: the caller's promise.
            Implementation::Portable(prepared) => unsafe { run_portable(prepared, bindings, pool) },
            // SAFETY: the caller's promise.
            Implementation::InOrder(form) => unsafe { form.run(bindings, pool) },
            // SAFETY: the caller's promise.
            Implementation::Control(form) => unsafe { form.run(bindings, pool, store) },
            // SAFETY: the caller's promise.
            Implementation::Cycle(cycle) => unsafe {
                cycle.run(bindings, &mut || crate::pool::proceed(true))
            },
        }
    }
}

/// A branch or a loop.
struct LoadedControl {
    driver: Driver,
    /// The kernels of each program.
    kernels: Vec<Vec<LoadedKernel>>,
    /// For each program and buffer, the buffer of the surrounding program whose contents it has in
    /// every iteration.
    constants: Vec<Vec<Option<usize>>>,
}

impl LoadedControl {
    /// The buffers of the surrounding program that the kernels can read prepacked.
    fn prepackable(&self) -> SmallVec<[usize; 1]> {
        let programs = self.kernels.iter().zip(&self.constants);
        programs
            .flat_map(|(kernels, constants)| {
                kernels.iter().flat_map(|k| k.prepackable()).filter_map(|b| constants[b])
            })
            .collect()
    }

    /// # Safety
    /// As [`LoadedKernel::run`].
    unsafe fn run(
        &self,
        bindings: &Bindings<'_>,
        pool: &Pool,
        store: Option<&dyn PrepackedStore>,
    ) -> Result<(), ExecError> {
        let LoadedControl { driver, kernels, constants } = self;
        let repeats = driver.trips().is_none_or(|trips| trips >= MIN_TRIPS);
        let weights = store.map(LoopWeights::new);
        let mut run = |program: usize, kernel: usize, bindings: &Bindings<'_>| {
            let constants = &constants[program];
            let weights =
                weights.as_ref().map(|weights| ProgramWeights { weights, constants, repeats });
            let store = weights.as_ref().map(|weights| weights as &dyn PrepackedStore);
            // SAFETY: the driver binds the kernel's buffers as its contract asks.
            unsafe { kernels[program][kernel].run_with_prepacked(bindings, pool, store) }
        };
        let iterations = Cell::new(0u32);
        let proceed = || {
            iterations.set(iterations.get().wrapping_add(1));
            crate::pool::proceed(iterations.get().is_multiple_of(CLOCK_ITERATIONS))
        };
        let mut strided = |strided: &mut StridedIterations<'_>, bindings: &Bindings<'_>| {
            let Implementation::Portable(body) = &kernels[0][0].form else { return None };
            // SAFETY: the driver's addresses are those of the body's buffers.
            unsafe { body.run_strided(strided, bindings, &mut || proceed()) }
        };
        let (run, strided, proceed) = (&mut run, &mut strided, &mut || proceed());
        let hooks = Hooks { run, strided, proceed };
        // SAFETY: the caller's promise; the hooks run the kernels and nothing else.
        unsafe { driver.run(bindings, hooks) }
    }
}

/// # Safety
/// As [`LoadedKernel::run`].
unsafe fn run_portable(
    prepared: &Prepared,
    bindings: &Bindings<'_>,
    pool: &Pool,
) -> Result<(), ExecError> {
    if prepared.is_done(bindings) {
        return Ok(());
    }
    // SAFETY: the caller's promise.
    if unsafe { prepared.run_single_call(bindings) } {
        return Ok(());
    }
    let cost = prepared.cost_ns();
    with_memory(&WORKSPACE, prepared.workspace_bytes(), |workspace| {
        let bindings = SharedBindings(Bindings { workspace, ..*bindings });
        for phase in 0..prepared.phases() {
            let (chunks, team) = (prepared.chunks(phase), Threads::of(pool));
            // SAFETY: the caller's promise; phases run in order, each chunk once.
            let run = pool.run(chunks, cost, &|chunk, scratch| unsafe {
                prepared.run_chunk(phase, chunk, bindings.get(), scratch, &team)
            });
            team.outcome().and(run)?;
        }
        Ok(())
    })
}

/// Bindings that several threads use concurrently.
pub(crate) struct SharedBindings<'a>(pub Bindings<'a>);

// SAFETY: chunks of a phase write disjoint elements and read none that others write; `Prepared` and
// the GEMMs create chunks so, and the bindings' contract promises it for the buffers.
unsafe impl Sync for SharedBindings<'_> {}

impl<'a> SharedBindings<'a> {
    pub fn get(&self) -> &Bindings<'a> {
        &self.0
    }
}

#[cfg(test)]
mod tests;
