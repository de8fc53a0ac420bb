//! Directories and files that nobody but the user can change, for what the library keeps between
//! processes: compiled programs run without further checks, and a file that another user planted
//! could make the library overwrite a file of this user.
//!
//! The checks read every directory from the root on, and every symbolic link on the way: what a
//! directory contains is only as safe as the directory is.

use crate::file::{self, Access};
use std::fs::{self, File, OpenOptions};
use std::io::{Error, ErrorKind, Read, Result};
use std::path::{Path, PathBuf};

/// The directory, which is created if necessary. The returned path has no symbolic links.
///
/// Errors: a sentence with the reason: the directory cannot be created, or another user may change
/// it, or a directory or a symbolic link on the way to it.
pub fn directory(path: &Path) -> std::result::Result<PathBuf, String> {
    let shown = path.display();
    let whole = std::path::absolute(path).map_err(|error| format!("{shown}: {error}"))?;
    let found = walk(&whole)?;
    let metadata = fs::symlink_metadata(&found).map_err(|error| format!("{shown}: {error}"))?;
    check_owner(&metadata).map_err(|reason| format!("{} {reason}", found.display()))?;
    Ok(found)
}

/// Opens a file for reading, in a directory from [`directory`]. Never waits, whatever is in the
/// place of the file.
///
/// Errors: those of the system; [`ErrorKind::PermissionDenied`] for anything but a regular file
/// that belongs to the user and that nobody else can write.
pub fn open(path: &Path) -> Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt;
        // A FIFO would make the call wait, and a terminal could become the one of the process.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        options.custom_flags(flags.bits() as i32);
    }
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    let refused = |reason: String| Error::new(ErrorKind::PermissionDenied, reason);
    if !metadata.is_file() {
        return Err(refused("not a regular file".into()));
    }
    check_owner(&metadata).map_err(refused)?;
    Ok(file)
}

/// Reads a file of at most `limit` bytes; see [`open`].
///
/// Errors: as [`open`]; [`ErrorKind::FileTooLarge`].
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let file = open(path)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(ErrorKind::FileTooLarge.into()),
        false => Ok(bytes),
    }
}

/// Atomically replaces a file in a directory from [`directory`], or whatever is in its place except
/// a directory. Follows no symbolic link, and writes to no file that exists.
///
/// Errors: those of the system.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    file::replace(path, bytes, Access::Owner, false)
}

/// Only the user may be able to write what the library trusts.
#[cfg(unix)]
fn check_owner(metadata: &fs::Metadata) -> std::result::Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != user {
        return Err(format!("belongs to user {}, not to {user}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(format!("may be written by others (mode {:o})", metadata.mode() & 0o7777));
    }
    Ok(())
}

#[cfg(not(unix))]
fn check_owner(_: &fs::Metadata) -> std::result::Result<(), String> {
    Ok(())
}

/// Fails for a directory or a symbolic link on the way that another user may change: what is in it,
/// or where it points. Others may write to a directory with the sticky bit, such as `/tmp`, since
/// they cannot rename or remove what is not theirs.
#[cfg(unix)]
fn check_step(metadata: &fs::Metadata) -> std::result::Result<(), String> {
    use std::os::unix::fs::MetadataExt;
    const STICKY: u32 = 0o1000;
    let (user, owner) = (rustix::process::geteuid().as_raw(), metadata.uid());
    if owner != user && owner != 0 {
        return Err(format!("belongs to user {owner}, not to {user} or root"));
    }
    let mode = metadata.mode();
    if !metadata.is_symlink() && mode & 0o022 != 0 && mode & STICKY == 0 {
        return Err(format!("may be written by others (mode {:o})", mode & 0o7777));
    }
    Ok(())
}

/// Follows an absolute path one component at a time, creates missing directories, and checks
/// everything on the way.
#[cfg(unix)]
fn walk(path: &Path) -> std::result::Result<PathBuf, String> {
    use std::path::Component;
    const MAX_LINKS: usize = 40;
    let mut links = 0;
    let mut at = PathBuf::from("/");
    check_found(&at)?;
    // The components to follow, the next one last.
    let parts = |path: &Path| -> Vec<PathBuf> {
        path.components().rev().map(|part| PathBuf::from(part.as_os_str())).collect()
    };
    let mut rest = parts(path);
    while let Some(part) = rest.pop() {
        match part.components().next() {
            Some(Component::RootDir) => at = PathBuf::from("/"),
            Some(Component::ParentDir) => {
                at.pop();
            }
            Some(Component::Normal(name)) => {
                let next = at.join(name);
                let metadata = match fs::symlink_metadata(&next) {
                    Err(error) if error.kind() == ErrorKind::NotFound => {
                        make(&next)?;
                        check_found(&next)?
                    }
                    _ => check_found(&next)?,
                };
                if !metadata.is_symlink() {
                    at = next;
                    continue;
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(format!("{} has too many symbolic links", path.display()));
                }
                let target = fs::read_link(&next);
                rest.extend(parts(
                    &target.map_err(|error| format!("{}: {error}", next.display()))?,
                ));
            }
            _ => {}
        }
    }
    Ok(at)
}

/// The metadata of a directory or a symbolic link that passes [`check_step`].
#[cfg(unix)]
fn check_found(path: &Path) -> std::result::Result<fs::Metadata, String> {
    let shown = path.display();
    let metadata = fs::symlink_metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    if !metadata.is_dir() && !metadata.is_symlink() {
        return Err(format!("{shown} is not a directory"));
    }
    check_step(&metadata).map_err(|reason| format!("{shown} {reason}"))?;
    Ok(metadata)
}

/// Creates a directory that only the user can use. Another process may be faster.
#[cfg(unix)]
fn make(path: &Path) -> std::result::Result<(), String> {
    use std::os::unix::fs::DirBuilderExt;
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(format!("{} cannot be made: {error}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Creates the directory. The permissions of this system are not checked.
#[cfg(not(unix))]
fn walk(path: &Path) -> std::result::Result<PathBuf, String> {
    let shown = path.display();
    fs::create_dir_all(path).map_err(|error| format!("{shown} cannot be made: {error}"))?;
    Ok(path.to_path_buf())
}

#[cfg(all(test, unix))]
mod tests;
