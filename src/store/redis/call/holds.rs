//! Changes of open holds.

use std::sync::Arc;

use smallvec::smallvec;

use super::{
    batch,
    client::Client,
    outgoing::{Charges, Outgoing, Request, Step},
    progress::Progress,
};
use crate::{
    check::Check,
    error::Error,
    hold::{HoldChange, OpenHold, Settlement},
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
) -> Result<Settlement, Error> {
    let slot = client.keys.slot_of(&key);
    let check = Check::of_open_hold(hold);
    let outgoing = Arc::new(Outgoing::new(check, smallvec![key], progress, None));
    let request = Request { outgoing, charges: Charges::All, step: Step::Change(change) };
    let verdict = batch::send(client, slot, request).await?;
    let is_open = verdict.outcomes.first().is_some_and(|outcome| outcome.fits);
    Ok(if is_open { Settlement::Settled } else { Settlement::Expired })
}
