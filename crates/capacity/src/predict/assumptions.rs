//! Assumptions of a prediction as sentences.

use schema::PredictPart;

use super::PredictOptions;
use super::limits::PredictionInputs;

/// Curvature, in standard errors, from which on it is reported.
const CURVATURE_ERRORS_MIN: f64 = 2.8;

/// Adds the assumptions and the known violations.
pub fn assumes(predict: &mut PredictPart, known: &PredictionInputs<'_>, options: &PredictOptions) {
    let mut assumes: Vec<String> = vec![
        "One resource is the limit, and until then requests share the CPU: no locks, and no queue in the server but \
         the CPU's."
            .into(),
        "A request costs at capacity what it costs in saturated loads: the same files, caches equally warm, machine \
         equally fast."
            .into(),
        "Server response times are simulated with processor sharing and Poisson arrivals; a server that processes \
         requests in order responds to short requests later and to long ones sooner."
            .into(),
    ];
    if !known.processes.saturated {
        assumes.push(
            "Demands are of light loads, in which each request wakes the server up: a server that is cheaper when \
             busy can do more."
                .into(),
        );
    }
    if known.extra_s > 0.0 {
        assumes.push(format!(
            "Besides CPU and distance every request takes {}: the excess in the lightest load, including the \
             generator's part.",
            super::limits::seconds(known.extra_s)
        ));
    }
    if known.path.is_some() {
        assumes.push(
            "The path adds round trips and transmission time at the clients' rates, at every load; its queues are \
             empty, and distance costs the server no CPU."
                .into(),
        );
    }
    if let Some((path, ..)) = &known.path
        && path.loss() > 0.0
    {
        assumes.push(
            "Lost packets cost no time and are not retransmitted: with packet loss, response times are longer.".into(),
        );
    }
    match (options.workers, known.connection_s) {
        (Some(workers), Some(_)) => assumes.push(format!(
            "{workers} workers serve one connection each from acceptance to close; further connections wait in the \
             kernel's queue."
        )),
        (Some(workers), None) => assumes.push(format!(
            "With keep-alive the limit of {workers} workers is unknown, since an idle connection occupies a worker \
             too. Measure with --close, or keep fewer connections than workers."
        )),
        (None, _) => {
            assumes.push("The server has enough workers and connections (--workers sets their number).".into())
        }
    }
    assumes.push(format!(
        "A day's mean is its peak over {} (--peak-to-mean), and the peak is the predicted rate.",
        plain(options.peak_to_mean)
    ));
    predict.assumes = assumes;
    if let (Some(light), true) = (known.processes.light, known.processes.saturated) {
        let at_saturation = known.processes.at_saturation.value;
        if light.value > at_saturation * 1.25 {
            predict.notes.push(format!(
                "a request costs {} alone and {} in a saturated server: the difference is the wake-up; light loads \
                 alone would predict {:.0} % of this rate",
                super::limits::seconds(light.value),
                super::limits::seconds(at_saturation),
                100.0 * at_saturation / light.value
            ));
        }
    }
    let bent = predict
        .demands
        .iter()
        .find(|demand| demand.resource == "processes" && demand.curvature_t.is_some_and(|t| t < -CURVATURE_ERRORS_MIN));
    if let Some(bent) = bent {
        predict.notes.push(format!(
            "{}: in light loads a request costs less at higher rates (batching), so the slope depends on the load",
            bent.class
        ));
    }
    if predict.beyond > super::BEYOND_MAX {
        predict.notes.push(format!(
            "the predicted rate needs {:.1} times the CPU time that was measured at most: an extrapolation, not \
             reliable",
            predict.beyond
        ));
    }
}

/// 3 as `3`, 2.5 as `2.5`.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value}") }
}
