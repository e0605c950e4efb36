//! Texts and tables about a prediction that terminal and page have in common.

use schema::{Demand, MeasuredLoad, PredictDocument, PredictLimit, PredictPart};

use crate::figures::{count, duration_f64, level, rate, share};

/// The result in a sentence or two.
pub fn answer(document: &PredictDocument) -> String {
    let predict = &document.predict;
    let Some(rate_per_s) = predict.rate_per_s else {
        return "no prediction: the service demand of a request was not measured".to_owned();
    };
    let binding = predict.limits.iter().find(|limit| limit.resource == predict.bound_by);
    let words = binding.map_or(String::new(), |limit| format!(": {}", limit.words));
    // Components only: no server was measured.
    let from = if predict.component_sum.is_some() && predict.demands.is_empty() { " from components" } else { "" };
    let mut text = format!(
        "{} predicted{from}{}, limited by {}{words}",
        rate(rate_per_s),
        between(predict.interval),
        name(&predict.bound_by)
    );
    if predict.beyond > 2.0 {
        text += &format!("; {:.1} times the load that was measured, so not reliable", predict.beyond);
    }
    if let (Some(measured), Some(error)) = (predict.measured_rate_per_s, predict.error) {
        text += &format!("; measured {}: {}", rate(measured), error_text(error));
    }
    if let Some((sum, error)) = predict.component_sum.as_ref().and_then(|sum| Some((sum.rate_per_s?, sum.error?))) {
        text += &format!("; the sum of its components gives {}: {}", rate(sum), error_text(error));
    }
    text
}

/// ` (95 %: 90.0 to 110.0/s)`, or nothing.
fn between(interval: Option<[f64; 2]>) -> String {
    interval.map_or(String::new(), |[low, high]| format!(" (95 %: {} to {})", level(low), rate(high)))
}

/// The error of a prediction in words.
pub fn error_text(error: f64) -> String {
    let (by, how) = (share(error.abs()), if error < 0.0 { "too low" } else { "too high" });
    format!("{by} {how}")
}

/// The name of a resource for people.
pub fn name(resource: &str) -> &str {
    match resource {
        "cpu_quota" => "the CPU limit",
        "cores" => "the cores",
        "workers" => "the workers",
        "memory" => "memory",
        "descriptors" => "descriptors",
        "link_up" => "the uplinks",
        "link_down" => "the downlinks",
        "disk" => "storage",
        "objective" => "the objective",
        other => other,
    }
}

/// A limit: resource, rate, interval, explanation.
pub fn limit_row(limit: &PredictLimit) -> [String; 4] {
    let interval = limit.interval.map_or(String::new(), |[low, high]| format!("{} to {}", level(low), level(high)));
    [name(&limit.resource).to_owned(), rate(limit.rate_per_s), interval, limit.words.clone()]
}

/// CPU time for people.
pub fn cost(seconds: f64) -> String {
    if seconds < 0.0 { format!("-{}", duration_f64(-seconds * 1e9)) } else { duration_f64(seconds * 1e9) }
}

/// A service demand: class, number per request, loads it was measured with, CPU time, interval.
pub fn demand_row(demand: &Demand) -> [String; 5] {
    let [low, high] = demand.interval;
    let each = demand.each.map_or(String::new(), level);
    [demand.class.clone(), each, demand.loads.clone(), cost(demand.seconds), format!("{} to {}", cost(low), cost(high))]
}

/// The service demands of one resource.
pub fn demands<'a>(predict: &'a PredictPart, resource: &'a str) -> impl Iterator<Item = &'a Demand> {
    predict.demands.iter().filter(move |demand| demand.resource == resource)
}

/// A figure rounded to three digits, as it is not known more precisely.
fn three_digits(value: f64) -> u64 {
    let unit = 10f64.powi((value.max(1.0).log10().floor() as i32 - 2).max(0));
    ((value.max(0.0) / unit).round() * unit) as u64
}

/// Consequences for a day, machines, connections, users, memory and path, each in a sentence.
pub fn plans(predict: &PredictPart) -> Vec<String> {
    let mut plans = Vec::new();
    let Some(rate_per_s) = predict.rate_per_s else { return plans };
    plans.push(format!(
        "{} requests a day, if the peak is {} times the mean.",
        count(three_digits(predict.per_day)),
        predict.peak_to_mean
    ));
    if let Some(machines) = &predict.machines {
        plans.push(format!(
            "A peak of {} needs {} behind a load balancer with {} headroom each; {} if one may fail.",
            rate(machines.peak_per_s),
            if machines.at_peak == 1 {
                "1 such machine".into()
            } else {
                format!("{} such machines", count(machines.at_peak))
            },
            share(machines.headroom),
            count(machines.with_headroom)
        ));
    }
    if let Some(connections) = predict.concurrent_connections {
        plans.push(format!("{} concurrent connections at {}, by Little's law.", level(connections), rate(rate_per_s)));
    }
    if let (Some(last), Some(at)) = (predict.closed.last(), predict.users_at_saturation) {
        plans.push(format!(
            "{} users make {} and wait {} for each response; the server is saturated from {} users on.",
            count(last.users.into()),
            rate(last.rate_per_s),
            duration_f64(last.response_s * 1e9),
            count(at.max(0.0) as u64)
        ));
    }
    if let Some(memory) = &predict.memory {
        let kernel = memory
            .kernel_bytes
            .map_or(String::new(), |bytes| format!(", {} in the kernel", count(bytes.max(0.0).round() as u64)));
        let descriptors = memory.descriptors.map_or(String::new(), |each| format!(", {} descriptors", level(each)));
        plans.push(format!(
            "A connection uses {} bytes of the server{kernel}{descriptors}.",
            count(memory.server_bytes.max(0.0).round() as u64)
        ));
    }
    if let Some(path) = predict.path.as_ref().filter(|path| path.response_mean_s > 0.0) {
        let measured = path
            .measured_mean_s
            .map_or(String::new(), |s| format!(" ({} measured, with the server)", duration_f64(s * 1e9)));
        plans.push(format!(
            "The path ({}) adds {} round trips, {} in the mean{measured}.",
            path.name,
            level(path.round_trips),
            duration_f64(path.response_mean_s * 1e9)
        ));
    }
    plans
}

