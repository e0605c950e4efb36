//! Connections that come and go: accepted, looked at again, closed.

use std::io::{ErrorKind, Read as _};
use std::time::Duration;

use units::Timestamp;

use super::super::{ACCEPT_PAUSE, ACCEPTS, ACCEPTS_AT_LEAST, Admitted, discard, refuse_more};
use super::{Client, Receiving, Worker};
use crate::connection::Step;
use crate::spec::ServeError;

impl Worker<'_> {
    /// How long nothing can fall due.
    pub(super) fn patience(&self) -> Option<Duration> {
        let has_work = !self.again.is_empty() || !self.bursts.is_empty() || !self.strangers.is_empty();
        if has_work || (self.knocked && self.accept_again_at.is_none() && self.stop_at.is_none()) {
            return Some(Duration::ZERO);
        }
        let accept_at = self.accept_again_at.unwrap_or(Timestamp::MAX);
        let due_at = self.table.due_at().min(accept_at).min(self.stop_at.unwrap_or(Timestamp::MAX));
        (due_at != Timestamp::MAX).then(|| due_at.since(self.desk.now))
    }

    pub(super) fn accept(&mut self) -> Result<(), ServeError> {
        for taken in 0..ACCEPTS {
            if taken >= ACCEPTS_AT_LEAST && self.desk.turn.is_over() {
                break;
            }
            if self.stop_at.is_some() {
                self.knocked = false;
                return Ok(());
            }
            let ring = &mut self.ring;
            let seat = |stream, link| Client {
                stream,
                link,
                receiving: Receiving::Nothing,
                blocked: false,
                queued: false,
                copied: None,
                sent_in: 0,
                receives_behind: false,
                short: false,
                accepted_in: self.turn,
                known: false,
                heavy: false,
                waiting: 0,
                cancelled_in: 0,
            };
            let (turn, full) = (self.turn, self.table.length() >= self.ground.cap);
            let let_go = |token, client: Client| client.let_go(token, turn, ring);
            match self.ground.admit(&mut self.table, &mut self.desk, seat, let_go)? {
                Admitted::New(token) => {
                    self.look_at(token);
                    // Another was let go for it, which takes the next wait longer than all that was done here.
                    if full {
                        return Ok(());
                    }
                }
                Admitted::Skipped => {}
                // It is closed by the next wait: until then each further try would cost one more.
                Admitted::MadeRoom => return Ok(()),
                Admitted::Nobody => {
                    self.knocked = false;
                    return Ok(());
                }
                Admitted::Pause => {
                    self.accept_again_at = Some(self.desk.now + ACCEPT_PAUSE);
                    return Ok(());
                }
            }
        }
        // The others have their turn; `knocked` remains.
        Ok(())
    }

    /// Reads what a connection that is not received from has sent. One that is new has usually sent its first request, with the
    /// handshake's last packet.
    pub(super) fn look_at(&mut self, token: u64) {
        let Some(client) = self.table.get(token) else { return };
        client.receiving = Receiving::Nothing;
        match client.link.step() {
            Step::Go if !client.link.is_full() => match client.stream.read(&mut self.input) {
                Ok(0) => client.link.ended(),
                Ok(length) => {
                    client.heavy |= length == self.input.len();
                    client.link.take(&mut self.desk, &self.input[..length]);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => client.link.broken(),
            },
            Step::Discard => {
                let outcome = discard(&client.stream, &mut client.link, &self.desk);
                if outcome.is_err() {
                    client.link.broken();
                }
            }
            // Nothing is to be received now: it is looked at again when that has changed.
            _ => {}
        }
        self.advance(token);
    }

    pub(super) fn close(&mut self, token: u64) {
        let (turn, ring) = (self.turn, &mut self.ring);
        self.ground.close(&mut self.table, token, &mut self.desk, |token, client: Client| {
            client.let_go(token, turn, ring);
        });
        if self.accept_again_at.take().is_some() {
            self.knocked = true;
        }
    }

    /// Takes no more connections, and ends those that are not busy.
    pub(super) fn stop(&mut self) {
        self.accept_again_at = None;
        self.stop_at = Some(self.desk.now + self.ground.limits.stop_time);
        self.desk.stopping = true;
        refuse_more(self.ground.listener);
        for token in self.table.tokens() {
            if let Some(client) = self.table.get(token) {
                client.link.stop();
                self.advance(token);
            }
        }
    }
}
