//! A denial that is dropped limits nothing.

use tollgate::{Error, Limiter, Policy};

pub async fn send(limiter: &Limiter, emails: &Policy) -> Result<(), Error> {
    limiter.check("user:17", emails, 1).await?;
    Ok(())
}
