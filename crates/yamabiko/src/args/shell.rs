//! `yamabiko completions` and `yamabiko man`, as typed.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;

#[derive(Args, Debug)]
pub struct Completions {
    /// The shell
    pub shell: Shell,
}

#[derive(Args, Debug)]
pub struct Man {
    /// Folder for the pages, made if it is not there; `man -l FOLDER/yamabiko.1` shows the first
    pub folder: PathBuf,
}
