//! The connections of one worker: by token, by last use, and by deadline.

use std::time::Duration;

use units::Timestamp;

use super::wheel::Wheel;

/// Connections by token. A token is an index and the generation of its entry, so that events of an earlier connection
/// are recognised.
#[derive(Debug)]
pub(crate) struct Table<C> {
    slots: Vec<Slot<C>>,
    /// Indices of free entries.
    free: Vec<u32>,
    /// Ends of the list by last use, as indices: the least and the most recently used.
    ends: (u32, u32),
    wheel: Wheel,
    due: Vec<u64>,
    due_tick: u64,
}

#[derive(Debug)]
struct Slot<C> {
    generation: u32,
    /// Neighbours in the list by last use.
    before: u32,
    after: u32,
    /// The tick of the timer wheel for this connection.
    tick: u64,
    connection: Option<C>,
}

impl<C> Table<C> {
    /// Checks deadlines every `tick`.
    pub fn new(tick: Duration, now: Timestamp) -> Self {
        let wheel = Wheel::new(tick, now);
        Table { slots: Vec::new(), free: Vec::new(), ends: (NONE, NONE), wheel, due: Vec::new(), due_tick: 0 }
    }

    /// Number of connections.
    pub fn length(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The token that [`Table::insert`] will return.
    pub fn next_token(&self) -> u64 {
        let index = self.free.last().copied().unwrap_or(self.slots.len() as u32);
        token(index, self.slots.get(index as usize).map_or(0, |slot| slot.generation))
    }

    /// Adds a connection as the most recently used.
    pub fn insert(&mut self, connection: C) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, before: NONE, after: NONE, tick: u64::MAX, connection: None });
            self.slots.len() as u32 - 1
        });
        self.slots[index as usize].connection = Some(connection);
        self.link_last(index);
        token(index, self.slots[index as usize].generation)
    }

    /// The connection of a token, unless it was removed.
    pub fn get(&mut self, token: u64) -> Option<&mut C> {
        self.slot(token)?.connection.as_mut()
    }

    /// Removes a connection.
    pub fn remove(&mut self, token: u64) -> Option<C> {
        let slot = self.slot(token)?;
        let connection = slot.connection.take()?;
        slot.generation = (slot.generation + 1) & GENERATION_MASK;
        slot.tick = u64::MAX;
        let index = index_of(token);
        self.unlink(index);
        self.free.push(index);
        Some(connection)
    }

    /// Marks a connection as most recently used.
    pub fn used(&mut self, token: u64) {
        let index = index_of(token);
        if self.ends.1 != index && self.slot(token).is_some() {
            self.unlink(index);
            self.link_last(index);
        }
    }

    /// The longest idle connection that has been idle for at least `least`, among the first few in that order.
    /// `spare_for` returns the idle time, `None` during a response: such a connection moves to the end of the list;
    /// otherwise some hundred of them would hide all others.
    pub fn oldest(&mut self, least: Duration, spare_for: impl Fn(&C) -> Option<Duration>) -> Option<u64> {
        let mut index = self.ends.0;
        for _ in 0..EXAMINED_MAX {
            let slot = self.slots.get(index as usize)?;
            let (after, token) = (slot.after, token(index, slot.generation));
            match slot.connection.as_ref().and_then(&spare_for) {
                Some(spare) if spare >= least => return Some(token),
                Some(_) => {}
                None => self.used(token),
            }
            index = after;
        }
        None
    }

    /// Schedules a connection for its deadline.
    pub fn schedule(&mut self, token: u64, deadline: Timestamp) {
        let tick = self.wheel.tick_of(deadline);
        let index = index_of(token) as usize;
        if tick < self.slots[index].tick {
            self.slots[index].tick = tick;
            self.wheel.enter(tick, token);
        }
    }

    /// A connection whose deadline may have expired. Until this returns `None`, each must be removed or scheduled
    /// again.
    pub fn due(&mut self, now: Timestamp) -> Option<u64> {
        loop {
            while let Some(token) = self.due.pop() {
                let tick = self.due_tick;
                if let Some(slot) = self.slot(token)
                    && slot.tick == tick
                {
                    slot.tick = u64::MAX;
                    return Some(token);
                }
            }
            self.due_tick = self.wheel.turn(now, &mut self.due)?;
        }
    }

    /// When to call [`Table::due`] next.
    pub fn due_at(&self) -> Timestamp {
        if self.wheel.is_empty() { Timestamp::MAX } else { self.wheel.next_at() }
    }

    /// All tokens, for iteration with removals.
    pub fn tokens(&self) -> Vec<u64> {
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| slot.connection.is_some());
        slots.map(|(index, slot)| token(index as u32, slot.generation)).collect()
    }

    fn slot(&mut self, token: u64) -> Option<&mut Slot<C>> {
        let generation = (token >> 32) as u32;
        self.slots.get_mut(index_of(token) as usize).filter(|slot| slot.generation == generation)
    }

    fn link_last(&mut self, index: u32) {
        let last = self.ends.1;
        let slot = &mut self.slots[index as usize];
        (slot.before, slot.after) = (last, NONE);
        match self.slots.get_mut(last as usize) {
            Some(before) => before.after = index,
            None => self.ends.0 = index,
        }
        self.ends.1 = index;
    }

    fn unlink(&mut self, index: u32) {
        let Slot { before, after, .. } = self.slots[index as usize];
        match self.slots.get_mut(before as usize) {
            Some(slot) => slot.after = after,
            None => self.ends.0 = after,
        }
        match self.slots.get_mut(after as usize) {
            Some(slot) => slot.before = before,
            None => self.ends.1 = before,
        }
    }
}

