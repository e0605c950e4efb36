//! Accepts, serves and closes connections.

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::Bounds;
use crate::unauthenticated::{Arrived, Membership, Pools, Strangers};
use crate::write_timeout::WriteTimeout;

/// Serves until `closing` gives the time that open connections have to finish.
pub(crate) async fn listen(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    bounds: Bounds,
    strangers: Option<Strangers>,
    mut closing: watch::Receiver<Option<Duration>>,
) {
    let slots = Slots::new(bounds, strangers);
    let acceptor = tls.map(TlsAcceptor::from);
    let patience = loop {
        let accepted = tokio::select! {
            accepted = slots.accept(&listener) => accepted,
            changed = closing.changed() => match *closing.borrow() {
                Some(patience) => break patience,
                // The handle was dropped without a time.
                None if changed.is_err() => break Duration::ZERO,
                None => continue,
            },
        };
        let (stream, peer, slot) = match accepted {
            Ok(Some(accepted)) => accepted,
            Ok(None) => continue,
            Err(_) => {
                // No descriptor is available: descriptors become free as connections end.
                sleep(ACCEPT_RETRY_INTERVAL).await;
                continue;
            }
        };
        let membership = slots.pools.as_ref().map(|pools| pools.enter(peer));
        let (router, acceptor, closing) = (router.clone(), acceptor.clone(), closing.clone());
        tokio::spawn(async move {
            let taken_in = serve_connection(stream, peer, membership.clone(), router, acceptor, bounds, closing);
            match (membership, strangers) {
                (Some(membership), Some(strangers)) => {
                    tokio::select! {
                        () = taken_in => {}
                        () = membership.displaced() => {}
                        () = unauthenticated_timeout(&membership, strangers.life) => {}
                    }
                    membership.leave();
                }
                _ => taken_in.await,
            }
            drop(slot);
        });
    };
    drop(listener);
    // All permits are free once the last connection has ended; later ones are dropped.
    let _ = timeout(patience, slots.permits.acquire_many(slots.all)).await;
}

/// The connection limits.
struct Slots {
    permits: Arc<Semaphore>,
    all: u32,
    pools: Option<Arc<Pools>>,
}

impl Slots {
    fn new(bounds: Bounds, strangers: Option<Strangers>) -> Slots {
        let all = match strangers {
            None => bounds.connections,
            Some(strangers) => bounds.connections + strangers.connections + CLOSING_MAX,
        };
        let all = u32::try_from(all).unwrap_or(u32::MAX).min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let pools = strangers.map(|strangers| Pools::new(strangers.connections, bounds.connections));
        Slots { permits: Arc::new(Semaphore::new(all as usize)), all, pools }
    }

    /// Accepts the next connection and takes a slot for it; `None` if the connection was closed because of the limit.
    async fn accept(
        &self,
        listener: &TcpListener,
    ) -> io::Result<Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)>> {
        if self.pools.is_some() {
            // A permit is always available, except while displaced connections close.
            let slot = Arc::clone(&self.permits).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, peer) = listener.accept().await?;
            return Ok(Some((stream, peer, slot)));
        }
        let (stream, peer) = listener.accept().await?;
        // Beyond the limit a connection is closed immediately; a browser tries again.
        let slot = Arc::clone(&self.permits).try_acquire_owned().ok();
        Ok(slot.map(|slot| (stream, peer, slot)))
    }
}

/// Returns at the time limit of an unauthenticated connection; never for an authenticated one.
async fn unauthenticated_timeout(membership: &Membership, life: Duration) {
    sleep(life).await;
    if membership.is_known() {
        std::future::pending::<()>().await;
    }
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    membership: Option<Arc<Membership>>,
    router: Router,
    acceptor: Option<TlsAcceptor>,
    bounds: Bounds,
    closing: watch::Receiver<Option<Duration>>,
) {
    let Ok(local) = stream.local_addr() else { return };
    let arrived = Arrived::new(local, peer, membership);
    // Frames are small and complete: each is worth a packet.
    let _ = stream.set_nodelay(true);
    let stream = WriteTimeout::new(stream, bounds.patience);
    match acceptor {
        None => serve(stream, router, arrived, bounds, closing).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = timeout(bounds.patience, acceptor.accept(stream)).await {
                serve(stream, router, arrived, bounds, closing).await;
            }
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    arrived: Arrived,
    bounds: Bounds,
    mut closing: watch::Receiver<Option<Duration>>,
) {
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(arrived.clone());
        inner.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.patience)
        .max_buf_size(bounds.head)
        .max_headers(HEADER_FIELDS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // Errors below HTTP end the peer's own connection only.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Most header fields of a request.
const HEADER_FIELDS_MAX: usize = 64;
/// Displaced connections that have not closed yet, at most.
const CLOSING_MAX: usize = 256;
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
