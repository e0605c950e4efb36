//! Clients that move their QUIC connections to another port of their own at a given time (`--change '10s: migrate'`).

use std::ops::Range;

use path::{Change, ChangeKind, ChangedLinks};
use schema::FailureCause;
use sys::clock::Clock;
use units::Timestamp;

use super::{LoadIo, connect_cause};
use crate::drive::poller::Poller;

/// One move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Migration {
    at: Timestamp,
    clients: Range<u32>,
}

impl Migration {
    /// The moves among a path's changes, which count from `start`; the latest first.
    pub(crate) fn of(changes: &[Change], start: Timestamp) -> Vec<Migration> {
        let mut moves: Vec<Migration> = changes
            .iter()
            .filter(|change| change.kind == ChangeKind::Migrate)
            .filter_map(|change| match &change.place {
                ChangedLinks::Clients(clients) => Some(Migration { at: start + change.at, clients: clients.clone() }),
                ChangedLinks::Shared(_) => None,
            })
            .collect();
        moves.sort_by_key(|migration| std::cmp::Reverse(migration.at));
        moves
    }
}

impl LoadIo {
    /// Adds moves, the latest first. After [`Self::with_quic`].
    pub(crate) fn with_migrations(mut self, migrations: Vec<Migration>) -> Self {
        if let Some(quic) = self.quic.as_mut().filter(|_| !migrations.is_empty()) {
            quic.expect_migrations();
            self.migrations = migrations;
        }
        self
    }

    /// The next move.
    pub(super) fn next_migration(&self) -> Option<Timestamp> {
        self.migrations.last().map(|migration| migration.at)
    }

    /// Makes the moves that are due.
    pub(super) fn migrate_due(&mut self, now: Timestamp, poller: &mut Poller, clock: &Clock) {
        while let Some(migration) = self.migrations.pop_if(|migration| migration.at <= now) {
            let connections = self.quic.as_ref().map(|quic| quic.connections_of(&migration.clients));
            for key in connections.unwrap_or_default() {
                let Some(quic) = &mut self.quic else { return };
                let outcome = quic.migrate(key).and_then(|udp| match udp {
                    Some(udp) => poller.watch_datagrams(udp, key).map(|()| true),
                    None => Ok(false),
                });
                match outcome {
                    Ok(true) => self.mark_changed(key),
                    Ok(false) => {}
                    Err(error) => {
                        let is_full = error.raw_os_error() == Some(libc::EAGAIN);
                        let cause = if is_full { FailureCause::NoPorts } else { connect_cause(&error) };
                        self.drop_quic(key, cause, clock);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moves_are_made_in_order_of_time_and_other_changes_are_none() {
        let change = |at: u64, kind| Change {
            at: Duration::from_secs(at),
            duration: None,
            place: ChangedLinks::Clients(0..2),
            kind,
        };
        let changes = [change(1, ChangeKind::Migrate), change(3, ChangeKind::Migrate), change(2, ChangeKind::Rebind)];
        let start = Timestamp::from_nanos(5);
        let mut moves = Migration::of(&changes, start);
        let times: Vec<Timestamp> = std::iter::from_fn(|| moves.pop()).map(|migration| migration.at).collect();
        assert_eq!(times, [1, 3].map(|at| start + Duration::from_secs(at)));
    }
}
