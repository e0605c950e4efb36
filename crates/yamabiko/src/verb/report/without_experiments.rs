//! `yamabiko report` of an experiment, in a build without the feature `experiments`.

use std::path::Path;

use anyhow::{Result, ensure};
use store::RunStore;

use crate::args;
use crate::exit::Exit;
use crate::left_out;

/// Refuses a stored experiment, since this build cannot print it; `None` for other runs.
pub fn show(dir: &Path, _: &RunStore, _: &args::Report) -> Result<Option<Exit>> {
    let is_sweep = store::read_summary(dir).is_ok_and(|run| run.load.is_none() && run.cache.is_some());
    let is_experiment = is_sweep
        || matches!(store::read_reproduction(dir), Ok(Some(_)))
        || matches!(store::read_disk(dir), Ok(Some(_)))
        || matches!(store::read_gateway(dir), Ok(Some(_)))
        || matches!(store::read_compare(dir), Ok(Some(_)))
        || matches!(store::read_capacity(dir), Ok(Some(_)))
        || matches!(store::read_predict(dir), Ok(Some(_)));
    ensure!(!is_experiment, left_out::missing("the report of this experiment", "experiments"));
    Ok(None)
}
