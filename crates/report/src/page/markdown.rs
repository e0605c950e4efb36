//! A page as GitHub Flavored Markdown, for a CI summary, a ticket, a wiki.

use schema::Validity;
use schema::document::{CheckState, Verdict};

use super::{Page, Piece, Section, Table};
use crate::figures::plain;
use crate::phrases::{check_name, check_state, limit, meaning, measure, tally};

/// The complete page.
pub(super) fn page(page: &Page) -> String {
    let mut out = format!("# {}\n\n", line(&page.title));
    if !page.lead.is_empty() {
        out.push_str(&format!("**{}**\n\n", line(&page.lead)));
    }
    if !page.url.is_empty() {
        paragraph(&mut out, &format!("URL: {}", page.url));
    }
    if !page.command.is_empty() {
        out.push_str(&verbatim(&page.command));
    }
    put(&mut out, &page.answer, 2);
    for (name, validity) in &page.judgements {
        verdict(&mut out, name, validity);
    }
    paragraph(&mut out, &page.about);
    for section in &page.sections {
        put(&mut out, section, 2);
    }
    if !page.foot.is_empty() {
        out.push_str(&format!("---\n\n{}\n", line(&page.foot)));
    }
    out
}

fn verdict(out: &mut String, name: &str, validity: &Validity) {
    let word = match validity.verdict {
        Verdict::Valid => "Valid",
        Verdict::Suspect => "Suspect",
        Verdict::Invalid => "Invalid",
    };
    let name = if name.is_empty() { String::new() } else { format!("{}. ", line(name)) };
    let summary = match validity.verdict {
        Verdict::Valid => tally(validity),
        verdict => format!("{} {}", meaning(verdict), tally(validity)),
    };
    out.push_str(&format!("**{word}.** {name}{}\n\n", line(&summary)));
    let head = ["check", "result", "value", "limit", "reason"];
    let rows = |open: bool| {
        let selected = |state: CheckState| matches!(state, CheckState::Failed | CheckState::CouldNotRun) == open;
        let checks = validity.checks.iter().filter(move |check| selected(check.state));
        checks.fold(Table::new(&head).left(&[1, 4]), |rows, check| {
            rows.row([
                check_name(check),
                check_state(check).to_owned(),
                check.value.map(|value| measure(value, &check.unit)).unwrap_or_default(),
                check.limit.map(|value| limit(value, &check.unit)).unwrap_or_default(),
                check.why.clone(),
            ])
        })
    };
    let (open, rest) = (rows(true), rows(false));
    if !open.is_empty() {
        table(out, &open);
    }
    if !rest.is_empty() {
        fold(out, if open.is_empty() { "All checks" } else { "The other checks" }, |out| table(out, &rest));
    }
}

/// Writes the pieces under a heading of this depth.
fn put(out: &mut String, section: &Section, depth: usize) {
    let has_text = section.pieces.iter().any(|piece| !matches!(piece, Piece::Figure(_)));
    // A section of figures alone would leave an empty heading.
    if !has_text {
        return;
    }
    if !section.heading.is_empty() {
        out.push_str(&format!("{} {}\n\n", "#".repeat(depth.min(6)), line(&section.heading)));
    }
    for piece in &section.pieces {
        match piece {
            Piece::Text(text) => paragraph(out, text),
            Piece::Table(rows) => table(out, rows),
            Piece::Figure(_) => {}
            Piece::Verbatim { label, text } => {
                paragraph(out, label);
                out.push_str(&verbatim(text));
            }
            Piece::Folded { summary, section } => fold(out, summary, |out| put(out, section, depth + 1)),
        }
    }
}

fn paragraph(out: &mut String, text: &str) {
    if !text.trim().is_empty() {
        out.push_str(&line(text));
        out.push_str("\n\n");
    }
}

/// A collapsible part, where the viewer supports it.
fn fold(out: &mut String, summary: &str, inside: impl FnOnce(&mut String)) {
    let mut body = String::new();
    inside(&mut body);
    if !body.is_empty() {
        out.push_str(&format!("<details><summary>{}</summary>\n\n{body}</details>\n\n", crate::plot::escape(summary)));
    }
}

fn table(out: &mut String, table: &Table) {
    let columns = table.rows().iter().map(Vec::len).max().unwrap_or(0).max(table.head().len());
    let cells = |row: &[String]| {
        let cell = |at: usize| row.get(at).map(|cell| line(cell)).unwrap_or_default();
        (0..columns).map(cell).collect::<Vec<_>>().join(" | ")
    };
    out.push_str(&format!("| {} |\n|", cells(table.head())));
    for column in 0..columns {
        out.push_str(if table.is_left(column) { " --- |" } else { " ---: |" });
    }
    out.push('\n');
    for row in table.rows() {
        out.push_str(&format!("| {} |\n", cells(row)));
    }
    out.push('\n');
}

/// A code block, with a fence longer than any in the text.
fn verbatim(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat((longest + 1).max(3));
    let lines: Vec<String> = text.lines().map(plain).collect();
    format!("{fence}text\n{}\n{fence}\n\n", lines.join("\n"))
}

