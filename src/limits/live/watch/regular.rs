//! Opens regular files only, without waiting.

use std::{
    fs::{self, File, FileType, OpenOptions},
    io,
    path::Path,
};

/// Opens a regular file for reading. Anything else under the path is an error, and never a wait.
pub(super) fn open(path: &Path) -> io::Result<File> {
    // To open a device can have an effect, so most of what is no regular file is refused before it is opened.
    require_regular(fs::metadata(path)?.file_type())?;
    open_without_wait(path)
}

/// Opens a regular file, whatever the path has led to before. Another process may have put a pipe or a device in its
/// place meanwhile, and a plain open of a pipe waits for a writer, possibly for ever.
fn open_without_wait(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;

        // Without `O_NOCTTY`, a terminal could become the one that controls the service.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let file = options.open(path)?;
    require_regular(file.metadata()?.file_type())?;
    Ok(file)
}

fn require_regular(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let message =
        format!("it is {} and not a regular file; write the limits to a file, and rename it to this path", name(kind));
    Err(io::Error::other(message))
}

/// What a file is, with an article.
fn name(kind: FileType) -> &'static str {
    if kind.is_dir() {
        return "a directory";
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;

        if kind.is_fifo() {
            return "a pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    "something else"
}

#[cfg(all(test, unix))]
mod tests {
    use std::process::Command;

    use super::*;

    /// Whether the check before the open has seen a file does not matter.
    #[test]
    fn a_pipe_or_a_device_is_refused_after_it_is_opened_too() {
        let pipe = std::env::temp_dir().join(format!("tollgate-pipe-{}", std::process::id()));
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let refused = |path: &Path| open_without_wait(path).unwrap_err().to_string();
        assert!(refused(&pipe).starts_with("it is a pipe and not a regular file; write"), "{}", refused(&pipe));
        assert!(refused(Path::new("/dev/null")).starts_with("it is a device"));
        assert!(refused(Path::new("/")).starts_with("it is a directory"));
        fs::remove_file(&pipe).unwrap();
    }
}
