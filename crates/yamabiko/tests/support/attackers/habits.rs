//! What each kind of attacker does.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::crowd::{Crowd, Member, Next, crowd};
use super::hello::client_hello;
use super::{Tally, Target};

/// Slow ones do something this often.
const SLOW: Duration = Duration::from_millis(200);
const MANY: Crowd = Crowd { size: 1_500, at_once: 200, pace: SLOW, workspace: None, resets: false };
/// As fast as the thread is let.
const FLOOD: Crowd = Crowd { size: 256, at_once: 256, pace: Duration::ZERO, workspace: None, resets: false };
/// What one member of a flood sends in its turn.
const VOLLEY: usize = 16 << 10;

pub fn slow_heads(target: &Target, stop: &AtomicBool) -> Tally {
    let start = format!("GET {} HTTP/1.1\r\nHost: x\r\nX-Slow: ", target.small).into_bytes();
    crowd(target, stop, &MANY, |member| drip(member, &start))
}

pub fn slow_bodies(target: &Target, stop: &AtomicBool) -> Tally {
    let start = format!("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n", target.small).into_bytes();
    crowd(target, stop, &MANY, |member| drip(member, &start))
}

pub fn slow_hellos(target: &Target, stop: &AtomicBool) -> Tally {
    let hello = client_hello();
    let start = hello[..100].to_vec();
    crowd(target, stop, &MANY, |member| drip(member, &start))
}

pub fn slow_readers(target: &Target, stop: &AtomicBool) -> Tally {
    readers(target, stop, 100)
}

pub fn no_readers(target: &Target, stop: &AtomicBool) -> Tally {
    readers(target, stop, 0)
}

pub fn idle(target: &Target, stop: &AtomicBool) -> Tally {
    let size = Crowd { size: 20_000, at_once: 500, pace: Duration::from_millis(20), ..MANY };
    crowd(target, stop, &size, |member| member.read(1).map(|_| Next::Stays))
}

pub fn idle_kept(target: &Target, stop: &AtomicBool) -> Tally {
    let size = Crowd { size: 20_000, at_once: 500, pace: Duration::from_millis(20), ..MANY };
    let request = request(&target.small);
    crowd(target, stop, &size, |member| {
        begin(member, &request)?;
        member.read(VOLLEY).map(|_| Next::Stays)
    })
}

pub fn long_heads(target: &Target, stop: &AtomicBool) -> Tally {
    heads(target, stop, &[b'a'; VOLLEY])
}

pub fn many_fields(target: &Target, stop: &AtomicBool) -> Tally {
    let fields: Vec<u8> = b"a:b\r\n".iter().copied().cycle().take(VOLLEY / 5 * 5).collect();
    heads(target, stop, &fields)
}

pub fn connections(target: &Target, stop: &AtomicBool) -> Tally {
    crowd(target, stop, &FLOOD, |_| Ok(Next::Leaves))
}

pub fn resets(target: &Target, stop: &AtomicBool) -> Tally {
    let request = request(&target.big);
    let resets = Crowd { resets: true, ..FLOOD };
    crowd(target, stop, &resets, |member| {
        begin(member, &request)?;
        Ok(if member.read(64)? > 0 { Next::Leaves } else { Next::Stays })
    })
}

pub fn pipelining(target: &Target, stop: &AtomicBool) -> Tally {
    pipelines(target, stop, true)
}

pub fn deaf(target: &Target, stop: &AtomicBool) -> Tally {
    pipelines(target, stop, false)
}

pub fn garbage(target: &Target, stop: &AtomicBool) -> Tally {
    let mut noise = Noise(1);
    crowd(target, stop, &FLOOD, |member| {
        let mut bytes = [0; 1024];
        bytes.iter_mut().for_each(|byte| *byte = noise.next());
        if member.number % 2 == 0 {
            // Half of them begin as a record of TLS does.
            bytes[..3].copy_from_slice(&[22, 3, 1]);
        }
        if member.sent < 64 << 10 {
            member.send(&bytes)?;
        }
        member.read(VOLLEY)?;
        Ok(Next::Stays)
    })
}

pub fn hellos(target: &Target, stop: &AtomicBool) -> Tally {
    let hello = client_hello();
    crowd(target, stop, &FLOOD, |member| {
        begin(member, &hello)?;
        // The server's work is done when its response arrives.
        Ok(if member.read(VOLLEY)? > 0 { Next::Leaves } else { Next::Stays })
    })
}

/// `start`, and then a byte each time.
fn drip(member: &mut Member, start: &[u8]) -> io::Result<Next> {
    if !begin(member, start)? {
        member.send(b"a")?;
    }
    member.read(VOLLEY)?;
    Ok(Next::Stays)
}

fn readers(target: &Target, stop: &AtomicBool, bytes: usize) -> Tally {
    let request = request(&target.big);
    let few = Crowd { size: 500, workspace: Some(4096), ..MANY };
    crowd(target, stop, &few, |member| {
        if !begin(member, &request)? && (bytes > 0 || member.read == 0) {
            member.read(bytes.max(12))?;
        }
        member.look()?;
        Ok(Next::Stays)
    })
}

fn heads(target: &Target, stop: &AtomicBool, fields: &[u8]) -> Tally {
    let start = format!("GET {} HTTP/1.1\r\nHost: x\r\n", target.small).into_bytes();
    crowd(target, stop, &FLOOD, |member| {
        if !begin(member, &start)? {
            member.send(fields)?;
        }
        member.read(VOLLEY)?;
        Ok(Next::Stays)
    })
}

fn pipelines(target: &Target, stop: &AtomicBool, reads: bool) -> Tally {
    let one = request(&target.small);
    let volley: Vec<u8> = one.repeat(VOLLEY / one.len());
    let few = Crowd { size: 64, ..FLOOD };
    crowd(target, stop, &few, |member| {
        // Where the last one went in part, the next goes on from there.
        let at = member.sent as usize % volley.len();
        member.send(&volley[at..])?;
        while reads && member.read(VOLLEY)? == VOLLEY {}
        Ok(Next::Stays)
    })
}

/// Sends `start` before anything else; true as long as this is going on, the sending of its last bytes included.
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

/// Bytes that look random: xorshift.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u8 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as u8
    }
}
