//! Makes the document and the [`Outcome`] of a run that has ended.

use std::io::Write;
use std::time::Duration;

use load::{DelayBounds, Ending, Levels};
use path::{LinkSpec, PathSpec, Propagation};
use schema::document::{self, Host, Path, Recorded, Run, SCHEMA, Validity};
use schema::{CachePart, CachePoint, Document, ServerSecond};
use stats::Histogram;
use units::{Limit, Timestamp};

use super::collect::{Ended, Mix};
use super::schedule::OPEN_PER_SECOND;
use super::{FirstExchange, Outcome, evidence, files, shard_part};
use crate::error::TestbedError;
use crate::handshakes::Handshakes;
use crate::recorder::Counting;
use crate::server::watch::CoreWatch;
use crate::topology::target::Reach;
use crate::topology::{Steering, Topology};
use crate::{distances, host, path_part, server, shard_state, watch_part};
use plan::{HttpVersion, Plan, Proxy};

/// Final counts; the end of the measured phase is known.
pub(super) struct Counted {
    /// Figures, histograms and time series of the load.
    pub load: load::Outcome,
    /// Upper bounds of the generator's own delay in reported times.
    pub delays: DelayBounds,
    /// Gauges as sampled.
    pub levels: Levels,
    /// Handshakes by the load's own clock; absent without a path.
    pub handshakes: Option<Handshakes>,
    /// Requests of the whole run.
    pub requests: u64,
    /// The measured phase.
    pub from: Timestamp,
    pub end: Timestamp,
    /// The counts as stored, if the run is a part of a load.
    pub counts: Option<std::io::Result<Vec<u8>>>,
}

impl Counted {
    /// Length of the measured phase.
    pub fn phase(&self) -> Duration {
        self.end.since(self.from)
    }
}

/// Makes the document, judges it, and stores it.
///
/// # Errors
/// The properties of the host cannot be read.
pub(super) fn finish(counting: Counting, mut ended: Ended<'_>) -> Result<Outcome, TestbedError> {
    let mut counted = count(counting, &mut ended);
    let host = host_part(&ended)?;
    let path = path_part(&ended, &counted);
    let server = server_part(&mut ended, counted.load.load.completed, &counted.load.histograms.response_time);
    let server_seconds = std::mem::take(&mut ended.main_thread.server_series).into_rows();
    let series_error =
        ended.folder.folder().and_then(|folder| files::write_series(folder, &counted.load, &server_seconds).err());
    let load = std::mem::take(&mut counted.load.load);
    let mut document = Document {
        schema: SCHEMA.into(),
        run: run_part(&ended, &counted, host),
        validity: Validity::from_checks(Vec::new()),
        load: Some(load),
        path,
        watch: ended.wire().map(|(watched, figures)| watch_part::document(watched, figures, counted.phase())),
        tap: None,
        server,
        slo: None,
        cache: None,
    };
    document.cache = ended.mix.as_ref().map(|mix| cache_part(&ended.resolved.plan, mix, &document));
    let mut checks = evidence::checks(&document, &ended, &counted, series_error);
    if let Some(tapped) = ended.capture.sockets.take() {
        checks.extend(evidence::tap_checks(&tapped, &ended));
        if let Some(folder) = ended.folder.folder() {
            // If the exact series cannot be written, readers use the stored rows.
            let _ = tapped.responses.store(folder, counted.end);
        }
        document.tap = Some(tapped.part);
    }
    document.validity = Validity::from_checks(checks);
    document.slo = ended.resolved.plan.slo.as_ref().map(|slo| slo.judge(&document));
    write_files(&ended, &document, &counted);
    // The server receives SIGTERM before its sandbox is removed, so that it can write its files.
    drop(ended.network.topology.as_mut().and_then(|topology| topology.server.take()));
    Ok(outcome(ended, document, counted, server_seconds))
}

/// Ends the counts with the measured phase.
fn count(mut counting: Counting, ended: &mut Ended<'_>) -> Counted {
    let (from, to) = ended.shard.measured;
    let end = to.unwrap_or_else(|| ended.clock.now());
    let live = ended.shard.live;
    let levels = std::mem::take(&mut ended.levels);
    counting.set_measured_end(end);
    let counts = shard_part::encoded_counts(ended, &mut counting);
    let mut load = counting.tally.finish(Ending {
        measured_end: end,
        offered: live.offered_measured,
        unfinished: ended.shard.unfinished,
        levels: levels.clone(),
    });
    let delays = counting.delays.finish(&load.histograms.response_time);
    let plan = &ended.resolved.plan.load;
    shard_state::complete_load(&mut load.load, &ended.shard, plan, end.since(from), &delays);
    load.load.open_connections = plan.open_connections.map(|connections| {
        let connections = ended.resources.shard_plan.machine.share(u64::from(connections));
        let memory = ended.main_thread.memory.unwrap_or_default();
        let (generator, kernel) = memory.increase_per_connection(&ended.main_thread.memory_before, connections);
        document::OpenConnections {
            connections,
            failed: live.held_failed,
            per_second: u64::from(OPEN_PER_SECOND),
            processes: ended.resources.shard_plan.processes(),
            generator_bytes_each: generator,
            kernel_bytes_each: kernel,
        }
    });
    (load.load.replay, load.load.har) = ended.resolved.recordings.clone();
    Counted { load, delays, levels, handshakes: counting.handshakes, requests: counting.requests, from, end, counts }
}

