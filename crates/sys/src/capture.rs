//! Packet capture at a device: AF_PACKET with a TPACKET_V3 ring.
//!
//! ```text
//!   device --> filter (keep? how much?) --> block | block | block ..   in memory shared with the kernel
//!                                             ^ read in place by Capture::next_block, returned when it is dropped
//! ```
//!
//! The kernel timestamps each packet (CLOCK_REALTIME), fills a block and hands it over when it is full or older than
//! [`RETIRE`]. No packet is copied again. If every block is full, packets are lost and counted. Source: Linux
//! `Documentation/networking/packet_mmap.rst`. Read [`Capture::open`] first.

mod filter;
mod ring;

use std::io;
use std::mem::{size_of, size_of_val};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use nix::errno::Errno;

use crate::error::{Error, Result};
use ring::Ring;
pub use ring::{Block, Packet, Packets};

/// What to capture, and the size of the ring.
#[derive(Clone, Copy, Debug)]
pub struct CaptureSpec<'a> {
    /// Name of the device.
    pub device: &'a str,
    /// Bytes captured of each packet, link header included; at least 1.
    pub snap_length: u32,
    /// TCP ports, at either end; empty for any.
    pub ports: &'a [u16],
    /// Addresses, at either end; empty for any. Without ports and hosts, packets of every protocol are captured.
    pub hosts: &'a [IpAddr],
    /// Also capture packets that are not for this machine: for a mirror port.
    pub promiscuous: bool,
    /// Bytes of a block: a power of two, at least 64 KiB. A packet larger than a block is truncated.
    pub block_bytes: u32,
    /// Number of blocks.
    pub blocks: u32,
}

impl<'a> CaptureSpec<'a> {
    /// Captures all packets of `device`, with suitable blocks: 64 of 256 KiB for the first bytes of packets, 16 of 4
    /// MiB for whole packets, without loss at 2 GB/s (docs/notes).
    pub fn new(device: &'a str, snap_length: u32) -> CaptureSpec<'a> {
        // Short packets fill little of a block: a block is handed over after [`RETIRE`] however full it is, and the
        // ring covers a delayed reader for `blocks` times as long.
        let (block_bytes, blocks) = if snap_length <= 2048 { (256 << 10, 64) } else { (4 << 20, 16) };
        CaptureSpec { device, snap_length, ports: &[], hosts: &[], promiscuous: false, block_bytes, blocks }
    }
}

/// The first header of a captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// An Ethernet header.
    Ethernet,
    /// The IP header: the device has no link header, or the kernel removed it.
    Ip,
}

/// Counters of the kernel since the last query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that passed the filter, including lost ones.
    pub packets: u64,
    /// Packets lost because no block was free.
    pub drops: u64,
}

/// An open capture. It contains only packets captured after opening that pass its filter.
#[derive(Debug)]
pub struct Capture {
    // Unmapped before the socket is closed, though the order does not matter to the kernel.
    ring: Ring,
    socket: OwnedFd,
    framing: Framing,
    device: String,
}

impl Capture {
    /// Starts a capture in the calling thread's network namespace. On a loopback device, where every packet passes
    /// twice, the outgoing pass is ignored.
    ///
    /// # Errors
    /// No CAP_NET_RAW over the namespace; an unknown device, or one that is down; no memory for the ring; more ports
    /// and hosts than a filter can hold (about 900).
    pub fn open(spec: &CaptureSpec<'_>) -> Result<Capture> {
        let index = device_index(spec.device)?;
        let hardware = hardware_type(spec.device)?;
        let framing = match hardware {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Framing::Ethernet,
            _ => Framing::Ip,
        };
        // A TUN device has no link header, so both kinds of socket are equivalent, but one has no vnet header. Protocol 0
        // receives nothing yet.
        let has_vnet = hardware == libc::ARPHRD_NONE && describes_datagrams();
        let kind = if framing == Framing::Ethernet || has_vnet { libc::SOCK_RAW } else { libc::SOCK_DGRAM };
        // SAFETY: no pointers; the returned descriptor has no other owner.
        let fd = unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        Errno::result(fd)
            .map_err(|errno| Error::of("socket AF_PACKET")(errno).remedy(&[Errno::EPERM, Errno::EACCES], NEEDS_RAW))?;
        // SAFETY: `fd` was just returned by the kernel and is open.
        let socket = unsafe { OwnedFd::from_raw_fd(fd) };
        attach(&socket, &filter::program(spec.ports, spec.hosts, spec.snap_length.max(1)))?;
        if has_vnet {
            set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &1i32, "PACKET_VNET_HDR")?;
        }
        let ring = Ring::new(&socket, spec, has_vnet)?;
        if hardware == libc::ARPHRD_LOOPBACK {
            set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, &1i32, "PACKET_IGNORE_OUTGOING")?;
        }
        if spec.promiscuous {
            let request = libc::packet_mreq {
                mr_ifindex: index,
                mr_type: libc::PACKET_MR_PROMISC as libc::c_ushort,
                mr_alen: 0,
                mr_address: [0; 8],
            };
            set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request, "PACKET_ADD_MEMBERSHIP")?;
        }
        bind(&socket, index, spec.device)?;
        let capture = Capture { ring, socket, framing, device: spec.device.to_owned() };
        // Binding to a device that is down succeeds; only this check reports it.
        capture.check()?;
        Ok(capture)
    }

    /// The framing of its packets.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// The next block that the kernel handed over, if any. Its packets are in the order of capture.
    pub fn next_block(&mut self) -> Option<Block<'_>> {
        self.ring.next_block()
    }

    /// The counters since the last call.
    ///
    /// # Errors
    /// The errors of getsockopt(2).
    pub fn statistics(&self) -> Result<Statistics> {
        let mut counted = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
        let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
        // SAFETY: `counted` and `length` outlive the call and match in size.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counted).cast(),
                &raw mut length,
            )
        };
        Errno::result(result).map_err(Error::of("getsockopt PACKET_STATISTICS"))?;
        Ok(Statistics { packets: counted.tp_packets.into(), drops: counted.tp_drops.into() })
    }

    /// Stops capturing. [`Capture::next_block`] still returns the captured packets, the last ones within about
    /// [`RETIRE`].
    ///
    /// # Errors
    /// The errors of setsockopt(2).
    pub fn stop(&mut self) -> Result<()> {
        attach(&self.socket, &filter::nothing())
    }

    /// Checks whether the device is gone or down, after which no packets arrive.
    ///
    /// # Errors
    /// The socket's pending error, once.
    pub fn check(&self) -> Result<()> {
        let mut code: libc::c_int = 0;
        let mut length = size_of::<libc::c_int>() as libc::socklen_t;
        // SAFETY: `code` and `length` outlive the call and match in size.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ERROR,
                (&raw mut code).cast(),
                &raw mut length,
            )
        };
        Errno::result(result).map_err(Error::of("getsockopt SO_ERROR"))?;
        if code == 0 {
            return Ok(());
        }
        let remedy = format!("the device is down or gone: ip link set {} up", self.device);
        let error = Error::of(format!("capture on {}", self.device))(io::Error::from_raw_os_error(code));
        Err(error.remedy(&[Errno::ENETDOWN, Errno::ENODEV, Errno::ENXIO], remedy))
    }
}

