//! A row of a day's file, from a placed row and back: nothing is lost on the way.

use store::FleetRow;

use super::Placed;
use tap_protocol::{Peer, Row};

/// As it stands in a file.
pub fn to_row(placed: &Placed) -> FleetRow {
    let row = &placed.row;
    let end = |end: &Option<Peer>| match end {
        Some(end) => (Some(end.address.to_string()), Some(end.port)),
        None => (None, None),
    };
    let ((peer, peer_port), (own, own_port)) = (end(&row.peer), end(&row.own));
    FleetRow {
        agent: placed.agent.clone(),
        group: placed.group.clone(),
        stream: placed.stream.clone(),
        sequence: placed.sequence,
        number: placed.number,
        at_unix_ns: placed.at_ns,
        opened_at_unix_ns: placed.zero_ns.saturating_add(row.opened_at_ns),
        zero_unix_ns: placed.zero_ns,
        clock_off_ns: placed.clock_off_ns,
        share: placed.share,
        connection: row.connection,
        exchange: row.exchange,
        last: row.last,
        pid: row.pid,
        program: row.program.clone(),
        side: row.side.clone(),
        peer,
        peer_port,
        own,
        own_port,
        opened_at_ns: row.opened_at_ns,
        lookup_ns: row.lookup_ns,
        setup_ns: row.setup_ns,
        sent_first_at_ns: row.sent_first_at_ns,
        sent_last_at_ns: row.sent_last_at_ns,
        received_first_at_ns: row.received_first_at_ns,
        received_last_at_ns: row.received_last_at_ns,
        sent_bytes: row.sent_bytes,
        received_bytes: row.received_bytes,
        calls: row.calls,
        blocked_ns: row.blocked_ns,
        outcome: row.outcome.clone(),
        error: row.error.clone(),
        closed_at_ns: row.closed_at_ns,
        connection_bytes: row.connection_bytes,
        retransmits: row.retransmits,
        unseen_bytes: row.unseen_bytes,
    }
}

/// Of a row of a file. An address that is none (nobody wrote it so) is not known.
pub fn of_row(row: FleetRow) -> Placed {
    let end = |address: Option<String>, port: Option<u16>| {
        Some(Peer { address: address?.parse().ok()?, port: port.unwrap_or(0) })
    };
    Placed {
        agent: row.agent,
        group: row.group,
        stream: row.stream,
        sequence: row.sequence,
        number: row.number,
        at_ns: row.at_unix_ns,
        zero_ns: row.zero_unix_ns,
        clock_off_ns: row.clock_off_ns,
        share: row.share,
        row: Row {
            connection: row.connection,
            exchange: row.exchange,
            last: row.last,
            pid: row.pid,
            program: row.program,
            side: row.side,
            peer: end(row.peer, row.peer_port),
            own: end(row.own, row.own_port),
            opened_at_ns: row.opened_at_ns,
            lookup_ns: row.lookup_ns,
            setup_ns: row.setup_ns,
            sent_first_at_ns: row.sent_first_at_ns,
            sent_last_at_ns: row.sent_last_at_ns,
            received_first_at_ns: row.received_first_at_ns,
            received_last_at_ns: row.received_last_at_ns,
            sent_bytes: row.sent_bytes,
            received_bytes: row.received_bytes,
            calls: row.calls,
            blocked_ns: row.blocked_ns,
            outcome: row.outcome,
            error: row.error,
            closed_at_ns: row.closed_at_ns,
            connection_bytes: row.connection_bytes,
            retransmits: row.retransmits,
            unseen_bytes: row.unseen_bytes,
        },
    }
}
