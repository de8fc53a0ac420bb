//! Bytes that are a valid PFGB file, after the checksum is corrected, are written back unchanged.
#![no_main]

use girih::ir::pfgb::{crc32, decode};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let mut bytes = bytes.to_vec();
    bytes.extend(crc32(&bytes).to_le_bytes());
    if let Ok(file) = decode(&bytes) {
        let again = file.encode().expect("what is read can be written");
        assert_eq!(decode(&again).expect("what is written can be read"), file);
    }
});
