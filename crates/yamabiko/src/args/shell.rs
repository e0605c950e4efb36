//! Arguments of `completions` and `man`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Args, Debug)]
pub struct Completions {
    /// Shell
    pub shell: Shell,
}

#[derive(Args, Debug)]
pub struct Man {
    /// Folder for the pages, created if missing; `man -l FOLDER/yamabiko.1` shows the first
    pub folder: PathBuf,
}
