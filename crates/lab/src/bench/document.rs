//! From what a run left behind to its document, its files and the gate's verdict.

use std::io::Write;
use std::time::Duration;

use load::{Delays, Ending, Levels, Tally};
use path::{LinkSpec, PathSpec, Propagation};
use schema::document::{self, Load, Recorded, Run, SCHEMA, Validity};
use schema::{CacheFigures, CachePart, CachePoint, Document, ServerSecond};
use stats::Histogram;
use store::RunFolder;
use sys::accounting::CpuTimes;
use sys::clock::Clock;
use units::{Limit, Timestamp};

use super::{Before, FirstExchange, Looked, Outcome};
use crate::drive::path_io::PathIo;
use crate::error::LabError;
use crate::handshakes::Handshakes;
use crate::host::{self, CorePlan};
use crate::lanes::{LaneEnd, LanePlan};
use crate::path_part::{Refused, mistaken_drops};
use crate::places::target::Reach;
use crate::places::{Places, Steering};
use crate::server::{self, watch::CoreWatch};
use crate::standing::Opening;
use crate::tapping::Tapped;
use crate::{distances, path_part, watch_part};
use plan::{Plan, Proxy};
use validity;
use validity::evidence::{Evidence, Kept, Watched, WireEvidence, WireFigures};

/// A run that has ended, in parts.
pub struct Ended<'a> {
    pub plan: &'a Plan,
    pub command: &'a str,
    pub clock: Clock,
    pub cores: &'a CorePlan,
    /// All lanes as one.
    pub lane: LaneEnd,
    pub lanes: LanePlan,
    pub levels: Levels,
    pub path: Option<PathIo>,
    pub spec: Option<&'a PathSpec>,
    pub handshakes: Option<Handshakes>,
    /// What the generator itself delayed.
    pub delays: Delays,
    /// Requests of the whole run.
    pub requests: u64,
    pub table: Option<Kept>,
    pub store_error: Option<String>,
    pub watched: Option<(Watched, WireFigures)>,
    /// What the load's own sockets saw.
    pub tapped: Option<Tapped>,
    pub folder: Option<RunFolder>,
    /// How it stands, where it is kept.
    pub opening: Option<Opening>,
    pub places: Option<Places>,
    /// Where connections go, in words.
    pub target: String,
    pub before: Before,
    pub after: Before,
    pub looked: Looked,
    pub descriptors: u64,
    /// What processors did that had nothing to do.
    pub idle: &'a str,
    /// What was replayed: a log, a browser's recording.
    pub recordings: (Option<document::Replay>, Option<document::Har>),
    /// What a mix found out.
    pub mix: Option<Mix>,
}

/// What a mix found out about caches.
pub struct Mix {
    /// What the mix is called.
    pub name: String,
    pub figures: CacheFigures,
    /// Exchanges that are not in their table, for want of room or of a disk that takes them.
    pub left_out: u64,
    /// How far the wall clock has run apart from the run's, since the run's zero.
    pub wall_drift: Duration,
}

