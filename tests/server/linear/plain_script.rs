//! A store that is one plain script: a list of charges for each key. It is right, or wrong about when units leave.

use std::{fmt, sync::Arc, time::Duration};

use tokio::sync::OnceCell;
use tollgate::redis::{AsyncCommands, AsyncConnectionConfig, Client, Script, aio::MultiplexedConnection};
use tollgate::store::{Answer, Check, Outcome, Store, Verdict};
use tollgate::{Algorithm, Error, Key, Policy, decision::Source};

use super::two_calls::{name, unavailable};

/// When units leave their window.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Leaving {
    /// With its end.
    Right,
    /// A tenth of the window before its end.
    Early,
    /// Not while a history lasts.
    Never,
}

/// The arguments are whether to charge, and then cost, limit, window and whether it is a fixed one, for each key. The
/// reply is the time, and then what is available and how long to wait, for each key.
const SCRIPT: &str = r"
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function available(key, limit, time)
  for _, charge in ipairs(redis.call('LRANGE', key, 0, -1)) do
    local units, free = charge:match('(%d+) (%d+)')
    if tonumber(free) > time then limit = limit - units end
  end
  return limit
end

local function wait(key, cost, limit)
  if available(key, limit, now) >= cost then return 0 end
  for _, charge in ipairs(redis.call('LRANGE', key, 0, -1)) do
    local free = tonumber(charge:match(' (%d+)'))
    if available(key, limit, free) >= cost then return free - now end
  end
end

local fit, reply = true, { now }
for number, key in ipairs(KEYS) do
  local cost, limit = tonumber(ARGV[4 * number - 2]), tonumber(ARGV[4 * number - 1])
  reply[2 * number + 1] = wait(key, cost, limit)
  fit = fit and reply[2 * number + 1] == 0
end
for number, key in ipairs(KEYS) do
  local cost, limit, window = ARGV[4 * number - 2], tonumber(ARGV[4 * number - 1]), ARGV[4 * number]
  local free = ARGV[4 * number + 1] == '1' and now - now % window + window or now + window
  if ARGV[1] == '1' and fit then redis.call('RPUSH', key, string.format('%d %.0f', cost, free)) end
  reply[2 * number] = available(key, limit, now)
end
return reply
";

#[derive(Clone)]
pub(super) struct PlainScript {
    client: Client,
    connection: Arc<OnceCell<MultiplexedConnection>>,
    leaving: Leaving,
}

impl PlainScript {
    pub(super) fn new(url: &str, leaving: Leaving) -> Self {
        Self { client: Client::open(url).unwrap(), connection: Arc::default(), leaving }
    }

    async fn connection(&self) -> Result<MultiplexedConnection, Error> {
        let patient = AsyncConnectionConfig::new().set_response_timeout(None).set_connection_timeout(None);
        let connect = || self.client.get_multiplexed_async_connection_with_config(&patient);
        self.connection.get_or_try_init(connect).await.cloned().map_err(unavailable)
    }

    /// How long units stay.
    fn stay(&self, policy: &Policy) -> Duration {
        let window = policy.window().unwrap();
        match self.leaving {
            Leaving::Right => window,
            Leaving::Early => window - window / 10,
            Leaving::Never => Duration::from_secs(86_400),
        }
    }

    async fn judge(self, check: Check, charges: bool) -> Result<Verdict, Error> {
        let (script, mut connection) = (Script::new(SCRIPT), self.connection().await?);
        let mut call = script.arg(u8::from(charges));
        for charge in check.charges() {
            let policy = &charge.policy;
            let is_fixed = policy.algorithm() == Algorithm::FixedWindow;
            call.key(name(&charge.key, policy)).arg(charge.cost).arg(policy.limit());
            call.arg(self.stay(policy).as_micros() as u64).arg(u8::from(is_fixed));
        }
        let reply: Result<Vec<u64>, _> = call.invoke_async(&mut connection).await;
        let reply = reply.map_err(|error| unavailable(error).charge_unknown())?;
        let outcome = |told: &[u64]| Outcome {
            fits: told[1] == 0,
            available: told[0],
            retry_after_us: (told[1] > 0).then_some(told[1]),
            next_us: 1,
            reset_us: 1,
            ban_us: 0,
        };
        let told = reply[1..].chunks(2);
        let allowed = told.clone().all(|told| told[1] == 0);
        Ok(Verdict { allowed, source: Source::Store, time_us: reply[0], outcomes: told.map(outcome).collect() })
    }
}

impl Store for PlainScript {
    fn check(&self, check: &Check) -> Answer<Verdict> {
        Answer::pending(self.clone().judge(check.clone(), true))
    }

    fn peek(&self, check: &Check) -> Answer<Verdict> {
        Answer::pending(self.clone().judge(check.clone(), false))
    }

    fn reset(&self, key: &Key, policy: &Policy) -> Answer<bool> {
        let (store, count) = (self.clone(), name(key, policy));
        Answer::pending(async move { store.connection().await?.del(&count).await.map_err(unavailable) })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(10)
    }
}

impl fmt::Debug for PlainScript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlainScript")
    }
}
