//! The slots of all connections.

use crate::connection::{Connection, ConnectionKey, State};

/// Slots are reused, generations tell their tenants apart.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    slots: Vec<Connection>,
    free: Vec<u32>,
    open: u32,
}

impl Pool {
    /// A slot in state Wanted, as new.
    pub(crate) fn take(&mut self) -> u32 {
        let index = self.free.pop().unwrap_or_else(|| {
            assert!(self.slots.len() < 1 << 31, "fewer connections than keys");
            self.slots.push(Connection::new());
            (self.slots.len() - 1) as u32
        });
        self.open += 1;
        let slot = self.at(index);
        debug_assert_eq!(slot.state, State::Free);
        slot.state = State::Wanted;
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

    /// Marks a slot as closing: it no longer counts against the cap, because its Close is handed out before any
    /// Connect that comes after.
    pub(crate) fn close(&mut self, index: u32) {
        self.open -= 1;
        self.at(index).state = State::Closing;
    }

    /// Gives a closing slot back. Its key is void from here on.
    pub(crate) fn release(&mut self, index: u32) {
        let slot = self.at(index);
        debug_assert_eq!(slot.state, State::Closing);
        slot.state = State::Free;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(index);
    }

    /// Connections open or wanted: what the cap limits.
    pub(crate) fn open(&self) -> u32 {
        self.open
    }

    pub(crate) fn at(&mut self, index: u32) -> &mut Connection {
        &mut self.slots[index as usize]
    }

    pub(crate) fn slot(&self, index: u32) -> &Connection {
        &self.slots[index as usize]
    }

    /// To which host and port a slot's connection leads.
    pub(crate) fn endpoint(&self, index: u32) -> u16 {
        self.slots[index as usize].endpoint
    }

    pub(crate) fn key(&self, index: u32) -> ConnectionKey {
        ConnectionKey { index, generation: self.slots[index as usize].generation }
    }

    /// The connection of a key, unless it is gone.
    pub(crate) fn find(&self, key: ConnectionKey) -> Option<&Connection> {
        self.slots.get(key.index as usize).filter(|slot| slot.generation == key.generation && slot.state != State::Free)
    }

    /// Every slot with its index, free ones included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Connection)> {
        self.slots.iter().enumerate().map(|(index, slot)| (index as u32, slot))
    }
}