impl AsFd for Capture {
    /// Readable when a block has been handed over.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Maximum time before the kernel hands over a block that is not full. A reader processes a block without a pause,
/// while other threads on its core wait: with 50 ms a saturated closed loop achieved a tenth less
/// (docs/decisions/0011).
pub const RETIRE: Duration = Duration::from_millis(10);

fn attach(socket: &OwnedFd, program: &[filter::Instruction]) -> Result<()> {
    if program.len() > libc::BPF_MAXINSNS as usize {
        return Err(Error::of("setsockopt SO_ATTACH_FILTER")(Errno::EINVAL)
            .remedy(&[Errno::EINVAL], "more ports and hosts than a filter can hold; name fewer, or none"));
    }
    let filter = libc::sock_fprog { len: program.len() as libc::c_ushort, filter: program.as_ptr().cast_mut() };
    // The kernel copies the program within the call; it is borrowed, and so alive, until then.
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter, "SO_ATTACH_FILTER")
}

/// Sets a socket option that is plain C data.
fn set<T>(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: &T, option_name: &str) -> Result<()> {
    // SAFETY: `value` outlives the call and its size is the one stated; what it points to, if anything, is alive too.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of_val(value) as libc::socklen_t,
        )
    };
    Errno::result(result).map(drop).map_err(Error::of(format!("setsockopt {option_name}")))
}

fn bind(socket: &OwnedFd, index: libc::c_int, device: &str) -> Result<()> {
    // SAFETY: sockaddr_ll is plain C data, for which all zeroes is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index;
    // SAFETY: `address` holds a socket address of the stated length for the duration of the call.
    let result = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    };
    Errno::result(result).map(drop).map_err(Error::of(format!("bind AF_PACKET to {device}")))
}

fn device_index(device: &str) -> Result<libc::c_int> {
    let index = nix::net::if_::if_nametoindex(device).map_err(|errno| {
        Error::of(format!("find device {device}"))(errno)
            .remedy(&[Errno::ENODEV, Errno::ENXIO, Errno::EINVAL], "`ip link` lists the devices of this network")
    })?;
    Ok(index as libc::c_int)
}

fn hardware_type(device: &str) -> Result<u16> {
    // SAFETY: no pointers; the returned descriptor has no other owner.
    let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    Errno::result(fd).map_err(Error::of("socket AF_INET"))?;
    // SAFETY: `fd` was just returned by the kernel and is open.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: ifreq is plain C data, for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // The device exists, so its name is shorter than the field.
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes().take(libc::IFNAMSIZ - 1)) {
        *to = from as libc::c_char;
    }
    // SAFETY: SIOCGIFHWADDR reads and writes one ifreq, which outlives the call.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) };
    Errno::result(result).map_err(Error::of(format!("ioctl SIOCGIFHWADDR {device}")))?;
    // SAFETY: SIOCGIFHWADDR fills `ifru_hwaddr`, whose family is the hardware type.
    Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

/// Whether the kernel describes super-packets of UDP datagrams (Linux 6.2). An older one would lose them from a capture
/// that wants their description.
fn describes_datagrams() -> bool {
    let release = nix::sys::utsname::uname().map(|it| it.release().to_string_lossy().into_owned()).unwrap_or_default();
    crate::accounting::kernel_version(&release).is_some_and(|version| version >= (6, 2))
}

const NEEDS_RAW: &str = "capturing needs CAP_NET_RAW over the network namespace: run as root";
