//! See [`girih_fuzz::safetensors`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    girih_fuzz::safetensors(bytes);
});
