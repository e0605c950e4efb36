//! Checks of the tap of programs' sockets: whether it was loaded, and whether it is complete.

mod load;

use schema::document::{Check, Weight};
use schema::tap_part::TapPart;

pub use self::load::{LoadTotals, tap_agrees_with_load, tap_little};
use super::draft::Draft;
use crate::evidence::{KernelOpens, Opens, Outside};

/// Whether a tap's figures can be believed. `cut`: a program truncated the file of the rings; `error`: why rows are
/// missing from its table, if they are.
pub fn tap_checks(part: &TapPart, cut: bool, error: Option<&str>) -> Vec<Check> {
    let mut checks = vec![loaded(part), drops(part), coverage(part), capacity(part)];
    if cut {
        checks.push(Draft::new("tap_ring", Weight::Invalid, "").failed(
            "A program truncated the file through which its user's programs report: nothing was read from it afterwards, and \
             the amount of missing data is unknown.",
        ));
    }
    checks.extend(error.map(super::files_whole));
    checks
}

/// Whether programs and capture counted the same connections and bytes. `outside`: totals of the programs' calls; made,
/// up and down: totals at the server's end.
pub fn tap_agrees(part: &TapPart, outside: Outside, made: u64, up_bytes: u64, down_bytes: u64) -> [Check; 2] {
    let connections = Draft::new("tap_connections_agree", Weight::Suspect, "connections");
    let bytes = Draft::new("tap_bytes_agree", Weight::Suspect, "bytes");
    if part.connections_left_out > 0 || part.connections_unfollowed > 0 {
        let why = "some connections did not fit into the tap (see tap_capacity), and are in the capture all the same";
        return [connections, bytes].map(|check| check.could_not_run(why));
    }
    let connections = connections.at_most(
        outside.connections.abs_diff(made) as f64,
        0.0,
        "The capture has exactly the connections that the programs made.",
        "Captured connections and those made by the programs' calls differ in number: some bypassed the library \
         (see the programs), or a connect was given up while it was being answered.",
    );
    let (sent, received) = (outside.sent_bytes.abs_diff(up_bytes), outside.received_bytes.abs_diff(down_bytes));
    let all = up_bytes.saturating_add(down_bytes);
    let bytes = bytes.at_most(
        sent.saturating_add(received) as f64,
        (all as f64 * BYTES_SHARE).floor(),
        "The programs' calls transferred the captured bytes.",
        "The programs' calls transferred other amounts than the capture: some bytes bypassed the library (see the programs), were \
         unread when a connection was closed, or were discarded by a reset.",
    );
    [connections, bytes]
}

/// Whether the kernel counted more connections in the programs' network namespace than the hooks: programs that make
/// system calls directly, or use io_uring, bypass the hooks. `called`: connections on which a program called connect.
///
/// In their own network namespace all connections belong to the programs. In a shared one further connections may
/// belong to other processes; the run is suspect only if the hooks saw no connection at all.
pub fn tap_kernel(part: &TapPart, called: u64, kernel: Option<KernelOpens>) -> Option<Check> {
    let KernelOpens { opens, is_own } = kernel?;
    let draft = Draft::new("tap_connections_counted", Weight::Suspect, "connections");
    if part.connections_left_out > 0 || part.connections_unfollowed > 0 || part.records_dropped > 0 {
        let why = "some connections or records did not fit into the tap (see tap_capacity and tap_drops), and the kernel counted them all the same";
        return Some(draft.could_not_run(why));
    }
    let served = part.server.as_ref().map_or(0, |server| server.connections);
    if is_own {
        // Some handshakes of a server may wait to be accepted at the end, but not all.
        let unserved = if served == 0 { opens.passive } else { 0 };
        let more = opens.active.saturating_sub(called) + unserved;
        let seen =
            "The kernel counted no connection in the programs' network namespace other than those of their calls.";
        let unseen = format!(
            "The kernel counted {} outgoing and {} incoming connections of the programs' network namespace; the programs' calls \
             made {called} and accepted {served}. The others bypassed the library, by direct system calls or io_uring, and are in no figure.",
            opens.active, opens.passive
        );
        return Some(draft.at_most(more as f64, 0.0, seen, &unseen));
    }
    if called > 0 || served > 0 || opens == Opens::default() {
        return Some(draft.ok("The programs' calls made connections, or no process in their network namespace did."));
    }
    Some(draft.failed(&format!(
        "The programs' calls made no connection, but {} were made and {} accepted in their network namespace: by other processes of the machine, \
         or by the programs without the library (direct system calls, io_uring), which cannot be distinguished. `yamabiko net --tap` runs a program in its \
         own namespace.",
        opens.active, opens.passive
    )))
}

fn loaded(part: &TapPart) -> Check {
    let seen = part.programs.iter().any(|program| program.coverage != "unseen");
    let draft = Draft::new("tap_loaded", Weight::Invalid, "");
    match part.programs.iter().find(|program| program.coverage == "unseen") {
        _ if seen => draft.ok("A program reported that it had loaded the library."),
        Some(program) => draft.failed(&format!(
            "No program loaded the library, so there are no records; {}: {}",
            program.name, program.why
        )),
        None => draft.failed("No program loaded the library, so there are no records."),
    }
}

fn drops(part: &TapPart) -> Check {
    let all = part.records.saturating_add(part.records_dropped);
    let share = part.records_dropped as f64 / all.max(1) as f64;
    let weight = if share > LOST_SHARE_INVALID { Weight::Invalid } else { Weight::Suspect };
    Draft::new("tap_drops", weight, "records").at_most(
        part.records_dropped as f64,
        0.0,
        "Every record of the programs fitted into its ring.",
        "Programs reported more than the collector could read: counts and bytes are too low, and exchanges may be joined. \
         Leave the collector a core. Of more than 1,216 threads that use sockets at once, those beyond find no ring.",
    )
}

