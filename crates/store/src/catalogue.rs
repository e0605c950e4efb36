//! The catalogue: an index of the run store, so that a list of runs reads only changed folders.
//!
//! `catalogue.sqlite` in the run store's folder has a row for each run that ended: the result of [`crate::listing`] for
//! its folder, and a key of the files that were read. The folders are authoritative: a row is used only while those
//! files are unchanged, a row with a wrong checksum is ignored, and lists work without a catalogue that cannot be
//! opened, read or written. Only lists read and write the catalogue, so no run waits for it.
//!
//! Several programs may use one catalogue concurrently. SQLite's own locks keep the file consistent (a rollback journal
//! without shared memory, which works on network file systems). A program that finds the catalogue locked for longer
//! than `LOCK_TIMEOUT` works without it. In addition each user has a shared flock on the run store's folder. A
//! catalogue that is broken or of another version is deleted only under an exclusive lock of the folder, because a file
//! that another process has open in SQLite must not be replaced.

//!
//! Without the feature `catalogue` there is no catalogue, and every list reads the folders.

#[cfg(not(feature = "catalogue"))]
mod absent;
#[cfg(feature = "catalogue")]
mod sqlite;

#[cfg(not(feature = "catalogue"))]
pub(crate) use absent::Catalogue;
#[cfg(feature = "catalogue")]
pub(crate) use sqlite::Catalogue;

/// A row of the catalogue: one run.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// Key of the files that the row was read from.
    pub(crate) key: String,
    /// The run's entry, as JSON.
    pub(crate) body: String,
}

/// Result whose error is the reason why there is no catalogue, as text.
pub(crate) type Without<T> = std::result::Result<T, String>;

/// Name of the file in the run store's folder.
pub(crate) const CATALOGUE: &str = "catalogue.sqlite";
