//! A running program of `examples/`, and its responses.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::{collections::BTreeMap, net::TcpStream, path::Path, thread};

use crate::built::PROGRAMS;

/// A running server. The process ends with this value.
pub(crate) struct Server {
    process: Child,
    pub(crate) address: String,
    stdout: Arc<Mutex<String>>,
    stderr: Arc<Mutex<String>>,
}

impl Server {
    /// Starts the example server.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::run(&PROGRAMS.server, &[&["--listen", "127.0.0.1:0"], arguments].concat())
    }

    /// Starts a program whose first line names its address.
    pub(crate) fn run(program: &Path, arguments: &[&str]) -> Self {
        let mut process =
            Command::new(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = collect(BufReader::new(process.stderr.take().unwrap()));
        let mut first = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut first).unwrap();
        let stdout = collect(stdout);
        let address = first.trim().strip_prefix("Listening on http://");
        let address = address.unwrap_or_else(|| panic!("{first}{}", stderr.lock().unwrap())).to_owned();
        Self { process, address, stdout, stderr }
    }

    pub(crate) fn fetch(&self, method: &str, path: &str) -> Response {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let mut lines = head.lines();
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let fields = lines.map(|line| line.split_once(": ").unwrap());
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Response { status, fields, body: body.to_owned() }
    }

    /// The `ratelimit-policy` of `/watch`, which costs one unit.
    pub(crate) fn policy(&self) -> String {
        self.fetch("GET", "/watch").fields["ratelimit-policy"].clone()
    }

    /// Kills the server as `kill -9` does.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// The id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Asks the server to end, as `kill` does.
    pub(crate) fn terminate(&self) {
        let status = Command::new("kill").arg(self.process.id().to_string()).status().unwrap();
        assert!(status.success());
    }

    /// Waits until the process has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    /// Whether the process has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.try_wait().unwrap().is_some()
    }

    /// What the server has printed on standard output so far, without its first line.
    pub(crate) fn stdout(&self) -> String {
        self.stdout.lock().unwrap().clone()
    }

    /// What the server has printed on standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }
}

/// Collects the lines of a pipe, because a closed pipe would be an error of the server's next line.
fn collect(pipe: impl BufRead + Send + 'static) -> Arc<Mutex<String>> {
    let collected = Arc::<Mutex<String>>::default();
    let lines = Arc::clone(&collected);
    thread::spawn(move || {
        for line in pipe.lines().map_while(Result::ok) {
            lines.lock().unwrap().push_str(&(line + "\n"));
        }
    });
    collected
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[derive(Debug, Eq, PartialEq)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Response {
    /// The units left, from a field such as `ratelimit: "per-client";r=58;t=60`.
    pub(crate) fn remaining(&self) -> u64 {
        let field = &self.fields["ratelimit"];
        field.split(';').find_map(|parameter| parameter.strip_prefix("r=")).unwrap().parse().unwrap()
    }
}
