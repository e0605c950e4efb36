//! The machine side of a tap daemon: folder, rings and processes, read in rounds that can be stored.
//!
//! ```text
//!   DaemonReader::open ──> round ──> Entry ──> journal ──> commit ──> DaemonState::apply ──> rows
//!                            ^________________ some milliseconds ______________|
//! ```
//!
//! Killed before the journal has the entry: the next reader reads the same records again. Killed after: the next one
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

use crate::coverage::{self, RingProcesses, ScanResult, Unseen};
use crate::daemon_state::{DaemonState, Entry, Starting, UnreportedProgram};
use crate::error::Result;
use crate::event::{Event, EventKind, Origin, Owner};
use crate::folder::DaemonFolder;
use crate::rings::{Adoption, Capacity, INDEX_SHIFT, Rings};

/// Folder, rings and process checks.
#[derive(Debug)]
pub struct DaemonReader {
    clock: Clock,
    rings: Rings,
    adoption: Adoption,
    ring_processes: RingProcesses,
    last_scan: Timestamp,
    /// Ended processes of the last check: their end is reported once everything written before is read, mostly in the
    /// next round.
    ended_images: Vec<u32>,
    /// Images whose slots the next rounds free, until their final records are read.
    images_to_free: HashSet<u32>,
    /// Processes that cannot be inspected.
    out_of_sight: BTreeSet<Owner>,
    unfollowed: u32,
    /// The image inspected last for activity without hooks.
    last_inspected: u32,
    reported_partial: BTreeSet<(String, String)>,
    /// Images that claimed to be processes of other users.
    refused: HashSet<u32>,
    /// Notes for the operator.
    notes: Vec<String>,
    headers_restored: u64,
    /// Last, so that the rings are dropped before the lock.
    folder: DaemonFolder,
}

impl DaemonReader {
    /// Creates or adopts folder, library and ring, and resumes at `state`'s last entry. A ring of another boot or
    /// shape is recreated: the next entry then cuts the open connections ([`Entry::positions`]).
    ///
    /// # Errors
    /// Another agent uses the folder; it is not safe; there is no space. See [`DaemonFolder::open`] and
    /// [`Rings::adopt`].
    pub fn open(folder: &Path, capacity: Capacity, state: &DaemonState) -> Result<DaemonReader> {
        let folder = DaemonFolder::open(folder)?;
        let clock = Clock::of_boot();
        let (rings, adoption) = Rings::adopt(&folder, clock, capacity, Some(state.reader()))?;
        let ring_processes = RingProcesses::new();
        Ok(DaemonReader {
            clock,
            rings,
            adoption,
            ring_processes,
            last_scan: Timestamp::ZERO,
            ended_images: Vec::new(),
            images_to_free: HashSet::new(),
            out_of_sight: BTreeSet::new(),
            // Reported again: the same number for the same ring changes nothing.
            unfollowed: 0,
            last_inspected: 0,
            reported_partial: BTreeSet::new(),
            refused: HashSet::new(),
            notes: Vec::new(),
            headers_restored: 0,
            folder,
        })
    }

