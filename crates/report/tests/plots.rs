//! Plots of any data: well-formed markup, coordinates that are numbers inside the frame, and title, axes and legend.

#[path = "support/markup.rs"]
mod markup;

use markup::{Element, elements};
use proptest::prelude::*;
use report::plot::{Axis, Bars, Chart, Figure, Quantity, Scale, Series, Width};
use stats::Histogram;

/// Every number of a path's data, as (x or y, value).
fn coordinates(data: &str) -> Vec<(char, f64)> {
    let mut found = Vec::new();
    let mut rest = data;
    while let Some(command) = rest.chars().next() {
        let end = rest[1..].find(|c: char| c.is_ascii_alphabetic()).map_or(rest.len(), |at| at + 1);
        let numbers: Vec<f64> = rest[1..end].split_whitespace().map(|n| n.parse().expect("a number")).collect();
        match (command, &numbers[..]) {
            ('M' | 'L', &[x, y]) => found.extend([('x', x), ('y', y)]),
            ('H', &[x]) => found.push(('x', x)),
            ('V', &[y]) => found.push(('y', y)),
            ('h', &[0.0]) | ('Z', &[]) => {}
            other => panic!("no command of ours: {other:?}"),
        }
        rest = &rest[end..];
    }
    found
}

/// Checks that the SVG is well-formed and inside the view box.
fn check(svg: &str) -> Vec<Element> {
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg:.400}");
    let all = elements(svg);
    let plot = &all[0];
    assert_eq!((plot.name.as_str(), plot.get("role")), ("svg", Some("img")));
    assert_eq!(all[1].name, "title");
    let size: Vec<f64> = plot.get("viewBox").unwrap().split(' ').map(|n| n.parse().unwrap()).collect();
    let (width, height) = (size[2], size[3]);
    let inside = |which: char, value: f64| {
        let most = if which == 'x' { width } else { height };
        assert!((0.0..=most).contains(&value), "{which} = {value} of {most}: {svg:.300}");
    };
    for element in &all {
        let number =
            |name: &str| element.get(name).filter(|text| !text.ends_with('%')).map(|text| text.parse::<f64>().unwrap());
        match element.name.as_str() {
            "path" => {
                coordinates(element.get("d").unwrap()).into_iter().for_each(|(which, value)| inside(which, value))
            }
            "text" => {
                inside('x', number("x").unwrap());
                inside('y', number("y").unwrap());
            }
            "circle" => {
                inside('x', number("cx").unwrap());
                inside('y', number("cy").unwrap());
            }
            "rect" => {
                inside('x', number("x").unwrap_or(0.0) + number("width").unwrap_or(0.0));
                inside('y', number("y").unwrap_or(0.0) + number("height").unwrap_or(0.0));
            }
            _ => {}
        }
    }
    all
}

fn all_ways(figure: &Figure) {
    for svg in
        [figure.inline(Width::Full), figure.inline(Width::Half), figure.inline(Width::Narrow), figure.standalone()]
    {
        check(&svg);
    }
}

fn texts<'a>(elements: &'a [Element], class: &str) -> Vec<&'a str> {
    elements.iter().filter(|one| one.name == "text" && one.has_class(class)).map(|one| one.text.as_str()).collect()
}

#[test]
fn plot_has_title_axes_units_and_legend() {
    let rows = |level: f64| (0..60).map(move |second| (f64::from(second), level + f64::from(second % 5)));
    let chart = Chart::over_time("Connections in process", "connections", Quantity::Count)
        .about("From two vantage points.")
        .series(Series::seconds("load", rows(20.0)))
        .series(Series::seconds("wire", rows(20.5)).dashed())
        .band(0.0, 5.0, "warm-up")
        .rule(22.0, "published: 22");
    let svg = Figure::from(chart).standalone();
    let all = check(&svg);
    assert_eq!(texts(&all, "title"), ["Connections in process"]);
    assert_eq!(texts(&all, "name"), ["load", "wire"]);
    assert_eq!(texts(&all, "label"), ["connections", "time (s)"]);
    assert_eq!(texts(&all, "note"), ["warm-up", "published: 22"]);
    assert_eq!(
        texts(&all, "tick"),
        ["0", "5", "10", "15", "20", "25", "0", "5", "10", "15", "20", "25", "30", "35", "40", "45", "50", "55", "60"]
    );
    let about = all.iter().find(|one| one.name == "desc").unwrap();
    assert_eq!(about.text, "From two vantage points. load: 20 to 24. wire: 20.5 to 24.5.");
    let line = all.iter().find(|one| one.has_class("s0") && one.get("d").unwrap().contains('V')).unwrap();
    // 60 consecutive values of a second each are one path with one start.
    assert_eq!(line.get("d").unwrap().matches('M').count(), 1);
    assert!(svg.contains("prefers-color-scheme:dark"));
}

#[test]
fn plots_accept_zero_one_and_many_points() {
    let of = |count: u32| {
        let points = (0..count).map(|at| [f64::from(at) / 100.0, f64::from(at % 97)]).collect();
        Figure::from(Chart::over_time("t", "n", Quantity::Count).series(Series::line("a", points)))
    };
    assert_eq!(texts(&check(&of(0).inline(Width::Full)), "nothing"), ["no values"]);
    assert!(of(0).is_empty() && !of(1).is_empty());
    all_ways(&of(1));
    let many = of(100_000).inline(Width::Full);
    check(&many);
    assert!(many.len() < 100_000, "{}", many.len());
    all_ways(&Figure::from(Bars::new("t", Quantity::Count, &["n"])));
    all_ways(&Figure::from(Bars::dots("t", Quantity::Nanoseconds, &["n"]).row("zero", &[Some(0.0), None])));
}

