//! `yamabiko live`: the live page, a process of its own that reads what runs write.
//!
//! ```text
//!   run's folder ──Follower──▶ State ──step──▶ Hub ──▶ browsers        (this process, at low priority)
//!        ▲
//!   the run, which knows nothing of it
//! ```
//!
//! So a page costs the run that it shows nothing but what the kernel needs for reading some small files, runs that ended or
//! were killed are shown as well, and all who look on get the same bytes. A Prometheus is told the newest figures under
//! `/metrics`. [`topics`] holds what is looked at, `routes` what is answered.
//!
//! With `--follow-stdin` it is the child of a verb that was asked for `--live`: it prints its URL as the only line on stdout,
//! is told on stdin which folder to show, and ends with stdin, once those who look on have the last state.

mod routes;
mod topics;

use std::io::{BufRead as _, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use store::RunStore;
use sys::sched::Urgency;
use sys::signal::Interrupts;
use web::{Key, Secret, Server, Settings};

use self::topics::Topics;
use crate::args;
use crate::exit::Exit;
use crate::terminal::say;
use crate::token::Token;

/// What wakes the reader of folders before its time.
enum Wake {
    /// Somebody looks on who did not before, or scrapes.
    Joined,
    /// Standard input named a folder.
    Folder(PathBuf),
    /// Standard input has ended.
    End,
}

/// Serves until Ctrl-C, or the end of standard input where that is followed.
pub fn run(arguments: &args::Live) -> Result<Exit> {
    let book = RunStore::open()?;
    let shown = match &arguments.run {
        Some(run) => Some(book.find(run)?),
        None => None,
    };
    let server = Server::bind(settings(arguments)?)?;
    let interrupts = Interrupts::install().context("sigaction")?;
    let (wakes, woken) = mpsc::channel();
    let topics = Arc::new(Topics::new(book, shown, wakes.clone())?);
    let url = server.url();
    // A child has the priority that its parent gave it, which may be lower.
    let is_child = arguments.follow_stdin;
    let give_way = move || {
        if !is_child {
            Urgency::Low.apply_to_this_thread();
        }
    };
    give_way();
    let open = server.start(routes::router(Arc::clone(&topics)), give_way)?;
    writeln!(std::io::stdout(), "{url}").and_then(|()| std::io::stdout().flush()).context("writing to stdout")?;
    if is_child {
        topics.wait_for_folder();
        follow_stdin(wakes)?;
    } else {
        say("The page is served until Ctrl-C.");
    }

    let mut ends = false;
    while !ends && interrupts.count() == 0 {
        // All that came at once are worth one look.
        let first = woken.recv_timeout(LOOK).ok();
        for wake in first.into_iter().chain(woken.try_iter()) {
            match wake {
                Wake::Folder(folder) => topics.show(folder),
                Wake::End => ends = true,
                Wake::Joined => {}
            }
        }
        topics.look();
    }
    topics.close();
    open.close(LEAVE);
    Ok(Exit::Success)
}

fn settings(arguments: &args::Live) -> Result<Settings> {
    let mut settings = Settings::page(arguments.listen)?;
    settings.hosts = arguments.allow_hosts.clone();
    let given = Token::find(arguments.token_file.as_deref())?;
    let is_beyond = !is_loopback(arguments.listen);
    let wanted = arguments.token || arguments.token_file.is_some() || is_beyond;
    if let (true, Some(token)) = (wanted, given) {
        let text = std::str::from_utf8(token.bytes()).context("the token is not text")?;
        settings.key = Key::InUrl(Secret::parse(text)?);
    } else if wanted {
        settings.key = Key::InUrl(Secret::random()?);
    }
    if is_beyond {
        say("note: the page is served unencrypted; for an encrypted connection use `ssh -L` and loopback");
    }
    Ok(settings)
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Lines of standard input, from a thread that ends with the process.
fn follow_stdin(wakes: Sender<Wake>) -> Result<()> {
    let read = move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if !line.is_empty() && wakes.send(Wake::Folder(PathBuf::from(line))).is_err() {
                return;
            }
        }
        // Nobody listens any more: then it ends anyway.
        let _ = wakes.send(Wake::End);
    };
    thread::Builder::new().name("stdin".into()).spawn(read).context("starting a thread")?;
    Ok(())
}

/// Between two looks at the folders: runs write every second.
const LOOK: Duration = Duration::from_millis(500);
/// What those who look on have to take the last state.
const LEAVE: Duration = Duration::from_secs(2);
