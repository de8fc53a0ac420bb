//! The program cache on disk, shared by the processes of one user: artefacts from which back ends
//! restore plans, under the same keys as in memory.
//!
//! There is one file per program, named by the hash of its key: magic number, fingerprint of the
//! program that wrote it, lengths, checksum, the whole key, the artefact. A file is written under a
//! temporary name and renamed, so readers see either the whole file or none. A file that is
//! damaged, or has another fingerprint or key, is removed and its program compiled again; no
//! failure here fails an evaluation.
//!
//! A program that is compiled faster than it is loaded from a file is not stored: only programs
//! whose compilation took the minimum of [`DiskLimits`] are.
//!
//! Evaluations do not wait for writes: artefacts are queued and written when no program has been
//! compiled for a moment, or when the process ends ([`DiskCache::flush`]).

use crate::plan::Artifact;
use crate::private;
use girih_sync::fork;
use girih_sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

const MAGIC: &[u8; 8] = b"GIRIHPC1";
/// Magic number, fingerprint, length of the key, length of the artefact, checksum.
const HEADER: usize = 8 + 32 + 8 + 8 + 32;
/// The maximum size of a file in bytes; larger programs are not stored.
const LARGEST: u64 = 64 << 20;
/// The maximum number of queued artefacts; further ones are dropped.
const QUEUE: usize = 4096;
/// Writing begins when nothing has been compiled for this long.
const IDLE: Duration = Duration::from_millis(200);
/// The minimum time between two updates of a file's time of last use.
const TOUCH: Duration = Duration::from_secs(3600);

/// The limits on the programs that a cache on disk stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskLimits {
    /// The maximum size of all programs in bytes.
    pub bytes: u64,
    /// The minimum compilation time of a program that is stored.
    pub compile_time: Duration,
}

/// A directory of compiled programs that belongs to the user.
pub struct DiskCache {
    directory: PathBuf,
    fingerprint: [u8; 32],
    limits: DiskLimits,
    /// The number of forks of the process before the cache was opened.
    opened: u64,
    writer: Arc<Writer>,
}

#[derive(Default)]
struct Writer {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// The number of forks of the process when the thread was started; `None` without a thread.
    thread: Option<u64>,
    /// The number of jobs that the thread or a flush has taken from the queue and not written yet.
    writing: usize,
    /// The size of the directory in bytes, once it is known.
    stored_bytes: Option<u64>,
}

struct Job {
    path: PathBuf,
    key: Vec<u8>,
    artifact: Artifact,
}

/// Statistics of a cache directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// The number of programs.
    pub programs: usize,
    /// The size of their files in bytes.
    pub size_bytes: u64,
}

/// One program in a cache directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskEntry {
    /// The name of the file without suffix: the hash of the program's key.
    pub name: String,
    /// The size of the file in bytes.
    pub size_bytes: u64,
    /// When the file was written or marked as used (at most once an hour).
    pub used: SystemTime,
}

impl DiskCache {
    /// Opens the cache in a directory, which is created if necessary. `fingerprint` is everything
    /// except the key that a plan depends on, such as the version of the library.
    ///
    /// Errors: a sentence with the reason: the directory cannot be created, or others may change
    /// it; see [`private::directory`].
    pub fn open(
        directory: &Path,
        fingerprint: &str,
        limits: DiskLimits,
    ) -> Result<DiskCache, String> {
        Ok(DiskCache {
            directory: private::directory(directory)?,
            fingerprint: *blake3::hash(fingerprint.as_bytes()).as_bytes(),
            limits,
            opened: fork::count(),
            writer: Arc::default(),
        })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, key: &[u8]) -> PathBuf {
        self.directory.join(format!("{}.plan", &blake3::hash(key).to_hex()[..40]))
    }

