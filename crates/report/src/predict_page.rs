//! The result of `predict` as one page: response time against load, predicted and measured, limits, service demands,
//! assumptions.

use schema::{MeasuredLoad, PredictDocument, PredictPart};

use crate::figures::{count, duration_f64, level, rate, share};
use crate::page::{Page, Section, Table};
use crate::phrases::{span, wall_clock};
use crate::plot::{Axis, Bars, Chart, Quantity, Series};
use crate::predict;
use crate::predict_components::{
    COMPARISON_HEAD, COMPONENT_HEAD, TERM_HEAD, comparison_rows, component_row, term_rows,
};

/// Builds the page; `plan` is the text of the plan; it may be empty.
pub fn predict_page(document: &PredictDocument, plan: &str) -> Page {
    let (run, part) = (&document.run, &document.predict);
    let title = if run.id.is_empty() { "A prediction" } else { &run.id };
    let about = format!(
        "{}: from {} measured loads, {} in all.",
        wall_clock(&run.started_at),
        part.loads.len(),
        span(run.duration_s)
    );
    let plans = predict::plans(part).into_iter().fold(Section::new("Consequences"), Section::text);
    let reasons = part.reasons.iter().chain(&part.notes);
    let notes = reasons.fold(Section::new("Notes"), |section, note| section.text(note));
    let of_sum = part.component_sum.iter().flat_map(|sum| &sum.assumes).filter(|text| !part.assumes.contains(text));
    let assumes =
        part.assumes.iter().chain(of_sum).fold(Section::new("Assumptions"), |section, text| section.text(text));
    let repeat = Section::new("Repeat this run")
        .text(format!("Seed of every random choice: {}.", run.seed))
        .folded("The plan", Section::new("").verbatim("", schema::withheld::plan(plan)));
    Page::new(title)
        .lead(predict::answer(document))
        .subject("", run.command.clone())
        .judged("", &document.validity)
        .about(about)
        .section(curve(part))
        .section(limits(part))
        .section(plans)
        .section(users(part))
        .section(demands(part))
        .section(parts(part))
        .section(notes)
        .section(assumes)
        .section(loads(part))
        .section(repeat)
        .foot(if run.dir.is_empty() { "This run was not stored.".to_owned() } else { format!("Stored in {}", run.dir) })
}

fn curve(part: &PredictPart) -> Section {
    if part.curve.is_empty() {
        return Section::new("");
    }
    let line = |of: fn(&schema::CurvePoint) -> f64| {
        part.curve.iter().map(|point| [point.rate_per_s, of(point) * 1e9]).collect()
    };
    let measured = predict::measured(part);
    let dots = |of: fn(&schema::MeasuredLoad) -> f64| measured.iter().map(|load| [load.rate_per_s, of(load)]).collect();
    let chart = Chart::new(
        "Response time against load",
        Axis::from_zero("offered requests/s", Quantity::PerSecond),
        Axis::log("response time", Quantity::Nanoseconds),
    )
    .about("Lines: predicted, by a processor-sharing queue and the path. Dots: measured. The lines end at saturation.")
    .series(Series::line("predicted p50", line(|point| point.p50_s)).color(0))
    .series(Series::line("predicted p99", line(|point| point.p99_s)).color(1))
    .series(Series::line("predicted mean", line(|point| point.mean_s)).color(2));
    // With components only, the server itself was not measured.
    let lines = [
        Series::line("measured p50", dots(|load| load.response_p50_ns as f64)).dotted().dashed().color(0),
        Series::line("measured p99", dots(|load| load.response_p99_ns as f64)).dotted().dashed().color(1),
    ];
    let chart = lines.into_iter().filter(|series| !series.is_empty()).fold(chart, Chart::series);
    let busy = Chart::new(
        "CPU against load",
        Axis::from_zero("requests/s", Quantity::PerSecond),
        Axis::from_zero("cores used by processes", Quantity::Count),
    )
    .about("Light loads: one request at a time. Saturated loads: the server is limited to a part of its CPU and always busy.");
    let busy = ["light", "saturated"].iter().enumerate().fold(busy, |chart, (color, kind)| {
        let mut points: Vec<[f64; 2]> = part
            .loads
            .iter()
            .filter(|load| load.kind == *kind && !load.left_out)
            .map(|load| [load.rate_per_s, load.busy_processes])
            .collect();
        points.sort_by(|a, b| a[0].total_cmp(&b[0]));
        if points.is_empty() { chart } else { chart.series(Series::line(*kind, points).dotted().color(color)) }
    });
    // Loads of several classes do not form a line.
    let mut classes: Vec<&str> = part
        .loads
        .iter()
        .filter(|load| load.kind == "light" && !load.left_out)
        .map(|load| load.class.as_str())
        .collect();
    classes.sort_unstable();
    classes.dedup();
    let section = Section::new("Response time against load").figure(chart);
    if classes.len() == 1 { section.figure(busy) } else { section }
}

fn limits(part: &PredictPart) -> Section {
    let table =
        part.limits.iter().fold(Table::new(&["limited by", "rate", "95 %", "reason"]).left(&[3]), |table, limit| {
            table.row(predict::limit_row(limit))
        });
    let bars = part.limits.iter().fold(Bars::new("Limits", Quantity::PerSecond, &["requests/s"]), |bars, limit| {
        bars.row(predict::name(&limit.resource), &[Some(limit.rate_per_s)])
    });
    Section::new("Limits").table(table).figure(bars.about("The shortest bar is the bottleneck."))
}

