//! Writes the page of a verb's result into the run's folder and the file of `--html`, and prints the result and the
//! page's URL. Also writes pages in the forms of `report`: HTML, Markdown, SVG.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use report::page::Page;

use super::bench::print;
use crate::args::PageForms;
use crate::page_file;

/// File name of the page in a run's folder.
pub const PAGE: &str = "report.html";

/// Where a result is written.
pub struct Output<'a> {
    /// The run's folder; none if the run is not stored.
    pub folder: Option<&'a Path>,
    /// The file of `--html`.
    pub html: Option<&'a PathBuf>,
    /// Whether one JSON document is printed and nothing else.
    pub json: bool,
}

/// Writes the page, lets `show` print the result, and prints the URL of the page: of the file of `--html`, otherwise of
/// the one in the run's folder.
///
/// # Errors
/// A page cannot be written; nothing is printed then. The result cannot be printed.
pub fn write_and_print(page: Page, output: &Output<'_>, show: impl FnOnce() -> Result<()>) -> Result<()> {
    let stored_page = output.folder.map(|folder| folder.join(PAGE));
    if stored_page.is_some() || output.html.is_some() {
        let html = page.into_html();
        for file in stored_page.iter().chain(output.html) {
            page_file::write(file, html.as_bytes())?;
        }
    }
    show()?;
    match output.html.or(stored_page.as_ref()) {
        Some(page) if !output.json => print(&(page_file::url(page) + "\n")),
        _ => Ok(()),
    }
}

impl PageForms {
    /// Whether any form is requested.
    pub fn any(&self) -> bool {
        self.html.is_some() || self.md.is_some() || self.svg.is_some()
    }

    /// Writes a page and its plots in the requested forms, and prints the paths of plots and the URL of the HTML file.
    ///
    /// # Errors
    /// A file cannot be written, or both HTML and Markdown are to be the standard output.
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
            fs::create_dir_all(folder).with_context(|| format!("cannot create the folder {}", folder.display()))?;
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
        let html_file = folder.path().join("requested.html");
        let output = Output { folder: Some(folder.path()), html: Some(&html_file), json: true };
        write_and_print(Page::new("x"), &output, || Ok(())).unwrap();
        let [one, other] = [folder.path().join(PAGE), html_file.clone()].map(|file| std::fs::read(file).unwrap());
        assert!(one == other && one.starts_with(b"<!doctype html>"));
        // A page that cannot be written is an error before the result is printed.
        let missing = folder.path().join("missing/page.html");
        let output = Output { folder: None, html: Some(&missing), json: true };
        assert!(write_and_print(Page::new("x"), &output, || panic!("the result was printed")).is_err());
        // Without a folder and without `--html` no page is written.
        write_and_print(Page::new("x"), &Output { folder: None, html: None, json: true }, || Ok(())).unwrap();
    }
}
