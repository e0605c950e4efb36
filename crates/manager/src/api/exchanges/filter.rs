//! Selects exchanges.

use std::str::FromStr;

use tap::PeerMatch;

use crate::api::parameters::Parameters;
use crate::api::responses::{ApiResponse, malformed};
use crate::export::{Cursor, Range};
use schema::{FleetRow, TapAddress, TapRow};

/// Names of the parameters that [`ExchangeQuery::of`] accepts, except `cursor`.
pub(super) const CONDITIONS: &[&str] =
    &["since", "until", "agent", "group", "program", "peer", "port", "side", "outcome"];

/// A selection. Of several values of one kind one must match; each given kind must match.
#[derive(Clone, Debug)]
pub(in super::super) struct ExchangeQuery {
    /// Range of end times, and the cursor within it.
    pub(super) range: Range,
    agents: Vec<String>,
    groups: Vec<String>,
    programs: Vec<String>,
    peers: Vec<Peer>,
    ports: Vec<u16>,
    side: Option<String>,
    outcomes: Vec<String>,
}

#[derive(Clone, Debug)]
enum Peer {
    Plain(PeerMatch),
    Hashed(TapAddress),
}

impl ExchangeQuery {
    /// Parsed from parameters; the last hour unless they say since when.
    pub(in super::super) fn of(parameters: &mut Parameters, now_ns: u64) -> ApiResponse<ExchangeQuery> {
        let until_ns = parameters.time("until", now_ns)?.unwrap_or_else(|| now_ns.saturating_add(AHEAD_NS));
        let since_ns =
            parameters.time("since", now_ns)?.unwrap_or_else(|| until_ns.min(now_ns).saturating_sub(HOUR_NS));
        if since_ns >= until_ns {
            return Err(malformed("`since` must be before `until`."));
        }
        let peers = parameters.list("peer")?.iter().map(|text| Peer::of(text)).collect::<Option<Vec<_>>>();
        let peers = peers.ok_or_else(|| {
            malformed(
                "`peer`: expected 192.0.2.7, 192.0.2.0/24, 2001:db8::/32, or h: and 16 \
             digits.",
            )
        })?;
        let ports = parameters.list("port")?.iter().map(|text| text.parse()).collect::<Result<Vec<u16>, _>>();
        let ports = ports.map_err(|_| malformed("`port`: expected a number from 0 to 65535."))?;
        let side = parameters.text("side");
        if side.as_deref().is_some_and(|side| !schema::TapSide::ALL.iter().any(|known| known.as_str() == side)) {
            return Err(malformed("`side`: expected client or server."));
        }
        let outcomes = parameters.list("outcome")?;
        let is_outcome = |text: &String| schema::TapOutcome::ALL.iter().any(|known| known.as_str() == text);
        if !outcomes.iter().all(is_outcome) {
            return Err(malformed("`outcome`: expected succeeded, failed, cut, greeting, farewell or unused."));
        }
        let after: Option<After> = parameters.parsed("cursor", "the `cursor` of an earlier response")?;
        let (agents, groups, programs) =
            (parameters.list("agent")?, parameters.list("group")?, parameters.list("program")?);
        let range = Range { from_ns: since_ns, until_ns, after: after.map(|After(cursor)| cursor) };
        Ok(ExchangeQuery { range, agents, groups, programs, peers, ports, side, outcomes })
    }

    /// Whether the row's fields match; its time is checked by the range.
    pub(super) fn matches(&self, placed: &FleetRow) -> bool {
        let one_of = |expected: &[String], text: &str| expected.is_empty() || expected.iter().any(|one| one == text);
        let row = &placed.row;
        one_of(&self.agents, &placed.agent)
            && one_of(&self.groups, &placed.group)
            && one_of(&self.programs, row.program.as_deref().unwrap_or_default())
            && one_of(&self.outcomes, &row.outcome)
            && self.side.as_deref().is_none_or(|side| row.side == side)
            && (self.ports.is_empty() || service_port(row).is_some_and(|port| self.ports.contains(&port)))
            && (self.peers.is_empty() || row.peer.as_ref().is_some_and(|peer| self.has_peer(peer.address)))
    }

    fn has_peer(&self, address: TapAddress) -> bool {
        self.peers.iter().any(|expected| match (expected, address) {
            (Peer::Plain(network), TapAddress::Plain(ip)) => network.matches(ip),
            (Peer::Hashed(hash), address) => *hash == address,
            (Peer::Plain(_), TapAddress::Hashed(_)) => false,
        })
    }
}

impl Peer {
    fn of(text: &str) -> Option<Peer> {
        match text.parse() {
            Ok(hash @ TapAddress::Hashed(_)) => Some(Peer::Hashed(hash)),
            _ => text.parse().ok().map(Peer::Plain),
        }
    }
}

