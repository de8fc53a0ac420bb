//! See [`girih_fuzz::pfgb`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    girih_fuzz::pfgb(bytes);
});
