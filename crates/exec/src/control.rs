//! Runs control kernels (branches and loops): binds the buffers of their programs for each
//! iteration, and runs the programs' kernels through hooks, which know about threads.

mod scan;

use super::{Bindings, Bounds, ExecError, Prepared, Scratch};
use girih_ir::DType;
use girih_kernel::control::{Bound, Control, Feed, Flow, Splat, Table, WorkspaceParts};
use girih_kernel::{BufferId, Kernel};

/// A prepared control kernel, without the kernels of its programs.
pub struct Driver {
    control: Control,
    parts: WorkspaceParts,
    /// The size in bytes of each operand's element in one iteration.
    taken: Vec<usize>,
    /// Whether each carry is updated in place.
    updated: Vec<bool>,
    /// Whether each carry is returned unchanged.
    fixed: Vec<bool>,
}

/// The iterations of a scan between the first and the last. Their addresses need not be computed
/// separately: carries alternate between two buffers, and slices, stacks and histories advance by a
/// constant distance. So each address is the address of two iterations before, plus a distance.
pub struct StridedIterations<'a> {
    /// Addresses of the program's buffers in the next iteration, and in the one after it.
    pub tables: [&'a mut [*mut u8]; 2],
    /// The number of bytes from each address to the address of two iterations later.
    pub distances: &'a [isize],
    /// The number of iterations.
    pub count: usize,
}

/// The outcome of the iterations; `None` if they were not run.
pub type Ran = Option<Result<(), ExecError>>;

/// Callbacks of a driver.
pub struct Hooks<'a> {
    /// Runs a kernel, given the number of its program and its number in the program.
    pub run: &'a mut dyn FnMut(usize, usize, &Bindings<'_>) -> Result<(), ExecError>,
    /// Runs iterations of a scan whose body is one kernel, calling `proceed` before each; `None` if
    /// there is no faster implementation than running the kernel once per iteration.
    pub strided: &'a mut dyn FnMut(&mut StridedIterations<'_>, &Bindings<'_>) -> Ran,
    /// Called before each iteration; an error ends the loop.
    pub proceed: &'a mut dyn FnMut() -> Result<(), ExecError>,
}

/// The state of a control kernel that is running.
struct Run<'a, 'h> {
    driver: &'a Driver,
    bindings: &'a Bindings<'a>,
    hooks: &'a mut Hooks<'h>,
    workspace: *mut u8,
    /// The address of each operand.
    operands: Vec<*mut u8>,
    /// The address of each result of the body; null for results without a buffer.
    results: Vec<*mut u8>,
    /// The address of each buffer of the running program.
    table: Vec<*mut u8>,
    /// In checked mode, the bounds of these buffers.
    bounds: Vec<Bounds>,
}

impl Driver {
    /// Prepares the control of a verified kernel.
    pub fn new(control: &Control) -> Driver {
        let taken = (0..control.operands.len()).map(|i| control.taken_bytes(i)).collect();
        let updated = (0..control.carries).map(|c| control.is_updated(c)).collect();
        let fixed = (0..control.carries).map(|c| control.is_fixed(c)).collect();
        Driver { parts: control.workspace_parts(), control: control.clone(), taken, updated, fixed }
    }

    /// The number of iterations, if it is known.
    pub fn trips(&self) -> Option<usize> {
        self.control.trips()
    }

    /// Runs the control kernel.
    ///
    /// Errors: those of the hooks.
    /// Cost: a few small allocations, independent of the number of iterations.
    ///
    /// # Safety
    /// The bindings fulfil [`Bindings`]' contract, and `hooks.run` does nothing but run the given
    /// kernel on the given bindings.
    pub unsafe fn run(
        &self,
        bindings: &Bindings<'_>,
        mut hooks: Hooks<'_>,
    ) -> Result<(), ExecError> {
        let address = |id: &BufferId| bindings.buffers[id.0 as usize];
        let operand = |feed: &Feed| match feed {
            Feed::Buffer(id) => address(id),
            _ => std::ptr::null_mut(),
        };
        let longest = self.control.programs.iter().map(|p| p.buffers.len()).max().unwrap_or(0);
        let mut run = Run {
            driver: self,
            bindings,
            hooks: &mut hooks,
            workspace: self.control.workspace.as_ref().map_or(std::ptr::null_mut(), address),
            operands: self.control.operands.iter().map(operand).collect(),
            results: vec![std::ptr::null_mut(); self.control.body().outputs.len()],
            table: Vec::with_capacity(longest),
            bounds: Vec::new(),
        };
        // SAFETY: the caller's promise.
        unsafe {
            match self.control.flow {
                Flow::Cond { index, dtype } => {
                    bindings.check(index.0 as usize, 0..dtype.size() as isize)?;
                    run.branch(address(&index), dtype)
                }
                Flow::Call => run.once(0),
                Flow::While => run.repeat(),
                Flow::Scan { length, reverse } => run.scan(length, reverse),
            }
        }
    }
}

