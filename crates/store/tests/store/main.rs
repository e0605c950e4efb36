//! Tests of the run store's public functions. They are one binary, since each binary costs seconds to build. Tests that
//! start other programs are not in this binary, because a forked child shares the locks of all run folders until
//! `exec`.

mod cache_tables;
mod full_disk;
mod hlog;
mod progress;
mod removal;
mod run_store;
mod support;
mod table_schemas;
mod tables;
mod tap_tables;
mod watch_tables;
