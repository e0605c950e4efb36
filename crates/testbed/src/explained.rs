//! Reads a stored run for `explain`: the load's records, the kept packets of both ends, and the configured path.
//!
//! ```text
//!   requests.parquet ------------------------> RunJoin --\
//!   packets-client.pcap, packets-server.pcap -> Connections --> evidence --> explanation of each response
//!   tcp_samples.parquet, server_waits.parquet ------------/
//!   plan.toml --> links of each client ------------------/
//! ```
//!
//! The packets of HTTP/3 are decrypted with `packets-keys.log` ([`quic`]).
//!
//! Memory: about 100 bytes a kept packet and 100 a request; at most [`RESPONSES_MAX`] responses are explained.

mod quic;

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use explain::{
    ClientLinks, Connections, CpuInterval, CpuWait, Evidence, Explained, Frames, LinkFacts, Protocol, QuicConnections,
    RunInputs, RunJoin, TcpSample, TcpSamples,
};
use path::{AddressPlan, EffectSpec, LinkSpec, PathSpec, Propagation};
use plan::{HttpVersion, Plan};
use schema::{Document, RequestRecord, WaitCause};
use units::time::saturating_nanos;
use units::{Limit, Timestamp};
use wire::capture::{Decoder, Step};
use wire::link::LinkType;

use crate::error::TestbedError;
use crate::packets::{FACTS_FILE, FILES, KeptFacts};

/// Most responses of a run that are explained; of more, an even sample.
pub const RESPONSES_MAX: usize = 10_000;

/// A stored run, ready to be explained.
pub struct RunEvidence {
    /// Complete responses of the measured phase, or an even sample of them, in the order of the table.
    pub requests: Vec<RequestRecord>,
    /// What limits the explanation, in sentences.
    pub notes: Vec<String>,
    /// The URL of each request of the load, by number; empty where the plan lists them elsewhere.
    pub urls: Vec<String>,
    join: RunJoin,
    captures: Option<[Connections; 2]>,
    facts: KeptFacts,
    /// States of the server's sockets, if they were sampled.
    samples: Option<TcpSamples>,
    /// Times in which the server did not run, if they were recorded.
    waits: Option<Vec<CpuInterval>>,
    /// Frames of HTTP/2, if they were kept.
    frames: Option<Frames>,
    /// Connections of HTTP/3, if they were decrypted.
    quic: Option<QuicConnections>,
    /// The load's HTTP/2 windows of streams and connections, bytes.
    windows: [u64; 2],
    links: Vec<ClientLinks>,
    rtts_ns: Vec<u64>,
    /// The class of distance of each client.
    classes: Vec<u64>,
    protocol: Protocol,
}

/// The two ends' packets are read in blocks, so when the memory became full, packets of one end may not have been read
/// that are this much older than the latest of the other, nanoseconds: far above the time after which a block is read.
const CAPTURE_DELAY_NS: u64 = 1_000_000_000;

/// Most classes of distance: as many columns as a terminal has room for.
const CLASSES_MAX: usize = 6;

