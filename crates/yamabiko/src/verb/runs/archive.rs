//! `yamabiko runs export` and `yamabiko runs import`: archives of runs.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use report::figures::{bytes, count, plain};
use store::RunStore;
use store::archive::{self, Exported};

use crate::args::{Export, Import};
use crate::exit::Exit;
use crate::page_file;
use crate::terminal::print_message;

/// Writes runs into an archive, completely or not at all.
pub fn export(run_store: &RunStore, export: &Export) -> Result<Exit> {
    let (file, runs) = export.runs_and_file.split_last().expect("clap requires two arguments");
    if run_store.find(file).is_ok() {
        bail!("the last argument `{file}` is a run; expected the file to write, such as runs.tar.gz");
    }
    let dirs: Vec<PathBuf> = runs.iter().map(|name| run_store.find(name)).collect::<store::Result<_>>()?;
    let path = Path::new(file);
    let exported = if file == "-" {
        if io::stdout().is_terminal() {
            bail!("an archive is not written to a terminal; give a file, or use a pipe");
        }
        archive::export(&dirs, io::stdout().lock(), path)?
    } else {
        let mut exported = Exported::default();
        page_file::write_by(path, |out| {
            exported = archive::export(&dirs, io::BufWriter::new(out), path)?;
            Ok(())
        })?;
        exported
    };
    for skipped in &exported.left_out {
        print_message(format_args!("skipped, not a regular file: {}", plain(&skipped.display().to_string())));
    }
    print_message(format_args!("{} files, {}", count(exported.files), bytes(exported.bytes)));
    Ok(Exit::Success)
}

/// Imports the runs of an archive, all or none.
pub fn import(run_store: &RunStore, import: &Import) -> Result<Exit> {
    let name = import.file.display().to_string();
    let archive: Box<dyn Read> = if name == "-" {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(&import.file).with_context(|| format!("cannot read {name}"))?)
    };
    let how = archive::Import {
        bytes_max: import.limit.map(|limit| limit.0),
        rename: import.rename,
        seed_for_letters: sys::clock::realtime_ns(),
    };
    for run in archive::import(run_store, archive, &plain(&name), how)? {
        if run.id == run.was {
            super::print(&format!("{}\n", run.id))?;
        } else {
            super::print(&format!("{} (renamed from {}; its files keep the old name)\n", run.id, run.was))?;
        }
    }
    Ok(Exit::Success)
}
