//! A master, its replica, and the sentinels that name the master.

use super::cluster::{FIRST_PORT, HOST};
use super::{commands::Refusal, reply::Reply};

/// What a server is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Role {
    #[default]
    Master,
    Replica,
    /// A sentinel, and the server that it takes for the master.
    Sentinel {
        names: usize,
    },
}

impl Role {
    /// Why a server with this role refuses commands that write, if nothing else is wrong.
    pub(super) fn refusal(self) -> Option<Refusal> {
        (self == Self::Replica).then_some(Refusal::Replica)
    }

    /// The reply to ROLE.
    pub(super) fn reply(self) -> Reply {
        let bulk = |text: &str| Reply::Bulk(text.into());
        match self {
            Self::Master => Reply::List(vec![bulk("master"), Reply::Integer(0), Reply::List(vec![])]),
            Self::Replica => {
                Reply::List(vec![bulk("slave"), bulk(HOST), Reply::Integer(0), bulk("connected"), Reply::Integer(0)])
            }
            Self::Sentinel { .. } => Reply::List(vec![bulk("sentinel"), Reply::List(vec![])]),
        }
    }

    /// The reply to SENTINEL GET-MASTER-ADDR-BY-NAME.
    pub(super) fn master_address(self) -> Reply {
        let bulk = |text: String| Reply::Bulk(text.into_bytes());
        match self {
            Self::Sentinel { names } => {
                Reply::List(vec![bulk(HOST.to_owned()), bulk((usize::from(FIRST_PORT) + names).to_string())])
            }
            _ => Reply::error("ERR unknown command 'SENTINEL'"),
        }
    }
}
