//! gRPC: the status of a refused call.

mod status;

pub use self::status::GrpcStatus;
