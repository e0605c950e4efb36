//! The living images, and their processes.
//!
//! A process number is unique in its PID namespace only, and a process may become another image by exec. So images
//! are followed, and the latest image of a process ends the earlier ones.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use units::Timestamp;

use crate::event::{Origin, Owner};
use crate::rings::INDEX_SHIFT;

/// Images with events that have not ended.
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

/// More than any machine runs; a program that writes invalid records can forge as many.
pub(super) const IMAGES_MAX: usize = 65_536;

/// Maximum images of a user other than the tap's.
const IMAGES_OF_USER_MAX: usize = IMAGES_MAX / 16;

impl Processes {
    /// Notes an event of an image: returns the previous images of its process, if it is new; `None` beyond the limit.
    pub(super) fn hear(&mut self, origin: Origin, at: Timestamp) -> Option<Vec<u32>> {
        if let Some(heard) = self.images.get_mut(&origin.image) {
            heard.at = heard.at.max(at);
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
            // A child that may not read its number: there may be many.
            self.images.insert(origin.image, LiveImage { owner, at });
            return Some(Vec::new());
        }
        let replaced = match self.latest.get(&owner) {
            // A late event: a replaced image has the smaller number.
            Some(latest) if *latest > origin.image => Vec::new(),
            Some(latest) => vec![*latest],
            None if owner.space == 0 => self.alike(owner.pid),
            None => Vec::new(),
        };
        self.images.insert(origin.image, LiveImage { owner, at });
        let latest = self.latest.entry(owner).or_insert(origin.image);
        *latest = origin.image.max(*latest);
        Some(replaced)
    }

    /// For a program that could not read its namespace: the only image with the same number, if unique.
    fn alike(&self, pid: u32) -> Vec<u32> {
        let alike = self.images.iter().filter(|(_, heard)| heard.owner.pid == pid);
        let alike: Vec<u32> = alike.map(|(image, _)| *image).collect();
        if alike.len() == 1 { alike } else { Vec::new() }
    }

    /// An image has ended.
    pub(super) fn gone(&mut self, image: u32) {
        let Some(heard) = self.images.remove(&image) else { return };
        if let Some(of_user) = self.of_users.get_mut(&(image >> INDEX_SHIFT)) {
            *of_user = of_user.saturating_sub(1);
        }
        if self.latest.get(&heard.owner) == Some(&image) {
            self.latest.remove(&heard.owner);
        }
    }

    pub(super) fn knows(&self, image: u32) -> bool {
        self.images.contains_key(&image)
    }

    pub(super) fn len(&self) -> usize {
        self.images.len()
    }

    pub(super) fn images(&self) -> impl Iterator<Item = (u32, Owner, Timestamp)> {
        self.images.iter().map(|(image, heard)| (*image, heard.owner, heard.at))
    }

    pub(super) fn latest(&self, owner: Owner) -> Option<u32> {
        self.latest.get(&owner).copied()
    }
}
