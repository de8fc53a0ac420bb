//! See [`girih_fuzz::npz`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    girih_fuzz::npz(bytes);
});