fn users(part: &PredictPart) -> Section {
    if part.closed.is_empty() {
        return Section::new("");
    }
    let table = part.closed.iter().fold(Table::new(&["users", "rate", "mean response", "busy"]), |table, point| {
        table.row([
            count(point.users.into()),
            rate(point.rate_per_s),
            duration_f64(point.response_s * 1e9),
            share(point.busy),
        ])
    });
    let points = part.closed.iter().map(|point| [f64::from(point.users), point.rate_per_s]).collect();
    let chart = Chart::new(
        "Rate by number of users",
        Axis::from_zero("users", Quantity::Count),
        Axis::from_zero("requests/s", Quantity::PerSecond),
    )
    .about("Exact mean value analysis of users who think, request and wait for the response.")
    .series(Series::line("rate", points).dotted());
    Section::new("Users").table(table).figure(chart)
}

fn demands(part: &PredictPart) -> Section {
    if part.demands.is_empty() {
        return Section::new("");
    }
    let head = ["CPU time of", "per request", "loads", "each", "95 %", "resource", "idle CPU", "curvature (t)"];
    let table = part.demands.iter().fold(Table::new(&head).left(&[2, 5]), |table, demand| {
        let mut row = predict::demand_row(demand).to_vec();
        row.push(demand.resource.clone());
        row.push(demand.idle_cores.map_or(String::new(), |cores| format!("{:.2} %", cores * 100.0)));
        row.push(demand.curvature_t.map_or(String::new(), |t| format!("{t:.1}")));
        table.row(row)
    });
    Section::new("Service demands").table(table).text(
        "Saturated: the server is always busy, as at its capacity. Light: one request at a time, each of which wakes \
         the server up. Derived: the difference of two demands. Resource `cores` includes receive processing.",
    )
}

fn parts(part: &PredictPart) -> Section {
    let Some(sum) = &part.component_sum else { return Section::new("") };
    let grid =
        |head: &[&str], rows: Vec<Vec<String>>| rows.into_iter().fold(Table::new(head), |table, row| table.row(row));
    let mut head = COMPONENT_HEAD.to_vec();
    head.push("description");
    let rows = part.components.iter().map(|part| {
        let mut row = component_row(part);
        row.push(part.words.clone());
        row
    });
    let bars = part.components.iter().filter(|part| part.processes.per_byte_s.is_some()).fold(
        Chart::new(
            "CPU time by size",
            Axis::from_zero("bytes", Quantity::Count),
            Axis::from_zero("CPU time", Quantity::Nanoseconds),
        )
        .about("Dots: measured, each component alone."),
        |chart, part| {
            let mut points: Vec<[f64; 2]> =
                part.points.iter().map(|point| [point.bytes as f64, point.processes_s * 1e9]).collect();
            points.sort_by(|a, b| a[0].total_cmp(&b[0]));
            chart.series(Series::line(part.component.clone(), points).dotted())
        },
    );
    Section::new("Components")
        .text(format!("Modelled server: {}.", sum.described))
        .table(grid(&COMPARISON_HEAD, comparison_rows(part)))
        .table(grid(&TERM_HEAD, term_rows(sum)))
        .table(grid(&head, rows.collect()).left(&[5]))
        .figure(bars)
}

fn loads(part: &PredictPart) -> Section {
    let head = [
        "class",
        "load",
        "rate",
        "CPU, processes",
        "CPU, with receive processing",
        "limited to",
        "mean",
        "p50",
        "p99",
        "in flight",
        "verdict",
    ];
    let percent = |cores: f64| format!("{:.2} %", cores * 100.0);
    let table = part.loads.iter().fold(Table::new(&head).left(&[1, 10]), |table, load| {
        table.row([
            load.class.clone(),
            load.kind.clone(),
            rate(load.rate_per_s),
            percent(load.busy_processes),
            match load.busy_cores_interval.filter(|[low, high]| high - low > 0.05 * load.busy_cores) {
                Some([low, high]) => format!("{} ({} to {})", percent(load.busy_cores), percent(low), percent(high)),
                None => percent(load.busy_cores),
            },
            load.limited_cores.map_or(String::new(), percent),
            duration_f64(load.response_mean_ns),
            duration_f64(load.response_p50_ns as f64),
            duration_f64(load.response_p99_ns as f64),
            level(load.in_flight),
            verdict(load),
        ])
    });
    Section::new("").folded("Every load", Section::new("").table(table))
}

/// The verdict of a load with its failed checks, and whether it is left out.
fn verdict(load: &MeasuredLoad) -> String {
    let mut words = match &load.failed[..] {
        [] => load.verdict.clone(),
        failed => format!("{}: {}", load.verdict, failed.join(", ")),
    };
    if load.left_out {
        words.push_str(" (left out)");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prediction_page_has_its_figures_and_escapes_names() {
        let page = predict_page(&crate::predict::tests::sample(), "name = \"x\"");
        let titles: Vec<String> = page.figures().iter().map(|figure| figure.title().to_owned()).collect();
        assert_eq!(titles, ["Response time against load", "CPU against load", "Limits"]);
        let html = page.into_html();
        let mut document = crate::predict::tests::sample();
        document.predict = crate::predict_components::tests::with_sum(document.predict);
        let with_parts = predict_page(&document, "").into_html();
        assert!(with_parts.contains("<h2>Components") && with_parts.contains("send&lt;i&gt;"));
        assert!(!with_parts.contains("<i>") && !html.contains("<h2>Components"));
        assert!(html.contains("<h2>Assumptions") && html.contains("&lt;b&gt;page") && !html.contains("<b>page"));
    }
}
