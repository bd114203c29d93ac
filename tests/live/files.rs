//! Limits in TOML, and directories for their files.

use std::sync::atomic::{AtomicU64, Ordering};
use std::{error::Error, fs, path::PathBuf};

use tollgate::limits::LimitsConfig;

/// The limits of a file in TOML.
pub(crate) fn read(text: &str) -> Result<LimitsConfig, Box<dyn Error + Send + Sync>> {
    Ok(toml::from_str(text)?)
}

pub(crate) fn limits(text: &str) -> LimitsConfig {
    read(text).unwrap()
}

/// Limits with the policy `p` as the only one. `policy` are its fields.
pub(crate) fn only(policy: &str) -> LimitsConfig {
    limits(&format!("[policies.p]\n{policy}\n[default]\npolicies = ['p']\n"))
}

/// A directory of one test, removed at its end.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tollgate-live-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
