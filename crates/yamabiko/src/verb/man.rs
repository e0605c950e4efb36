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
    let man = Man::new(command);
    let mut text = Vec::new();
    man.render(&mut text)?;
    let text = mended(&String::from_utf8_lossy(&text));
    page_file::write(&folder.join(man.get_filename()), text.as_bytes())?;
    Ok(pages + 1)
}

/// The page as readers of pages want it: clap_mangen leaves the date out where there is none, so that the version is taken
/// for it, and breaks lines before and after a space between paragraphs.
fn mended(page: &str) -> String {
    let mut mended = String::with_capacity(page.len());
    for line in page.replace(".br\n\n.br\n", ".sp\n").lines() {
        match line.strip_prefix(".TH ").and_then(|title| title.split_whitespace().next()) {
            // No date: a page is made from the program, and is as old as that.
            Some(name) => {
                let version = env!("CARGO_PKG_VERSION");
                mended.push_str(&format!(".TH {name} 1 \"\" \"yamabiko {version}\" \"Yamabiko\"\n"));
            }
            None => {
                mended.push_str(line.trim_end());
                mended.push('\n');
            }
        }
    }
    mended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_stumble_over_is_mended() {
        let page = ".TH yamabiko-x 1  \"yamabiko-x 0\" \nWith this verdict\n.br\n\n.br\n\\fIPossible\\fR \n";
        let version = env!("CARGO_PKG_VERSION");
        let wanted = format!(
            ".TH yamabiko-x 1 \"\" \"yamabiko {version}\" \"Yamabiko\"\nWith this verdict\n.sp\n\\fIPossible\\fR\n"
        );
        assert_eq!(mended(page), wanted);
    }
}
