//! Writes fields for foreign parsers: `tollgate-others-fields SEED COUNT VECTORS`.
//!
//! Each line is a case in JSON: the quotas that went in, and the fields of each style. The cases are those of the file
//! of vectors, and random ones: half of them arbitrary quotas, whose names no policy may have, and half of them
//! decisions of a limiter.

mod case;
mod decisions;
mod random;
mod reports;
mod vectors;

use std::io::{self, BufWriter, Write};
use std::{env, error::Error};

use random::Random;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [seed, count, vectors] = &arguments[..] else {
        return Err("usage: tollgate-others-fields SEED COUNT VECTORS".into());
    };
    let mut random = Random::new(seed.parse()?);
    let count: u64 = count.parse()?;
    let mut out = BufWriter::new(io::stdout().lock());
    for case in vectors::read(vectors)? {
        writeln!(out, "{case}")?;
    }
    for number in 0..count / 2 {
        writeln!(out, "{}", reports::random(&mut random, number))?;
    }
    for number in 0..count - count / 2 {
        writeln!(out, "{}", decisions::random(&mut random, number).await?)?;
    }
    Ok(out.flush()?)
}
