//! Changes of counts by hand.

use std::sync::Arc;

use smallvec::smallvec;

use super::{
    batch,
    client::Client,
    outgoing::{Charges, Outgoing, Request},
    progress::Progress,
    step::Step,
};
use crate::{check::Check, error::Error, key::Key, policy::Policy, store::CountChange};

/// Changes a count. `key` is as the caller has it, `redis_key` as Redis gets it. Forgets the denials of the key now and
/// after the change, because a check in flight may be judged before the change or after it.
pub(crate) async fn change(
    client: Arc<Client>,
    key: Key,
    redis_key: Key,
    policy: Policy,
    change: CountChange,
    progress: Arc<Progress>,
) -> Result<u64, Error> {
    let _forget = client.denials.forget(client.denials.group_of(&key));
    let slot = client.keys.slot_of(&redis_key);
    let check = Check::new(key, &policy, 0);
    let outgoing = Arc::new(Outgoing::new(check, smallvec![redis_key], progress, None));
    let request = Request { outgoing, charges: Charges::All, step: Step::ByHand(change) };
    let verdict = batch::send(Arc::clone(&client), slot, request).await?;
    // What was changed, in the place of the available units.
    Ok(verdict.outcomes.first().map_or(0, |outcome| outcome.available))
}
