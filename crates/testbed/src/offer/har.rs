//! A browser's recording (HAR) as the load of a plan.

use std::path::Path;

use load::workload::Choice;
use load::{Target, Workload, har};
use schema::document;

use super::log;
use crate::error::TestbedError;
use plan::LoadPlan;

/// A parsed recording.
pub(super) struct Har {
    pub(super) workload: Workload,
    pub(super) part: document::Har,
    pub(super) notes: Vec<String>,
}

/// Reads the archive; its requests go to the host of the load's URL, with the load's headers added.
pub(super) fn read(file: &Path, load: &LoadPlan) -> Result<Har, TestbedError> {
    let wrong = |why: String| TestbedError::Plan(format!("--har {}: {why}", file.display()));
    let base = Target::parse(&load.url).map_err(TestbedError::plan)?;
    let bytes = log::read_bounded(file, har::BYTES_MAX).map_err(|error| wrong(error.to_string()))?;
    let mut recorded = har::read(&bytes, &base).map_err(wrong)?;
    let template = load.every_request().map_err(TestbedError::Plan)?;
    for request in &mut recorded.requests {
        request.headers.retain(|(name, _)| !template.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)));
        request.headers.extend(template.headers.iter().cloned());
        (request.basic_auth, request.redirects_max) = (template.basic_auth.clone(), template.redirects_max);
        request.expect = template.expect.clone();
        if request.method == schema::Method::Head {
            // A response to HEAD has no body to check.
            (request.expect.length, request.expect.body) = (None, None);
        }
    }
    let part = document::Har {
        file: file.display().to_string(),
        entries: recorded.entries,
        requests: recorded.session.steps.len() as u64,
        left_out: recorded.left_out,
        host: recorded.host,
    };
    let mut notes = vec![format!(
        "{}: a session of {} requests, those of {} (as recorded) go to {}",
        part.file, part.requests, part.host, base.authority
    )];
    let reasons: Vec<String> = part.left_out.iter().map(|(why, entries)| format!("{entries}: {why}")).collect();
    if !reasons.is_empty() {
        notes.push(format!("entries left out: {}", reasons.join("; ")));
    }
    let choice = Choice::Sessions(vec![recorded.session]);
    Ok(Har {
        workload: Workload { requests: recorded.requests, choice, cookies: load.cookies, variables: 0 },
        part,
        notes,
    })
}
