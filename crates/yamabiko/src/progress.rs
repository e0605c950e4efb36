//! Shows the progress of a run on stderr: a bar on a terminal, otherwise a line every few seconds.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use testbed::drive::progress::{Phase, Snapshot};
use testbed::{Observer, RunFacts};

use crate::terminal::print_message;

/// Time between two plain lines.
const PLAIN_LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Shows a run's progress.
pub struct Display {
    bar: Option<ProgressBar>,
    quiet: bool,
    label: String,
    total: Option<Duration>,
    requests: Option<u64>,
    last_plain: Duration,
    last: Option<(Duration, u64)>,
    rate_per_s: f64,
}

impl Display {
    /// Shows nothing if `quiet`. `label` is a prefix, for several runs in a row.
    pub fn new(label: &str, quiet: bool) -> Self {
        Display {
            bar: None,
            quiet,
            label: if label.is_empty() { String::new() } else { format!("{label}: ") },
            total: None,
            requests: None,
            last_plain: Duration::ZERO,
            last: None,
            rate_per_s: 0.0,
        }
    }

    fn line(&self, snapshot: &Snapshot) -> String {
        let phase = match snapshot.phase {
            Phase::Warmup => "warm-up, ",
            Phase::Drain | Phase::Done => "waiting for the last responses, ",
            Phase::Measured => "",
        };
        let backlog =
            if snapshot.backlog > 0 { format!(", {} waiting to start", snapshot.backlog) } else { String::new() };
        let mix = &snapshot.mix;
        let hits = match mix.basic_gets {
            0 => String::new(),
            all => format!(", hit ratio {:.1} %", mix.hits as f64 / all as f64 * 100.0),
        };
        format!(
            "{}{phase}{:.0}/s, {} in flight, {} connections, {} errors{hits}{backlog}",
            self.label, self.rate_per_s, snapshot.in_flight, snapshot.connections, snapshot.failed
        )
    }
}

impl Observer for Display {
    fn started(&mut self, facts: &RunFacts) {
        if self.quiet {
            return;
        }
        self.total = facts.duration.map(|duration| duration + facts.warmup);
        self.requests = facts.requests;
        for note in &facts.notes {
            print_message(format_args!("note: {note}"));
        }
        if std::io::stderr().is_terminal() {
            let bar = ProgressBar::new(1000);
            bar.set_style(
                ProgressStyle::with_template("[{elapsed_precise}] {bar:30} {msg}")
                    .unwrap_or_else(|_| ProgressStyle::default_bar()),
            );
            self.bar = Some(bar);
        }
    }

    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        if self.quiet {
            return;
        }
        let done = snapshot.completed + snapshot.failed;
        if let Some((at, before)) = self.last {
            let seconds = elapsed.saturating_sub(at).as_secs_f64();
            if seconds >= 0.9 {
                self.rate_per_s = done.saturating_sub(before) as f64 / seconds;
                self.last = Some((elapsed, done));
            }
        } else {
            self.last = Some((elapsed, done));
        }
        match &self.bar {
            Some(bar) => {
                let by_time = self.total.map_or(0.0, |total| elapsed.as_secs_f64() / total.as_secs_f64());
                let by_count = self.requests.map_or(0.0, |requests| done as f64 / requests as f64);
                bar.set_position((by_time.max(by_count) * 1000.0).min(1000.0) as u64);
                bar.set_message(units::printable(&self.line(snapshot)).into_owned());
            }
            None if elapsed.saturating_sub(self.last_plain) >= PLAIN_LINE_INTERVAL => {
                self.last_plain = elapsed;
                print_message(format_args!("{:>5.0} s  {}", elapsed.as_secs_f64(), self.line(snapshot)));
            }
            None => {}
        }
    }

    fn ended(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}
