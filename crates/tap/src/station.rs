//! A standing tap's end of the machine: folder, rings and processes, read in rounds that can be written down.
//!
//! ```text
//!   Station::open ──> round ──> Entry ──> journal ──> commit ──> Standing::apply ──> rows
//!                       ^________________ some milliseconds _______________|
//! ```
//!
//! Killed before the journal has the entry: the next station reads the same again. Killed after: the next one goes on
//! behind it, whatever of the commit was done.
//!
//! Nobody tells a standing tap that a process has ended. Every two seconds it looks who still has the ring
//! ([`Holders`]). The next round reads the last words of who does not, frees their slots, and says in its entry that they are
//! gone.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;
use std::time::Duration;

use sys::clock::Clock;
use units::Timestamp;

use crate::coverage::{self, Departed, Holders, Unseen};
use crate::error::Result;
use crate::event::{Origin, Owner, What};
use crate::folder::StandingFolder;
use crate::rings::{Capacity, Found, Rings};
use crate::standing::{Entry, NeverSeen, Standing, Starting};

/// Folder, rings and a look at the processes.
#[derive(Debug)]
pub struct Station {
    clock: Clock,
    rings: Rings,
    found: Found,
    holders: Holders,
    looked: Timestamp,
    /// Found gone by the last look: their last words are in the next round.
    gone: Vec<u32>,
    /// Images whose slots the next round frees.
    dead: HashSet<u32>,
    /// Processes that cannot be looked at.
    out_of_sight: BTreeSet<Owner>,
    unfollowed: u32,
    /// The image that was looked at last for what hooks do not see.
    looked_at: u32,
    told_partial: BTreeSet<(String, String)>,
    /// Last, so that the rings are let go before the lock is.
    folder: StandingFolder,
}

impl Station {
    /// Makes or adopts folder, library and ring, and goes on where `standing`'s last entry was. A ring of another boot, or of another
    /// shape, is made anew: the next entry then cuts what was open ([`Entry::positions`]).
    ///
    /// # Errors
    /// Another agent has the folder; it is not safe; there is no room. See [`StandingFolder::open`] and [`Rings::adopt`].
    pub fn open(folder: &Path, capacity: Capacity, standing: &Standing) -> Result<Station> {
        let folder = StandingFolder::open(folder)?;
        let clock = Clock::of_boot();
        let (rings, found) = Rings::adopt(&folder, clock, capacity, Some(standing.reader()))?;
        let holders = Holders::of(&folder.ring())?;
        Ok(Station {
            clock,
            rings,
            found,
            holders,
            looked: Timestamp::ZERO,
            gone: Vec::new(),
            dead: HashSet::new(),
            out_of_sight: BTreeSet::new(),
            // Told again, if there are any: of the same ring the same number changes nothing.
            unfollowed: 0,
            looked_at: 0,
            told_partial: BTreeSet::new(),
            folder,
        })
    }

    /// Reads what was told since the last round, and every two seconds looks at the processes. `None`: nothing was, and
    /// nothing waits for the time. `standing` must have every entry before this one.
    pub fn round(&mut self, standing: &Standing) -> Option<Entry> {
        let began = self.clock.now();
        let mut events = Vec::new();
        let dead = std::mem::take(&mut self.dead);
        let mut gone = |origin: Origin| dead.contains(&origin.image);
        let out_of_sight = &self.out_of_sight;
        let positions = self.rings.collect_gone(&mut gone, &mut |event| {
            // Nothing is made of it here, and a program that waits in poll tells it ten times a second. As a sign of life it
            // counts where there is no other.
            if !matches!(event.what, What::Polled { .. }) || out_of_sight.contains(&event.origin.owner()) {
                events.push(event);
            }
        });
        let mut entry = Entry { positions, events, settle_until: Some(began), ..Entry::default() };
        entry.gone = std::mem::take(&mut self.gone);
        let unfollowed = self.rings.unfollowed();
        if unfollowed != self.unfollowed {
            self.unfollowed = unfollowed;
            entry.unfollowed = Some(unfollowed);
        }
        if began.since(self.looked) >= LOOK {
            self.looked = began;
            self.look(standing, began);
            self.look_for_unseen(standing, began, &mut entry);
            self.look_for_partial(standing, &mut entry);
        }
        // A new ring is news by itself: it ends what was open in the old one.
        let is_news = !entry.is_empty() || entry.positions.ring() != standing.reader().ring();
        (is_news || standing.waits()).then_some(entry)
    }

    /// The entry is written down: programs may have the room again.
    pub fn commit(&mut self, entry: &Entry) {
        self.rings.commit(&entry.positions);
    }

