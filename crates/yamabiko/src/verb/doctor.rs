//! `yamabiko doctor`: what this machine can and cannot do, and how to mend it.

use anyhow::Result;
use experiment::ExperimentError;
use experiment::programs::apache::Apache;
use experiment::programs::httperf::Httperf;
use schema::DoctorDocument;
use schema::doctor::{Ability, AbilityState, MAIN_VERB};
use store::RunStore;

use super::bench::print;
use crate::args;
use crate::exit::Exit;
use crate::terminal;

/// Looks, tries, measures, and says so.
pub fn run(arguments: &args::Doctor) -> Result<Exit> {
    let book = RunStore::open()?;
    let mut document = doctor::examine(book.root(), arguments.quick)?;
    document.verbs.push(koshien(&document, Apache::find().map(drop), Httperf::find().map(drop)));
    if arguments.json {
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        print(&report::terminal::doctor(&document, terminal::style()))?;
    }
    // Where the main job can be done this ends well, whatever else is lacking.
    Ok(if document.ready() { Exit::Success } else { Exit::Lacking })
}

/// What the lab can do, and two programs of others.
fn koshien(
    document: &DoctorDocument,
    apache: Result<(), ExperimentError>,
    httperf: Result<(), ExperimentError>,
) -> Ability {
    let lab = document.verb(MAIN_VERB).map_or(AbilityState::No, |ability| ability.state);
    let missing = |found: Result<(), ExperimentError>| match found {
        Err(ExperimentError::Missing { program, fix }) => Some((format!("{program} is not installed"), fix.to_owned())),
        _ => None,
    };
    let (state, missing) = match (missing(apache), missing(httperf)) {
        (Some(missing), _) => (AbilityState::No, Some(missing)),
        (None, Some((what, mend))) => {
            (lab.max(AbilityState::InPart), Some((format!("{what}: experiments 3 and 4 need it"), mend)))
        }
        (None, None) => (lab, None),
    };
    // What the machine lacks comes first: there is no use in installing programs that cannot be run.
    let (why, mend) = match missing {
        Some((why, mend)) if lab != AbilityState::No => (why, Some(mend)),
        _ if lab == AbilityState::Works => (String::new(), None),
        _ => (format!("as {MAIN_VERB}"), None),
    };
    Ability { verb: "reproduce koshien".into(), about: "a paper's experiments made again".into(), state, why, mend }
}

#[cfg(test)]
mod tests {
    use schema::doctor::SCHEMA;

    use super::*;

    fn document(lab: AbilityState) -> DoctorDocument {
        let main = Ability {
            verb: MAIN_VERB.into(),
            about: String::new(),
            state: lab,
            why: "reasons".into(),
            mend: Some("root".into()),
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
    fn doctor_requires_testbed_and_programs_for_koshien() {
        let missing = |program, fix| Err(ExperimentError::Missing { program, fix });
        let of = |lab, apache, httperf| {
            let ability = koshien(&document(lab), apache, httperf);
            (ability.state, ability.why, ability.mend)
        };
        use AbilityState::{InPart, No, Works};
        assert_eq!(of(Works, Ok(()), Ok(())), (Works, String::new(), None));
        let (state, why, mend) = of(Works, missing("Apache", "install it"), Ok(()));
        assert_eq!((state, why.as_str(), mend.as_deref()), (No, "Apache is not installed", Some("install it")));
        let (state, why, _) = of(Works, Ok(()), missing("httperf", "install it"));
        assert_eq!((state, why.as_str()), (InPart, "httperf is not installed: experiments 3 and 4 need it"));
        let (state, why, mend) = of(No, missing("Apache", "install it"), Ok(()));
        assert_eq!((state, why.as_str(), mend), (No, "as bench --server", None));
    }
}
