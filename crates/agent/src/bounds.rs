//! Clamps rows and programs to the limits of the manager. Every program of the machine may write to the rings;
//! invalid data of one program must not make the manager reject the rows of others in the same batch.

use schema::TapOutcome;

use schema::TapRow;
use tap_protocol::Program;

/// Clamps a row; a valid row is unchanged. `at_ns` is when it was recorded, which is the latest possible end.
pub(crate) fn row(row: &mut TapRow, at_ns: u64) {
    for amount in [&mut row.sent_bytes, &mut row.received_bytes, &mut row.calls] {
        *amount = (*amount).min(AMOUNT_MAX);
    }
    for amount in [&mut row.connection_bytes, &mut row.retransmits, &mut row.unseen_bytes].into_iter().flatten() {
        *amount = (*amount).min(AMOUNT_MAX);
    }
    row.opened_at_ns = row.opened_at_ns.min(at_ns);
    // A connection cannot have lasted longer than the time since it opened. Its name lookup came before.
    let since_opened = at_ns - row.opened_at_ns;
    let longest = if row.connection.is_some() { DURATION_MAX } else { since_opened };
    row.lookup_ns = row.lookup_ns.map(|lookup_ns| lookup_ns.min(longest));
    row.setup_ns = row.setup_ns.map(|setup_ns| setup_ns.min(since_opened));
    row.blocked_ns = row.blocked_ns.min(DURATION_MAX);
    clamp_pair(&mut row.sent_first_at_ns, &mut row.sent_last_at_ns, row.opened_at_ns, at_ns);
    clamp_pair(&mut row.received_first_at_ns, &mut row.received_last_at_ns, row.opened_at_ns, at_ns);
    row.closed_at_ns = row.closed_at_ns.map(|at| at.clamp(row.opened_at_ns, at_ns));
    if row.outcome != TapOutcome::Failed.as_str() {
        row.error = None;
    }
    if let Some(program) = &mut row.program {
        *program = name(program);
    }
}

/// Clamps the data of a program.
pub(crate) fn program(program: &mut Program) {
    program.name = name(&program.name);
    if program.name.is_empty() {
        program.name = "(not known)".to_owned();
    }
    program.why = clean(&program.why, WHY_MAX);
    for count in [&mut program.seen, &mut program.unseen, &mut program.connections, &mut program.unseen_bytes] {
        *count = clamped(*count);
    }
}

/// A count that the manager accepts; a broken program can write any number.
pub(crate) fn clamped(count: u64) -> u64 {
    count.min(COUNT_MAX)
}

/// Clamps a pair of times, of which both or neither exist, to the time between the opening and now. A lookup, and bytes
/// of an inherited connection, may have begun earlier.
fn clamp_pair(first: &mut Option<u64>, last: &mut Option<u64>, opened_at_ns: u64, at_ns: u64) {
    let (Some(begin), Some(end)) = (*first, *last) else {
        (*first, *last) = (None, None);
        return;
    };
    let end = end.clamp(opened_at_ns, at_ns);
    (*first, *last) = (Some(begin.min(end)), Some(end));
}

fn name(text: &str) -> String {
    clean(text, NAME_MAX)
}

/// Truncates text to this number of bytes, and replaces control characters.
fn clean(text: &str, bytes_max: usize) -> String {
    let mut clean: String = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    clean.truncate(clean.floor_char_boundary(bytes_max));
    clean
}

/// Maxima that the manager accepts: of bytes and calls, of a duration in ns, of counts, of names and reasons in bytes.
const AMOUNT_MAX: u64 = 1 << 44;
const DURATION_MAX: u64 = 1 << 60;
const COUNT_MAX: u64 = 1 << 48;
const NAME_MAX: usize = 64;
const WHY_MAX: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;
    use schema::TapAddress;
    use schema::{TapError, TapExchange};
    use units::Timestamp;

    fn row_of(exchange: &TapExchange) -> TapRow {
        TapRow::of(exchange, &TapAddress::Plain)
    }

    #[test]
    fn a_valid_row_is_unchanged() {
        let at = |ns| Some(Timestamp::from_nanos(ns));
        let exchange = TapExchange {
            connection: Some(1),
            opened_at: Timestamp::from_nanos(100),
            lookup_ns: Some(5_000),
            setup_ns: Some(10),
            sent_first_at: at(120),
            sent_last_at: at(130),
            received_first_at: at(150),
            received_last_at: at(150),
            closed_at: at(200),
            sent_bytes: 7,
            blocked_ns: 40,
            outcome: TapOutcome::Failed,
            error: Some(TapError::GivenUp),
            program: Some("curl é".into()),
            ..TapExchange::BLANK
        };
        let mut clamped_row = row_of(&exchange);
        row(&mut clamped_row, 200);
        assert_eq!(clamped_row, row_of(&exchange));
    }

    #[test]
    fn invalid_row_values_are_clamped() {
        let far_future = Some(Timestamp::from_nanos(u64::MAX));
        let exchange = TapExchange {
            connection: Some(1),
            opened_at: Timestamp::from_nanos(500),
            lookup_ns: Some(u64::MAX),
            setup_ns: Some(u64::MAX),
            sent_first_at: far_future,
            sent_last_at: Some(Timestamp::from_nanos(1)),
            received_first_at: far_future,
            received_last_at: None,
            closed_at: far_future,
            sent_bytes: u64::MAX,
            connection_bytes: Some(u64::MAX),
            blocked_ns: u64::MAX,
            outcome: TapOutcome::Cut,
            error: Some(TapError::GivenUp),
            program: Some("\u{1b}[2J".repeat(40).as_str().into()),
            ..TapExchange::BLANK
        };
        let mut clamped_row = row_of(&exchange);
        row(&mut clamped_row, 1_000);
        assert_eq!(
            (clamped_row.opened_at_ns, clamped_row.lookup_ns, clamped_row.setup_ns),
            (500, Some(DURATION_MAX), Some(500))
        );
        let mut lookup = TapRow { connection: None, lookup_ns: Some(u64::MAX), ..row_of(&exchange) };
        row(&mut lookup, 1_000);
        assert_eq!(lookup.ended_at_ns(), 1_000);
        assert_eq!((clamped_row.sent_first_at_ns, clamped_row.sent_last_at_ns), (Some(500), Some(500)));
        assert_eq!((clamped_row.received_first_at_ns, clamped_row.received_last_at_ns), (None, None));
        assert_eq!((clamped_row.closed_at_ns, clamped_row.error.as_deref()), (Some(1_000), None));
        assert_eq!((clamped_row.sent_bytes, clamped_row.connection_bytes), (AMOUNT_MAX, Some(AMOUNT_MAX)));
        assert!(clamped_row.ended_at_ns() <= 1_000 && clamped_row.ended_at_ns() >= 500);
        let program = clamped_row.program.unwrap();
        assert!(program.len() <= 64 && !program.contains(char::is_control), "{program}");
    }

    #[test]
    fn program_names_and_reasons_are_truncated() {
        let mut nameless = Program { why: "é".repeat(200), seen: u64::MAX, ..Program::default() };
        program(&mut nameless);
        assert_eq!((&*nameless.name, nameless.why.len(), nameless.seen), ("(not known)", 254, COUNT_MAX));
    }
}
