//! Rejections as gRPC clients see them, with tonic's client and server over TCP.

mod denial;
mod holds;
mod one_port;
mod other_refusals;
mod probe;
mod pushback;
mod streams;
mod throttle;
mod with_tonic;
