//! Forgets what all clients have spent and hold, and lifts all bans.

use std::io::Write;

use tollgate::Limiter;

use super::client::{DENIALS, Report};
use super::ready;
use crate::{Failure, server::Settings};

pub(super) async fn run(settings: Settings, output: &mut impl Write) -> Result<(), Failure> {
    let (timeout, mut report) = (settings.timeout, Report::default());
    let prefix = settings.prefix.clone();
    let store = settings.store().map_err(|error| error.to_string())?;
    ready(&Limiter::new(store.clone()).without_notices(), timeout, &mut report).await?;
    let result = store.clear().await;
    report.advise([match result {
        Ok(0) => {
            let prefix = prefix.map_or("the default prefix".to_owned(), |prefix| format!("the prefix {prefix:?}"));
            format!("nothing is counted under {prefix}: compare it with the service's")
        }
        Ok(_) => DENIALS.to_owned(),
        Err(_) => "part of the keys may have been removed: run the command again".to_owned(),
    }]);
    for line in report.into_advice() {
        eprintln!("tollgate-inspect: {line}");
    }
    let removed = result?;
    let keys = if removed == 1 { "key" } else { "keys" };
    writeln!(output, "{removed} {keys} removed")?;
    Ok(())
}
