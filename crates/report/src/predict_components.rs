//! Tables about components measured alone, and the server composed of them.

use schema::{ComponentCost, ComponentSum, ComponentTerm, PredictPart};

use crate::figures::{level, rate, share};
use crate::predict::{cost, error_text, name};

/// Columns of [`component_row`].
pub const COMPONENT_HEAD: [&str; 5] = ["component", "fixed", "95 %", "per KiB", "fixed, with receive processing"];

/// A component: name, fixed CPU time, its interval, CPU time per KiB, fixed CPU time with receive processing.
pub fn component_row(part: &ComponentCost) -> Vec<String> {
    let [low, high] = part.processes.fixed_interval;
    vec![
        part.component.clone(),
        cost(part.processes.fixed_s),
        format!("{} to {}", cost(low), cost(high)),
        part.processes.per_byte_s.map_or(String::new(), |each| cost(each * 1024.0)),
        cost(part.cores.fixed_s),
    ]
}

/// Columns of [`term_rows`].
pub const TERM_HEAD: [&str; 6] = ["response", "component", "times", "bytes", "CPU time", "95 %"];

/// The components of each class of requests, and their sum.
pub fn term_rows(sum: &ComponentSum) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for class in &sum.classes {
        let response = format!("{} bytes ({})", class.bytes, share(class.share));
        let row = |term: &ComponentTerm, response: String| {
            let [low, high] = term.interval;
            let interval = format!("{} to {}", cost(low), cost(high));
            // A negative number of times is subtracted.
            let times = if term.times < 0.0 { format!("-{}", level(-term.times)) } else { level(term.times) };
            vec![response, term.component.clone(), times, level(term.bytes), cost(term.processes_s), interval]
        };
        rows.extend(
            class
                .terms
                .iter()
                .enumerate()
                .map(|(at, term)| row(term, if at == 0 { response.clone() } else { String::new() })),
        );
        rows.push(vec![
            String::new(),
            "sum".into(),
            String::new(),
            String::new(),
            cost(class.processes_s),
            format!("with receive processing {}", cost(class.cores_s)),
        ]);
    }
    rows
}

/// Columns of [`comparison_rows`].
pub const COMPARISON_HEAD: [&str; 5] = ["predicted from", "CPU per request", "rate", "limited by", "error"];

/// Rows of both predictions and the measurement; empty without a sum of components.
pub fn comparison_rows(predict: &PredictPart) -> Vec<Vec<String>> {
    let Some(sum) = &predict.component_sum else { return Vec::new() };
    let per_second = |value: Option<f64>| value.map_or("-".into(), rate);
    let error = |error: Option<f64>| error.map_or(String::new(), error_text);
    let mut rows = vec![vec![
        "sum of components".into(),
        cost(sum.processes_s),
        per_second(sum.rate_per_s),
        name(&sum.bound_by).to_owned(),
        error(sum.error),
    ]];
    if !predict.demands.is_empty() {
        let held = predict.demands.iter().filter(|row| row.resource == "processes" && row.loads.ends_with("saturated"));
        let each: f64 = held.filter_map(|row| Some(row.each? * row.seconds)).sum();
        rows.push(vec![
            "service demands".into(),
            if each > 0.0 { cost(each) } else { "-".into() },
            per_second(predict.rate_per_s),
            name(&predict.bound_by).to_owned(),
            error(predict.error),
        ]);
    }
    if let Some(bound_by) = &predict.measured_bound_by {
        rows.push(vec![
            "measured".into(),
            String::new(),
            per_second(predict.measured_rate_per_s),
            name(bound_by).to_owned(),
            String::new(),
        ]);
    }
    rows
}

#[cfg(test)]
pub(crate) mod tests {
    use schema::{ClassSum, PartLaw};

    use super::*;

    /// A sum of two components, one of them with a name like an HTML tag.
    pub(crate) fn with_sum(mut predict: PredictPart) -> PredictPart {
        let law = |fixed_s: f64| PartLaw {
            fixed_s,
            fixed_interval: [fixed_s * 0.9, fixed_s * 1.1],
            per_byte_s: Some(1e-10),
            per_byte_interval: Some([0.9e-10, 1.1e-10]),
        };
        let term = |part: &str, processes_s: f64| ComponentTerm {
            component: part.into(),
            times: 1.0,
            bytes: 1000.0,
            processes_s,
            interval: [processes_s * 0.9, processes_s * 1.1],
            cores_s: processes_s * 1.2,
        };
        predict.components = vec![ComponentCost {
            component: "send<i>".into(),
            words: "an answer <i>".into(),
            processes: law(2e-6),
            cores: law(3e-6),
            points: Vec::new(),
        }];
        predict.component_sum = Some(ComponentSum {
            described: "one loop <i>".into(),
            classes: vec![ClassSum {
                bytes: 1000,
                share: 1.0,
                terms: vec![term("receive", 1e-6), term("send<i>", 2e-6)],
                processes_s: 3e-6,
                cores_s: 4e-6,
            }],
            processes_s: 3e-6,
            cores_s: 4e-6,
            rate_per_s: Some(150.0),
            bound_by: "cpu_quota".into(),
            error: Some(0.5),
            ..ComponentSum::default()
        });
        predict
    }

    #[test]
    fn comparison_has_both_predictions_and_the_measurement() {
        let mut predict = with_sum(crate::predict::tests::sample().predict);
        (predict.measured_rate_per_s, predict.error) = (Some(100.0), Some(0.0));
        predict.measured_bound_by = Some("cpu_quota".into());
        let rows = comparison_rows(&predict);
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0][2].as_str(), rows[0][4].as_str()), ("150.0/s", "50.0 % too high"));
        assert_eq!((rows[1][1].as_str(), rows[2][2].as_str()), ("2.00 ms", "100.0/s"));
        predict.demands.clear();
        predict.measured_bound_by = None;
        assert_eq!(comparison_rows(&predict).len(), 1);
        predict.component_sum = None;
        assert!(comparison_rows(&predict).is_empty());
    }

    #[test]
    fn component_and_term_rows_match_their_heads() {
        let predict = with_sum(PredictPart::default());
        let row = component_row(&predict.components[0]);
        assert_eq!(row.len(), COMPONENT_HEAD.len());
        assert_eq!((row[1].as_str(), row[4].as_str()), ("2.00 us", "3.00 us"));
        let rows = term_rows(predict.component_sum.as_ref().unwrap());
        assert!(rows.iter().all(|row| row.len() == TERM_HEAD.len()), "{rows:?}");
        assert_eq!((rows.len(), rows[2][1].as_str(), rows[2][4].as_str()), (3, "sum", "3.00 us"));
    }
}
