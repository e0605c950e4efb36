//! Measures a plan: its conditions and links one after the other, and their document.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::emulation::EmulationFacts;
use crate::tester::Secret;
use schema::document::{Check, CheckState, Run, SCHEMA, Weight};
use schema::{ForwardingPart, GatewayDocument, Validity};
use store::{RunFolder, RunStore};
use sys::scratch::Scratch;
use sys::signal::Interrupts;
use testbed::host;
use units::{Bytes, CpuShare};

use crate::labs::{EmulatedConditions, MeasuredCondition};
use crate::{GatewayLocation, GatewayPlan, TestName, document, remote, trials};
use experiment::ExperimentError;
use experiment::programs::proxies::Squid;
use experiment::progress::ExperimentProgress;
use experiment::verdict::of_run;
use experiment::{Order, Stage};

/// Estimated overhead of an emulation.
const EMULATION_OVERHEAD: Duration = Duration::from_millis(2500);
/// Estimated overhead of a trial.
const TRIAL_OVERHEAD: Duration = Duration::from_millis(120);
/// Estimated trials of a search: short ones, and full ones, half of which lose packets.
const SHORT_TRIALS: u32 = 6;
const FULL_TRIALS: u32 = 6;
/// Limit of the share of CPU time stolen by the hypervisor, as in the validity checks of runs.
const STEAL_SHARE_MAX: f64 = 0.1;

/// A finished measurement.
#[derive(Debug)]
pub struct GatewayDone {
    /// Its document.
    pub document: GatewayDocument,
    /// Its folder in the run store.
    pub folder: PathBuf,
}

/// Parses a share of a core, or `none`.
///
/// # Errors
/// One sentence.
pub fn share(typed: &str) -> Result<Option<CpuShare>, String> {
    match typed.trim() {
        "none" => Ok(None),
        share => share.parse().map(Some).map_err(|error| format!("{error}, or none")),
    }
}

/// Parses a socket buffer size: bytes, with or without a unit, or `auto`.
///
/// # Errors
/// One sentence.
pub fn socket_bytes(typed: &str) -> Result<Option<u32>, String> {
    match typed.trim() {
        "auto" => Ok(None),
        bytes => message_bytes(bytes).map(Some).map_err(|error| format!("{error}, or auto")),
    }
}

/// Parses bytes: a bare number as in netperf, or with a unit.
///
/// # Errors
/// One sentence.
pub fn message_bytes(typed: &str) -> Result<u32, String> {
    let typed = typed.trim();
    let bytes = typed.parse().ok().or_else(|| typed.parse::<Bytes>().ok().and_then(|bytes| bytes.0.try_into().ok()));
    bytes.ok_or_else(|| "expected bytes, such as 16384 or 16KiB".to_owned())
}

/// Estimated time of the measurement, all conditions and links together.
pub fn time(plan: &GatewayPlan) -> Duration {
    let ways = plan.direction.each().count() as u32;
    let trial = plan.lasts + TRIAL_OVERHEAD;
    let mut one = if plan.to == GatewayLocation::Lab { EMULATION_OVERHEAD } else { Duration::ZERO };
    if plan.survey {
        one += (plan.lasts.min(Duration::from_secs(3)) + TRIAL_OVERHEAD) * ways;
    }
    let stream = trial + Duration::from_millis(500);
    if plan.tests(TestName::Stream) {
        one += stream * ways * plan.trials;
    }
    let closed = [TestName::Transactions, TestName::Connections];
    one += trial * plan.trials * closed.iter().filter(|&&test| plan.tests(test)).count() as u32;
    let sizes = plan.sizes.len() as u32 * ways;
    if plan.tests(TestName::Packets) {
        let look = (Duration::from_millis(750) + TRIAL_OVERHEAD) * SHORT_TRIALS;
        let full = (plan.packet_trial() + Duration::from_secs(1) + TRIAL_OVERHEAD) * FULL_TRIALS;
        one += (look + full) * sizes * plan.searches();
    }
    if plan.tests(TestName::Latency) {
        let loaded = if plan.tests(TestName::Packets) { 2 * sizes } else { 0 };
        one += trial + stream * ways + trial * loaded;
    }
    one * plan.each().len() as u32
}

/// Whether the server of a real gateway has a loopback address. False for the emulation.
///
/// # Errors
/// The server's address is invalid, or its name cannot be resolved.
pub fn is_on_this_host(plan: &GatewayPlan) -> Result<bool, ExperimentError> {
    match &plan.to {
        GatewayLocation::Lab => Ok(false),
        GatewayLocation::Server(typed) => Ok(remote::address(typed)?.ip().to_canonical().is_loopback()),
    }
}

