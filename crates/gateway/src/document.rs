//! Converts observations of a condition into its part of the document.

use std::collections::BTreeMap;

use crate::emulation::EmulationFacts;
use schema::{ForwardingPart, GatewayCondition, Measured};
use units::{Bytes, format_duration};

use super::checks::stream_bound;
use super::gateway_plan::{GatewayLocation, GatewayPlan, ProxyLoading};
use super::measured::measured;
use super::trials::{Observations, direction_name};
use super::{Link, findings};

const MEGA: f64 = 1e6;

/// The figures of a condition.
pub(super) fn condition_of(
    name: &str,
    link: Option<Link>,
    observations: &Observations,
    plan: &GatewayPlan,
    links_lose: f64,
) -> GatewayCondition {
    let figure = |test: &str, unit: f64| -> Option<Measured> {
        let each: Vec<f64> = observations.figures.get(test)?.iter().map(|value| value / unit).collect();
        measured(&each)
    };
    let mut condition = GatewayCondition {
        name: name.to_owned(),
        link: link.map(|link| link.to_string()).unwrap_or_default(),
        mbit_per_s: figure("stream_up", MEGA),
        mbit_per_s_down: figure("stream_down", MEGA),
        transactions_per_s: figure("transactions", 1.0),
        connections_per_s: figure("connections", 1.0),
        packets: observations.rates.clone(),
        cpu: observations.cpu.iter().filter_map(|(test, each)| Some((test.clone(), measured(each)?))).collect(),
        findings: findings::findings(observations, links_lose),
        ..GatewayCondition::default()
    };
    for (name, rtt) in observations.rtt.iter().filter(|(_, rtt)| rtt.ns.count > 0) {
        condition.rtt_ns.insert(name.clone(), rtt.ns);
    }
    for survey in &observations.survey {
        if let Some((lost, sent)) = findings::floor(survey).filter(|(_, sent)| *sent > 0) {
            condition.floor.insert(direction_name(survey.up).to_owned(), lost as f64 / sent as f64);
        }
    }
    for test in ["stream_up", "stream_down"] {
        let Some(bits_per_s) = observations.figures.get(test).and_then(|each| measured(each)).map(|figure| figure.mean)
        else {
            continue;
        };
        // TCP slows down after losses, so that a stream with losses may be limited by them instead of its window.
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
            observations.busiest.get(test).and_then(|each| measured(each)).map_or(0.0, |figure| figure.mean),
            plan.socket_bytes.is_some() && loses_nothing,
        );
        condition.bound_by.insert(test.to_owned(), by.to_owned());
    }
    condition
}

/// The part without conditions.
pub(super) fn part_of(plan: &GatewayPlan, peer: Option<String>) -> ForwardingPart {
    ForwardingPart {
        mode: if plan.to == GatewayLocation::Lab { "lab" } else { "remote" }.into(),
        peer,
        share: plan.share.map(|share| share.cores()),
        memory_bytes: plan.memory.map(|memory| memory.0),
        trial_s: plan.lasts.as_secs_f64(),
        message_bytes: plan.message_bytes,
        socket_bytes: plan.socket_bytes,
        ..ForwardingPart::default()
    }
}

