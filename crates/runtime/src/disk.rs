//! The program cache on disk: what back ends need to make plans again, by the same keys as in
//! memory, shared by the processes of one user.
//!
//! A file per program, named by the hash of its key: magic number, fingerprint of the program that
//! wrote it, lengths, checksum, the whole key, the artefact. Files are written under another name
//! and renamed, so that readers see all of one or none. A file that is damaged, of another version
//! or of another key is removed and its program compiled anew; nothing here ever fails an
//! evaluation.
//!
//! Evaluations do not wait for writes: artefacts are queued and written when no program has been
//! compiled for a moment, or when the process ends ([`DiskCache::flush`]).

use crate::file;
use crate::plan::Artifact;
use girih_sync::fork;
use girih_sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, TryLockError};
use std::time::{Duration, SystemTime};

const MAGIC: &[u8; 8] = b"GIRIHPC1";
/// Magic number, fingerprint, length of the key, length of the artefact, checksum.
const HEADER: usize = 8 + 32 + 8 + 8 + 32;
/// Larger programs are not kept.
const LARGEST: u64 = 64 << 20;
/// Artefacts waiting to be written; of a burst beyond that, the rest is not kept.
const QUEUE: usize = 4096;
/// How long nothing must have been compiled before anything is written.
const IDLE: Duration = Duration::from_millis(200);
/// Temporary files older than this were left by a process that died.
const STALE: Duration = Duration::from_secs(600);
/// A file used again is marked as used at most this often.
const TOUCH: Duration = Duration::from_secs(3600);

/// Programs in a directory of the user's.
pub struct DiskCache {
    directory: PathBuf,
    fingerprint: [u8; 32],
    limit_bytes: u64,
    /// Forks of the process before the cache was opened.
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
    /// Forks of the process before the thread was started; None if there is none.
    thread: Option<u64>,
    /// Jobs taken from the queue that are not written yet: by the thread and by who flushes.
    writing: usize,
    /// Bytes in the directory, once they have been counted.
    stored_bytes: Option<u64>,
}

struct Job {
    path: PathBuf,
    key: Vec<u8>,
    artifact: Artifact,
}

/// What a directory holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Programs.
    pub programs: usize,
    /// Bytes of their files.
    pub size_bytes: u64,
}

/// One program of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskEntry {
    /// The file's name without suffix: the hash of the program's key.
    pub name: String,
    /// Bytes of the file.
    pub size_bytes: u64,
    /// When it was written, or marked as used (at most once an hour).
    pub used: SystemTime,
}

impl DiskCache {
    /// The cache in a directory, which is made if need be. `fingerprint` is everything a plan
    /// depends on but its key: version of the library and the like.
    ///
    /// Errors: a sentence why there can be none: the directory cannot be made, is not the user's
    /// own, or others may write to it.
    pub fn open(
        directory: &Path,
        fingerprint: &str,
        limit_bytes: u64,
    ) -> Result<DiskCache, String> {
        let shown = directory.display();
        make_directory(directory).map_err(|e| format!("{shown} cannot be made: {e}"))?;
        let metadata = fs::metadata(directory).map_err(|e| format!("{shown}: {e}"))?;
        if !metadata.is_dir() {
            return Err(format!("{shown} is no directory"));
        }
        check_owner(&metadata).map_err(|reason| format!("{shown} {reason}"))?;
        Ok(DiskCache {
            directory: directory.to_path_buf(),
            fingerprint: *blake3::hash(fingerprint.as_bytes()).as_bytes(),
            limit_bytes,
            opened: fork::count(),
            writer: Arc::default(),
        })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn path(&self, key: &[u8]) -> PathBuf {
        self.directory.join(format!("{}.plan", &blake3::hash(key).to_hex()[..40]))
    }

    /// The artefact of that key, if there is a sound one.
    pub fn load(&self, key: &[u8]) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut file = File::open(&path).ok()?;
        let sound = self.read(&mut file, key);
        if sound.is_none() {
            let _ = fs::remove_file(&path);
        }
        sound
    }

