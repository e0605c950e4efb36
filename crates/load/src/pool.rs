//! The slots of all connections.

use crate::connection::{Connection, ConnectionKey, State};

/// Slots are reused. The generation of a slot distinguishes its successive connections.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    slots: Vec<Connection>,
    free: Vec<u32>,
    open: u32,
}

impl Pool {
    /// Returns a reset slot in the state ConnectQueued.
    pub(crate) fn take(&mut self) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            assert!(self.slots.len() < 1 << 31, "fewer connections than keys");
            self.slots.push(Connection::new());
            (self.slots.len() - 1) as u32
        });
        self.open += 1;
        let slot = self.at(index);
        debug_assert_eq!(slot.state, State::Free);
        slot.state = State::ConnectQueued;
        slot.connected_at = None;
        slot.secured_at = None;
        slot.requests = 0;
        slot.uses = 0;
        slot.bytes_received = 0;
        slot.is_written = false;
        slot.unacknowledged = 0;
        slot.response.forget_connection();
        index
    }

    /// Marks a slot as closing. It no longer counts as open, since the driver gets its Close before any later Connect.
    pub(crate) fn close(&mut self, index: u32) {
        self.open -= 1;
        self.at(index).state = State::Closing;
    }

    /// Frees a closing slot. Its key is void afterwards.
    pub(crate) fn release(&mut self, index: u32) {
        let slot = self.at(index);
        debug_assert_eq!(slot.state, State::Closing);
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Number of connections that are open or queued to connect; the maximum of connections limits this number.
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    pub(crate) fn at(&mut self, index: u32) -> &mut Connection {
        &mut self.slots[index as usize]
    }

    pub(crate) fn slot(&self, index: u32) -> &Connection {
        &self.slots[index as usize]
    }

    /// Host and port of a slot's connection.
    pub(crate) fn endpoint(&self, index: u32) -> u16 {
        self.slots[index as usize].endpoint
    }

    pub(crate) fn key(&self, index: u32) -> ConnectionKey {
        ConnectionKey { index, generation: self.slots[index as usize].generation }
    }

    /// The connection of a key, unless it is closed.
    pub(crate) fn find(&self, key: ConnectionKey) -> Option<&Connection> {
        self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation && slot.state != State::Free)
    }

    /// Every slot with its index, free ones included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Connection)> {
        self.slots.iter().enumerate().map(|(index, slot)| (index as u32, slot))
    }
}
