//! The `girih` command; the library of this crate implements it.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut out = std::io::stdout().lock();
    let mut err = std::io::stderr().lock();
    ExitCode::from(girih_cli::run(std::env::args_os().skip(1), &mut out, &mut err))
}
