//! Atomic replacement of files: a file is written under an unpredictable temporary name in the same
//! directory, then renamed. A process that is killed meanwhile leaves its temporary file, which the
//! next replacement in the directory removes. Files being written are locked, so that the files of
//! live processes, on other machines too, stay.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The maximum number of symbolic links to follow.
const MAX_LINKS: usize = 40;
/// The maximum number of temporary names to try.
const MAX_NAMES: usize = 100;
/// The prefix and the suffix of the names of temporary files.
const PREFIX: &str = ".girih-";
const SUFFIX: &str = ".tmp";
/// The maximum number of files in a directory that are searched for temporary files.
const MAX_SEARCHED: usize = 10_000;

/// How a file is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The new file gets the mode of an existing one, or the default mode, subject to the user's
    /// mask. A symbolic link stays and its target is replaced. Anything else than a file (a
    /// terminal, a pipe) is written directly.
    Usual,
    /// The new file is accessible only to the owner, whatever it replaces: a symbolic link is
    /// replaced, not followed.
    Owner,
}

/// Atomically replaces the contents of a file: readers see either the whole old file or the whole
/// new file. With `durable`, the bytes are on the disk on return.
///
/// Errors: those of the system; then the file is unchanged.
pub fn replace(path: &Path, bytes: &[u8], access: Access, durable: bool) -> Result<()> {
    let place = match access {
        Access::Usual => followed(path)?,
        Access::Owner => path.to_path_buf(),
    };
    let old = match fs::symlink_metadata(&place) {
        Ok(metadata) if metadata.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(metadata) if access == Access::Usual && !metadata.is_file() => {
            return OpenOptions::new().write(true).open(&place)?.write_all(bytes);
        }
        found => found.ok().filter(|_| access == Access::Usual),
    };
    remove_stale(directory(&place));
    let (mut file, beside) = create_beside(&place, access)?;
    let mut written = || -> Result<()> {
        file.write_all(bytes)?;
        if let Some(old) = &old {
            file.set_permissions(old.permissions())?;
        }
        if durable {
            file.sync_all()?;
        }
        // The lock lasts until the file has its name, where an open file can be renamed.
        #[cfg(not(unix))]
        drop(file);
        fs::rename(&beside, &place)
    };
    written().inspect_err(|_| {
        let _ = fs::remove_file(&beside);
    })?;
    if durable {
        sync_directory(&place);
    }
    Ok(())
}

/// Removes the user's temporary files that no process is writing. A file system without locks keeps
/// them.
#[cfg(unix)]
fn remove_stale(directory: &Path) {
    use rustix::fs::OFlags;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(directory).into_iter().flatten().take(MAX_SEARCHED).flatten() {
        let is_temporary = entry.file_name().to_str().is_some_and(|name| {
            let middle = name.strip_prefix(PREFIX).and_then(|rest| rest.strip_suffix(SUFFIX));
            middle.is_some_and(|m| m.len() == 16 && m.bytes().all(|b| b.is_ascii_hexdigit()))
        });
        if !is_temporary {
            continue;
        }
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags.bits() as i32);
        let Ok(file) = options.open(entry.path()) else { continue };
        let own = file.metadata().is_ok_and(|m| m.is_file() && m.uid() == user);
        if own && file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Removes nothing: an open file cannot be renamed on this system, so files are not locked.
#[cfg(not(unix))]
fn remove_stale(_: &Path) {}

/// The target of a path that may be a symbolic link, even if the target does not exist yet.
fn followed(path: &Path) -> Result<PathBuf> {
    let mut place = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&place) {
            Ok(target) => place = directory(&place).join(target),
            Err(_) => return Ok(place),
        }
    }
    Err(Error::other("too many symbolic links"))
}

fn directory(place: &Path) -> &Path {
    place.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a temporary file in the directory of `place`; returns the file and its path. Does not
/// follow a symbolic link of that name.
fn create_beside(place: &Path, access: Access) -> Result<(File, PathBuf)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(if access == Access::Owner { 0o600 } else { 0o666 });
    }
    #[cfg(not(unix))]
    let _ = access;
    for _ in 0..MAX_NAMES {
        // `RandomState` has a random key, so other users cannot predict the name.
        let mut hasher = RandomState::new().build_hasher();
        hasher.write_u64(NEXT.fetch_add(1, Relaxed));
        hasher.write_u32(std::process::id());
        let beside = directory(place).join(format!("{PREFIX}{:016x}{SUFFIX}", hasher.finish()));
        match options.open(&beside) {
            // Another process may take the file for a stale one before it is locked.
            Ok(file) if !is_locked(&file) => {}
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::other("no name is free for a temporary file"))
}