    /// Reads the records since the last round, and checks the processes every two seconds. `None`: no record arrived,
    /// and nothing waits for time. `state` must have all earlier entries.
    pub fn round(&mut self, state: &DaemonState) -> Option<Entry> {
        let started = self.clock.now();
        let mut events = Vec::new();
        let mut is_ended = |origin: Origin| self.images_to_free.contains(&origin.image);
        let out_of_sight = &self.out_of_sight;
        let positions = self.rings.collect_and_free(&mut is_ended, &mut |event| {
            // `Polled` events are not used, and a program that waits in poll writes ten of them a second. One counts
            // as a sign of life if there is no other.
            if !matches!(event.what, EventKind::Polled { .. }) || out_of_sight.contains(&event.origin.owner()) {
                events.push(event);
            }
        });
        let until = self.rings.read_until();
        let events = self.drop_forged_records(state, events);
        self.note_ring_state();
        let mut entry = Entry { positions, events, settle_until: Some(until), ..Entry::default() };
        let unfollowed = self.rings.unfollowed();
        if unfollowed != self.unfollowed {
            self.unfollowed = unfollowed;
            entry.unfollowed = Some(unfollowed);
        }
        let final_records_are_read = until >= self.last_scan;
        if final_records_are_read {
            self.images_to_free.clear();
            entry.ended_images = std::mem::take(&mut self.ended_images);
        }
        if final_records_are_read && started.since(self.last_scan) >= SCAN_INTERVAL {
            self.last_scan = started;
            self.ring_processes.set_inodes(self.rings.files().into_iter().map(|(_, inode)| inode));
            self.scan_processes(state, started);
            self.find_unseen(state, started, &mut entry);
            self.find_partial(state, &mut entry);
        }
        // A new ring always makes an entry: it ends the connections of the old one.
        let is_entry_needed = !entry.is_empty() || entry.positions.ring() != state.reader().ring();
        (is_entry_needed || state.waits()).then_some(entry)
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
    pub fn adoption(&self) -> Adoption {
        self.adoption
    }

    /// Notes for the operator since the last call: invalid rings, and forged processes.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Removes records in the name of other users' processes: an image that is not known yet is checked with the
    /// kernel ([`RingProcesses::is_plausible_writer`]). Removed records count as lost.
    fn drop_forged_records(&mut self, state: &DaemonState, mut events: Vec<Event>) -> Vec<Event> {
        let mut known: HashMap<u32, bool> = HashMap::new();
        let mut checked: HashMap<u32, usize> = HashMap::new();
        let mut refused = BTreeMap::<u32, u64>::new();
        let mut new_refusals = 0;
        self.ring_processes.forget_foreign_processes();
        events.retain(|event| {
            let image = event.origin.image;
            if image.trailing_zeros() >= INDEX_SHIFT {
                return true;
            }
            let is_accepted = *known.entry(image).or_insert_with(|| {
                if self.refused.contains(&image) || state.follows(image) {
                    return !self.refused.contains(&image);
                }
                let checked = checked.entry(image >> INDEX_SHIFT).or_default();
                *checked += 1;
                let is_accepted = *checked <= NEW_IMAGES_MAX && self.is_plausible(event.origin);
                if !is_accepted {
                    new_refusals += 1;
                    if self.refused.len() >= REFUSED_MAX {
                        self.refused.clear();
                    }
                    self.refused.insert(image);
                }
                is_accepted
            });
            if !is_accepted {
                *refused.entry(image >> INDEX_SHIFT << INDEX_SHIFT).or_default() += 1;
            }
            is_accepted
        });
        for (image, records) in refused {
            events.push(Event { origin: Origin { image, ..Origin::default() }, what: EventKind::Lost { records } });
        }
        if new_refusals > 0 {
            self.note(format!(
                "{new_refusals} processes claimed to be processes of other users: their records are dropped and counted"
            ));
        }
        events
    }

    /// Whether the kernel confirms that this may be a process of the ring's user.
    fn is_plausible(&mut self, origin: Origin) -> bool {
        let index = origin.image >> INDEX_SHIFT;
        let file = self.rings.files().into_iter().find(|(other, _)| *other == index);
        match (file, self.rings.user_of(origin.image)) {
            (Some((_, inode)), Some(user)) => self.ring_processes.is_plausible_writer(origin.owner(), user, inode),
            // The record is from a file that was just truncated.
            _ => true,
        }
    }

    /// Adds a note for the operator. The number of notes is limited, since a program may corrupt its ring repeatedly.
    fn note(&mut self, line: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(line);
        }
    }

