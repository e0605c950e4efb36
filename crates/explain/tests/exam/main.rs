//! The exam: limits built on purpose in simulated transfers, each to be named by what instruments saw of it.

mod cases;
mod path;
mod sender;
mod sim;
mod truth;
mod world;

use cases::{CASES, Inputs, RTTS, SIZES, explained, worlds};
use explain::{Cause, Confidence, Limit};
use world::MS;

/// How a set of answers was.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    right: u32,
    wrong_and_confident: u32,
    wrong: u32,
    unknown: u32,
    total: u32,
    unknown_time: u64,
    time: u64,
}

impl Marks {
    fn share(count: u32, total: u32) -> f64 {
        f64::from(count) / f64::from(total)
    }
}

/// Answers for every case with these inputs. Prints a table of right / wrong / wrong and confident / unknown.
fn examine(inputs: Inputs, noise: bool) -> Marks {
    let mut marks = Marks::default();
    let mut table = std::collections::BTreeMap::<(usize, u64, u64), [u32; 4]>::new();
    for (name, world) in worlds(noise) {
        let explanation = explained(&world, inputs);
        let gains = truth::gains(&world);
        let mut right = truth::right_answers(&gains);
        if inputs != Inputs::All && right.contains(&Limit::Of(Cause::CpuThrottling)) {
            // Without the server's CPU accounting, throttling is part of its processing.
            right.push(Limit::Of(Cause::ServerProcessing));
        }
        let answer = explanation.dominant().expect("every response takes time");
        assert_eq!(explanation.response_time_ns(), sim::simulate(&world).response_time(), "{name}");
        let mark = if right.contains(&answer.limit) {
            0
        } else if answer.limit == Limit::Of(Cause::Unknown) {
            3
        } else if answer.confidence >= Confidence::Likely {
            2
        } else {
            1
        };
        if mark != 0 && (inputs == Inputs::All || mark == 2) {
            let shares: Vec<_> =
                explanation.shares().iter().take(4).map(|s| (s.cause, s.time_ns / MS, s.confidence)).collect();
            let gains: Vec<_> = gains.iter().take(4).map(|(limit, gain)| (limit, gain / MS)).collect();
            println!("{name} {} ms {} B seed {}: {shares:?}; true {gains:?}", world.rtt / MS, world.size, world.seed);
        }
        let case = CASES.iter().position(|case| case.0 == name).expect("it is a case");
        table.entry((case, world.size, world.rtt / MS)).or_default()[mark] += 1;
        marks.total += 1;
        *[&mut marks.right, &mut marks.wrong, &mut marks.wrong_and_confident, &mut marks.unknown][mark] += 1;
        marks.unknown_time += explanation.time_of(Cause::Unknown);
        marks.time += explanation.response_time_ns();
    }
    println!("{inputs:?}, noise {noise}: right / wrong and weak / wrong and confident / unknown");
    for (case, (name, ..)) in CASES.iter().enumerate() {
        print!("{name:32}");
        for size in SIZES {
            for rtt in RTTS {
                let [right, weak, confident, unknown] = table[&(case, size, rtt)];
                print!(" {right:2}/{weak}/{confident}/{unknown}");
            }
            print!("  |");
        }
        println!();
    }
    println!("{marks:?}");
    marks
}

#[test]
fn the_dominant_limit_is_named_with_all_inputs() {
    for noise in [false, true] {
        let marks = examine(Inputs::All, noise);
        assert!(Marks::share(marks.right, marks.total) >= 0.95, "{marks:?}");
        assert!(Marks::share(marks.wrong_and_confident, marks.total) <= 0.02, "{marks:?}");
        assert!((marks.unknown_time as f64) < 0.05 * marks.time as f64, "{marks:?}");
    }
}

#[test]
fn fewer_inputs_give_more_unknown_and_no_confident_errors() {
    let all = examine(Inputs::All, true);
    let mut unknown = Vec::new();
    for inputs in [Inputs::BothEnds, Inputs::ClientAndRtt, Inputs::Client, Inputs::Server, Inputs::Load] {
        let marks = examine(inputs, true);
        assert!(Marks::share(marks.wrong_and_confident, marks.total) <= 0.02, "{inputs:?} {marks:?}");
        assert!(marks.unknown_time > all.unknown_time, "{inputs:?} {marks:?}");
        unknown.push(marks.unknown_time);
    }
    // Load times alone say least.
    assert_eq!(unknown.iter().max(), unknown.last());
}
