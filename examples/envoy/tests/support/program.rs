//! The program `tollgate-envoy`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::redis_server::Directory;

/// A running program. It ends with this value.
pub struct Program {
    process: Child,
    pub address: String,
    stderr: Arc<Mutex<String>>,
}

impl Program {
    /// Starts the program on a free port.
    pub fn start(arguments: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", arguments)
    }

    pub fn start_at(address: &str, arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_tollgate-envoy"))
            .args(arguments)
            .args(["--listen", address])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (lines, stderr) = (Arc::<Mutex<String>>::default(), process.stderr.take().unwrap());
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        thread::spawn(move || drop(stdout.read_to_end(&mut Vec::new())));
        let kept = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let address = line.trim().strip_prefix("Listening on ");
        let address = address.unwrap_or_else(|| panic!("{line}{}", lines.lock().unwrap())).to_owned();
        Self { process, address, stderr: lines }
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn signal(&self, signal: &str) {
        let status = Command::new("kill").args([signal, &self.process.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    /// What the program has reported.
    pub fn stderr(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    /// What the program has reported, as soon as that contains `text`.
    pub fn stderr_with(&self, text: &str) -> String {
        let start = Instant::now();
        loop {
            let stderr = self.stderr();
            if stderr.contains(text) {
                return stderr;
            }
            assert!(start.elapsed() < Duration::from_secs(30), "{text}\n{stderr}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A configuration in a folder of its own, and the path of its file.
pub fn configuration(yaml: &str) -> (Directory, String) {
    let folder = Directory::new();
    let path = folder.write("limits.yaml", yaml);
    (folder, path)
}