    fn note_ring_state(&mut self) {
        for user in self.rings.take_users_of_truncated_files() {
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
    fn scan_processes(&mut self, state: &DaemonState, now: Timestamp) {
        let slots: Vec<Origin> = self.rings.owners().into_iter().filter(|origin| origin.image != 0).collect();
        let images: BTreeMap<u32, (Owner, Timestamp)> =
            state.images().map(|(image, owner, last_event)| (image, (owner, last_event))).collect();
        let owners = images.values().map(|(owner, _)| *owner).chain(slots.iter().map(Origin::owner));
        let scanned = self.ring_processes.scan(&owners.collect());
        for (image, (owner, last_event)) in &images {
            if is_replaced(state, *image, *owner) || has_ended(&scanned, *owner) {
                self.ended_images.push(*image);
                self.images_to_free.insert(*image);
            } else if scanned.out_of_sight.contains(owner) && now.since(*last_event) >= SILENCE_TIMEOUT {
                // The image's slot is not freed: the process may still run and write.
                self.ended_images.push(*image);
            }
        }
        // Slots of dropped images: an agent was killed before it freed them.
        for origin in slots.iter().filter(|origin| !images.contains_key(&origin.image)) {
            if is_replaced(state, origin.image, origin.owner()) || has_ended(&scanned, origin.owner()) {
                self.images_to_free.insert(origin.image);
            }
        }
        self.out_of_sight = scanned.out_of_sight;
    }

    /// A started process without a report within ten seconds will not report.
    fn find_unseen(&mut self, state: &DaemonState, now: Timestamp, entry: &mut Entry) {
        for starting in state.overdue(now - LOAD_TIMEOUT).into_iter().take(PROCESSES_PER_SCAN) {
            entry.unreported.push(self.unreported(starting));
        }
    }

    fn unreported(&mut self, Starting { owner, path, preloaded }: Starting) -> UnreportedProgram {
        if let Some((process, why)) = self.ring_processes.unseen(owner) {
            return UnreportedProgram { owner, program: process.program, why: why.map(|why| why.to_string()) };
        }
        // The process has ended: its program file gives the reason. A relative path depends on that program's working
        // directory.
        let is_relative = path.contains('/') && !path.starts_with('/');
        let why = if is_relative { None } else { coverage::why_not(Path::new(&path)) };
        let why = why.map(|why| if preloaded { why } else { Unseen::NotPreloaded }.to_string());
        UnreportedProgram { owner, program: short_name(&path), why }
    }

    /// Checks some of the processes for activity without hooks, all of them in turn.
    fn find_partial(&mut self, state: &DaemonState, entry: &mut Entry) {
        let mut next = 0;
        for (image, owner, _) in
            state.images().filter(|(image, ..)| *image > self.last_inspected).take(PROCESSES_PER_SCAN)
        {
            next = image;
            let Some(partial) = self.ring_processes.process(owner).and_then(|process| coverage::partial(&process))
            else {
                continue;
            };
            let partial_program = (state.program(image).to_owned(), partial.to_string());
            if self.reported_partial.len() >= REPORTED_MAX {
                self.reported_partial.clear();
            }
            if self.reported_partial.insert(partial_program.clone()) {
                entry.partial.push(partial_program);
            }
        }
        self.last_inspected = next;
    }
}

/// Whether the image's process has become another image. False for an unknown namespace, in which two processes may
/// have the same number.
fn is_replaced(state: &DaemonState, image: u32, owner: Owner) -> bool {
    owner.space != 0 && state.latest(owner).is_some_and(|latest| latest > image)
}

fn has_ended(scanned: &ScanResult, owner: Owner) -> bool {
    scanned.ended.contains(&owner)
}

/// The program's short name: at most 15 bytes, as in /proc/PID/comm.
fn short_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let end = name.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|end| *end <= 15).last();
    name[..end.unwrap_or(0)].to_owned()
}

/// Maximum notes between two queries.
const NOTES_MAX: usize = 16;
/// New processes of one user in one round: no machine starts more in a tenth of a second.
const NEW_IMAGES_MAX: usize = 1_000;
/// Maximum stored rejected images; each is checked once while it is stored.
const REFUSED_MAX: usize = 65_536;
/// Interval between process checks.
const SCAN_INTERVAL: Duration = Duration::from_secs(2);
/// Time limit for a started program to load the library: longer than any program needs.
const LOAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Processes and programs inspected per check: each needs some files to be read.
const PROCESSES_PER_SCAN: usize = 32;
/// Images whose process is not visible count as ended after this time of silence.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(600);
/// Maximum remembered notes on programs, which are not repeated.
const REPORTED_MAX: usize = 1_000;
