//! One call of Envoy: what it asks for, the verdict, and the answer.

mod aside;
mod judge;
mod plan;
mod reply;
mod role;

pub(crate) use self::{judge::Judge, plan::Plan, reply::Replies};