/// The machine, and its use by the run.
fn host_part(ended: &Ended<'_>) -> Result<Host, TestbedError> {
    let (resources, shard) = (ended.resources, &ended.shard);
    let shards = resources.shard_plan;
    let mut host = host::facts(&resources.cores, shards.of)?;
    host.cpu_probe_ns = ended.main_thread.cpu_probe_ns;
    host.steal_share = host::steal_share(ended.before.cpu.as_deref(), ended.after.cpu.as_deref());
    let mut set = |name: &str, value: String| host.settings.insert(name.into(), value);
    set("wait", ended.resolved.plan.host.wait.name().into());
    set("idle", resources.wakefulness.words().to_owned());
    set("engine", shard.engine.name().into());
    set("loop_scheduling", shard.scheduling.clone());
    if shards.threads() > 1 {
        set("threads", shards.of.to_string());
    }
    if shards.in_processes {
        set("processes", shards.processes().to_string());
    }
    set("loop_busy", format!("{:.1}%", 100.0 * shard.health.busy_share()));
    set("open_files_max", resources.descriptors.to_string());
    if ended.mix.is_some() {
        let (crowded, opened) = (shard.mix.crowded, shard.live.connections_opened);
        set("connections_of_virtual_users_beyond_4", format!("{crowded} of {opened}"));
    }
    if let Some((watched, _)) = ended.wire() {
        set("watch", watched.cost());
    }
    let Some(topology) = &ended.network.topology else {
        set("target", ended.resolved.target.clone());
        return Ok(host);
    };
    set("privilege", if topology.rootless { "user namespace" } else { "root" }.into());
    if !topology.reaches.is_empty() {
        let reached: Vec<String> = topology.reaches.iter().map(Reach::words).collect();
        set("target", format!("{}; by device {}", reached.join(", "), topology.server_device));
    }
    let steering = match &topology.steering {
        Steering::ServerCores => "on the server's cores (RPS)".into(),
        Steering::PathCore => "on the path's core, not in the server's CPU time".into(),
        Steering::Failed(why) => format!("on the path's core, not in the server's CPU time ({why})"),
    };
    set("server_receive_work", steering);
    Ok(host)
}

/// The path's figures: its own counters, handshakes, and packets at the server's end.
fn path_part(ended: &Ended<'_>, counted: &Counted) -> Option<Path> {
    let resolved = ended.resolved;
    let (io, spec, plan) = (ended.path.as_ref()?, resolved.spec.as_ref()?, resolved.plan.path.as_ref()?);
    // A handshake of QUIC includes the server's time for TLS, so it does not measure the RTT.
    let is_quic = resolved.plan.load.http == HttpVersion::Http3;
    let handshakes = counted.handshakes.as_ref().filter(|_| !is_quic);
    let mut path = path_part::document(distances::name(plan), &spec.clients, io, handshakes);
    let beyond = ended.network.topology.as_ref().is_some_and(Topology::beyond);
    if beyond {
        // Handshake RTTs include the real network beyond the path, so they do not show the path's error.
        path.rtt_error_ns = None;
        if path.measured_rtt_ns.is_some() {
            path.measured_rtt_source += ", including the real network beyond the path";
        }
    }
    let outside = ended.wire().and_then(|(watched, _)| watched.between.clone());
    if let (true, Some((_, figures))) = (outside.is_some() || beyond || is_quic, ended.wire())
        && !figures.handshake_rtt.is_empty()
    {
        // Captured handshakes exclude the load's own delay in reading a response.
        path.measured_rtt_ns = Some(figures.handshake_rtt.quantiles());
        path.rtt_error_ns = Some(figures.handshake_error.quantiles()).filter(|error| error.count > 0);
        path.measured_rtt_source = "handshakes of the measured phase, captured at the server's end".into();
    }
    path.packet_capture = outside;
    Some(path)
}

fn run_part(ended: &Ended<'_>, counted: &Counted, host: Host) -> Run {
    Run {
        id: ended.folder.id(),
        dir: ended.folder.dir(),
        command: ended.command.to_owned(),
        seed: ended.resolved.plan.seed,
        started_at: store::rfc3339(ended.clock.started()),
        duration_s: counted.phase().as_secs_f64(),
        warmup_s: ended.resolved.plan.load.warmup.as_secs_f64(),
        interrupted: ended.main_thread.interrupted,
        recorded: ended.table.filter(|_| ended.store_error.is_none()).map(|table| Recorded {
            requests: table.rows,
            of: counted.requests,
            one_in: table.one_in,
            measured_from_ns: counted.from.as_nanos(),
        }),
        host,
        shard: ended
            .resolved
            .shard
            .clone()
            .map(|shard| document::Shard { arrivals_of_all: ended.shard.arrivals_of_all, ..shard }),
        shards: Vec::new(),
    }
}

