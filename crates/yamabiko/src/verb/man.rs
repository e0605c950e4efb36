//! `yamabiko man`: the manual pages, made from the arguments as clap knows them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args::{self, Arguments};
use crate::exit::Exit;
use crate::page_file;
use crate::terminal::say;

/// Writes `yamabiko.1` and one page a verb into a folder.
pub fn run(man: &args::Man) -> Result<Exit> {
    fs::create_dir_all(&man.folder).with_context(|| format!("cannot make {}", man.folder.display()))?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    let pages = write(command, &man.folder)?;
    say(format_args!("{pages} pages; man -l {} shows the first", man.folder.join("yamabiko.1").display()));
    Ok(Exit::Fine)
}

fn write(command: Command, folder: &Path) -> Result<usize> {
    let mut pages = 0;
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        pages += write(verb.clone(), folder)?;
    }
    let man = Man::new(command).source(concat!("yamabiko ", env!("CARGO_PKG_VERSION"))).manual("Yamabiko");
    let mut text = Vec::new();
    man.render(&mut text)?;
    page_file::write(&folder.join(man.get_filename()), &text)?;
    Ok(pages + 1)
}
