//! Bytes that are no `.safetensors` file are an error, whatever they are.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = girih::io::from_safetensors(bytes);
});
