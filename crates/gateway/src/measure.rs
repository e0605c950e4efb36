//! The measurement of a plan: its conditions and links one after the other, and the document of them all.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::emulation::LabFacts;
use crate::tester::Secret;
use schema::document::{Check, CheckState, Run, SCHEMA, Weight};
use schema::{ForwardingPart, GatewayDocument, Validity};
use store::{RunFolder, RunStore};
use sys::scratch::Scratch;
use sys::signal::Interrupts;
use testbed::host;
use units::{Bytes, CpuShare};

use crate::labs::{Labs, MeasuredCondition};
use crate::{GatewayPlan, TestName, Where, document, remote, trials};
use experiment::ExperimentError;
use experiment::programs::proxies::Squid;
use experiment::progress::ExperimentProgress;
use experiment::verdict::of_run;
use experiment::{Order, Stage};

/// Making a lab, its sessions, and taking it down.
const AROUND_LAB: Duration = Duration::from_millis(2500);
/// Making a trial ready and hearing what the other end saw.
const AROUND_TRIAL: Duration = Duration::from_millis(120);
/// Trials of a search: short ones, and full ones, half of which lose packets and are waited for.
const LOOKS: u32 = 6;
const FULL_TRIALS: u32 = 6;
/// Share of the time that the hypervisor may have taken: as in the gate.
const STEAL_SHARE_MAX: f64 = 0.1;

/// A gateway that was measured, all in its document.
#[derive(Debug)]
pub struct GatewayDone {
    /// Its document.
    pub document: GatewayDocument,
    /// Its folder in the book.
    pub folder: PathBuf,
}

/// A share of a core as typed, or `none`.
///
/// # Errors
/// One sentence.
pub fn share(typed: &str) -> Result<Option<CpuShare>, String> {
    match typed.trim() {
        "none" => Ok(None),
        share => share.parse().map(Some).map_err(|error| format!("{error}, or none")),
    }
}

/// Socket buffers as typed: a number of bytes, with or without a unit, or `auto`.
///
/// # Errors
/// One sentence.
pub fn socket_bytes(typed: &str) -> Result<Option<u32>, String> {
    match typed.trim() {
        "auto" => Ok(None),
        bytes => message_bytes(bytes).map(Some).map_err(|error| format!("{error}, or auto")),
    }
}

/// Bytes as typed: netperf's bare numbers, or with a unit as everywhere else.
///
/// # Errors
/// One sentence.
pub fn message_bytes(typed: &str) -> Result<u32, String> {
    let typed = typed.trim();
    let bytes = typed.parse().ok().or_else(|| typed.parse::<Bytes>().ok().and_then(|bytes| bytes.0.try_into().ok()));
    bytes.ok_or_else(|| "bytes are wanted, such as 16384 or 16KiB".to_owned())
}

/// How long it takes, nearly: of a real gateway and of the lab's, all conditions and links together.
pub fn time(plan: &GatewayPlan) -> Duration {
    let ways = plan.direction.each().count() as u32;
    let trial = plan.lasts + AROUND_TRIAL;
    let mut one = if plan.to == Where::Lab { AROUND_LAB } else { Duration::ZERO };
    if plan.survey {
        one += (plan.lasts.min(Duration::from_secs(3)) + AROUND_TRIAL) * ways;
    }
    let stream = trial + Duration::from_millis(500);
    if plan.tests(TestName::Stream) {
        one += stream * ways * plan.trials;
    }
    let closed = [TestName::Transactions, TestName::Connections];
    one += trial * plan.trials * closed.iter().filter(|&&test| plan.tests(test)).count() as u32;
    let sizes = plan.sizes.len() as u32 * ways;
    if plan.tests(TestName::Packets) {
        let look = (Duration::from_millis(750) + AROUND_TRIAL) * LOOKS;
        let full = (plan.packet_trial() + Duration::from_secs(1) + AROUND_TRIAL) * FULL_TRIALS;
        one += (look + full) * sizes * plan.searches();
    }
    if plan.tests(TestName::Latency) {
        let loaded = if plan.tests(TestName::Packets) { 2 * sizes } else { 0 };
        one += trial + stream * ways + trial * loaded;
    }
    one * plan.each().len() as u32
}

