//! Remaining time of a search: the search is simulated against a server of the capacity known so far.

use std::time::Duration;

use schema::TrialPart;

use super::sequence::{Next, Rules, TrialSequence};
use super::trial::{Purpose, TrialRequest};

/// Start of server and sandbox, end of the phase, and evaluation.
const RUN_OVERHEAD: Duration = Duration::from_millis(1_500);
/// The same for a trial that several machines make: clocks, start, runs sent and merged.
const SHARDED_RUN_OVERHEAD: Duration = Duration::from_millis(8_000);
/// Assumed capacity of an unknown server, in the unit of the search.
const UNKNOWN_CAPACITY: f64 = 1_000.0;
/// Assumed distance of the result beyond the only known side of its bracket.
const ASSUMED_FACTOR: f64 = 1.3;
/// Assumed distance of the result after an earlier search found a similar result.
const SIMILAR_RESULT_FACTOR: f64 = 1.01;
/// Share of its length after which a trial that fails ends, on one machine.
const FAILED_TRIAL_SHARE: f64 = 0.5;
/// Typical time for a server to settle.
const TYPICAL_SETTLE_S: f64 = 1.0;
/// Typical request rate of a generator.
const TYPICAL_GENERATOR_PER_S: f64 = 100_000.0;
/// Upper bound on simulated trials.
const TRIALS_MAX: usize = 500;

/// Remaining time until a typical end; the whole time for a search without trials.
pub fn rest(rules: &Rules, sequence: &TrialSequence<'_>) -> Duration {
    let capacity = capacity(rules, sequence);
    let mut sequence = sequence.clone();
    let mut time = Duration::ZERO;
    for _ in 0..TRIALS_MAX {
        let Next::Make(request) = sequence.next() else { break };
        let trial = simulated_trial(rules, &request, capacity);
        time += takes(&request, &trial.verdict, rules.shards);
        sequence.add(trial);
    }
    time
}

/// Duration of a trial with this verdict on so many machines.
pub fn takes(request: &TrialRequest, verdict: &str, shards: u32) -> Duration {
    let share = if verdict == "bad" && shards == 1 { FAILED_TRIAL_SHARE } else { 1.0 };
    let overhead = if shards > 1 { SHARDED_RUN_OVERHEAD } else { RUN_OVERHEAD };
    request.warmup + request.lasts.mul_f64(share) + overhead
}

/// The capacity as far as known.
fn capacity(rules: &Rules, sequence: &TrialSequence<'_>) -> f64 {
    // A search that has just begun knows one side; earlier searches know both.
    let before = sequence.result().or(sequence.short_lower());
    match sequence.so_far() {
        (Some(lower), Some(upper)) => (lower * upper).sqrt(),
        (Some(lower), None) => {
            before.map_or(lower * ASSUMED_FACTOR, |before| before.max(lower * SIMILAR_RESULT_FACTOR))
        }
        (None, Some(upper)) => {
            before.map_or(upper / ASSUMED_FACTOR, |before| before.min(upper / SIMILAR_RESULT_FACTOR))
        }
        (None, None) => {
            let guessed = sequence.trials().iter().find(|trial| trial.stage == Purpose::Guess.name());
            let carried = guessed.and_then(|trial| rules.quantity.of_requests(trial.achieved_rate_per_s));
            let max = rules.plan.max.map_or(f64::INFINITY, |max| max.value());
            carried.filter(|carried| *carried > 0.0).unwrap_or(UNKNOWN_CAPACITY).min(max).max(sequence.min())
        }
    }
}

/// Verdict of a trial against the assumed server.
fn simulated_trial(rules: &Rules, request: &TrialRequest, capacity: f64) -> TrialPart {
    let verdict = match request.purpose {
        Purpose::Limit if request.load > TYPICAL_GENERATOR_PER_S => "client",
        Purpose::Guess | Purpose::Calibration | Purpose::Limit => "good",
        _ if request.load <= capacity => "good",
        _ => "bad",
    };
    TrialPart {
        stage: request.purpose.name().into(),
        search: request.search,
        load: request.load,
        verdict: verdict.into(),
        achieved_rate_per_s: match request.purpose {
            Purpose::Guess => rules.quantity.rate_per_s(capacity),
            _ => request.rate_per_s,
        },
        settled_s: (request.purpose == Purpose::Calibration).then_some(TYPICAL_SETTLE_S),
        ..TrialPart::default()
    }
}
