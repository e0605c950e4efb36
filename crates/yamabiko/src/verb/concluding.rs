//! How a verb ends that made a page: the page is written where it is kept and where it was asked for, the result is printed, and
//! then where the page is. And the forms in which a page that is asked for later is written.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use report::page::Page;

use super::bench::print;
use crate::args::PageForms;
use crate::page_file;

/// The page's name in the folder of what it is about.
pub const PAGE: &str = "report.html";

/// Where a result goes.
pub struct Ending<'a> {
    /// Its folder in the run store; none where nothing is kept.
    pub folder: Option<&'a Path>,
    /// Where a page was asked for besides.
    pub html: Option<&'a PathBuf>,
    /// One JSON document is printed and nothing else.
    pub json: bool,
}

/// Writes the page, lets `show` print the result, and prints the URL of the page: of the one that was asked for, else of the one
/// that is kept.
///
/// # Errors
/// A page cannot be written; then nothing is printed.
pub fn conclude(page: Page, ending: &Ending<'_>, show: impl FnOnce() -> Result<()>) -> Result<()> {
    let kept = ending.folder.map(|folder| folder.join(PAGE));
    if kept.is_some() || ending.html.is_some() {
        let html = page.into_html();
        for file in kept.iter().chain(ending.html) {
            page_file::write(file, html.as_bytes())?;
        }
    }
    show()?;
    match ending.html.or(kept.as_ref()) {
        Some(page) if !ending.json => print(&(page_file::url(page) + "\n")),
        _ => Ok(()),
    }
}

impl PageForms {
    /// Whether any is wanted.
    pub fn any(&self) -> bool {
        self.html.is_some() || self.md.is_some() || self.svg.is_some()
    }

    /// Writes a page and its plots where they are wanted, and prints where plots and HTML are.
    ///
    /// # Errors
    /// One of them cannot be written, or two of them are to be the standard output.
    pub fn write(&self, page: Page) -> Result<()> {
        let stdout = Some(Path::new("-"));
        ensure!(
            self.html.as_deref() != stdout || self.md.as_deref() != stdout,
            "--html - and --md -: both cannot be the standard output"
        );
        match self.md.as_deref() {
            md if md == stdout => print(&page.to_markdown())?,
            Some(path) => page_file::write(path, page.to_markdown().as_bytes())?,
            None => {}
        }
        if let Some(folder) = &self.svg {
            fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
            let mut names = BTreeSet::new();
            for figure in page.figures() {
                let path = folder.join(page_file::name_of(figure.title(), &mut names));
                page_file::write(&path, figure.standalone().as_bytes())?;
                print(&format!("{}\n", path.display()))?;
            }
        }
        match self.html.as_deref() {
            html if html == stdout => print(&page.into_html()),
            Some(path) => {
                page_file::write(path, page.into_html().as_bytes())?;
                print(&(page_file::url(path) + "\n"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_written_to_the_run_folder_and_to_the_html_file() {
        let folder = tempfile::tempdir().unwrap();
        let asked = folder.path().join("asked.html");
        let ending = Ending { folder: Some(folder.path()), html: Some(&asked), json: true };
        conclude(Page::new("x"), &ending, || Ok(())).unwrap();
        let [one, other] = [folder.path().join(PAGE), asked.clone()].map(|file| std::fs::read(file).unwrap());
        assert!(one == other && one.starts_with(b"<!doctype html>"));
        // What cannot be written is told before a result is printed.
        let missing = folder.path().join("missing/page.html");
        let ending = Ending { folder: None, html: Some(&missing), json: true };
        assert!(conclude(Page::new("x"), &ending, || panic!("it was shown")).is_err());
        // Where nothing is kept and nothing was asked for there is no page.
        conclude(Page::new("x"), &Ending { folder: None, html: None, json: true }, || Ok(())).unwrap();
    }
}
