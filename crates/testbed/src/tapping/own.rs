//! The load of this program under its own tap.
//!
//! Only the load of this program is recorded. Processes that it starts (the server of the testbed, the init of a
//! sandbox) are recognised by their origin: a copy created by a fork that the library saw is a shard; one created by a
//! raw clone is a sandbox, and so are all its descendants.

use std::collections::HashSet;

use tap::event::{Event, EventKind, Origin};

/// Processes that belong to the load.
#[derive(Debug)]
pub(super) struct OwnImages {
    pid: u32,
    images: HashSet<u32>,
}

impl OwnImages {
    /// The load of process `pid`.
    pub(super) fn new(pid: u32) -> Self {
        OwnImages { pid, images: HashSet::new() }
    }

    /// Whether an event belongs to the load.
    pub(super) fn has(&mut self, event: &Event) -> bool {
        let Origin { image, pid, .. } = event.origin;
        match &event.what {
            EventKind::Loaded { .. } if pid == self.pid && self.images.is_empty() => self.images.insert(image),
            EventKind::Forked { parent_image, .. } if self.images.contains(parent_image) => {
                self.images.insert(image);
                true
            }
            // A copy that executes another program does not belong to the load.
            EventKind::Executing { .. } => false,
            // Records of threads without a ring may belong to any process.
            EventKind::Lost { .. } if image == 0 => true,
            _ => self.images.contains(&image),
        }
    }
}

#[cfg(test)]
mod tests {
    use units::Timestamp;

    use super::*;

    fn event(image: u32, pid: u32, what: EventKind) -> Event {
        Event { origin: Origin { image, pid, tid: pid, space: 0 }, what }
    }

    fn forked(image: u32, pid: u32, parent_image: u32) -> Event {
        let what =
            EventKind::Forked { at: Timestamp::ZERO, parent_image, parent_pid: 1, fork: 0, program: "yamabiko".into() };
        event(image, pid, what)
    }

    #[test]
    fn shards_belong_to_the_load_and_sandboxes_do_not() {
        let loaded = |image, pid| {
            event(image, pid, EventKind::Loaded { at: Timestamp::ZERO, parent_pid: 1, program: "yamabiko".into() })
        };
        let executing = |image, pid| EventKind::Executing {
            at: Timestamp::ZERO,
            pid,
            path: "/bin/sh".into(),
            preloaded: image == 0,
        };
        let aside = || EventKind::Aside { at: Timestamp::ZERO, datagram_sockets: 0, uring_setups: 0, unfollowed: 0 };
        let mut own = OwnImages::new(77);
        assert!(!own.has(&event(1, 77, aside())), "an event before the process reported its start does not count");
        assert!(own.has(&loaded(1, 77)) && own.has(&event(1, 77, aside())));
        assert!(
            !own.has(&forked(2, 1, 0)),
            "the init of a sandbox, created by a raw clone, does not belong to the load"
        );
        assert!(!own.has(&forked(3, 2, 2)) && !own.has(&event(3, 2, executing(3, 2))));
        assert!(own.has(&forked(4, 78, 1)) && own.has(&event(4, 78, aside())), "a shard belongs to the load");
        assert!(!own.has(&event(4, 78, executing(4, 78))));
        assert!(
            !own.has(&loaded(5, 77)),
            "a process with the same number in another namespace does not belong to the load"
        );
        assert!(
            own.has(&event(0, 0, EventKind::Lost { records: 3 }))
                && !own.has(&event(3, 2, EventKind::Lost { records: 3 }))
        );
    }
}
