//! curl as the program of a user, who waits for one file after the other.

use std::path::PathBuf;

use crate::error::ExperimentError;

/// Where distributions put the program.
const PROGRAMS: [&str; 2] = ["/usr/bin/curl", "/usr/local/bin/curl"];

/// An installed curl.
#[derive(Clone, Debug)]
pub struct Curl {
    program: PathBuf,
}

impl Curl {
    /// Looks for it where distributions put it.
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

    /// The program's own words for its version, such as `curl 8.14.1`; empty if it says none.
    pub fn version(&self) -> String {
        let said = std::process::Command::new(&self.program).arg("-V").output();
        let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        said.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    }

    /// A shell command that fetches `url` so many times, one after the other, over HTTP/1.0 and a connection of its own
    /// each, and throws away what comes. Its status is not 0 if the last one failed.
    pub fn fetch(&self, url: &str, times: u64) -> String {
        // What stands behind # is counted up by curl and never sent.
        format!("{} -q -s -S -f --http1.0 -o /dev/null '{url}#[1-{times}]'", self.program.display())
    }
}
