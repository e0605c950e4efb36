//! From what was seen to what is told.

use std::collections::BTreeMap;

use crate::emulation::LabFacts;
use schema::{ForwardingPart, GatewayCondition, Measured};
use units::{Bytes, format_duration};

use super::checks::stream_bound;
use super::gateway_plan::{GatewayPlan, ProxyLoading, Where};
use super::measured::measured;
use super::trials::{Taken, way};
use super::{Link, findings};

const MEGA: f64 = 1e6;

/// The figures of a condition.
pub(super) fn condition_of(
    name: &str,
    link: Option<Link>,
    taken: &Taken,
    plan: &GatewayPlan,
    links_lose: f64,
) -> GatewayCondition {
    let figure = |test: &str, unit: f64| -> Option<Measured> {
        let each: Vec<f64> = taken.figures.get(test)?.iter().map(|value| value / unit).collect();
        measured(&each)
    };
    let mut condition = GatewayCondition {
        name: name.to_owned(),
        link: link.map(|link| link.to_string()).unwrap_or_default(),
        mbit_per_s: figure("stream_up", MEGA),
        mbit_per_s_down: figure("stream_down", MEGA),
        transactions_per_s: figure("transactions", 1.0),
        connections_per_s: figure("connections", 1.0),
        packets: taken.rates.clone(),
        cpu: taken.cpu.iter().filter_map(|(test, each)| Some((test.clone(), measured(each)?))).collect(),
        findings: findings::findings(taken, links_lose),
        ..GatewayCondition::default()
    };
    for (name, rtt) in taken.rtt.iter().filter(|(_, rtt)| rtt.ns.count > 0) {
        condition.rtt_ns.insert(name.clone(), rtt.ns);
    }
    for survey in &taken.survey {
        if let Some((lost, sent)) = findings::floor(survey).filter(|(_, sent)| *sent > 0) {
            condition.floor.insert(way(survey.up).to_owned(), lost as f64 / sent as f64);
        }
    }
    for test in ["stream_up", "stream_down"] {
        let Some(bits_per_s) = taken.figures.get(test).and_then(|each| measured(each)).map(|figure| figure.mean) else {
            continue;
        };
        // TCP slows down for losses: who loses some, at light load already, may be held by that as well as by its window.
        let floor = condition.floor.get(test.trim_start_matches("stream_"));
        let loses_nothing = match link {
            Some(link) => link.loss.value() == 0.0 && floor.is_none_or(|lost| *lost == 0.0),
            None => floor.is_some_and(|lost| *lost == 0.0),
        };
        let by = stream_bound(
            bits_per_s,
            link.and_then(|link| link.bits_per_s()),
            condition.cpu.get(test).map(|cpu| cpu.mean),
            plan.share.map(|share| share.cores()),
            taken.busiest.get(test).and_then(|each| measured(each)).map_or(0.0, |figure| figure.mean),
            plan.socket_bytes.is_some() && loses_nothing,
        );
        condition.bound_by.insert(test.to_owned(), by.to_owned());
    }
    condition
}

/// All of it, without conditions yet.
pub(super) fn part_of(plan: &GatewayPlan, peer: Option<String>) -> ForwardingPart {
    ForwardingPart {
        mode: if plan.to == Where::Lab { "lab" } else { "remote" }.into(),
        peer,
        share: plan.share.map(|share| share.cores()),
        memory_bytes: plan.memory.map(|memory| memory.0),
        trial_s: plan.lasts.as_secs_f64(),
        message_bytes: plan.message_bytes,
        socket_bytes: plan.socket_bytes,
        ..ForwardingPart::default()
    }
}

