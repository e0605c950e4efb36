//! A reproduced experiment as a page: result, verdict, published and measured figures.

use schema::{ReproductionDocument, ReproductionRow, WatchSecond};

use crate::figures::rate;
use crate::page::{Page, Section, Table};
use crate::plot::{Axis, Bars, Chart, Quantity, Series};

/// Captured packets of one experiment.
#[derive(Clone, Debug)]
pub struct ExperimentView<'a> {
    /// Name of the experiment in legends: `2: 100 clients, RTT 48 ms for all`.
    pub name: String,
    /// Colour of the experiment, the same in every figure.
    pub color: usize,
    /// Second by second, from its first connection on.
    pub seconds: &'a [WatchSecond],
    /// Handshake RTTs at the server, in ns.
    pub rtts_ns: &'a [u64],
    /// Configured RTTs in ns, one per client; empty if the curve would be a vertical line.
    pub configured_rtts_ns: &'a [u64],
}

/// Experiments under one setting.
#[derive(Clone, Debug)]
pub struct SettingView<'a> {
    /// Heading.
    pub name: String,
    /// A sentence on it.
    pub about: String,
    /// The experiments.
    pub experiments: Vec<ExperimentView<'a>>,
}

/// The load of every experiment.
#[derive(Clone, Copy, Debug)]
pub struct Offered {
    /// Requests per second.
    pub rate_per_s: f64,
    /// Seconds at the start that are not in the figures.
    pub warmup_s: f64,
}

/// Builds the page of `koshien`. `table` is the summary.
pub fn page(
    title: &str,
    document: &ReproductionDocument,
    table: (&[&str], &[Vec<String>]),
    offered: Offered,
    settings: &[SettingView<'_>],
) -> Page {
    let sections = settings.iter().map(|setting| figures(setting, offered)).collect();
    page_with(title, document, table, &[1], sections)
}

/// Builds the page of any reproduction: result, verdict, summary (`words` are its columns of text, from 0), `sections`
/// of figures, notes, every row.
pub fn page_with(
    title: &str,
    document: &ReproductionDocument,
    (head, lines): (&[&str], &[Vec<String>]),
    words: &[usize],
    sections: Vec<Section>,
) -> Page {
    let part = &document.reproduce;
    let summary = lines.iter().fold(Table::new(head).left(words), |table, line| table.row(line.iter().cloned()));
    let notes = part.notes.iter().fold(Section::new("Notes"), |section, note| section.text(note));
    let page = Page::new(title)
        .lead(&part.answer)
        .subject("", document.run.command.clone())
        .judged("", &document.validity)
        .section(Section::new("Published vs. measured").table(summary));
    sections
        .into_iter()
        .fold(page, Page::section)
        .section(notes)
        .section(Section::new("Every figure").folded("All rows", Section::new("").table(rows(document))))
        .section(Section::new("About this experiment").text(&part.about))
        .foot(format!("Stored runs: {}", part.runs.join(", ")))
}

/// Bars of one quantity: a group for each experiment, a bar for each of `series` (name, setting, whether the published
/// figure is meant). On a logarithmic axis (`decades`) dots instead.
pub fn bars(
    title: &str,
    document: &ReproductionDocument,
    (quantity, axis): (&str, Quantity),
    series: &[(&str, &str, bool)],
    decades: bool,
) -> Bars {
    let all = &document.reproduce.rows;
    let mut groups: Vec<&str> = Vec::new();
    for row in all.iter().filter(|row| row.quantity == quantity) {
        if series.iter().any(|(_, setting, _)| *setting == row.setting) && !groups.contains(&row.experiment.as_str()) {
            groups.push(&row.experiment);
        }
    }
    let names: Vec<&str> = series.iter().map(|(name, ..)| *name).collect();
    let empty = if decades { Bars::dots(title, axis, &names) } else { Bars::new(title, axis, &names) };
    groups.into_iter().fold(empty, |bars, group| {
        let values: Vec<Option<f64>> = series
            .iter()
            .map(|(_, setting, published)| {
                let is = |row: &&ReproductionRow| {
                    row.experiment == group && row.setting == *setting && row.quantity == quantity
                };
                let row = all.iter().find(is)?;
                if *published { row.published.as_ref()?.parse().ok() } else { row.measured }
            })
            .collect();
        bars.row(group, &values)
    })
}

fn figures(setting: &SettingView<'_>, offered: Offered) -> Section {
    let over_time = |title: &str, label: &str, quantity, value: &dyn Fn(&WatchSecond) -> f64| {
        let end_s = setting.experiments.iter().map(|one| one.seconds.len()).max().unwrap_or(0) as f64;
        let chart = Chart::over_time(title, label, quantity).band(0.0, offered.warmup_s.min(end_s), "warm-up");
        setting.experiments.iter().fold(chart, |chart, one| {
            let rows = one.seconds.iter().enumerate().map(|(at, second)| (at as f64, value(second)));
            chart.series(Series::seconds(&one.name, rows).color(one.color))
        })
    };
    let concurrent = |second: &WatchSecond| second.connections_mean;
    let connections = over_time(
        "Concurrent connections (in the paper: in process)",
        "concurrent connections",
        Quantity::Count,
        &concurrent,
    )
    .about("Mean of each second, from packets at the server's end.");
    let requests = |second: &WatchSecond| second.requests as f64;
    let arrivals = over_time("Request arrivals", "requests/s", Quantity::PerSecond, &requests)
        .rule(offered.rate_per_s, format!("offered: {}", rate(offered.rate_per_s)))
        .about("Open loop: the load does not wait for the server.");
    let rtts = setting.experiments.iter().fold(rtt_chart(), |chart, one| {
        let chart = chart.series(Series::shares_of(&one.name, one.rtts_ns).color(one.color));
        if one.configured_rtts_ns.is_empty() {
            chart
        } else {
            chart.series(Series::shares_of("configured", one.configured_rtts_ns).dashed().color(one.color))
        }
    });
    Section::new(&setting.name).text(&setting.about).figure(connections).figure(arrivals).figure(rtts)
}

fn rtt_chart() -> Chart {
    let chart = Chart::cumulative("Round-trip times", "RTT of the handshake, at the server")
        .about(
        "From the SYN-ACK to the client's ACK. Beyond 1 s the SYN-ACK is retransmitted, and such a handshake has no RTT.",
    );
    Chart { x: Axis { from: Some(RTT_FROM_NS), ..chart.x.clone() }, ..chart }
}

/// Left end of the axis, low enough for a LAN.
const RTT_FROM_NS: f64 = 1e4;

fn rows(document: &ReproductionDocument) -> Table {
    let table = Table::new(&["experiment", "setting", "quantity", "published", "measured", "note"]).left(&[1, 2, 5]);
    document.reproduce.rows.iter().fold(table, |table, row| {
        let quantity =
            if row.unit.is_empty() { row.quantity.clone() } else { format!("{} ({})", row.quantity, row.unit) };
        table.row([
            row.experiment.clone(),
            row.setting.clone(),
            quantity,
            row.published.clone().unwrap_or_else(|| "-".into()),
            row.measured.map_or("-".into(), |here| format!("{here:.3}")),
            row.note.clone(),
        ])
    })
}
