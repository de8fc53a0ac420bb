//! Tests of the cache on disk without an executor: it returns the artefacts that were stored, and
//! nothing else.

use super::*;

/// The limits of a cache that stores every program.
fn limits(bytes: u64) -> DiskLimits {
    DiskLimits { bytes, compile_time: Duration::ZERO }
}

/// A directory for one test, removed at its end.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Temporary {
        let path = std::env::temp_dir().join(format!("girih-disk-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Temporary(path)
    }

    fn open(&self, fingerprint: &str) -> DiskCache {
        DiskCache::open(&self.0, fingerprint, limits(1 << 20)).unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn store(cache: &DiskCache, key: &[u8], bytes: &[u8]) {
    let bytes = bytes.to_vec();
    cache.store_later(key, Box::new(move || bytes), Duration::ZERO);
    cache.flush();
}

#[test]
fn stored_programs_are_loaded_by_their_key_only() {
    let directory = Temporary::new("roundtrip");
    let cache = directory.open("v1");
    store(&cache, b"key", b"artefact");
    store(&cache, b"empty", b"");
    assert_eq!(directory.open("v1").load(b"key").unwrap(), b"artefact");
    assert_eq!(cache.load(b"empty").unwrap(), b"");
    assert_eq!(cache.load(b"other"), None);
    assert_eq!(cache.stats().programs, 2);
    cache.clear();
    assert_eq!(cache.stats(), DiskStats::default());
    assert_eq!(cache.load(b"key"), None);
}

#[test]
fn a_program_that_compiles_fast_is_not_stored() {
    let directory = Temporary::new("fast");
    let compile_time = Duration::from_millis(5);
    let limits = DiskLimits { bytes: 1 << 20, compile_time };
    let cache = DiskCache::open(&directory.0, "v1", limits).unwrap();
    cache.store_later(b"fast", Box::new(|| b"fast".to_vec()), compile_time / 2);
    cache.store_later(b"slow", Box::new(|| b"slow".to_vec()), compile_time);
    cache.flush();
    assert_eq!((cache.load(b"fast"), cache.load(b"slow")), (None, Some(b"slow".to_vec())));
}

#[test]
fn writes_happen_by_themselves_when_nothing_is_compiled() {
    let directory = Temporary::new("idle");
    let cache = directory.open("v1");
    cache.store_later(b"key", Box::new(|| b"later".to_vec()), Duration::ZERO);
    let start = std::time::Instant::now();
    while cache.load(b"key").is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "never written");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(start.elapsed() >= IDLE / 2, "written while programs may still be compiled");
}

#[test]
fn nothing_queued_while_others_are_written_is_lost() {
    let directory = Temporary::new("queued");
    let cache = directory.open("v1");
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let cache = &cache;
            scope.spawn(move || {
                for job in 0..50u8 {
                    let artifact = move || {
                        std::thread::sleep(Duration::from_micros(500 * u64::from(job % 4)));
                        vec![thread, job]
                    };
                    cache.store_later(&[thread, job], Box::new(artifact), Duration::ZERO);
                    if job % 10 == thread {
                        cache.flush();
                        assert!(cache.load(&[thread, job]).is_some(), "flushed, yet not written");
                    }
                }
            });
        }
    });
    cache.flush();
    assert_eq!(cache.stats().programs, 200);
}

#[test]
fn a_file_damaged_anywhere_is_ignored_and_removed() {
    let directory = Temporary::new("damage");
    let cache = directory.open("v1");
    let (key, artifact) = (b"a key of some length", b"an artefact of some length");
    store(&cache, key, artifact);
    let path = cache.path(key);
    let whole = fs::read(&path).unwrap();
    let mut damaged: Vec<Vec<u8>> = Vec::new();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x40;
        damaged.push(bytes);
        damaged.push(whole[..at].to_vec());
    }
    damaged.push([whole.as_slice(), b"x"].concat());
    for bytes in damaged {
        fs::write(&path, &bytes).unwrap();
        assert_eq!(cache.load(key), None);
        assert!(!path.exists());
    }
    store(&cache, key, artifact);
    assert_eq!(cache.load(key).unwrap(), artifact);
}

