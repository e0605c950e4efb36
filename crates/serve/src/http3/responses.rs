//! Responses as QUIC takes them.

use field_compression::qpack;
use http3::Code;
use http3::frame::{DATA, HEADERS, put_head};
use quinn_proto::{Connection as Quic, StreamId, WriteError};
use units::Timestamp;

use super::requests::refuse;
use super::{Entry, Http3, varint_of};
use crate::connection::WorkerContext;
use crate::multiplexed::{Encoding, HeadCache, HeadCaches, Progress};

/// What follows an attempt to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Something must happen first.
    Waits,
    /// Everything was written.
    Complete,
    /// The response cannot be completed.
    Broken,
    /// The client does not want it: an event says so.
    Unwanted,
}

impl Http3 {
    /// Writes what QUIC takes of a response.
    pub(super) fn write(&mut self, context: &mut WorkerContext, quic: &mut Quic, id: StreamId) {
        let Some(mut entry) = self.streams.remove(&id) else { return };
        let next = self.write_frames(context, quic, id, &mut entry);
        let Some(stream) = &mut entry.stream else {
            self.streams.insert(id, entry);
            return;
        };
        match next {
            Next::Waits => {
                stream.settle(context);
                // The limit of the backlog may have reset it.
                if stream.progress(context) == Progress::Broken {
                    stream.leave(context);
                    refuse(quic, id, Code::INTERNAL_ERROR);
                    return;
                }
                // QUIC grants by itself what is read.
                let _ = stream.forwarded();
                self.streams.insert(id, entry);
                return;
            }
            Next::Complete => {
                stream.leave(context);
                let _ = quic.send_stream(id).finish();
                if !entry.ended {
                    // Section 4.1: the rest of the request is not needed.
                    let _ = quic.recv_stream(id).stop(varint_of(Code::NO_ERROR));
                }
                self.resets = self.resets.saturating_sub(1);
                if self.unacknowledged.is_empty() {
                    self.acknowledged_by = context.now + context.limits.stall_time;
                    self.sent_before = quic.stats().udp_tx.bytes;
                }
                self.unacknowledged.insert(id);
            }
            Next::Broken => {
                stream.leave(context);
                refuse(quic, id, Code::INTERNAL_ERROR);
            }
            Next::Unwanted => {
                self.streams.insert(id, entry);
                return;
            }
        }
        context.out.clear();
        self.idle_since = context.now;
    }

    fn write_frames(&mut self, context: &mut WorkerContext, quic: &mut Quic, id: StreamId, entry: &mut Entry) -> Next {
        loop {
            if !entry.pending.is_empty() {
                match quic.send_stream(id).write(&entry.pending) {
                    Ok(count) => {
                        self.written += count as u64;
                        entry.pending.drain(..count);
                    }
                    Err(WriteError::Blocked) => {
                        self.held_up = true;
                        return Next::Waits;
                    }
                    Err(_) => return Next::Unwanted,
                }
                continue;
            }
            if entry.frame_left > 0 {
                match self.write_content(context, quic, id, entry) {
                    Ok(()) => continue,
                    Err(next) => return next,
                }
            }
            let Some(stream) = &mut entry.stream else { return Next::Waits };
            let mut frames = std::mem::take(&mut context.frames);
            frames.clear();
            while let Some(section) = stream.next_head::<Qpack>(context) {
                put_head(HEADERS, section.len() as u64, &mut frames);
                frames.extend_from_slice(&section);
            }
            let available = stream.available(context);
            if available > 0 {
                put_head(DATA, available, &mut frames);
                if available <= SHORT_CONTENT_MAX as u64 {
                    if stream.body(context, &mut frames, available as usize) != Ok(available as usize) {
                        context.frames = frames;
                        return Next::Broken;
                    }
                } else {
                    entry.frame_left = available;
                }
            }
            let written = if frames.is_empty() { Ok(0) } else { quic.send_stream(id).write(&frames) };
            match written {
                Ok(count) => {
                    self.written += count as u64;
                    entry.pending.extend_from_slice(&frames[count..]);
                }
                Err(WriteError::Blocked) => entry.pending.extend_from_slice(&frames),
                Err(_) => {
                    context.frames = frames;
                    return Next::Unwanted;
                }
            }
            let is_empty = frames.is_empty();
            frames.clear();
            context.frames = frames;
            if is_empty {
                return match stream.progress(context) {
                    Progress::Complete => Next::Complete,
                    Progress::Broken => Next::Broken,
                    Progress::Unfinished => Next::Waits,
                };
            }
        }
    }

