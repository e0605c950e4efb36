//! `disk`, as typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use disk::{DiskPlan, Trial};
use units::{Bytes, parse_duration};

#[derive(Args, Debug)]
pub struct Disk {
    /// The folder whose storage is measured. Nothing is left in it, also when this is killed
    pub directory: PathBuf,
    /// Size of the file that is written and read. Storage is told from memory by what the kernel counted, but a file of twice the
    /// memory says more of long transfers
    #[arg(short, long, default_value = "1GiB", allow_hyphen_values = true)]
    pub size: Bytes,
    /// Length of each test that does not take the whole file once
    #[arg(short, long, default_value = "5s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Only these tests, such as seeks,commits; by default all
    #[arg(short, long, value_delimiter = ',', value_name = "TESTS", value_parser = trial, default_values_t = Trial::ALL.map(Test))]
    #[arg(hide_default_value = true)]
    pub tests: Vec<Test>,
    /// Seed of every random choice
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Write the result as one page to this file too
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub html: Option<PathBuf>,
    /// Keep nothing in the book
    #[arg(long)]
    pub no_save: bool,
    /// Print one JSON document and nothing else
    #[arg(long)]
    pub json: bool,
    /// End with status 3 also if the result is only suspect
    #[arg(long)]
    pub strict: bool,
}

impl Disk {
    /// What is to be measured.
    pub fn plan(&self) -> DiskPlan {
        DiskPlan {
            directory: self.directory.clone(),
            size: self.size,
            each: self.duration,
            tests: self.tests.iter().map(|test| test.0).collect(),
        }
    }
}

/// A test by its name.
#[derive(Clone, Copy, Debug)]
pub struct Test(Trial);

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

fn trial(typed: &str) -> Result<Test, String> {
    let names = || Trial::ALL.map(Trial::name).join(", ");
    Trial::named(typed).map(Test).ok_or_else(|| format!("there are {}", names()))
}