    /// The artefact of that key, if there is a valid file.
    pub fn load(&self, key: &[u8]) -> Option<Vec<u8>> {
        let path = self.path(key);
        let sound = match private::open(&path) {
            Ok(mut file) => self.read(&mut file, key),
            Err(error) if error.kind() == ErrorKind::NotFound => return None,
            Err(_) => None,
        };
        if sound.is_none() {
            let _ = fs::remove_file(&path);
        }
        sound
    }

    fn read(&self, file: &mut File, key: &[u8]) -> Option<Vec<u8>> {
        let metadata = file.metadata().ok()?;
        if metadata.len() > LARGEST {
            return None;
        }
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        let artifact = self.check(&bytes, key)?;
        // Eviction removes the files with the oldest time of use first.
        if metadata.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > TOUCH)) {
            let _ = file.set_modified(SystemTime::now());
        }
        bytes.drain(..bytes.len() - artifact);
        Some(bytes)
    }

    /// The length of the artefact at the end of a file, if the file is valid.
    fn check(&self, bytes: &[u8], key: &[u8]) -> Option<usize> {
        let (header, rest) = bytes.split_at_checked(HEADER)?;
        let (head, checksum) = header.split_at(HEADER - 32);
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("8 bytes"));
        let (key_bytes, artifact_bytes) = (word(40), word(48));
        let sound = &head[..8] == MAGIC
            && head[8..40] == self.fingerprint
            && key_bytes == key.len() as u64
            && key_bytes.checked_add(artifact_bytes) == Some(rest.len() as u64)
            && rest[..key.len()] == *key
            && digest(head, rest) == checksum;
        sound.then_some(artifact_bytes as usize)
    }

    /// Removes the artefact of that key.
    pub fn remove(&self, key: &[u8]) {
        let _ = fs::remove_file(self.path(key));
    }

    /// Queues an artefact, to be computed and written in the background, if compiling its program
    /// took long enough.
    pub fn store_later(&self, key: &[u8], artifact: Artifact, compile_time: Duration) {
        if compile_time < self.limits.compile_time {
            return;
        }
        let mut queue = match self.writer.queue.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.opened == fork::count() => lock(&self.writer),
            // After a fork, the thread that holds the lock may not exist in this process: dropping
            // the entry is better than a deadlock.
            Err(TryLockError::WouldBlock) => return,
        };
        if queue.jobs.len() >= QUEUE {
            return;
        }
        queue.jobs.push_back(Job { path: self.path(key), key: key.to_vec(), artifact });
        if queue.thread != Some(fork::count()) {
            let writer = self.background();
            let thread = std::thread::Builder::new().name("girih-cache".into());
            queue.thread = thread.spawn(move || writer.work()).is_ok().then(fork::count);
            queue.writing = 0;
        } else {
            self.writer.changed.notify_all();
        }
    }

    /// Writes the queued artefacts on this thread. For the end of the process, and tests.
    pub fn flush(&self) {
        self.background().drain();
        let mut queue = lock(&self.writer);
        while queue.writing > 0 && queue.thread == Some(fork::count()) {
            queue = self.writer.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn background(&self) -> Background {
        Background {
            writer: self.writer.clone(),
            directory: self.directory.clone(),
            fingerprint: self.fingerprint,
            limit_bytes: self.limits.bytes,
        }
    }

    /// The current number and size of the programs.
    pub fn stats(&self) -> DiskStats {
        let files = files(&self.directory);
        DiskStats { programs: files.len(), size_bytes: files.iter().map(|f| f.bytes).sum() }
    }

    /// The current programs, the most recently used ones first.
    pub fn entries(&self) -> Vec<DiskEntry> {
        let entry = |file: Stored| DiskEntry {
            name: file.path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
            size_bytes: file.bytes,
            used: file.used,
        };
        let mut entries: Vec<DiskEntry> = files(&self.directory).into_iter().map(entry).collect();
        entries.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.name.cmp(&b.name)));
        entries
    }

    /// Removes all programs.
    pub fn clear(&self) {
        lock(&self.writer).jobs.clear();
        files(&self.directory).iter().for_each(|file| {
            let _ = fs::remove_file(&file.path);
        });
        lock(&self.writer).stored_bytes = None;
    }
}