impl RunEvidence {
    /// Reads a run's folder; `document` is the run's.
    ///
    /// # Errors
    /// The folder has no plan of a load or no table of requests; a file of it cannot be read.
    pub fn read(dir: &Path, document: &Document) -> Result<RunEvidence, TestbedError> {
        let no_load = || {
            let dir = dir.display();
            TestbedError::Plan(format!("{dir}: not a run of load; expected a run of bench, run or explain"))
        };
        if document.load.is_none() {
            return Err(no_load());
        }
        let text = store::read_plan(dir).map_err(|_| no_load())?;
        let plan = Plan::from_toml(&text, "plan.toml").map_err(|_| no_load())?;
        let facts = std::fs::read(dir.join(FACTS_FILE)).ok();
        let facts: Option<KeptFacts> = facts.and_then(|text| serde_json::from_slice(&text).ok());
        let mut notes = Vec::new();
        let Some(recorded) = document.run.recorded else {
            let dir = dir.display();
            return Err(TestbedError::Environment(format!("{dir}: its table of requests is incomplete")));
        };
        let one_in = recorded.one_in;
        let is_http3 = plan.load.http == HttpVersion::Http3;
        let captures = match &facts {
            _ if one_in > 1 => {
                notes.push(format!(
                    "the run's table has one in {one_in} requests, an even sample, so packets cannot be attributed; \
                     only the load generator's times are known"
                ));
                None
            }
            Some(facts) if is_http3 => {
                notes.extend(notes_of(facts));
                None
            }
            Some(facts) => {
                notes.extend(notes_of(facts));
                let [client, server] = facts.packets;
                Some([
                    read_packets(&dir.join(FILES[0]), facts.zero_unix_ns, client)?,
                    read_packets(&dir.join(FILES[1]), facts.zero_unix_ns, server)?,
                ])
            }
            None => {
                let remedy = if plan.path.is_some() {
                    "repeat it with --explain"
                } else {
                    "packets are captured at the ends of a path (--rtt, --path)"
                };
                notes.push(format!("the run kept no packets, so only the load generator's times are known; {remedy}"));
                None
            }
        };
        // A user's profile may have been deleted or changed since the run.
        let spec = plan.path.as_ref().and_then(|path| crate::distances::spec(path, plan.load.clients).ok());
        let links = spec.as_ref().map(links).unwrap_or_default();
        let rtts_ns = spec.as_ref().filter(|spec| spec.changes.is_empty());
        let rtts_ns: Option<Vec<u64>> = rtts_ns.map(|spec| spec.clients.iter().map(path::ClientPath::rtt_ns).collect());
        let rtts_ns = rtts_ns.unwrap_or_default();
        let http2 = plan.load.http2_windows();
        let quic = match &facts {
            Some(facts) if is_http3 && one_in == 1 => quic::read(dir, facts, &links, &mut notes)?,
            _ => None,
        };
        let protocol = match plan.load.http {
            HttpVersion::Http3 => Protocol::Http3,
            version if version.is_http1() => Protocol::Http1,
            _ => Protocol::Http2,
        };
        let mut run = RunEvidence {
            requests: Vec::new(),
            notes,
            urls: urls(&plan),
            join: RunJoin::new(),
            samples: facts.is_some().then(|| read_samples(dir)).transpose()?.filter(|samples| !samples.is_empty()),
            waits: if facts.is_some() { read_waits(dir)? } else { None },
            frames: facts.is_some().then(|| read_frames(dir)).transpose()?.filter(|frames| !frames.is_empty()),
            quic,
            windows: [http2.stream_window.0, http2.connection_window.0],
            captures,
            facts: facts.unwrap_or_default(),
            links,
            classes: classes(&rtts_ns),
            rtts_ns,
            protocol,
        };
        run.read_requests(dir, recorded.measured_from_ns)?;
        let mut join = std::mem::take(&mut run.join);
        join.join(&run.inputs());
        run.join = join;
        Ok(run)
    }

    /// The evidence of one of the requests.
    pub fn evidence(&self, request: &RequestRecord) -> Evidence {
        let mut inputs = self.inputs();
        // Packets are missing from then on, and the time after the last one would look like a delay at the client.
        let last = request.done_at.as_nanos().saturating_add(CAPTURE_DELAY_NS);
        if self.facts.until_ns.is_some_and(|until| last >= until) {
            (inputs.client, inputs.server, inputs.quic) = (None, None, None);
        }
        if self.facts.http2_until_ns.is_some_and(|until| request.done_at.as_nanos() >= until) {
            inputs.http2_frames = None;
        }
        self.join.evidence(request, &inputs)
    }

    /// Explains the responses, in the order of `requests`.
    pub fn explained(&self) -> Vec<Explained> {
        let explained = |request: &RequestRecord| Explained {
            distance_ns: self.classes.get(request.client as usize).copied(),
            explanation: explain::explain(&self.evidence(request)),
        };
        self.requests.iter().map(explained).collect()
    }

    /// The URL of a request, or its number where the plan lists the URLs elsewhere, and its client.
    pub fn target(&self, request: &RequestRecord) -> String {
        match self.urls.get(request.url as usize) {
            Some(url) => format!("{url}, client {}", request.client),
            None => format!("URL {}, client {}", request.url, request.client),
        }
    }

    fn inputs(&self) -> RunInputs<'_> {
        RunInputs {
            client: self.captures.as_ref().map(|[client, _]| client),
            server: self.captures.as_ref().map(|[_, server]| server),
            is_sample: self.facts.one_in > 1 || self.facts.lost > 0,
            capture_lost_packets: self.facts.lost > 0,
            client_of: &client_of,
            links: &self.links,
            rtts_ns: &self.rtts_ns,
            protocol: self.protocol,
            http2_windows: self.windows,
            http2_frames: self.frames.as_ref(),
            quic: self.quic.as_ref(),
            server_tcp: self.samples.as_ref(),
            server_cpu: self.waits.as_deref(),
        }
    }

    /// Reads the table of requests; `measured_from_ns` is when the measured phase began.
    fn read_requests(&mut self, dir: &Path, measured_from_ns: u64) -> Result<(), TestbedError> {
        let rows = || store::read_requests(dir).map_err(TestbedError::environment);
        let is_measured = |row: &RequestRecord| row.scheduled_at.as_nanos() >= measured_from_ns;
        let (mut responses, mut failed) = (0_usize, 0_usize);
        for row in rows()? {
            let row = row.map_err(TestbedError::environment)?;
            self.join.note(&row);
            if is_measured(&row) {
                *if row.failure.is_some() { &mut failed } else { &mut responses } += 1;
            }
        }
        let step = responses.div_ceil(RESPONSES_MAX).max(1);
        let mut number = 0;
        for row in rows()? {
            let row = row.map_err(TestbedError::environment)?;
            if !is_measured(&row) || row.failure.is_some() {
                continue;
            }
            if number % step == 0 {
                self.requests.push(row);
            }
            number += 1;
        }
        if step > 1 {
            self.notes.push(format!("one in {step} of {responses} responses is explained, evenly chosen"));
        }
        if failed > 0 {
            self.notes.push(format!("{failed} failed requests are not explained"));
        }
        Ok(())
    }
}

