//! What the main thread sees while the loops run.

use std::time::Duration;

use sys::clock::Clock;
use sys::sched::Cores;
use sys::signal::Interrupts;
use units::Timestamp;

use super::Observer;
use super::memory::Memory;
use crate::drive::progress::Phase;
use crate::lanes::{Running, STOP_LEAD};
use crate::places::Places;
use crate::server::{self, Account, Series};

/// The main thread looks at the run this often.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// And tells the observer this often.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// Memory of the server is read this often.
const MEMORY_EVERY: Duration = Duration::from_millis(500);

/// What the main thread saw while the loop ran.
#[derive(Default)]
pub(super) struct Looked {
    /// How often a stop had been asked for before this run.
    pub asked_before: u32,
    /// The generator's processes.
    pub pids: Vec<i32>,
    pub memory_before: Memory,
    /// When the measured phase began.
    pub memory: Option<Memory>,
    pub server_from: Option<Account>,
    pub server_to: Option<Account>,
    /// The measured phase, second by second.
    pub server_series: Series,
    /// Where the server's packets are received, if that is on its own cores.
    pub steered: Option<Cores>,
    /// Whether the server is held to a share of the processor.
    pub bounded: bool,
    pub rss_bytes_max: u64,
    pub server_ended: Option<String>,
    pub interrupted: bool,
    pub gave_up: bool,
}

impl Looked {
    /// Looks at the run until it is over.
    pub fn until_done(
        &mut self,
        running: &Running<'_>,
        interrupts: &Interrupts,
        clock: &Clock,
        mut places: Option<&mut Places>,
        observer: &mut dyn Observer,
    ) {
        let (mut asked, mut told, mut memory_read) = (0, Timestamp::ZERO, Timestamp::ZERO);
        loop {
            running.look();
            let progress = &running.run;
            let phase = progress.phase();
            if phase == Phase::Done {
                self.gave_up = progress.gave_up();
                if self.server_to.is_none() {
                    // Nothing was in flight at the end, so that the drain was over between two looks.
                    self.server_to = places.as_deref().and_then(server::account);
                    self.add_second(clock.now(), self.server_to.clone());
                }
                return;
            }
            let now = clock.now();
            if phase == Phase::Measured && self.memory.is_none() {
                self.memory = Some(Memory::read(&self.pids));
            }
            if let Some(places) = places.as_deref_mut() {
                if phase == Phase::Measured && self.server_from.is_none() {
                    self.server_from = server::account(places);
                }
                match self.server_series.due() {
                    None if phase == Phase::Measured => {
                        if let Some(account) = server::account(places) {
                            self.server_series.begin(now, account);
                        }
                    }
                    Some(due) if phase == Phase::Measured && now >= due => {
                        self.add_second(now, server::account(places));
                    }
                    _ => {}
                }
                if phase > Phase::Measured && self.server_to.is_none() {
                    self.server_to = server::account(places);
                    self.add_second(now, self.server_to.clone());
                }
                if now.since(memory_read) >= MEMORY_EVERY {
                    memory_read = now;
                    if let Some(account) = server::account(places) {
                        self.rss_bytes_max = self.rss_bytes_max.max(account.rss_bytes());
                    }
                }
                if self.server_ended.is_none()
                    && phase < Phase::Drain
                    && let Some(place) = &mut places.server
                {
                    self.server_ended = server::ended(place);
                }
            }
            let snapshot = progress.snapshot();
            let observers = if observer.at_once(&snapshot) { 2 } else { u32::from(observer.enough(&snapshot)) };
            let count = (interrupts.count() - self.asked_before).max(observers);
            if count > asked {
                asked = count;
                self.interrupted |= phase < Phase::Drain;
                running.ask(asked, now + STOP_LEAD);
            }
            if now.since(told) >= TELL_EVERY {
                told = now;
                observer.tick(now.since(Timestamp::ZERO), &progress.snapshot());
            }
            interrupts.wait(LOOK_EVERY);
        }
    }

    fn add_second(&mut self, now: Timestamp, account: Option<Account>) {
        if let Some(account) = account {
            self.server_series.add(now, account, self.steered.as_ref(), self.bounded);
        }
    }
}
