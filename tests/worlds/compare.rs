//! Compares the simulated server with a real one: the calls of the script in random worlds, sent to both, have the same
//! replies, byte for byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use crate::plan::{Plan, mode::Mode};
use crate::server::reply::{Bytes, Reply};
use crate::server::{Server, Session};
use crate::{network, time::START_US, world};

/// The calls of the worlds from a seed on, until this number of calls was compared. Returns whether all replies agree.
pub(crate) fn with_redis(seed: u64, count: u64) -> Result<bool, String> {
    let mut redis = Redis::start().map_err(|error| format!("redis-server does not start: {error}"))?;
    let (mut compared, mut differences, mut next) = (0, 0, seed);
    while compared < count {
        let calls = calls_of(next);
        let mut simulated = Server::new(0);
        redis.send(&[b"FLUSHALL".to_vec()]).map_err(|error| error.to_string())?;
        for call in &calls {
            // Time is part of each call, so both servers use the same.
            let ours = simulated.answer(call, &mut Session::default(), None, START_US.cast_signed());
            let theirs = redis.send(call).map_err(|error| format!("redis-server: {error}"))?;
            if !agree(&ours, &theirs) {
                differences += 1;
                println!(
                    "seed {next}: {}\n  ours   {ours:?}\n  theirs {:?}",
                    shown(call),
                    String::from_utf8_lossy(&theirs)
                );
            }
        }
        compared += calls.len() as u64;
        next += 1;
    }
    println!("{compared} calls of the script compared with redis-server, from seed {seed}: {differences} differ");
    Ok(differences == 0)
}

/// The calls of a world with one server and all modes, with the server's time as the client's clock.
fn calls_of(seed: u64) -> Vec<Vec<Bytes>> {
    let mut plan = Plan::draw(seed, None);
    let has_one_slot = |mode: &Mode| mode.second_policy().is_none();
    plan.modes = Mode::ALL.into_iter().filter(has_one_slot).collect();
    (plan.servers, plan.sentinels, plan.processes) = (1, 0, 1);
    (plan.callers, plan.load) = (plan.modes.len(), 1_500);
    plan.faults.retain(|fault| fault.kind.clock_step().is_some());
    network::record_calls();
    drop(world::run(&plan));
    network::recorded_calls()
}

fn shown(call: &[Bytes]) -> String {
    call.iter().skip(2).map(|part| format!("{:?}", String::from_utf8_lossy(part))).collect::<Vec<_>>().join(" ")
}

/// Errors agree if their first words do: Redis names the script and the line behind the message.
fn agree(ours: &Reply, theirs: &[u8]) -> bool {
    let mut encoded = vec![];
    ours.encode(&mut encoded);
    let first_word = |text: &[u8]| text.split(|byte| *byte == b' ').next().map(<[u8]>::to_vec);
    match ours {
        Reply::Error(_) => first_word(&encoded) == first_word(theirs),
        _ => encoded == theirs,
    }
}

/// A real server. It ends with this.
struct Redis {
    server: Child,
    stream: BufReader<TcpStream>,
}

impl Redis {
    fn start() -> io::Result<Self> {
        let program = env::var("TOLLGATE_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", "", "--appendonly", "no"]);
        let mut server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let began = Instant::now();
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() > Duration::from_secs(10) => {
                    let _ = server.kill();
                    return Err(error);
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        Ok(Self { server, stream: BufReader::new(stream) })
    }

    /// Sends a command and returns its reply as it came.
    fn send(&mut self, command: &[Bytes]) -> io::Result<Bytes> {
        let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
        for part in command {
            bytes.extend(format!("${}\r\n", part.len()).bytes());
            bytes.extend(part);
            bytes.extend(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes)?;
        let mut reply = vec![];
        self.read(&mut reply)?;
        Ok(reply)
    }

    fn read(&mut self, reply: &mut Bytes) -> io::Result<()> {
        let start = reply.len();
        self.stream.read_until(b'\n', reply)?;
        let line = String::from_utf8_lossy(&reply[start..]).trim_end().to_owned();
        let number = || line[1..].parse::<i64>().unwrap_or(-1);
        match line.chars().next() {
            Some('$') if number() >= 0 => {
                let mut text = vec![0; usize::try_from(number()).unwrap_or(0) + 2];
                self.stream.read_exact(&mut text)?;
                reply.extend(text);
            }
            Some('*') => (0..number()).try_for_each(|_| self.read(reply))?,
            Some(_) => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
        Ok(())
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