    /// Content of the current DATA frame, which is longer than what is copied behind its head.
    fn write_content(
        &mut self,
        context: &mut WorkerContext,
        quic: &mut Quic,
        id: StreamId,
        entry: &mut Entry,
    ) -> Result<(), Next> {
        let Some(stream) = &mut entry.stream else { return Err(Next::Waits) };
        let most = self.piece_bytes.min(usize::try_from(entry.frame_left).unwrap_or(usize::MAX));
        let mut error = None;
        let transferred = stream.transfer(context, most, |bytes| match quic.send_stream(id).write(bytes) {
            Ok(count) => count,
            Err(why) => {
                error = Some(why);
                0
            }
        });
        let Ok(count) = transferred else { return Err(Next::Broken) };
        self.written += count as u64;
        entry.frame_left -= count as u64;
        self.piece_bytes = if count == most { 2 * self.piece_bytes } else { count };
        self.piece_bytes = self.piece_bytes.clamp(PIECE_BYTES_MIN, PIECE_BYTES_MAX);
        match error {
            None if count == most => Ok(()),
            None if count > 0 => Ok(()),
            // The announced content is not there any more.
            None => Err(Next::Broken),
            Some(WriteError::Blocked) => {
                self.held_up = true;
                Err(Next::Waits)
            }
            Some(_) => Err(Next::Unwanted),
        }
    }

    /// The client has acknowledged a response, or it was reset.
    pub(super) fn acknowledged(&mut self, context: &WorkerContext, id: StreamId) {
        if self.unacknowledged.remove(&id) {
            self.idle_since = context.now;
            self.acknowledged_by =
                if self.unacknowledged.is_empty() { Timestamp::MAX } else { context.now + context.limits.stall_time };
        }
    }

    /// Responses were not acknowledged in their time. As long as much is sent the client is only slow; a client that
    /// does not read has its responses reset, since they use memory.
    pub(super) fn acknowledgements_late(&mut self, context: &mut WorkerContext, quic: &mut Quic, sent: u64) {
        let is_slow = sent.saturating_sub(self.sent_before) >= PROGRESS_BYTES;
        self.sent_before = sent;
        self.acknowledged_by = context.now + context.limits.stall_time;
        if !is_slow {
            for id in std::mem::take(&mut self.unacknowledged) {
                refuse(quic, id, Code::REQUEST_CANCELLED);
            }
            self.acknowledged_by = Timestamp::MAX;
            self.idle_since = context.now;
        }
    }
}

/// Fields by QPACK.
struct Qpack;

impl Encoding for Qpack {
    fn cache(caches: &mut HeadCaches) -> &mut HeadCache {
        &mut caches.http3
    }

    fn status(status: &[u8; 3], out: &mut Vec<u8>) {
        qpack::begin(out);
        qpack::encode(b":status", status, out);
    }

    fn field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
        qpack::encode(name, value, out);
    }
}

/// Content up to this length is written together with its head.
pub(super) const SHORT_CONTENT_MAX: usize = 2 << 10;
/// Bytes of content that are passed to QUIC at a time, at least: some packets.
pub(super) const PIECE_BYTES_MIN: usize = 4 << 10;
/// The same, at most.
const PIECE_BYTES_MAX: usize = 64 << 10;
/// Bytes of datagrams within the stall time that are progress.
const PROGRESS_BYTES: u64 = 16 << 10;
