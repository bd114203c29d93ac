//! A `redis-server` that a test kills and starts again.

use std::{env, net::TcpListener};
use std::process::{Child, Command, Stdio};

pub(crate) struct Redis {
    process: Child,
    port: u16,
}

impl Redis {
    pub(crate) fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        Self { process: spawn(port), port }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(crate) fn start_again(&mut self) {
        self.process = spawn(self.port);
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn spawn(port: u16) -> Child {
    let server = env::var_os("TOLLGATE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    let mut command = Command::new(server);
    command.args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
    command.stdout(Stdio::null()).spawn().expect("redis-server is on the PATH")
}