/// Writes the run's files, if it is stored. A failure does not prevent the result; missing files are reported.
fn write_files(ended: &Ended<'_>, document: &Document, counted: &Counted) {
    let Some(folder) = ended.folder.folder() else { return };
    let wire = ended.wire().map(|(_, figures)| figures);
    if let (Some(kept), Some(watched)) = (&ended.capture.kept, &ended.capture.packets) {
        let lost = watched.drops + watched.client_drops;
        let samples = ended.capture.samples.as_ref().map_or(Ok(()), |samples| samples.write(folder));
        // The facts of the packets are written last: without them nothing of it is used.
        let frames = ended.http2_frames.as_ref();
        let written = samples
            .and_then(|()| frames.map_or(Ok(()), |frames| frames.write(folder)))
            .and_then(|()| kept.write(folder, lost, frames.and_then(|frames| frames.until()), ended.clock.started()));
        if let Err(error) = written {
            let _ = writeln!(std::io::stderr(), "yamabiko: the run's packets are not stored: {error}");
        }
    }
    if let Err(why) = shard_part::store(ended, counted) {
        let why = units::printable(&why);
        let _ = writeln!(std::io::stderr(), "yamabiko: the run's state is not stored, so it cannot be merged: {why}");
    }
    // The summary is written last: a run that has one is complete.
    let stored =
        files::write_summary_files(folder, document, &counted.load.histograms, wire, (counted.from, counted.end));
    if let Err(error) = stored {
        let why = error.to_string();
        let why = units::printable(&why);
        let _ = writeln!(std::io::stderr(), "yamabiko: the run's files are incomplete: {why}");
    }
    ended.folder.end_progress(ended.clock.now(), document);
}

fn outcome(ended: Ended<'_>, document: Document, counted: Counted, server_seconds: Vec<ServerSecond>) -> Outcome {
    let shard = ended.shard;
    Outcome {
        document,
        first_exchange: FirstExchange {
            request: shard.first_request.into(),
            response_head: shard.first_head.map(Vec::into_boxed_slice),
        },
        all_refused: ended.main_thread.all_refused.is_some(),
        zero_at: ended.clock.started(),
        response_time: counted.load.histograms.response_time,
        folder: ended.folder.path_buf(),
        exchanges_left_out: ended.mix.as_ref().map_or(0, |mix| mix.left_out),
        cache: ended.mix.map(|mix| mix.figures),
        measured: counted.from..counted.end,
        spans: counted.load.spans,
        server_seconds,
        loop_busy: shard.health.busy_share(),
        origin: ended.origin,
    }
}

/// The run as the single point of a cache benchmark.
fn cache_part(plan: &Plan, mix: &Mix, document: &Document) -> CachePart {
    let load = document.load.as_ref();
    let point = CachePoint {
        run: document.run.id.clone(),
        offered_rate_per_s: load.map_or(0.0, |load| load.offered_rate_per_s),
        achieved_rate_per_s: load.map_or(0.0, |load| load.achieved_rate_per_s),
        duration_s: document.run.duration_s,
        figures: mix.figures.clone(),
        ..CachePoint::default()
    };
    // Results must not contain the proxy's user and password.
    let proxy = match &plan.load.proxy {
        Some(proxy) => format!("forward {}", Proxy { user: None, ..proxy.clone() }),
        // The origin itself or a reverse proxy, which is unknown.
        None => format!("at {}", plan.load.url),
    };
    CachePart { workload: mix.name.clone(), proxy, points: vec![point], ..CachePart::default() }
}

fn server_part(ended: &mut Ended<'_>, completed: u64, response_time: &Histogram) -> Option<document::Server> {
    let watched = ended.main_thread.watch.take().map(CoreWatch::finish);
    let (topology, plan) = (ended.network.topology.as_ref()?, ended.resolved.plan.server.as_ref()?);
    let (from, to) = (ended.main_thread.server_from.as_ref()?, ended.main_thread.server_to.as_ref()?);
    let facts = server::Facts {
        plan,
        tcp: &topology.tcp,
        steered: ended.main_thread.steered,
        completed,
        rss_bytes_max: ended.main_thread.rss_bytes_max,
        baseline: ended.main_thread.baseline,
    };
    let mut part = to.since(from, &facts);
    if let Some(watched) = watched {
        server::add_disturbance(&mut part, &watched, response_time);
    }
    Some(part)
}

/// Whether the plan lets a handshake's RTT differ from the configured RTT.
pub(super) fn rtt_varies(spec: &PathSpec) -> bool {
    let varies = |link: &LinkSpec| {
        link.rate() != Limit::Unlimited
            || !link.jitter().is_zero()
            || matches!(link.propagation, Propagation::OverTime(_))
    };
    !spec.shared.is_empty()
        || !spec.changes.is_empty()
        || spec.clients.iter().any(|client| varies(&client.up) || varies(&client.down))
}
