//! The connection to the server: of shards, and its options for every other client of NATS.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use async_nats::{Client, ConnectErrorKind, ConnectOptions, Event};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::pipe::ToCoordinator;
use crate::{Address, READY_TIMEOUT};

/// Interval at which a dead connection is looked for; two without an answer end it.
const PING_INTERVAL: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Changes of the connection that wait for the loop.
const EVENTS: usize = 64;
/// Messages of one subscription that wait for the loop; more are dropped, and repeated.
const MESSAGES: usize = 64 << 10;

/// Connects, and reports changes of the connection from then on. Certificates and credentials are those that the
/// programs of NATS take: `NATS_CA`, `NATS_CERT` with `NATS_KEY`, `NATS_CREDS`, `NATS_USER` with `NATS_PASSWORD`.
/// `early`: the first trial of a search, if it comes meanwhile.
///
/// # Errors
/// One sentence: credentials that are refused, a server that cannot be reached, or the end of the load's process.
pub async fn connect(
    address: &Address,
    index: u32,
    (lines, early): (&mut mpsc::Receiver<ToCoordinator>, &mut Option<ToCoordinator>),
) -> Result<(Client, mpsc::Receiver<bool>), String> {
    let began = Instant::now();
    let mut is_first = true;
    loop {
        let (sender, events) = mpsc::channel(EVENTS);
        let options = options(format!("yamabiko shard {index}")).await?.event_callback(move |event| {
            let change = match event {
                Event::Connected => Some(true),
                Event::Disconnected | Event::Closed => Some(false),
                _ => None,
            };
            let sender = sender.clone();
            async move {
                if let Some(is_connected) = change {
                    let _ = sender.send(is_connected).await;
                }
            }
        });
        let connecting = timeout(CONNECT_TIMEOUT, options.connect(&address.server));
        let why = tokio::select! {
            connected = connecting => match connected {
                Ok(Ok(client)) => return Ok((client, events)),
                Ok(Err(error)) if is_lasting(&error) => return Err(format!("NATS at {address}: {error}")),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer".into(),
            },
            line = lines.recv() => match line {
                Some(ToCoordinator::Progress(_)) => continue,
                Some(trial @ ToCoordinator::Trial { .. }) => {
                    *early = Some(trial);
                    continue;
                }
                _ => return Err("interrupted before the start".into()),
            },
        };
        if std::mem::take(&mut is_first) {
            super::note(format_args!(
                "NATS at {address} cannot be reached ({why}); trying for {} s",
                READY_TIMEOUT.as_secs()
            ));
        }
        if began.elapsed() >= READY_TIMEOUT {
            return Err(format!("NATS at {address} cannot be reached: {why}"));
        }
        tokio::select! {
            () = sleep(RETRY_INTERVAL) => {}
            line = lines.recv() => match line {
                Some(ToCoordinator::Progress(_)) => {}
                Some(trial @ ToCoordinator::Trial { .. }) => *early = Some(trial),
                _ => return Err("interrupted before the start".into()),
            },
        }
    }
}

/// Whether repeating the attempt changes nothing: credentials or a certificate are refused.
pub fn is_lasting(error: &async_nats::ConnectError) -> bool {
    matches!(
        error.kind(),
        ConnectErrorKind::ServerParse
            | ConnectErrorKind::Authentication
            | ConnectErrorKind::AuthorizationViolation
            | ConnectErrorKind::Tls
    ) || is_refused_by_tls(error)
}

/// Whether one end refuses the other's certificate, or does not speak TLS: repeating changes nothing.
fn is_refused_by_tls(error: &async_nats::ConnectError) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = std::error::Error::source(error);
    while let Some(error) = next {
        // The kind that rustls gives its own errors.
        if error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::InvalidData) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Options of a client of this name, which the server's own programs show. See [`connect`] for the variables.
///
/// # Errors
/// The file of `NATS_CREDS` cannot be read.
pub async fn options(name: String) -> Result<ConnectOptions, String> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let mut options = ConnectOptions::new()
        .name(name)
        .ping_interval(PING_INTERVAL)
        .connection_timeout(CONNECT_TIMEOUT)
        .subscription_capacity(MESSAGES)
        .reconnect_delay_callback(|_| RETRY_INTERVAL);
    if let Some(file) = variable("NATS_CA") {
        options = options.add_root_certificates(PathBuf::from(file)).require_tls(true);
    }
    if let (Some(certificate), Some(key)) = (variable("NATS_CERT"), variable("NATS_KEY")) {
        options = options.add_client_certificate(certificate.into(), key.into());
    }
    if let (Some(user), Some(password)) = (variable("NATS_USER"), variable("NATS_PASSWORD")) {
        options = options.user_and_password(user, password);
    }
    match variable("NATS_CREDS") {
        Some(file) => {
            options.credentials_file(&file).await.map_err(|error| format!("read {file} (NATS_CREDS): {error}"))
        }
        None => Ok(options),
    }
}
