//! How long the rest of a search takes: its course, played out against a server of the capacity that is known so far.

use std::time::Duration;

use schema::TrialPart;

use super::course::{Course, Next, Rules};
use super::trial::{Purpose, TrialRequest};

/// Starting the server and the sandbox, the phase's end, and judging.
const AROUND_EACH: Duration = Duration::from_millis(1_500);
/// A server that nothing is known of carries so much, in the unit of what is sought.
const UNKNOWN: f64 = 1_000.0;
/// Where one side of the answer alone is known, it is taken to lie so far beyond.
const BEYOND: f64 = 1.3;
/// And so far, where a search before this one found about the same.
const NEAR: f64 = 1.01;
/// A trial that is lost ends early: after so much of its time.
const LOST_AFTER: f64 = 0.5;
/// Most servers settle so fast.
const SETTLES_S: f64 = 1.0;
/// A generator makes so many requests a second, more or less.
const GENERATOR: f64 = 100_000.0;
/// No course has more trials.
const TRIALS_MAX: usize = 500;

/// What is left of a course, until it ends as most do. Of a course without trials: the whole of it.
pub fn rest(rules: &Rules, course: &Course<'_>) -> Duration {
    let capacity = capacity(rules, course);
    let mut course = course.clone();
    let mut time = Duration::ZERO;
    for _ in 0..TRIALS_MAX {
        let Next::Make(asked) = course.next() else { break };
        let trial = played(rules, &asked, capacity);
        time += takes(&asked, &trial.verdict);
        course.add(trial);
    }
    time
}

/// How long a trial takes that ends with this verdict.
pub fn takes(asked: &TrialRequest, verdict: &str) -> Duration {
    let share = if verdict == "bad" { LOST_AFTER } else { 1.0 };
    asked.warmup + asked.lasts.mul_f64(share) + AROUND_EACH
}

/// The capacity as far as it is known.
fn capacity(rules: &Rules, course: &Course<'_>) -> f64 {
    // Of a search that has just begun one side is known, and of those before it both.
    let before = course.answer().or(course.short_lower());
    match course.so_far() {
        (Some(lower), Some(upper)) => (lower * upper).sqrt(),
        (Some(lower), None) => before.map_or(lower * BEYOND, |before| before.max(lower * NEAR)),
        (None, Some(upper)) => before.map_or(upper / BEYOND, |before| before.min(upper / NEAR)),
        (None, None) => {
            let guessed = course.made().iter().find(|trial| trial.stage == Purpose::Guess.name());
            let carried = guessed.and_then(|trial| rules.question.of_requests(trial.achieved_rate_per_s));
            let max = rules.plan.max.map_or(f64::INFINITY, |max| max.value());
            carried.filter(|carried| *carried > 0.0).unwrap_or(UNKNOWN).min(max).max(course.min())
        }
    }
}

/// What comes of a trial of such a server.
fn played(rules: &Rules, asked: &TrialRequest, capacity: f64) -> TrialPart {
    let verdict = match asked.purpose {
        Purpose::Limit if asked.load > GENERATOR => "client",
        Purpose::Guess | Purpose::Calibration | Purpose::Limit => "good",
        _ if asked.load <= capacity => "good",
        _ => "bad",
    };
    TrialPart {
        stage: asked.purpose.name().into(),
        search: asked.search,
        load: asked.load,
        verdict: verdict.into(),
        achieved_rate_per_s: match asked.purpose {
            Purpose::Guess => rules.question.rate_per_s(capacity),
            _ => asked.rate_per_s,
        },
        settled_s: (asked.purpose == Purpose::Calibration).then_some(SETTLES_S),
        ..TrialPart::default()
    }
}