/// The class of distance of each client: its round-trip time, or, of many different ones, the middle of its sixth of
/// all clients.
fn classes(rtts_ns: &[u64]) -> Vec<u64> {
    let mut distinct = rtts_ns.to_vec();
    distinct.sort_unstable();
    let sorted = distinct.clone();
    distinct.dedup();
    if distinct.len() <= CLASSES_MAX {
        return rtts_ns.to_vec();
    }
    let size = sorted.len().div_ceil(CLASSES_MAX);
    let class = |rtt: &u64| {
        let place = sorted.partition_point(|other| other < rtt) / size * size;
        sorted[(place + size / 2).min(sorted.len() - 1)]
    };
    rtts_ns.iter().map(class).collect()
}

/// Sentences about packets that are missing.
fn notes_of(facts: &KeptFacts) -> Vec<String> {
    let mut notes = Vec::new();
    if facts.one_in > 1 {
        let one_in = facts.one_in;
        notes.push(format!("packets of one in {one_in} connections were kept; the others have the load's times alone"));
    }
    if let Some(until) = facts.until_ns {
        let until = units::format_duration(Duration::from_nanos(until));
        notes.push(format!("packets were kept until {until} of the run; later responses have the load's times alone"));
    }
    if let Some(until) = facts.http2_until_ns {
        let until = units::format_duration(Duration::from_nanos(until));
        notes.push(format!(
            "frames of HTTP/2 were kept until {until} of the run; of later responses those of concurrent streams have \
             the load's times alone"
        ));
    }
    if facts.lost > 0 {
        notes.push(format!("the capture lost {} packets; responses around them may seem to have losses, and what rests on packets is less sure",
            facts.lost));
    }
    notes
}

/// The URLs as the plan lists them, in the order of the requests' numbers.
fn urls(plan: &Plan) -> Vec<String> {
    if plan.load.request.is_empty() {
        return vec![plan.load.url.clone()].into_iter().filter(|url| !url.is_empty()).collect();
    }
    plan.load.request.iter().map(|request| request.url.clone()).collect()
}

fn client_of(address: IpAddr) -> Option<u32> {
    AddressPlan::new(AddressPlan::CLIENTS_MAX)?.index(address)
}

/// The links of each client; none where a link's delay changes during the run, or a packet may be corrupted, so that
/// its arrival does not mean its delivery.
fn links(spec: &PathSpec) -> Vec<ClientLinks> {
    let all = spec.clients.iter().flat_map(|client| [&client.up, &client.down]);
    let shared = spec.shared.iter().flat_map(|shared| [&shared.up, &shared.down]);
    let mut effects = all.clone().map(|link| &link.effects).chain(shared).flatten();
    let is_constant = all.clone().all(|link| matches!(link.propagation, Propagation::Constant(_)));
    if !is_constant || !spec.changes.is_empty() || effects.any(|effect| matches!(effect, EffectSpec::Corrupt(_))) {
        return Vec::new();
    }
    let facts = |link: &LinkSpec, shared: &[&Vec<EffectSpec>]| {
        let shared: Vec<LinkSpec> =
            shared.iter().map(|effects| LinkSpec { effects: (*effects).clone(), ..LinkSpec::default() }).collect();
        let sum = |of: fn(&LinkSpec) -> Duration| saturating_nanos(of(link) + shared.iter().map(of).sum::<Duration>());
        let rate = |link: &LinkSpec| match link.rate() {
            Limit::At(rate) => Some(rate.bits_per_second()),
            Limit::Unlimited => None,
        };
        let mut effects = link.effects.iter().chain(shared.iter().flat_map(|link| &link.effects));
        LinkFacts {
            delay_ns: sum(LinkSpec::delay),
            jitter_ns: sum(LinkSpec::jitter),
            bit_per_s: rate(link),
            shared_bit_per_s: shared.iter().filter_map(rate).min(),
            reorders: effects.any(|effect| matches!(effect, EffectSpec::Reorder(_))),
        }
    };
    let of = |(client, path): (usize, &path::ClientPath)| {
        let shared = spec.shared.iter().filter(|shared| shared.members.contains(&(client as u32)));
        let (up, down): (Vec<_>, Vec<_>) = shared.map(|shared| (&shared.up, &shared.down)).unzip();
        ClientLinks { up: facts(&path.up, &up), down: facts(&path.down, &down) }
    };
    spec.clients.iter().enumerate().map(of).collect()
}