/// Measured loads that are comparable with the curve: open loop, over the same path.
pub fn measured(predict: &PredictPart) -> Vec<&MeasuredLoad> {
    let far = predict.path.as_ref().is_some_and(|path| path.rtt_mean_s > 0.0);
    let kind = if far { "path" } else { "light" };
    let mut loads: Vec<&MeasuredLoad> =
        predict.loads.iter().filter(|load| load.kind == kind && !load.left_out).collect();
    loads.sort_by(|a, b| a.rate_per_s.total_cmp(&b.rate_per_s));
    loads
}

#[cfg(test)]
pub(crate) mod tests {
    use schema::document::{Run, SCHEMA};
    use schema::{CurvePoint, Machines, Validity};

    use super::*;

    /// A small prediction with every part.
    pub(crate) fn sample() -> PredictDocument {
        let limit = |resource: &str, rate_per_s| PredictLimit {
            resource: resource.into(),
            rate_per_s,
            interval: Some([rate_per_s * 0.95, rate_per_s * 1.05]),
            words: "20 % of a core for its processes, 2 ms for a request".into(),
        };
        let demand = |loads: &str, seconds: f64| Demand {
            class: "http://server/<b>page".into(),
            each: Some(1.0),
            resource: "processes".into(),
            loads: loads.into(),
            seconds,
            interval: [seconds * 0.9, seconds * 1.1],
            points: 5,
            ..Demand::default()
        };
        let point = |rate_per_s: f64| CurvePoint {
            rate_per_s,
            busy: rate_per_s / 100.0,
            mean_s: 0.002 / (1.0 - rate_per_s / 100.0),
            p50_s: 0.002,
            p99_s: 0.009,
        };
        let load = |rate_per_s: f64| MeasuredLoad {
            class: "page".into(),
            kind: "light".into(),
            offered_rate_per_s: Some(rate_per_s),
            rate_per_s,
            busy_processes: rate_per_s * 0.002,
            busy_cores: rate_per_s * 0.0025,
            response_mean_ns: 3e6,
            response_p50_ns: 2_000_000,
            response_p99_ns: 8_000_000,
            verdict: "valid".into(),
            ..MeasuredLoad::default()
        };
        PredictDocument {
            schema: SCHEMA.into(),
            run: Run {
                id: "20261122-predict-abcd".into(),
                dir: "/runs/x".into(),
                command: "yamabiko predict".into(),
                ..Run::default()
            },
            validity: Validity::from_checks(Vec::new()),
            predict: PredictPart {
                rate_per_s: Some(100.0),
                interval: Some([95.0, 105.0]),
                bound_by: "cpu_quota".into(),
                beyond: 1.7,
                limits: vec![limit("cpu_quota", 100.0), limit("cores", 400.0)],
                demands: vec![demand("saturated", 0.002), demand("light", 0.003)],
                loads: vec![load(10.0), load(50.0)],
                curve: [5.0, 50.0, 90.0].map(point).to_vec(),
                per_day: 2_880_000.0,
                peak_to_mean: 3.0,
                machines: Some(Machines { peak_per_s: 1000.0, headroom: 0.3, at_peak: 15, with_headroom: 16 }),
                assumes: vec!["One resource binds.".into()],
                notes: vec!["a request costs less while the server is behind".into()],
                ..PredictPart::default()
            },
        }
    }

    #[test]
    fn result_names_the_limiting_resource_and_the_error() {
        let mut document = sample();
        let result = answer(&document);
        assert!(result.starts_with("100.0/s predicted (95 %: 95.0 to 105.0/s), limited by the CPU limit"), "{result}");
        (document.predict.measured_rate_per_s, document.predict.error) = (Some(120.0), Some(100.0 / 120.0 - 1.0));
        assert!(answer(&document).ends_with("measured 120.0/s: 16.7 % too low"), "{}", answer(&document));
        document.predict = crate::predict_components::tests::with_sum(document.predict);
        assert!(
            answer(&document).ends_with("the sum of its components gives 150.0/s: 50.0 % too high"),
            "{}",
            answer(&document)
        );
        document.predict.demands.clear();
        assert!(answer(&document).starts_with("100.0/s predicted from components"), "{}", answer(&document));
        document.predict.beyond = 3.0;
        assert!(answer(&document).contains("3.0 times the load"), "{}", answer(&document));
        document.predict.rate_per_s = None;
        assert!(answer(&document).contains("no prediction"));
    }

    #[test]
    fn consequences_of_a_prediction_are_sentences() {
        let plans = plans(&sample().predict);
        assert_eq!(plans[0], "2,880,000 requests a day, if the peak is 3 times the mean.");
        assert_eq!([264_359_992.4, 999.6, 12.0, -3.0, 99_960.0].map(three_digits), [264_000_000, 1000, 12, 0, 100_000]);
        assert!(plans[1].contains("needs 15 such machines") && plans[1].contains("16 if one may fail"), "{plans:?}");
        assert_eq!(cost(-4e-6), "-4.00 us");
    }
}
