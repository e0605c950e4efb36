//! Records between the server's hello and the report of the secrets by the client. A server sends little before it has
//! the client's next message: the rest of its handshake, and answers to early data.

use schema::Direction;
use wire::tls::handshake::ServerHello;

use super::Stop;
use super::record::HEADER;
use crate::out::Out;

/// The records, in the order of capture.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) hello: Chosen,
    records: Vec<Record>,
    bytes: usize,
}

/// What the server has chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) version: u16,
    pub(super) cipher_suite: u16,
    pub(super) random: [u8; 32],
}

/// A record that waits.
#[derive(Debug)]
pub(super) struct Record {
    /// Its time, in nanoseconds.
    pub(super) at: u64,
    pub(super) direction: Direction,
    pub(super) header: [u8; HEADER],
    pub(super) content: Vec<u8>,
}

impl Waiting {
    pub(super) fn new(hello: &ServerHello) -> Waiting {
        let ServerHello { version, cipher_suite, random, .. } = *hello;
        Waiting { hello: Chosen { version, cipher_suite, random }, records: Vec::new(), bytes: 0 }
    }

    /// Adds a record, if there is memory for it.
    pub(super) fn push(
        &mut self,
        direction: Direction,
        header: [u8; HEADER],
        content: Vec<u8>,
        out: &mut Out<'_>,
    ) -> Result<(), Stop> {
        let cost = size_of::<Record>() + content.len();
        if self.bytes + cost > out.limits.held_per_direction || !out.hold(cost) {
            return Err(Stop);
        }
        self.bytes += cost;
        self.records.push(Record { at: out.at, direction, header, content });
        Ok(())
    }

    /// Takes all records, and releases their memory.
    pub(super) fn take(&mut self, out: &mut Out<'_>) -> Vec<Record> {
        out.release(std::mem::take(&mut self.bytes));
        std::mem::take(&mut self.records)
    }

    /// Releases all memory.
    pub(super) fn release(&mut self, out: &mut Out<'_>) {
        drop(self.take(out));
    }
}
