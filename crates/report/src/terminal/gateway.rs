//! The result of `gateway` on the terminal.

use schema::GatewayDocument;

use super::page::{Ink, Page};
use super::{Style, judged};
use crate::gateway;

/// Verdict and result, figures by condition and link, findings.
pub fn gateway(document: &GatewayDocument, style: Style) -> String {
    let part = &document.gateway;
    let mut page = Page::new(style);
    page.entry("gateway", &gateway::about(part));
    for (head, rows) in [gateway::figures_table(part), gateway::packets_table(part), gateway::rtt_table(part)] {
        if rows.is_empty() {
            continue;
        }
        let (head, rows) = gateway::without_empty_columns(head, rows);
        page.blank();
        page.table(&head, &rows);
    }
    page.blank();
    for condition in &part.conditions {
        for finding in &condition.findings {
            let test =
                if finding.test.is_empty() { String::new() } else { format!(" ({})", finding.test.replace('_', " ")) };
            let text = format!("{}: {}: {}{test}", gateway::place(condition), finding.name, finding.words);
            page.entry_in("FINDING", &text, Ink::Doubtful);
        }
    }
    for condition in &part.conditions {
        if let Some(proxy) = &condition.proxy {
            page.entry("proxy", &format!("{}: {}", gateway::place(condition), gateway::proxy_results(proxy)));
        }
    }
    let notes: Vec<&str> = part.notes.iter().map(String::as_str).collect();
    judged(&document.run, &document.validity, &gateway::answer(document), &page.into_text(), &notes, style)
}
