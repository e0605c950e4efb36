//! Every rule of Zeek that determines a connection state.

use super::*;
use Direction::{Down, Up};

/// Direction, flags, whether it has a payload.
type Packet = (Direction, u8, bool);

const fn bare(direction: Direction, flags: u8) -> Packet {
    (direction, flags, false)
}

fn ends(packets: &[Packet]) -> Endpoints {
    let mut ends = Endpoints::default();
    for &(direction, flags, has_payload) in packets {
        ends.packet(direction, flags, has_payload);
    }
    ends
}

fn after(packets: &[Packet]) -> &'static str {
    ends(packets).name(packets.iter().any(|packet| packet.2)).as_str()
}

/// The state after a handshake and a request.
fn then(rest: &[Packet]) -> &'static str {
    after(&[&OPEN[..], &[(Up, ACK, true)], rest].concat())
}

const OPEN: [Packet; 3] = [bare(Up, SYN), bare(Down, SYN | ACK), bare(Up, ACK)];
const FIN_ACK: u8 = FIN | ACK;
const RST_ACK: u8 = RST | ACK;

#[test]
fn every_connection_state_has_its_packets() {
    assert_eq!(after(&[bare(Up, SYN), bare(Up, SYN)]), "S0");
    assert_eq!(then(&[]), "S1");
    assert_eq!(then(&[bare(Up, FIN_ACK), bare(Down, FIN_ACK), bare(Up, ACK)]), "SF");
    assert_eq!(after(&[bare(Up, SYN), bare(Down, RST_ACK)]), "REJ");
    assert_eq!(then(&[bare(Up, FIN_ACK), bare(Down, ACK)]), "S2");
    assert_eq!(then(&[bare(Down, FIN_ACK), bare(Up, ACK)]), "S3");
    assert_eq!(then(&[bare(Up, RST)]), "RSTO");
    assert_eq!(then(&[bare(Down, RST)]), "RSTR");
    assert_eq!(after(&[bare(Up, SYN), bare(Up, RST)]), "RSTOS0");
    assert_eq!(after(&[bare(Down, SYN | ACK), bare(Down, RST)]), "RSTRH");
    assert_eq!(after(&[bare(Up, SYN), bare(Up, FIN)]), "SH");
    assert_eq!(after(&[bare(Down, SYN | ACK), bare(Down, FIN)]), "SHR");
    assert_eq!(after(&[bare(Up, ACK), bare(Down, ACK)]), "OTH");
}

#[test]
fn reset_after_the_tear_down_is_ignored_and_before_it_decides() {
    assert_eq!(then(&[bare(Up, FIN), bare(Down, FIN), bare(Up, RST)]), "SF");
    assert_eq!(then(&[bare(Up, FIN), bare(Down, RST)]), "RSTR");
    assert_eq!(then(&[bare(Up, RST), bare(Up, FIN), bare(Down, FIN)]), "RSTO");
    // FIN and RST from one side, as when data arrives for a closed socket: the other side's FIN makes it a normal end.
    assert_eq!(then(&[bare(Up, FIN), bare(Up, RST)]), "RSTO");
    assert_eq!(then(&[bare(Up, FIN), bare(Up, RST), bare(Down, FIN)]), "SF");
    assert_eq!(then(&[bare(Up, FIN | RST)]), "RSTO");
}

#[test]
fn resets_from_both_sides_are_rej_only_before_any_payload() {
    let both = [bare(Up, RST), bare(Down, RST)];
    assert_eq!(after(&[&OPEN[..], &both].concat()), "REJ");
    assert_eq!(then(&both), "RSTR");
}

/// `RSTOS0` requires the history to match `^?S[^HAFGIQ]*R`: capitals are packets of the client.
#[test]
fn attempt_given_up_is_rstos0_and_a_later_reset_is_not() {
    assert_eq!(after(&[bare(Up, SYN), bare(Up, SYN), bare(Up, RST)]), "RSTOS0");
    assert_eq!(after(&[bare(Up, SYN), (Up, ACK, true), bare(Up, RST)]), "RSTOS0");
    assert_eq!(after(&[bare(Up, SYN), bare(Up, ACK), bare(Up, RST)]), "OTH");
    assert_eq!(after(&[bare(Up, ACK), bare(Up, RST)]), "OTH");
    assert_eq!(after(&[bare(Up, RST)]), "OTH");
    assert_eq!(after(&[bare(Down, ACK), bare(Up, RST_ACK)]), "OTH");
    assert_eq!(after(&[bare(Up, SYN), bare(Down, ACK), bare(Up, RST)]), "RSTOS0", "a challenged SYN (RFC 5961)");
}

#[test]
fn missed_syn_does_not_hide_the_later_state() {
    let open = [bare(Down, SYN | ACK), bare(Up, ACK)];
    assert_eq!(after(&open), "S1");
    assert_eq!(after(&[&open[..], &[bare(Down, RST)]].concat()), "RSTR");
    assert_eq!(after(&[&open[..], &[bare(Up, FIN), bare(Down, FIN)]].concat()), "SF");
    assert_eq!(after(&[bare(Down, SYN | ACK)]), "OTH");
    assert_eq!(after(&[bare(Up, ACK), bare(Up, SYN)]), "S0", "an old packet before the SYN");
    assert_eq!(after(&[bare(Up, ACK), bare(Up, SYN | ACK)]), "OTH");
    assert_eq!(after(&[bare(Up, SYN | ACK), bare(Down, RST)]), "REJ", "a client that begins with a SYN-ACK");
}

#[test]
fn connection_seen_from_its_middle_is_oth_until_closed() {
    let middle = [(Up, ACK, true), (Down, ACK, true)];
    assert_eq!(after(&middle), "OTH");
    assert_eq!(after(&[&middle[..], &[bare(Up, FIN), bare(Down, FIN)]].concat()), "SF");
    assert_eq!(after(&[&middle[..], &[bare(Up, FIN)]].concat()), "SH");
    assert_eq!(after(&[&middle[..], &[bare(Down, FIN)]].concat()), "SHR");
    assert_eq!(after(&[&middle[..], &[bare(Down, RST)]].concat()), "RSTRH");
    assert_eq!(after(&[&middle[..], &[bare(Up, RST)]].concat()), "OTH");
}

#[test]
fn simultaneous_open_is_one_connection() {
    assert_eq!(after(&[bare(Up, SYN), bare(Down, SYN)]), "S1");
    let open = [bare(Up, SYN), bare(Down, SYN), bare(Up, SYN | ACK), bare(Down, SYN | ACK)];
    assert_eq!(after(&open), "S1");
}

#[test]
fn connection_is_over_at_the_second_fin_or_the_first_reset() {
    let is_over_and_closed = |rest: &[Packet]| {
        let ends = ends(&[&OPEN[..], rest].concat());
        (ends.is_over(), ends.both_have_closed())
    };
    assert_eq!(is_over_and_closed(&[bare(Up, FIN)]), (false, false));
    assert_eq!(is_over_and_closed(&[bare(Up, FIN), bare(Down, FIN)]), (true, true));
    assert_eq!(is_over_and_closed(&[bare(Up, RST)]), (true, false));
    assert_eq!(is_over_and_closed(&[bare(Up, RST), bare(Down, RST)]), (true, true));
    assert_eq!(is_over_and_closed(&[bare(Up, FIN), bare(Down, RST)]), (true, true));
}
