//! Connections: taken in, served, and shown out.

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
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::Bounds;
use crate::patient::Patient;

/// The connection that a request came on: an extension of every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) local: SocketAddr,
}

/// Serves until `closing` says how long those inside may still take.
pub(crate) async fn listen(
    listener: TcpListener,
    router: Router,
    tls: Option<Arc<ServerConfig>>,
    bounds: Bounds,
    mut closing: watch::Receiver<Option<Duration>>,
) {
    let places = Arc::new(Semaphore::new(bounds.connections));
    let acceptor = tls.map(TlsAcceptor::from);
    let patience = loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            changed = closing.changed() => match *closing.borrow() {
                Some(patience) => break patience,
                // The handle is gone without a word.
                None if changed.is_err() => break Duration::ZERO,
                None => continue,
            },
        };
        let Ok((stream, _)) = accepted else {
            // No descriptor is left: they come back as connections end.
            sleep(PAUSE).await;
            continue;
        };
        // Beyond the bound a connection is closed at once; a browser comes again.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (router, acceptor, closing) = (router.clone(), acceptor.clone(), closing.clone());
        tokio::spawn(async move {
            take_in(stream, router, acceptor, bounds, closing).await;
            drop(place);
        });
    };
    drop(listener);
    let all = u32::try_from(bounds.connections).unwrap_or(u32::MAX);
    // Every place is free again once the last has left; who has not left by then is put out.
    let _ = timeout(patience, places.acquire_many(all)).await;
}

async fn take_in(
    stream: TcpStream,
    router: Router,
    acceptor: Option<TlsAcceptor>,
    bounds: Bounds,
    closing: watch::Receiver<Option<Duration>>,
) {
    let Ok(local) = stream.local_addr() else { return };
    // Frames are small and complete: each is worth a packet.
    let _ = stream.set_nodelay(true);
    let stream = Patient::new(stream, bounds.patience);
    match acceptor {
        None => serve(stream, router, Arrived { local }, bounds, closing).await,
        Some(acceptor) => {
            if let Ok(Ok(stream)) = timeout(bounds.patience, acceptor.accept(stream)).await {
                serve(stream, router, Arrived { local }, bounds, closing).await;
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
        request.extensions_mut().insert(arrived);
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
const PAUSE: Duration = Duration::from_millis(100);
