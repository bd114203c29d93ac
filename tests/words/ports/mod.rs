//! Examples of other limiters' own pages, ported by the rows of `docs/other-limiters.md`, and run. The answers are
//! those that their pages promise, except where a row says what differs.

mod express;
mod flexible;
mod governor;