/// Whether the other end of what the plan measures is at a loopback address. The lab's is not.
///
/// # Errors
/// The server's address is none, or its name has none.
pub fn is_on_this_host(plan: &GatewayPlan) -> Result<bool, ExperimentError> {
    match &plan.to {
        Where::Lab => Ok(false),
        Where::Server(typed) => Ok(remote::address(typed)?.ip().to_canonical().is_loopback()),
    }
}

/// Measures in the lab. Must be called while this process has one thread. An interrupt ends it with the trial at hand; what was
/// measured by then is in the document.
///
/// # Errors
/// A plan that cannot be carried out, or that is of a real gateway; a machine that lacks something. A gateway through which
/// nothing comes is no error, but a finding.
pub fn run(
    plan: &GatewayPlan,
    order: &Order,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<GatewayDone, ExperimentError> {
    measure(plan, None, order, book, interrupts, stage)
}

/// The same of a real gateway, whose other end knows `secret`.
///
/// # Errors
/// Those of [`run`]; the other end does not answer, or not to this secret.
pub fn run_against(
    plan: &GatewayPlan,
    secret: &Secret,
    order: &Order,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<GatewayDone, ExperimentError> {
    measure(plan, Some(secret), order, book, interrupts, stage)
}

fn measure(
    plan: &GatewayPlan,
    secret: Option<&Secret>,
    order: &Order,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<GatewayDone, ExperimentError> {
    plan.check().map_err(testbed::LabError::from)?;
    // Gone also after SIGKILL. squid gives root away, and must still find what is its own.
    let folder = Scratch::new("gateway")?;
    let proxy = plan.to == Where::Lab && plan.conditions.iter().any(|condition| condition.proxy());
    let squid = if proxy { Some(Squid::find()?) } else { None };
    let server = match &plan.to {
        Where::Lab => None,
        Where::Server(typed) => Some(remote::address(typed)?),
    };
    let record = book.create(&plan.name, order.started, plan.seed)?;
    record.write_plan(&plan.to_toml())?;
    let showing = ExperimentProgress::begin(&record, "gateway", &order.command, plan.seed, stage);
    let mut staged = showing.staging(stage);
    let stage: &mut dyn Stage = &mut staged;
    let mut sheet = Sheet {
        plan,
        order,
        showing: &showing,
        part: document::part_of(plan, server.map(|server| server.to_string())),
        checks: Vec::new(),
        facts: None,
        squid: squid.as_ref().map(Squid::version),
        lasted: Duration::ZERO,
        before: document::times(),
    };
    let made = match (server, secret) {
        (None, _) => {
            let labs = Labs { plan, order, interrupts, folder: folder.path(), squid };
            in_labs(&labs, &mut sheet, stage)
        }
        (Some(server), Some(secret)) => {
            let name = plan.each()[0].0.clone();
            let mut tell = |what: &str| stage.step(&format!("{name}: {what}"));
            remote::measure(plan, server, secret, order, folder.path(), interrupts, &mut tell)
                .map(|made| sheet.take("", made))
        }
        (Some(_), None) => Err(ExperimentError::Plan("no token: --token-file or YAMABIKO_TOKEN".into())),
    };
    let written = made.and_then(|()| sheet.write(&record, interrupts.count() > 0));
    let document = written.inspect_err(|_| {
        // Nothing was measured: a folder left behind would look like a run that was killed.
        let _ = fs::remove_dir_all(record.path());
    })?;
    showing.done(&document.validity, |standing| standing.gateway = Some(document.gateway.clone()));
    Ok(GatewayDone { document, folder: record.path().to_owned() })
}

/// Each condition on each link. What was measured before something failed is kept.
fn in_labs(labs: &Labs<'_>, sheet: &mut Sheet<'_>, stage: &mut dyn Stage) -> Result<(), ExperimentError> {
    for (condition, link) in labs.plan.each().into_iter().filter_map(|(_, which)| which) {
        if labs.interrupts.count() > 0 {
            break;
        }
        let name = format!("{condition}, {link}");
        let mut tell = |what: &str| stage.step(&format!("{name}: {what}"));
        match labs.condition(condition, link, &mut tell) {
            Ok(made) => sheet.take(&name, made),
            Err(error) if !sheet.part.conditions.is_empty() => {
                sheet.checks.push(Check::without_figure(
                    format!("{name}: made"),
                    CheckState::CouldNotRun,
                    Weight::Suspect,
                    format!("this condition and those after it were not measured: {error}"),
                ));
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The document while it grows.
struct Sheet<'a> {
    plan: &'a GatewayPlan,
    order: &'a Order,
    showing: &'a ExperimentProgress,
    part: ForwardingPart,
    checks: Vec<Check>,
    facts: Option<LabFacts>,
    squid: Option<String>,
    lasted: Duration,
    before: document::Times,
}

impl Sheet<'_> {
    /// Takes a condition in; `name` is in front of its checks.
    fn take(&mut self, name: &str, made: MeasuredCondition) {
        let MeasuredCondition { condition, checks, facts, taken } = made;
        // A condition that was interrupted before it had a figure is none.
        let is_empty = condition.findings.is_empty() && taken.survey.is_empty() && taken.figures.is_empty();
        if is_empty && taken.ended.as_ref().is_some_and(trials::Stop::is_interrupt) {
            return;
        }
        let validity = Validity::from_checks(checks);
        self.checks.extend(if name.is_empty() { validity.checks } else { of_run(name, &validity) });
        self.lasted += taken.lasted;
        self.part.socket_bytes_actual = self.part.socket_bytes_actual.or(taken.socket_bytes_actual);
        self.facts = self.facts.take().or(facts);
        self.part.conditions.push(condition);
        self.showing.put(|standing| standing.gateway = Some(self.part.clone()));
    }

    fn write(mut self, record: &RunFolder, interrupted: bool) -> Result<GatewayDocument, ExperimentError> {
        self.part.notes = document::notes(self.plan, &self.part, self.facts.as_ref());
        let mut host = host::facts(&host::CorePlan::default(), 1)?;
        host.steal_share = document::steal_share(&self.before, &document::times());
        if let Some(facts) = &self.facts {
            host.settings.insert("placement".into(), facts.placement.clone());
            host.settings.insert("idle".into(), facts.idle.clone());
            let counted = if facts.by_cgroup { "of a control group" } else { "of its processes (/proc)" };
            host.settings.insert("gateway's CPU".into(), counted.into());
        }
        if let Some(squid) = self.squid.filter(|squid| !squid.is_empty()) {
            host.settings.insert("proxy".into(), squid);
        }
        self.checks.push(undisturbed(host.steal_share));
        let document = GatewayDocument {
            schema: SCHEMA.into(),
            run: Run {
                id: record.id().into(),
                dir: record.path().display().to_string(),
                command: self.order.command.clone(),
                seed: self.plan.seed,
                started_at: store::rfc3339(self.order.started),
                duration_s: self.lasted.as_secs_f64(),
                interrupted,
                host,
                ..Run::default()
            },
            validity: Validity::from_checks(self.checks),
            gateway: self.part,
        };
        record.write_summary(&document)?;
        Ok(document)
    }
}

/// The hypervisor took little.
fn undisturbed(steal_share: Option<f64>) -> Check {
    let (state, why) = match steal_share {
        None => (CheckState::CouldNotRun, "/proc/stat could not be read"),
        Some(share) if share <= STEAL_SHARE_MAX => (CheckState::Ok, "share of CPU time taken away by the hypervisor"),
        Some(_) => (CheckState::Failed, "the hypervisor took CPU time away: the figures are the neighbours' too"),
    };
    Check {
        name: "machine_undisturbed".into(),
        state,
        weight: Weight::Suspect,
        value: steal_share,
        limit: Some(STEAL_SHARE_MAX),
        unit: "ratio".into(),
        why: why.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_typed_bare_as_netperf_has_them_or_with_a_unit() {
        for typed in ["16384", "16KiB", " 16384B "] {
            assert_eq!((message_bytes(typed), socket_bytes(typed)), (Ok(16_384), Ok(Some(16_384))), "{typed}");
        }
        assert_eq!(socket_bytes("auto"), Ok(None));
        for typed in ["", "x", "16 apples", "-1", "5GB"] {
            assert!(message_bytes(typed).is_err(), "{typed}");
        }
        assert!(socket_bytes("x").unwrap_err().ends_with("or auto"));
    }
}
