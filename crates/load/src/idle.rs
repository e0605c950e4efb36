//! The idle connections of each client, the last used first.

/// A stack for each client, threaded through two arrays: no allocation once every slot has been seen.
#[derive(Debug)]
pub(crate) struct IdleByClient {
    tops: Vec<u32>,
    links: Vec<(u32, u32)>,
}

/// No slot: end of a stack.
const NONE: u32 = u32::MAX;

impl IdleByClient {
    pub(crate) fn new(clients: u32) -> Self {
        IdleByClient { tops: vec![NONE; clients as usize], links: Vec::new() }
    }

    /// Puts slot `index` on top of its client's stack. It must be on none.
    pub(crate) fn push(&mut self, client: u32, index: u32) {
        if self.links.len() <= index as usize {
            self.links.resize(index as usize + 1, (NONE, NONE));
        }
        let below = std::mem::replace(&mut self.tops[client as usize], index);
        self.links[index as usize] = (NONE, below);
        if below != NONE {
            self.links[below as usize].0 = index;
        }
    }

    /// Takes slot `index` off its client's stack. It must be on it.
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
        }
    }

    /// The client's idle connections, the last used first: it is the least likely to have been closed by the server.
    pub(crate) fn of(&self, client: u32) -> impl Iterator<Item = u32> + '_ {
        let linked = |index: u32| (index != NONE).then_some(index);
        std::iter::successors(linked(self.tops[client as usize]), move |&index| linked(self.links[index as usize].1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_used_comes_first_and_any_can_go() {
        let mut idle = IdleByClient::new(2);
        for index in [3, 0, 5] {
            idle.push(1, index);
        }
        idle.push(0, 7);
        let of = |idle: &IdleByClient, client| idle.of(client).collect::<Vec<_>>();
        assert_eq!(of(&idle, 1), [5, 0, 3]);
        idle.remove(1, 0);
        assert_eq!(of(&idle, 1), [5, 3]);
        idle.remove(1, 5);
        idle.remove(1, 3);
        assert_eq!(of(&idle, 1), Vec::<u32>::new());
        assert_eq!(of(&idle, 0), [7]);
    }
}
