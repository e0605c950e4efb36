//! Data and library of the charts drawn by the page's script.

use serde_json::{Value, json};

use crate::plot::{Chart, Shape};

/// Style and script of a page with these charts; empty without charts.
pub(super) fn parts(charts: &[&Chart]) -> (String, String) {
    if charts.is_empty() {
        return (String::new(), String::new());
    }
    let data = Value::Array(charts.iter().map(|chart| data(chart)).collect());
    let script = format!(
        "<script type=\"application/json\" id=\"plots\">{}</script>\n<script>\n/*\nuPlot {VERSION}\n\n{LICENSE}*/\n\
         {LIBRARY}</script>\n<script>\n{SCRIPT}</script>\n",
        harmless(&data.to_string())
    );
    (LIBRARY_STYLE.to_owned(), script)
}

/// JSON escaped so that it cannot end its script element, nor begin another.
fn harmless(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => safe.push(c),
        }
    }
    safe
}

fn data(chart: &Chart) -> Value {
    let each = chart.series.iter().map(|series| series.points.len()).max().unwrap_or(0).div_ceil(POINTS_MAX);
    let series = chart.series.iter().enumerate().map(|(at, series)| {
        let mut xs: Vec<Value> = Vec::new();
        let mut ys: Vec<Value> = Vec::new();
        let mut before = None;
        for [x, y] in few(&series.points, each).into_iter().filter(|point| point[0].is_finite()) {
            if before == Some(x) {
                // The library needs distinct x values: the later value counts.
                xs.pop();
                ys.pop();
            }
            before = Some(x);
            xs.push(number(x));
            ys.push(number(y));
        }
        json!({
            "name": crate::figures::plain(&series.name),
            "color": chart.color_of(at),
            "dashed": series.dashed,
            "step": matches!(series.shape, Shape::Step | Shape::Area),
            "fill": series.shape == Shape::Area,
            "x": xs,
            "y": ys,
        })
    });
    json!({
        "x": { "label": chart.x.label, "quantity": chart.x.quantity.name() },
        "y": {
            "label": chart.y_label(),
            "quantity": chart.y.quantity.name(),
            "log": chart.y.scale == crate::plot::Scale::Log,
            "from": chart.y.from,
            "to": chart.y.to,
        },
        "bands": chart.bands.iter().map(|band| json!([band.from, band.to, band.label])).collect::<Vec<_>>(),
        "rules": chart.rules.iter().map(|rule| json!([rule.at, rule.label])).collect::<Vec<_>>(),
        "series": series.collect::<Vec<_>>(),
    })
}

/// Thins points: of every `2 * each` consecutive points the lowest and the highest remain, and one gap, if there is one.
fn few(points: &[[f64; 2]], each: usize) -> Vec<[f64; 2]> {
    if each < 2 {
        return points.to_vec();
    }
    let mut thinned = Vec::with_capacity(points.len() / each + 2);
    for chunk in points.chunks(2 * each) {
        let by_y = |a: &(usize, &[f64; 2]), b: &(usize, &[f64; 2])| a.1[1].total_cmp(&b.1[1]);
        let drawn = || chunk.iter().enumerate().filter(|(_, point)| point[1].is_finite());
        let gap = chunk.iter().position(|point| !point[1].is_finite());
        let low = drawn().min_by(by_y).map(|(at, _)| at);
        let high = drawn().max_by(by_y).map(|(at, _)| at);
        let mut indices: Vec<usize> = [low, high, gap].into_iter().flatten().collect();
        indices.sort_unstable();
        indices.dedup();
        thinned.extend(indices.into_iter().map(|at| chunk[at]));
    }
    if let (Some(last), Some(end)) = (points.last(), thinned.last())
        && end[0] < last[0]
    {
        thinned.push(*last);
    }
    thinned
}

/// A number with six digits, more than a screen shows; null for a value that is not finite.
fn number(value: f64) -> Value {
    if !value.is_finite() {
        return Value::Null;
    }
    let scale = 10_f64.powi(5 - value.abs().max(1e-9).log10().floor() as i32);
    let short = (value * scale).round() / scale;
    match short {
        s if s.is_finite() && s.fract() == 0.0 && s.abs() < 9e15 => Value::from(s as i64),
        s if s.is_finite() => Value::from(s),
        _ => Value::from(value),
    }
}

/// Most points of a series in the page: all seconds of an hour. The seconds of a day would need tens of megabytes.
const POINTS_MAX: usize = 5_000;
const VERSION: &str = "1.6.32";
const LICENSE: &str = include_str!("../../assets/uplot/LICENSE");
const LIBRARY: &str = include_str!("../../assets/uplot/uPlot.iife.min.js");
const LIBRARY_STYLE: &str = include_str!("../../assets/uplot/uPlot.min.css");
const SCRIPT: &str = concat!(include_str!("../../assets/figures.js"), include_str!("../../assets/charts.js"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::{Quantity, Series};

    #[test]
    fn chart_data_cannot_end_the_script_element() {
        let chart = Chart::over_time("t", "</script><!--", Quantity::Count)
            .series(Series::line("<img onerror=x>\u{2028}", vec![[0.0, 1.0]]));
        let (_, script) = parts(&[&chart]);
        let json = script.split_once("id=\"plots\">").unwrap().1.split_once("</script>").unwrap().0;
        assert!(!json.contains(['<', '>', '&', '\u{2028}']), "{json}");
        let read: Value = serde_json::from_str(json).unwrap();
        assert_eq!(read[0]["y"]["label"], "</script><!--");
    }

    #[test]
    fn x_values_are_distinct_and_gaps_are_null() {
        let chart = Chart::over_time("t", "n", Quantity::Count)
            .series(Series::seconds("a", [(0.0, 1.0), (1.0, 2.25), (5.0, 3.0)]));
        let data = data(&chart);
        assert_eq!(data["series"][0]["x"], json!([0, 1, 2, 5, 6]));
        assert_eq!(data["series"][0]["y"], json!([1, 2.25, null, 3, 3]));
    }

    #[test]
    fn seconds_of_a_day_are_thinned_without_losing_the_peak() {
        let rows =
            (0..86_400).map(|second| (f64::from(second), if second == 54_321 { 1e6 } else { f64::from(second % 7) }));
        let chart = Chart::over_time("t", "n", Quantity::Count).series(Series::seconds("a", rows));
        let data = data(&chart);
        let ys = data["series"][0]["y"].as_array().unwrap();
        assert!(ys.len() <= POINTS_MAX + 2 && ys.contains(&json!(1_000_000)), "{}", ys.len());
        let xs: Vec<f64> = data["series"][0]["x"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        assert!(xs.is_sorted() && xs.last() == Some(&86_400.0));
        let gap = [[0.0, 1.0], [1.0, f64::NAN], [2.0, 3.0], [3.0, 1.0]];
        assert!(few(&gap, 2)[1][1].is_nan());
        assert_eq!(few(&gap, 1).len(), 4);
    }

    #[test]
    fn numbers_have_at_most_six_digits() {
        assert_eq!(
            [0.1 + 0.2, 12_345_678.9, 0.0, f64::NAN].map(number),
            [json!(0.3), json!(12_345_700), json!(0), Value::Null]
        );
    }

    #[test]
    fn chart_library_is_complete_with_its_licence() {
        assert!(LIBRARY.contains("uPlot.js") || LIBRARY.contains(VERSION));
        assert!(LICENSE.contains("MIT License") && !LICENSE.contains("*/") && !LIBRARY.contains("</script"));
    }
}