/// A cursor as text: the output of [`text_of`].
#[derive(Debug, PartialEq)]
struct After(Cursor);

/// A cursor as text for the next request.
pub(super) fn text_of(cursor: &Cursor) -> String {
    format!("{}.{}.{}.{}", cursor.at_ns, cursor.stream, cursor.sequence, cursor.number)
}

impl FromStr for After {
    type Err = ();

    fn from_str(text: &str) -> Result<After, ()> {
        let mut parts = text.split('.');
        let [Some(at), Some(stream), Some(sequence), Some(number), None] = std::array::from_fn(|_| parts.next()) else {
            return Err(());
        };
        let is_stream = stream.len() == 32 && stream.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_stream {
            return Err(());
        }
        let count = |text: &str| text.parse::<u64>().ok().filter(|count| *count <= i64::MAX as u64).ok_or(());
        let number = number.parse().map_err(|_| ())?;
        Ok(After(Cursor { at_ns: count(at)?, stream: stream.to_owned(), sequence: count(sequence)?, number }))
    }
}

/// Port of the service that the exchange was with: the peer's at a client, the program's own at a server.
fn service_port(row: &TapRow) -> Option<u16> {
    if row.is_clients() { row.peer.as_ref() } else { row.local.as_ref() }.map(|end| end.port)
}

const HOUR_NS: u64 = 3_600_000_000_000;
/// Rows may be ahead of the manager's clock by as much as ingest accepts.
const AHEAD_NS: u64 = 600_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000_000_000_000;

    fn query(query: &str) -> ApiResponse<ExchangeQuery> {
        let known = [CONDITIONS, &["cursor"]].concat();
        ExchangeQuery::of(&mut Parameters::of(&format!("/x?{query}").parse().unwrap(), &known)?, NOW)
    }

    fn row() -> FleetRow {
        let end = |text: &str| text.parse().ok();
        let exchange = schema::TapExchange {
            program: Some("curl".into()),
            peer: end("192.0.2.7:443"),
            local: end("192.0.2.1:50000"),
            outcome: schema::TapOutcome::Failed,
            ..schema::TapExchange::BLANK
        };
        FleetRow {
            agent: "shop-1".into(),
            group: "kyoto".into(),
            stream: "0f".repeat(16),
            sequence: 3,
            number: 9,
            at_unix_ns: 17,
            opened_at_unix_ns: 0,
            zero_unix_ns: 0,
            clock_offset_ns: Some(0),
            share: 1.0,
            row: TapRow::of(&exchange, &TapAddress::Plain),
        }
    }

    #[test]
    fn exchange_filters_match_one_value_of_each_kind() {
        for valid in [
            "",
            "agent=shop-1",
            "agent=other,shop-1&program=curl",
            "group=kyoto&port=443&peer=192.0.2.0/24",
            "peer=192.0.2.7&outcome=failed,cut&side=client",
        ] {
            assert!(query(valid).unwrap().matches(&row()), "{valid}");
        }
        for other in [
            "agent=shop-2",
            "agent=shop-1&program=wget",
            "port=50000",
            "peer=192.0.3.0/24",
            "side=server",
            "agent=",
            "peer=h:0123456789abcdef",
        ] {
            assert!(!query(other).unwrap().matches(&row()), "{other}");
        }
        let mut hashed = row();
        hashed.row.peer.as_mut().unwrap().address = "h:0123456789abcdef".parse().unwrap();
        assert!(
            query("peer=h:0123456789abcdef").unwrap().matches(&hashed)
                && !query("peer=192.0.2.7").unwrap().matches(&hashed)
        );
        let mut served = row();
        served.row.side = "server".into();
        assert!(query("port=50000").unwrap().matches(&served) && !query("port=443").unwrap().matches(&served));
    }

    #[test]
    fn invalid_exchange_filters_are_rejected() {
        for bad in [
            "since=1h&until=2h",
            "since=2027-01-01&until=2027-01-01",
            "peer=nowhere",
            "port=65536",
            "side=both",
            "outcome=good",
            "cursor=1.2",
        ] {
            assert!(query(bad).is_err(), "{bad}");
        }
        let hour = query("").unwrap();
        assert!(hour.range.from_ns == NOW - HOUR_NS && hour.range.until_ns > NOW);
    }

    #[test]
    fn an_exchange_cursor_round_trips() {
        let placed = row();
        let cursor = Cursor::of(&placed);
        assert_eq!(text_of(&cursor).parse(), Ok(After(cursor)));
        let stream = &placed.stream;
        for bad in ["", "1", "1.x.2.3", "1.00.2.3", &format!("-1.{stream}.2.3"), &format!("1.{stream}.2.3.4"), "1..2"] {
            assert!(bad.parse::<After>().is_err(), "{bad}");
        }
    }
}
