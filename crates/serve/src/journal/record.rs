//! A record between worker and log thread: numbers in binary, then the request head.
//!
//! Both ends are in one program, so the layout is private: native byte order, fixed offsets.

use std::net::{IpAddr, Ipv6Addr};

use units::Timestamp;

use super::Entry;
use crate::cache::{Finding, Outcome, Reason};

/// A record, as read by the log thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    pub(super) peer: IpAddr,
    pub(super) status: u16,
    pub(super) content_bytes: u64,
    pub(super) finding: Finding,
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) whole: bool,
    pub(super) head: &'a [u8],
}

/// Bytes of a record.
pub(super) fn bytes(entry: &Entry<'_>) -> usize {
    FIXED_BYTES + stored_head(entry.head).len()
}

/// Appends a record; the caller checks the space.
pub(super) fn append(out: &mut Vec<u8>, entry: &Entry<'_>) {
    let head = stored_head(entry.head);
    let mut fixed = [0u8; FIXED_BYTES];
    let (v4, address) = match entry.peer {
        IpAddr::V4(address) => (1, address.to_ipv6_mapped().octets()),
        IpAddr::V6(address) => (0, address.octets()),
    };
    fixed[..16].copy_from_slice(&address);
    fixed[16..24].copy_from_slice(&entry.began.as_nanos().to_ne_bytes());
    fixed[24..32].copy_from_slice(&entry.ended.as_nanos().to_ne_bytes());
    fixed[32..40].copy_from_slice(&entry.content_bytes.to_ne_bytes());
    fixed[40..44].copy_from_slice(&(head.len() as u32).to_ne_bytes());
    fixed[44..46].copy_from_slice(&entry.status.to_ne_bytes());
    fixed[46] = entry.finding.outcome.index() as u8;
    fixed[47] = entry.finding.reason.index() as u8;
    fixed[48] = v4 | u8::from(entry.whole) << 1;
    out.extend_from_slice(&fixed);
    out.extend_from_slice(head);
}

/// Removes one record from the front of `input`, which contains complete records.
pub(super) fn take<'a>(input: &mut &'a [u8]) -> Option<Record<'a>> {
    let (fixed, rest) = input.split_first_chunk::<FIXED_BYTES>()?;
    let (address, tail) = fixed.split_first_chunk::<16>()?;
    let (began, tail) = tail.split_first_chunk::<8>()?;
    let (ended, tail) = tail.split_first_chunk::<8>()?;
    let (content_bytes, tail) = tail.split_first_chunk::<8>()?;
    let (length, tail) = tail.split_first_chunk::<4>()?;
    let (status, tail) = tail.split_first_chunk::<2>()?;
    let [outcome, reason, flags, ..] = *tail else { return None };
    let (head, rest) = rest.split_at_checked(u32::from_ne_bytes(*length) as usize)?;
    *input = rest;
    let address = Ipv6Addr::from(*address);
    Some(Record {
        peer: match address.to_ipv4_mapped() {
            Some(v4) if flags & 1 == 1 => IpAddr::V4(v4),
            _ => IpAddr::V6(address),
        },
        status: u16::from_ne_bytes(*status),
        content_bytes: u64::from_ne_bytes(*content_bytes),
        finding: Finding::new(*Outcome::ALL.get(outcome as usize)?, *Reason::ALL.get(reason as usize)?),
        began: Timestamp::from_nanos(u64::from_ne_bytes(*began)),
        ended: Timestamp::from_nanos(u64::from_ne_bytes(*ended)),
        whole: flags & 2 == 2,
        head,
    })
}

/// The recorded part of a head.
fn stored_head(head: &[u8]) -> &[u8] {
    &head[..head.len().min(HEAD_MAX)]
}

/// The fixed part, with some spare bytes.
const FIXED_BYTES: usize = 56;
/// Longer heads are truncated; the server accepts at most half of this.
const HEAD_MAX: usize = 64 << 10;
