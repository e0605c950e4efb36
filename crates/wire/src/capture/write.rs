//! Writes capture files: the bytes of headers, blocks and packets, appended to a buffer of the caller.
//!
//! Times are written in nanoseconds, numbers in little-endian order. [`pcap_header`] then [`pcap_packet`] for the old
//! format; [`section`], one [`interface`] for each, then [`packet`] and, at the end, [`statistics`] for pcapng.

use units::Timestamp;

use super::{pcap, pcapng};
use crate::link::LinkType;

/// Appends the header of a pcap file with times in nanoseconds. `snap_length` is the maximum captured length of a
/// packet.
pub fn pcap_header(into: &mut Vec<u8>, link: LinkType, snap_length: u32) {
    into.extend(pcap::MAGIC_NANOS.to_le_bytes());
    into.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    into.extend(snap_length.to_le_bytes());
    into.extend(u32::from(link.number()).to_le_bytes());
}

/// Appends one packet to a pcap file. Times beyond the year 2106 do not fit the format and wrap.
pub fn pcap_packet(into: &mut Vec<u8>, at: Timestamp, bytes: &[u8], original_length: u32) {
    let (seconds, nanos) = (at.as_nanos() / 1_000_000_000, at.as_nanos() % 1_000_000_000);
    into.extend((seconds as u32).to_le_bytes());
    into.extend((nanos as u32).to_le_bytes());
    into.extend((bytes.len() as u32).to_le_bytes());
    into.extend(original_length.to_le_bytes());
    into.extend_from_slice(bytes);
}

/// Appends the section header of a pcapng file. `application` is the name of the writing program.
pub fn section(into: &mut Vec<u8>, application: &str) {
    block(into, pcapng::kind::SECTION, |into| {
        into.extend(pcapng::ORDER_MAGIC.to_le_bytes());
        into.extend([1, 0, 0, 0]);
        // The section's length is unknown while it is written.
        into.extend(u64::MAX.to_le_bytes());
        option(into, OPTION_APPLICATION, application.as_bytes());
        option(into, 0, &[]);
    });
}

/// Appends an interface description; packets refer to it by its index in the order of these, from 0. A `snap_length` of
/// 0 means that packets are complete.
pub fn interface(into: &mut Vec<u8>, link: LinkType, snap_length: u32, name: &str) {
    block(into, pcapng::kind::INTERFACE, |into| {
        into.extend(link.number().to_le_bytes());
        into.extend([0, 0]);
        into.extend(snap_length.to_le_bytes());
        option(into, pcapng::OPTION_NAME, name.as_bytes());
        option(into, pcapng::OPTION_RESOLUTION, &[9]);
        option(into, 0, &[]);
    });
}

/// Appends a packet of interface `index`.
pub fn packet(into: &mut Vec<u8>, index: u32, at: Timestamp, bytes: &[u8], original_length: u32) {
    block(into, pcapng::kind::ENHANCED, |into| {
        into.extend(index.to_le_bytes());
        into.extend(((at.as_nanos() >> 32) as u32).to_le_bytes());
        into.extend((at.as_nanos() as u32).to_le_bytes());
        into.extend((bytes.len() as u32).to_le_bytes());
        into.extend(original_length.to_le_bytes());
        padded(into, bytes);
    });
}

/// Appends the statistics of interface `index`: packets lost by the capturing system since the start of the capture.
pub fn statistics(into: &mut Vec<u8>, index: u32, at: Timestamp, dropped: u64) {
    block(into, pcapng::kind::STATISTICS, |into| {
        into.extend(index.to_le_bytes());
        into.extend(((at.as_nanos() >> 32) as u32).to_le_bytes());
        into.extend((at.as_nanos() as u32).to_le_bytes());
        option(into, pcapng::OPTION_OS_DROPPED, &dropped.to_le_bytes());
        option(into, 0, &[]);
    });
}

/// Appends a block: type, length, the output of `body`, length again.
fn block(into: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = into.len();
    into.extend(kind.to_le_bytes());
    into.extend([0; 4]);
    body(into);
    let length = (into.len() - start + 4) as u32;
    into[start + 4..start + 8].copy_from_slice(&length.to_le_bytes());
    into.extend(length.to_le_bytes());
}

fn option(into: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    into.extend(code.to_le_bytes());
    into.extend((value.len() as u16).to_le_bytes());
    padded(into, value);
}

fn padded(into: &mut Vec<u8>, bytes: &[u8]) {
    into.extend_from_slice(bytes);
    into.resize(into.len() + bytes.len().next_multiple_of(4) - bytes.len(), 0);
}

/// shb_userappl.
const OPTION_APPLICATION: u16 = 4;
