//! gRPC: the status of a refused call.

mod status;
mod status_details;

pub use self::status::GrpcStatus;
