//! Events of sockets as epoll reports them.

use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;

use sys::epoll::{Epoll, Event, Interest};

#[test]
fn the_end_of_a_stream_hangs_up_and_bytes_alone_do_not() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut theirs, _) = listener.accept().unwrap();
    let epoll = Epoll::new().unwrap();
    epoll.add(ours.as_fd(), Interest::READ.edge(), 7).unwrap();
    let mut events = [Event::EMPTY];
    theirs.write_all(b"x").unwrap();
    let ready = epoll.wait(&mut events, 20_000).unwrap();
    assert!(matches!(ready, [event] if event.token() == 7 && event.readable() && !event.hangs_up()));
    drop(theirs);
    // The byte is still unread: the end of the stream is an event of its own.
    let ready = epoll.wait(&mut events, 20_000).unwrap();
    assert!(matches!(ready, [event] if event.readable() && event.hangs_up()));
}
