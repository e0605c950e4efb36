//! Checks of the tap of programs' sockets: whether it was loaded, and whether it saw everything.

mod load;

use schema::document::{Check, Weight};
use schema::tap_part::TapPart;

pub use self::load::{LoadTotals, tap_agrees_with_load, tap_little};
use super::draft::Draft;
use crate::evidence::{KernelOpens, Opens, Outside};

/// Whether a tap's figures are to be believed. `cut`: a program made the rings' file shorter; `error`: why rows are missing
/// from its table, if they are.
pub fn tap_checks(part: &TapPart, cut: bool, error: Option<&str>) -> Vec<Check> {
    let mut checks = vec![loaded(part), drops(part), coverage(part), room(part)];
    if cut {
        checks.push(Draft::new("tap_ring", Weight::Invalid, "").failed(
            "A program truncated the file through which its user's programs report: nothing was read from it from then on, and \
             how much is missing is unknown.",
        ));
    }
    checks.extend(error.map(super::files_whole));
    checks
}

/// Whether programs and wire saw the same connections and bytes. `outside`: what the programs' calls moved; made, up and
/// down: what passed the server's end.
pub fn tap_agrees(part: &TapPart, outside: Outside, made: u64, up_bytes: u64, down_bytes: u64) -> [Check; 2] {
    let connections = Draft::new("tap_connections_agree", Weight::Suspect, "connections");
    let bytes = Draft::new("tap_bytes_agree", Weight::Suspect, "bytes");
    if part.connections_left_out > 0 || part.connections_unfollowed > 0 {
        let why = "some connections found no room in the tap, as tap_capacity says, and are on the wire all the same";
        return [connections, bytes].map(|check| check.could_not_run(why));
    }
    let connections = connections.at_most(
        outside.connections.abs_diff(made) as f64,
        0.0,
        "Every connection that the programs made was on the wire, and none besides.",
        "Connections on the wire and those that the programs' calls made differ in number: some went round the library \
         (see the programs), or a connect was given up while it was being answered.",
    );
    let (sent, received) = (outside.sent_bytes.abs_diff(up_bytes), outside.received_bytes.abs_diff(down_bytes));
    let all = up_bytes.saturating_add(down_bytes);
    let bytes = bytes.at_most(
        sent.saturating_add(received) as f64,
        (all as f64 * BYTES_SHARE).floor(),
        "The bytes that the programs' calls moved are those on the wire.",
        "The programs' calls moved other amounts than the wire: some went round the library (see the programs), were \
         left unread when a connection was closed, or were thrown away by a reset.",
    );
    [connections, bytes]
}

/// Whether the kernel counted more connections in the programs' network namespace than the hooks saw: programs that make system calls of their own, or
/// use io_uring, pass no hook. `called`: connections on which a program called connect.
///
/// In a network namespace of its own every connection belongs to the programs. In a shared one further connections may be other processes'; only if the hooks
/// saw no connection at all is the run doubted.
pub fn tap_kernel(part: &TapPart, called: u64, kernel: Option<KernelOpens>) -> Option<Check> {
    let KernelOpens { opens, is_own } = kernel?;
    let draft = Draft::new("tap_connections_counted", Weight::Suspect, "connections");
    if part.connections_left_out > 0 || part.connections_unfollowed > 0 || part.records_dropped > 0 {
        let why = "some connections or records found no room in the tap, as tap_capacity and tap_drops say, and the kernel counted them all the same";
        return Some(draft.could_not_run(why));
    }
    let served = part.server.as_ref().map_or(0, |server| server.connections);
    if is_own {
        // Of a server some handshakes may wait to be accepted at the end, but not all.
        let unserved = if served == 0 { opens.passive } else { 0 };
        let more = opens.active.saturating_sub(called) + unserved;
        let seen = "The kernel counted no connection in the programs' network namespace that their calls did not make.";
        let unseen = format!(
            "The kernel counted {} connections that processes in the programs' network namespace made, and {} that they were asked for; the programs' calls \
             made {called} and accepted {served}. The others went past the library, by system calls of a program's own or through io_uring, and are in no figure.",
            opens.active, opens.passive
        );
        return Some(draft.at_most(more as f64, 0.0, seen, &unseen));
    }
    if called > 0 || served > 0 || opens == Opens::default() {
        return Some(draft.ok("The programs' calls made connections, or no process in their network namespace did."));
    }
    Some(draft.failed(&format!(
        "The programs' calls made no connection, and {} were made and {} accepted in their network namespace meanwhile: by other processes of the machine, \
         or by the programs past the library (system calls of their own, io_uring), which cannot be told apart here. `yamabiko net --tap` runs a program in a \
         namespace of its own.",
        opens.active, opens.passive
    )))
}

fn loaded(part: &TapPart) -> Check {
    let seen = part.programs.iter().any(|program| program.coverage != "unseen");
    let draft = Draft::new("tap_loaded", Weight::Invalid, "");
    match part.programs.iter().find(|program| program.coverage == "unseen") {
        _ if seen => draft.ok("A program said that it had loaded the library."),
        Some(program) => draft.failed(&format!(
            "No program loaded the library, so nothing was seen of any; {}: {}",
            program.name, program.why
        )),
        None => draft.failed("No program loaded the library, so nothing was seen of any."),
    }
}

