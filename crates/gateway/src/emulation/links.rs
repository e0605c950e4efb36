//! The gateway's two links: an emulated path each, driven by a loop.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use path::{
    AddressPlan, Bottleneck, ClientPath, Discipline, EffectSpec, LinkSpec, Network, PathSpec, Queue, QueueLimit,
    RateSpec, Rewrite, SharedSpec,
};
use schema::Direction;
use sys::accounting::{Served, served, this_thread};
use sys::clock::Clock;
use sys::netlink::LinkStats;
use sys::sched::{Cores, Urgency};
use sys::signal::Wake;
use units::{Limit, Probability, Timestamp};

use super::{CLIENT, DirectionFigures, LinkFigures, LinkSettings};
use plan::{Engine, Wait};
use testbed::TestbedError;
use testbed::drive::Drive;
use testbed::drive::path_io::{End, PathIo};
use testbed::drive::path_live::{Carried, PathLive};
use testbed::drive::progress::Progress;

/// A running link. Dropping it ends its loop.
pub(super) struct Link {
    live: Arc<PathLive>,
    progress: Arc<Progress>,
    stop: Arc<Wake>,
    /// The loop's thread number, once it runs.
    number: Arc<AtomicI32>,
    thread: Option<JoinHandle<Result<(), String>>>,
}

/// The path between two ends. Its `clients` have the client's address and those after it.
pub(super) fn path(
    settings: &LinkSettings,
    clients: u32,
    seed: u64,
    client: impl Into<End>,
    server: impl Into<End>,
) -> PathIo {
    let addresses = AddressPlan { first_client: CLIENT, clients };
    PathIo::new(Network::new(addresses, &spec(settings, clients), seed), client, server, Rewrite::default())
}

/// One link shared by all clients, in each direction. Without effects it passes segments unsplit.
fn spec(settings: &LinkSettings, clients: u32) -> PathSpec {
    let mut link = LinkSpec::default();
    if settings.loss != Probability::ZERO {
        link.put(EffectSpec::Loss(settings.loss));
    }
    if let Limit::At(rate) = settings.rate {
        let queue = Queue { limit: QueueLimit::Bytes(settings.queue), discipline: Discipline::DropTail };
        link.put(EffectSpec::Bottleneck(Bottleneck { rate: RateSpec::Constant(rate), queue }));
    }
    if !settings.delay.is_zero() {
        link.put(EffectSpec::Delay(settings.delay));
    }
    let mut spec = PathSpec::new(vec![ClientPath::constant(Duration::ZERO); clients as usize]);
    if !link.effects.is_empty() {
        spec.shared.push(SharedSpec { members: 0..clients, up: link.effects.clone(), down: link.effects });
    }
    spec
}

impl Link {
    /// Starts the loop.
    pub(super) fn start(name: &str, mut path: PathIo, core: Option<Cores>) -> Result<Link, TestbedError> {
        let live = Arc::new(PathLive::default());
        let progress = Arc::new(Progress::default());
        let stop = Arc::new(Wake::new().map_err(TestbedError::system("eventfd"))?);
        let number = Arc::new(AtomicI32::new(0));
        path.publish_each_batch(Arc::clone(&live));
        let clock = Clock::start();
        path.set_start(clock.now());
        let (progress_in_thread, wake, number_in_thread) =
            (Arc::clone(&progress), Arc::clone(&stop), Arc::clone(&number));
        let work = move || {
            number_in_thread.store(this_thread(), Ordering::Release);
            if let Some(core) = core {
                // Without pinning the loop is less precise, which the timing error shows.
                let _ = core.pin_this_thread();
            }
            // Never real-time: on two cores the tester shares its core.
            let urgency = Urgency::High.apply_to_this_thread();
            let drive = Drive {
                clock,
                wait: Wait::default(),
                engine: Engine::default(),
                path: Some(path),
                load: None,
                progress: progress_in_thread,
                stop: wake.as_fd(),
                drain: Duration::ZERO,
                others: Vec::new(),
                own_core: false,
                shares_core: false,
                urgency,
                grace: Duration::ZERO,
            };
            drive.run().map(drop).map_err(|error| error.to_string())
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        let thread = Some(thread.map_err(TestbedError::system("start a link"))?);
        Ok(Link { live, progress, stop, number, thread })
    }

    /// Counters so far. `devices` are those at both ends, client side first.
    pub(super) fn figures(&self, devices: Option<[LinkStats; 2]>) -> LinkFigures {
        let thread = self.number.load(Ordering::Acquire);
        let Served { ran, waited } = served(std::process::id() as i32, thread).unwrap_or_default();
        let dropped = |device: &LinkStats| device.tx_dropped + device.tx_errors + device.rx_errors;
        LinkFigures {
            at: Duration::from_nanos(sys::clock::monotonic_ns()),
            up: direction(self.live.carried(Direction::Up)),
            down: direction(self.live.carried(Direction::Down)),
            ran,
            waited_for_core: waited,
            written: self.live.written(),
            late: self.live.late(),
            unintended_drops: self.live.refused() + devices.iter().flatten().map(dropped).sum::<u64>(),
        }
    }

    /// Packets dropped by the full queue of the emulated host.
    pub(super) fn overflowed(&self) -> u64 {
        self.live.overflowed()
    }

    /// Why the loop ended, if it did.
    pub(super) fn failure(&mut self) -> Option<String> {
        if !self.thread.as_ref()?.is_finished() {
            return None;
        }
        let ended = self.thread.take()?.join();
        Some(match ended {
            Ok(Ok(())) => "it ended".into(),
            Ok(Err(error)) => error,
            Err(_) => "it panicked".into(),
        })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.progress.request_stop(2, Timestamp::ZERO);
        self.stop.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn direction(carried: Carried) -> DirectionFigures {
    let Carried { packets, bytes, delivered, delivered_bytes, lost, queue_full, dropped } = carried;
    DirectionFigures {
        packets,
        bytes,
        delivered,
        delivered_bytes,
        lost,
        queue_full,
        others: dropped.saturating_sub(lost + queue_full),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(rate: &str) -> LinkSettings {
        LinkSettings::at(rate.parse().map_or(Limit::Unlimited, Limit::At))
    }

    #[test]
    fn unlimited_link_passes_segments_unsplit() {
        assert!(spec(&settings("unlimited"), 2).only_delays());
    }

    #[test]
    fn link_applies_loss_before_the_rate_in_both_directions() {
        let link = LinkSettings { loss: "1%".parse().unwrap(), delay: Duration::from_millis(2), ..settings("10Mbit") };
        let spec = spec(&link, 2);
        assert_eq!((spec.clients.len(), spec.shared.len()), (2, 1));
        let shared = &spec.shared[0];
        assert_eq!((shared.members.clone(), &shared.up), (0..2, &shared.down));
        assert!(matches!(shared.up[..], [EffectSpec::Loss(_), EffectSpec::Bottleneck(_), EffectSpec::Delay(_)]));
    }
}
