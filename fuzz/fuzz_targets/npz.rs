//! Bytes that are not a valid `.npz` file are an error and not a panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = girih::io::from_npz(bytes);
});
