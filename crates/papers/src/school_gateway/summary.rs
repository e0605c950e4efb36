//! The result and the notes.

use schema::{Reproduction, ReproductionRow};

use super::forwarding::Factor;
use super::options::{SchoolGatewayOptions, Storage, Streams};
use super::rows::{
    CLASS, ERRORS, FACTOR, HITS, MEAN, NEW, REPEATS, RESPONSES, SCALE, USABLE, experiment, find, rate_of,
};
use super::scale::{Interface, Machine, Scale};
use super::{TIMEOUT, TIMEOUT_FULL, conclusions, forwarding, storage};
use crate::{Summary, level};

/// Notes on the comparison with the paper.
pub const NOTES: [&str; 8] = [
    "Time runs F times as fast as in the paper: rates and interface speeds are F times the paper's, think times and \
     timeouts 1/F, and rows marked F are converted back. So concurrency and relative load equal the paper's. F is \
     calibrated first: squid's CPU per request is measured, and F is set so that 4 % of a core serve 10 F requests a \
     second, the figure of the paper's smallest machine. Only this figure is fitted. The other machines have 3.5 and \
     7.66 times the CPU, by clock rate; clock rates are not speeds.",
    "Not scaled: the kernel's timers (a SYN that finds a full queue is retransmitted after 1 s), squid's timers, and \
     memory, which is twice the paper's: in 32 MB squid of today is killed by the kernel at some 1,000 open \
     connections. The CPU limit is enforced in slices of 1 ms, so the small machine pauses for up to 24 ms at a time.",
    "No CPU limit applies to the kernel's interrupt work for squid's packets. On the paper's machines this was part \
     of their work.",
    "squid caches in memory, without a disk. What the paper's squid had on disk is not published. In points of some \
     seconds nothing is evicted; with --full the small machine's 16 MiB are full after some minutes, and its hit \
     ratio is that of a small cache.",
    "The paper has 8 rates, but few tabulated figures: those in the published column. Type1's interface is not \
     published; it is taken as 10 Mbit/s.",
    "A point ends when half of the recent requests have failed, as in the paper. The paper's response timeout is \
     unknown, but above its means of 79 s. Here it is 30 s of the paper's time in a short point and 180 s with \
     --full, so in short points no mean is above 30 s: slower responses are errors.",
    "Hits are identified by the identity of responses, not by squid's headers. Repeats of an object whose first \
     response is still in transit are misses, since squid does not collapse requests; in a short point with a think \
     time of 3 s they are many: `repeats after the first response` excludes them. Where clients wait long, squid has \
     more hits than those, since it stores a response before its client has it.",
    "A hit costs squid of today over half a miss's CPU (`CPU per request, unconverted`): both need a client \
     connection. So 90 % hits do not speed a machine up many times. In the paper they did; the cost of a miss there \
     is not published. Its workload is `nearly Polymix-1`, and the differences are not published either.",
];

/// The paper.
pub const PAPER: &str = "School gateway: Makino, Kubo, Ohtsuka, Shibata, Matsumoto and Hayashi (Reitaku University, \
                         2001), evaluation of a multi-function gateway for school networks.";

/// Setup of forwarding.
pub fn about_forwarding(input: &SchoolGatewayOptions, factor: &Factor) -> String {
    let Streams { trials, lasts, load_per_s, .. } = &input.streams;
    let load = match load_per_s {
        Some(per_s) => format!("PolyMix-1 at {per_s}/s of the paper's"),
        None => "wget, one file after the other".to_owned(),
    };
    let found = if factor.steps.is_empty() {
        ""
    } else {
        " With an interface of 10 F Mbit/s the small machine forwards 8 F \
                                                  with NAT here."
    };
    format!(
        "Forwarding: a TCP stream from the clients to a server, 16,384 bytes of socket buffers and messages, \
         {trials} trials of {} in each of five interleaved conditions, links F times as fast as the paper's \
         interfaces; a loaded squid has {load}. F of forwarding = {}.{found} The machines are those of the caches: \
         {}.",
        units::format_duration(*lasts),
        factor.value,
        Machine::ALL.map(|machine| format!("{} {}", machine.name(), machine.share())).join(", "),
    )
}

/// Setup of storage.
pub fn about_storage(input: &Storage) -> String {
    format!(
        "Disk: Bonnie's columns by fio on a file of 100 MiB and one of {} in {}, {} per test that does not take the \
         whole file.",
        input.size,
        input.directory.display(),
        units::format_duration(input.each)
    )
}