/// What to know when reading, from the plan and from a lab.
pub(super) fn notes(plan: &GatewayPlan, part: &ForwardingPart, facts: Option<&LabFacts>) -> Vec<String> {
    let mut notes = Vec::new();
    let conditions = || part.conditions.iter();
    if let Some(facts) = facts {
        let share = plan.share.map_or_else(
            || "is not held to a share of a core".to_owned(),
            |share| match facts.stands_still {
                Some([usually, seldom]) => format!(
                    "has {share} of a core, forwarding and proxy together; when that is used up it stands still, usually for up to {} at a \
                     time, seldom for {}",
                    format_duration(usually),
                    format_duration(seldom)
                ),
                None => format!("has {share} of a core, forwarding and proxy together"),
            },
        );
        let card = facts.card_ns_a_packet.zip(facts.card_ns_alone).map_or(String::new(), |(many, alone)| {
            format!(
                "; of what a packet costs it, {:.1} us are those of its card, {:.1} us of one that comes alone, which a driver and its \
                 interrupts would need as well",
                many / 1e3,
                alone / 1e3
            )
        });
        notes.push(format!("The gateway {share}{card}. {}.", super::labs::addresses()));
        notes.extend(facts.notes.iter().cloned());
    }
    if let Some(memory) = plan.memory
        && let Some(most) = conditions().filter_map(|condition| condition.memory_max_bytes).max()
    {
        notes.push(format!("Of its {memory} of memory the gateway had {} in use at most.", Bytes(most)));
    }
    if plan.to == Where::Lab && conditions().any(|condition| condition.link.starts_with("unlimited")) {
        notes.push(
            "An unlimited link carries big segments whole, as a card that merges packets hands them over: there a stream's bits are no \
             measure of packets."
                .into(),
        );
    }
    if let (Some(asked), Some([send, receive])) = (part.socket_bytes, part.socket_bytes_actual) {
        notes.push(format!(
            "Of socket buffers {asked} bytes were asked for; the kernel gave {send} to send and {receive} to receive."
        ));
    }
    if conditions().any(|condition| condition.bound_by.values().any(|by| by == "window")) {
        notes.push(
            "That a stream is bound by its window is said by exclusion: link, gateway and tester had time left, and light load lost \
             nothing. A larger --socket-bytes should be faster."
                .into(),
        );
    }
    if conditions().any(|condition| !condition.packets.is_empty()) {
        let trial = format_duration(plan.packet_trial());
        let deviation = if plan.full {
            format!("Trials of packets last {trial}")
        } else {
            format!("Trials of packets last {trial}, where RFC 2544 has 60 s (--full), and nothing waits between them")
        };
        notes.push(format!(
            "{deviation}; sizes are those of IP packets: an Ethernet frame is 18 bytes longer, and takes 20 more on the wire. RTT is there \
             and back, where RFC 2544 has one way and so one clock."
        ));
    }
    let floor = |(test, share): (&String, &f64)| (*share > 0.0).then(|| format!("{test} {}", percent(*share)));
    let lossy: Vec<String> = conditions()
        .filter(|condition| !condition.packets.is_empty())
        .filter_map(|condition| {
            let floor: Vec<String> = condition.floor.iter().filter_map(floor).collect();
            (!floor.is_empty()).then(|| format!("{} {} ({})", condition.name, condition.link, floor.join(", ")))
        })
        .collect();
    if !lossy.is_empty() {
        notes.push(format!(
            "No rate is without loss where some packets are lost at any: the rate is sought at which no more than those are lost, and what \
             --loss allows. So in {}.",
            lossy.join("; ")
        ));
    }
    let loaded = |condition: &&GatewayCondition| condition.proxy.is_some();
    if conditions().any(|condition| loaded(&condition)) {
        notes.push(match plan.load {
            ProxyLoading::Rate(rate) => format!("A loaded proxy is asked for PolyMix-1 at {rate}, with no think time."),
            ProxyLoading::Wget => {
                "A loaded proxy is asked by wget for one file of 10 KB after the other, none twice.".into()
            }
        });
    }
    let overloaded: Vec<String> = conditions()
        .filter(|condition| condition.proxy.as_ref().is_some_and(|proxy| proxy.overloaded))
        .map(|condition| format!("{} {}", condition.name, condition.link).trim().to_owned())
        .collect();
    if !overloaded.is_empty() {
        notes.push(format!(
            "The proxy did not do what was asked of it in {}: it was overloaded.",
            overloaded.join(", ")
        ));
    }
    notes
}

fn percent(share: f64) -> String {
    format!("{:.3} %", share * 100.0)
}

/// Processor time of each core over a stretch of time, as shares taken by the hypervisor.
pub(super) fn steal_share(before: &Times, after: &Times) -> Option<f64> {
    let (mut stolen, mut total) = (0.0, 0.0);
    for (core, times) in after {
        let spent = times.since(before.get(core)?);
        stolen += spent.steal.as_secs_f64();
        total += (spent.busy() + spent.idle + spent.iowait).as_secs_f64();
    }
    (total > 0.0).then(|| stolen / total)
}

/// Of each core.
pub(super) type Times = BTreeMap<usize, sys::accounting::CpuTimes>;

/// All cores now; nothing where /proc/stat cannot be read.
pub(super) fn times() -> Times {
    sys::accounting::cpu_times().map(|times| times.into_iter().collect()).unwrap_or_default()
}
