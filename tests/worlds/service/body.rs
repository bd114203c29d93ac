//! The body of a response: frames, now and then.

use std::task::{Context, Poll, ready};
use std::{convert::Infallible, panic::resume_unwind, pin::Pin, sync::Arc};

use bytes::Bytes;
use http_body::{Body, Frame};
use tokio::time::Sleep;
use tollgate::middleware::Bill;

use super::script::{Panics, Script};
use super::visit::Visit;
use crate::time::ms;

pub(super) struct Frames {
    script: Script,
    sent: u64,
    next: Pin<Box<Sleep>>,
    bill: Option<Bill>,
    visit: Arc<Visit>,
}

impl Frames {
    pub(super) fn new(script: Script, bill: Option<Bill>, visit: Arc<Visit>) -> Self {
        Self { script, sent: 0, next: Box::pin(tokio::time::sleep(ms(script.frame_every))), bill, visit }
    }
}

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.sent == self.script.frames {
            return Poll::Ready(None);
        }
        ready!(self.next.as_mut().poll(cx));
        if self.script.panics == Panics::InTheBody && self.sent == self.script.frames / 2 {
            resume_unwind(Box::new("a body panics"));
        }
        self.sent += 1;
        self.next = Box::pin(tokio::time::sleep(ms(self.script.frame_every)));
        if self.script.counts_frames
            && let Some(bill) = &self.bill
        {
            bill.add(1);
            self.visit.adds(1);
        }
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"frame")))))
    }
}
