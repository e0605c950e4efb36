//! The result of `compare` on the terminal.

use schema::compare_part::CompareSide;
use schema::{CompareDocument, ComparePart};

use super::page::{Ink, MARGIN, Page, padded, shortened};
use super::{Style, judged, table};
use crate::compare::{HEAD, answer, differing, how, outcome, row};
use crate::figures;

/// A comparison on one screen: result, every metric, differences of plans and hosts, results of `--fail-if`.
pub fn compare(document: &CompareDocument, style: Style) -> String {
    let part = &document.compare;
    let mut body = sides(part);
    let rows: Vec<Vec<String>> = part.metrics.iter().map(row).collect();
    body += &table(&HEAD, &rows, style);
    body += &what_differed(part, style);
    body += &failing(part, style);
    let notes: Vec<String> = how(part).into_iter().chain(part.notes.iter().cloned()).collect();
    let notes: Vec<&str> = notes.iter().map(String::as_str).collect();
    judged(&document.run, &document.validity, &answer(part), &body, &notes, style)
}

fn sides(part: &ComparePart) -> String {
    let side = |name: &str, side: &CompareSide| {
        let runs = match (part.method.as_str(), side.counted) {
            ("one_run", _) | (_, 1) => String::new(),
            (_, counted) => format!(" ({counted} runs)"),
        };
        format!("  {name}  {}{runs}\n", figures::plain(&side.what))
    };
    side("A", &part.a) + &side("B", &part.b) + "\n"
}

/// Differences of plans and hosts, one line each.
fn what_differed(part: &ComparePart, style: Style) -> String {
    let mut page = Page::new(style);
    let rows = differing(part);
    if rows.is_empty() {
        return String::new();
    }
    let available = (page.width().saturating_sub(44) / 2).max(12);
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|[what, a, b, kind]| {
            let [a, b] = shortened_to_difference([&a, &b], available);
            vec![shortened(&what, 26), a, b, kind]
        })
        .collect();
    page.line(&[]);
    page.table(&["different", "A", "B", "kind"], &rows);
    page.into_text()
}

/// Two texts shortened to `available` characters each; texts with a longer common start begin near their first
/// difference.
fn shortened_to_difference(texts: [&str; 2], available: usize) -> [String; 2] {
    let [a, b] = texts.map(|text| figures::plain(text).chars().collect::<Vec<char>>());
    let common = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    // A part of the common start remains for orientation.
    let from = common.saturating_sub(available / 3);
    [a, b].map(|text| {
        if text.len() <= available || common + 4 < available {
            return shortened(&text.iter().collect::<String>(), available);
        }
        let rest: String = text[from.min(text.len())..].iter().collect();
        shortened(&format!("...{rest}"), available)
    })
}

