//! TCP flows from the server, as fast as the path lets them.

use std::io;
use std::net::{IpAddr, SocketAddrV4};
use std::os::fd::AsFd as _;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use path::AddressPlan;
use sys::clock::monotonic_ns;
use sys::socket::{Read, TcpSocket};

use super::{BulkFigures, machine_cpu_s};

/// Bytes discarded by one call.
const READ_BYTES: usize = 1 << 20;
const EVENTS: usize = 64;

/// The flows, and the interval in which their bytes count.
#[derive(Clone, Copy, Debug)]
pub struct BulkPlan {
    pub server: SocketAddrV4,
    pub flows: u32,
    pub by_client: bool,
    pub start_ns: Option<u64>,
    pub warmup_s: f64,
    pub seconds: f64,
}

/// Opens the flows and counts their bytes; payload is discarded in the kernel.
pub fn measure(plan: &BulkPlan) -> io::Result<BulkFigures> {
    let addresses = AddressPlan::new(plan.flows).ok_or_else(|| io::Error::other("too many flows"))?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut sockets = Vec::new();
    for flow in 0..plan.flows {
        let source = plan.by_client.then(|| IpAddr::V4(addresses.address(flow)));
        let socket = TcpSocket::connect(source, plan.server.into())?;
        epoll.add(&socket, EpollEvent::new(EpollFlags::EPOLLIN, u64::from(flow)))?;
        sockets.push(socket);
    }
    let start = plan.start_ns.unwrap_or_else(|| monotonic_ns() + (plan.warmup_s * 1e9) as u64);
    read_until(&epoll, &sockets, start, &mut |_, _| {})?;
    let (from, cpu_before) = (monotonic_ns(), machine_cpu_s()?);
    let length_ns = (plan.seconds * 1e9) as u64;
    let mut bytes = vec![0u64; sockets.len()];
    read_until(&epoll, &sockets, from + length_ns, &mut |flow, count| bytes[flow] += count)?;
    let seconds = (monotonic_ns() - from) as f64 / 1e9;
    Ok(BulkFigures { bytes, seconds, machine_cpu_s: machine_cpu_s()? - cpu_before })
}

/// Reads from all sockets until `end`; calls `received` with flow and bytes.
fn read_until(epoll: &Epoll, sockets: &[TcpSocket], end: u64, received: &mut dyn FnMut(usize, u64)) -> io::Result<()> {
    let mut events = [EpollEvent::empty(); EVENTS];
    loop {
        let now = monotonic_ns();
        if now >= end {
            return Ok(());
        }
        let wait_ms = ((end - now) / 1_000_000 + 1).min(50) as u16;
        let count = match epoll.wait(&mut events, EpollTimeout::from(wait_ms)) {
            Err(nix::errno::Errno::EINTR) => continue,
            other => other?,
        };
        for event in &events[..count] {
            let flow = event.data() as usize;
            match sockets[flow].discard(READ_BYTES) {
                Ok(Read::Bytes(bytes)) => received(flow, bytes as u64),
                Ok(Read::Later) => {}
                // A flow that ended or could not connect has no further bytes.
                Ok(Read::End) | Err(_) => epoll.delete(sockets[flow].as_fd())?,
            }
        }
    }
}
