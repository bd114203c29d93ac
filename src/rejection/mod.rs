//! What a refused request gets instead of the service's response.

mod body;
mod denial;
mod empty;
pub(crate) mod extensions;
mod from_check;
#[cfg(feature = "grpc")]
mod grpc;
mod map_body;
mod plain;
mod problem;
mod respond;

#[cfg(feature = "grpc")]
pub use self::grpc::GrpcStatus;
pub use self::{
    denial::{Denial, Reason},
    empty::EmptyBody,
    map_body::MapBody,
    plain::PlainText,
    problem::{ProblemJson, ProblemType},
    respond::Rejection,
};
