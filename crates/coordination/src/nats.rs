//! The client: gives a state machine time, messages of NATS and lines of the load's process, and does what it wants done.
//!
//! Runs in a process of its own with one thread, at low priority. Nothing here waits for the server: what cannot
//! be published now is left out, since both sides repeat their state.
//!
//! | subject | from | |
//! |---|---|---|
//! | `yamabiko.SESSION.leader` | members | [`FromMember`] |
//! | `yamabiko.SESSION.all` | leader | the state of the load |
//! | `yamabiko.SESSION.shard.INDEX` | leader | answers to one member |
//!
//! Runs are objects of the bucket `yamabiko_SESSION`.

pub mod connect;
mod machine;
mod runs;

use std::hash::{BuildHasher as _, Hasher as _};
use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, Message, Subscriber};
use futures_util::StreamExt as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getppid};
use schema::document::{ClockOffset, ClockOffsets};
use schema::{ShardResponseTime, ShardsProgress};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};

use self::machine::Machine;
use self::runs::Runs;
use crate::message::{Ended, LeaderBody, Progress, encode};
use crate::pipe::{self, FromCoordinator, Hello, ToCoordinator};
use crate::record::{self, Record};
use crate::{Address, Effect, Identity, Local, Now, Over, Summary, Trial};

/// Makes the archive of a run's folder.
pub type Pack = Arc<dyn Fn(&Path, &Path) -> Result<(), String> + Send + Sync>;

/// Interval of the state machine's ticks.
const TICK_INTERVAL: Duration = Duration::from_millis(20);
/// Interval of printed progress.
const PRINT_INTERVAL: Duration = Duration::from_secs(5);
/// Longest wait until the last messages are sent.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);
/// Lines and results that wait for the loop.
const QUEUE: usize = 256;
/// For tests: nanoseconds to add to readings of the wall clock.
const TEST_CLOCK_OFFSET: &str = "YAMABIKO_TEST_CLOCK_OFFSET_NS";

