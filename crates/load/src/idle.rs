//! The idle connections of each client, the most recently used first.

/// A stack of connections for each client, as linked lists in shared arrays, without allocation per connection.
#[derive(Debug)]
pub(crate) struct IdleByClient {
    tops: Vec<u32>,
    /// The bottoms of the stacks; empty unless [`Self::track_bottoms`] was called.
    bottoms: Vec<u32>,
    links: Vec<(u32, u32)>,
}

/// Marks the end of a stack.
const NONE: u32 = u32::MAX;

impl IdleByClient {
    pub(crate) fn new(clients: u32) -> Self {
        IdleByClient { tops: vec![NONE; clients as usize], bottoms: Vec::new(), links: Vec::new() }
    }

    /// Enables [`Self::longest_of`]. Call before any connection is idle.
    pub(crate) fn track_bottoms(&mut self) {
        debug_assert!(self.tops.iter().all(|&top| top == NONE), "no connection is idle yet");
        self.bottoms = vec![NONE; self.tops.len()];
    }

    /// Puts slot `index` on top of its client's stack. The slot must not be on a stack.
    pub(crate) fn push(&mut self, client: u32, index: u32) {
        if self.links.len() <= index as usize {
            self.links.resize(index as usize + 1, (NONE, NONE));
        }
        let below = std::mem::replace(&mut self.tops[client as usize], index);
        self.links[index as usize] = (NONE, below);
        if below != NONE {
            self.links[below as usize].0 = index;
        } else if let Some(bottom) = self.bottoms.get_mut(client as usize) {
            *bottom = index;
        }
    }

    /// Removes slot `index` from its client's stack. The slot must be on that stack.
    pub(crate) fn remove(&mut self, client: u32, index: u32) {
        let (above, below) = self.links[index as usize];
        if above == NONE {
            debug_assert_eq!(self.tops[client as usize], index, "slot {index} is not idle");
            self.tops[client as usize] = below;
        } else {
            self.links[above as usize].1 = below;
        }
        if below != NONE {
            self.links[below as usize].0 = above;
        } else if let Some(bottom) = self.bottoms.get_mut(client as usize) {
            *bottom = above;
        }
    }

    /// The client's idle connections, the most recently used first: the server is least likely to have closed that one.
    pub(crate) fn of(&self, client: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(linked(self.tops[client as usize]), |&index| linked(self.links[index as usize].1))
    }

    /// The client's idle connections, the longest idle first; empty without [`Self::track_bottoms`].
    pub(crate) fn longest_of(&self, client: u32) -> impl Iterator<Item = u32> + '_ {
        let bottom = self.bottoms.get(client as usize).copied().unwrap_or(NONE);
        std::iter::successors(linked(bottom), |&index| linked(self.links[index as usize].0))
    }
}

fn linked(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_are_taken_last_used_first_and_removed_in_any_order() {
        let mut idle = IdleByClient::new(2);
        for index in [3, 0, 5] {
            idle.push(1, index);
        }
        idle.push(0, 7);
        assert_eq!(idle.longest_of(1).count(), 0, "the order by idle time is not enabled");
        let of = |idle: &IdleByClient, client| idle.of(client).collect::<Vec<_>>();
        assert_eq!(of(&idle, 1), [5, 0, 3]);
        idle.remove(1, 0);
        assert_eq!(of(&idle, 1), [5, 3]);
        idle.remove(1, 5);
        idle.remove(1, 3);
        assert_eq!(of(&idle, 1), Vec::<u32>::new());
        assert_eq!(of(&idle, 0), [7]);
    }

    #[test]
    fn idle_connections_are_taken_longest_idle_first() {
        let mut idle = IdleByClient::new(2);
        idle.track_bottoms();
        for index in [3, 0, 5] {
            idle.push(1, index);
        }
        let both = |idle: &IdleByClient| {
            let (mut first, longest) = (idle.of(1).collect::<Vec<_>>(), idle.longest_of(1).collect::<Vec<_>>());
            first.reverse();
            assert_eq!(first, longest);
            longest
        };
        assert_eq!(both(&idle), [3, 0, 5]);
        idle.remove(1, 3);
        idle.push(1, 3);
        assert_eq!(both(&idle), [0, 5, 3]);
        idle.remove(1, 5);
        idle.remove(1, 3);
        assert_eq!(both(&idle), [0]);
        idle.remove(1, 0);
        assert_eq!(both(&idle), Vec::<u32>::new());
        idle.push(1, 5);
        assert_eq!((both(&idle), idle.longest_of(0).count()), (vec![5], 0));
    }
}