/// The frames of HTTP/2, those of each connection in the order in which they were added.
fn read_frames(dir: &Path) -> Result<Frames, TestbedError> {
    let mut frames = Frames::default();
    if !dir.join("http2_frames.parquet").exists() {
        return Ok(frames);
    }
    for row in store::read_http2_frames(dir).map_err(TestbedError::environment)? {
        frames.add(row.map_err(TestbedError::environment)?);
    }
    Ok(frames)
}

/// The states of the server's sockets.
fn read_samples(dir: &Path) -> Result<TcpSamples, TestbedError> {
    let mut samples = TcpSamples::new();
    for row in store::read_tcp_samples(dir).map_err(TestbedError::environment)? {
        let row = row.map_err(TestbedError::environment)?;
        samples.entry((row.client, row.client_port)).or_default().push(TcpSample {
            at: row.at,
            congestion_window: row.congestion_window,
            segment_bytes: row.segment_bytes,
            min_rtt_ns: row.min_rtt_ns,
            pacing_rate: row.pacing_bytes_per_s,
            unsent_bytes: Some(row.unsent_bytes.into()),
            send_buffer_limited_ns: row.send_buffer_limited_ns,
        });
    }
    samples.values_mut().for_each(|of_port| of_port.sort_by_key(|sample| sample.at));
    Ok(samples)
}

/// The times in which the server did not run; `None` of a run that did not record them.
fn read_waits(dir: &Path) -> Result<Option<Vec<CpuInterval>>, TestbedError> {
    if !dir.join("server_waits.parquet").exists() {
        return Ok(None);
    }
    let rows = store::read_server_waits(dir).map_err(TestbedError::environment)?;
    let interval = |row: schema::ServerWaitRow| CpuInterval {
        from: row.from,
        to: row.to,
        why: match row.cause {
            WaitCause::CpuLimit => CpuWait::Throttled,
            WaitCause::RunQueue => CpuWait::RunQueue,
        },
    };
    rows.map(|row| row.map(interval)).collect::<store::Result<_>>().map(Some).map_err(TestbedError::environment)
}

/// The TCP packets of one end, with times on the run's clock, whose zero is `zero_unix_ns`. `expected` is their number.
fn read_packets(path: &Path, zero_unix_ns: u64, expected: u64) -> Result<Connections, TestbedError> {
    let mut connections = Connections::new();
    for_each_packet(path, zero_unix_ns, expected, |at, link, bytes, original_length| {
        connections.handle_packet(at, link, bytes, original_length);
    })?;
    Ok(connections)
}

/// Calls `each` with the packets of one end: time on the run's clock, link layer, bytes and length on the wire.
fn for_each_packet(
    path: &Path,
    zero_unix_ns: u64,
    expected: u64,
    mut each: impl FnMut(Timestamp, LinkType, &[u8], u32),
) -> Result<(), TestbedError> {
    let failed = |error: &dyn std::fmt::Display| TestbedError::Environment(format!("{}: {error}", path.display()));
    let mut file = File::open(path).map_err(|error| failed(&error))?;
    let mut decoder = Decoder::new();
    let (mut buffer, mut start, mut packets) = (Vec::new(), 0, 0);
    loop {
        match decoder.decode(&buffer[start..]).map_err(|error| failed(&error))? {
            Step::Packet { packet, used } => {
                let at = Timestamp::from_nanos(packet.at.as_nanos().saturating_sub(zero_unix_ns));
                packets += 1;
                if let Some(link) = LinkType::from_number(packet.link) {
                    each(at, link, packet.bytes, packet.original_length);
                }
                start += used;
            }
            Step::Skip { used } => start += used,
            Step::More { needed } => {
                buffer.drain(..start);
                start = 0;
                let least = needed.max(buffer.len() + READ_BYTES).saturating_sub(buffer.len());
                let read = (&mut file).take(least as u64).read_to_end(&mut buffer).map_err(|error| failed(&error))?;
                if read == 0 && packets < expected {
                    return Err(failed(&format_args!(
                        "the file ends after {packets} of {expected} packets; without {FACTS_FILE} the run is \
                         explained by the load generator's times alone"
                    )));
                }
                if read == 0 {
                    return Ok(());
                }
            }
        }
    }
}

/// Bytes of a file that are read together.
const READ_BYTES: usize = 1 << 20;

#[cfg(test)]
mod tests;
