//! Kernel text that parses is verified, and its printed text parses to the same program.
#![no_main]

use girih_kernel::Program;

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(program) = Program::parse(text) {
        girih_kernel::verify::verify(&program).expect("what is parsed verifies");
        let again = Program::parse(&program.to_string()).expect("what is printed parses");
        assert_eq!(again, program);
    }
});
