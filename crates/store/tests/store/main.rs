//! The run store as those use it who write and read it. One binary of many files, since each binary costs seconds to build; what starts
//! other programs is not in it, because a program that is just being started holds the folders of all runs for a moment.

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
