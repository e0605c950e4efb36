//! Connections: taken in, served, and shown out.

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
use crate::patient::Patient;
use crate::strangers::{Arrived, Pools, Standing, Strangers};

/// Serves until `closing` says how long those inside may still take.
pub(crate) async fn listen(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    bounds: Bounds,
    strangers: Option<Strangers>,
    mut closing: watch::Receiver<Option<Duration>>,
) {
    let within = Within::new(bounds, strangers);
    let acceptor = tls.map(TlsAcceptor::from);
    let patience = loop {
        let accepted = tokio::select! {
            accepted = within.accept(&listener) => accepted,
            changed = closing.changed() => match *closing.borrow() {
                Some(patience) => break patience,
                // The handle is gone without a word.
                None if changed.is_err() => break Duration::ZERO,
                None => continue,
            },
        };
        let (stream, peer, place) = match accepted {
            Ok(Some(accepted)) => accepted,
            Ok(None) => continue,
            Err(_) => {
                // No descriptor is left: they come back as connections end.
                sleep(PAUSE).await;
                continue;
            }
        };
        let standing = within.pools.as_ref().map(|pools| pools.enter(peer));
        let (router, acceptor, closing) = (router.clone(), acceptor.clone(), closing.clone());
        tokio::spawn(async move {
            let taken_in = take_in(stream, peer, standing.clone(), router, acceptor, bounds, closing);
            match (standing, strangers) {
                (Some(standing), Some(strangers)) => {
                    tokio::select! {
                        () = taken_in => {}
                        () = standing.put_out() => {}
                        () = end_of_a_stranger(&standing, strangers.life) => {}
                    }
                    standing.leave();
                }
                _ => taken_in.await,
            }
            drop(place);
        });
    };
    drop(listener);
    // Every place is free again once the last has left; who has not left by then is put out.
    let _ = timeout(patience, within.places.acquire_many(within.all)).await;
}

/// How many are within, and who.
struct Within {
    places: Arc<Semaphore>,
    all: u32,
    pools: Option<Arc<Pools>>,
}

impl Within {
    fn new(bounds: Bounds, strangers: Option<Strangers>) -> Within {
        let all = match strangers {
            None => bounds.connections,
            Some(strangers) => bounds.connections + strangers.connections + LEAVING,
        };
        let all = u32::try_from(all).unwrap_or(u32::MAX).min(u32::try_from(Semaphore::MAX_PERMITS).unwrap_or(u32::MAX));
        let pools = strangers.map(|strangers| Pools::new(strangers.connections, bounds.connections));
        Within { places: Arc::new(Semaphore::new(all as usize)), all, pools }
    }

    /// The next connection and a place for it; `None` where one had to be closed as it came.
    async fn accept(
        &self,
        listener: &TcpListener,
    ) -> io::Result<Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)>> {
        if self.pools.is_some() {
            // There always is one, but for the moment that those need to leave who were put out.
            let place = Arc::clone(&self.places).acquire_owned().await.map_err(io::Error::other)?;
            let (stream, peer) = listener.accept().await?;
            return Ok(Some((stream, peer, place)));
        }
        let (stream, peer) = listener.accept().await?;
        // Beyond the bound a connection is closed at once; a browser comes again.
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        Ok(place.map(|place| (stream, peer, place)))
    }
}

/// Returns when a stranger's time is over; never for one who is known by then.
async fn end_of_a_stranger(standing: &Standing, life: Duration) {
    sleep(life).await;
    if standing.is_known() {
        std::future::pending::<()>().await;
    }
}

async fn take_in(
    stream: TcpStream,
    peer: SocketAddr,
    standing: Option<Arc<Standing>>,
    router: Router,
    acceptor: Option<TlsAcceptor>,
    bounds: Bounds,
    closing: watch::Receiver<Option<Duration>>,
) {
    let Ok(local) = stream.local_addr() else { return };
    let arrived = Arrived::new(local, peer, standing);
    // Frames are small and complete: each is worth a packet.
    let _ = stream.set_nodelay(true);
    let stream = Patient::new(stream, bounds.patience);
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
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // What a peer does wrong below HTTP ends its connection and concerns nobody else.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = closing.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Fields of a request's head.
const HEADERS: usize = 64;
/// Connections that were put out and have not ended yet.
const LEAVING: usize = 256;
const PAUSE: Duration = Duration::from_millis(100);
