//! The load of this program under its own tap.
//!
//! Of this program only the load is followed: it is the client that the tap stands beside. What it starts (the server of the
//! lab, the init of a place) is told apart by its image: a copy that was made by a fork that the library saw is a lane;
//! one made by a raw clone is a place, and so is whatever comes from it.

use std::collections::HashSet;

use tap::event::{Event, Origin, What};

/// Which images are the load's.
#[derive(Debug)]
pub(super) struct OwnImages {
    pid: u32,
    images: HashSet<u32>,
}

impl OwnImages {
    /// Of the process `pid`.
    pub(super) fn new(pid: u32) -> Self {
        OwnImages { pid, images: HashSet::new() }
    }

    /// Whether an event is the load's.
    pub(super) fn has(&mut self, event: &Event) -> bool {
        let Origin { image, pid, .. } = event.origin;
        match &event.what {
            What::Loaded { .. } if pid == self.pid && self.images.is_empty() => self.images.insert(image),
            What::Forked { parent_image, .. } if self.images.contains(parent_image) => {
                self.images.insert(image);
                true
            }
            // What a copy becomes is no load any more, and its own affair.
            What::Executing { .. } => false,
            // Records of threads that found no ring may have been anybody's.
            What::Lost { .. } if image == 0 => true,
            _ => self.images.contains(&image),
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Timestamp;

    use super::*;

    fn event(image: u32, pid: u32, what: What) -> Event {
        Event { origin: Origin { image, pid, tid: pid, space: 0 }, what }
    }

    fn forked(image: u32, pid: u32, parent_image: u32) -> Event {
        let what =
            What::Forked { at: Timestamp::ZERO, parent_image, parent_pid: 1, fork: 0, program: "yamabiko".into() };
        event(image, pid, what)
    }

    #[test]
    fn lanes_are_the_load_and_places_are_not() {
        let loaded = |image, pid| {
            event(image, pid, What::Loaded { at: Timestamp::ZERO, parent_pid: 1, program: "yamabiko".into() })
        };
        let executing =
            |image, pid| What::Executing { at: Timestamp::ZERO, pid, path: "/bin/sh".into(), preloaded: image == 0 };
        let aside = || What::Aside { at: Timestamp::ZERO, datagram_sockets: 0, uring_setups: 0, unfollowed: 0 };
        let mut own = OwnImages::new(77);
        assert!(!own.has(&event(1, 77, aside())), "before it said that it is there");
        assert!(own.has(&loaded(1, 77)) && own.has(&event(1, 77, aside())));
        assert!(!own.has(&forked(2, 1, 0)), "the init of a place, by a raw clone");
        assert!(!own.has(&forked(3, 2, 2)) && !own.has(&event(3, 2, executing(3, 2))));
        assert!(own.has(&forked(4, 78, 1)) && own.has(&event(4, 78, aside())), "a lane");
        assert!(!own.has(&event(4, 78, executing(4, 78))));
        assert!(!own.has(&loaded(5, 77)), "its number in another namespace");
        assert!(own.has(&event(0, 0, What::Lost { records: 3 })) && !own.has(&event(3, 2, What::Lost { records: 3 })));
    }
}