fn failing(part: &ComparePart, style: Style) -> String {
    let mut page = Page::new(style);
    if part.fail_if.is_empty() {
        return String::new();
    }
    page.line(&[]);
    page.line(&[(&format!("{:MARGIN$}fail if", ""), Ink::Label)]);
    let longest = part.fail_if.iter().map(|term| term.term.chars().count()).max().unwrap_or(0).min(30) + 2;
    for term in &part.fail_if {
        let ink = match term.failed {
            Some(true) => Ink::Bad,
            Some(false) => Ink::Good,
            None => Ink::Doubtful,
        };
        let front = [(padded(&shortened(&term.term, 30), longest), Ink::Plain), (padded(outcome(term), 17), ink)];
        let front = front.each_ref().map(|(text, ink)| (text.as_str(), *ink));
        page.marked(&front, longest + 17, &term.why, Ink::Plain);
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use schema::compare_part::{ComparedMetric, FailCertainty, FailTerm, HostDifference, PlanDifference};
    use schema::document::Run;
    use schema::{CompareVerdict, Validity};

    use super::*;

    fn metric(short: &str, unit: &str, [a, b]: [f64; 2], interval: Option<[f64; 2]>) -> ComparedMetric {
        let verdict = match interval {
            None => CompareVerdict::NotKnown,
            Some([_, high]) if high < 0.0 => CompareVerdict::Less,
            Some([low, _]) if low > 0.0 => CompareVerdict::More,
            Some(_) => CompareVerdict::NoDifferenceShown,
        };
        ComparedMetric {
            name: short.to_owned(),
            short: short.to_owned(),
            unit: unit.to_owned(),
            a: Some(a),
            b: Some(b),
            relative: short != "errors",
            difference: Some(if short == "errors" { b - a } else { b / a - 1.0 }),
            interval,
            confidence: interval.map(|_| 0.95),
            p: None,
            verdict,
            detectable_difference: interval.map(|[low, high]| (high - low) / 2.0),
        }
    }

    fn shown(metrics: Vec<ComparedMetric>) -> String {
        shown_of(ComparePart::default(), metrics, Style::PLAIN)
    }

    fn shown_of(part: ComparePart, metrics: Vec<ComparedMetric>, style: Style) -> String {
        let part = ComparePart {
            method: "blocks".to_owned(),
            confidence: 0.95,
            by: metrics[0].name.clone(),
            a: CompareSide { what: "one --fast".to_owned(), counted: 24, ..CompareSide::default() },
            b: CompareSide { what: "two\u{1b}[31m".to_owned(), counted: 24, ..CompareSide::default() },
            metrics,
            ..part
        };
        let document = CompareDocument {
            schema: String::new(),
            run: Run::default(),
            validity: Validity::from_checks(Vec::new()),
            compare: part,
        };
        compare(&document, style)
    }

    #[test]
    fn result_sentence_has_difference_interval_or_detectable_difference() {
        let none = shown(vec![metric("mean", "ns", [1e6, 1.002e6], Some([-0.012, 0.016]))]);
        assert!(none.contains("mean response time: no difference detected; detectable from 1.4 %."), "{none}");
        assert!(none.contains("one --fast (24 runs)") && !none.contains('\u{1b}'), "{none}");
        let less = shown(vec![metric("mean", "ns", [1e6, 0.9e6], Some([-0.12, -0.08]))]);
        assert!(less.contains("mean response time: B is 10.0 % lower than A (8.0 % to 12.0 %)."), "{less}");
        let more = shown(vec![metric("rate", "1/s", [100.0, 105.0], Some([0.031, 0.068]))]);
        assert!(more.contains("achieved rate: B is 5.0 % higher than A (3.1 % to 6.8 %)."), "{more}");
        let unknown = shown(vec![metric("memory", "bytes", [1e6, 2e6], None)]);
        assert!(unknown.contains("no confidence interval") && unknown.contains("unknown"), "{unknown}");
    }

    #[test]
    fn every_metric_is_shown_in_its_unit() {
        let text = shown(vec![
            metric("mean", "ns", [1.5e6, 1.5e6], Some([-0.01, 0.01])),
            metric("cpu", "us", [20.0, 25.0], Some([0.1, 0.4])),
            metric("errors", "ratio", [0.001, 0.011], Some([0.002, 0.018])),
        ]);
        for words in
            ["1.50 ms", "25.0 us", "+25.0 %", "1.1 %", "+1.0 percentage points", "no; detectable from 1.0 %", "higher"]
        {
            assert!(text.contains(words), "{words}\n{text}");
        }
    }

    #[test]
    fn long_texts_are_shortened_to_their_difference() {
        let long = "exec /usr/bin/server --root /srv/www --threads ";
        let [a, b] = shortened_to_difference([&format!("{long}1"), &format!("{long}16 --cache")], 24);
        assert_eq!([a.as_str(), b.as_str()], ["...hreads 1", "...hreads 16 --cache"]);
        assert_eq!(shortened_to_difference(["one", "two"], 24), ["one", "two"]);
        assert_eq!(shortened_to_difference(["", "two"], 3), ["", "two"]);
    }

    #[test]
    fn plan_and_host_differences_and_failed_terms_have_a_line_each() {
        let part = ComparePart {
            plans_differ: vec![PlanDifference {
                field: "server.command".into(),
                a: Some("one\u{1b}[2J".into()),
                b: None,
                subject: true,
            }],
            hosts_differ: vec![HostDifference {
                fact: "memory_bytes".into(),
                a: Some("8000000000".into()),
                b: Some("16000000000".into()),
                machine: true,
            }],
            fail_if: vec![FailTerm {
                term: "p99 +5%".into(),
                failed: Some(true),
                sure: FailCertainty::Likely,
                why: "+6.0 % (+4.0 % to +8.0 %)".into(),
                ..FailTerm::default()
            }],
            ..ComparePart::default()
        };
        let style = Style { width: 80, ..Style::PLAIN };
        let text = shown_of(part, vec![metric("mean", "ns", [1e6, 1e6], Some([-0.01, 0.01]))], style);
        for words in ["different", "one\\u{1b}[2J", "compared", "8.00 GB", "16.0 GB", "host"] {
            assert!(text.contains(words), "{words}\n{text}");
        }
        assert!(text.contains("p99 +5%  FAILED, likely   +6.0 % (+4.0 % to +8.0 %)"), "{text}");
        assert!(!text.contains('\u{1b}') && text.lines().all(|line| line.chars().count() <= 100), "{text}");
    }
}