fn token(index: u32, generation: u32) -> u64 {
    u64::from(generation) << 32 | u64::from(index)
}

fn index_of(token: u64) -> u32 {
    token as u32
}

/// No index: a process never has this many descriptors.
const NONE: u32 = u32::MAX;
/// Tokens stay below 2^60, which leaves an engine bits of its own.
const GENERATION_MASK: u32 = (1 << 28) - 1;
/// Connections examined in the search for an idle one.
const EXAMINED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_token_is_invalid_after_its_connection_is_removed() {
        let mut table = Table::new(Duration::from_millis(10), at(0));
        let foreseen = table.next_token();
        let first = table.insert('a');
        assert_eq!(foreseen, first);
        assert_eq!(table.remove(first), Some('a'));
        let foreseen = table.next_token();
        let second = table.insert('b');
        assert_eq!(foreseen, second);
        assert_ne!(first, second);
        assert_eq!(table.get(first), None);
        assert_eq!(table.remove(first), None);
        assert_eq!(table.get(second), Some(&mut 'b'));
        assert_eq!((table.length(), table.tokens()), (1, vec![second]));
    }

    #[test]
    fn the_longest_idle_connection_is_found() {
        let mut table = Table::new(Duration::from_millis(10), at(0));
        let [a, b, c] = ['a', 'b', 'c'].map(|name| table.insert(name));
        let second = Duration::from_secs(1);
        let long = |_: &char| Some(second);
        assert_eq!(table.oldest(second, long), Some(a));
        table.used(a);
        assert_eq!(table.oldest(second, long), Some(b));
        assert_eq!(table.oldest(second, |&name| Some(if name == 'b' { second / 2 } else { second })), Some(c));
        table.remove(b);
        table.used(c);
        assert_eq!(table.oldest(second, long), Some(a));
        table.remove(a);
        table.remove(c);
        assert_eq!(table.oldest(second, long), None);
        let d = table.insert('d');
        table.used(d);
        assert_eq!(table.oldest(second, long), Some(d));
    }

    #[test]
    fn busy_connections_do_not_hide_idle_ones() {
        let mut table = Table::new(Duration::from_millis(10), at(0));
        let busy = 3 * EXAMINED_MAX;
        for _ in 0..busy {
            table.insert(None);
        }
        let spare = table.insert(Some(Duration::from_secs(9)));
        // Each search examines a limited number and continues where the last one stopped.
        let found = (0..4).map(|_| table.oldest(Duration::from_secs(1), |&spare| spare)).find_map(|found| found);
        assert_eq!(found, Some(spare));
        assert_eq!(table.remove(spare), Some(Some(Duration::from_secs(9))));
        assert_eq!(table.oldest(Duration::from_secs(1), |&spare| spare), None);
        assert_eq!(table.tokens().len(), busy);
    }

    #[test]
    fn a_deadline_can_move_earlier_or_later_and_fires_once() {
        let mut table = Table::new(Duration::from_millis(10), at(0));
        let token = table.insert(());
        table.schedule(token, at(1000));
        table.schedule(token, at(100));
        table.schedule(token, at(500));
        assert_eq!(table.due(at(100)), None);
        // At the earliest tick the owner reports the later deadline.
        assert_eq!(table.due(at(120)), Some(token));
        table.schedule(token, at(500));
        assert_eq!(table.due(at(499)), None);
        assert_eq!(table.due(at(520)), Some(token));
        // The first entry is stale.
        assert_eq!(table.due(at(2000)), None);
        assert_eq!(table.due_at(), Timestamp::MAX);
        table.schedule(token, at(3000));
        table.remove(token);
        assert_eq!(table.due(at(4000)), None);
    }
}