/// # Safety
/// Both are valid for `bytes` bytes unless that is 0, and do not overlap unless they are equal.
unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    if bytes > 0 && from != to {
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) };
    }
}

/// The integer at an address, saturated to the range of an i64.
///
/// # Safety
/// The address is valid for an element of the dtype and aligned to it.
unsafe fn integer(at: *const u8, dtype: DType) -> i64 {
    // SAFETY: the caller's promise.
    unsafe {
        match dtype {
            DType::Bool | DType::U8 => *at as i64,
            DType::I8 => *at.cast::<i8>() as i64,
            DType::U16 => *at.cast::<u16>() as i64,
            DType::I16 => *at.cast::<i16>() as i64,
            DType::U32 => *at.cast::<u32>() as i64,
            DType::I32 => *at.cast::<i32>() as i64,
            DType::U64 => (*at.cast::<u64>()).min(i64::MAX as u64) as i64,
            _ => *at.cast::<i64>(),
        }
    }
}

/// The unsafe functions read and write at addresses that nothing checks. The contract of the
/// bindings makes the addresses of operands and results valid, the verifier's rules say that they have
/// the sizes that the programs access, and the division of the workspace is into disjoint parts.
impl Run<'_, '_> {
    /// The address of a result; null if the result is not needed.
    fn result(&self, number: usize) -> *mut u8 {
        let id = self.driver.control.results.get(number).copied().flatten();
        id.map_or(std::ptr::null_mut(), |id| self.bindings.buffers[id.0 as usize])
    }

    /// Sets the addresses of a program's buffers to those of the current operands and results.
    fn fill_table(&mut self, number: usize) {
        self.table.clear();
        for bound in &self.driver.parts.programs[number].bound {
            self.table.push(match *bound {
                Bound::Operand(i) => self.operands[i],
                Bound::Result(i) => self.results[i],
                Bound::Workspace(offset) => self.workspace.wrapping_add(offset),
                Bound::Nothing => std::ptr::null_mut(),
            });
        }
    }

    /// Sets the bounds of a program's buffers, which are at these addresses, in checked mode. Fails
    /// unless the buffers lie in those of the control kernel.
    fn fill_bounds(&mut self, number: usize, table: &[*mut u8]) -> Result<(), ExecError> {
        if !self.bindings.is_checked() {
            return Ok(());
        }
        self.bounds.clear();
        let driver = self.driver;
        let bound = &driver.parts.programs[number].bound;
        let buffers = driver.control.programs[number].buffers.iter().zip(bound).zip(table);
        for (at, ((buffer, bound), &address)) in buffers.enumerate() {
            let bound = !matches!(bound, Bound::Nothing) && !address.is_null();
            let bytes = if bound { buffer.size_bytes() } else { 0 };
            self.check(address, bytes, at)?;
            self.bounds.push(Bounds::of(bytes));
        }
        Ok(())
    }

    /// Fails in checked mode unless some bytes, those of buffer `of` of the running program, lie in
    /// one of the control kernel's buffers.
    fn check(&self, address: *const u8, bytes: usize, of: usize) -> Result<(), ExecError> {
        let Some(bounds) = self.bindings.bounds else { return Ok(()) };
        let control = &self.driver.control;
        let holds = |id: BufferId| {
            let (base, bounds) = (self.bindings.buffers[id.0 as usize], bounds[id.0 as usize]);
            let first = (address as isize).wrapping_sub(base as isize);
            bounds.start <= first && first.saturating_add(bytes as isize) <= bounds.end
        };
        match bytes == 0 || control.reads().chain(control.writes()).any(holds) {
            true => Ok(()),
            false => {
                let (bytes, bounds) = (0..bytes as isize, Bounds::NOTHING);
                Err(ExecError::OutsideOfBuffer { buffer: of, bytes, bounds })
            }
        }
    }