fn drops(part: &TapPart) -> Check {
    let all = part.records.saturating_add(part.records_dropped);
    let share = part.records_dropped as f64 / all.max(1) as f64;
    let weight = if share > FEW { Weight::Invalid } else { Weight::Suspect };
    Draft::new("tap_drops", weight, "records").at_most(
        part.records_dropped as f64,
        0.0,
        "Every record of the programs found room in its ring.",
        "Programs told more than the collector could take: counts and bytes are too low, and exchanges may be joined. \
         Leave the collector a core. Of more than 1,216 threads that use sockets at once, those beyond find no ring.",
    )
}

fn coverage(part: &TapPart) -> Check {
    let not_whole = part.programs.iter().filter(|program| program.coverage != "seen").count();
    Draft::new("tap_coverage", Weight::Suspect, "programs").at_most(
        not_whole as f64,
        0.0,
        "Every program that ran was seen, and TCP counted no byte that its calls did not.",
        "Programs that were not seen, or not whole, are listed with the reason: what they did is in no figure.",
    )
}

fn room(part: &TapPart) -> Check {
    let without = part.connections_left_out.saturating_add(part.connections_unfollowed);
    Draft::new("tap_capacity", Weight::Suspect, "connections").at_most(
        without as f64,
        0.0,
        "Every connection found room in the library's tables and in the collector.",
        &format!(
            "{} connections found no room in the tables of the library in their program (65,534 open at once, descriptors to \
             1,048,575) and {} none in the collector (200,000 open at once; follow fewer by --only): they are in no figure.",
            part.connections_unfollowed, part.connections_left_out
        ),
    )
}

/// A load that is stopped leaves a little unread.
const BYTES_SHARE: f64 = 0.001;
/// Above this share of lost records the figures are wrong, below it they are doubtful.
const FEW: f64 = 0.001;

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
    fn what_nobody_heard_is_no_result() {
        let part = TapPart { programs: vec![program("seen")], records: 100, ..TapPart::default() };
        assert_eq!(Validity::from_checks(tap_checks(&part, true, None)).verdict, Verdict::Invalid);
    }

    #[test]
    fn a_witness_that_was_not_there_is_none() {
        assert_eq!(verdict(&["seen"], 100, 0), Verdict::Valid);
        assert_eq!(verdict(&["seen", "unseen"], 100, 0), Verdict::Suspect);
        assert_eq!(verdict(&["partial"], 100, 0), Verdict::Suspect);
        assert_eq!(verdict(&["unseen"], 0, 0), Verdict::Invalid);
        assert_eq!(verdict(&[], 0, 0), Verdict::Invalid);
    }

    #[test]
    fn bytes_and_connections_are_held_against_the_wires() {
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
    fn what_found_no_room_is_said_and_nobody_is_accused_for_it() {
        let part = TapPart { connections_unfollowed: 466, ..TapPart::default() };
        let outside = Outside { connections: 65_534, ..Outside::default() };
        let agree = tap_agrees(&part, outside, 66_000, 1, 1).map(|check| check.state);
        assert_eq!(agree, [CheckState::CouldNotRun; 2]);
        let room = room(&part);
        assert_eq!((room.state, room.value), (CheckState::Failed, Some(466.0)));
        assert!(room.why.starts_with("466 connections found no room in the tables"), "{}", room.why);
    }

    #[test]
    fn connections_that_the_kernel_counted_and_no_hook_saw_are_doubtful() {
        let part = TapPart::default();
        let state = |called, active, passive, is_own| {
            let kernel = KernelOpens { opens: Opens { active, passive }, is_own };
            tap_kernel(&part, called, Some(kernel)).unwrap().state
        };
        assert_eq!(tap_kernel(&part, 0, None), None);
        let (ok, failed) = (CheckState::Ok, CheckState::Failed);
        assert_eq!([state(0, 0, 0, true), state(3, 3, 0, true), state(4, 3, 0, true)], [ok; 3]);
        assert_eq!([state(0, 1, 0, true), state(3, 4, 0, true), state(3, 3, 1, true)], [failed; 3]);
        assert_eq!([state(0, 0, 0, false), state(1, 50, 9, false)], [ok; 2], "others may have made them");
        assert_eq!([state(0, 1, 0, false), state(0, 0, 1, false)], [failed; 2], "nobody can say whose they are");
        let full = TapPart { connections_unfollowed: 1, ..TapPart::default() };
        let kernel = KernelOpens { opens: Opens { active: 9, passive: 0 }, is_own: true };
        assert_eq!(tap_kernel(&full, 8, Some(kernel)).unwrap().state, CheckState::CouldNotRun);
    }

    #[test]
    fn what_was_lost_is_doubtful_and_much_of_it_is_wrong() {
        assert_eq!(verdict(&["seen"], 99_900, 100), Verdict::Suspect);
        assert_eq!(verdict(&["seen"], 99_900, 101), Verdict::Invalid);
    }
}