fn lock(writer: &Writer) -> girih_sync::MutexGuard<'_, Queue> {
    writer.queue.lock().unwrap_or_else(PoisonError::into_inner)
}

fn digest(head: &[u8], rest: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(head).update(rest).finalize().as_bytes()
}

/// The state of the writer thread.
struct Background {
    writer: Arc<Writer>,
    directory: PathBuf,
    fingerprint: [u8; 32],
    limit_bytes: u64,
}

impl Background {
    fn work(&self) {
        let writer = &self.writer;
        loop {
            let mut queue = lock(writer);
            while queue.jobs.is_empty() {
                queue = writer.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            // Compilations come in bursts: wait until this burst has ended.
            let mut waiting = queue.jobs.len();
            loop {
                let wait = writer.changed.wait_timeout(queue, IDLE);
                queue = wait.unwrap_or_else(PoisonError::into_inner).0;
                if queue.jobs.len() <= waiting {
                    break;
                }
                waiting = queue.jobs.len();
            }
            drop(queue);
            self.drain();
        }
    }

    /// Writes the queued artefacts.
    fn drain(&self) {
        loop {
            let mut queue = lock(&self.writer);
            let Some(job) = queue.jobs.pop_front() else { return };
            queue.writing += 1;
            let known = queue.stored_bytes;
            drop(queue);
            // Read the directory without the lock, because compilations wait for the lock.
            let written = self.write(job);
            let mut stored = known.map_or_else(|| self.size(), |bytes| bytes + written);
            if stored > self.limit_bytes {
                stored = self.evict();
            }
            let mut queue = lock(&self.writer);
            // After a fork, the count may have been reset while its thread is gone.
            queue.writing = queue.writing.saturating_sub(1);
            queue.stored_bytes = Some(stored);
            drop(queue);
            self.writer.changed.notify_all();
        }
    }

    /// Writes one artefact; returns the number of bytes written, 0 if writing failed or the file is
    /// too large.
    fn write(&self, job: Job) -> u64 {
        let artifact = (job.artifact)();
        let mut bytes = Vec::with_capacity(HEADER + job.key.len() + artifact.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.fingerprint);
        bytes.extend_from_slice(&(job.key.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&(artifact.len() as u64).to_le_bytes());
        let mut rest = job.key;
        rest.extend_from_slice(&artifact);
        let checksum = digest(&bytes, &rest);
        bytes.extend_from_slice(&checksum);
        bytes.extend_from_slice(&rest);
        if bytes.len() as u64 > LARGEST.min(self.limit_bytes) {
            return 0;
        }
        // No sync is needed: the checksum detects an incomplete file.
        match private::write(&job.path, &bytes) {
            Ok(()) => bytes.len() as u64,
            Err(_) => 0,
        }
    }

    /// The size of the directory in bytes.
    fn size(&self) -> u64 {
        files(&self.directory).iter().map(|file| file.bytes).sum()
    }

    /// Removes the least recently used files until a quarter of the limit is free.
    fn evict(&self) -> u64 {
        let mut files = files(&self.directory);
        files.sort_by_key(|file| file.used);
        let mut total: u64 = files.iter().map(|file| file.bytes).sum();
        for file in files {
            if total <= self.limit_bytes / 4 * 3 {
                break;
            }
            if fs::remove_file(&file.path).is_ok() {
                total -= file.bytes;
            }
        }
        total
    }
}

struct Stored {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

fn files(directory: &Path) -> Vec<Stored> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let plans = entries.map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "plan"));
    plans
        .filter_map(|path| {
            let metadata = fs::metadata(&path).ok()?;
            Some(Stored { path, bytes: metadata.len(), used: metadata.modified().ok()? })
        })
        .collect()
}

#[cfg(test)]
mod tests;
