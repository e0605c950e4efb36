//! `yamabiko live`: serves the live page, from a separate process that reads the files of runs.
//!
//! ```text
//!   run's folder ──Follower──▶ State ──step──▶ Hub ──▶ browsers        (this process, at low priority)
//!        ▲
//!   process of the run, independent of the page
//! ```
//!
//! A page costs the run only the kernel's time for reading some small files. Runs that ended or were killed are shown
//! as well, and all viewers get the same bytes. Prometheus can scrape the newest figures at `/metrics`. The module
//! [`topics`] has the viewed runs, and `routes` the URLs.
//!
//! With `--follow-stdin` the process is the child of a verb with `--live`: it prints its URL as the only line on
//! stdout, reads the folder to show from stdin, and ends after the end of stdin, once all viewers have the last state.

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
use crate::terminal::print_message;
use crate::token::Token;

/// What wakes the main thread before its next poll.
enum Wake {
    /// A new viewer, or a scrape.
    Joined,
    /// Standard input named a folder.
    Folder(PathBuf),
    /// Standard input has ended.
    End,
}

/// Serves until Ctrl-C, or until the end of standard input with `--follow-stdin`.
pub fn run(arguments: &args::Live) -> Result<Exit> {
    let run_store = RunStore::open()?;
    let shown = match &arguments.run {
        Some(run) => Some(run_store.find(run)?),
        None => None,
    };
    let server = Server::bind(settings(arguments)?)?;
    let interrupts = Interrupts::install().context("sigaction")?;
    let (wakes, woken) = mpsc::channel();
    let topics = Arc::new(Topics::new(run_store, shown, wakes.clone())?);
    let url = server.url();
    // A child has the priority that its parent gave it, which may be lower.
    let is_child = arguments.follow_stdin;
    let lower_priority = move || {
        if !is_child {
            Urgency::Low.apply_to_this_thread();
        }
    };
    lower_priority();
    let open = server.start(routes::router(Arc::clone(&topics)), lower_priority)?;
    writeln!(std::io::stdout(), "{url}").and_then(|()| std::io::stdout().flush()).context("writing to stdout")?;
    if is_child {
        topics.wait_for_folder();
        follow_stdin(wakes)?;
    } else {
        print_message("The page is served until Ctrl-C.");
    }

    let mut is_ended = false;
    while !is_ended && interrupts.count() == 0 {
        // All wakes that wait are handled by one poll.
        let first = woken.recv_timeout(POLL_INTERVAL).ok();
        for wake in first.into_iter().chain(woken.try_iter()) {
            match wake {
                Wake::Folder(folder) => topics.show(folder),
                Wake::End => is_ended = true,
                Wake::Joined => {}
            }
        }
        topics.poll();
    }
    topics.close();
    open.close(FLUSH_TIMEOUT);
    Ok(Exit::Success)
}

fn settings(arguments: &args::Live) -> Result<Settings> {
    let mut settings = Settings::page(arguments.listen)?;
    settings.hosts = arguments.allow_hosts.clone();
    let token = Token::find(arguments.token_file.as_deref())?;
    let is_remote = !is_loopback(arguments.listen);
    let needs_token = arguments.token || arguments.token_file.is_some() || is_remote;
    if let (true, Some(token)) = (needs_token, token) {
        let text = std::str::from_utf8(token.bytes()).context("the token is not text")?;
        settings.key = Key::InUrl(Secret::parse(text)?);
    } else if needs_token {
        settings.key = Key::InUrl(Secret::random()?);
    }
    if is_remote {
        print_message("note: the page is served unencrypted; for an encrypted connection use `ssh -L` and loopback");
    }
    Ok(settings)
}

fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Passes the lines of standard input on, in a thread that ends with the process.
fn follow_stdin(wakes: Sender<Wake>) -> Result<()> {
    let read = move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if !line.is_empty() && wakes.send(Wake::Folder(PathBuf::from(line))).is_err() {
                return;
            }
        }
        // A failure means that the process is ending anyway.
        let _ = wakes.send(Wake::End);
    };
    thread::Builder::new().name("stdin".into()).spawn(read).context("starting a thread")?;
    Ok(())
}

/// Time between two polls of the folders; runs write every second.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long sending the last state to viewers may take.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