fn coverage(part: &TapPart) -> Check {
    let not_whole = part.programs.iter().filter(|program| program.coverage != "seen").count();
    Draft::new("tap_coverage", Weight::Suspect, "programs").at_most(
        not_whole as f64,
        0.0,
        "Every program was seen, and TCP counted no other bytes than its calls.",
        "Programs that were not seen, or only partially, are listed with the reason: their traffic is in no figure.",
    )
}

fn capacity(part: &TapPart) -> Check {
    let without = part.connections_left_out.saturating_add(part.connections_unfollowed);
    Draft::new("tap_capacity", Weight::Suspect, "connections").at_most(
        without as f64,
        0.0,
        "Every connection fitted into the library's tables and the collector.",
        &format!(
            "{} connections did not fit into the tables of the library in their program (65,534 open at once, descriptors to \
             1,048,575) and {} none in the collector (200,000 open at once; follow fewer by --only): they are in no figure.",
            part.connections_unfollowed, part.connections_left_out
        ),
    )
}

/// A stopped load leaves a few bytes unread.
const BYTES_SHARE: f64 = 0.001;
/// Above this share of lost records the run is invalid, below it suspect.
const LOST_SHARE_INVALID: f64 = 0.001;

#[cfg(test)]
mod tests {
    use schema::document::Validity;
    use schema::tap_part::TapProgram;
    use schema::{CheckState, Verdict};

    use super::*;

    fn program(coverage: &str) -> TapProgram {
        TapProgram { name: "p".into(), processes: 1, coverage: coverage.into(), why: "why".into(), connections: 0 }
    }

    fn verdict(programs: &[&str], records: u64, dropped: u64) -> Verdict {
        let part = TapPart {
            programs: programs.iter().map(|coverage| program(coverage)).collect(),
            records,
            records_dropped: dropped,
            ..TapPart::default()
        };
        Validity::from_checks(tap_checks(&part, false, None)).verdict
    }

    #[test]
    fn a_tap_without_any_program_is_invalid() {
        let part = TapPart { programs: vec![program("seen")], records: 100, ..TapPart::default() };
        assert_eq!(Validity::from_checks(tap_checks(&part, true, None)).verdict, Verdict::Invalid);
    }

    #[test]
    fn a_tap_that_was_not_loaded_has_no_checks_of_agreement() {
        assert_eq!(verdict(&["seen"], 100, 0), Verdict::Valid);
        assert_eq!(verdict(&["seen", "unseen"], 100, 0), Verdict::Suspect);
        assert_eq!(verdict(&["partial"], 100, 0), Verdict::Suspect);
        assert_eq!(verdict(&["unseen"], 0, 0), Verdict::Invalid);
        assert_eq!(verdict(&[], 0, 0), Verdict::Invalid);
    }

    #[test]
    fn bytes_and_connections_of_tap_and_capture_must_agree() {
        let outside = Outside { connections: 3, sent_bytes: 300, received_bytes: 90_000 };
        let part = TapPart::default();
        let failed =
            |made, up, down| tap_agrees(&part, outside, made, up, down).map(|check| check.state == CheckState::Failed);
        assert_eq!(failed(3, 300, 90_000), [false, false]);
        assert_eq!(failed(4, 300, 90_000), [true, false]);
        assert_eq!(failed(3, 300, 90_090), [false, false], "within 0.1 %");
        assert_eq!(failed(3, 200, 90_000), [false, true]);
    }

    #[test]
    fn connections_that_did_not_fit_into_the_tap_are_no_contradiction() {
        let part = TapPart { connections_unfollowed: 466, ..TapPart::default() };
        let outside = Outside { connections: 65_534, ..Outside::default() };
        let agree = tap_agrees(&part, outside, 66_000, 1, 1).map(|check| check.state);
        assert_eq!(agree, [CheckState::CouldNotRun; 2]);
        let capacity = capacity(&part);
        assert_eq!((capacity.state, capacity.value), (CheckState::Failed, Some(466.0)));
        assert!(capacity.why.starts_with("466 connections did not fit into the tables"), "{}", capacity.why);
    }

    #[test]
    fn connections_counted_only_by_the_kernel_make_the_run_suspect() {
        let part = TapPart::default();
        let state = |called, active, passive, is_own| {
            let kernel = KernelOpens { opens: Opens { active, passive }, is_own };
            tap_kernel(&part, called, Some(kernel)).unwrap().state
        };
        assert_eq!(tap_kernel(&part, 0, None), None);
        let (ok, failed) = (CheckState::Ok, CheckState::Failed);
        assert_eq!([state(0, 0, 0, true), state(3, 3, 0, true), state(4, 3, 0, true)], [ok; 3]);
        assert_eq!([state(0, 1, 0, true), state(3, 4, 0, true), state(3, 3, 1, true)], [failed; 3]);
        assert_eq!([state(0, 0, 0, false), state(1, 50, 9, false)], [ok; 2], "other processes may have made them");
        assert_eq!([state(0, 1, 0, false), state(0, 0, 1, false)], [failed; 2], "their process is unknown");
        let full = TapPart { connections_unfollowed: 1, ..TapPart::default() };
        let kernel = KernelOpens { opens: Opens { active: 9, passive: 0 }, is_own: true };
        assert_eq!(tap_kernel(&full, 8, Some(kernel)).unwrap().state, CheckState::CouldNotRun);
    }

    #[test]
    fn a_few_lost_records_are_suspect_and_many_are_invalid() {
        assert_eq!(verdict(&["seen"], 99_900, 100), Verdict::Suspect);
        assert_eq!(verdict(&["seen"], 99_900, 101), Verdict::Invalid);
    }
}
