//! The document of the merged run.

use std::collections::{BTreeMap, BTreeSet};

use load::Ending;
use schema::Document;
use schema::document::{
    Host, Load, MergedShard, OpenConnections, Recorded, Run, SCHEMA, ShardCoordination, Validity, Verdict,
};
use store::RunFolder;
use testbed::shard_state;
use units::Timestamp;

use crate::source::{Source, Sources};
use crate::sum::Sum;
use crate::{MergeOptions, checks, path_part};

/// Figures of the merged run beyond its document.
#[derive(Debug)]
pub(crate) struct Figures {
    /// Histograms and time series.
    pub load: load::Outcome,
    /// The measured phase, on the clocks of the runs.
    pub measured: (Timestamp, Timestamp),
}

/// Makes the document, with its checks.
pub(crate) fn of(sources: &Sources, mut sum: Sum, folder: &RunFolder, options: &MergeOptions) -> (Document, Figures) {
    let plan = &sources.plan;
    let phase = sum.measured.1.since(sum.measured.0);
    let levels = sum.samples.levels(plan.seed, sum.start, sum.measured);
    let requests = sum.counting.requests;
    let tally = std::mem::replace(&mut sum.counting.tally, empty_tally());
    let mut outcome = tally.finish(Ending {
        measured_end: sum.measured.1,
        offered: sum.end.live.offered_measured,
        unfinished: sum.end.unfinished,
        levels: levels.clone(),
    });
    let delays = sum.counting.delays.finish(&outcome.histograms.response_time);
    let mut load = std::mem::take(&mut outcome.load);
    shard_state::complete_load(&mut load, &sum.end, &plan.load, phase, &delays);
    load.open_connections = open_connections(sources);
    let first = sources.complete.first().and_then(|source| source.document.load.as_ref());
    (load.replay, load.har) = first.map(|first| (first.replay.clone(), first.har.clone())).unwrap_or_default();
    let mut document = Document {
        schema: SCHEMA.into(),
        run: run_part(sources, &sum, requests, folder, options),
        validity: Validity::from_checks(Vec::new()),
        load: Some(load),
        path: path_part::of(sources, &sum),
        watch: None,
        tap: None,
        server: None,
        slo: None,
        cache: None,
    };
    let checks = checks::of(&document, sources, &sum, &outcome, (&levels, &delays), options.allow_missing);
    document.validity = Validity::from_checks(checks);
    document.slo = plan.slo.as_ref().map(|slo| slo.judge(&document));
    (document, Figures { load: outcome, measured: sum.measured })
}

/// A tally in the place of one that was finished.
fn empty_tally() -> load::Tally {
    load::Tally::new(load::TallySpec {
        open_loop: true,
        measured: (Timestamp::ZERO, None),
        clients_rtt_ns: None,
        urls: load::Urls::default(),
        phases: Vec::new(),
    })
}

fn run_part(sources: &Sources, sum: &Sum, requests: u64, folder: &RunFolder, options: &MergeOptions) -> Run {
    let earliest = sources.complete.iter().map(|source| &source.document.run.started_at).min();
    let tables = || sources.complete.iter().map(|source| source.document.run.recorded);
    // Samples of different rates have no common factor.
    let one_in = tables().collect::<Option<Vec<Recorded>>>().and_then(|tables| {
        let rates: BTreeSet<u64> = tables.iter().map(|table| table.one_in).collect();
        rates.first().copied().filter(|_| rates.len() == 1)
    });
    Run {
        id: folder.id().to_owned(),
        dir: folder.path().display().to_string(),
        command: options.command.clone(),
        seed: sources.plan.seed,
        started_at: earliest.cloned().unwrap_or_default(),
        duration_s: sum.measured.1.since(sum.measured.0).as_secs_f64(),
        warmup_s: sources.plan.load.warmup.as_secs_f64(),
        interrupted: sum.facts.iter().any(|facts| facts.interrupted),
        recorded: one_in.map(|one_in| Recorded {
            requests: tables().flatten().map(|table| table.requests).sum(),
            of: requests,
            one_in,
            measured_from_ns: sum.measured.0.as_nanos(),
        }),
        host: host(sources),
        shard: None,
        shards: shards(sources, sum),
    }
}

