//! Accepts, polls and closes connections.

use std::io::{ErrorKind, Read as _};
use std::time::Duration;

use units::Timestamp;

use super::super::{ACCEPT_PAUSE, ACCEPTS_PER_TURN, ACCEPTS_PER_TURN_MIN, AcceptResult, discard, refuse_more};
use super::{Client, Receiving, Worker};
use crate::connection::Step;
use crate::spec::ServeError;

impl Worker<'_> {
    /// Time until the next deadline.
    pub(super) fn timeouts(&self) -> Option<Duration> {
        let has_work = !self.again.is_empty() || !self.bursts.is_empty() || !self.deferred.is_empty();
        if has_work || (self.knocked && self.accept_again_at.is_none() && self.stop_at.is_none()) {
            return Some(Duration::ZERO);
        }
        let accept_at = self.accept_again_at.unwrap_or(Timestamp::MAX);
        let due_at = self.table.due_at().min(accept_at).min(self.stop_at.unwrap_or(Timestamp::MAX));
        (due_at != Timestamp::MAX).then(|| due_at.since(self.context.now))
    }

    pub(super) fn accept(&mut self) -> Result<(), ServeError> {
        for taken in 0..ACCEPTS_PER_TURN {
            if taken >= ACCEPTS_PER_TURN_MIN && self.context.turn.is_over() {
                break;
            }
            if self.stop_at.is_some() {
                self.knocked = false;
                return Ok(());
            }
            let ring = &mut self.ring;
            let new_client = |stream, link| Client {
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
            let (turn, full) = (self.turn, self.table.length() >= self.env.cap);
            let release = |token, client: Client| client.release(token, turn, ring);
            match self.env.admit(&mut self.table, &mut self.context, new_client, release)? {
                AcceptResult::New(token) => {
                    self.read_without_receive(token);
                    // Another connection was displaced, which makes the next wait longer than all work so far.
                    if full {
                        return Ok(());
                    }
                }
                AcceptResult::Skipped => {}
                // The next wait closes it: each further attempt would displace another one.
                AcceptResult::MadeRoom => return Ok(()),
                AcceptResult::NoneWaiting => {
                    self.knocked = false;
                    return Ok(());
                }
                AcceptResult::Pause => {
                    self.accept_again_at = Some(self.context.now + ACCEPT_PAUSE);
                    return Ok(());
                }
            }
        }
        // Other connections get their turn; `knocked` stays set.
        Ok(())
    }

    /// Reads the input of a connection without a receive. A new connection has usually sent its first request with the
    /// last packet of the handshake.
    pub(super) fn read_without_receive(&mut self, token: u64) {
        let Some(client) = self.table.get(token) else { return };
        client.receiving = Receiving::Nothing;
        match client.link.step() {
            Step::Receive if !client.link.is_full() => match client.stream.read(&mut self.input) {
                Ok(0) => client.link.ended(),
                Ok(length) => {
                    client.heavy |= length == self.input.len();
                    client.link.take(&mut self.context, &self.input[..length]);
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(_) => client.link.broken(),
            },
            Step::Discard => {
                let outcome = discard(&client.stream, &mut client.link, &self.context);
                if outcome.is_err() {
                    client.link.broken();
                }
            }
            // The connection receives no input now: it is polled again later.
            _ => {}
        }
        self.advance(token);
    }

    pub(super) fn close(&mut self, token: u64) {
        let (turn, ring) = (self.turn, &mut self.ring);
        self.env.close(&mut self.table, token, &mut self.context, |token, client: Client| {
            client.release(token, turn, ring);
        });
        if self.accept_again_at.take().is_some() {
            self.knocked = true;
        }
    }

    /// Stops accepting, and closes idle connections.
    pub(super) fn stop(&mut self) {
        self.accept_again_at = None;
        self.stop_at = Some(self.context.now + self.env.limits.stop_time);
        self.context.stopping = true;
        refuse_more(self.env.listener);
        for token in self.table.tokens() {
            if let Some(client) = self.table.get(token) {
                client.link.stop();
                self.advance(token);
            }
        }
    }
}
