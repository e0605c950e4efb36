//! A comparison as JUnit XML for CI: a test case for its validity and one for each term of `--fail-if`; without terms one
//! for each metric.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Property, Report, TestCase, TestCaseStatus, TestSuite};
use schema::compare_part::FailTerm;
use schema::{CompareDocument, Verdict};

use crate::compare::{answer, outcome, row, words};
use crate::figures::plain;
use crate::phrases::{check_name, check_state, meaning};

/// The report passes exactly if the exit status is 0. A failed term is a failure. A term without a result is an error, and so
/// is an invalid comparison, with `strict` also a suspect one.
pub fn junit(document: &CompareDocument, strict: bool) -> String {
    let part = &document.compare;
    let name = if document.run.id.is_empty() { "yamabiko compare" } else { &document.run.id };
    let mut suite = TestSuite::new(plain(name));
    suite.set_time(Duration::try_from_secs_f64(document.run.duration_s).unwrap_or_default());
    suite.set_system_out(plain(&answer(part)));
    for (what, side) in [("A", &part.a), ("B", &part.b)] {
        suite.add_property(Property::new(what, plain(&side.what)));
    }
    suite.add_property(Property::new("command", plain(&document.run.command)));
    suite.add_test_case(validity_case(document, strict));
    suite.add_test_cases(part.fail_if.iter().map(term));
    if part.fail_if.is_empty() {
        suite.add_test_cases(part.metrics.iter().map(|metric| {
            let mut case = TestCase::new(words(metric), TestCaseStatus::success());
            case.set_classname("compare.metric").set_system_out(plain(&row(metric)[1..].join("; ")));
            case
        }));
    }
    let mut report = Report::new("yamabiko compare");
    report.add_test_suite(suite);
    // `plain` has escaped every character that XML forbids.
    report.to_string().unwrap_or_default()
}

fn validity_case(document: &CompareDocument, strict: bool) -> TestCase {
    let verdict = document.validity.verdict;
    let not_passed = |kind: NonSuccessKind| {
        let mut status = TestCaseStatus::non_success(kind);
        let open =
            document.validity.checks.iter().filter(|check| !["passed", "not applicable"].contains(&check_state(check)));
        let lines: Vec<String> =
            open.map(|check| format!("{} ({}): {}", check_name(check), check_state(check), check.why)).collect();
        status.set_message(meaning(verdict)).set_description(plain_lines(&lines));
        status
    };
    let mut case = TestCase::new(
        "the comparison is valid",
        match verdict {
            Verdict::Invalid => not_passed(NonSuccessKind::Error),
            // A suspect comparison fails only with `--strict`.
            Verdict::Suspect if strict => not_passed(NonSuccessKind::Error),
            Verdict::Suspect | Verdict::Valid => TestCaseStatus::success(),
        },
    );
    case.set_classname("compare.validity");
    if verdict == Verdict::Suspect {
        case.set_system_out(meaning(verdict));
    }
    case
}

fn term(term: &FailTerm) -> TestCase {
    let mut status = match term.failed {
        Some(true) => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Some(false) => TestCaseStatus::success(),
        None => TestCaseStatus::non_success(NonSuccessKind::Error),
    };
    let why = plain(&format!("{}: {}", outcome(term), term.why));
    if term.failed != Some(false) {
        status.set_message(why.clone()).set_type(if term.failed.is_some() { "difference" } else { "unknown" });
    }
    let mut case = TestCase::new(plain(&format!("not {}", term.term)), status);
    case.set_classname("compare.fail_if").set_system_out(why);
    case
}

fn plain_lines(lines: &[String]) -> String {
    lines.iter().map(|line| plain(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use schema::compare_part::{CompareSide, FailCertainty};
    use schema::document::{Check, CheckState, Run, Weight};
    use schema::{ComparePart, Validity};

    use super::*;

    fn document(failed: &[Option<bool>], checks: Vec<Check>) -> CompareDocument {
        let term = |failed: &Option<bool>| FailTerm {
            term: "p99 > 5% <&\"'\u{1b}\u{0}".into(),
            failed: *failed,
            sure: FailCertainty::Likely,
            why: "]]> <![CDATA[ +6 %".into(),
            ..FailTerm::default()
        };
        let side = CompareSide { what: "</testsuite>\u{8}".into(), ..CompareSide::default() };
        CompareDocument {
            schema: String::new(),
            run: Run { duration_s: f64::NAN, ..Run::default() },
            validity: Validity::from_checks(checks),
            compare: ComparePart {
                by: "x".into(),
                a: side.clone(),
                b: side,
                fail_if: failed.iter().map(term).collect(),
                ..ComparePart::default()
            },
        }
    }

    #[test]
    fn each_fail_if_term_is_a_test_case() {
        let xml = junit(&document(&[Some(true), Some(false), None], Vec::new()), false);
        assert!(xml.contains("tests=\"4\"") && xml.contains("failures=\"1\"") && xml.contains("errors=\"1\""), "{xml}");
        assert_eq!((xml.matches("<failure ").count(), xml.matches("<error ").count()), (1, 1), "{xml}");
        assert!(!xml.contains("<skipped"), "{xml}");
        assert!(!xml.contains(['\u{1b}', '\u{0}', '\u{8}']), "{xml}");
        // A separate parser reads the report.
        let read = Report::deserialize_from_str(&xml).unwrap();
        let cases = &read.test_suites[0].test_cases;
        assert_eq!(cases[1].name.as_str(), "not p99 > 5% <&\"'\\u{1b}\\u{0}");
    }

    #[test]
    fn invalid_comparison_is_an_error_and_suspect_one_only_with_strict() {
        let check =
            Check::without_figure("blocks_void", CheckState::Failed, Weight::Invalid, "the machine is <too> busy");
        let xml = junit(&document(&[], vec![check.clone()]), false);
        assert!(
            xml.contains("<error ") && xml.contains("blocks void (failed): the machine is &lt;too&gt; busy"),
            "{xml}"
        );
        let warning = Check { weight: Weight::Suspect, ..check };
        let doubtful = document(&[], vec![warning]);
        let xml = junit(&doubtful, false);
        assert!(!xml.contains("<error ") && xml.contains("Read the warnings"), "{xml}");
        // With `--strict` a warning gives exit status 3, and an error here.
        let xml = junit(&doubtful, true);
        assert!(xml.contains("<error ") && xml.contains("blocks void (warning)"), "{xml}");
        assert!(!junit(&document(&[], Vec::new()), true).contains("<error "));
    }
}