/// Puts the document together, judges it, and keeps it.
pub fn finish(tally: Tally, mut ended: Ended<'_>) -> Result<Outcome, LabError> {
    let (measured_from, measured_to) = ended.lane.measured;
    let measured_end = measured_to.unwrap_or_else(|| ended.clock.now());
    let live = ended.lane.live;
    let levels = std::mem::take(&mut ended.levels);
    let ending = Ending {
        measured_end,
        offered: live.offered_measured,
        unfinished: ended.lane.unfinished,
        levels: levels.clone(),
    };
    let mut counted = tally.finish(ending);
    let delays = ended.delays.finish(&counted.histograms.response_time);
    counted.load.statuses_expected = ended.plan.load.expects_statuses();
    counted.load.generator_delay = Some(validity::generator_delay(&delays));
    counted.load.tls = ended.lane.tls.take();
    counted.load.malformed_responses = std::mem::take(&mut ended.lane.malformed_responses);
    counted.load.held = ended.plan.load.open_connections.map(|connections| {
        let memory = ended.looked.memory.unwrap_or_default();
        let (generator, kernel) = memory.each_since(&ended.looked.memory_before, u64::from(connections));
        document::Held {
            connections: u64::from(connections),
            failed: live.held_failed,
            per_second: u64::from(super::OPEN_PER_SECOND),
            processes: ended.lanes.processes(),
            generator_bytes_each: generator,
            kernel_bytes_each: kernel,
        }
    });
    counted.load.sessions = (live.sessions_begun > 0).then(|| document::Sessions {
        begun: live.sessions_begun,
        begun_measured: live.sessions_begun_measured,
        rate_per_s: rate_over(live.sessions_begun_measured, measured_end.since(measured_from)),
        ended: live.sessions_ended,
        failed: live.sessions_failed,
        cut: live.sessions_cut,
    });
    (counted.load.replay, counted.load.har) = std::mem::take(&mut ended.recordings);

    let mut host = host::facts(ended.cores, ended.lanes.of)?;
    host.pace_ns = ended.looked.pace_ns;
    host.steal_share = steal_share(ended.before.cpu.as_deref(), ended.after.cpu.as_deref());
    let settings = &mut host.settings;
    settings.insert("wait".into(), ended.plan.host.wait.name().into());
    settings.insert("idle".into(), ended.idle.to_owned());
    settings.insert("engine".into(), ended.lane.engine.name().into());
    settings.insert("loop_scheduling".into(), ended.lane.scheduling.clone());
    if ended.lanes.threads() > 1 {
        settings.insert("threads".into(), ended.lanes.of.to_string());
    }
    if ended.lanes.in_processes {
        settings.insert("processes".into(), ended.lanes.processes().to_string());
    }
    settings.insert("loop_busy".into(), format!("{:.1}%", 100.0 * ended.lane.health.busy_share()));
    settings.insert("open_files_max".into(), ended.descriptors.to_string());
    if ended.mix.is_some() {
        let crowded = ended.lane.mix.crowded;
        settings.insert("connections_of_robots_beyond_4".into(), format!("{crowded} of {}", live.connections_opened));
    }
    if let Some((watched, _)) = &ended.watched {
        settings.insert("watch".into(), watched.cost());
    }
    if ended.places.is_none() {
        settings.insert("target".into(), ended.target.clone());
    }
    if let Some(places) = &ended.places {
        settings.insert("privilege".into(), if places.rootless { "user namespace" } else { "root" }.into());
        if !places.reaches.is_empty() {
            let reached: Vec<String> = places.reaches.iter().map(Reach::words).collect();
            settings.insert("target".into(), format!("{}; by device {}", reached.join(", "), places.server_device));
        }
        settings.insert(
            "server_receive_work".into(),
            match &places.steering {
                Steering::ServerCores => "on the server's cores (RPS)".into(),
                Steering::PathCore => "on the path's core, not in the server's CPU".into(),
                Steering::Failed(why) => format!("on the path's core, not in the server's CPU ({why})"),
            },
        );
    }

    let path = match (&ended.path, ended.spec, &ended.plan.path) {
        (Some(path), Some(spec), Some(plan)) => {
            Some(path_part::document(distances::name(plan), &spec.clients, path, ended.handshakes.as_ref()))
        }
        _ => None,
    };
    let beyond = ended.places.as_ref().is_some_and(Places::beyond);
    let path = path.map(|mut path| {
        if beyond {
            // With the real network's time in them they say nothing about the path.
            path.rtt_error_ns = None;
            if path.got_rtt_ns.is_some() {
                path.got_rtt_from += ", the real network beyond the path included";
            }
        }
        let outside = ended.watched.as_ref().and_then(|(watched, _)| watched.between.clone());
        if let (true, Some((_, figures))) = (outside.is_some() || beyond, &ended.watched)
            && !figures.handshake_rtt.is_empty()
        {
            // The load's own delay in seeing an answer is not in it.
            path.got_rtt_ns = Some(figures.handshake_rtt.quantiles());
            path.rtt_error_ns = Some(figures.handshake_error.quantiles()).filter(|error| error.count > 0);
            path.got_rtt_from = "handshakes of the measured phase, by packets at the server's end".into();
        }
        path.from_outside = outside;
        path
    });
    let server = server_part(&mut ended, counted.load.completed, &counted.histograms.response_time);
    let server_seconds = std::mem::take(&mut ended.looked.server_series).into_rows();
    let series_error = ended.folder.as_ref().and_then(|folder| keep_series(folder, &counted, &server_seconds).err());
    let folder_text = |of: fn(&RunFolder) -> String| ended.folder.as_ref().map(of).unwrap_or_default();
    let mut document = Document {
        schema: SCHEMA.into(),
        run: Run {
            id: folder_text(|folder| folder.id().to_owned()),
            dir: folder_text(|folder| folder.path().display().to_string()),
            command: ended.command.to_owned(),
            seed: ended.plan.seed,
            started_at: store::rfc3339(ended.clock.started()),
            duration_s: measured_end.since(measured_from).as_secs_f64(),
            warmup_s: ended.plan.load.warmup.as_secs_f64(),
            interrupted: ended.looked.interrupted,
            recorded: ended.table.filter(|_| ended.store_error.is_none()).map(|table| Recorded {
                requests: table.rows,
                of: ended.requests,
                one_in: table.one_in,
                measured_from_ns: measured_from.as_nanos(),
            }),
            host,
        },
        validity: Validity::from_checks(Vec::new()),
        load: Some(Load { unsolicited: live.unsolicited(), stray_lines: live.stray_lines, ..counted.load }),
        path,
        watch: ended
            .watched
            .as_ref()
            .map(|(watched, figures)| watch_part::document(watched, figures, measured_end.since(measured_from))),
        tap: None,
        server,
        slo: None,
        cache: None,
    };
    document.cache = ended.mix.as_ref().map(|mix| cache_part(ended.plan, mix, &document));
    let left_out = ended.mix.as_ref().map_or(0, |mix| mix.left_out);
    // Those that nobody judged have a check of their own.
    let no_room = left_out - ended.mix.as_ref().map_or(0, |mix| mix.figures.unjudged);
    let no_room = (no_room > 0).then(|| format!("the disk had no room in time for {no_room} exchanges of the mix"));
    let store_error = ended.store_error.clone().or_else(|| series_error.map(|error| error.to_string())).or(no_room);
    let in_flight_by_second: Vec<f64> =
        counted.seconds.iter().filter(|second| second.measured).map(|second| second.in_flight_mean).collect();
    let steered = ended.places.as_ref().is_some_and(|places| places.steering == Steering::ServerCores);
    let evidence = Evidence {
        plan: ended.plan,
        loop_health: &ended.lane.health,
        delays: &delays,
        little: &counted.little,
        levels: &levels,
        in_flight_by_second: &in_flight_by_second,
        mistaken_drops: ended
            .path
            .as_ref()
            .and_then(|path| mistaken_drops(ended.before.devices, ended.after.devices, Refused::by(path), steered)),
        cap_hits: live.cap_hits,
        wall_drift: ended.mix.as_ref().map(|mix| mix.wall_drift),
        table: ended.table,
        store_error: store_error.as_deref(),
        server_ended: ended.looked.server_ended.as_deref(),
        gave_up: ended.looked.gave_up,
        all_refused: ended.looked.all_refused,
        target: &ended.target,
        handshake_error: ended.handshakes.as_ref().map(|handshakes| handshakes.measured_error().quantiles()),
        rtt_varies: ended.spec.is_some_and(rtt_varies),
        beyond,
        only_delays: ended.spec.is_some_and(PathSpec::only_delays),
        wire: ended.watched.as_ref().map(|(watched, figures)| WireEvidence {
            watched,
            figures,
            phase_ns: measured_end.since(measured_from).as_nanos() as f64,
        }),
    };
    let mut checks = validity::checks(&document, &evidence);
    if let Some(tapped) = ended.tapped.take() {
        checks.extend(tap_checks(&tapped, &ended, live));
        if let Some(folder) = &ended.folder {
            // What cannot be written is read from the rows.
            let _ = tapped.responses.keep(folder, measured_end);
        }
        document.tap = Some(tapped.part);
    }
    document.validity = Validity::from_checks(checks);
    document.slo = ended.plan.slo.as_ref().map(|slo| slo.judge(&document));

    let mut folder_path = None;
    if let Some(folder) = &ended.folder {
        folder_path = Some(folder.path().to_owned());
        let wire = ended.watched.as_ref().map(|(_, figures)| figures);
        let phase = (measured_from, measured_end);
        if let Err(error) = keep_rest(folder, &document, &counted.histograms, wire, phase) {
            // The result is printed all the same; what is missing on disk is said.
            let why = error.to_string();
            let why = units::printable(&why);
            let _ = writeln!(std::io::stderr(), "yamabiko: the run's files are not complete: {why}");
        }
        if let Some(opening) = &ended.opening {
            opening.done(ended.clock.now(), &document);
        }
    }
    // The server is told to end before its place is torn down, so that it can write what it wants to.
    drop(ended.places.as_mut().and_then(|places| places.server.take()));
    let first_exchange = FirstExchange {
        request: ended.lane.first_request.into(),
        response_head: ended.lane.first_head.map(Vec::into_boxed_slice),
    };
    let zero_at = ended.clock.started();
    Ok(Outcome {
        document,
        first_exchange,
        all_refused: ended.looked.all_refused.is_some(),
        zero_at,
        response_time: counted.histograms.response_time,
        folder: folder_path,
        exchanges_left_out: left_out,
        cache: ended.mix.map(|mix| mix.figures),
        measured: measured_from..measured_end,
        spans: counted.spans,
        server_seconds,
        loop_busy: ended.lane.health.busy_share(),
        origin: None,
    })
}

