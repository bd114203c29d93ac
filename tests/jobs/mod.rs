//! The eleven jobs that most users have, each with its `use` lines and as short as a user writes it. A change of the
//! API that makes one of them longer is seen here.

mod at_once;
mod costs;
mod in_a_handler;
mod logins;
mod moved_time;
mod outbound;
mod plans;
mod shared_by_address;
mod shares;
mod tokens;
mod two_limits;
