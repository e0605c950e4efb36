//! A run's directory in the run store and its progress file, from the start of the run to its end; used by `bench`,
//! `net` and `tap`.

use std::path::{Path, PathBuf};

use schema::Document;
use stats::Rng;
use store::{RunFolder, RunStore};
use sys::clock::Clock;
use units::Timestamp;

use crate::error::TestbedError;
use crate::snapshot::SnapshotWriter;

/// Directory of a run; none if the run is not stored.
#[derive(Debug, Default)]
pub(crate) struct RecordingFolder {
    folder: Option<RunFolder>,
    progress: Option<SnapshotWriter>,
}

impl RecordingFolder {
    /// Creates the directory in `run_store`, if there is one, fills it by `fill`, and writes the first progress
    /// snapshot.
    ///
    /// # Errors
    /// The directory cannot be created, or not be filled: then it is removed again.
    pub fn begin(
        run_store: Option<&RunStore>,
        name: &str,
        fill: impl FnOnce(&RunFolder) -> store::Result<()>,
        progress: impl FnOnce(&RunFolder) -> SnapshotWriter,
    ) -> Result<Self, TestbedError> {
        let Some(run_store) = run_store else { return Ok(RecordingFolder::default()) };
        // The letters distinguish two runs of one second, so they are not derived from the seed.
        let letters = Rng::new(sys::clock::monotonic_ns(), u64::from(std::process::id())).next();
        let folder =
            run_store.create(name, std::time::SystemTime::now(), letters).map_err(TestbedError::environment)?;
        let mut recording = RecordingFolder { folder: Some(folder), progress: None };
        if let Some(folder) = &recording.folder {
            fill(folder).map_err(TestbedError::environment).inspect_err(|_| recording.discard())?;
            recording.progress = Some(progress(folder));
        }
        Ok(recording)
    }

    /// The directory; absent also while the recorder has it.
    pub fn folder(&self) -> Option<&RunFolder> {
        self.folder.as_ref()
    }

    /// Passes the directory to the recorder, which writes the tables.
    pub fn take_folder(&mut self) -> Option<RunFolder> {
        self.folder.take()
    }

    /// Takes the directory back.
    pub fn return_folder(&mut self, folder: Option<RunFolder>) {
        self.folder = folder;
    }

    /// The progress file.
    pub fn progress(&self) -> Option<&SnapshotWriter> {
        self.progress.as_ref()
    }

    /// Whether the run is stored.
    pub fn is_stored(&self) -> bool {
        self.progress.is_some()
    }

    /// The directory's path.
    pub fn path(&self) -> Option<&Path> {
        self.folder.as_ref().map(RunFolder::path)
    }

    /// The directory's path, owned.
    pub fn path_buf(&self) -> Option<PathBuf> {
        self.path().map(Path::to_owned)
    }

    /// The run's identifier in the document: empty if the run is not stored.
    pub fn id(&self) -> String {
        self.folder.as_ref().map(|folder| folder.id().to_owned()).unwrap_or_default()
    }

    /// The directory in the document: empty if the run is not stored.
    pub fn dir(&self) -> String {
        self.path().map(|path| path.display().to_string()).unwrap_or_default()
    }

    /// Sets the run's zero in progress snapshots.
    pub fn set_zero(&mut self, clock: &Clock) {
        if let Some(progress) = &mut self.progress {
            progress.set_zero(clock);
        }
    }

    /// Removes the directory: nothing was measured, and a remaining directory would look like a killed run.
    pub fn discard(&self) {
        if let Some(folder) = &self.folder {
            // A directory that cannot be removed is listed as an unfinished run, which is correct.
            let _ = std::fs::remove_dir_all(folder.path());
        }
    }

    /// Writes the summary and the last progress snapshot, if the run is stored.
    ///
    /// # Errors
    /// The summary cannot be written.
    pub fn finish(&self, now: Timestamp, document: &Document) -> store::Result<()> {
        if let Some(folder) = &self.folder {
            folder.write_summary(document)?;
        }
        self.end_progress(now, document);
        Ok(())
    }

    /// Writes the last progress snapshot.
    pub fn end_progress(&self, now: Timestamp, document: &Document) {
        if let Some(progress) = &self.progress {
            progress.done(now, document);
        }
    }
}
