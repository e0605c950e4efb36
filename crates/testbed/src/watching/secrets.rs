//! TLS secrets on their way from the load's loops to the packet capture of the same run.
//!
//! The load reports a secret before it sends anything that it protects, so that the capture at the server's end has it
//! before that packet. Only the load's own connections are reported, in memory; nothing is written.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use watch::Watch;

use crate::packets::KeptPackets;

/// Most secrets that wait for the capture, some 30 MB. A connection has up to five.
const QUEUED_SECRETS_MAX: usize = 1 << 18;
/// Longest secret: of SHA-384.
const SECRET_MAX: usize = 48;

/// The loops' end.
#[derive(Clone, Debug)]
pub struct SecretSender {
    sender: Sender<Secret>,
    state: Arc<State>,
    max: usize,
}

/// The capture's end.
#[derive(Debug)]
pub struct SecretReceiver {
    receiver: Receiver<Secret>,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    queued: AtomicUsize,
    lost: AtomicU64,
}

#[derive(Debug)]
struct Secret {
    label: &'static str,
    random: [u8; 32],
    bytes: [u8; SECRET_MAX],
    length: usize,
}

/// Creates both ends.
pub fn secrets() -> (SecretSender, SecretReceiver) {
    with_capacity(QUEUED_SECRETS_MAX)
}

fn with_capacity(max: usize) -> (SecretSender, SecretReceiver) {
    let (sender, receiver) = channel();
    let state = Arc::new(State::default());
    (SecretSender { sender, state: Arc::clone(&state), max }, SecretReceiver { receiver, state })
}

impl rustls::KeyLog for SecretSender {
    /// Never waits; a secret that does not fit is lost and counted.
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let (Some(label), Ok(random)) = (LABELS.iter().find(|known| **known == label), client_random.try_into()) else {
            return;
        };
        let mut bytes = [0; SECRET_MAX];
        let Some(place) = bytes.get_mut(..secret.len()) else { return };
        place.copy_from_slice(secret);
        if self.state.queued.fetch_add(1, Ordering::Relaxed) >= self.max {
            self.state.queued.fetch_sub(1, Ordering::Relaxed);
            self.state.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Sending fails only if the capture has ended.
        let _ = self.sender.send(Secret { label, random, bytes, length: secret.len() });
    }

    fn will_log(&self, label: &str) -> bool {
        LABELS.contains(&label)
    }
}

impl SecretReceiver {
    /// Passes the secrets that have arrived to the analysis, and to the kept packets that they decrypt.
    pub(super) fn pass_to(&self, watch: &mut Watch, kept: Option<&mut KeptPackets>) {
        let mut kept = kept;
        while let Ok(secret) = self.receiver.try_recv() {
            self.state.queued.fetch_sub(1, Ordering::Relaxed);
            watch.report_secret(secret.label, &secret.random, &secret.bytes[..secret.length]);
            if let Some(kept) = &mut kept {
                kept.secret(secret.label, &secret.random, &secret.bytes[..secret.length]);
            }
        }
    }

    /// Number of secrets that did not fit into the queue.
    pub(super) fn lost(&self) -> u64 {
        self.state.lost.load(Ordering::Relaxed)
    }
}

/// The secrets that the analysis uses.
const LABELS: [&str; 6] = [
    "CLIENT_RANDOM",
    "CLIENT_EARLY_TRAFFIC_SECRET",
    "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
    "SERVER_HANDSHAKE_TRAFFIC_SECRET",
    "CLIENT_TRAFFIC_SECRET_0",
    "SERVER_TRAFFIC_SECRET_0",
];

#[cfg(test)]
mod tests {
    use rustls::KeyLog as _;

    use super::*;

    #[test]
    fn secrets_that_the_capture_does_not_take_are_bounded_and_counted() {
        let (sender, receiver) = with_capacity(2);
        for number in 0..3 {
            sender.log("CLIENT_RANDOM", &[number; 32], &[7; 48]);
        }
        // Neither is a secret that decrypts packets.
        sender.log("EXPORTER_SECRET", &[9; 32], &[7; 48]);
        sender.log("CLIENT_RANDOM", &[9; 31], &[7; 48]);
        assert_eq!((receiver.lost(), receiver.receiver.try_iter().count()), (1, 2));
        assert!(sender.will_log("CLIENT_RANDOM") && !sender.will_log("EXPORTER_SECRET"));
    }

    #[test]
    fn taken_secrets_make_space() {
        let (sender, receiver) = with_capacity(1);
        let mut watch = Watch::new(watch::WatchSpec { secrets_are_reported: true, ..watch::WatchSpec::default() });
        for number in 0..10 {
            sender.log("CLIENT_RANDOM", &[number; 32], &[7; 48]);
            receiver.pass_to(&mut watch, None);
        }
        assert_eq!(receiver.lost(), 0);
    }
}