/// The third witness by itself, beside the load, and beside the wire.
fn tap_checks(tapped: &Tapped, ended: &Ended<'_>, live: load::Live) -> Vec<document::Check> {
    let totals = validity::LoadTotals {
        called: live.connections_opened,
        completed: live.completed,
        failed: live.failed,
        retried: live.retried,
        sent_bytes: live.bytes_sent,
        received_bytes: live.bytes_received,
    };
    let mut checks = validity::tap_checks(&tapped.part, tapped.cut, tapped.error.as_deref());
    checks.extend(validity::tap_agrees_with_load(&tapped.part, ended.plan, tapped.client, totals));
    if let Some((_, figures)) = &ended.watched {
        let (part, outside) = (&tapped.part, tapped.outside);
        checks.extend(validity::tap_agrees(part, outside, figures.made, figures.up_bytes, figures.down_bytes));
    }
    checks.extend(validity::tap_little(&tapped.part, tapped.levels.as_ref()));
    checks
}

/// The run as the one point of a cache benchmark.
fn cache_part(plan: &Plan, mix: &Mix, document: &Document) -> CachePart {
    let load = document.load.as_ref();
    let point = CachePoint {
        run: document.run.id.clone(),
        offered_rate_per_s: load.map_or(0.0, |load| load.offered_rate_per_s),
        carried_rate_per_s: load.map_or(0.0, |load| load.carried_rate_per_s),
        duration_s: document.run.duration_s,
        figures: mix.figures.clone(),
        ..CachePoint::default()
    };
    // A user and a password of the proxy are not for results.
    let proxy = match &plan.load.proxy {
        Some(proxy) => format!("forward {}", Proxy { user: None, ..proxy.clone() }),
        // The origin itself, or a reverse proxy: which, nobody said.
        None => format!("at {}", plan.load.url),
    };
    CachePart { mix: mix.name.clone(), proxy, points: vec![point], ..CachePart::default() }
}

