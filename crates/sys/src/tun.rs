//! A TUN device: the kernel's end of a link whose other end is a descriptor.
//!
//! ```text
//! kernel --(packet with virtio header)--> read()      write() --(packet with virtio header)--> kernel
//! ```
//!
//! Each packet starts with a virtio-net header of [`VNET_HEADER_BYTES`], so that segments of up to 64 KB and partial
//! checksums pass unchanged. The device disappears with its last descriptor.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

use crate::error::{Error, Result};

/// An open TUN device. Each read or write is one packet and never blocks.
///
/// Both are plain system calls. The C library's functions are cancellation points of a process with several threads,
/// which costs 30 ns a call: 60 ns a packet (docs/notes/path-cost.md).
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
    /// Whether the driver takes super-packets of datagrams (Linux 6.2).
    has_udp: bool,
}

/// Work that the kernel may leave undone in packets returned by [`Tun::read`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// Partial checksums, TCP segments larger than the MTU, and several UDP datagrams in one packet (from Linux 6.2 on).
    #[default]
    Full,
    /// None: each packet is complete and fits the MTU.
    None,
}

impl Tun {
    /// Creates the device `name` (1 to 15 bytes) in the calling thread's network namespace, with [`Offload::Full`].
    /// `%d` in it becomes the first free number. The device is down and has no address: see [`crate::netlink`].
    ///
    /// # Errors
    /// /dev/net/tun is missing or not accessible for this user; no CAP_NET_ADMIN over the namespace; the name is in use
    /// or not a valid device name.
    pub fn open(name: &str) -> Result<Tun> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(DEVICE)
            .map_err(|source| {
                Error::of(format!("open {DEVICE}"))(source)
                    .remedy(&[Errno::EACCES, Errno::EPERM], "run as root, or give users access: chmod 666 /dev/net/tun")
                    .remedy(&[Errno::ENOENT, Errno::ENODEV, Errno::ENXIO], NO_DRIVER)
            })?;
        let mut tun = Tun { file, name: name.to_owned(), has_udp: true };
        tun.attach()?;
        tun.set_header_size()?;
        if tun.set_offload(Offload::Full).is_err() {
            tun.has_udp = false;
            tun.set_offload(Offload::Full)?;
        }
        Ok(tun)
    }

    /// The device's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the work that the kernel may leave undone in packets read from now on. An already connected socket may keep
    /// the old setting.
    ///
    /// # Errors
    /// The driver does not support these offloads.
    pub fn set_offload(&self, offload: Offload) -> Result<()> {
        let flags = match offload {
            Offload::Full => {
                let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
                if self.has_udp { tcp | TUN_F_USO4 | TUN_F_USO6 } else { tcp }
            }
            Offload::None => 0,
        };
        // SAFETY: TUNSETOFFLOAD takes its flags by value; no memory is passed.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETOFFLOAD, flags as libc::c_ulong) };
        check(result, "TUNSETOFFLOAD", &self.name)
    }

    /// Reads one packet (header first) that the kernel sends out of the device; returns its length. A buffer of
    /// [`LARGEST_PACKET_BYTES`] never truncates a packet.
    ///
    /// # Errors
    /// `WouldBlock` when there is none, as when the device is down.
    pub fn read(&self, packet: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the buffer outlives the call, which writes at most as many bytes as are stated.
        let read = unsafe { libc::syscall(libc::SYS_read, self.file.as_raw_fd(), packet.as_mut_ptr(), packet.len()) };
        Ok(Errno::result(read)? as usize)
    }

    /// Passes one packet (header first) to the kernel as if it had arrived at the device. The kernel's whole receive
    /// path, up to the socket, runs inside this call: 3 to 10 us.
    ///
    /// # Errors
    /// `InvalidInput` for a packet that the kernel considers malformed; `EIO` (os error 5) while the device is down.
    pub fn write(&self, packet: &[u8]) -> io::Result<usize> {
        // SAFETY: the buffer outlives the call, which reads as many bytes as are stated.
        let written = unsafe { libc::syscall(libc::SYS_write, self.file.as_raw_fd(), packet.as_ptr(), packet.len()) };
        Ok(Errno::result(written)? as usize)
    }

    fn attach(&mut self) -> Result<()> {
        if self.name.is_empty() || self.name.len() >= libc::IFNAMSIZ || self.name.contains('\0') {
            return Err(Error::of(format!("ioctl TUNSETIFF {:?}", self.name))(Errno::EINVAL)
                .remedy(&[Errno::EINVAL], "a device name has 1 to 15 bytes"));
        }
        // SAFETY: ifreq is plain C data, for which all zeroes is a valid value.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(self.name.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
        // SAFETY: TUNSETIFF reads and writes one ifreq, which outlives the call.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETIFF, &mut request) };
        check(result, "TUNSETIFF", &self.name).map_err(|error| {
            error
                .remedy(
                    &[Errno::EPERM],
                    "this needs CAP_NET_ADMIN over the network namespace: run as root, or rootless",
                )
                .remedy(&[Errno::ENOTTY], "/dev/net/tun is not the TUN driver's device: mknod /dev/net/tun c 10 200")
                .remedy(&[Errno::EBUSY], "a device of this name exists already and is in use")
                .remedy(&[Errno::EINVAL], "a device of this name exists already and is not a TUN device")
        })?;
        let given = request.ifr_name.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
        self.name = String::from_utf8(given).unwrap_or_else(|_| self.name.clone());
        Ok(())
    }

    fn set_header_size(&self) -> Result<()> {
        let size = VNET_HEADER_BYTES as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads one int, which outlives the call.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &size) };
        check(result, "TUNSETVNETHDRSZ", &self.name)
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Length of the virtio-net header (without `num_buffers`) in front of every packet.
pub const VNET_HEADER_BYTES: usize = 10;

/// The longest read: header and an IP packet of maximum length.
pub const LARGEST_PACKET_BYTES: usize = VNET_HEADER_BYTES + 65_535;

fn check(result: libc::c_int, request: &str, name: &str) -> Result<()> {
    Errno::result(result).map(drop).map_err(Error::of(format!("ioctl {request} {name}")))
}

/// Of `include/uapi/linux/if_tun.h`; the driver takes both or neither.
const TUN_F_USO4: libc::c_uint = 0x20;
const TUN_F_USO6: libc::c_uint = 0x40;

pub(crate) const NO_DRIVER: &str =
    "load the driver (modprobe tun), or pass the device into this container (--device /dev/net/tun)";

const DEVICE: &str = "/dev/net/tun";
