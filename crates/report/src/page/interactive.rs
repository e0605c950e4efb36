//! The charts that the page's script draws: their data, and the library.

use serde_json::{Value, json};

use crate::plot::{Chart, Shape};

/// Style and script of a page with these charts; nothing where there are none.
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

/// JSON that cannot end the element it stands in, nor begin another.
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
                // The library wants each moment once: the later value is the one that holds from here on.
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
            "asked": series.asked,
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

/// The lowest and the highest of `2 * each` points that follow one another, in their order; all where `each` is 1. Where there is
/// a gap among them, it stays.
fn few(points: &[[f64; 2]], each: usize) -> Vec<[f64; 2]> {
    if each < 2 {
        return points.to_vec();
    }
    let mut kept = Vec::with_capacity(points.len() / each + 2);
    for chunk in points.chunks(2 * each) {
        let by_y = |a: &(usize, &[f64; 2]), b: &(usize, &[f64; 2])| a.1[1].total_cmp(&b.1[1]);
        let drawn = || chunk.iter().enumerate().filter(|(_, point)| point[1].is_finite());
        let gap = chunk.iter().position(|point| !point[1].is_finite());
        let low = drawn().min_by(by_y).map(|(at, _)| at);
        let high = drawn().max_by(by_y).map(|(at, _)| at);
        let mut places: Vec<usize> = [low, high, gap].into_iter().flatten().collect();
        places.sort_unstable();
        places.dedup();
        kept.extend(places.into_iter().map(|at| chunk[at]));
    }
    if let (Some(last), Some(end)) = (points.last(), kept.last())
        && end[0] < last[0]
    {
        kept.push(*last);
    }
    kept
}

/// A number in few digits: more than any screen shows. What is not finite is a gap.
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

/// Points of a series that reach the script: more than a screen is wide, and an hour's seconds unthinned. The seconds of a day
/// would make a page of tens of megabytes.
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
    fn data_cannot_end_the_script() {
        let chart = Chart::over_time("t", "</script><!--", Quantity::Count)
            .series(Series::line("<img onerror=x>\u{2028}", vec![[0.0, 1.0]]));
        let (_, script) = parts(&[&chart]);
        let json = script.split_once("id=\"plots\">").unwrap().1.split_once("</script>").unwrap().0;
        assert!(!json.contains(['<', '>', '&', '\u{2028}']), "{json}");
        let read: Value = serde_json::from_str(json).unwrap();
        assert_eq!(read[0]["y"]["label"], "</script><!--");
    }

    #[test]
    fn each_moment_comes_once_and_gaps_are_null() {
        let chart = Chart::over_time("t", "n", Quantity::Count)
            .series(Series::seconds("a", [(0.0, 1.0), (1.0, 2.25), (5.0, 3.0)]));
        let data = data(&chart);
        assert_eq!(data["series"][0]["x"], json!([0, 1, 2, 5, 6]));
        assert_eq!(data["series"][0]["y"], json!([1, 2.25, null, 3, 3]));
    }

    #[test]
    fn a_day_is_thinned_and_its_peak_stays() {
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
    fn numbers_are_short() {
        assert_eq!(
            [0.1 + 0.2, 12_345_678.9, 0.0, f64::NAN].map(number),
            [json!(0.3), json!(12_345_700), json!(0), Value::Null]
        );
    }

    #[test]
    fn the_library_is_carried_whole_and_names_its_licence() {
        assert!(LIBRARY.contains("uPlot.js") || LIBRARY.contains(VERSION));
        assert!(LICENSE.contains("MIT License") && !LICENSE.contains("*/") && !LIBRARY.contains("</script"));
    }
}
