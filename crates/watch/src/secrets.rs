//! The secrets of an analysis: those of a key log that is complete before the first packet, or those that the client
//! itself reports while its connections are open.
//!
//! A client has the secrets of a connection half a round trip after the capture at the server's end has the server's
//! first message, and before it sends anything that they protect. So what a server sends in between waits for them
//! (`tls`, `quic`), and the client's next packet finds them.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::keylog::{KeyLog, Secrets};

/// The source of secrets.
#[derive(Debug, Default)]
pub(crate) struct SecretStore {
    log: Option<Arc<KeyLog>>,
    reported: Option<Reported>,
}

/// The answer to a question for secrets.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// All of them.
    Known(Secrets),
    /// They may be reported later.
    Later,
    /// There are none.
    Unknown,
}

/// Secrets that a client reports, until they are used.
#[derive(Debug, Default)]
struct Reported {
    connections: HashMap<[u8; 32], (u64, Secrets)>,
    /// Randoms in the order of their first report.
    order: BTreeMap<u64, [u8; 32]>,
    next: u64,
}

impl SecretStore {
    /// The secrets of a key log, if there is one, and those that are reported if `are_reported`.
    pub(crate) fn new(log: Option<Arc<KeyLog>>, are_reported: bool) -> SecretStore {
        SecretStore { log, reported: are_reported.then(Reported::default) }
    }

    /// Whether connections may be decrypted at all.
    pub(crate) fn is_used(&self) -> bool {
        self.log.is_some() || self.reported.is_some()
    }

    /// Whether the key log has secrets of the connection with this random, or they may be reported.
    pub(crate) fn may_know(&self, random: &[u8; 32]) -> bool {
        self.reported.is_some() || self.log.as_ref().is_some_and(|log| log.secrets(random).is_some())
    }

    /// Whether secrets are reported while connections are open.
    pub(crate) fn are_reported(&self) -> bool {
        self.reported.is_some()
    }

    /// Stores a secret that a client reports. Of more than [`CONNECTIONS_MAX`] connections whose secrets were not used
    /// the oldest are removed.
    pub(crate) fn report(&mut self, label: &str, random: &[u8; 32], secret: &[u8]) {
        let Some(Reported { connections, order, next }) = &mut self.reported else { return };
        let mut ignored = Secrets::default();
        if ignored.place(label.as_bytes()).is_none() {
            return;
        }
        let (_, secrets) = connections.entry(*random).or_insert_with(|| {
            order.insert(*next, *random);
            *next += 1;
            (*next - 1, Secrets::default())
        });
        if let Some(place) = secrets.place(label.as_bytes()) {
            *place = secret.to_vec();
        }
        if connections.len() > CONNECTIONS_MAX
            && let Some((_, oldest)) = order.pop_first()
        {
            connections.remove(&oldest);
        }
    }

    /// The secrets of the connection whose ClientHello has this random. Those that were reported are removed: each
    /// connection needs them once.
    pub(crate) fn take(&mut self, random: &[u8; 32]) -> Lookup {
        if let Some(secrets) = self.log.as_ref().and_then(|log| log.secrets(random)) {
            return Lookup::Known(secrets.clone());
        }
        let Some(Reported { connections, order, .. }) = &mut self.reported else { return Lookup::Unknown };
        if !connections.get(random).is_some_and(|(_, secrets)| secrets.are_complete()) {
            return Lookup::Later;
        }
        let Some((number, secrets)) = connections.remove(random) else { return Lookup::Later };
        order.remove(&number);
        Lookup::Known(secrets)
    }

    /// Removes the secrets of a connection that ended; true if the client began its handshake and did not finish it, so
    /// that it sent no data.
    pub(crate) fn forget(&mut self, random: &[u8; 32]) -> bool {
        let Some(Reported { connections, order, .. }) = &mut self.reported else { return false };
        let Some((number, secrets)) = connections.remove(random) else { return false };
        order.remove(&number);
        !secrets.are_complete()
    }
}

/// Connections whose secrets wait to be used: those in their handshakes, some 30 MB.
const CONNECTIONS_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    const LABELS: [&str; 4] = [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    ];

    fn random(number: usize) -> [u8; 32] {
        let mut random = [0; 32];
        random[..8].copy_from_slice(&number.to_be_bytes());
        random
    }

    #[test]
    fn reported_secrets_are_known_when_they_are_complete_and_used_once() {
        let mut store = SecretStore::new(None, true);
        for label in LABELS {
            assert!(matches!(store.take(&random(1)), Lookup::Later), "{label}");
            store.report(label, &random(1), &[7; 32]);
            store.report("EXPORTER_SECRET", &random(1), &[8; 32]);
        }
        assert!(matches!(store.take(&random(1)), Lookup::Known(secrets) if secrets.traffic[1] == [7; 32]));
        assert!(matches!(store.take(&random(1)), Lookup::Later));
        store.report("CLIENT_RANDOM", &random(2), &[9; 48]);
        assert!(matches!(store.take(&random(2)), Lookup::Known(secrets) if secrets.master == [9; 48]));
        assert!(matches!(SecretStore::new(None, false).take(&random(1)), Lookup::Unknown));
    }

    #[test]
    fn handshake_that_the_client_gave_up_is_told_from_lost_secrets() {
        let mut store = SecretStore::new(None, true);
        store.report(LABELS[0], &random(1), &[7; 32]);
        assert!(store.forget(&random(1)));
        assert!(!store.forget(&random(1)), "nothing is known of it any more");
        store.report("CLIENT_RANDOM", &random(2), &[9; 48]);
        assert!(!store.forget(&random(2)), "its client finished the handshake");
    }

    #[test]
    fn secrets_that_no_connection_uses_are_bounded() {
        let mut store = SecretStore::new(None, true);
        for number in 0..CONNECTIONS_MAX + 10 {
            store.report("CLIENT_RANDOM", &random(number), &[9; 48]);
        }
        let reported = store.reported.as_ref().unwrap();
        assert_eq!((reported.connections.len(), reported.order.len()), (CONNECTIONS_MAX, CONNECTIONS_MAX));
        assert!(matches!(store.take(&random(9)), Lookup::Later));
        assert!(matches!(store.take(&random(10)), Lookup::Known(_)));
    }
}
