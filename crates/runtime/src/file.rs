//! Atomic replacement of files: a file is written under an unpredictable temporary name in the same
//! directory, then renamed.

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The maximum number of symbolic links to follow.
const MAX_LINKS: usize = 40;
/// The maximum number of temporary names to try.
const MAX_NAMES: usize = 100;
/// The suffix of temporary files.
pub const TEMPORARY: &str = "tmp";

/// The access mode of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The default mode, subject to the user's mask.
    Usual,
    /// Accessible only to the owner.
    Owner,
}

/// Atomically replaces the contents of a file: readers see either the whole old file or the whole
/// new file. The new file gets the mode of an existing one. A symbolic link stays and its target is
/// replaced. Anything else than a file (a terminal, a pipe) is written directly. With `durable`,
/// the bytes are on the disk on return.
///
/// Errors: those of the system; then the file is unchanged.
pub fn replace(path: &Path, bytes: &[u8], access: Access, durable: bool) -> Result<()> {
    let place = followed(path)?;
    let old = match fs::symlink_metadata(&place) {
        Ok(metadata) if metadata.is_dir() => return Err(ErrorKind::IsADirectory.into()),
        Ok(metadata) if !metadata.is_file() => {
            return OpenOptions::new().write(true).open(&place)?.write_all(bytes);
        }
        found => found.ok(),
    };
    let (mut file, beside) = create_beside(&place, access)?;
    let written = || -> Result<()> {
        file.write_all(bytes)?;
        if let Some(old) = &old {
            file.set_permissions(old.permissions())?;
        }
        if durable {
            file.sync_all()?;
        }
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
        let name = format!(".girih-{:016x}.{TEMPORARY}", hasher.finish());
        let beside = directory(place).join(name);
        match options.open(&beside) {
            Ok(file) => return Ok((file, beside)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(Error::other("no name is free for a temporary file"))
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
