//! The running process images, and their processes.
//!
//! A process number is unique in its PID namespace only, and a process may become another image by exec. So images
//! are followed, and the latest image of a process ends the earlier ones.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use units::Timestamp;

use crate::event::{Origin, Owner};
use crate::rings::INDEX_SHIFT;

/// Images that reported events and have not ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Processes {
    images: BTreeMap<u32, LiveImage>,
    latest: HashMap<Owner, u32>,
    /// Number of images, by the index of their users' rings.
    of_users: BTreeMap<u32, usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct LiveImage {
    owner: Owner,
    at: Timestamp,
}

/// Maximum images: more than any machine runs, and the limit for forged ones.
pub(super) const IMAGES_MAX: usize = 65_536;

/// Maximum images of a user other than the tap's.
const IMAGES_OF_USER_MAX: usize = IMAGES_MAX / 16;

impl Processes {
    /// Records an event of an image. If the image is new, returns the previous images of its process; `None` beyond
    /// the limit.
    pub(super) fn record_event(&mut self, origin: Origin, at: Timestamp) -> Option<Vec<u32>> {
        if let Some(live) = self.images.get_mut(&origin.image) {
            live.at = live.at.max(at);
            return Some(Vec::new());
        }
        let index = origin.image >> INDEX_SHIFT;
        let of_user = self.of_users.get(&index).copied().unwrap_or(0);
        if self.images.len() >= IMAGES_MAX || (index > 0 && of_user >= IMAGES_OF_USER_MAX) {
            return None;
        }
        *self.of_users.entry(index).or_default() += 1;
        let owner = origin.owner();
        if owner.pid == 0 {
            // A child whose system call filter forbids to read its process number. Several such children may run.
            self.images.insert(origin.image, LiveImage { owner, at });
            return Some(Vec::new());
        }
        let replaced = match self.latest.get(&owner) {
            // A late event: a replaced image has the smaller number.
            Some(latest) if *latest > origin.image => Vec::new(),
            Some(latest) => vec![*latest],
            None if owner.space == 0 => self.images_with_pid(owner.pid),
            None => Vec::new(),
        };
        self.images.insert(origin.image, LiveImage { owner, at });
        let latest = self.latest.entry(owner).or_insert(origin.image);
        *latest = origin.image.max(*latest);
        Some(replaced)
    }

    /// The only image with the same process number, if unique: for a program that could not read its namespace.
    fn images_with_pid(&self, pid: u32) -> Vec<u32> {
        let images_with_pid = self.images.iter().filter(|(_, live)| live.owner.pid == pid);
        let images_with_pid: Vec<u32> = images_with_pid.map(|(image, _)| *image).collect();
        if images_with_pid.len() == 1 { images_with_pid } else { Vec::new() }
    }

    /// An image has ended.
    pub(super) fn image_ended(&mut self, image: u32) {
        let Some(live) = self.images.remove(&image) else { return };
        if let Some(of_user) = self.of_users.get_mut(&(image >> INDEX_SHIFT)) {
            *of_user = of_user.saturating_sub(1);
        }
        if self.latest.get(&live.owner) == Some(&image) {
            self.latest.remove(&live.owner);
        }
    }

    pub(super) fn follows(&self, image: u32) -> bool {
        self.images.contains_key(&image)
    }

    pub(super) fn len(&self) -> usize {
        self.images.len()
    }

    pub(super) fn images(&self) -> impl Iterator<Item = (u32, Owner, Timestamp)> {
        self.images.iter().map(|(image, live)| (*image, live.owner, live.at))
    }

    pub(super) fn latest(&self, owner: Owner) -> Option<u32> {
        self.latest.get(&owner).copied()
    }
}
