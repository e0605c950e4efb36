//! The document in words.

use schema::{Reproduction, ReproductionRow};

use super::forwarding::Factor;
use super::options::{SchoolGatewayOptions, Storage, Streams};
use super::rows::{
    CLASS, ERRORS, FACTOR, HITS, MEAN, NEW, REPEATS, RESPONSES, SCALE, USABLE, experiment, find, rate_of,
};
use super::scale::{Card, Machine, Scale};
use super::{TIMEOUT, TIMEOUT_FULL, conclusions, forwarding, storage};
use crate::{Summary, level};

/// What to know when comparing with the paper.
pub const NOTES: [&str; 8] = [
    "Time runs F times as fast as in the paper: rates and cards are F times the paper's, think times and time-outs a Fth of them, \
     and rows marked F are back on its scale. So as many requests and connections are under way as there, and each takes as \
     large a part of its machine. F is found first: squid's CPU for a request is measured, and F is such that 4 % of a core \
     suffice for 10 F requests a second, what the paper's smallest machine did. That one figure is fitted. The other machines \
     have 3.5 and 7.66 times as much, as their clocks were; clocks are not speeds.",
    "What does not scale: the kernel's own times (a connection that finds its queue full is tried again after 1 s), squid's, \
     and memory, which is twice the paper's: in 32 MB squid of today is killed by the kernel when some 1,000 connections are open. \
     The share is dealt out in pieces of \
     1 ms, so that the small machine stands still for up to 24 ms at a time.",
    "What the kernel does for squid's packets in interrupts is bound by no share. It was a part of the work of the paper's \
     machines.",
    "squid caches in memory; no disk is in it. What the paper's squid had on disk is not said. In points of some seconds nothing \
     is forgotten; with --full the small machine's 16 MiB are full after some minutes, and its hit ratio is that of a small cache.",
    "The paper publishes 8 rates, but of its curves few figures: those in the column. Its Type1's card is not said; it is taken \
     as 10 Mbit/s.",
    "A point ends when half of what ended of late had failed, as in the paper. Its limit on an answer is not known; means of \
     79 s say that it was longer than that. Here it is 30 s of the paper's time in a short point and 180 s with --full, so that \
     in short points means above 30 s cannot be: what took longer is in the errors.",
    "Hits are known by the identity of answers, and not by what squid says of itself. Repeats of what is still under way are \
     misses for squid, which joins no requests; in a short point with a think time of 3 s they are many: `repeats of what had come` \
     leaves them out. Where clients wait long, squid has more hits than those, since it has a copy before its client does.",
    "A hit takes squid of today more than half of the CPU of a miss (`CPU of a request here`): both are a connection of a client. \
     So 90 % hits do not make a machine many times as fast. On the paper's they did; what a miss took there is not said. Its mix is \
     `nearly Polymix-1`, and which parts differed is not said either.",
];

/// Whose experiments these are.
pub const PAPER: &str = "P5: Makino, Kubo, Ohtsuka, Shibata, Matsumoto and Hayashi (Reitaku University, 2001), evaluation of a multi-function \
     gateway for school networks.";

/// What was made of forwarding, and how.
pub fn about_forwarding(asked: &SchoolGatewayOptions, factor: &Factor) -> String {
    let Streams { trials, lasts, load_per_s, .. } = &asked.streams;
    let load = match load_per_s {
        Some(per_s) => format!("PolyMix-1 at {per_s}/s of the paper's"),
        None => "wget, one file after the other".to_owned(),
    };
    let found =
        if factor.steps.is_empty() { "" } else { " Behind 10 F Mbit/s the small machine forwards 8 F with NAT here." };
    format!(
        "Forwarding: a TCP stream from the clients to a server, 16,384 bytes of socket buffers and messages, {trials} trials of {} in each of five \
         conditions in turns, links F times as fast as the paper's cards; a loaded squid has {load}. F of forwarding = {}.{found} The \
         machines are those of the caches: {}.",
        units::format_duration(*lasts),
        factor.value,
        Machine::ALL.map(|machine| format!("{} {}", machine.name(), machine.share())).join(", "),
    )
}

/// What was made of storage, and how.
pub fn about_storage(asked: &Storage) -> String {
    format!(
        "Disk: Bonnie's columns by fio on a file of 100 MiB and one of {} in {}, {} a test that does not take the whole file.",
        asked.size,
        asked.directory.display(),
        units::format_duration(asked.each)
    )
}

