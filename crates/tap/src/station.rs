//! The machine side of a tap daemon: folder, rings and processes, read in rounds that can be stored.
//!
//! ```text
//!   Station::open ──> round ──> Entry ──> journal ──> commit ──> Standing::apply ──> rows
//!                       ^________________ some milliseconds _______________|
//! ```
//!
//! Killed before the journal has the entry: the next station reads the same records again. Killed after: the next one
//! resumes behind it, whatever part of the commit was done.
//!
//! No process reports its end to a tap daemon. Every two seconds it checks which processes still map the ring
//! ([`RingProcesses`]). The next round reads the last records of the others, frees their slots, and reports their end
//! in its entry.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use sys::clock::Clock;
use units::Timestamp;

use crate::coverage::{self, Departed, RingProcesses, Unseen};
use crate::error::Result;
use crate::event::{Event, Origin, Owner, What};
use crate::folder::DaemonFolder;
use crate::rings::{Adoption, Capacity, INDEX_SHIFT, Rings};
use crate::standing::{Entry, NeverSeen, Standing, Starting};

/// Folder, rings and process checks.
#[derive(Debug)]
pub struct Station {
    clock: Clock,
    rings: Rings,
    found: Adoption,
    ring_processes: RingProcesses,
    looked: Timestamp,
    /// Ended processes of the last check: their end is reported once everything written before is read, mostly in the
    /// next round.
    gone: Vec<u32>,
    /// Images whose slots are freed until then.
    dead: HashSet<u32>,
    /// Processes that cannot be inspected.
    out_of_sight: BTreeSet<Owner>,
    unfollowed: u32,
    /// The image inspected last for activity without hooks.
    looked_at: u32,
    told_partial: BTreeSet<(String, String)>,
    /// Images that claimed to be processes of other users.
    refused: HashSet<u32>,
    /// Notes for the operator.
    notes: Vec<String>,
    headers_restored: u64,
    /// Last, so that the rings are dropped before the lock.
    folder: DaemonFolder,
}

impl Station {
    /// Creates or adopts folder, library and ring, and resumes at `standing`'s last entry. A ring of another boot or
    /// shape is recreated: the next entry then cuts the open connections ([`Entry::positions`]).
    ///
    /// # Errors
    /// Another agent uses the folder; it is not safe; there is no space. See [`DaemonFolder::open`] and
    /// [`Rings::adopt`].
    pub fn open(folder: &Path, capacity: Capacity, standing: &Standing) -> Result<Station> {
        let folder = DaemonFolder::open(folder)?;
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
            // Reported again, if there are any: for the same ring the same number changes nothing.
            unfollowed: 0,
            looked_at: 0,
            told_partial: BTreeSet::new(),
            refused: HashSet::new(),
            notes: Vec::new(),
            headers_restored: 0,
            folder,
        })
    }

    /// Reads the records since the last round, and checks the processes every two seconds. `None`: there was nothing,
    /// and nothing waits for time. `standing` must have all earlier entries.
    pub fn round(&mut self, standing: &Standing) -> Option<Entry> {
        let began = self.clock.now();
        let mut events = Vec::new();
        let mut gone = |origin: Origin| self.dead.contains(&origin.image);
        let out_of_sight = &self.out_of_sight;
        let positions = self.rings.collect_gone(&mut gone, &mut |event| {
            // These events are not used, and a program that waits in poll writes them ten times a second. One counts
            // as a sign of life if there is no other.
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
        // A new ring always makes an entry: it ends the connections of the old one.
        let is_news = !entry.is_empty() || entry.positions.ring() != standing.reader().ring();
        (is_news || standing.waits()).then_some(entry)
    }

    /// Whether more records wait than one round reads: call `round` again immediately.
    pub fn is_behind(&self) -> bool {
        self.rings.is_behind()
    }

    /// The entry is stored: frees its records in the rings.
    pub fn commit(&mut self, entry: &Entry) {
        self.rings.commit(&entry.positions);
    }

    /// The clock of all times: [`Clock::of_boot`].
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// The folder for programs.
    pub fn folder(&self) -> &DaemonFolder {
        &self.folder
    }

    /// How the ring was obtained.
    pub fn found(&self) -> Adoption {
        self.found
    }

    /// Notes for the operator since the last call: invalid rings, and forged processes.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Removes records in the name of other users' processes: an image that is not known yet is checked with the
    /// kernel ([`RingProcesses::vouch`]). Removed records count as lost.
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

    /// Whether the kernel confirms that this may be a process of the ring's user.
    fn is_vouched_for(&mut self, origin: Origin) -> bool {
        let index = origin.image >> INDEX_SHIFT;
        let file = self.rings.files().into_iter().find(|(other, _)| *other == index);
        match (file, self.rings.user_of(origin.image)) {
            (Some((_, inode)), Some(user)) => self.ring_processes.vouch(origin.owner(), user, inode),
            // Of a file that was just truncated.
            _ => true,
        }
    }

    /// Limited, since a program may corrupt its ring all the time.
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

    /// Detects ended processes, for the next round.
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
                // Its slot stays: it may be alive and write.
                self.gone.push(*image);
            }
        }
        // Slots of dropped images: an agent was killed before it freed them.
        for origin in slots.iter().filter(|origin| !images.contains_key(&origin.image)) {
            if is_replaced(standing, origin.image, origin.owner()) || is_gone(&departed, origin.owner()) {
                self.dead.insert(origin.image);
            }
        }
        self.out_of_sight = departed.out_of_sight;
    }

    /// A started process without a report within ten seconds will not report.
    fn find_unseen(&mut self, standing: &Standing, now: Timestamp, entry: &mut Entry) {
        for starting in standing.overdue(now - LOAD_TIMEOUT).into_iter().take(PROCESSES_PER_SCAN) {
            entry.never_seen.push(self.never_seen(starting));
        }
    }

    fn never_seen(&mut self, Starting { owner, path, preloaded }: Starting) -> NeverSeen {
        if let Some((process, why)) = self.ring_processes.unseen(owner) {
            return NeverSeen { owner, program: process.program, why: why.map(|why| why.to_string()) };
        }
        // It has ended: its file gives the reason. A relative path depends on that program's working directory.
        let begins_nowhere = path.contains('/') && !path.starts_with('/');
        let why = if begins_nowhere { None } else { coverage::why_not(Path::new(&path)) };
        let why = why.map(|why| if preloaded { why } else { Unseen::NotHandedOn }.to_string());
        NeverSeen { owner, program: short_name(&path), why }
    }

    /// Checks some of the processes for activity without hooks, all of them in turn.
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

/// Whether its process has become another image. With an unknown namespace two processes may have the number.
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

/// Maximum waiting lines.
const NOTES_MAX: usize = 16;
/// New processes of one user in one round: no machine starts more in a tenth of a second.
const NEW_IMAGES_MAX: usize = 1_000;
/// Rejected images, so that each is checked once.
const REFUSED_MAX: usize = 65_536;
/// Interval between process checks.
const SCAN_INTERVAL: Duration = Duration::from_secs(2);
/// Longer than any program needs to load a library.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Processes and programs inspected per check: each needs some files to be read.
const PROCESSES_PER_SCAN: usize = 32;
/// Images whose process is not visible count as ended after this time of silence.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum remembered notes on programs, which are not repeated.
const REPORTED_MAX: usize = 1_000;