    /// Copies the bytes of the carry or result with that number, unless both are the same.
    ///
    /// # Safety
    /// As [`copy`].
    unsafe fn copy(
        &self,
        from: *const u8,
        to: *mut u8,
        bytes: usize,
        number: usize,
    ) -> Result<(), ExecError> {
        self.check(from, bytes, number)?;
        self.check(to, bytes, number)?;
        // SAFETY: the caller's promise.
        unsafe { copy(from, to, bytes) };
        Ok(())
    }

    /// Runs a program's kernels on buffers at these addresses.
    ///
    /// # Safety
    /// Each address is valid for the accesses of the kernels to its buffer, as [`Bindings`] says.
    unsafe fn kernels(&mut self, number: usize, table: &[*mut u8]) -> Result<(), ExecError> {
        self.fill_bounds(number, table)?;
        let bounds = self.bindings.is_checked().then_some(&self.bounds[..]);
        let bindings = Bindings { buffers: table, bounds, ..*self.bindings };
        for kernel in 0..self.driver.control.programs[number].kernels.len() {
            (self.hooks.run)(number, kernel, &bindings)?;
        }
        Ok(())
    }

    /// Runs a program on the current operands into the current results.
    ///
    /// # Safety
    /// The bindings and the hooks are those of [`Driver::run`].
    unsafe fn program(&mut self, number: usize) -> Result<(), ExecError> {
        self.fill_table(number);
        let table = std::mem::take(&mut self.table);
        // SAFETY: the caller's promise; the table has the addresses of the program's buffers.
        let ran = unsafe { self.kernels(number, &table) };
        self.table = table;
        ran?;
        let Table { copies, result_bytes, .. } = &self.driver.parts.programs[number];
        for &(result, from) in copies {
            // SAFETY: the memory of results does not overlap that of temporaries or operands, and
            // is as large as the source.
            unsafe {
                let (from, to) = (self.table[from.0 as usize], self.results[result]);
                self.copy(from, to, result_bytes[result], result)?;
            }
        }
        Ok(())
    }

    /// Runs the program that the index chooses.
    ///
    /// # Safety
    /// The bindings and the hooks are those of [`Driver::run`]; the index is a scalar of the dtype.
    unsafe fn branch(&mut self, index: *const u8, dtype: DType) -> Result<(), ExecError> {
        let last = self.driver.control.programs.len() as i64 - 1;
        // SAFETY: the caller's promise.
        let chosen = unsafe { integer(index, dtype) }.clamp(0, last) as usize;
        // SAFETY: the caller's promise.
        unsafe { self.once(chosen) }
    }

    /// Runs a program once, into the results.
    ///
    /// # Safety
    /// The bindings and the hooks are those of [`Driver::run`].
    unsafe fn once(&mut self, program: usize) -> Result<(), ExecError> {
        for number in 0..self.results.len() {
            self.results[number] = self.result(number);
        }
        // SAFETY: the caller's promise.
        unsafe { self.program(program) }
    }

    /// The address of one of the two buffers of a carry.
    fn slot(&self, carry: usize, second: bool) -> *mut u8 {
        match self.driver.parts.slots[carry][second as usize] {
            Some(offset) => self.workspace.wrapping_add(offset),
            None => self.result(carry),
        }
    }

