//! Clients that are programs.

use std::process::Output;

use tokio::process::Command;

/// Runs a program and returns what it prints, or nothing if there is no such program: its test then passes, with a word
/// on stderr. `tests/run` installs what is missing, and tells by `TOLLGATE_CLIENTS` that nothing is.
pub(crate) async fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).env("NO_PROXY", "*").output().await;
    match output {
        Ok(Output { status, stdout, .. }) if status.success() => Some(String::from_utf8(stdout).unwrap()),
        Ok(output) => panic!("{program}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(error) if required() => panic!("{program}: {error}"),
        Err(error) => {
            eprintln!("skipped: {program}: {error}");
            None
        }
    }
}

pub(crate) fn required() -> bool {
    std::env::var_os("TOLLGATE_CLIENTS").is_some_and(|clients| clients == "required")
}
