//! See [`girih_fuzz::npy`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    girih_fuzz::npy(bytes);
});
