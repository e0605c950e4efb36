//! MAX with features added one at a time, to measure the cost of each.
//!
//! The directory service of NTT DIRECTORY (P3) builds its static server in this way: from the attainable maximum,
//! one measured feature at a time. Here the features are those of [`crate::serve`], the same code, called by a minimal
//! loop:
//!
//! ```text
//!   (none)        find the end of a head; send one prepared response
//!   parse         parse the head with the server's parser, including all refusals
//!   date          add a Date: the response is composed instead of prepared
//!   open          look the path up; open, stat, read and close the file for each request
//!   held          instead: the server's cache of files in memory
//!   conditional   conditions, ranges, content codings, all methods
//!   figures       count the request
//!   log           record it for the thread that writes the access log
//!   tls           all of it over TLS
//! ```
//!
//! The loop uses epoll, with system calls for each request; comparing complete servers shows the savings of io_uring.
//! Read `steps/responding.rs` for the features, `steps/turning.rs` for the loop.

mod responding;
mod turning;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use sys::clock::Clock;

use self::responding::Responder;
use crate::files::Files;
use crate::journal::Log;
use crate::spec::{FileRules, ServeError, open_root, system};
use crate::tls::Tls;

/// A feature beyond responding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Parses the request's head.
    Parse,
    /// Adds a Date to the response.
    Date,
    /// Opens and reads the requested file.
    Open,
    /// Serves the file from memory.
    Held,
    /// Supports conditions, ranges, codings and methods.
    Conditional,
    /// Counts requests.
    Figures,
    /// Records the request for the access log.
    Log,
    /// Uses TLS.
    Tls,
}

impl Feature {
    /// All features, in the order in which they are added.
    pub const ALL: [Feature; 8] = [
        Feature::Parse,
        Feature::Date,
        Feature::Open,
        Feature::Held,
        Feature::Conditional,
        Feature::Figures,
        Feature::Log,
        Feature::Tls,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Feature::Parse => "parse",
            Feature::Date => "date",
            Feature::Open => "open",
            Feature::Held => "held",
            Feature::Conditional => "conditional",
            Feature::Figures => "figures",
            Feature::Log => "log",
            Feature::Tls => "tls",
        }
    }
}

/// Configuration: address, folder and features.
#[derive(Clone, Debug)]
pub struct StepsSpec {
    /// The folder. Without [`Feature::Open`], [`Feature::Held`] or [`Feature::Conditional`] every request gets its
    /// `index.html` as read at the start.
    pub root: PathBuf,
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// The features; each once. All but [`Feature::Parse`], [`Feature::Date`] and [`Feature::Tls`] need
    /// [`Feature::Parse`]; of [`Feature::Open`], [`Feature::Held`] and [`Feature::Conditional`] (which also serves from
    /// memory) the last one applies.
    pub features: Vec<Feature>,
    /// The access log, for [`Feature::Log`].
    pub log: Option<Log>,
    /// The certificate, for [`Feature::Tls`].
    pub tls: Option<Tls>,
}

impl StepsSpec {
    /// Whether `feature` is enabled.
    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// Refuses invalid combinations.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), String> {
        let needs_head = [Feature::Open, Feature::Held, Feature::Conditional, Feature::Figures, Feature::Log];
        if let Some(feature) = self.features.iter().find(|feature| needs_head.contains(feature))
            && !self.has(Feature::Parse)
        {
            return Err(format!("`{}` needs `parse`: an unparsed head has no fields", feature.name()));
        }
        if self.has(Feature::Log) != self.log.is_some() {
            return Err("`log` needs a log file, and a log file needs `log`".to_owned());
        }
        if self.has(Feature::Tls) != self.tls.is_some() {
            return Err("`tls` needs a certificate, and a certificate needs `tls`".to_owned());
        }
        Ok(())
    }
}

/// Serves on one thread until `stop` becomes readable (it is never read), then closes every connection and returns.
/// `on_listening` is called once with the bound address, before the first accept.
///
/// # Errors
/// The folder cannot be opened or has no `index.html`, the address cannot be bound, or an essential system call failed.
pub fn serve_steps(
    spec: &StepsSpec,
    stop: BorrowedFd<'_>,
    on_listening: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    crate::raise_descriptors()?;
    let listener = crate::listen::bind(spec.listen, false)?;
    let bound = listener.local_addr().map_err(system("getsockname"))?;
    let index = spec.root.join("index.html");
    let body = std::fs::read(&index).map_err(|source| ServeError::Root { root: index, source })?;
    let clock = Clock::start();
    // Dropping it waits until the last record is in the file.
    let writing = spec.log.as_ref().map(|log| log.start(clock)).transpose().map_err(system("start the access log"))?;
    let files = Files::new(open_root(&spec.root)?, FileRules::default());
    let journal = writing.as_ref().and_then(|writing| writing.journal());
    let responding = Responder::new(spec, &body, open_root(&spec.root)?, files, journal, clock.now());
    on_listening(bound);
    turning::run(&listener, stop, responding, spec.tls.as_ref(), clock)
}

#[cfg(test)]
mod tests;
