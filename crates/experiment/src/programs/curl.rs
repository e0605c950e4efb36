//! curl as the program of a user who downloads one file after another.

use std::path::PathBuf;

use crate::error::ExperimentError;

/// Paths of the program in distributions.
const PROGRAMS: [&str; 2] = ["/usr/bin/curl", "/usr/local/bin/curl"];

/// An installed curl.
#[derive(Clone, Debug)]
pub struct Curl {
    program: PathBuf,
}

impl Curl {
    /// Finds the program in the paths of distributions.
    ///
    /// # Errors
    /// [`ExperimentError::Missing`].
    pub fn find() -> Result<Curl, ExperimentError> {
        PROGRAMS
            .iter()
            .map(PathBuf::from)
            .find(|place| place.exists())
            .map(|program| Curl { program })
            .ok_or(ExperimentError::Missing { program: "curl", fix: "apt-get install curl" })
    }

    /// The program's version as printed, such as `curl 8.14.1`; empty if it prints none.
    pub fn version(&self) -> String {
        let output = std::process::Command::new(&self.program).arg("-V").output();
        let output = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        output.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// A shell command that fetches `url` this many times, one after another, over HTTP/1.0 and a new connection each,
    /// and discards the responses. Its status is not 0 if the last one failed.
    pub fn fetch(&self, url: &str, times: u64) -> String {
        // curl replaces the part after # by a number and does not send it.
        format!("{} -q -s -S -f --http1.0 -o /dev/null '{url}#[1-{times}]'", self.program.display())
    }
}
