//! See [`girih_fuzz::kernels`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    girih_fuzz::kernels(bytes);
});
