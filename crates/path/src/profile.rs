//! Profiles: number of clients, their distances and their links.
//!
//! A profile is a TOML file; the built-in profiles are such files too (`profiles/` next to this crate's `src/`).
//! `docs/concepts/profiles.md` explains every key, with an example that a test reads. In short:
//!
//! ```toml
//! name = "adsl-2001"
//! about = "where the figures come from"
//! [[clients]]
//! share = 0.7                       # of the clients; the shares add to 1
//! rtt = "48ms"                      # or a distribution, or a series over time
//! jitter = "2ms"                    # optional: variation of each packet's delay each way, order kept
//! up_share = 0.5                    # optional: the part of the RTT that lies on the way up
//! up   = { rate = "512kbit", queue = "64KB", loss = 0.001 }    # in the usual order
//! down = [ { rate = "8Mbit", queue = "200ms" }, { loss = "0.1%" } ]    # in the order written
//! ```
//!
//! [`Profile::path`] cuts the distributions into equal steps: client `i` of the `n` in its class has the quantile
//! `(i + 0.5) / n`. Nothing is drawn at random, so the same profile gives the same clients in every run.

mod built_in;
mod class;
mod curve;
mod describe;
mod document;
mod error;
mod lines;
mod link;
mod rtt;
mod series;
mod write;

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use units::format_duration;
use units::time::text::exact;

pub use error::ProfileError;
pub(crate) use series::read_trace;
pub use write::Draft;

use crate::spec::{Change, ChangedLinks, ClientPath, PathSpec, SharedSpec};
use crate::typed::PlannedChange;
use class::{Class, Shared, apportion};

/// Reads the text of a file: the crate opens no file itself. `&std::fs::read_to_string` outside of tests.
pub type Files<'a> = &'a dyn Fn(&Path) -> std::io::Result<String>;

/// Classes of clients, their shared links, and their changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    name: String,
    about: String,
    classes: Vec<Class>,
    shared: Shared,
    changes: Vec<PlannedChange>,
}

impl Profile {
    /// The same RTT for all clients, half of it each way.
    pub fn constant(rtt: Duration) -> Self {
        Profile {
            name: format!("constant {}", exact(rtt)),
            about: format!("RTT {} for all clients", format_duration(rtt)),
            classes: vec![Class::constant(rtt)],
            shared: Shared::default(),
            changes: Vec::new(),
        }
    }

    /// A profile from a file.
    ///
    /// # Errors
    /// A file that cannot be read, or is not a profile: the file, if possible the line, and the reason.
    pub fn read(file: &Path, files: Files<'_>) -> Result<Self, ProfileError> {
        let text =
            files(file).map_err(|source| ProfileError::Read { what: "profile", file: file.to_owned(), source })?;
        Self::parse(&text, file, files)
    }

    /// A profile from the text of `file`, which names it in errors; other files are searched in its directory.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, file: &Path, files: Files<'_>) -> Result<Self, ProfileError> {
        document::parse(text, file, files)
    }

    /// The name in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The source of its figures, in a sentence; may be empty.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Adds a change.
    ///
    /// # Errors
    /// An unknown class or shared link, in a sentence.
    pub fn add(&mut self, change: PlannedChange) -> Result<(), String> {
        let class = change.class.as_deref().map(|class| self.class(class)).transpose()?;
        let shared = class.map_or(&self.shared, |class| &self.classes[class].shared);
        if change.shared && shared.is_none() {
            return Err(match &change.class {
                Some(class) => format!("`{change}`: class {class} has no shared link"),
                None => format!("`{change}`: the profile has no [shared] link"),
            });
        }
        self.changes.push(change);
        Ok(())
    }

    /// The class of this name, or of this number counted from 1.
    fn class(&self, name_or_number: &str) -> Result<usize, String> {
        let named = self.classes.iter().position(|class| class.name.as_deref() == Some(name_or_number));
        let number = name_or_number.parse().ok().and_then(|number: usize| number.checked_sub(1));
        named.or(number).filter(|&class| class < self.classes.len()).ok_or_else(|| {
            let names: Vec<&str> = self.classes.iter().filter_map(|class| class.name.as_deref()).collect();
            let names = if names.is_empty() { String::new() } else { format!(", or {}", names.join(", ")) };
            format!("no class `{name_or_number}`; the classes are 1 to {}{names}", self.classes.len())
        })
    }

    /// The whole path for `n` clients: the classes in sequence, in each the nearest client first; then the links that
    /// classes share, the link that all share, and the changes.
    pub fn path(&self, n: u32) -> PathSpec {
        let ranges = self.ranges(n);
        let clients =
            self.classes.iter().zip(&ranges).flat_map(|(class, range)| class.clients(range.end - range.start));
        let clients = clients.collect();
        // Classes without a client need no link; `None` stands for all clients.
        let owners = (0..self.classes.len()).map(Some).chain([None]);
        let owners: Vec<Option<usize>> = owners
            .filter(|&owner| !self.shared_of(owner).is_none() && !self.members(owner, &ranges).is_empty())
            .collect();
        let shared = owners.iter().map(|&owner| {
            let Shared { up, down } = self.shared_of(owner).clone();
            SharedSpec { members: self.members(owner, &ranges), up, down }
        });
        let changes = self.changes.iter().filter_map(|change| {
            // The class of a change was checked when the change was added.
            let owner = change.class.as_deref().map(|class| self.class(class)).transpose().ok()?;
            let place = match change.shared {
                false => ChangedLinks::Clients(self.members(owner, &ranges)),
                true => ChangedLinks::Shared(owners.iter().position(|&other| other == owner)?),
            };
            Some(Change { at: change.at, duration: change.duration, place, kind: change.kind })
        });
        PathSpec { clients, shared: shared.collect(), changes: changes.collect() }
    }

    /// The clients' paths without shared links and changes.
    pub fn clients(&self, n: u32) -> Vec<ClientPath> {
        self.path(n).clients
    }

    fn shared_of(&self, class: Option<usize>) -> &Shared {
        class.map_or(&self.shared, |class| &self.classes[class].shared)
    }

    fn members(&self, class: Option<usize>, ranges: &[Range<u32>]) -> Range<u32> {
        class.map_or(0..ranges.last().map_or(0, |range| range.end), |class| ranges[class].clone())
    }

    /// The range of client numbers of each class.
    fn ranges(&self, n: u32) -> Vec<Range<u32>> {
        let mut first = 0;
        let counts = apportion(&self.classes.iter().map(|class| class.share).collect::<Vec<_>>(), n);
        counts
            .into_iter()
            .map(|count| {
                first += count;
                first - count..first
            })
            .collect()
    }
}

#[cfg(test)]
mod page_test;
#[cfg(test)]
mod tests;
