//! Builds the programs of `examples/`.

use std::process::{Command, Stdio};
use std::{env, path::PathBuf, sync::LazyLock};

use serde_json::Value;

/// The paths of the programs.
pub(crate) struct Programs {
    pub(crate) ai_gateway: PathBuf,
    pub(crate) inspect: PathBuf,
    pub(crate) model_gateway: PathBuf,
    pub(crate) server: PathBuf,
}

/// Builds all programs once, with the profile of the tests and the features of the whole workspace, so that nothing is
/// compiled that `tests/run` has compiled already: also without the variables that cargo sets for this test, because
/// build scripts that depend on one of them would run again.
pub(crate) static PROGRAMS: LazyLock<Programs> = LazyLock::new(|| {
    let this = env::current_exe().unwrap();
    let profile_directory = this.ancestors().nth(2).unwrap();
    let profile = match profile_directory.file_name().unwrap().to_str().unwrap() {
        "debug" => "dev",
        profile => profile,
    };
    let of_this_test =
        ["CARGO_BIN_", "CARGO_CRATE_", "CARGO_MANIFEST_", "CARGO_PKG_", "CARGO_PRIMARY_", "CARGO_TARGET_TMP"];
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in env::vars_os() {
        if of_this_test.iter().any(|prefix| name.to_string_lossy().starts_with(prefix)) {
            cargo.env_remove(name);
        }
    }
    let output = cargo
        .args(["build", "--workspace", "--all-features", "--offline", "--locked", "--message-format", "json"])
        .args(["--bin", "tollgate-inspect", "--bin", "tollgate-ai-gateway"])
        .args(["--example", "server", "--example", "model_gateway"])
        .args(["--profile", profile, "--target-dir"])
        .arg(profile_directory.parent().unwrap())
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success());
    let messages = String::from_utf8(output.stdout).unwrap();
    Programs {
        ai_gateway: built(&messages, "tollgate-ai-gateway"),
        inspect: built(&messages, "tollgate-inspect"),
        model_gateway: built(&messages, "model_gateway"),
        server: built(&messages, "server"),
    }
});

/// The path of the program `name`, from the messages of cargo.
fn built(messages: &str, name: &str) -> PathBuf {
    let messages = messages.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut programs = messages.filter(|message| message["target"]["name"] == name);
    let path = programs.find_map(|message| message["executable"].as_str().map(PathBuf::from));
    path.expect("cargo names each program that it has built")
}