/// A distribution of equal values is a vertical line in the middle, without a division by zero.
#[test]
fn plot_of_a_constant_value_has_an_axis() {
    let mut values = Histogram::new();
    values.record_n(48_000_000, 1_000);
    let chart = Chart::cumulative("RTT", "round-trip time")
        .series(Series::distribution("measured", &values))
        .series(Series::shares_of("configured", &[48_000_000; 100]).dashed());
    let all = check(&Figure::from(chart).inline(Width::Half));
    assert_eq!(texts(&all, "tick")[..6], ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]);
    assert_eq!(texts(&all, "tick")[6..], ["10 ms", "20 ms", "50 ms", "100 ms"]);
}

/// On a linear axis, bar lengths are proportional to the values.
#[test]
fn bar_lengths_are_proportional_to_values() {
    let bars =
        Bars::new("t", Quantity::Count, &["n"]).row("a", &[Some(50.0)]).row("b", &[Some(100.0)]).row("c", &[None]);
    let all = check(&Figure::from(bars).inline(Width::Half));
    let lengths: Vec<f64> =
        all.iter().filter(|one| one.name == "rect").map(|one| one.get("width").unwrap().parse().unwrap()).collect();
    assert!((lengths[0] * 2.0 - lengths[1]).abs() <= 0.2 && lengths[2] == 0.0, "{lengths:?}");
    assert_eq!(texts(&all, "tick"), ["50", "100", "-"]);
}

/// A name that fits is not shortened, despite rounding of widths.
#[test]
fn bar_names_are_complete() {
    for name in ["none", "nat", "the share of a core", "none, 100Mbit", "a", "nginx"] {
        for bars in [Bars::new("t", Quantity::Count, &["n"]), Bars::dots("t", Quantity::Count, &["n"])] {
            let all = check(&Figure::from(bars.row(name, &[Some(1.0)])).inline(Width::Half));
            assert_eq!(texts(&all, "name"), [name]);
        }
    }
}

#[test]
fn plot_names_are_escaped() {
    const WILD: &str = "</text></svg><script>alert(1)</script>\u{1b}\"' onload=\"x";
    let chart = Chart::new(WILD, Axis::new(WILD, Quantity::Seconds), Axis::new(WILD, Quantity::Count))
        .about(WILD)
        .series(Series::line(WILD, vec![[0.0, 1.0], [1.0, 2.0]]))
        .series(Series::line(WILD, vec![]))
        .band(0.0, 1.0, WILD)
        .rule(1.5, WILD);
    let bars = Bars::new(WILD, Quantity::Count, &[WILD, WILD]).about(WILD).row(WILD, &[Some(1.0)]);
    for figure in [Figure::from(chart), Figure::from(bars.clone()), Figure::from(Bars { dots: true, ..bars })] {
        for svg in [figure.inline(Width::Narrow), figure.standalone()] {
            let all = check(&svg);
            let known = ["svg", "title", "desc", "style", "rect", "path", "text", "circle"];
            assert!(all.iter().all(|one| known.contains(&one.name.as_str()) && one.get("onload").is_none()));
        }
    }
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![
        6 => -1e3..1e6_f64,
        2 => 0.0..1.0_f64,
        1 => prop_oneof![Just(0.0), Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY), Just(f64::MAX), Just(f64::MIN), Just(5e-324)],
    ]
}

fn any_axis() -> impl Strategy<Value = Axis> {
    let scale = prop_oneof![Just(Scale::Linear), Just(Scale::Log), Just(Scale::Tail)];
    let quantity = prop_oneof![
        Just(Quantity::Count),
        Just(Quantity::PerSecond),
        Just(Quantity::Seconds),
        Just(Quantity::Nanoseconds),
        Just(Quantity::Bytes),
        Just(Quantity::Share),
    ];
    (scale, quantity, proptest::option::of(any_value()), proptest::option::of(any_value()), "\\PC{0,40}")
        .prop_map(|(scale, quantity, from, to, label)| Axis { label, quantity, scale, from, to })
}

proptest! {
    #[test]
    fn any_chart_is_well_formed_and_inside_its_frame(
        x in any_axis(),
        y in any_axis(),
        rows in proptest::collection::vec(proptest::collection::vec((any_value(), any_value()), 0..60), 0..9),
        shape in 0..3_u8,
        rule in any_value(),
        band in (any_value(), any_value()),
    ) {
        let mut chart = Chart::new("any", x, y).rule(rule, "rule").band(band.0, band.1, "band");
        for mut points in rows {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            let points: Vec<[f64; 2]> = points.into_iter().map(|(x, y)| [x, y]).collect();
            let mut series = Series::line("a name", points);
            series.shape = match shape {
                0 => report::plot::Shape::Line,
                1 => report::plot::Shape::Step,
                _ => report::plot::Shape::Area,
            };
            chart = chart.series(series);
        }
        all_ways(&Figure::from(chart));
    }

    #[test]
    fn any_bars_are_well_formed_and_inside_their_frame(
        rows in proptest::collection::vec(("\\PC{0,60}", proptest::collection::vec(proptest::option::of(any_value()), 0..5)), 0..12),
        dots: bool,
    ) {
        let mut bars = Bars::new("any", Quantity::Nanoseconds, &["one", "two", "three"]);
        bars.dots = dots;
        for (name, values) in rows {
            bars = bars.row(name, &values);
        }
        all_ways(&Figure::from(bars));
    }
}