fn server_part(ended: &mut Ended<'_>, completed: u64, response_time: &Histogram) -> Option<document::Server> {
    let watched = ended.looked.watch.take().map(CoreWatch::finish);
    let (places, plan) = (ended.places.as_ref()?, ended.plan.server.as_ref()?);
    let (from, to) = (ended.looked.server_from.as_ref()?, ended.looked.server_to.as_ref()?);
    let facts = server::Facts {
        plan,
        tcp: &places.tcp,
        steered: ended.looked.steered,
        completed,
        rss_bytes_max: ended.looked.rss_bytes_max,
        baseline: ended.looked.baseline,
    };
    let mut part = to.since(from, &facts);
    if let Some(watched) = watched {
        server::add_disturbance(&mut part, &watched, response_time);
    }
    Some(part)
}

/// Whether the RTT of a handshake may differ from what was asked because the plan says so.
pub(super) fn rtt_varies(spec: &PathSpec) -> bool {
    let varies = |link: &LinkSpec| {
        link.rate() != Limit::Unlimited
            || !link.variation().is_zero()
            || matches!(link.propagation, Propagation::OverTime(_))
    };
    !spec.shared.is_empty()
        || !spec.changes.is_empty()
        || spec.clients.iter().any(|client| varies(&client.up) || varies(&client.down))
}