/// Locks a new temporary file; false if [`remove_stale`] of another process removes it. A file system
/// without locks has no stale files removed either.
#[cfg(unix)]
fn is_locked(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let lost = matches!(file.try_lock(), Err(fs::TryLockError::WouldBlock));
    !lost && file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
}

#[cfg(not(unix))]
fn is_locked(_: &File) -> bool {
    true
}

/// Syncs the directory, so that the renaming is durable, if the system supports it.
fn sync_directory(place: &Path) {
    #[cfg(unix)]
    let _ = File::open(directory(place)).and_then(|directory| directory.sync_all());
    #[cfg(not(unix))]
    let _ = place;
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn fresh(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("girih-file-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn put(path: &Path, bytes: &[u8]) -> Result<()> {
        replace(path, bytes, Access::Usual, true)
    }

    #[test]
    fn a_file_keeps_its_mode_and_a_link_its_target() {
        let directory = fresh("mode");
        let (file, link) = (directory.join("a"), directory.join("sub/link"));
        fs::create_dir(directory.join("sub")).unwrap();
        put(&file, b"one").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        symlink("../a", &link).unwrap();
        put(&link, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let dangling = directory.join("dangling");
        symlink("new", &dangling).unwrap();
        put(&dangling, b"three").unwrap();
        assert_eq!(fs::read(directory.join("new")).unwrap(), b"three");
        replace(&directory.join("own"), b"", Access::Owner, false).unwrap();
        let mode = fs::metadata(directory.join("own")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_failed_write_changes_nothing_and_leaves_no_temporary_file() {
        let directory = fresh("fails");
        let (looped, inside) = (directory.join("loop"), directory.join("none/file"));
        symlink("loop", &looped).unwrap();
        for place in [&looped, &inside, &directory] {
            assert!(put(place, b"bytes").is_err());
        }
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        put(Path::new("/dev/null"), b"bytes").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn temporary_files_of_dead_processes_are_removed_and_those_being_written_stay() {
        let directory = fresh("stale");
        let name = |middle: &str| directory.join(format!("{PREFIX}{middle}{SUFFIX}"));
        let (dead, live) = (name("0123456789abcdef"), name("fedcba9876543210"));
        let others =
            [name("short"), name("0123456789abcdeg"), directory.join("0123456789abcdef.tmp")];
        let other_kind = name("00000000000000aa");
        fs::create_dir(&other_kind).unwrap();
        symlink(&others[0], name("00000000000000bb")).unwrap();
        for path in others.iter().chain([&dead, &live]) {
            fs::write(path, b"half").unwrap();
        }
        let writer = File::options().write(true).open(&live).unwrap();
        writer.try_lock().unwrap();
        put(&directory.join("file"), b"whole").unwrap();
        assert!(!dead.exists());
        assert!(live.exists() && others.iter().all(|path| path.exists()) && other_kind.is_dir());
        drop(writer);
        put(&directory.join("file"), b"again").unwrap();
        assert!(!live.exists(), "its process has died meanwhile");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn writers_in_one_directory_do_not_remove_each_others_files() {
        let directory = fresh("writers");
        std::thread::scope(|scope| {
            for i in 0..4u8 {
                let file = directory.join(i.to_string());
                scope.spawn(move || {
                    for _ in 0..100 {
                        put(&file, &[i; 100]).unwrap();
                        assert_eq!(fs::read(&file).unwrap(), [i; 100]);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 4);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn readers_see_a_complete_file_during_writes() {
        let directory = fresh("whole");
        let file = directory.join("file");
        let contents: Vec<Vec<u8>> = (0..3).map(|i| vec![i; 100_000 + i as usize]).collect();
        put(&file, &contents[0]).unwrap();
        std::thread::scope(|scope| {
            for own in &contents {
                let file = &file;
                scope.spawn(move || {
                    for _ in 0..20 {
                        replace(file, own, Access::Usual, false).unwrap();
                    }
                });
            }
            for _ in 0..200 {
                assert!(contents.contains(&fs::read(&file).unwrap()));
            }
        });
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }
}
