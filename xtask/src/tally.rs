//! Counts passed and failed tests from libtest's summary lines.

/// Counted tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Passed tests.
    pub passed: usize,
    /// Failed tests.
    pub failed: usize,
    /// Ignored tests.
    pub ignored: usize,
}

impl Tally {
    /// Adds the counts of a line of output, if it is a summary line:
    /// `test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.03s`.
    pub fn take(&mut self, line: &str) {
        let Some((_, summary)) = line.split_once("test result: ") else { return };
        let words: Vec<&str> = summary.split([' ', ';']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<usize>() else { continue };
            match pair[1] {
                "passed" => self.passed += count,
                "failed" => self.failed += count,
                "ignored" => self.ignored += count,
                _ => {}
            }
        }
    }

    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Tally) -> Tally {
        Tally {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            ignored: self.ignored + other.ignored,
        }
    }

    /// The final counts of a step. An ignored test counts as failed, and a step whose program failed counts as a
    /// failure even if no test failed.
    pub fn settle(self, succeeded: bool) -> Tally {
        let failed = self.failed + self.ignored;
        Tally { passed: self.passed, failed: if succeeded { failed } else { failed.max(1) }, ignored: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.take(line));
        tally
    }

    #[test]
    fn counts_of_summary_lines_are_added() {
        let tally = counted(&[
            "running 14 tests",
            "test a::b ... ok",
            "test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 0 filtered out; finished in 0.03s",
            "test result: FAILED. 3 passed; 4 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.03s",
            "3 passed; 4 failed",
        ]);
        assert_eq!(tally, Tally { passed: 15, failed: 4, ignored: 2 });
    }

    #[test]
    fn coloured_summary_lines_are_counted() {
        let tally = counted(&["test result: \u{1b}[32mok\u{1b}[0m. 2 passed; 1 failed; 0 ignored; 0 measured"]);
        assert_eq!(tally, Tally { passed: 2, failed: 1, ignored: 0 });
    }

    #[test]
    fn a_test_binary_without_summary_fails() {
        let clean = Tally { passed: 5, ..Tally::default() };
        assert_eq!(clean.settle(true), clean);
        assert_eq!(clean.settle(false).failed, 1);
        assert_eq!(Tally { failed: 3, ..clean }.settle(false).failed, 3);
        assert_eq!(Tally { ignored: 2, ..clean }.settle(true).failed, 2);
    }
}
