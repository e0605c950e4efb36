//! Expected values of a path.

use std::time::Duration;

use path::{Discipline, EffectSpec, PathSpec, Propagation, RateSpec, Symptom};
use units::Bytes;

/// Most clients that are pinged, spread over the distribution of RTTs.
const PINGED_CLIENTS_MAX: usize = 40;
/// Most kinds of links that are probed and flooded, each of which takes time.
pub(super) const GROUPS_MAX: usize = 4;
/// IPv4 and UDP headers.
pub(super) const HEADERS: usize = 28;
/// Largest IP packet.
const MTU: usize = 1500;

/// Clients with equal links.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The client in the middle of the group, which is probed.
    pub(super) client: u32,
    /// Number of clients in the group.
    pub(super) clients: usize,
    /// Whether this is the only group.
    pub(super) alone: bool,
}

/// The kinds of links, the one with the most clients first.
pub(super) fn groups(spec: &PathSpec) -> Vec<Group> {
    let mut kinds: Vec<Vec<u32>> = Vec::new();
    for (number, client) in (0u32..).zip(&spec.clients) {
        let same = |members: &&mut Vec<u32>| {
            let other = &spec.clients[members[0] as usize];
            other.up.effects == client.up.effects
                && other.down.effects == client.down.effects
                && shared_of(spec, members[0]).eq(shared_of(spec, number))
        };
        match kinds.iter_mut().find(same) {
            Some(members) => members.push(number),
            None => kinds.push(vec![number]),
        }
    }
    kinds.sort_by_key(|members| std::cmp::Reverse(members.len()));
    let alone = kinds.len() == 1;
    kinds.iter().map(|members| Group { client: members[members.len() / 2], clients: members.len(), alone }).collect()
}

fn shared_of(spec: &PathSpec, client: u32) -> impl Iterator<Item = usize> + '_ {
    (0..spec.shared.len()).filter(move |&index| spec.shared[index].members.contains(&client))
}

/// The pinged clients, evenly spread over all clients.
pub(super) fn sample(spec: &PathSpec) -> Vec<u32> {
    let all = spec.clients.len();
    let number = all.min(PINGED_CLIENTS_MAX);
    (0..number).map(|step| ((2 * step + 1) * all / (2 * number)) as u32).collect()
}

/// All effects on a client's packets in one direction, in order of travel.
pub(super) fn effects(spec: &PathSpec, client: u32, up: bool) -> Vec<&EffectSpec> {
    let own = &spec.clients[client as usize];
    let mut shared: Vec<usize> = shared_of(spec, client).collect();
    if up {
        let shared = shared.iter().flat_map(|&index| &spec.shared[index].up);
        own.up.effects.iter().chain(shared).collect()
    } else {
        shared.reverse();
        let shared = shared.iter().flat_map(|&index| &spec.shared[index].down);
        shared.chain(&own.down.effects).collect()
    }
}

/// Lower and upper bound of the lower quartile or the median of a small packet's RTTs, in nanoseconds, on an idle path.
pub(super) fn rtt(spec: &PathSpec, client: u32, bytes: usize) -> (f64, f64) {
    let own = &spec.clients[client as usize];
    let (mut least, mut most) = (0.0, 0.0);
    for (link, up) in [(&own.up, true), (&own.down, false)] {
        match &link.propagation {
            Propagation::Constant(delay) => {
                least += nanos(*delay);
                most += nanos(*delay);
            }
            Propagation::OverTime(series) => {
                let delays = series.points().iter().map(|&(_, delay)| nanos(delay));
                least += delays.clone().fold(f64::INFINITY, f64::min);
                most += delays.fold(0.0, f64::max);
            }
        }
        for effect in effects(spec, client, up) {
            let added = effect.added_ns(Bytes(bytes as u64));
            least += added[0];
            most += added[1];
        }
    }
    (least, most)
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// Packets of one direction that do not arrive, including corrupted ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lost {
    /// Share of lost packets.
    pub(super) share: f64,
    /// Variance of the share, over that of independent losses.
    pub(super) scatter: f64,
}