#[test]
fn a_file_of_another_key_with_the_same_hash_is_not_loaded() {
    let directory = Temporary::new("collision");
    let cache = directory.open("v1");
    store(&cache, b"first key", b"first");
    // A file is named by the hash of its key, so this is what a collision of hashes looks like.
    fs::copy(cache.path(b"first key"), cache.path(b"other key")).unwrap();
    assert_eq!(cache.load(b"other key"), None);
    assert_eq!(cache.load(b"first key").unwrap(), b"first");
    store(&cache, b"other key", b"other");
    assert_eq!(cache.load(b"other key").unwrap(), b"other");
}

#[test]
fn a_file_that_is_deleted_is_stored_again() {
    let directory = Temporary::new("deleted");
    let cache = directory.open("v1");
    store(&cache, b"key", b"artefact");
    fs::remove_file(cache.path(b"key")).unwrap();
    assert_eq!(cache.load(b"key"), None);
    store(&cache, b"key", b"artefact");
    assert_eq!(cache.load(b"key").unwrap(), b"artefact");
}

#[test]
fn a_file_of_another_version_is_ignored_and_replaced() {
    let directory = Temporary::new("version");
    let (old, new) = (directory.open("v1"), directory.open("v2"));
    store(&old, b"key", b"old");
    assert_eq!(new.load(b"key"), None);
    assert!(!old.path(b"key").exists());
    store(&new, b"key", b"new");
    assert_eq!(new.load(b"key").unwrap(), b"new");
}

#[test]
fn the_directory_stays_within_its_limit() {
    let directory = Temporary::new("limit");
    let cache = DiskCache::open(&directory.0, "v1", limits(10_000)).unwrap();
    for i in 0..50u8 {
        store(&cache, &[i], &[i; 1000]);
        assert!(cache.stats().size_bytes <= 10_000);
    }
    assert!(cache.stats().programs >= 5);
    store(&cache, b"large", &[0; 20_000]);
    assert_eq!(cache.load(b"large"), None, "larger than the whole cache");
}

#[test]
fn writers_at_once_leave_whole_files() {
    let directory = Temporary::new("writers");
    std::thread::scope(|scope| {
        for writer in 0..4u8 {
            let directory = &directory;
            scope.spawn(move || {
                let cache = directory.open("v1");
                for i in 0..30u8 {
                    // `store_later` drops the entry if it would have to wait for a lock.
                    let found = loop {
                        store(&cache, &[i], &[writer; 4000]);
                        if let Some(found) = cache.load(&[i]) {
                            break found;
                        }
                    };
                    assert!(found.len() == 4000 && found.iter().all(|b| *b == found[0]));
                }
            });
        }
    });
    assert_eq!(directory.open("v1").stats().programs, 30);
    let left = fs::read_dir(&directory.0).unwrap().count();
    assert_eq!(left, 30, "temporary files are gone");
}

#[cfg(unix)]
#[test]
fn a_directory_others_may_write_to_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = Temporary::new("mode");
    store(&directory.open("v1"), b"key", b"artefact");
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o777)).unwrap();
    let error = DiskCache::open(&directory.0, "v1", limits(1 << 20)).err().unwrap();
    assert!(error.contains("777"), "{error}");
    fs::set_permissions(&directory.0, fs::Permissions::from_mode(0o755)).unwrap();
    let cache = directory.open("v1");
    fs::set_permissions(cache.path(b"key"), fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(cache.load(b"key"), None, "a file others may write to");
    let root = rustix::process::geteuid().is_root();
    let foreign = if root { Path::new("/nonexistent-user") } else { Path::new("/usr") };
    if !root {
        let error = DiskCache::open(foreign, "v1", limits(1 << 20)).err().unwrap();
        assert!(error.contains("belongs to user 0"), "{error}");
    }
    let file = directory.0.join("file");
    fs::write(&file, b"").unwrap();
    assert!(DiskCache::open(&file, "v1", limits(1 << 20)).is_err());
}
