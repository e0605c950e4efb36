//! The verdict at the top of a page, in words and colour, with the checks that did not pass.

use schema::document::{Check, CheckState, Validity, Verdict};

use crate::phrases::{check_name, check_state, limit, meaning, measure, tally};
use crate::plot::escape;

/// The verdicts with every check that did not pass; the others are folded.
pub(super) fn html(judgements: &[(String, Validity)]) -> String {
    let mut html = String::new();
    if judgements.is_empty() {
        return html;
    }
    html.push_str("<section class=\"judged\">");
    for (name, validity) in judgements {
        one(&mut html, name, validity);
    }
    html + "</section>\n"
}

fn one(html: &mut String, name: &str, validity: &Validity) {
    let (class, word) = match validity.verdict {
        Verdict::Valid => ("good", "Valid"),
        Verdict::Suspect => ("doubt", "Suspect"),
        Verdict::Invalid => ("bad", "Invalid"),
    };
    let name = if name.is_empty() { String::new() } else { format!("<b>{}.</b> ", escape(name)) };
    let summary = match validity.verdict {
        Verdict::Valid => tally(validity),
        verdict => format!("{} {}", meaning(verdict), tally(validity)),
    };
    html.push_str(&format!("<div class=\"verdict {class}\"><p><strong>{word}</strong> {name}{}</p>", escape(&summary)));
    let (open, rest): (Vec<&Check>, Vec<&Check>) =
        validity.checks.iter().partition(|check| matches!(check.state, CheckState::Failed | CheckState::CouldNotRun));
    if !open.is_empty() {
        table(html, &open);
    }
    if !rest.is_empty() {
        let summary = if open.is_empty() { "All checks" } else { "The other checks" };
        html.push_str(&format!("<details><summary>{summary}</summary>"));
        table(html, &rest);
        html.push_str("</details>");
    }
    html.push_str("</div>");
}

fn table(html: &mut String, checks: &[&Check]) {
    html.push_str(
        "<div class=\"scroll\"><table class=\"checks\"><thead><tr><th scope=\"col\">check</th><th scope=\"col\">result</th>\
         <th scope=\"col\" class=\"figure\">value</th><th scope=\"col\" class=\"figure\">limit</th>\
         <th scope=\"col\">reason</th></tr></thead><tbody>",
    );
    for check in checks {
        let class = match check_state(check) {
            "passed" => "good",
            "failed" => "bad",
            "not applicable" => "soft",
            _ => "doubt",
        };
        let value = check.value.map(|value| measure(value, &check.unit)).unwrap_or_default();
        let limit = check.limit.map(|value| limit(value, &check.unit)).unwrap_or_default();
        html.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"{class}\">{}</td><td class=\"figure\">{}</td>\
             <td class=\"figure\">{}</td><td class=\"why\">{}</td></tr>",
            escape(&check_name(check)),
            check_state(check),
            escape(&value),
            escape(&limit),
            escape(&check.why)
        ));
    }
    html.push_str("</tbody></table></div>");
}