    /// Initialises carries that start as one value everywhere, in a buffer that iteration 0 does
    /// not write, and copies carries that are updated in place to their buffer.
    ///
    /// # Safety
    /// The bindings and the hooks are those of [`Driver::run`].
    unsafe fn start(&mut self, first_is_second: bool) -> Result<(), ExecError> {
        for carry in 0..self.driver.control.carries {
            let Feed::Splat { value, numel } = self.driver.control.operands[carry] else {
                if self.driver.updated[carry] {
                    let at = self.slot(carry, false);
                    // SAFETY: the buffer is as large as the carry, and not an operand's.
                    unsafe {
                        self.copy(self.operands[carry], at, self.driver.taken[carry], carry)?;
                    }
                    self.operands[carry] = at;
                }
                continue;
            };
            let fixed = self.driver.fixed[carry];
            let at = self.slot(carry, fixed || !first_is_second);
            let bits = match value {
                Splat::Literal(literal) => literal.bits,
                Splat::Scalar { argument, .. } => self.bindings.arguments[argument][0],
            };
            // The bits of a complex number are those of its real part.
            let mut bytes = [0; 16];
            bytes[..8].copy_from_slice(&bits.to_le_bytes());
            let size = value.dtype().size();
            self.check(at, numel * size, carry)?;
            for i in 0..numel {
                // SAFETY: the buffer is as large as the carry.
                unsafe { copy(bytes.as_ptr(), at.wrapping_add(i * size), size) };
            }
            self.operands[carry] = at;
        }
        Ok(())
    }

    /// Makes the results of this iteration the carries of the next one.
    fn advance(&mut self) {
        for carry in 0..self.driver.control.carries {
            if !self.driver.fixed[carry] {
                self.operands[carry] = self.results[carry];
            }
        }
    }

    /// Copies carries to their results.
    ///
    /// # Safety
    /// The bindings and the hooks are those of [`Driver::run`].
    unsafe fn finish(&self) -> Result<(), ExecError> {
        for carry in 0..self.driver.control.carries {
            let to = self.result(carry);
            if !to.is_null() {
                // SAFETY: the carry's current buffer is that of the result, or does not overlap it.
                unsafe {
                    self.copy(self.operands[carry], to, self.driver.taken[carry], carry)?;
                }
            }
        }
        Ok(())
    }

    /// Runs the second program while the first one's result is true.
    ///
    /// # Safety
    /// The bindings and the hooks are those of [`Driver::run`].
    unsafe fn repeat(&mut self) -> Result<(), ExecError> {
        let carries = self.driver.control.carries;
        let condition = &self.driver.control.programs[0];
        let predicate = condition.outputs[0].0 as usize;
        let mut second = false;
        // SAFETY: the caller's promise.
        unsafe {
            self.start(second)?;
            loop {
                (self.hooks.proceed)()?;
                self.program(0)?;
                if *self.table[predicate] == 0 {
                    break;
                }
                for carry in 0..carries {
                    self.results[carry] = self.slot(carry, second);
                }
                self.program(1)?;
                self.advance();
                second = !second;
            }
            self.finish()
        }
    }
}

/// A control kernel that runs on the calling thread.
pub(super) struct Portable {
    driver: Driver,
    kernels: Vec<Vec<Prepared>>,
}

impl Portable {
    pub fn new(control: &Control, isa: super::Isa) -> Portable {
        let prepare = |kernel: &Kernel| Prepared::with_isa(kernel, isa);
        let kernels = control.programs.iter().map(|p| p.kernels.iter().map(prepare).collect());
        Portable { driver: Driver::new(control), kernels: kernels.collect() }
    }

    pub fn cost_ps(&self) -> usize {
        let all = self.kernels.iter().flatten().map(|k| k.cost_ns() as usize);
        let trips = self.driver.trips().unwrap_or(1);
        all.fold(0, usize::saturating_add).saturating_mul(trips).saturating_mul(1000)
    }

    pub fn workspace_bytes(&self) -> usize {
        self.kernels.iter().flatten().map(Prepared::workspace_bytes).max().unwrap_or(0)
    }

    /// # Safety
    /// As [`Prepared::run_chunk`].
    pub unsafe fn run(
        &self,
        bindings: &Bindings<'_>,
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let mut run = |program: usize, kernel: usize, bindings: &Bindings<'_>| {
            // SAFETY: the driver's bindings are the kernel's; the workspace is large enough for any
            // of the kernels.
            unsafe { self.kernels[program][kernel].run(bindings, scratch) }
        };
        // SAFETY: the driver's addresses are the kernel's.
        let mut strided = |strided: &mut StridedIterations<'_>, bindings: &Bindings<'_>| unsafe {
            self.kernels[0][0].run_strided(strided, bindings, &mut || Ok(()))
        };
        let hooks = Hooks { run: &mut run, strided: &mut strided, proceed: &mut || Ok(()) };
        // SAFETY: the caller's promise.
        unsafe { self.driver.run(bindings, hooks) }
    }
}
