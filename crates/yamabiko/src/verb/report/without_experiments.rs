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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;

    use clap::Parser;
    use schema::document::{Run, SCHEMA};
    use schema::{DiskDocument, Validity};

    use super::*;

    // The step that tests this build runs the tests with `left_out` in their names (xtask/src/test.rs).
    #[test]
    fn report_of_a_stored_experiment_names_the_left_out_feature() {
        let dir = tempfile::tempdir().unwrap();
        let run_store = RunStore::at(dir.path());
        let args::Verb::Report(arguments) = args::Arguments::try_parse_from(["yamabiko", "report"]).unwrap().verb
        else {
            panic!("`report` is another verb");
        };
        assert!(show(dir.path(), &run_store, &arguments).unwrap().is_none(), "a run without a summary");
        let document = DiskDocument {
            schema: SCHEMA.into(),
            run: Run::default(),
            validity: Validity::from_checks(Vec::new()),
            disk: BTreeMap::new(),
        };
        fs::write(dir.path().join("summary.json"), serde_json::to_string(&document).unwrap()).unwrap();
        let error = show(dir.path(), &run_store, &arguments).unwrap_err();
        assert_eq!(error.to_string(), left_out::missing("the report of this experiment", "experiments"));
    }
}