/// All machines as one: cores and memory are added, the largest share of stolen time is that of the whole. Each
/// machine's own facts are those of its shard.
fn host(sources: &Sources) -> Host {
    // Shards of one boot share a machine.
    let mut machines = BTreeMap::<&str, &Host>::new();
    for source in &sources.complete {
        machines.entry(&source.part().clock.boot_id).or_insert(&source.document.run.host);
    }
    let names = |name: fn(&Host) -> &String| {
        machines.values().map(|host| name(host).as_str()).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>()
    };
    let steal = sources.complete.iter().map(|source| source.document.run.host.steal_share);
    let settings = [("shards", sources.count as usize), ("machines", machines.len())];
    Host {
        kernel: names(|host| &host.kernel).join(", "),
        cpu: names(|host| &host.cpu).join(", "),
        cores: machines.values().map(|host| host.cores).sum(),
        memory_bytes: machines.values().map(|host| host.memory_bytes).sum(),
        client_cores: None,
        server_cores: None,
        settings: settings.map(|(name, number)| (name.to_owned(), number.to_string())).into(),
        steal_share: steal.collect::<Option<Vec<f64>>>().and_then(|shares| shares.into_iter().reduce(f64::max)),
        cpu_probe_ns: None,
    }
}

/// Every shard of the load, side by side.
fn shards(sources: &Sources, sum: &Sum) -> Vec<MergedShard> {
    let complete = sources.complete.iter().zip(&sum.facts).map(|(source, facts)| {
        let load = source.document.load.as_ref();
        MergedShard {
            loop_busy_share: facts.end.health.busy_share(),
            offered_requests: load.map_or(0, |load| load.offered_requests),
            completed: load.map_or(0, |load| load.completed),
            failed: load.map_or(0, |load| load.failed.values().sum()),
            response_time_p99_ns: load.map_or(0, |load| load.response_time_ns.p99),
            ..facts_of(source)
        }
    });
    let missing = sources.missing.iter().map(|(&index, dir)| MergedShard {
        index,
        run: dir
            .as_ref()
            .and_then(|dir| dir.file_name())
            .map(|id| id.to_string_lossy().into_owned())
            .unwrap_or_default(),
        verdict: "missing".into(),
        ..MergedShard::default()
    });
    let mut all: Vec<MergedShard> = complete.chain(missing).collect();
    all.sort_by_key(|shard| shard.index);
    all
}

fn facts_of(source: &Source) -> MergedShard {
    let run = &source.document.run;
    let validity = &source.document.validity;
    MergedShard {
        index: source.index,
        run: run.id.clone(),
        verdict: validity.verdict.name().into(),
        checks: if validity.verdict == Verdict::Valid { Vec::new() } else { checks::unwell(validity) },
        host: Some(run.host.clone()),
        clock: Some(source.part().clock.clone()),
        coordination: source.coordination.as_ref().map(|record| ShardCoordination {
            clock: record.clocks,
            cpu_s: record.cpu_s,
            wall_s: record.wall_s,
        }),
        ..MergedShard::default()
    }
}

/// Idle open connections of all machines; memory per connection is their mean, weighted by connections.
fn open_connections(sources: &Sources) -> Option<OpenConnections> {
    let load = |source: &Source| source.document.load.as_ref().and_then(|load: &Load| load.open_connections);
    let all = sources.complete.iter().map(load).collect::<Option<Vec<OpenConnections>>>()?;
    let connections: u64 = all.iter().map(|open| open.connections).sum();
    let mean = |bytes: fn(&OpenConnections) -> Option<f64>| {
        let sum = all.iter().try_fold(0.0, |sum, open| Some(sum + bytes(open)? * open.connections as f64))?;
        (connections > 0).then(|| sum / connections as f64)
    };
    Some(OpenConnections {
        connections,
        failed: all.iter().map(|open| open.failed).sum(),
        per_second: all.first()?.per_second,
        processes: all.iter().map(|open| open.processes).sum(),
        generator_bytes_each: mean(|open| open.generator_bytes_each),
        kernel_bytes_each: mean(|open| open.kernel_bytes_each),
    })
}
