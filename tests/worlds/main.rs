//! Runs simulated worlds: see `lib.rs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    tollgate_worlds::run_program(&arguments)
}
