//! The catalogue: an index of the run store, so that a list of runs reads only changed folders.
//!
//! `catalogue.sqlite` in the run store's folder has a row for each run that ended: what
//! [`crate::listing`] found in its folder, and by which files it found that. The folders are authoritative: a row counts only while those files are unchanged, a row
//! with a wrong checksum is ignored, and lists work without a catalogue that cannot be opened, read or written. No
//! run waits for it: only lists read and write it.
//!
//! Several programs may use one catalogue. SQLite's own locks (a rollback journal, no shared memory, so that network
//! file systems can do it) keep its file whole; who finds it locked for longer than `LOCK_TIMEOUT` goes without. Beside that each user holds the
//! run store's folder by a shared flock: a catalogue is thrown away (broken, or of another version) only by who has the folder alone, since a file
//! that SQLite has open elsewhere must not be replaced under it.

//!
//! Without the feature `catalogue` there is none, and every list reads the folders.

#[cfg(not(feature = "catalogue"))]
mod absent;
#[cfg(feature = "catalogue")]
mod sqlite;

#[cfg(not(feature = "catalogue"))]
pub(crate) use absent::Catalogue;
#[cfg(feature = "catalogue")]
pub(crate) use sqlite::Catalogue;

/// A run as the catalogue has it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// By which files it was found.
    pub(crate) key: String,
    /// What was found, as JSON.
    pub(crate) body: String,
}

/// Why there is no catalogue, in words.
pub(crate) type Without<T> = std::result::Result<T, String>;

/// Name of the file in the run store's folder.
pub(crate) const CATALOGUE: &str = "catalogue.sqlite";
