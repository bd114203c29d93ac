//! Runs client programs.

use std::process::Output;

use tokio::process::Command;

/// Runs a program and returns its output, or `None` if the program is not installed: the test then passes with a note
/// on stderr. `tests/run` installs missing programs and sets `TOLLGATE_CLIENTS=required`, which makes a missing one
/// fail.
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