/// Text on one line with all markup escaped: blocks, links, HTML, table cells, mentions. Line ends become spaces.
fn line(text: &str) -> String {
    let mut safe = String::with_capacity(text.len() + text.len() / 8);
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let bare = plain(&words);
    for (at, c) in bare.char_indices() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '|' => safe.push_str("&#124;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' | '!' | '$' => {
                safe.push('\\');
                safe.push(c);
            }
            // A zero-width space follows: on GitHub `@name` notifies a person.
            '@' => safe.push_str("@&#8203;"),
            // `http://` and `www.` would become links.
            ':' if bare[at..].starts_with("://") => safe.push_str("&#58;"),
            'w' | 'W' if bare[at..].to_ascii_lowercase().starts_with("www.") => safe.push_str(&format!("{c}&#8203;")),
            // Lists and rules occur only at the start of a line.
            '-' | '+' | '=' if at == 0 => {
                safe.push('\\');
                safe.push(c);
            }
            '.' | ')' if begins_a_list(&bare, at) => {
                safe.push('\\');
                safe.push(c);
            }
            c => safe.push(c),
        }
    }
    safe
}

/// Whether the dot at `at` makes the line a numbered list: `1. one`.
fn begins_a_list(line: &str, at: usize) -> bool {
    let (before, after) = line.split_at(at);
    !before.is_empty() && before.chars().all(|c| c.is_ascii_digit()) && !after[1..].starts_with(|c: char| c != ' ')
}

#[cfg(test)]
mod tests {
    use schema::document::{Check, Weight};

    use super::*;
    use crate::plot::{Chart, Quantity, Series};

    #[test]
    fn foreign_text_never_becomes_markup() {
        let wild =
            "<script>alert(1)</script> | [x](javascript:1) `a` **b** _c_ ![i](u) @all https://x \\ &lt; ~~d~~\n# e";
        let safe = line(wild);
        for mark in ["<", "](", " | ", "@all", "://", "\n"] {
            assert!(!safe.contains(mark) || mark == "](" && safe.contains("\\]("), "{mark:?}: {safe}");
        }
        assert!(
            safe.starts_with("&lt;script&gt;alert(1)&lt;/script&gt; &#124; \\[x\\](javascript:1) \\`a\\`"),
            "{safe}"
        );
        assert_eq!(line("1. one"), "1\\. one");
        assert_eq!(line("- one - two"), "\\- one - two");
        assert_eq!([line("12.5 ms"), line("12.")], ["12.5 ms", "12\\."]);
        assert_eq!(line("a\u{1b}[31m"), "a\\\\u{1b}\\[31m");
        assert_eq!(line("WWW.x"), "W&#8203;WW.x");
    }

    #[test]
    fn code_fence_is_longer_than_any_fence_in_the_text() {
        assert_eq!(verbatim("a ```` b\n</details>"), "`````text\na ```` b\n</details>\n`````\n\n");
        assert_eq!(verbatim(""), "```text\n\n```\n\n");
        assert!(verbatim("\u{1b}c").contains("\\u{1b}c"));
    }

    #[test]
    fn markdown_page_has_verdict_text_and_tables_but_no_figures() {
        let check = Check {
            name: "generator_on_time".into(),
            state: CheckState::Failed,
            weight: Weight::Invalid,
            value: Some(12_300_000.0),
            limit: Some(1_000_000.0),
            unit: "ns".into(),
            why: "too | busy".into(),
        };
        let held = Check { state: CheckState::Ok, name: "conservation".into(), ..check.clone() };
        let chart = Chart::over_time("t", "n", Quantity::Count).series(Series::line("a", vec![[0.0, 1.0]]));
        let page = Page::new("A run")
            .lead("110 requests/s.")
            .judged("", &Validity::from_checks(vec![check, held]))
            .section(Section::new("Only figures").figure(chart))
            .section(
                Section::new("Times")
                    .table(Table::new(&["", "p50"]).row(["a|b", "1 ms"]).row(["short"]))
                    .folded("The plan", Section::new("").verbatim("", "x = 1")),
            );
        let text = page.to_markdown();
        assert!(text.starts_with("# A run\n\n**110 requests/s.**\n\n**Invalid.** Do not use these figures"), "{text}");
        assert!(text.contains("| generator on time | failed | 12.3 ms | 1 ms | too &#124; busy |\n"), "{text}");
        assert!(text.contains("| --- | ---: |\n| a&#124;b | 1 ms |\n| short |  |\n"), "{text}");
        assert!(text.contains("<details><summary>The plan</summary>\n\n```text\nx = 1\n```\n\n</details>\n"), "{text}");
        assert!(!text.contains("Only figures"));
        // Every line of a table has the same number of cells.
        let cells = |line: &&str| line.matches(" |").count();
        let rows: Vec<usize> = text.lines().filter(|line| line.starts_with("| ")).map(|line| cells(&line)).collect();
        assert!(rows.iter().all(|&cells| [2, 5].contains(&cells)), "{text}");
    }
}
