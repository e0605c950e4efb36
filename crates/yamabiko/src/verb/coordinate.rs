//! `yamabiko coordinate`: the process that coordinates a shard (`--coordinate`). Started by the process of the load,
//! with which it talks by stdin and stdout.

use std::io::{self, BufReader};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use store::archive;

use crate::exit::Exit;

/// Coordinates until the load and the collection of its runs have ended.
pub fn run() -> Result<Exit> {
    coordination::nats::run(BufReader::new(io::stdin()), io::stdout(), Arc::new(pack)).context("coordination")?;
    Ok(Exit::Success)
}

/// Makes the archive of a run, as `yamabiko runs export` does.
fn pack(dir: &Path, to: &Path) -> Result<(), String> {
    let file = std::fs::File::create(to).map_err(|error| format!("create {}: {error}", to.display()))?;
    archive::export(&[dir.to_owned()], io::BufWriter::new(file), to).map_err(|error| error.to_string())?;
    Ok(())
}