/// Setup of the caches.
pub fn about(input: &SchoolGatewayOptions, scale: &Scale, version: &str) -> String {
    let machine = |machine: &Machine| {
        format!(
            "{} ({}): {} of a core, {} of memory, {} of it cache",
            machine.name(),
            machine.of_paper(),
            machine.share(),
            machine.memory(),
            machine.cache()
        )
    };
    let cost = scale.cpu_us.map_or(String::new(), |cpu_us| {
        format!(" A request costs squid {cpu_us:.0} us of CPU here, so 4 % of a core serve {:.0}/s.", 40_000.0 / cpu_us)
    });
    format!(
        "Caches: origin and virtual users on either side of one interface, PolyMix-1, {} (a new cache for each \
         point), {} per point, a quarter of it warm-up; response timeout {} of the paper's time. F = {}.{cost} \
         Machines: {}.",
        if version.is_empty() { "squid" } else { version },
        units::format_duration(input.point),
        units::format_duration(if input.full { TIMEOUT_FULL } else { TIMEOUT }),
        scale.factor,
        Machine::ALL.iter().map(machine).collect::<Vec<_>>().join("; "),
    )
}

/// The result in some sentences: caches, forwarding, storage, and the necessary hardware. The other conclusions follow
/// below.
pub fn result_sentence(rows: &[ReproductionRow]) -> String {
    let parts = [
        of_caches(rows),
        forwarding::rows::result_sentence(rows),
        storage::result_sentence(rows),
        conclusions::hardware_sentence(rows),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "Some of the experiments, repeated.".to_owned() } else { parts.join(" ") }
}

/// Results of the caches; empty if none was measured.
fn of_caches(rows: &[ReproductionRow]) -> Option<String> {
    let of = |experiment: &str, setting: &str, quantity: &str| find(rows, experiment, setting, quantity);
    let mut parts = Vec::new();
    let places = [
        (Machine::Small, Interface::Mbit10),
        (Machine::Middle, Interface::Mbit10),
        (Machine::Large, Interface::Mbit10),
        (Machine::Large, Interface::Mbit100),
    ];
    let held: Vec<String> = places
        .into_iter()
        .filter_map(|(machine, interface)| {
            let name = experiment(machine, interface);
            let row = rows.iter().find(|row| row.experiment == name && row.quantity == USABLE)?;
            let paper = row.published.as_ref().map_or(String::new(), |words| format!(" (published: {words})"));
            Some(format!("{name} to {}/s{paper}", row.measured?))
        })
        .collect();
    if !held.is_empty() {
        parts.push(format!("Usable: {}", held.join("; ")));
    }
    let small = experiment(Machine::Small, Interface::Mbit10);
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
        parts.push(format!("The small machine at 20/s: {usual} (published: 48.8 %, 79.19 s, 32.6 %)"));
    }
    if let Some(prepared) = at(&repeats, "20/s") {
        parts.push(format!("With 95 % cacheable and 90 % repeats: {prepared} (published: 0 %, 0.73 s, 89.66 %)"));
    }
    let new = format!("{NEW}, {}", experiment(Machine::Middle, Interface::Mbit10));
    if let Some(new) = at(&new, "40/s") {
        parts.push(format!("With every URL new, the middle one at 40/s: {new} (published: slow in practice)"));
    }
    if let Some(class) = at(&format!("{CLASS}, {small}"), "40/s") {
        parts.push(format!(
            "40 clients after the teacher fetched the pages, on the small one: {class} (published: even Type1 serves)"
        ));
    }
    match of(SCALE, "", FACTOR) {
        Some(factor) if !parts.is_empty() => {
            Some(format!("{}. All on the paper's scale, F = {factor}.", parts.join(". ")))
        }
        _ => None,
    }
}

/// Points of all experiments, one per line; forwarding and storage in tables of their own; conclusions below.
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
                    // Some of the published texts need no quantity.
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
        head: vec!["machine, interface", "offered", "responses/s", "mean, s", "hits, %", "errors, %", "published"],
        lines,
        more: [forwarding::rows::lines(rows), storage::lines(rows)].into_iter().flatten().collect(),
        // Sentences of the result are not repeated.
        notes: conclusions::sentences(rows).into_iter().filter(|text| !reproduction.answer.contains(text)).collect(),
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
    fn result_contains_only_what_was_measured() {
        assert_eq!(result_sentence(&[]), "Some of the experiments, repeated.");
        let rows = vec![
            row(SCALE, "", FACTOR, 11.0, None),
            row("small, 10 Mbit/s", "", USABLE, 10.0, Some("below 15")),
            row("90 % hits, small, 10 Mbit/s", "20/s", ERRORS, 0.0, Some("0")),
            row("90 % hits, small, 10 Mbit/s", "20/s", MEAN, 0.7, Some("0.73")),
            row("90 % hits, small, 10 Mbit/s", "20/s", HITS, 88.0, Some("89.66")),
        ];
        assert_eq!(
            result_sentence(&rows),
            "Usable: small, 10 Mbit/s to 10/s (published: below 15). With 95 % cacheable and 90 % repeats: 0.00 % \
             errors, 0.70 s, 88.0 % hits (published: 0 %, 0.73 s, 89.66 %). All on the paper's scale, F = 11."
        );
    }

    #[test]
    fn each_point_has_a_line_with_published_text() {
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
