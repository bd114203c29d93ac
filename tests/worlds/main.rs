//! Runs simulated worlds: see `lib.rs`.

use std::process::ExitCode;

/// Worlds allocate much, and this is faster than the allocator of the C library.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    tollgate_worlds::run_program(&arguments)
}
