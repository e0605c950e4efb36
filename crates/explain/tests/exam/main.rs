//! The exam: limits built on purpose in simulated transfers, each to be named by what instruments saw of it.

mod captures;
mod cases;
mod mixtures;
mod path;
mod remedies;
mod runs;
mod sender;
mod sentences;
mod sim;
mod truth;
mod world;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use cases::{CASES, Inputs, RTTS, SIZES, worlds};
use explain::{Cause, Confidence, Limit};
use world::{MS, World};

/// The page that states the exam's figures.
const PAGE: &str = include_str!("../../../../docs/concepts/explain.md");

/// How a set of answers was.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    right: u32,
    wrong_and_weak: u32,
    wrong_and_confident: u32,
    unknown: u32,
    unknown_time: u64,
    time: u64,
}

/// The mark of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Right,
    WrongAndWeak,
    WrongAndConfident,
    Unknown,
}

impl Marks {
    fn total(&self) -> u32 {
        self.right + self.wrong_and_weak + self.wrong_and_confident + self.unknown
    }

    fn add(&mut self, mark: Mark) {
        match mark {
            Mark::Right => self.right += 1,
            Mark::WrongAndWeak => self.wrong_and_weak += 1,
            Mark::WrongAndConfident => self.wrong_and_confident += 1,
            Mark::Unknown => self.unknown += 1,
        }
    }

    /// Prints the line that `cargo xtask bench explain` looks for.
    fn print(&self, name: &str) {
        let unknown_percent = 100.0 * self.unknown_time as f64 / self.time.max(1) as f64;
        println!(
            "exam: {name:52} right {:3} ({:5.1} %), wrong and weak {:2}, wrong and confident {:2} ({:3.1} %), unknown {:3}; \
             unknown time {unknown_percent:4.1} %",
            self.right,
            100.0 * self.right_share(),
            self.wrong_and_weak,
            self.wrong_and_confident,
            100.0 * self.confident_error_share(),
            self.unknown,
        );
    }

    fn right_share(&self) -> f64 {
        f64::from(self.right) / f64::from(self.total())
    }

    fn confident_error_share(&self) -> f64 {
        f64::from(self.wrong_and_confident) / f64::from(self.total())
    }
}

/// A simulated response and its true gains.
struct Question {
    name: String,
    world: World,
    gains: Vec<(Limit, u64)>,
}

impl Question {
    fn new(name: impl Into<String>, world: World) -> Question {
        let gains = truth::gains(&world);
        Question { name: name.into(), world, gains }
    }

    /// Explains the response with these inputs, prints what is wrong, and returns the mark.
    fn answer(&self, inputs: Inputs, marks: &mut Marks) -> Mark {
        let recording = sim::simulate(&self.world);
        let response_time = recording.response_time();
        let explanation = explain::explain(&cases::evidence(&self.world, recording, inputs));
        assert_eq!(explanation.response_time_ns(), response_time, "{}", self.name);
        let mut right = truth::right_answers(&self.gains);
        if !matches!(inputs, Inputs::All | Inputs::Run) && right.contains(&Limit::Of(Cause::CpuThrottling)) {
            // Without the server's CPU accounting, throttling is part of its processing.
            right.push(Limit::Of(Cause::ServerProcessing));
        }
        if inputs == Inputs::Run && right.contains(&Limit::Of(Cause::Http2ConnectionWindow)) {
            // A run has the load's updates by their packets, which do not name the window.
            right.push(Limit::Of(Cause::Http2StreamWindow));
        }
        let answer = explanation.dominant().expect("every response takes time");
        let mark = match answer {
            answer if right.contains(&answer.limit) => Mark::Right,
            answer if answer.limit == Limit::Of(Cause::Unknown) => Mark::Unknown,
            answer if answer.confidence >= Confidence::Likely => Mark::WrongAndConfident,
            _ => Mark::WrongAndWeak,
        };
        marks.add(mark);
        marks.unknown_time += explanation.time_of(Cause::Unknown);
        marks.time += response_time;
        if mark == Mark::WrongAndConfident || (inputs == Inputs::All && mark != Mark::Right) {
            let share = |share: &explain::Share| (share.cause, share.time_ns / MS, share.confidence);
            let shares: Vec<_> = explanation.shares().iter().take(4).map(share).collect();
            let gains: Vec<_> = self.gains.iter().take(4).map(|(limit, gain)| (limit, gain / MS)).collect();
            println!("{}: {shares:?}; true {gains:?}\n  {:?}", self.name, self.world);
        }
        mark
    }
}

/// The cases in quiet or noisy worlds, with their true gains.
fn questions(noise: bool) -> &'static [Question] {
    static QUESTIONS: [OnceLock<Vec<Question>>; 2] = [OnceLock::new(), OnceLock::new()];
    QUESTIONS[usize::from(noise)]
        .get_or_init(|| worlds(noise).into_iter().map(|(name, world)| Question::new(name, world)).collect())
}