/// Share of all cores' time that the hypervisor took, between two readings.
pub(super) fn steal_share(before: Option<&[(usize, CpuTimes)]>, after: Option<&[(usize, CpuTimes)]>) -> Option<f64> {
    let (before, after) = (before?, after?);
    let (mut stolen, mut total) = (0.0, 0.0);
    for (core, times) in after {
        let (_, earlier) = before.iter().find(|(other, _)| other == core)?;
        let spent = times.since(earlier);
        stolen += spent.steal.as_secs_f64();
        total += (spent.busy() + spent.idle + spent.iowait).as_secs_f64();
    }
    (total > 0.0).then(|| stolen / total)
}

/// The exact series replace the provisional rows that were written while the run went.
fn keep_series(folder: &RunFolder, counted: &load::Outcome, server: &[ServerSecond]) -> store::Result<()> {
    if !server.is_empty() {
        folder.server_series().finish_anew(server)?;
    }
    let keep = || -> store::Result<()> {
        folder.distributions().finish_anew(&counted.distributions)?;
        folder.series().finish_anew(&counted.seconds).map(drop)
    };
    keep().or_else(|error| {
        if !error.is_disk_full() {
            return Err(error);
        }
        // The exact rows are worth more than the provisional ones, and take their place.
        for table in ["series", "distributions"] {
            let _ = std::fs::remove_dir_all(folder.path().join(table));
        }
        keep()
    })
}

fn keep_rest(
    folder: &RunFolder,
    document: &Document,
    histograms: &load::Histograms,
    wire: Option<&WireFigures>,
    (from, to): (Timestamp, Timestamp),
) -> store::Result<()> {
    folder.write_summary(document)?;
    let span = |histogram| [(from.as_nanos(), to.as_nanos(), histogram)];
    for (name, histogram) in [
        ("response_time", &histograms.response_time),
        ("service_time", &histograms.service_time),
        ("send_lag", &histograms.send_lag),
        ("connect", &histograms.connect),
        ("tls_handshake", &histograms.tls_handshake),
        ("first_byte", &histograms.first_byte),
        ("connection_duration", &histograms.connection_duration),
    ] {
        if name == "tls_handshake" && histogram.is_empty() {
            continue;
        }
        folder.write_hlog(name, &span(histogram))?;
    }
    if let Some(wire) = wire {
        // A page would have to go through every row of the wire's tables for them.
        folder.write_hlog("wire_rtt", &span(&wire.handshake_rtt))?;
        folder.write_hlog("wire_service", &span(&wire.service_time))?;
    }
    Ok(())
}

/// 0 over no time.
fn rate_over(count: u64, time: std::time::Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}
