//! Reads the files that the arguments name. Sizes and times are bounded, because a mistyped name may lead to a device
//! without an end, or to a pipe without a writer.

use std::{fs::File, io::Read, sync::mpsc, thread, time::Duration};

/// The largest sizes of a file in bytes: of one with limits, which is that of the service, or with certificates; and of
/// one with a secret, a token or a URL.
const MAX_BYTES: u64 = 16 << 20;
const MAX_SECRET_BYTES: u64 = 64 << 10;

/// A pipe opens as soon as a program has it open for writing. The shell starts that program together with this one.
const OPENS_WITHIN: Duration = Duration::from_secs(1);
/// The command behind a pipe may take its time, or ask for a password.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

const NO_WRITER: &str = "no program writes to this pipe; name a file, or write <(COMMAND)";
const NO_END: &str = "it has not ended within a minute; write its content to a file, and name that";

/// The URL, or the content of the file in `@FILE`.
pub(crate) fn read_url(url: String) -> Result<String, String> {
    match url.strip_prefix('@') {
        Some(path) => text(path, MAX_SECRET_BYTES).map(|text| text.trim().to_owned()),
        None => Ok(url),
    }
}

/// The secret or the token in a file, without the line break at its end, which editors and `echo` add.
pub(crate) fn read_secret(path: &str) -> Result<Vec<u8>, String> {
    let mut content = content(path, MAX_SECRET_BYTES)?;
    if content.ends_with(b"\n") {
        content.pop();
        if content.ends_with(b"\r") {
            content.pop();
        }
    }
    Ok(content)
}

/// The certificates or the private key in a file.
pub(crate) fn read_certificates(path: &str) -> Result<Vec<u8>, String> {
    content(path, MAX_BYTES)
}

/// The limits in a file.
pub(crate) fn read_limits(path: &str) -> Result<String, String> {
    text(path, MAX_BYTES)
}

fn text(path: &str, most: u64) -> Result<String, String> {
    String::from_utf8(content(path, most)?).map_err(|_| cannot_read(path, "it is not UTF-8"))
}

/// The content of a file. The thread that reads it may be stuck in the operating system. It then ends with the program.
fn content(path: &str, most: u64) -> Result<Vec<u8>, String> {
    let (sender, opened) = mpsc::channel();
    let (content_sender, content) = mpsc::channel();
    let file = path.to_owned();
    thread::spawn(move || {
        let opened = File::open(file);
        // After the time limit, the receiver is gone and the content is dropped.
        let _ = sender.send(opened.as_ref().map(drop).map_err(ToString::to_string));
        if let Ok(file) = opened {
            let _ = content_sender.send(read(file, most));
        }
    });
    let opened = opened.recv_timeout(OPENS_WITHIN).unwrap_or_else(|_| Err(NO_WRITER.to_owned()));
    let content = opened.and_then(|()| content.recv_timeout(ENDS_WITHIN).unwrap_or_else(|_| Err(NO_END.to_owned())));
    content.map_err(|error| cannot_read(path, &error))
}

fn read(file: File, most: u64) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content).map_err(|error| error.to_string())?;
    if content.len() as u64 > most {
        let size = if most < 1 << 20 { format!("{} KiB", most >> 10) } else { format!("{} MiB", most >> 20) };
        return Err(format!("it is larger than {size}; name the right file"));
    }
    Ok(content)
}

fn cannot_read(path: &str, why: &str) -> String {
    format!("cannot read {path}: {why}")
}