/// Coordinates one shard: reads [`ToCoordinator`] lines from `input`, writes [`FromCoordinator`] lines to `out`, and
/// returns when the last one is written.
///
/// # Errors
/// The load's process has ended or does not speak the protocol; the system refuses a thread or a descriptor.
pub fn run(mut input: impl BufRead + Send + 'static, out: impl Write, pack: Pack) -> io::Result<()> {
    let parent = getppid();
    let Some(ToCoordinator::Hello(hello)) = pipe::read(&mut input)? else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "expected the description of the load first"));
    };
    let (sender, lines) = mpsc::channel(QUEUE);
    std::thread::Builder::new().name("lines".into()).spawn(move || {
        while let Ok(Some(line)) = pipe::read::<ToCoordinator>(&mut input) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(2).build()?;
    let result = runtime.block_on(coordinate(*hello, parent, lines, out, pack));
    // The thread that reads lines may wait forever.
    runtime.shutdown_background();
    result
}

async fn coordinate(
    hello: Hello,
    parent: Pid,
    mut lines: mpsc::Receiver<ToCoordinator>,
    mut out: impl Write,
    pack: Pack,
) -> io::Result<()> {
    let address: Address =
        hello.address.parse().map_err(|why: String| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    let clock = Clocking::start();
    let mut early = None;
    let (client, connection) = match connect::connect(&address, hello.index, (&mut lines, &mut early)).await {
        Ok(connected) => connected,
        Err(why) => return pipe::write(&mut out, &FromCoordinator::NotStarted(why)),
    };
    let instance = std::hash::RandomState::new().build_hasher().finish();
    let identity = Identity {
        index: hello.index,
        count: hello.count,
        instance,
        version: hello.version.clone(),
        plan_digest: hello.plan_digest.clone(),
        host: nix::unistd::gethostname().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
    };
    let machine = Machine::new(&hello, identity, clock.now());
    let (done, results) = mpsc::channel(QUEUE);
    let runs = Runs::new(client.clone(), &address.session, instance, PathBuf::from(&hello.archives), pack, done);
    let mut coordinator = Coordinator {
        clock,
        prefix: format!("yamabiko.{}", address.session),
        session: address.session.clone(),
        hello,
        parent,
        instance,
        machine,
        client,
        runs,
        is_connected: true,
        clocks: ClockOffsets::default(),
        printed: Duration::ZERO,
        own_run: None,
        page: None,
        out: &mut out,
    };
    coordinator.local(Local::Connected(true));
    if let Some(line) = early {
        coordinator.take(line)?;
    }
    coordinator.until_over(lines, connection, results).await
}

/// The clocks of this machine.
struct Clocking {
    zero_ns: u64,
    cpu_zero: Duration,
    offset_ns: i64,
}

impl Clocking {
    fn start() -> Self {
        let offset = std::env::var(TEST_CLOCK_OFFSET).ok().and_then(|text| text.parse().ok());
        Clocking {
            zero_ns: sys::clock::monotonic_ns(),
            cpu_zero: sys::clock::process_cpu_time(),
            offset_ns: offset.unwrap_or(0),
        }
    }

    fn now(&self) -> Now {
        Now {
            monotonic: Duration::from_nanos(sys::clock::monotonic_ns().saturating_sub(self.zero_ns)),
            wall_ns: sys::clock::realtime_ns().saturating_add_signed(self.offset_ns),
        }
    }
}

struct Coordinator<'a, W> {
    clock: Clocking,
    prefix: String,
    session: String,
    hello: Hello,
    parent: Pid,
    instance: u64,
    machine: Machine,
    client: Client,
    runs: Runs,
    is_connected: bool,
    clocks: ClockOffsets,
    printed: Duration,
    /// Folder of the own run.
    own_run: Option<PathBuf>,
    /// Folder whose live page shows all shards (the leader).
    page: Option<PathBuf>,
    out: &'a mut W,
}

impl<W: Write> Coordinator<'_, W> {
    async fn until_over(
        &mut self,
        mut lines: mpsc::Receiver<ToCoordinator>,
        mut connection: mpsc::Receiver<bool>,
        mut results: mpsc::Receiver<Local>,
    ) -> io::Result<()> {
        let own = match self.machine.is_leader() {
            true => format!("{}.leader", self.prefix),
            false => format!("{}.shard.{}", self.prefix, self.hello.index),
        };
        let mut own = self.subscribe(own).await?;
        let mut all = self.subscribe(format!("{}.all", self.prefix)).await?;
        let mut ticks = interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                Some(message) = own.next() => self.receive(&message),
                Some(message) = all.next() => self.receive(&message),
                Some(is_connected) = connection.recv() => {
                    if is_connected != self.is_connected {
                        self.is_connected = is_connected;
                        let what = if is_connected { "is connected again" } else { "is lost; the load goes on" };
                        note(format_args!("NATS {what}"));
                        self.local(Local::Connected(is_connected));
                    }
                }
                Some(result) = results.recv() => self.local(result),
                line = lines.recv() => match line {
                    Some(line) => self.take(line)?,
                    None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the load's process has ended")),
                },
                _ = ticks.tick() => self.machine.tick(self.clock.now()),
            }
            while let Some(effect) = self.machine.effect() {
                if let Effect::Over(over) = effect {
                    return self.over(over).await;
                }
                self.act(effect).await?;
            }
        }
    }

    async fn subscribe(&self, subject: String) -> io::Result<Subscriber> {
        self.client.subscribe(subject).await.map_err(io::Error::other)
    }

    fn local(&mut self, local: Local) {
        self.machine.local(self.clock.now(), local);
    }

    fn receive(&mut self, message: &Message) {
        self.machine.receive(self.clock.now(), &message.payload);
    }

    fn take(&mut self, line: ToCoordinator) -> io::Result<()> {
        match line {
            ToCoordinator::Hello(_) => {}
            ToCoordinator::Progress(progress) => {
                let response_time = self.own_run.as_deref().and_then(response_time);
                self.local(Local::Progress(Progress { response_time, ..progress }));
            }
            ToCoordinator::Run(dir) => {
                let dir = PathBuf::from(dir);
                if self.machine.is_leader() && !self.hello.is_search {
                    self.page = Some(dir.clone());
                }
                self.own_run = Some(dir);
            }
            ToCoordinator::Interrupted => self.local(Local::Interrupted),
            ToCoordinator::Failed(why) => self.local(Local::Failed(why)),
            ToCoordinator::Trial { number, request, prepared, folder } => {
                self.page = Some(folder.into());
                self.local(Local::Trial(Trial { number, request, prepared }));
            }
            ToCoordinator::Prepared(prepared) => self.local(Local::Prepared(prepared)),
            ToCoordinator::Finish(why) => self.local(Local::Finish(why)),
            ToCoordinator::Ended(ended) => {
                if self.machine.is_leader() {
                    self.clocks =
                        ClockOffsets { before: Some(ClockOffset::default()), after: Some(ClockOffset::default()) };
                    self.write_record(&ended)?;
                }
                self.local(Local::Ended(ended));
            }
        }
        Ok(())
    }

    async fn act(&mut self, effect: Effect) -> io::Result<()> {
        match effect {
            Effect::ToLeader(message) => self.publish(format!("{}.leader", self.prefix), encode(&message)).await,
            Effect::ToMembers(message) => {
                let subject = match &message.body {
                    LeaderBody::State(_) => format!("{}.all", self.prefix),
                    LeaderBody::Welcome { index, .. }
                    | LeaderBody::Refused { index, .. }
                    | LeaderBody::Pong { index, .. }
                    | LeaderBody::Taken { index, .. } => format!("{}.shard.{index}", self.prefix),
                };
                self.publish(subject, encode(&message)).await;
            }
            Effect::Start { at_ns } => pipe::write(self.out, &FromCoordinator::Start(at_ns))?,
            Effect::Abort(why) => {
                pipe::write(self.out, &FromCoordinator::Abort(why))?;
                // Only to the process that started this one.
                if getppid() == self.parent {
                    let _ = kill(self.parent, Signal::SIGINT);
                }
            }
            Effect::Note(text) => note(format_args!("{text}")),
            Effect::Summary(summary) => self.print(&summary),
            Effect::Shards(shards) => self.show(&shards),
            Effect::Clock(clocks) => self.clocks = clocks,
            Effect::Send(ended) => {
                self.write_record(&ended)?;
                self.runs.send(self.hello.index, ended);
            }
            Effect::Fetch { index, ended } => match self.shared_folder(index, &ended) {
                Some(dir) => {
                    pipe::write(self.out, &FromCoordinator::Folder(dir))?;
                    self.runs.discard(ended);
                    self.local(Local::Fetched { index, result: Ok(()) });
                }
                None => self.runs.fetch(index, ended),
            },
            Effect::Trial { number, request } => pipe::write(self.out, &FromCoordinator::Trial { number, request })?,
            Effect::TrialOver(over) => self.trial_over(over)?,
            Effect::Over(_) => {}
        }
        Ok(())
    }

    /// The member's folder, if it is on a file system that both machines have: its record names this leader.
    fn shared_folder(&self, index: u32, ended: &Ended) -> Option<String> {
        let record = record::read(Path::new(&ended.dir)).ok()??;
        ((record.leader, record.index) == (self.instance, index)).then(|| ended.dir.clone())
    }

    async fn publish(&self, subject: String, payload: Vec<u8>) {
        if self.is_connected {
            // A full queue means a connection that is lost: the message is repeated.
            let _ = timeout(TICK_INTERVAL, self.client.publish(subject, payload.into())).await;
        }
    }

    fn write_record(&self, ended: &Ended) -> io::Result<()> {
        let leader = match self.machine.is_leader() {
            true => self.instance,
            false => self.machine.leader_of_member().unwrap_or_default(),
        };
        let record = Record {
            session: self.session.clone(),
            index: self.hello.index,
            count: self.hello.count,
            leader,
            clocks: self.clocks,
            cpu_s: sys::clock::process_cpu_time().saturating_sub(self.clock.cpu_zero).as_secs_f64(),
            wall_s: self.clock.now().monotonic.as_secs_f64(),
        };
        record::write(Path::new(&ended.dir), &record)
    }

    fn print(&mut self, summary: &Summary) {
        let now = self.clock.now().monotonic;
        if self.hello.prints_progress && now.saturating_sub(self.printed) >= PRINT_INTERVAL {
            self.printed = now;
            let Summary { heard, count, total } = summary;
            note(format_args!(
                "{heard} of {count} shards: {} requests offered, {} completed, {} failed, {} in flight",
                total.offered, total.completed, total.failed, total.in_flight
            ));
        }
    }

    /// Replaces what the live page shows of all shards. A failure is noticed there: the file is old.
    fn show(&self, shards: &ShardsProgress) {
        if let Some(dir) = &self.page {
            let _ = store::write_shards_progress(dir, shards);
        }
    }

    async fn over(&mut self, over: Over) -> io::Result<()> {
        let _ = timeout(FLUSH_TIMEOUT, self.client.flush()).await;
        if over == Over::Complete && self.machine.is_leader() {
            self.runs.remove_bucket().await;
        }
        if !self.hello.is_search {
            return self.trial_over(over);
        }
        let last = match over {
            Over::Complete => FromCoordinator::Finished(String::new()),
            Over::Incomplete(why) => FromCoordinator::Finished(why.join("; ")),
            Over::NotStarted(why) => FromCoordinator::NotStarted(why),
        };
        pipe::write(self.out, &last)
    }

    /// Reports the end of a load: of a bench, or of a search's trial.
    fn trial_over(&mut self, over: Over) -> io::Result<()> {
        let missing = match over {
            Over::NotStarted(why) => return pipe::write(self.out, &FromCoordinator::NotStarted(why)),
            Over::Complete => Vec::new(),
            Over::Incomplete(missing) => missing,
        };
        for archive in self.runs.received() {
            pipe::write(self.out, &FromCoordinator::Archive(archive.display().to_string()))?;
        }
        pipe::write(self.out, &FromCoordinator::Done(missing))
    }
}

/// Response times of the run in `dir`, as its load's process last wrote them.
fn response_time(dir: &Path) -> Option<ShardResponseTime> {
    let times = store::read_progress(dir).ok()??.load?.response_time_ns;
    (times.count > 0).then_some(ShardResponseTime { count: times.count, p50_ns: times.p50, p99_ns: times.p99 })
}

/// Prints a line for the user.
fn note(text: std::fmt::Arguments<'_>) {
    // A closed stderr does not affect the load.
    let _ = writeln!(io::stderr(), "yamabiko: coordination: {text}");
}
