//! Compiles a chain to a callable function.

use super::allocate::allocate;
use super::lower::lower;
use super::symbols::{self, Symbol};
use super::{arena, avx2, avx512};
use girih_exec::{Chain, Compiled, Def, Isa};
use girih_sync::{Mutex, OnceLock};
use rustc_hash::FxHashMap;
use std::sync::{Arc, PoisonError};

/// The approximate time of one instruction per element, in picoseconds.
const INST_PS: usize = 25;

/// A compiled loop.
struct Function {
    /// Declared before the code, so that a debugger forgets the name before the memory is freed.
    _symbol: Symbol,
    code: arena::Code,
    /// The same loop with non-temporal stores, for outputs that are aligned to cache lines and are
    /// not inputs.
    streaming: Option<arena::Code>,
    /// The number of inputs.
    inputs: usize,
    cost_ps: usize,
}

/// A compiled function, shared with the cache and other chains.
#[derive(Clone)]
pub(super) struct CachedFunction(Arc<Function>);

impl Function {
    /// Compiles a chain; `None` if the chain exceeds the encoder's limits, or if there is no memory
    /// for the code.
    fn new(chain: &Chain, name: &str) -> Option<Function> {
        let program = &lower(chain)?;
        let mut streaming = None;
        let code = match level() {
            Isa::Avx512 => {
                let allocated = allocate(program, &avx512::registers(program))?;
                if chain.streamed {
                    streaming = arena::install(&avx512::emit(program, &allocated, true)?);
                }
                avx512::emit(program, &allocated, false)?
            }
            Isa::Avx2 => avx2::emit(program, &allocate(program, &avx2::registers(program))?)?,
            Isa::Baseline => return None,
        };
        let code = arena::install(&code)?;
        let cost_ps = INST_PS * program.work();
        let inputs = chain.defs.iter().filter(|d| matches!(d, Def::Input { beside: None, .. }));
        let inputs = inputs.count();
        let _symbol = symbols::announce(&code, name);
        Some(Function { _symbol, code, streaming, inputs, cost_ps })
    }
}

impl Function {
    /// The code for outputs and inputs at these addresses.
    fn code_for(&self, pointers: &[*mut u8]) -> &arena::Code {
        self.streaming.as_ref().filter(|_| self.may_stream(pointers)).unwrap_or(&self.code)
    }

    /// Calls the code, which is one of the function's.
    ///
    /// # Safety
    /// As [`Compiled::run_rows`], of which `table` has the pointers; there is at least one row. A
    /// single row reads no steps and does not write the table.
    unsafe fn call(
        &self,
        code: &arena::Code,
        table: *mut *mut u8,
        n: usize,
        rows: usize,
        steps: &[isize],
    ) {
        type Loop = unsafe extern "sysv64" fn(*mut *mut u8, usize, usize, *const isize);
        // SAFETY: the address is that of a function generated for this machine with this signature;
        // it follows the calling convention, and the code lives as long as `self`. Its loads and
        // stores are those of the chain, for which the caller vouches.
        unsafe {
            let run: Loop = std::mem::transmute(code.address());
            run(table, n, rows, steps.as_ptr());
        }
    }

    /// Whether outputs may be written by non-temporal stores: they are aligned to cache lines, and
    /// no output is an input and therefore in the caches.
    fn may_stream(&self, pointers: &[*mut u8]) -> bool {
        let (inputs, outputs) = pointers.split_at(self.inputs);
        outputs.iter().all(|p| p.addr().is_multiple_of(64) && !inputs.contains(p))
    }
}

/// The maximum number of functions in the cache. Functions are cached because programs update many
/// parameters in the same way and repeat their layers. The cache is emptied when it is full.
const MAX_CACHED: usize = 1024;

type Cache = FxHashMap<Chain, (Isa, CachedFunction)>;

static CACHE: Mutex<Option<Cache>> = Mutex::new(None);

fn with_cache<T>(f: impl FnOnce(&mut Cache) -> T) -> T {
    // Each critical section leaves the table consistent, even if it panics.
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    f(cache.get_or_insert_default())
}

/// Clears the cache of compiled functions; functions in use remain valid.
pub(crate) fn forget() {
    // Drop the functions outside the lock, because dropping a function also unregisters its name.
    let cache = with_cache(std::mem::take);
    drop(cache);
}

/// The function of a chain: a cached function, under the name of the kernel that it was first
/// compiled for, or a new function.
pub(super) fn of_chain(chain: &Chain, name: &str) -> Option<CachedFunction> {
    let cached =
        with_cache(|cache| cache.get(chain).filter(|k| k.0 == level()).map(|k| k.1.clone()));
    if cached.is_some() {
        return cached;
    }
    let function = CachedFunction(Arc::new(Function::new(chain, name)?));
    let full = with_cache(|cache| {
        let full = (cache.len() >= MAX_CACHED).then(|| std::mem::take(cache));
        cache.insert(chain.clone(), (level(), function.clone()));
        full
    });
    drop(full);
    Some(function)
}

impl Compiled for CachedFunction {
    unsafe fn run(&self, pointers: &[*mut u8], n: usize) {
        // SAFETY: the caller's promise. The function writes the table between rows only.
        unsafe { self.0.call(self.0.code_for(pointers), pointers.as_ptr().cast_mut(), n, 1, &[]) };
    }

    unsafe fn run_rows(
        &self,
        pointers: &mut [*mut u8],
        n: usize,
        (rows, steps): (usize, &[isize]),
    ) {
        debug_assert_eq!(pointers.len(), steps.len(), "a step for each pointer");
        let outputs = &steps[self.0.inputs..];
        let code = match outputs.iter().all(|step| step % 64 == 0) {
            true => self.0.code_for(pointers),
            false => &self.0.code,
        };
        if rows > 0 {
            // SAFETY: the caller's promise.
            unsafe { self.0.call(code, pointers.as_mut_ptr(), n, rows, steps) };
        }
    }

    fn cost_ps(&self) -> usize {
        self.0.cost_ps
    }

    fn code(&self) -> &[u8] {
        self.0.code.bytes()
    }
}

/// Whether chains are compiled on this machine.
pub(super) fn enabled() -> bool {
    static ENABLED: OnceLock<bool> = OnceLock::new();
    *ENABLED.get_or_init(|| {
        // `check_environment` rejects other values earlier; both choices compute the same results.
        let wanted = girih_runtime::env::flag(&["GIRIH_JIT"]).ok().flatten().unwrap_or(true);
        wanted && Isa::best() >= Isa::Avx2
    })
}

/// The instruction set level that code is generated for.
pub(super) fn level() -> Isa {
    #[cfg(test)]
    if let Some(isa) = super::tests::LEVEL.get() {
        return isa;
    }
    Isa::best()
}