/// What was made of the caches, and how.
pub fn about(asked: &SchoolGatewayOptions, scale: &Scale, version: &str) -> String {
    let machine = |machine: &Machine| {
        format!(
            "{} ({}): {} of a core, {} of memory, of these {} to cache in",
            machine.name(),
            machine.of_paper(),
            machine.share(),
            machine.memory(),
            machine.cache()
        )
    };
    let cost = scale.cpu_us.map_or(String::new(), |cpu_us| {
        format!(
            " A request takes squid {cpu_us:.0} us of CPU here, so 4 % of a core are good for {:.0}/s.",
            40_000.0 / cpu_us
        )
    });
    format!(
        "Caches: origin and robots on either side of one card, PolyMix-1, {} (a cache anew for each \
         point), {} a point, of which a quarter is not measured; answers may take {} of the paper's time. F = {}.{cost} \
         Machines: {}.",
        if version.is_empty() { "squid" } else { version },
        units::format_duration(asked.point),
        units::format_duration(if asked.full { TIMEOUT_FULL } else { TIMEOUT }),
        scale.factor,
        Machine::ALL.iter().map(machine).collect::<Vec<_>>().join("; "),
    )
}

/// The answer in some sentences: what caches, forwarding and storage did, and what hardware is needed. The other conclusions stand below it.
pub fn answer(rows: &[ReproductionRow]) -> String {
    let parts =
        [of_caches(rows), forwarding::rows::answer(rows), storage::answer(rows), conclusions::hardware_sentence(rows)];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "Some of the experiments, made again.".to_owned() } else { parts.join(" ") }
}

/// What the caches did; nothing where none was measured.
fn of_caches(rows: &[ReproductionRow]) -> Option<String> {
    let of = |experiment: &str, setting: &str, quantity: &str| find(rows, experiment, setting, quantity);
    let mut parts = Vec::new();
    let places = [
        (Machine::Small, Card::Mbit10),
        (Machine::Middle, Card::Mbit10),
        (Machine::Large, Card::Mbit10),
        (Machine::Large, Card::Mbit100),
    ];
    let held: Vec<String> = places
        .into_iter()
        .filter_map(|(machine, card)| {
            let name = experiment(machine, card);
            let row = rows.iter().find(|row| row.experiment == name && row.quantity == USABLE)?;
            let paper = row.published.as_ref().map_or(String::new(), |words| format!(" (the paper: {words})"));
            Some(format!("{name} to {}/s{paper}", row.measured?))
        })
        .collect();
    if !held.is_empty() {
        parts.push(format!("Usable: {}", held.join("; ")));
    }
    let small = experiment(Machine::Small, Card::Mbit10);
    let repeats = format!("{REPEATS}, {small}");
    let at = |name: &str, rate: &str| {
        Some(format!(
            "{} % errors, {} s, {} % hits",
            level(of(name, rate, ERRORS)?),
            level(of(name, rate, MEAN)?),
            level(of(name, rate, HITS)?)
        ))
    };
    if let Some(usual) = at(&small, "20/s") {
        parts.push(format!("The small machine at 20/s: {usual} (the paper: 48.8 %, 79.19 s, 32.6 %)"));
    }
    if let Some(prepared) = at(&repeats, "20/s") {
        parts.push(format!("With 95 % cacheable and 90 % repeats: {prepared} (the paper: 0 %, 0.73 s, 89.66 %)"));
    }
    let new = format!("{NEW}, {}", experiment(Machine::Middle, Card::Mbit10));
    if let Some(new) = at(&new, "40/s") {
        parts.push(format!("Where every URL is new, the middle one at 40/s: {new} (the paper: slow in practice)"));
    }
    if let Some(class) = at(&format!("{CLASS}, {small}"), "40/s") {
        parts.push(format!(
            "40 seats after the teacher fetched the pages, on the small one: {class} (the paper: even Type1 serves)"
        ));
    }
    match of(SCALE, "", FACTOR) {
        Some(factor) if !parts.is_empty() => {
            Some(format!("{}. All on the paper's scale, F = {factor}.", parts.join(". ")))
        }
        _ => None,
    }
}

