//! A server that runs out of descriptors. A file of its own, because the limit is the whole process's.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::eventfd::EventFd;
use nix::sys::resource::{Resource, setrlimit};
use serve::{ServeError, ServeSpec, serve};

#[test]
fn connections_beyond_the_limit_wait_for_those_before_them() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a"), "hello").unwrap();
    let stop = EventFd::new().unwrap();
    let spec = ServeSpec::new(directory.path(), "127.0.0.1:0".parse().unwrap());

    setrlimit(Resource::RLIMIT_NOFILE, 100, 250).unwrap();
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        // Clients and server share 250 descriptors: 180 clients, which connect before the first accept, leave the
        // server some 60, fewer than its own cap.
        let connect = move |bound: SocketAddr| {
            tell.send((0..180).map(|_| TcpStream::connect(bound).unwrap()).collect()).unwrap();
        };
        let server = scope.spawn(|| serve(&spec, stop.as_fd(), connect));
        let mut clients: Vec<TcpStream> = told.recv().unwrap();
        for client in &mut clients {
            client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            client.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        }
        // Every answered one makes room for another; none is refused or reset.
        for client in &mut clients {
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer:?}");
        }
        stop.write(1).unwrap();
        server.join().unwrap().unwrap();
    });

    // Far too few is said at once.
    setrlimit(Resource::RLIMIT_NOFILE, 90, 90).unwrap();
    let outcome = serve(&spec, stop.as_fd(), |_| panic!("listening with too few descriptors"));
    assert!(matches!(outcome, Err(ServeError::Descriptors { limit: 90, .. })), "{outcome:?}");
}
