//! The location of compiled programs on disk, from the environment.

use girih_runtime::{Backend, DiskCache, DiskLimits, Result, env, private};
use girih_sync::OnceLock;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of bytes of programs on disk, unless `GIRIH_CACHE_LIMIT` is set.
const LIMIT: u64 = 256 << 20;

/// The minimum compilation time of a stored program in milliseconds, unless
/// `GIRIH_CACHE_MIN_COMPILE_MS` is set. In measurements, loading took 0.9 (three kernels) and 1.2
/// (the step of an MLP) times as long as compiling, and 0.8 times as long for the step of a
/// transformer that compiles in 22 ms.
const MIN_COMPILE_MS: u64 = 5;

/// Whether programs are stored on disk.
#[derive(Clone)]
pub enum CacheState {
    /// Programs are stored.
    Open(Arc<DiskCache>),
    /// Programs are not stored, for the given reason.
    Off(String),
}

static STATE: OnceLock<Result<CacheState>> = OnceLock::new();

impl CacheState {
    /// This process' state, from the variables whose names begin with `GIRIH_CACHE`.
    ///
    /// Errors: [`girih_runtime::Error::Configuration`].
    pub fn of_process(backend: &dyn Backend) -> Result<CacheState> {
        STATE.get_or_init(|| find(backend)).clone()
    }
}

/// The cache on disk; `None` if it is disabled or cannot be opened.
pub(crate) fn open(backend: &dyn Backend) -> Result<Option<Arc<DiskCache>>> {
    match CacheState::of_process(backend)? {
        CacheState::Open(disk) => Ok(Some(disk)),
        CacheState::Off(_) => Ok(None),
    }
}

fn find(backend: &dyn Backend) -> Result<CacheState> {
    let off = |reason: &str| Ok(CacheState::Off(reason.to_string()));
    if !is_on()? {
        return off("GIRIH_CACHE=0");
    }
    let limits = limits()?;
    let Some(directory) = directory() else { return off("there is no home directory") };
    match DiskCache::open(&directory, &backend.fingerprint(), limits) {
        Ok(disk) => {
            let disk = Arc::new(disk);
            flush_at_exit();
            Ok(CacheState::Open(disk))
        }
        Err(reason) => Ok(CacheState::Off(reason)),
    }
}

/// The limits of the cache, from `GIRIH_CACHE_LIMIT` and `GIRIH_CACHE_MIN_COMPILE_MS`.
fn limits() -> Result<DiskLimits> {
    let bytes = env::parsed(
        "GIRIH_CACHE_LIMIT",
        |text| env::parse_bytes(text).map(|bytes| bytes as u64),
        "a number of bytes, such as 100000000 or 100M",
    )?;
    let milliseconds = env::parsed(
        "GIRIH_CACHE_MIN_COMPILE_MS",
        |text| text.trim().parse().ok(),
        "a whole number of milliseconds, such as 5; 0 stores every program",
    )?;
    let compile_time = Duration::from_millis(milliseconds.unwrap_or(MIN_COMPILE_MS));
    Ok(DiskLimits { bytes: bytes.unwrap_or(LIMIT), compile_time })
}

/// Whether `GIRIH_CACHE` permits storing programs on disk, which is the default.
fn is_on() -> Result<bool> {
    Ok(env::flag(&["GIRIH_CACHE"])?.unwrap_or(true))
}

/// The path of a file beside the folder of programs; `None` if nothing may be stored on disk, or if
/// others may change the folder of the file.
pub(crate) fn beside_programs(name: &str) -> Option<PathBuf> {
    let programs = is_on().unwrap_or(false).then(directory)??;
    Some(private::directory(programs.parent()?).ok()?.join(name))
}

/// `GIRIH_CACHE_DIR`, or a folder of Girih in the user's cache directory.
fn directory() -> Option<PathBuf> {
    if let Some(directory) = env::path("GIRIH_CACHE_DIR") {
        return Some(directory.join("programs"));
    }
    let home = || env::path("HOME").or_else(|| env::path("USERPROFILE"));
    let caches = match env::path("XDG_CACHE_HOME") {
        Some(caches) if caches.is_absolute() => Some(caches),
        _ if cfg!(target_os = "macos") => home().map(|home| home.join("Library/Caches")),
        _ if cfg!(windows) => env::path("LOCALAPPDATA"),
        _ => home().map(|home| home.join(".cache")),
    };
    Some(caches?.join("girih/programs"))
}

/// Registers a flush at exit, so that programs compiled shortly before the exit are written too.
fn flush_at_exit() {
    #[cfg(unix)]
    {
        extern "C" fn flush() {
            if let Some(Ok(CacheState::Open(disk))) = STATE.get() {
                // A panic must not unwind into C code, which calls this function.
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| disk.flush()));
            }
        }
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe {
            libc::atexit(flush);
        }
    }
}
