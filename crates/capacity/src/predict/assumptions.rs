//! What a prediction supposes, in words, with every answer.

use schema::PredictPart;

use super::PredictOptions;
use super::answer::Known;

/// Curvature, in standard errors, from which on it is spoken of.
const CURVATURE: f64 = 2.8;

/// Fills in what is supposed, and what speaks against it.
pub fn assumes(predict: &mut PredictPart, known: &Known<'_>, asked: &PredictOptions) {
    let mut assumes: Vec<String> = vec![
        "One resource binds, and until then requests share the processor: no locks, no queue in the server but the processor's.".into(),
        "A request costs at capacity what it costs under held loads: the same files, caches as warm as there, the machine as fast as now."
            .into(),
        "Response times at the server are of a simulated queue of processor sharing under Poisson arrivals; a server that takes one request \
         after the other answers short ones later and long ones sooner."
            .into(),
    ];
    if !known.processes.held {
        assumes.push(
            "Demands are of light loads, where each request wakes the server: a server that is cheaper when it is busy can do more than this."
                .into(),
        );
    }
    if known.beside_s > 0.0 {
        assumes.push(format!(
            "Besides the processor and the distance every request takes {}: what it took in the lightest load, the generator's own part included.",
            super::answer::seconds(known.beside_s)
        ));
    }
    if known.path.is_some() {
        assumes.push(
            "The path adds round trips and the time of its bytes at the clients' rates, whatever the load; its queues are empty, and distance \
             itself costs the server nothing."
                .into(),
        );
    }
    if let Some((path, ..)) = &known.path
        && path.loss() > 0.0
    {
        assumes.push("Packets that are lost cost no time and are not sent again: with loss, response times are longer than these.".into());
    }
    match (asked.workers, known.connection_s) {
        (Some(workers), Some(_)) => assumes.push(format!(
            "{workers} workers keep one connection each from its acceptance to its end; those beyond wait in the kernel's queue."
        )),
        (Some(workers), None) => assumes.push(format!(
            "Of {workers} workers nothing can be said where connections are kept alive: one that is idle holds a worker as well. Measure with \
             --close, or see to it that there are fewer connections than workers."
        )),
        (None, _) => assumes.push("The server has workers or connections enough (--workers says how many).".into()),
    }
    assumes.push(format!(
        "A day's mean is its peak over {} (--peak-to-mean), and the peak is what the answer is for.",
        plain(asked.peak_to_mean)
    ));
    predict.assumes = assumes;
    if let (Some(light), true) = (known.processes.light, known.processes.held) {
        let behind = known.processes.behind.value;
        if light.value > behind * 1.25 {
            predict.notes.push(format!(
                "a request costs {} when it comes alone and {} while the server is behind: waking up is the difference, and a light load \
                 alone would foretell {:.0} % of this answer",
                super::answer::seconds(light.value),
                super::answer::seconds(behind),
                100.0 * behind / light.value
            ));
        }
    }
    let bent = predict
        .demands
        .iter()
        .find(|demand| demand.resource == "processes" && demand.curvature_t.is_some_and(|t| t < -CURVATURE));
    if let Some(bent) = bent {
        predict.notes.push(format!(
            "{}: over light loads a request costs less where there are more of them (batching), so that their slope is not the same at every \
             load",
            bent.class
        ));
    }
    if predict.beyond > super::BEYOND_MAX {
        predict.notes.push(format!(
            "at the answer the processor does {:.1} times as much as was measured: an extrapolation, not to be relied on",
            predict.beyond
        ));
    }
}

/// 3 as `3`, 2.5 as `2.5`.
fn plain(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value}") }
}
