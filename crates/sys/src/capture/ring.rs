//! The ring of blocks into which the kernel writes packets.

use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::errno::Errno;
use units::Timestamp;

use super::{CaptureSpec, RETIRE, set};
use crate::error::{Error, Result};
use crate::tun::VNET_HEADER_BYTES;

/// Memory shared with the kernel: `blocks` of `block_bytes`, used in turn.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    block_bytes: usize,
    blocks: usize,
    /// The block that the kernel hands over next.
    next: usize,
    /// Whether a vnet header is in front of each packet.
    has_vnet: bool,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is reached through `&mut Ring` only.
unsafe impl Send for Ring {}

impl Ring {
    /// Creates the ring of a socket that receives nothing yet.
    pub(super) fn new(socket: &OwnedFd, spec: &CaptureSpec<'_>, has_vnet: bool) -> Result<Ring> {
        set(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &VERSION_3, "PACKET_VERSION")?;
        let request = libc::tpacket_req3 {
            tp_block_size: spec.block_bytes,
            tp_block_nr: spec.blocks,
            // Frames have no meaning in version 3, but the numbers must be consistent.
            tp_frame_size: FRAME,
            tp_frame_nr: (spec.block_bytes / FRAME).saturating_mul(spec.blocks),
            tp_retire_blk_tov: RETIRE.as_millis() as libc::c_uint,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let remedy = "use a smaller snaplen, which needs smaller blocks";
        set(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request, "PACKET_RX_RING")
            .map_err(|error| error.remedy(&[Errno::ENOMEM], remedy))?;
        let length = spec.block_bytes as usize * spec.blocks as usize;
        // SAFETY: a new mapping at an address of the kernel's choice; it overlaps no other mapping.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(Error::of("mmap of the capture ring")(Errno::last()).remedy(&[Errno::ENOMEM], remedy));
        }
        let memory = NonNull::new(memory.cast()).expect("mmap never maps address 0 unless requested to");
        Ok(Ring { memory, block_bytes: spec.block_bytes as usize, blocks: spec.blocks as usize, next: 0, has_vnet })
    }

    /// The next block, if the kernel has handed it over.
    pub(super) fn next_block(&mut self) -> Option<Block<'_>> {
        // SAFETY: `next` is below `blocks`, so the block lies within the mapping.
        let start = unsafe { self.memory.add(self.next * self.block_bytes) };
        if status(start).load(Ordering::Acquire) & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the block starts with its descriptor, and belongs to this process until its status changes.
        let header = unsafe { (*start.cast::<libc::tpacket_block_desc>().as_ptr()).hdr.bh1 };
        self.next = (self.next + 1) % self.blocks;
        let filled = (header.blk_len as usize).min(self.block_bytes);
        Some(Block {
            start,
            filled,
            packets: header.num_pkts,
            first: header.offset_to_first_pkt as usize,
            has_vnet: self.has_vnet,
            ring: PhantomData,
        })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; every block that borrowed from it is gone.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.block_bytes * self.blocks) };
    }
}

/// A block of packets. Dropping it returns it to the kernel.
#[derive(Debug)]
pub struct Block<'a> {
    start: NonNull<u8>,
    filled: usize,
    packets: u32,
    first: usize,
    has_vnet: bool,
    ring: PhantomData<&'a mut Ring>,
}

impl Block<'_> {
    /// The block's packets, in the order of capture. A block may be empty.
    pub fn packets(&self) -> Packets<'_> {
        // SAFETY: the kernel does not write to a block between handing it over and getting it back, which needs the
        // block to be dropped; `filled` is at most the block's length.
        let bytes = unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.filled) };
        Packets { bytes, at: self.first, left: self.packets, has_vnet: self.has_vnet }
    }
}

impl Drop for Block<'_> {
    fn drop(&mut self) {
        status(self.start).store(libc::TP_STATUS_KERNEL, Ordering::Release);
    }
}

/// The status word of a block, through which ownership is transferred.
fn status<'a>(block: NonNull<u8>) -> &'a AtomicU32 {
    // SAFETY: every block starts, at a multiple of the page size, with a descriptor, within a mapping that outlives
    // the reference's use here. The kernel writes the word, so it is read as an atomic.
    unsafe {
        let descriptor = block.cast::<libc::tpacket_block_desc>().as_ptr();
        AtomicU32::from_ptr(&raw mut (*descriptor).hdr.bh1.block_status)
    }
}

/// One captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Capture time by the kernel: CLOCK_REALTIME, in nanoseconds since 1970.
    pub at: Timestamp,
    /// The captured bytes: see [`super::Framing`].
    pub bytes: &'a [u8],
    /// Original length, link header included; a super-packet that the kernel had not yet segmented may have 64 KB.
    pub original_length: u32,
    /// Of a super-packet of UDP datagrams that the kernel had not yet divided: bytes of payload of each but the last; 0 of
    /// other packets. Only TUN devices have it, and from Linux 6.2 on.
    pub datagram_bytes: u16,
}

/// Iterates over the packets of a [`Block`].
#[derive(Clone, Debug)]
pub struct Packets<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u32,
    has_vnet: bool,
}

impl<'a> Iterator for Packets<'a> {
    type Item = Packet<'a>;

    #[inline]
    fn next(&mut self) -> Option<Packet<'a>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let rest = self.bytes.get(self.at..)?;
        if rest.len() < size_of::<libc::tpacket3_hdr>() {
            return None;
        }
        // SAFETY: the bytes are there, as just seen, and any bytes are a valid tpacket3_hdr; no alignment is assumed.
        let header = unsafe { rest.as_ptr().cast::<libc::tpacket3_hdr>().read_unaligned() };
        let start = usize::from(header.tp_mac);
        let bytes = rest.get(start..start + header.tp_snaplen as usize)?;
        let vnet = start.checked_sub(VNET_HEADER_BYTES).filter(|_| self.has_vnet).and_then(|at| rest.get(at..start));
        let datagram_bytes = match vnet {
            Some(vnet) if vnet[1] == GSO_UDP => u16::from_ne_bytes([vnet[4], vnet[5]]),
            _ => 0,
        };
        match header.tp_next_offset {
            0 => self.left = 0,
            next => self.at += next as usize,
        }
        let nanos = u64::from(header.tp_sec) * 1_000_000_000 + u64::from(header.tp_nsec);
        Some(Packet { at: Timestamp::from_nanos(nanos), bytes, original_length: header.tp_len, datagram_bytes })
    }
}

const VERSION_3: libc::c_int = libc::tpacket_versions::TPACKET_V3 as libc::c_int;
/// `gso_type` of a vnet header: UDP datagrams (VIRTIO_NET_HDR_GSO_UDP_L4).
const GSO_UDP: u8 = 5;
/// Divides every block size; at least the longest header.
const FRAME: u32 = 2048;
