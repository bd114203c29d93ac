//! Changes of open holds.

use std::sync::Arc;

use smallvec::smallvec;

use super::{
    super::net::error,
    batch, by_key,
    client::Client,
    outgoing::{Charges, Outgoing, Request},
    progress::Progress,
    step::Step,
};
use crate::{
    check::Check,
    error::Error,
    hold::{HoldChange, OpenHold, SettleAnswer},
    key::Key,
};

/// Changes a hold. `key` is its key as Redis gets it. No denial is forgotten, because none is remembered that open
/// holds have caused.
pub(crate) async fn change(
    client: Arc<Client>,
    hold: OpenHold,
    key: Key,
    change: HoldChange,
    progress: Arc<Progress>,
) -> Result<SettleAnswer, Error> {
    let slot = client.keys.slot_of(&key);
    let check = Check::of_open_hold(hold);
    let outgoing = Arc::new(Outgoing::new(check, smallvec![key], progress, None));
    let moving = Arc::clone(&outgoing);
    let request = Request { outgoing, charges: Charges::All, step: Step::Change(change) };
    let verdict = batch::send(Arc::clone(&client), slot, request).await;
    let verdict = match verdict {
        Err(error) if error::is_about_several_keys(&error) => {
            Box::pin(by_key::change_hold(client, moving, slot, change, error)).await
        }
        verdict => verdict,
    }?;
    let is_open = verdict.outcomes.first().is_some_and(|outcome| outcome.fits);
    Ok(if is_open { SettleAnswer::Settled } else { SettleAnswer::Expired })
}
