//! `yamabiko man`: writes the manual pages, from the definitions of arguments and the examples of [`crate::help`].

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::{Command, CommandFactory as _};
use clap_mangen::Man;

use crate::args::{self, Arguments};
use crate::exit::Exit;
use crate::help;
use crate::page_file;
use crate::terminal::print_message;

/// Writes `yamabiko.1` and one page for each verb into a folder.
pub fn run(man: &args::Man) -> Result<Exit> {
    fs::create_dir_all(&man.folder).with_context(|| format!("cannot create {}", man.folder.display()))?;
    let mut command = Arguments::command().disable_help_subcommand(true);
    command.build();
    let pages = write(command, "", &man.folder)?;
    print_message(format_args!("{pages} pages; man -l {} shows the first", man.folder.join("yamabiko.1").display()));
    Ok(Exit::Success)
}

/// Writes the pages of a verb, whose path is `verb`, and of the verbs below it.
fn write(command: Command, verb: &str, folder: &Path) -> Result<usize> {
    let mut pages = 0;
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let path = format!("{verb} {}", below.get_name());
        pages += write(below.clone(), path.trim_start(), folder)?;
    }
    let man = Man::new(command);
    let mut text = Vec::new();
    man.render(&mut text)?;
    let text = corrected(&String::from_utf8_lossy(&text)) + &examples(verb);
    page_file::write(&folder.join(man.get_filename()), text.as_bytes())?;
    Ok(pages + 1)
}

/// The section of examples.
fn examples(verb: &str) -> String {
    let escaped = |text: &str| text.replace('\\', "\\e").replace('-', "\\-");
    let mut text = String::new();
    for (what, line) in help::examples(verb) {
        if text.is_empty() {
            text.push_str(".SH EXAMPLES\n");
        }
        text.push_str(&format!(".TP\n{}:\n\\fB{}\\fR\n", escaped(what), escaped(line)));
    }
    text
}

/// Corrects the output of clap_mangen: it leaves an empty date out, so that the version is taken for the date, and
/// breaks lines before and after a space between paragraphs.
fn corrected(page: &str) -> String {
    let mut corrected = String::with_capacity(page.len());
    for line in page.replace(".br\n\n.br\n", ".sp\n").lines() {
        match line.strip_prefix(".TH ").and_then(|title| title.split_whitespace().next()) {
            // The page has no date, since it belongs to a version of the program.
            Some(name) => {
                let version = env!("CARGO_PKG_VERSION");
                corrected.push_str(&format!(".TH {name} 1 \"\" \"yamabiko {version}\" \"Yamabiko\"\n"));
            }
            None => {
                corrected.push_str(line.trim_end());
                corrected.push('\n');
            }
        }
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_title_has_version_and_paragraphs_have_single_spaces() {
        let page = ".TH yamabiko-x 1  \"yamabiko-x 0\" \nWith this verdict\n.br\n\n.br\n\\fIPossible\\fR \n";
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            ".TH yamabiko-x 1 \"\" \"yamabiko {version}\" \"Yamabiko\"\nWith this verdict\n.sp\n\\fIPossible\\fR\n"
        );
        assert_eq!(corrected(page), expected);
    }
}
