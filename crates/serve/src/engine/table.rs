//! The connections of one worker: where they are, which has been silent longest, which is due.

use std::time::Duration;

use units::Timestamp;

use super::wheel::Wheel;

/// Connections by token. A token is an index and the generation of its place, so that a report for an earlier tenant is told
/// from one for this one.
#[derive(Debug)]
pub(super) struct Table<C> {
    places: Vec<Place<C>>,
    /// Indices of empty places.
    free: Vec<u32>,
    /// Ends of the order by last use, as indices: the one unused longest, the one used last.
    ends: (u32, u32),
    wheel: Wheel,
    due: Vec<u64>,
    due_tick: u64,
}

#[derive(Debug)]
struct Place<C> {
    generation: u32,
    /// Neighbours in the order by last use.
    before: u32,
    after: u32,
    /// The wheel's tick at which this connection comes up.
    tick: u64,
    tenant: Option<C>,
}

impl<C> Table<C> {
    /// Looks for deadlines every `tick`.
    pub fn new(tick: Duration, now: Timestamp) -> Self {
        let wheel = Wheel::new(tick, now);
        Table { places: Vec::new(), free: Vec::new(), ends: (NONE, NONE), wheel, due: Vec::new(), due_tick: 0 }
    }

    /// How many there are.
    pub fn length(&self) -> usize {
        self.places.len() - self.free.len()
    }

    /// The token that [`Table::insert`] gives next.
    pub fn next_token(&self) -> u64 {
        let index = self.free.last().copied().unwrap_or(self.places.len() as u32);
        token(index, self.places.get(index as usize).map_or(0, |place| place.generation))
    }

    /// Takes in a connection, as the one used last.
    pub fn insert(&mut self, connection: C) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { generation: 0, before: NONE, after: NONE, tick: u64::MAX, tenant: None });
            self.places.len() as u32 - 1
        });
        self.places[index as usize].tenant = Some(connection);
        self.link_last(index);
        token(index, self.places[index as usize].generation)
    }

    /// The connection of a token, unless it is gone.
    pub fn get(&mut self, token: u64) -> Option<&mut C> {
        self.place(token)?.tenant.as_mut()
    }

    /// Lets a connection go.
    pub fn remove(&mut self, token: u64) -> Option<C> {
        let place = self.place(token)?;
        let tenant = place.tenant.take()?;
        place.generation = (place.generation + 1) & GENERATION_MASK;
        place.tick = u64::MAX;
        let index = index_of(token);
        self.unlink(index);
        self.free.push(index);
        Some(tenant)
    }

    /// Notes that a connection is of use: others make room before it.
    pub fn used(&mut self, token: u64) {
        let index = index_of(token);
        if self.ends.1 != index && self.place(token).is_some() {
            self.unlink(index);
            self.link_last(index);
        }
    }

    /// The one unused longest that has been spare for `least`, among the first few in that order. `spare_for` says for how
    /// long a connection has been so, `None` of one that is in the middle of an answer: that is of use now, and goes to the
    /// end of the order, or a few hundred of them would stand before all others for as long as they take.
    pub fn oldest(&mut self, least: Duration, spare_for: impl Fn(&C) -> Option<Duration>) -> Option<u64> {
        let mut index = self.ends.0;
        for _ in 0..LOOKS {
            let place = self.places.get(index as usize)?;
            let (after, token) = (place.after, token(index, place.generation));
            match place.tenant.as_ref().and_then(&spare_for) {
                Some(spare) if spare >= least => return Some(token),
                Some(_) => {}
                None => self.used(token),
            }
            index = after;
        }
        None
    }

    /// Makes sure that a connection comes up when it is due.
    pub fn schedule(&mut self, token: u64, deadline: Timestamp) {
        let tick = self.wheel.tick_of(deadline);
        let index = index_of(token) as usize;
        if tick < self.places[index].tick {
            self.places[index].tick = tick;
            self.wheel.enter(tick, token);
        }
    }

    /// A connection whose deadline may have come. Until it is `None`, each must be removed or scheduled anew.
    pub fn due(&mut self, now: Timestamp) -> Option<u64> {
        loop {
            while let Some(token) = self.due.pop() {
                let tick = self.due_tick;
                if let Some(place) = self.place(token)
                    && place.tick == tick
                {
                    place.tick = u64::MAX;
                    return Some(token);
                }
            }
            self.due_tick = self.wheel.turn(now, &mut self.due)?;
        }
    }

    /// When to ask for due ones next.
    pub fn due_at(&self) -> Timestamp {
        if self.wheel.is_empty() { Timestamp::MAX } else { self.wheel.next_at() }
    }

    /// All tokens, to go through while connections are removed.
    pub fn tokens(&self) -> Vec<u64> {
        let places = self.places.iter().enumerate().filter(|(_, place)| place.tenant.is_some());
        places.map(|(index, place)| token(index as u32, place.generation)).collect()
    }

    fn place(&mut self, token: u64) -> Option<&mut Place<C>> {
        let generation = (token >> 32) as u32;
        self.places.get_mut(index_of(token) as usize).filter(|place| place.generation == generation)
    }

    fn link_last(&mut self, index: u32) {
        let last = self.ends.1;
        let place = &mut self.places[index as usize];
        (place.before, place.after) = (last, NONE);
        match self.places.get_mut(last as usize) {
            Some(before) => before.after = index,
            None => self.ends.0 = index,
        }
        self.ends.1 = index;
    }

    fn unlink(&mut self, index: u32) {
        let Place { before, after, .. } = self.places[index as usize];
        match self.places.get_mut(before as usize) {
            Some(place) => place.after = after,
            None => self.ends.0 = after,
        }
        match self.places.get_mut(after as usize) {
            Some(place) => place.before = before,
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

/// No index: there are never so many descriptors.
const NONE: u32 = u32::MAX;
/// Tokens stay below 2^60, so that an engine has room for marks of its own.
const GENERATION_MASK: u32 = (1 << 28) - 1;
/// Connections looked at for one that may go.
const LOOKS: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_token_dies_with_its_connection() {
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
    fn the_one_unused_longest_makes_room() {
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
    fn those_that_are_busy_do_not_stand_before_the_others() {
        let mut table = Table::new(Duration::from_millis(10), at(0));
        let busy = 3 * LOOKS;
        for _ in 0..busy {
            table.insert(None);
        }
        let spare = table.insert(Some(Duration::from_secs(9)));
        // A bounded number of looks each time, and each time nearer.
        let found = (0..4).map(|_| table.oldest(Duration::from_secs(1), |&spare| spare)).find_map(|found| found);
        assert_eq!(found, Some(spare));
        assert_eq!(table.remove(spare), Some(Some(Duration::from_secs(9))));
        assert_eq!(table.oldest(Duration::from_secs(1), |&spare| spare), None);
        assert_eq!(table.tokens().len(), busy);
    }

    #[test]
    fn a_deadline_moves_both_ways_and_comes_up_once() {
        let mut table = Table::new(Duration::from_millis(10), at(0));
        let token = table.insert(());
        table.schedule(token, at(1000));
        table.schedule(token, at(100));
        table.schedule(token, at(500));
        assert_eq!(table.due(at(100)), None);
        // At the earliest of them the owner is asked, and says that there is more.
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
