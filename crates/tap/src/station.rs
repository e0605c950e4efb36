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
//! ([`RingProcesses`]). The next round reads the last words of who does not, frees their slots, and says in its entry that they are
//! gone.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use sys::clock::Clock;
use units::Timestamp;

use crate::coverage::{self, Departed, RingProcesses, Unseen};
use crate::error::Result;
use crate::event::{Event, Origin, Owner, What};
use crate::folder::StandingFolder;
use crate::rings::{Adoption, Capacity, INDEX_SHIFT, Rings};
use crate::standing::{Entry, NeverSeen, Standing, Starting};

/// Folder, rings and a look at the processes.
#[derive(Debug)]
pub struct Station {
    clock: Clock,
    rings: Rings,
    found: Adoption,
    ring_processes: RingProcesses,
    looked: Timestamp,
    /// Adoption gone by the last look: they are so as soon as all is read that was written before it, in the next round mostly.
    gone: Vec<u32>,
    /// Images whose slots are freed until then.
    dead: HashSet<u32>,
    /// Processes that cannot be looked at.
    out_of_sight: BTreeSet<Owner>,
    unfollowed: u32,
    /// The image that was looked at last for what hooks do not see.
    looked_at: u32,
    told_partial: BTreeSet<(String, String)>,
    /// Images that said that they are processes of other users.
    refused: HashSet<u32>,
    /// What the machine's keeper should know.
    notes: Vec<String>,
    headers_restored: u64,
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
        let ring_processes = RingProcesses::new();
        Ok(Station {
            clock,
            rings,
            found,
            ring_processes,
            looked: Timestamp::ZERO,
            gone: Vec::new(),
            dead: HashSet::new(),
            out_of_sight: BTreeSet::new(),
            // Told again, if there are any: of the same ring the same number changes nothing.
            unfollowed: 0,
            looked_at: 0,
            told_partial: BTreeSet::new(),
            refused: HashSet::new(),
            notes: Vec::new(),
            headers_restored: 0,
            folder,
        })
    }

    /// Reads what was told since the last round, and every two seconds looks at the processes. `None`: nothing was, and
    /// nothing waits for the time. `standing` must have every entry before this one.
    pub fn round(&mut self, standing: &Standing) -> Option<Entry> {
        let began = self.clock.now();
        let mut events = Vec::new();
        let mut gone = |origin: Origin| self.dead.contains(&origin.image);
        let out_of_sight = &self.out_of_sight;
        let positions = self.rings.collect_gone(&mut gone, &mut |event| {
            // Nothing is made of it here, and a program that waits in poll tells it ten times a second. As a sign of life it
            // counts where there is no other.
            if !matches!(event.what, What::Polled { .. }) || out_of_sight.contains(&event.origin.owner()) {
                events.push(event);
            }
        });
        let until = self.rings.read_until();
        let events = self.drop_forged_records(standing, events);
        self.note_ring_state();
        let mut entry = Entry { positions, events, settle_until: Some(until), ..Entry::default() };
        let unfollowed = self.rings.unfollowed();
        if unfollowed != self.unfollowed {
            self.unfollowed = unfollowed;
            entry.unfollowed = Some(unfollowed);
        }
        let last_words_are_read = until >= self.looked;
        if last_words_are_read {
            self.dead.clear();
            entry.gone = std::mem::take(&mut self.gone);
        }
        if last_words_are_read && began.since(self.looked) >= SCAN_INTERVAL {
            self.looked = began;
            self.ring_processes.of(self.rings.files().into_iter().map(|(_, inode)| inode));
            self.look(standing, began);
            self.find_unseen(standing, began, &mut entry);
            self.find_partial(standing, &mut entry);
        }
        // A new ring is news by itself: it ends what was open in the old one.
        let is_news = !entry.is_empty() || entry.positions.ring() != standing.reader().ring();
        (is_news || standing.waits()).then_some(entry)
    }

    /// Whether more waits in the rings than one round reads: make the next at once.
    pub fn is_behind(&self) -> bool {
        self.rings.is_behind()
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
    pub fn found(&self) -> Adoption {
        self.found
    }

    /// Lines for who keeps the machine, since this was last asked for: whose rings were spoilt, and who spoke for others.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Takes out what is said in the name of processes of other users: an image that is not known yet is looked up at the kernel
    /// ([`RingProcesses::vouch`]). What was taken out is counted as lost.
    fn drop_forged_records(&mut self, standing: &Standing, mut events: Vec<Event>) -> Vec<Event> {
        let mut known: HashMap<u32, bool> = HashMap::new();
        let mut asked: HashMap<u32, usize> = HashMap::new();
        let mut refused = BTreeMap::<u32, u64>::new();
        let mut news = 0;
        self.ring_processes.forget_foreign_processes();
        events.retain(|event| {
            let image = event.origin.image;
            if image.trailing_zeros() >= INDEX_SHIFT {
                return true;
            }
            let is_true = *known.entry(image).or_insert_with(|| {
                if self.refused.contains(&image) || standing.knows(image) {
                    return !self.refused.contains(&image);
                }
                let asked = asked.entry(image >> INDEX_SHIFT).or_default();
                *asked += 1;
                let is_true = *asked <= NEW_IMAGES_MAX && self.is_vouched_for(event.origin);
                if !is_true {
                    news += 1;
                    if self.refused.len() >= REFUSED_MAX {
                        self.refused.clear();
                    }
                    self.refused.insert(image);
                }
                is_true
            });
            if !is_true {
                *refused.entry(image >> INDEX_SHIFT << INDEX_SHIFT).or_default() += 1;
            }
            is_true
        });
        for (image, records) in refused {
            events.push(Event { origin: Origin { image, ..Origin::default() }, what: What::Lost { records } });
        }
        if news > 0 {
            self.note(format!(
                "{news} processes claimed to be processes of other users: their records are dropped and counted"
            ));
        }
        events
    }

    /// Whether the kernel says that this may be a process of the user in whose ring it speaks.
    fn is_vouched_for(&mut self, origin: Origin) -> bool {
        let index = origin.image >> INDEX_SHIFT;
        let file = self.rings.files().into_iter().find(|(other, _)| *other == index);
        match (file, self.rings.user_of(origin.image)) {
            (Some((_, inode)), Some(user)) => self.ring_processes.vouch(origin.owner(), user, inode),
            // Of a file that was cut just now.
            _ => true,
        }
    }

    /// Bounded, since a program may corrupt its ring all the time.
    fn note(&mut self, line: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(line);
        }
    }

    fn note_ring_state(&mut self) {
        for user in self.rings.take_truncated() {
            self.note(format!(
                "a program of user {user} truncated that user's ring: running programs of that user are not recorded \
                 until they restart"
            ));
        }
        let headers_restored = self.rings.headers_restored();
        if headers_restored != self.headers_restored {
            let times = headers_restored - self.headers_restored;
            self.headers_restored = headers_restored;
            self.note(format!("a program overwrote the header of a ring: restored ({times} times)"));
        }
    }

    /// Finds who is gone, for the next round.
    fn look(&mut self, standing: &Standing, now: Timestamp) {
        let slots: Vec<Origin> = self.rings.owners().into_iter().filter(|origin| origin.image != 0).collect();
        let images: BTreeMap<u32, (Owner, Timestamp)> =
            standing.images().map(|(image, owner, heard)| (image, (owner, heard))).collect();
        let owners = images.values().map(|(owner, _)| *owner).chain(slots.iter().map(Origin::owner));
        let departed = self.ring_processes.look(&owners.collect());
        for (image, (owner, heard)) in &images {
            if is_replaced(standing, *image, *owner) || is_gone(&departed, *owner) {
                self.gone.push(*image);
                self.dead.insert(*image);
            } else if departed.out_of_sight.contains(owner) && now.since(*heard) >= SILENCE_TIMEOUT {
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
    fn find_unseen(&mut self, standing: &Standing, now: Timestamp, entry: &mut Entry) {
        for starting in standing.overdue(now - LOAD_TIMEOUT).into_iter().take(PROCESSES_PER_SCAN) {
            entry.never_seen.push(self.never_seen(starting));
        }
    }

    fn never_seen(&mut self, Starting { owner, path, preloaded }: Starting) -> NeverSeen {
        if let Some((process, why)) = self.ring_processes.unseen(owner) {
            return NeverSeen { owner, program: process.program, why: why.map(|why| why.to_string()) };
        }
        // Gone by now: what its file says. A path that begins nowhere began in that program's own folder.
        let begins_nowhere = path.contains('/') && !path.starts_with('/');
        let why = if begins_nowhere { None } else { coverage::why_not(Path::new(&path)) };
        let why = why.map(|why| if preloaded { why } else { Unseen::NotHandedOn }.to_string());
        NeverSeen { owner, program: short_name(&path), why }
    }

    /// Looks what some of the processes do that hooks do not see; at all of them in turn.
    fn find_partial(&mut self, standing: &Standing, entry: &mut Entry) {
        let mut next = 0;
        for (image, owner, _) in
            standing.images().filter(|(image, ..)| *image > self.looked_at).take(PROCESSES_PER_SCAN)
        {
            next = image;
            let Some(partial) = self.ring_processes.process(owner).and_then(|process| coverage::partial(&process))
            else {
                continue;
            };
            let told = (standing.program(image).to_owned(), partial.to_string());
            if self.told_partial.len() >= REPORTED_MAX {
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

/// Lines that wait to be taken.
const NOTES_MAX: usize = 16;
/// New processes of one user in one round: no machine starts so many in a tenth of a second.
const NEW_IMAGES_MAX: usize = 1_000;
/// Images that were refused, so that each is looked up once.
const REFUSED_MAX: usize = 65_536;
/// How often processes are looked for.
const SCAN_INTERVAL: Duration = Duration::from_secs(2);
/// No program takes so long to load a library.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Processes and programs that one look looks into: each is a few files to read.
const PROCESSES_PER_SCAN: usize = 32;
/// Images whose process cannot be seen from here are taken for gone when they said nothing for so long.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);
/// What was said of programs, so that it is not said at each look.
const REPORTED_MAX: usize = 1_000;