/// Marks of every case with these inputs. Prints a table of right / wrong and weak / wrong and confident / unknown.
fn examine(inputs: Inputs, noise: bool) -> Marks {
    let mut marks = Marks::default();
    let mut table = BTreeMap::<(String, u64, u64), Marks>::new();
    for question in questions(noise) {
        let mark = question.answer(inputs, &mut marks);
        let key = (question.name.clone(), question.world.size, question.world.rtt / MS);
        table.entry(key).or_default().add(mark);
    }
    println!("{inputs:?}, noise {noise}: right / wrong and weak / wrong and confident / unknown");
    for (name, ..) in CASES {
        print!("{name:32}");
        for size in SIZES {
            for rtt in RTTS {
                let Marks { right, wrong_and_weak, wrong_and_confident, unknown, .. } =
                    table[&((*name).to_owned(), size, rtt)];
                print!(" {right:2}/{wrong_and_weak}/{wrong_and_confident}/{unknown}");
            }
            print!("  |");
        }
        println!();
    }
    let name = format!("{}, {}", inputs.name(), if noise { "with noise" } else { "without noise" });
    marks.print(&name);
    marks
}

/// The answers also name the cause whose removal alone gains most, except where a queue, late ACKs or losses multiply
/// the round trips of a window: there the share is what the path added, and removing the window gains that as well.
#[test]
fn the_dominant_limit_is_most_often_the_largest_gain_alone() {
    let mut other = Vec::new();
    for question in questions(true) {
        let recording = sim::simulate(&question.world);
        let explanation = explain::explain(&cases::evidence(&question.world, recording, Inputs::All));
        let answer = explanation.dominant().expect("every response takes time").limit;
        let mut right = truth::right_answers(&truth::gains_alone(&question.world));
        // TLS is removed with the connection that needs it.
        if right.contains(&Limit::Of(Cause::TcpHandshake)) {
            right.push(Limit::Of(Cause::TlsHandshake));
        }
        if !right.contains(&answer) {
            other.push((&question.name, question.world.rtt / MS, question.world.size, answer, right));
        }
    }
    println!("{} answers are not the largest gain alone: {other:#?}", other.len());
    assert!(other.len() * 10 <= questions(true).len(), "{other:#?}");
}

#[test]
fn the_dominant_limit_is_named_with_all_inputs() {
    for noise in [false, true] {
        let marks = examine(Inputs::All, noise);
        assert!(marks.right_share() >= 0.95, "{marks:?}");
        assert!(marks.confident_error_share() <= 0.02, "{marks:?}");
        assert!((marks.unknown_time as f64) < 0.05 * marks.time as f64, "{marks:?}");
    }
}

#[test]
fn fewer_inputs_give_more_unknown_and_no_confident_errors() {
    let all = examine(Inputs::All, true);
    assert_row_on_page(Inputs::All, &all);
    let mut unknown = Vec::new();
    for inputs in [Inputs::BothEnds, Inputs::ClientAndRtt, Inputs::Client, Inputs::Server, Inputs::Load] {
        let marks = examine(inputs, true);
        assert_row_on_page(inputs, &marks);
        assert!(marks.confident_error_share() <= 0.02, "{inputs:?} {marks:?}");
        assert!(marks.unknown_time > all.unknown_time, "{inputs:?} {marks:?}");
        unknown.push(marks.unknown_time);
    }
    // Load times alone say least.
    assert_eq!(unknown.iter().max(), unknown.last());
}

/// The page's table has the row of these marks.
#[track_caller]
fn assert_row_on_page(inputs: Inputs, marks: &Marks) {
    let Marks { right, wrong_and_weak, wrong_and_confident, unknown, .. } = marks;
    let row = format!("| {} | {right} | {wrong_and_weak} | {wrong_and_confident} | {unknown} |", inputs.name());
    assert!(PAGE.contains(&row), "docs/concepts/explain.md has no row {row}");
}

#[test]
fn random_mixtures_of_limits_are_named() {
    let questions: Vec<Question> =
        (0..100).map(|number| Question::new(format!("mixture {number}"), mixtures::world(number))).collect();
    for inputs in [Inputs::All, Inputs::BothEnds, Inputs::ClientAndRtt, Inputs::Client, Inputs::Server, Inputs::Load] {
        let mut marks = Marks::default();
        for question in &questions {
            question.answer(inputs, &mut marks);
        }
        marks.print(&format!("{}, mixtures of limits", inputs.name()));
        // Where two limits of about the same size multiply each other, the larger share is not always the larger gain.
        assert!(marks.confident_error_share() <= 0.05, "{inputs:?} {marks:?}");
        assert!(inputs != Inputs::All || marks.right_share() >= 0.93, "{marks:?}");
    }
}
