//! What is to be expected of a path.

use std::time::Duration;

use path::{Discipline, EffectSpec, PathSpec, Propagation, RateSpec, Symptom};
use units::Bytes;

/// Clients that are pinged, at most: at so many places of the distribution.
const SAMPLE: usize = 40;
/// Kinds of links that are probed and flooded, at most: each takes its time.
pub(super) const GROUPS_MAX: usize = 4;
/// IPv4 and UDP headers.
pub(super) const HEADERS: usize = 28;
/// An IP packet at most.
const MTU: usize = 1500;

/// Clients whose links do the same.
#[derive(Clone, Debug)]
pub(super) struct Group {
    /// The middle one of them, who is probed.
    pub(super) client: u32,
    /// How many they are.
    pub(super) clients: usize,
    /// Whether there are others.
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

/// Who is pinged: evenly spread over the clients.
pub(super) fn sample(spec: &PathSpec) -> Vec<u32> {
    let all = spec.clients.len();
    let number = all.min(SAMPLE);
    (0..number).map(|step| ((2 * step + 1) * all / (2 * number)) as u32).collect()
}

/// All effects of one direction that a client's packets meet, in order of travel.
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

/// The least and the most that the lower quartile or the median of a small packet's RTTs may be, in nanoseconds, on a
/// path that is idle.
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

/// Packets of one direction that do not arrive, corrupted ones included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Lost {
    /// Their share.
    pub(super) share: f64,
    /// Variance of the share, over that of independent losses.
    pub(super) scatter: f64,
}

/// How many of a client's packets are lost in one direction while it is idle.
pub(super) fn lost(spec: &PathSpec, client: u32, up: bool) -> Lost {
    let (mut arrives, mut scatter) = (1.0, 1.0f64);
    for effect in effects(spec, client, up) {
        let expected = effect.expected();
        arrives *= (1.0 - expected.dropped) * (1.0 - expected.discarded);
        scatter = scatter.max(expected.scatter);
    }
    Lost { share: 1.0 - arrives, scatter }
}

/// Packets of one direction that show a symptom.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Shown {
    /// Their share.
    pub(super) share: f64,
    /// They are held back for so long, in nanoseconds.
    pub(super) held_ns: f64,
}

/// How many of a client's packets show `symptom` in one direction while it is idle.
pub(super) fn shown(spec: &PathSpec, client: u32, up: bool, symptom: &Symptom) -> Shown {
    let has_it = |effect: &&EffectSpec| effect.symptom().is_some_and(|other| other.name == symptom.name);
    effects(spec, client, up).into_iter().filter(has_it).fold(Shown::default(), |shown, effect| {
        let expected = effect.expected();
        Shown {
            share: shown.share + (1.0 - shown.share) * expected.shown,
            held_ns: shown.held_ns.max(nanos(expected.held)),
        }
    })
}

/// How a link with a rate is flooded, and what should come through.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flood {
    /// Of each datagram, headers not counted.
    pub(super) payload: usize,
    /// Datagrams a second to send.
    pub(super) per_second: f64,
    /// Bits of IP packets a second that should arrive.
    pub(super) asked: f64,
    /// Whether a queue drops early, so that the link may run dry for moments.
    pub(super) early_drops: bool,
    /// Whether the rate is constant; a trace is shown and not judged.
    pub(super) constant: bool,
    /// By so many seconds the first and the last arrival may be nearer or farther than sent, by jitter.
    pub(super) jitter_s: f64,
}

/// `None` where nothing limits the rate.
pub(super) fn flood(spec: &PathSpec, client: u32, up: bool) -> Option<Flood> {
    let effects = effects(spec, client, up);
    let rate = |effect: &&EffectSpec| match effect {
        EffectSpec::Bottleneck(bottleneck) => bottleneck.rate.mean().map(|rate| rate.bits_per_second() as f64),
        _ => None,
    };
    let (place, lowest) = effects
        .iter()
        .enumerate()
        .filter_map(|(place, effect)| Some((place, rate(effect)?)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    let passes = |effects: &[&EffectSpec]| {
        effects.iter().map(|effect| effect.expected()).fold(1.0, |share, expected| {
            share * (1.0 - expected.dropped) * (1.0 - expected.discarded) * (1.0 + expected.copies)
        })
    };
    let (before, after) = (passes(&effects[..place]), passes(&effects[place + 1..]));
    let bottlenecks = effects.iter().filter_map(|effect| match effect {
        EffectSpec::Bottleneck(bottleneck) => Some(bottleneck),
        _ => None,
    });
    // Some fifty datagrams in a flood, so that one more or less is little.
    let payload = ((lowest / 8.0 / 100.0) as usize).clamp(64, MTU - HEADERS);
    let wire_bits = (payload + HEADERS) as f64 * 8.0;
    Some(Flood {
        payload,
        per_second: lowest * OVERLOAD / before.max(0.01) / wire_bits,
        asked: lowest * after,
        early_drops: bottlenecks.clone().any(|bottleneck| bottleneck.queue.discipline != Discipline::DropTail),
        jitter_s: effects.iter().fold(0.0, |sum, effect| sum + 2.0 * effect.expected().jitter.as_secs_f64()),
        constant: bottlenecks.clone().all(|bottleneck| matches!(bottleneck.rate, RateSpec::Constant(_))),
    })
}

/// So much more than the rate is sent, so that the link is never idle.
const OVERLOAD: f64 = 1.3;