/// Measures the emulated gateway. Must be called while this process has one thread. An interrupt ends the current
/// trial; the document has the figures up to then.
///
/// # Errors
/// An invalid plan, or one for a real gateway; missing programs or privileges. A gateway that passes nothing is not an
/// error but a finding.
pub fn run(
    plan: &GatewayPlan,
    order: &Order,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<GatewayDone, ExperimentError> {
    measure(plan, None, order, book, interrupts, stage)
}

/// Measures a real gateway, whose server knows `secret`.
///
/// # Errors
/// Those of [`run`]; the server does not respond, or has another secret.
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
    plan.check().map_err(testbed::TestbedError::from)?;
    // Removed even after SIGKILL. Readable for squid, which gives up root.
    let folder = Scratch::new("gateway")?;
    let proxy = plan.to == GatewayLocation::Lab && plan.conditions.iter().any(|condition| condition.proxy());
    let squid = if proxy { Some(Squid::find()?) } else { None };
    let server = match &plan.to {
        GatewayLocation::Lab => None,
        GatewayLocation::Server(typed) => Some(remote::address(typed)?),
    };
    let record = book.create(&plan.name, order.started, plan.seed)?;
    record.write_plan(&plan.to_toml())?;
    let showing = ExperimentProgress::begin(&record, "gateway", &order.command, plan.seed, stage);
    let mut staged = showing.staging(stage);
    let stage: &mut dyn Stage = &mut staged;
    let mut builder = DocumentBuilder {
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
            let labs = EmulatedConditions { plan, order, interrupts, folder: folder.path(), squid };
            in_labs(&labs, &mut builder, stage)
        }
        (Some(server), Some(secret)) => {
            let name = plan.each()[0].0.clone();
            let mut tell = |what: &str| stage.step(&format!("{name}: {what}"));
            remote::measure(plan, server, secret, order, folder.path(), interrupts, &mut tell)
                .map(|made| builder.take("", made))
        }
        (Some(_), None) => Err(ExperimentError::Plan("no token: --token-file or YAMABIKO_TOKEN".into())),
    };
    let written = made.and_then(|()| builder.write(&record, interrupts.count() > 0));
    let document = written.inspect_err(|_| {
        // Nothing was measured: the folder would look like a killed run.
        let _ = fs::remove_dir_all(record.path());
    })?;
    showing.done(&document.validity, |progress| progress.gateway = Some(document.gateway.clone()));
    Ok(GatewayDone { document, folder: record.path().to_owned() })
}

/// Measures each condition on each link. After a failure the earlier results are stored.
fn in_labs(
    labs: &EmulatedConditions<'_>,
    builder: &mut DocumentBuilder<'_>,
    stage: &mut dyn Stage,
) -> Result<(), ExperimentError> {
    for (condition, link) in labs.plan.each().into_iter().filter_map(|(_, which)| which) {
        if labs.interrupts.count() > 0 {
            break;
        }
        let name = format!("{condition}, {link}");
        let mut tell = |what: &str| stage.step(&format!("{name}: {what}"));
        match labs.condition(condition, link, &mut tell) {
            Ok(made) => builder.take(&name, made),
            Err(error) if !builder.part.conditions.is_empty() => {
                builder.checks.push(Check::without_figure(
                    format!("{name}: measured"),
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

/// The document under construction.
struct DocumentBuilder<'a> {
    plan: &'a GatewayPlan,
    order: &'a Order,
    showing: &'a ExperimentProgress,
    part: ForwardingPart,
    checks: Vec<Check>,
    facts: Option<EmulationFacts>,
    squid: Option<String>,
    lasted: Duration,
    before: document::Times,
}

impl DocumentBuilder<'_> {
    /// Adds a condition; `name` prefixes its checks.
    fn take(&mut self, name: &str, made: MeasuredCondition) {
        let MeasuredCondition { condition, checks, facts, observations } = made;
        // Skip a condition interrupted before its first figure.
        let is_empty =
            condition.findings.is_empty() && observations.survey.is_empty() && observations.figures.is_empty();
        if is_empty && observations.ended.as_ref().is_some_and(trials::Stop::is_interrupt) {
            return;
        }
        let validity = Validity::from_checks(checks);
        self.checks.extend(if name.is_empty() { validity.checks } else { of_run(name, &validity) });
        self.lasted += observations.lasted;
        self.part.socket_bytes_actual = self.part.socket_bytes_actual.or(observations.socket_bytes_actual);
        self.facts = self.facts.take().or(facts);
        self.part.conditions.push(condition);
        self.showing.put(|progress| progress.gateway = Some(self.part.clone()));
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

/// The hypervisor stole little CPU time.
fn undisturbed(steal_share: Option<f64>) -> Check {
    let (state, why) = match steal_share {
        None => (CheckState::CouldNotRun, "/proc/stat is unreadable"),
        Some(share) if share <= STEAL_SHARE_MAX => (CheckState::Ok, "share of CPU time stolen by the hypervisor"),
        Some(_) => (
            CheckState::Failed,
            "the hypervisor stole CPU time, which affects the figures; repeat the run on a less loaded host",
        ),
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
    fn byte_options_accept_bare_numbers_and_units() {
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