/// The points of all experiments, each in a line; forwarding and storage in tables of their own; the conclusions below.
pub fn summary(reproduction: &Reproduction) -> Summary {
    let rows = &reproduction.rows;
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    for row in rows.iter().filter(|row| rate_of(&row.setting).is_some()) {
        let key = (row.experiment.as_str(), row.setting.as_str());
        if seen.contains(&key) {
            continue;
        }
        seen.push(key);
        let cell = |quantity: &str| find(rows, key.0, key.1, quantity).map_or("-".to_owned(), level);
        let paper: Vec<String> =
            [(RESPONSES, "responses", "/s"), (MEAN, "mean", " s"), (HITS, "hits", " %"), (ERRORS, "errors", " %")]
                .into_iter()
                .filter_map(|(quantity, short, unit)| {
                    let is = |row: &&ReproductionRow| {
                        (row.experiment.as_str(), row.setting.as_str()) == key && row.quantity == quantity
                    };
                    let words = rows.iter().find(is)?.published.as_ref()?;
                    // Some of its words stand by themselves.
                    if !words.contains(|c: char| c.is_ascii_digit()) || words.contains("Type") {
                        return Some(words.clone());
                    }
                    let unit = if words.ends_with(|c: char| c.is_ascii_digit()) { unit } else { "" };
                    Some(format!("{short} {words}{unit}"))
                })
                .collect();
        lines.push(vec![
            key.0.to_owned(),
            key.1.to_owned(),
            cell(RESPONSES),
            cell(MEAN),
            cell(HITS),
            cell(ERRORS),
            if paper.is_empty() { "-".into() } else { paper.join(", ") },
        ]);
    }
    Summary {
        head: vec!["machine, card", "offered", "responses/s", "mean, s", "hits, %", "errors, %", "the paper"],
        lines,
        more: [forwarding::rows::lines(rows), storage::lines(rows)].into_iter().flatten().collect(),
        // What stands in the answer is not said again.
        remarks: conclusions::sentences(rows).into_iter().filter(|said| !reproduction.answer.contains(said)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(experiment: &str, setting: &str, quantity: &str, here: f64, paper: Option<&str>) -> ReproductionRow {
        ReproductionRow {
            experiment: experiment.into(),
            setting: setting.into(),
            quantity: quantity.into(),
            measured: Some(here),
            published: paper.map(str::to_owned),
            ..ReproductionRow::default()
        }
    }

    #[test]
    fn the_answer_has_what_was_made_and_no_more() {
        assert_eq!(answer(&[]), "Some of the experiments, made again.");
        let rows = vec![
            row(SCALE, "", FACTOR, 11.0, None),
            row("small, 10 Mbit/s", "", USABLE, 10.0, Some("below 15")),
            row("90 % hits, small, 10 Mbit/s", "20/s", ERRORS, 0.0, Some("0")),
            row("90 % hits, small, 10 Mbit/s", "20/s", MEAN, 0.7, Some("0.73")),
            row("90 % hits, small, 10 Mbit/s", "20/s", HITS, 88.0, Some("89.66")),
        ];
        assert_eq!(
            answer(&rows),
            "Usable: small, 10 Mbit/s to 10/s (the paper: below 15). With 95 % cacheable and 90 % repeats: 0.00 % errors, 0.70 s, \
             88.0 % hits (the paper: 0 %, 0.73 s, 89.66 %). All on the paper's scale, F = 11."
        );
    }

    #[test]
    fn each_point_has_a_line_with_the_papers_words() {
        let rows = vec![
            row(SCALE, "", FACTOR, 11.0, None),
            row("small, 10 Mbit/s", "20/s", RESPONSES, 10.5, Some("about 10")),
            row("small, 10 Mbit/s", "20/s", HITS, 33.0, Some("32.6")),
            row("small, 10 Mbit/s", "40/s", ERRORS, 50.0, Some("50, and ended")),
            row("small, 10 Mbit/s", "40/s", MEAN, 50.0, Some("slow in practice")),
        ];
        let summary = summary(&Reproduction { rows, ..Reproduction::default() });
        assert_eq!(summary.lines.len(), 2);
        assert_eq!(
            summary.lines[0],
            ["small, 10 Mbit/s", "20/s", "10.5", "-", "33.0", "-", "responses about 10/s, hits 32.6 %"]
        );
        assert_eq!(summary.lines[1][6], "slow in practice, errors 50, and ended");
        assert!(summary.lines.iter().all(|line| line.len() == summary.head.len()));
    }
}
