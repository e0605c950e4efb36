//! `--hosts a,b,c`: a shard on each host, by the system's ssh.
//!
//! ```text
//!   ssh HOST yamabiko --version                                              all: reached, of one version
//!   ssh HOST yamabiko run /dev/stdin --shard I/N --start-at T < plan         all at the same time
//!   ssh HOST kill -INT PID                                                   Ctrl-C, --abort-on-lost
//!   ssh HOST yamabiko runs export RUN -                                      every run that ended
//! ```
//!
//! A host needs the program in the PATH of a login without terminal, and nothing else. A connection that is lost does
//! not end its shard: the run is on its host. Clocks are judged by what each machine says of its own.

mod remote;

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plan::{CoordinationOptions, Plan, ShardOf, ShardPlan, StartAt};
use store::RunStore;
use sys::signal::Interrupts;

use self::remote::{Ended, Remote};
use super::merge_all;
use crate::exit::Exit;
use crate::terminal::print_message;
use crate::verb::bench::{ExecutionOptions, print};

/// Time between the order and the start of the load: connections, and the reading of the plan.
const START_LEAD: Duration = Duration::from_secs(10);
/// Interval at which interrupts are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Most hosts.
const HOSTS_MAX: usize = 1000;

/// Executes the plan on the hosts, and prints the merged result.
///
/// # Errors
/// A host that cannot be reached or has another version, before anything is sent; no shard with a result.
pub fn execute_plan(plan: &Plan, options: &ExecutionOptions<'_>, machines: &CoordinationOptions) -> Result<Exit> {
    let hosts = &machines.hosts;
    check(plan, hosts)?;
    if options.print_plan {
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    let interrupts = Interrupts::install()?;
    let run_store = RunStore::open()?;
    std::fs::create_dir_all(run_store.root()).with_context(|| format!("mkdir {}", run_store.root().display()))?;
    let archives = tempfile::Builder::new().prefix(".coordination-").tempdir_in(run_store.root())?;
    let ssh = machines.ssh.as_deref().unwrap_or("ssh");
    let remotes: Vec<Remote> = hosts.iter().map(|host| Remote::new(ssh, host)).collect();
    each(&remotes, |_, remote| remote.check_version()).into_iter().collect::<Result<Vec<()>>>()?;
    let at_ns = sys::clock::realtime_ns().saturating_add(units::time::saturating_nanos(START_LEAD));
    let ends = run_all(&remotes, plan, StartAt::of_unix_ns(at_ns), machines.abort_on_lost, &interrupts);
    let fetched = each(&remotes, |index, remote| {
        let run = ends[index].run.as_ref()?;
        let archive = archives.path().join(format!("shard-{index}.tar.gz"));
        match remote.fetch(run, &archive) {
            Ok(()) => Some(archive),
            Err(error) => {
                print_message(format_args!("{}: run {run} could not be fetched: {error:#}", remote.host()));
                None
            }
        }
    });
    let fetched: Vec<PathBuf> = fetched.into_iter().flatten().collect();
    merge_all(Vec::new(), &fetched, &run_store, plan, options)
}

/// Refuses what the hosts would refuse, before any is reached.
fn check(plan: &Plan, hosts: &[String]) -> Result<()> {
    ensure!(hosts.len() <= HOSTS_MAX, "{} hosts (--hosts): expected at most {HOSTS_MAX}", hosts.len());
    ensure!(plan.shard.is_unset(), "--hosts makes the shards of a whole load: leave out [shard]");
    for (index, host) in hosts.iter().enumerate() {
        // ssh would take a host that begins with - as an option.
        let is_host = |letter: char| letter.is_ascii_alphanumeric() || "-._:@%[]".contains(letter);
        ensure!(
            !host.is_empty() && !host.starts_with('-') && host.chars().all(is_host),
            "host `{}` (--hosts): expected a name or an address, optionally with USER@",
            units::printable(host)
        );
        ensure!(!hosts[..index].contains(host), "host {host} is given twice (--hosts)");
    }
    let files = crate::verb::manifests::files(plan);
    ensure!(
        files.is_empty(),
        "--hosts: only the plan itself is carried to the hosts, and it reads files: {}",
        files.join(", ")
    );
    let count = u32::try_from(hosts.len())?;
    let shard = ShardPlan { shard: Some(ShardOf { index: count - 1, count }), start_at: Some(StartAt::of_unix_ns(1)) };
    Plan { shard, ..plan.clone() }.check().with_context(|| format!("{count} shards of this plan"))
}

/// Does something with all hosts at the same time.
fn each<T: Send>(remotes: &[Remote], what: impl Fn(usize, &Remote) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let what = &what;
        let threads: Vec<_> =
            remotes.iter().enumerate().map(|(index, remote)| scope.spawn(move || what(index, remote))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Makes all shards, and ends all at the first interrupt, or when one is lost and its loss aborts.
fn run_all(remotes: &[Remote], plan: &Plan, at: StartAt, abort_on_lost: bool, interrupts: &Interrupts) -> Vec<Ended> {
    let count = remotes.len() as u32;
    let text = plan.to_toml();
    let (sender, receiver) = mpsc::channel();
    let before = interrupts.count();
    let mut ends: Vec<Ended> = remotes.iter().map(|_| Ended::default()).collect();
    std::thread::scope(|scope| {
        for (index, remote) in (0..count).zip(remotes) {
            let (sender, text) = (sender.clone(), &text);
            scope.spawn(move || {
                let ended = remote.run(text, ShardOf { index, count }, at);
                // The receiver waits for every shard.
                let _ = sender.send((index as usize, ended));
            });
        }
        let (mut left, mut aborted) = (remotes.len(), 0);
        while left > 0 {
            if let Ok((index, ended)) = receiver.recv_timeout(POLL_INTERVAL) {
                left -= 1;
                if let Some(why) = &ended.lost {
                    print_message(format_args!("lost shard {index}/{count} on {}: {why}", remotes[index].host()));
                    if abort_on_lost && aborted == 0 {
                        aborted = 1;
                        remotes.iter().for_each(Remote::interrupt);
                    }
                }
                ends[index] = ended;
            }
            // A second interrupt ends requests in flight too, as it does for one run.
            if interrupts.count() > before + aborted {
                aborted = interrupts.count() - before;
                remotes.iter().for_each(Remote::interrupt);
            }
        }
    });
    ends
}
