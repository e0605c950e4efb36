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
use tokio::time::{self, sleep};
use tokio_rustls::TlsAcceptor;

use crate::Bounds;
use crate::unauthenticated::{ConnectionHandle, Membership, Pools, UnauthenticatedLimits};
use crate::write_timeout::WriteTimeout;

/// Serves until `closing` gives the time that open connections have to finish.
pub(crate) async fn listen(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    bounds: Bounds,
    unauthenticated: Option<UnauthenticatedLimits>,
    mut closing: watch::Receiver<Option<Duration>>,
) {
    let slots = Slots::new(bounds, unauthenticated);
    let acceptor = tls.map(TlsAcceptor::from);
    let timeout = loop {
        let accepted = tokio::select! {
            accepted = slots.accept(&listener) => accepted,
            changed = closing.changed() => match *closing.borrow() {
                Some(timeout) => break timeout,
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
        let membership = slots.pools.as_ref().map(|pools| pools.add(peer));
        let (router, acceptor, closing) = (router.clone(), acceptor.clone(), closing.clone());
        tokio::spawn(async move {
            let serving = serve_connection(stream, peer, membership.clone(), router, acceptor, bounds, closing);
            match (membership, unauthenticated) {
                (Some(membership), Some(unauthenticated)) => {
                    tokio::select! {
                        () = serving => {}
                        () = membership.displaced() => {}
                        () = unauthenticated_timeout(&membership, unauthenticated.timeout) => {}
                    }
                    membership.remove();
                }
                _ => serving.await,
            }
            drop(slot);
        });
    };
    drop(listener);
    // All permits are free once the last connection has ended. Connections that last longer are dropped.
    let _ = time::timeout(timeout, slots.permits.acquire_many(slots.all)).await;
}

/// The connection limits.
struct Slots {
    permits: Arc<Semaphore>,
    all: u32,
    pools: Option<Arc<Pools>>,
}

impl Slots {
    fn new(bounds: Bounds, unauthenticated: Option<UnauthenticatedLimits>) -> Slots {
        let all = match unauthenticated {
            None => bounds.connections,
            Some(unauthenticated) => bounds.connections + unauthenticated.connections + CLOSING_MAX,
        };
        let all = u32::try_from(all).unwrap_or(u32::MAX).min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let pools = unauthenticated.map(|unauthenticated| Pools::new(unauthenticated.connections, bounds.connections));
        Slots { permits: Arc::new(Semaphore::new(all as usize)), all, pools }
    }

    /// Accepts the next connection and takes a slot for it; `None` if the connection was closed because of the limit.
    async fn accept(
        &self,
        listener: &TcpListener,
    ) -> io::Result<Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)>> {
        if self.pools.is_some() {
            // The semaphore always has a permit, except while displaced connections close.
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
async fn unauthenticated_timeout(membership: &Membership, timeout: Duration) {
    sleep(timeout).await;
    if membership.is_authenticated() {
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
    let connection = ConnectionHandle::new(local, peer, membership);
    // Frames are small and complete: each is worth a packet.
    let _ = stream.set_nodelay(true);
    let stream = WriteTimeout::new(stream, bounds.timeout);
    match acceptor {
        None => serve(stream, router, connection, bounds, closing).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = time::timeout(bounds.timeout, acceptor.accept(stream)).await {
                serve(stream, router, connection, bounds, closing).await;
            }
        }
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    connection: ConnectionHandle,
    bounds: Bounds,
    mut closing: watch::Receiver<Option<Duration>>,
) {
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        inner.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.timeout)
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

/// Maximum number of header fields in a request.
const HEADER_FIELDS_MAX: usize = 64;
/// Maximum number of displaced connections that have not closed yet.
const CLOSING_MAX: usize = 256;
/// Pause before the next accept when no descriptor is available.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);
