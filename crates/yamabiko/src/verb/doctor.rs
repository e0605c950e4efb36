//! `yamabiko doctor`: reports which verbs work on this machine, and how to fix the rest.

use anyhow::Result;
use experiment::ExperimentError;
use experiment::programs::apache::Apache;
use experiment::programs::httperf::Httperf;
use schema::DoctorDocument;
use schema::doctor::{Ability, MAIN_VERB, VerbState};
use store::RunStore;

use super::bench::print;
use crate::args;
use crate::exit::Exit;
use crate::terminal;

/// Examines the machine and prints the result.
pub fn run(arguments: &args::Doctor) -> Result<Exit> {
    let run_store = RunStore::open()?;
    let mut document = doctor::examine(run_store.root(), arguments.quick)?;
    document.verbs.push(koshien(&document, Apache::find().map(drop), Httperf::find().map(drop)));
    if arguments.json {
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        print(&report::terminal::doctor(&document, terminal::style()))?;
    }
    // The exit status depends on the main verb only.
    Ok(if document.ready() { Exit::Success } else { Exit::Lacking })
}

/// The state of `reproduce koshien`: that of the testbed, and whether Apache and httperf are installed.
fn koshien(
    document: &DoctorDocument,
    apache: Result<(), ExperimentError>,
    httperf: Result<(), ExperimentError>,
) -> Ability {
    let testbed = document.verb(MAIN_VERB).map_or(VerbState::Missing, |ability| ability.state);
    let missing = |found: Result<(), ExperimentError>| match found {
        Err(ExperimentError::Missing { program, fix }) => Some((format!("{program} is not installed"), fix.to_owned())),
        _ => None,
    };
    let (state, missing) = match (missing(apache), missing(httperf)) {
        (Some(missing), _) => (VerbState::Missing, Some(missing)),
        (None, Some((what, fix))) => {
            (testbed.max(VerbState::Partial), Some((format!("{what}: experiments 3 and 4 need it"), fix)))
        }
        (None, None) => (testbed, None),
    };
    // A missing feature of the machine comes first: programs that cannot run need no installation.
    let (why, fix) = match missing {
        Some((why, fix)) if testbed != VerbState::Missing => (why, Some(fix)),
        _ if testbed == VerbState::Ok => (String::new(), None),
        _ => (format!("as {MAIN_VERB}"), None),
    };
    Ability {
        verb: "reproduce koshien".into(),
        about: "the experiments of a paper, reproduced".into(),
        state,
        why,
        fix,
    }
}

#[cfg(test)]
mod tests {
    use schema::doctor::SCHEMA;

    use super::*;

    fn document(lab: VerbState) -> DoctorDocument {
        let main = Ability {
            verb: MAIN_VERB.into(),
            about: String::new(),
            state: lab,
            why: "reasons".into(),
            fix: Some("root".into()),
        };
        DoctorDocument {
            schema: SCHEMA.into(),
            host: Default::default(),
            verbs: vec![main],
            findings: Vec::new(),
            measured: None,
        }
    }

    #[test]
    fn reproduce_koshien_needs_the_testbed_apache_and_httperf() {
        let missing = |program, fix| Err(ExperimentError::Missing { program, fix });
        let of = |lab, apache, httperf| {
            let ability = koshien(&document(lab), apache, httperf);
            (ability.state, ability.why, ability.fix)
        };
        use VerbState::{Missing, Ok as Works, Partial};
        assert_eq!(of(Works, Ok(()), Ok(())), (Works, String::new(), None));
        let (state, why, fix) = of(Works, missing("Apache", "install it"), Ok(()));
        assert_eq!((state, why.as_str(), fix.as_deref()), (Missing, "Apache is not installed", Some("install it")));
        let (state, why, _) = of(Works, Ok(()), missing("httperf", "install it"));
        assert_eq!((state, why.as_str()), (Partial, "httperf is not installed: experiments 3 and 4 need it"));
        let (state, why, fix) = of(Missing, missing("Apache", "install it"), Ok(()));
        assert_eq!((state, why.as_str(), fix), (Missing, "as bench --server", None));
    }
}
