//! The book: a run on disk, and the list of runs.
