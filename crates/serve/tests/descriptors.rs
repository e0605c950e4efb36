//! A server that runs out of file descriptors. It has a test binary of its own, since the limit applies to the process.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use nix::sys::eventfd::EventFd;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, connect, socket};
use serve::{ServeError, ServeSpec, serve};

#[test]
fn connections_beyond_the_descriptor_limit_wait_for_earlier_ones() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a"), "hello").unwrap();
    let stop = EventFd::new().unwrap();
    let spec = ServeSpec::new(directory.path(), "127.0.0.1:0".parse().unwrap());

    let outcomes = thread::scope(|scope| {
        let (address_sender, address_receiver) = mpsc::channel();
        let server = scope.spawn(|| serve(&spec, stop.as_fd(), move |bound| address_sender.send(bound).unwrap()));
        let address = address_receiver.recv().unwrap().to_string().parse::<SocketAddrV4>().unwrap();
        let answers = scope.spawn(move || {
            // The file is in memory before descriptors are short: opening it takes one.
            let first = ask(&mut TcpStream::connect(address).unwrap());
            let sockets: Vec<_> = (0..200)
                .map(|_| socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap())
                .collect();
            // From here on the clients need no more descriptors, and the server finds some 40.
            let next = EventFd::new().unwrap().as_fd().as_raw_fd() as u64;
            setrlimit(Resource::RLIMIT_NOFILE, next + 40, next + 40).unwrap();
            for socket in &sockets {
                connect(socket.as_raw_fd(), &SockaddrIn::from(address)).unwrap();
            }
            let rest = sockets.into_iter().map(|socket| ask(&mut TcpStream::from(socket)));
            std::iter::once(first).chain(rest).collect::<Vec<_>>()
        });
        let answers = answers.join();
        stop.write(1).unwrap();
        (answers, server.join().unwrap())
    });

    outcomes.1.unwrap();
    // Every closed connection made a descriptor available; none was refused or reset.
    for answer in outcomes.0.unwrap() {
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("hello"), "{answer:?}");
    }

    // Far too few descriptors are an error at the start.
    setrlimit(Resource::RLIMIT_NOFILE, 41, 41).unwrap();
    let outcome = serve(&spec, stop.as_fd(), |_| panic!("listening with too few descriptors"));
    assert!(matches!(outcome, Err(ServeError::Descriptors { limit: 41, .. })), "{outcome:?}");
}

fn ask(client: &mut TcpStream) -> String {
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    client.write_all(b"GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}
