//! A quantity with a few different values among clients, those of their classes.

use super::super::bars::bar;
use super::super::page::{Ink, MARGIN, Page, length};
use crate::figures::{bit_rate, share};

/// One value for each client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// Name, such as `rate down`.
    pub label: String,
    /// Unit of the values.
    pub unit: SpreadUnit,
    /// A client's value; `None`: no limit. In any order.
    pub values: Vec<Option<f64>>,
}

/// The unit of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpreadUnit {
    /// Bits per second.
    #[default]
    BitsPerSecond,
    /// A share, 0 to 1.
    Share,
}

/// A bar for each value; one line if all clients have the same value, nothing if none has any.
pub(super) fn print(page: &mut Page, spread: &Spread) {
    let none = match spread.unit {
        SpreadUnit::BitsPerSecond => None,
        SpreadUnit::Share => Some(0.0),
    };
    if spread.values.iter().all(|&value| value == none) {
        return;
    }
    let mut values = spread.values.clone();
    values.sort_by(|a, b| a.unwrap_or(f64::INFINITY).total_cmp(&b.unwrap_or(f64::INFINITY)));
    let mut rows: Vec<(Option<f64>, u64)> = Vec::new();
    for value in values {
        match rows.last_mut() {
            Some((same, clients)) if *same == value => *clients += 1,
            _ => rows.push((value, 1)),
        }
    }
    let words = |value: Option<f64>| match (spread.unit, value) {
        (_, None) => "no limit".to_owned(),
        (SpreadUnit::BitsPerSecond, Some(rate)) => bit_rate(rate),
        (SpreadUnit::Share, Some(part)) => share(part),
    };
    page.blank();
    if let [(value, _)] = rows[..] {
        page.entry(&spread.label, &format!("{} for every client", words(value)));
        return;
    }
    page.line(&[(&format!("{:MARGIN$}{}", "", spread.label), Ink::Label)]);
    let all = spread.values.len().max(1) as f64;
    let most = rows.iter().map(|&(_, clients)| clients).max().unwrap_or(1);
    let available = page.width().saturating_sub(MARGIN + VALUE + SHARE).min(BAR_MAX);
    let more = rows.len().saturating_sub(ROWS_MAX);
    for &(value, clients) in rows.iter().take(ROWS_MAX) {
        let bar = bar(clients, most, available, page.unicode());
        page.line(&[
            (&format!("{:MARGIN$}{:>width$} ", "", words(value), width = VALUE - 1), Ink::Label),
            (&bar, Ink::Bar),
            (&" ".repeat(available - length(&bar)), Ink::Plain),
            (&format!("{:>SHARE$}", share(clients as f64 / all)), Ink::Plain),
        ]);
    }
    if more > 0 {
        page.entry("", &format!("and {more} more values above"));
    }
}

/// Width of a value.
const VALUE: usize = 14;
/// Width of the share of clients.
const SHARE: usize = 9;
const BAR_MAX: usize = 60;
const ROWS_MAX: usize = 12;
