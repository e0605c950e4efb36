//! A standing tap's end of the machine: folder, rings and processes, read in rounds that can be written down.
//!
//! ```text
//!   Station::open ──> round ──> Entry ──> journal ──> commit ──> Standing::apply ──> rows
//!                       ^________________ some milliseconds _______________|
//! ```
//!
//! Killed after the round: the next station reads the same again. Killed after the journal has it: the next one goes on behind it, whatever of the
//! commit was done.

use std::path::Path;

use sys::clock::Clock;

use crate::error::Result;
use crate::folder::StandingFolder;
use crate::rings::{Capacity, Rings};
use crate::standing::{Entry, Standing};

/// Folder, rings and a look at the processes.
#[derive(Debug)]
pub struct Station {
    folder: StandingFolder,
    rings: Rings,
}

impl Station {
    /// Makes or adopts folder, library and ring, and goes on where `standing`'s last entry was. A ring of another boot, or of another
    /// shape, is made anew: the next entry then cuts what was open ([`Entry::positions`]).
    ///
    /// # Errors
    /// Another agent has the folder; it is not safe; there is no room.
    pub fn open(folder: &Path, capacity: Capacity, standing: &Standing) -> Result<Station> {
        let _ = (folder, capacity, standing, Clock::of_boot());
        todo!()
    }

    /// Reads what was told since the last round, and now and then looks at the processes. `None`: nothing was, and nothing waits.
    pub fn round(&mut self, standing: &Standing) -> Option<Entry> {
        let _ = standing;
        todo!()
    }

    /// The entry is written down: programs may have the room again.
    pub fn commit(&mut self, entry: &Entry) {
        self.rings.commit(&entry.positions);
    }

    /// Where programs find it.
    pub fn folder(&self) -> &StandingFolder {
        &self.folder
    }

    /// Whether a program has made the ring's file shorter: nothing is heard any more until [`Station::open`] makes a new one.
    pub fn is_cut(&self) -> bool {
        self.rings.is_cut()
    }
}
