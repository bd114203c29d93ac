//! The program that `tests/run --browser` has built.

use std::{env, path::PathBuf, sync::LazyLock};

pub(crate) struct Programs {
    pub(crate) server: PathBuf,
}

pub(crate) static PROGRAMS: LazyLock<Programs> =
    LazyLock::new(|| Programs { server: variable("TOLLGATE_SERVER").into() });

pub(crate) fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set; start the tests with tests/run --browser"))
}
