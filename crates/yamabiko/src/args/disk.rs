//! Arguments of `disk`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use disk::{DiskPlan, Trial};
use units::{Bytes, parse_duration};

#[derive(Args, Debug)]
pub struct Disk {
    /// Measure the storage under this folder. No file remains in it, even after SIGKILL
    pub directory: PathBuf,
    /// Set the size of the file that is written and read. The page cache is detected by kernel counters; a file of twice the
    /// memory represents long transfers better
    #[arg(short, long, default_value = "1GiB", allow_hyphen_values = true)]
    pub size: Bytes,
    /// Set the length of each test that does not go through the whole file once
    #[arg(short, long, default_value = "5s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub duration: Duration,
    /// Run only these tests, such as seeks,commits [default: all]
    #[arg(short, long, value_delimiter = ',', value_name = "TESTS", value_parser = trial, default_values_t = Trial::ALL.map(Test))]
    #[arg(hide_default_value = true)]
    pub tests: Vec<Test>,
    /// Set the seed of random numbers
    #[arg(long, default_value_t = 1, allow_hyphen_values = true)]
    pub seed: u64,
    /// Also write an HTML page to this file
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output)]
    pub html: Option<PathBuf>,
    /// Do not store the run
    #[arg(long)]
    pub no_save: bool,
    /// Print one JSON document only
    #[arg(long)]
    pub json: bool,
    /// Exit with 3 if the result is suspect, too
    #[arg(long)]
    pub strict: bool,
}

impl Disk {
    /// The configured measurement.
    pub fn plan(&self) -> DiskPlan {
        DiskPlan {
            directory: self.directory.clone(),
            size: self.size,
            each: self.duration,
            tests: self.tests.iter().map(|test| test.0).collect(),
        }
    }
}

/// A test, parsed from its name.
#[derive(Clone, Copy, Debug)]
pub struct Test(Trial);

impl std::fmt::Display for Test {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.name())
    }
}

fn trial(text: &str) -> Result<Test, String> {
    let names = || Trial::ALL.map(Trial::name).join(", ");
    Trial::named(text).map(Test).ok_or_else(|| format!("not a valid test; expected one of {}", names()))
}