    fn read(&self, file: &mut File, key: &[u8]) -> Option<Vec<u8>> {
        let metadata = file.metadata().ok()?;
        if check_owner(&metadata).is_err() || metadata.len() > LARGEST {
            return None;
        }
        let mut bytes = Vec::with_capacity(metadata.len() as usize);
        file.take(LARGEST).read_to_end(&mut bytes).ok()?;
        let artifact = self.check(&bytes, key)?;
        // Files last used long ago make room first.
        if metadata.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > TOUCH)) {
            let _ = file.set_modified(SystemTime::now());
        }
        bytes.drain(..bytes.len() - artifact);
        Some(bytes)
    }

    /// The length of the artefact at the end of a sound file.
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

    /// Forgets the artefact of that key.
    pub fn remove(&self, key: &[u8]) {
        let _ = fs::remove_file(self.path(key));
    }

    /// Has an artefact made and written in the background.
    pub fn store_later(&self, key: &[u8], artifact: Artifact) {
        let mut queue = match self.writer.queue.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) if self.opened == fork::count() => lock(&self.writer),
            // A fork may have left the thread that holds the lock behind: better no entry than a
            // wait without end.
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

    /// Writes what is queued, on this thread. For the end of the process, and tests.
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
            limit_bytes: self.limit_bytes,
        }
    }

    /// What is there now.
    pub fn stats(&self) -> DiskStats {
        let files = files(&self.directory);
        DiskStats { programs: files.len(), size_bytes: files.iter().map(|f| f.bytes).sum() }
    }

    /// The programs that are there now, what was used last first.
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

/// What the thread that writes needs.
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
            // Compilations come in bursts: let this one end.
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

    /// Writes what is queued.
    fn drain(&self) {
        loop {
            let mut queue = lock(&self.writer);
            let Some(job) = queue.jobs.pop_front() else { return };
            queue.writing += 1;
            let known = queue.stored_bytes;
            drop(queue);
            // The directory is read without the lock: compilations wait for the lock.
            let written = self.write(job);
            let mut stored = known.map_or_else(|| self.sweep(), |bytes| bytes + written);
            if stored > self.limit_bytes {
                stored = self.evict();
            }
            let mut queue = lock(&self.writer);
            // None are counted where a fork left the thread that counted them behind.
            queue.writing = queue.writing.saturating_sub(1);
            queue.stored_bytes = Some(stored);
            drop(queue);
            self.writer.changed.notify_all();
        }
    }

    /// Writes one artefact; gives the bytes written, 0 if the disk would not have them.
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
        // Its checksum tells whether it is whole.
        match file::replace(&job.path, &bytes, file::Access::Owner, false) {
            Ok(()) => bytes.len() as u64,
            Err(_) => 0,
        }
    }

    /// Counts what is there, and removes what processes that died left behind.
    fn sweep(&self) -> u64 {
        let old = |path: &Path| {
            let modified = fs::metadata(path).and_then(|m| m.modified());
            modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > STALE))
        };
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|e| e == file::TEMPORARY) && old(&path) {
                let _ = fs::remove_file(path);
            }
        }
        files(&self.directory).iter().map(|file| file.bytes).sum()
    }

    /// Removes what was used longest ago until a quarter of the limit is free.
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

/// Makes a directory and those above it that are not there, for the user alone.
///
/// Errors: what the system says.
#[cfg(unix)]
pub fn make_directory(directory: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)
}

/// Makes a directory and those above it that are not there.
///
/// Errors: what the system says.
#[cfg(not(unix))]
pub fn make_directory(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory)
}

/// Programs are run as they are found: only the user may have put them there.
#[cfg(unix)]
fn check_owner(metadata: &fs::Metadata) -> Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != user {
        return Err(format!("belongs to user {}, not to {user}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(format!("may be written by others (mode {:o})", metadata.mode() & 0o777));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_owner(_: &fs::Metadata) -> Result<(), String> {
    Ok(())
}

#[cfg(test)]
mod tests;
