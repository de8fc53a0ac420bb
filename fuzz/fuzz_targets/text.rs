//! See [`girih_fuzz::text`].
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    girih_fuzz::text(bytes);
});
