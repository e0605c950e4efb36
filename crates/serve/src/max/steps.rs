//! MAX with features added to it one at a time, to see what each costs.
//!
//! NTT's report on the parts of a directory system (P3) builds its static server so: from the attainable maximum, a
//! feature at a time, each measured. Here the features are those of [`crate::serve`], the same code, called by a loop
//! that does nothing else:
//!
//! ```text
//!   (none)        a head's end is looked for; one prepared answer is sent
//!   parse         the head is read by the server's parser, with all that it refuses
//!   date          a Date, so an answer that is put together instead of one that is prepared
//!   open          the path is looked up, its file opened, measured, read and closed, for each request
//!   held          instead: the server's own store of files in memory
//!   conditional   conditions, ranges, content codings, every method: all that a file's answer may depend on
//!   figures       the request is counted
//!   log           a record of it goes to the thread that writes the access log
//!   tls           all of it through TLS
//! ```
//!
//! The loop is over epoll, where a system call is a system call of one request: what io_uring saves is seen by comparing
//! the whole servers. Read `steps/responding.rs` for what each feature does, `steps/turning.rs` for the loop.

mod responding;
mod turning;

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use sys::clock::Clock;

use self::responding::Answering;
use crate::files::Files;
use crate::journal::Log;
use crate::spec::{FileRules, ServeError, open_root, system};
use crate::tls::Tls;

/// Something that a server does beyond answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// Reads the request's head.
    Parse,
    /// Puts a Date into the answer.
    Date,
    /// Opens and reads the file that is asked for.
    Open,
    /// Has it in memory.
    Held,
    /// Heeds conditions, ranges, codings and methods.
    Conditional,
    /// Counts.
    Figures,
    /// Notes the request for the access log.
    Log,
    /// Speaks TLS.
    Tls,
}

impl Feature {
    /// All of them, in the order in which they are added.
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

    /// One word, as typed.
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

/// What to answer, where, and with which features.
#[derive(Clone, Debug)]
pub struct StepsSpec {
    /// The folder. Without [`Feature::Open`], [`Feature::Held`] or [`Feature::Conditional`] every request is answered
    /// with its `index.html` as it is at the start.
    pub root: PathBuf,
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// What is added; each once. All but [`Feature::Parse`], [`Feature::Date`] and [`Feature::Tls`] need
    /// [`Feature::Parse`]; of [`Feature::Open`], [`Feature::Held`] and [`Feature::Conditional`] (which has the files
    /// in memory too) the last one counts.
    pub features: Vec<Feature>,
    /// The access log, for [`Feature::Log`].
    pub log: Option<Log>,
    /// The certificate, for [`Feature::Tls`].
    pub tls: Option<Tls>,
}

impl StepsSpec {
    /// Whether `feature` is among them.
    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.features.contains(&feature)
    }

    /// Refuses what cannot be meant.
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

/// Answers on one thread until `stop` becomes readable (it is never read), then closes every connection and returns.
/// `on_listening` is called once with the bound address, before the first accept.
///
/// # Errors
/// The folder cannot be opened or has no `index.html`; the address cannot be bound; a system call that never should
/// fail did.
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
    // It writes until the last record is in the file, which is when it is dropped.
    let writing = spec.log.as_ref().map(|log| log.start(clock)).transpose().map_err(system("start the access log"))?;
    let files = Files::new(open_root(&spec.root)?, FileRules::default());
    let journal = writing.as_ref().and_then(|writing| writing.journal());
    let responding = Answering::new(spec, &body, open_root(&spec.root)?, files, journal, clock.now());
    on_listening(bound);
    turning::run(&listener, stop, responding, spec.tls.as_ref(), clock)
}

#[cfg(test)]
mod tests;