    /// The clock of all moments: [`Clock::of_boot`].
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// Where programs find it.
    pub fn folder(&self) -> &StandingFolder {
        &self.folder
    }

    /// What became of the ring that was there.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Whether a program has made the ring's file shorter: nothing is heard any more. A station that is opened after this one was
    /// dropped makes a new ring.
    pub fn is_cut(&self) -> bool {
        self.rings.is_cut()
    }

    /// Finds who is gone, for the next round.
    fn look(&mut self, standing: &Standing, now: Timestamp) {
        let slots: Vec<Origin> = self.rings.owners().into_iter().filter(|origin| origin.image != 0).collect();
        let images: BTreeMap<u32, (Owner, Timestamp)> =
            standing.images().map(|(image, owner, heard)| (image, (owner, heard))).collect();
        let owners = images.values().map(|(owner, _)| *owner).chain(slots.iter().map(Origin::owner));
        let departed = self.holders.look(&owners.collect());
        for (image, (owner, heard)) in &images {
            if is_replaced(standing, *image, *owner) || is_gone(&departed, *owner) {
                self.gone.push(*image);
                self.dead.insert(*image);
            } else if departed.out_of_sight.contains(owner) && now.since(*heard) >= SILENT {
                // Its slot stays: it may live, and write.
                self.gone.push(*image);
            }
        }
        // Slots of images that are forgotten: an agent was killed before it had freed them.
        for origin in slots.iter().filter(|origin| !images.contains_key(&origin.image)) {
            if is_replaced(standing, origin.image, origin.owner()) || is_gone(&departed, origin.owner()) {
                self.dead.insert(origin.image);
            }
        }
        self.out_of_sight = departed.out_of_sight;
    }

    /// What was started and has not said that it is seen within ten seconds will not.
    fn look_for_unseen(&mut self, standing: &Standing, now: Timestamp, entry: &mut Entry) {
        for starting in standing.overdue(now - OVERDUE).into_iter().take(AT_ONCE) {
            entry.never_seen.push(self.never_seen(starting));
        }
    }

    fn never_seen(&mut self, Starting { owner, path, preloaded }: Starting) -> NeverSeen {
        if let Some((process, why)) = self.holders.unseen(owner) {
            return NeverSeen { owner, program: process.program, why: why.map(|why| why.to_string()) };
        }
        // Gone by now: what its file says. A path that begins nowhere began in that program's own folder.
        let begins_nowhere = path.contains('/') && !path.starts_with('/');
        let why = if begins_nowhere { None } else { coverage::why_not(Path::new(&path)) };
        let why = why.map(|why| if preloaded { why } else { Unseen::NotHandedOn }.to_string());
        NeverSeen { owner, program: short_name(&path), why }
    }

    /// Looks what some of the processes do that hooks do not see; at all of them in turn.
    fn look_for_partial(&mut self, standing: &Standing, entry: &mut Entry) {
        let mut next = 0;
        for (image, owner, _) in standing.images().filter(|(image, ..)| *image > self.looked_at).take(AT_ONCE) {
            next = image;
            let Some(partial) = self.holders.process(owner).and_then(|process| coverage::partial(&process)) else {
                continue;
            };
            let told = (standing.program(image).to_owned(), partial.to_string());
            if self.told_partial.len() >= TOLD_MAX {
                self.told_partial.clear();
            }
            if self.told_partial.insert(told.clone()) {
                entry.partial.push(told);
            }
        }
        self.looked_at = next;
    }
}

/// Its process has become another image. Where the namespace is not known two processes may have the number.
fn is_replaced(standing: &Standing, image: u32, owner: Owner) -> bool {
    owner.space != 0 && standing.latest(owner).is_some_and(|latest| latest > image)
}

fn is_gone(departed: &Departed, owner: Owner) -> bool {
    departed.gone.contains(&owner)
}

/// As /proc/PID/comm has it.
fn short_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let end = name.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|end| *end <= 15).last();
    name[..end.unwrap_or(0)].to_owned()
}

/// How often processes are looked for.
const LOOK: Duration = Duration::from_secs(2);
/// No program takes so long to load a library.
const OVERDUE: Duration = Duration::from_secs(10);
/// Processes and programs that one look looks into: each is a few files to read.
const AT_ONCE: usize = 32;
/// Images whose process cannot be seen from here are taken for gone when they said nothing for so long.
const SILENT: Duration = Duration::from_secs(600);
/// What was said of programs, so that it is not said at each look.
const TOLD_MAX: usize = 1_000;