/// Expected loss of a client's packets in one direction of an idle path.
pub(super) fn lost(spec: &PathSpec, client: u32, up: bool) -> Lost {
    let (mut arrives, mut scatter) = (1.0, 1.0f64);
    for effect in effects(spec, client, up) {
        let expected = effect.expected();
        arrives *= (1.0 - expected.dropped) * (1.0 - expected.discarded);
        scatter = scatter.max(expected.scatter);
    }
    Lost { share: 1.0 - arrives, scatter }
}

/// Packets of one direction with one symptom.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shown {
    /// Share of these packets.
    pub(super) share: f64,
    /// Additional delay of these packets, in nanoseconds.
    pub(super) delay_ns: f64,
}

/// Expected share of a client's packets with `symptom` in one direction of an idle path.
pub(super) fn shown(spec: &PathSpec, client: u32, up: bool, symptom: &Symptom) -> Shown {
    let has_symptom = |effect: &&EffectSpec| effect.symptom().is_some_and(|other| other.name == symptom.name);
    effects(spec, client, up).into_iter().filter(has_symptom).fold(Shown::default(), |shown, effect| {
        let expected = effect.expected();
        Shown {
            share: shown.share + (1.0 - shown.share) * expected.shown,
            delay_ns: shown.delay_ns.max(nanos(expected.reorder_delay)),
        }
    })
}

/// How a link with a rate is flooded, and the expected rate.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flood {
    /// Payload of each datagram in bytes.
    pub(super) payload: usize,
    /// Datagrams per second to send.
    pub(super) per_second: f64,
    /// Expected bits of IP packets per second.
    pub(super) rate: f64,
    /// Whether a queue drops early, so that the link may be idle for short times.
    pub(super) early_drops: bool,
    /// Whether the rate is constant; traces are shown but not judged.
    pub(super) constant: bool,
    /// Seconds by which the distance of the first and the last arrival may change by jitter.
    pub(super) jitter_s: f64,
}

/// The flood of a client's links in one direction; `None` if no link limits the rate.
pub(super) fn flood(spec: &PathSpec, client: u32, up: bool) -> Option<Flood> {
    let effects = effects(spec, client, up);
    let rate_of = |effect: &&EffectSpec| match effect {
        EffectSpec::Bottleneck(bottleneck) => bottleneck.rate.mean().map(|rate| rate.bits_per_second() as f64),
        _ => None,
    };
    let (position, lowest) = effects
        .iter()
        .enumerate()
        .filter_map(|(position, effect)| Some((position, rate_of(effect)?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let passes = |effects: &[&EffectSpec]| {
        effects.iter().map(|effect| effect.expected()).fold(1.0, |share, expected| {
            share * (1.0 - expected.dropped) * (1.0 - expected.discarded) * (1.0 + expected.copies)
        })
    };
    let (before, after) = (passes(&effects[..position]), passes(&effects[position + 1..]));
    let bottlenecks = effects.iter().filter_map(|effect| match effect {
        EffectSpec::Bottleneck(bottleneck) => Some(bottleneck),
        _ => None,
    });
    // About fifty datagrams per flood, so that one more or less has little effect.
    let payload = ((lowest / 8.0 / 100.0) as usize).clamp(64, MTU - HEADERS);
    let wire_bits = (payload + HEADERS) as f64 * 8.0;
    Some(Flood {
        payload,
        per_second: lowest * OVERLOAD / before.max(0.01) / wire_bits,
        rate: lowest * after,
        early_drops: bottlenecks.clone().any(|bottleneck| bottleneck.queue.discipline != Discipline::DropTail),
        jitter_s: effects.iter().fold(0.0, |sum, effect| sum + 2.0 * effect.expected().jitter.as_secs_f64()),
        constant: bottlenecks.clone().all(|bottleneck| matches!(bottleneck.rate, RateSpec::Constant(_))),
    })
}

/// Ratio of sent rate to link rate, so that the link is never idle.
const OVERLOAD: f64 = 1.3;
