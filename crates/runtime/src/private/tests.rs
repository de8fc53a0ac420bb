//! Tests of private directories and files. As root they play two users; otherwise the parts that
//! need another user's files are left out.

use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

const OTHER: u32 = 12345;

/// A directory for one test, removed at its end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        let path = std::env::temp_dir().canonicalize().unwrap();
        let path = path.join(format!("girih-private-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        set_mode(&path, 0o755);
        Temporary(path)
    }

    fn folder(&self, name: &str, mode: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(&path).unwrap();
        set_mode(&path, mode);
        path
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn a_missing_directory_is_made_for_the_user_alone() {
    let temporary = Temporary::new("made");
    let path = temporary.0.join("a/../b/c");
    assert_eq!(directory(&path), Ok(temporary.0.join("b/c")));
    for made in ["a", "b", "b/c"] {
        assert_eq!(fs::metadata(temporary.0.join(made)).unwrap().mode() & 0o777, 0o700);
    }
    assert_eq!(directory(&path), Ok(temporary.0.join("b/c")), "a second time");
}

#[test]
fn a_directory_that_others_may_change_is_refused_wherever_it_is_on_the_way() {
    let temporary = Temporary::new("modes");
    // The mode of a directory, whether a private directory may be in it, and whether it is one.
    let cases = [
        (0o700, true, true),
        (0o755, true, true),
        (0o770, false, false),
        (0o775, false, false),
        (0o757, false, false),
        (0o777, false, false),
        (0o1777, true, false),
        (0o1770, true, false),
    ];
    for (mode, outer, own) in cases {
        let folder = temporary.folder(&format!("{mode:o}"), mode);
        assert_eq!(directory(&folder).is_ok(), own, "{mode:o}");
        let inner = directory(&folder.join("inner"));
        assert_eq!(inner.is_ok(), outer, "in {mode:o}: {inner:?}");
        let deep = directory(&folder.join("inner/deep/deeper"));
        assert_eq!(deep.is_ok(), outer, "in {mode:o}: {deep:?}");
        if !outer {
            let reason = inner.unwrap_err();
            assert!(reason.contains("may be written by others"), "{reason}");
            assert!(reason.contains(&format!("{mode:o}")), "{reason}");
        }
    }
    let file = temporary.0.join("file");
    fs::write(&file, "").unwrap();
    assert!(directory(&file).unwrap_err().contains("not a directory"));
    assert!(directory(&file.join("inner")).unwrap_err().contains("not a directory"));
}

#[test]
fn a_symbolic_link_is_as_safe_as_what_it_points_to() {
    let temporary = Temporary::new("links");
    let (good, bad) = (temporary.folder("good", 0o700), temporary.folder("bad", 0o777));
    let link = |name: &str, target: &Path| {
        let path = temporary.0.join(name);
        symlink(target, &path).unwrap();
        path
    };
    let to_good = link("to-good", &good);
    assert_eq!(directory(&to_good.join("x")), Ok(good.join("x")));
    assert_eq!(directory(&link("relative", Path::new("good"))), Ok(good.clone()));
    assert_eq!(directory(&link("twice", Path::new("to-good/../relative"))), Ok(good));
    assert!(directory(&link("to-bad", &bad).join("x")).is_err());
    assert!(directory(&link("loop", Path::new("loop"))).unwrap_err().contains("symbolic links"));
    let dangling = link("dangling", Path::new("not/yet"));
    assert_eq!(directory(&dangling), Ok(temporary.0.join("not/yet")));
}

#[test]
fn what_another_user_owns_is_refused() {
    if !is_root() {
        return;
    }
    let temporary = Temporary::new("owner");
    let theirs = temporary.folder("theirs", 0o755);
    let inner = temporary.folder("theirs/inner", 0o700);
    chown(&theirs, Some(OTHER), None).unwrap();
    for path in [&theirs, &inner, &inner.join("new")] {
        let reason = directory(path).unwrap_err();
        assert!(reason.contains("belongs to user 12345"), "{reason}");
    }
    // In a directory such as /tmp, another user may plant a link or a directory.
    let shared = temporary.folder("shared", 0o1777);
    let planted = shared.join("link");
    symlink(temporary.folder("mine", 0o700), &planted).unwrap();
    std::os::unix::fs::lchown(&planted, Some(OTHER), None).unwrap();
    assert!(directory(&planted).is_err());
    let folder = temporary.folder("shared/folder", 0o700);
    chown(&folder, Some(OTHER), None).unwrap();
    assert!(directory(&folder.join("programs")).is_err());
    let file = temporary.0.join("file");
    fs::write(&file, "planted").unwrap();
    chown(&file, Some(OTHER), None).unwrap();
    assert!(read(&file, 100).is_err());
}

#[test]
fn only_regular_files_are_read_and_anything_else_is_replaced_without_waiting() {
    let temporary = Temporary::new("kinds");
    let victim = temporary.0.join("victim");
    let place = |name: &str| temporary.0.join(name);
    let start = Instant::now();
    let kinds = ["fifo", "socket", "link", "dangling", "hard", "writable", "terminal"];
    let _listener = UnixListener::bind(place("socket")).unwrap();
    for kind in kinds {
        fs::write(&victim, "precious").unwrap();
        let path = place(kind);
        match kind {
            "fifo" => {
                let made = std::process::Command::new("mkfifo").arg(&path).status();
                assert!(made.unwrap().success());
            }
            "link" => symlink(&victim, &path).unwrap(),
            "dangling" => symlink(place("nothing"), &path).unwrap(),
            "hard" => fs::hard_link(&victim, &path).unwrap(),
            "writable" => {
                fs::write(&path, "by others").unwrap();
                set_mode(&path, 0o666);
            }
            "terminal" => symlink("/dev/tty", &path).unwrap(),
            _ => {}
        }
        let readable = read(&path, 100);
        assert_eq!(readable.is_ok(), kind == "hard", "{kind}: {readable:?}");
        write(&path, b"own").unwrap();
        assert_eq!(read(&path, 100).unwrap(), b"own", "{kind}");
        assert!(fs::symlink_metadata(&path).unwrap().is_file(), "{kind}");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600, "{kind}");
        assert_eq!(fs::read(&victim).unwrap(), b"precious", "{kind}");
    }
    assert!(!place("nothing").exists());
    assert!(start.elapsed() < Duration::from_secs(10));
    let folder = temporary.folder("folder", 0o700);
    assert!(read(&folder, 100).is_err() && write(&folder, b"own").is_err());
    assert!(fs::metadata(&folder).unwrap().is_dir());
    assert!(read(&place("hard"), 2).is_err_and(|e| e.kind() == ErrorKind::FileTooLarge));
}
