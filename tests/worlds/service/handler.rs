//! The handler of all routes: it plays the script of its request.

use std::{panic::resume_unwind, sync::Arc};

use axum::response::{IntoResponse, Response};
use axum::{body::Body, extract::Request};
use http::StatusCode;
use tollgate::{Decision, middleware::Bill};

use super::{body::Frames, script::Panics, settle, visit::Visit};
use crate::{process::thread, time::ms};

pub(super) async fn handle(request: Request) -> Response {
    let extensions = request.extensions();
    let Some(visit) = extensions.get::<Arc<Visit>>().cloned() else { return StatusCode::NOT_FOUND.into_response() };
    visit.reach(extensions.get::<Decision>());
    let (script, bill) = (visit.script(), extensions.get::<Bill>().cloned());
    let script = &script;
    drop(request);
    if let (Some(cost), Some(bill)) = (script.bill, &bill) {
        bill.set_cost(cost);
        visit.sets(cost);
    }
    if let (Some(time), Some(bill)) = (script.goes_on, &bill) {
        let (guard, visit) = (bill.guard(), Arc::clone(&visit));
        tokio::spawn(async move {
            tokio::time::sleep(ms(time)).await;
            drop(guard);
            drop(visit);
        });
    }
    if script.panics == Panics::AtOnce {
        resume_unwind(Box::new("a handler panics"));
    }
    if script.blocks > 0 {
        thread::block(script.blocks);
    }
    if script.works > 0 {
        tokio::time::sleep(ms(script.works)).await;
    }
    if script.panics == Panics::AfterTheWork {
        resume_unwind(Box::new("a handler panics"));
    }
    let body = match script.frames {
        0 => Body::from("done"),
        _ => Body::new(Frames::new(*script, bill, Arc::clone(&visit))),
    };
    let mut response = Response::new(body);
    settle::write(script, &mut response);
    response
}