/// Notes on the figures, from the plan and the emulation.
pub(super) fn notes(plan: &GatewayPlan, part: &ForwardingPart, facts: Option<&EmulationFacts>) -> Vec<String> {
    let mut notes = Vec::new();
    let conditions = || part.conditions.iter();
    if let Some(facts) = facts {
        let share = plan.share.map_or_else(
            || "has no CPU limit".to_owned(),
            |share| match facts.stall_lengths {
                Some([usually, seldom]) => format!(
                    "has {share} of a core, forwarding and proxy together; when that is used up it stalls, usually for up to {} at a \
                     time, rarely for {}",
                    format_duration(usually),
                    format_duration(seldom)
                ),
                None => format!("has {share} of a core, forwarding and proxy together"),
            },
        );
        let host_ns = facts.host_ns_per_packet.zip(facts.host_ns_per_isolated_packet);
        let host_cost = host_ns.map_or(String::new(), |(many, alone)| {
            format!(
                "; the emulated host's part of the CPU time per packet is {:.1} us, {:.1} us for an isolated packet, \
                 which a driver and its interrupts would need, too",
                many / 1e3,
                alone / 1e3
            )
        });
        notes.push(format!("The gateway {share}{host_cost}. {}.", super::labs::addresses()));
        notes.extend(facts.notes.iter().cloned());
    }
    if let Some(memory) = plan.memory
        && let Some(most) = conditions().filter_map(|condition| condition.memory_max_bytes).max()
    {
        notes.push(format!("Peak memory of the gateway: {} of {memory}.", Bytes(most)));
    }
    if plan.to == GatewayLocation::Lab && conditions().any(|condition| condition.link.starts_with("unlimited")) {
        notes.push(
            "An unlimited link passes TCP segments unsplit, like a network interface with receive offload: there a stream's bits say \
             nothing about packets."
                .into(),
        );
    }
    if let (Some(configured), Some([send, receive])) = (part.socket_bytes, part.socket_bytes_actual) {
        notes.push(format!(
            "Socket buffers of {configured} bytes were configured; the kernel set {send} to send and \
             {receive} to receive."
        ));
    }
    if conditions().any(|condition| condition.bound_by.values().any(|by| by == "window")) {
        notes.push(
            "The bottleneck `window` is found by exclusion: link, gateway and tester were not saturated, and nothing was lost at light \
             load. A larger --socket-bytes should be faster."
                .into(),
        );
    }
    if conditions().any(|condition| !condition.packets.is_empty()) {
        let trial = format_duration(plan.packet_trial());
        let deviation = if plan.full {
            format!("Trials of packets last {trial}")
        } else {
            format!("Trials of packets last {trial}, instead of 60 s as in RFC 2544 (--full), with shorter pauses")
        };
        notes.push(format!(
            "{deviation}; sizes are those of IP packets: an Ethernet frame is 18 bytes longer, and takes 20 more on the wire. RTT is the time there \
             and back, instead of one-way latency as in RFC 2544."
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
            "If packets are lost at any rate, there is no loss-free rate: the search tolerates the loss of the survey, and what \
             --loss allows. This applies to {}.",
            lossy.join("; ")
        ));
    }
    let loaded = |condition: &&GatewayCondition| condition.proxy.is_some();
    if conditions().any(|condition| loaded(&condition)) {
        notes.push(match plan.load {
            ProxyLoading::Rate(rate) => format!("A loaded proxy gets PolyMix-1 at {rate}, without think time."),
            ProxyLoading::Wget => {
                "A loaded proxy gets requests by wget for one file of 10 KB after the other, each once.".into()
            }
        });
    }
    let overloaded: Vec<String> = conditions()
        .filter(|condition| condition.proxy.as_ref().is_some_and(|proxy| proxy.overloaded))
        .map(|condition| format!("{} {}", condition.name, condition.link).trim().to_owned())
        .collect();
    if !overloaded.is_empty() {
        notes.push(format!("The proxy was overloaded in {}.", overloaded.join(", ")));
    }
    notes
}

fn percent(share: f64) -> String {
    format!("{:.3} %", share * 100.0)
}

/// Share of CPU time stolen by the hypervisor between two readings.
pub(super) fn steal_share(before: &Times, after: &Times) -> Option<f64> {
    let (mut stolen, mut total) = (0.0, 0.0);
    for (core, times) in after {
        let spent = times.since(before.get(core)?);
        stolen += spent.steal.as_secs_f64();
        total += (spent.busy() + spent.idle + spent.iowait).as_secs_f64();
    }
    (total > 0.0).then(|| stolen / total)
}

/// CPU times of each core.
pub(super) type Times = BTreeMap<usize, sys::accounting::CpuTimes>;

/// Current CPU times of all cores; empty if /proc/stat is unreadable.
pub(super) fn times() -> Times {
    sys::accounting::cpu_times().map(|times| times.into_iter().collect()).unwrap_or_default()
}
