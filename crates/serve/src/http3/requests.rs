//! Requests as they arrive.

use field_compression::qpack;
use http3::Code;
use http3::message::{FrameFault, Phase, Piece};
use quinn_proto::{Connection as Quic, ReadError, StreamId};

use super::responses::SHORT_CONTENT_MAX;
use super::{Departure, Entry, Http3, RESETS_MAX, UNREAD_MAX, varint_of};
use crate::connection::WorkerContext;
use crate::file_response::COPY_MAX;
use crate::multiplexed::{Stream, is_trailer};
use crate::response::Status;

/// What follows from bytes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// The response may continue.
    Valid,
    /// The stream is reset with this code.
    Broken(Code),
}

impl Http3 {
    /// The client has opened a stream.
    pub(super) fn begin_request(
        &mut self,
        context: &mut WorkerContext,
        quic: &mut Quic,
        id: StreamId,
    ) -> Result<(), Code> {
        if self.departure == Departure::Announced {
            refuse(quic, id, Code::REQUEST_REJECTED);
            return Ok(());
        }
        self.next = self.next.max(u64::from(id) + 4);
        self.streams.insert(id, Box::new(Entry::new(context)));
        self.read_request(context, quic, id)
    }

    /// Reads what has arrived of a request, as far as it can be forwarded.
    pub(super) fn read_request(
        &mut self,
        context: &mut WorkerContext,
        quic: &mut Quic,
        id: StreamId,
    ) -> Result<(), Code> {
        let mut bytes = std::mem::take(&mut context.plain);
        let outcome = loop {
            let Some(entry) = self.streams.get(&id).filter(|entry| !entry.ended) else { break Ok(()) };
            if entry.stream.as_ref().is_some_and(|stream| stream.unreported() >= UNREAD_MAX) {
                break Ok(());
            }
            bytes.clear();
            let end = read(quic, id, &mut bytes);
            if end == End::Reset {
                break self.cancelled(context, quic, id);
            }
            if bytes.is_empty() && end != End::Finished {
                break Ok(());
            }
            let outcome = self.take(context, quic, id, &bytes, end == End::Finished);
            if outcome.is_err() || end == End::Finished {
                break outcome;
            }
        };
        bytes.clear();
        context.plain = bytes;
        outcome
    }

    /// Takes bytes of a request; `finished`: the last ones.
    fn take(
        &mut self,
        context: &mut WorkerContext,
        quic: &mut Quic,
        id: StreamId,
        input: &[u8],
        finished: bool,
    ) -> Result<(), Code> {
        let Some(mut entry) = self.streams.remove(&id) else { return Ok(()) };
        let is_early = quic.is_handshaking();
        let taken = self.take_frames(context, id, &mut entry, input, finished, is_early);
        self.streams.insert(id, entry);
        match taken? {
            Taken::Valid => {
                self.write(context, quic, id);
                Ok(())
            }
            Taken::Broken(code) => {
                self.abort(context, quic, id, code);
                self.count_reset()
            }
        }
    }

    fn take_frames(
        &mut self,
        context: &mut WorkerContext,
        id: StreamId,
        entry: &mut Entry,
        mut input: &[u8],
        finished: bool,
        is_early: bool,
    ) -> Result<Taken, Code> {
        loop {
            let piece = match entry.reader.next(&mut input) {
                Ok(Some(piece)) => piece,
                Ok(None) => break,
                Err(FrameFault::Connection(code)) => return Err(code),
                Err(FrameFault::SectionTooLarge) => return Ok(Taken::Broken(Code::EXCESSIVE_LOAD)),
            };
            let taken = match piece {
                Piece::Frame { .. } => Taken::Valid,
                Piece::Section { bytes, complete: false } => {
                    entry.section.extend_from_slice(bytes);
                    Taken::Valid
                }
                Piece::Section { bytes, complete: true } => {
                    let mut section = std::mem::take(&mut entry.section);
                    let section = if section.is_empty() {
                        bytes
                    } else {
                        section.extend_from_slice(bytes);
                        &section
                    };
                    match entry.reader.phase() {
                        Phase::Head => {
                            self.head(context, id, entry, section, finished && input.is_empty(), is_early)?
                        }
                        Phase::Body | Phase::End => trailers(entry, section)?,
                    }
                }
                Piece::Content(content) => entry.take_body(context, content, false),
            };
            if taken != Taken::Valid {
                return Ok(taken);
            }
        }
        if !finished {
            return Ok(Taken::Valid);
        }
        entry.reader.end()?;
        entry.ended = true;
        if entry.stream.is_none() {
            return Ok(Taken::Broken(Code::REQUEST_INCOMPLETE));
        }
        Ok(entry.take_body(context, b"", true))
    }

    /// A complete head; `ended`: no content follows; `is_early`: it came before the handshake was finished, and may have
    /// been replayed (RFC 8470).
    fn head(
        &mut self,
        context: &mut WorkerContext,
        id: StreamId,
        entry: &mut Entry,
        section: &[u8],
        ended: bool,
        is_early: bool,
    ) -> Result<Taken, Code> {
        let mut head = std::mem::take(&mut context.request_head);
        head.begin("HTTP/3.0", &context.limits);
        // The head counts its own bytes: it is answered when it has too many.
        let decoded = qpack::decode(section, usize::MAX, |name, value| head.field(name, value));
        let refusal = if self.authority.is_misdirected(context, &self.ends, head.authority()) {
            Some(Status::MisdirectedRequest)
        } else if is_early && !head.is_safe() {
            Some(Status::TooEarly)
        } else {
            None
        };
        if is_early {
            head.arrived_early();
        }
        let begun = decoded.map(|()| {
            // Longer content is passed to QUIC's buffers from where it is.
            context.copy_max = SHORT_CONTENT_MAX;
            let begun = Stream::begin(&self.ends, u64::from(id), context, &mut head, ended, refusal);
            context.copy_max = COPY_MAX;
            begun
        });
        context.request_head = head;
        match begun.map_err(|_| Code::QPACK_DECOMPRESSION_FAILED)? {
            Ok(mut stream) => {
                self.count_use(context);
                stream.settle(context);
                entry.stream = Some(stream);
                entry.reader.set_phase(Phase::Body);
                Ok(Taken::Valid)
            }
            Err(_) => {
                context.out.clear();
                Ok(Taken::Broken(Code::MESSAGE_ERROR))
            }
        }
    }

    /// The client does not want the response, or does not complete its request.
    pub(super) fn cancelled(&mut self, context: &mut WorkerContext, quic: &mut Quic, id: StreamId) -> Result<(), Code> {
        let is_known = self.streams.contains_key(&id) || self.unacknowledged.contains(&id);
        if !is_known {
            return Ok(());
        }
        self.abort(context, quic, id, Code::REQUEST_CANCELLED);
        self.count_reset()
    }

    /// Ends a stream with an error.
    pub(super) fn abort(&mut self, context: &mut WorkerContext, quic: &mut Quic, id: StreamId, code: Code) {
        if let Some(mut entry) = self.streams.remove(&id)
            && let Some(stream) = &mut entry.stream
        {
            stream.leave(context);
        }
        context.out.clear();
        self.acknowledged(context, id);
        self.idle_since = context.now;
        refuse(quic, id, code);
    }

    fn count_reset(&mut self) -> Result<(), Code> {
        self.resets += 1;
        if self.resets > RESETS_MAX { Err(Code::EXCESSIVE_LOAD) } else { Ok(()) }
    }

    /// Counts a request of an origin workload, whose connections end after a number of requests.
    fn count_use(&mut self, context: &mut WorkerContext) {
        let Some(origin) = &mut context.origin else { return };
        if self.uses_left == 0 {
            self.uses_left = origin.connected();
        }
        self.uses_left -= 1;
        if self.uses_left == 0 {
            self.depart();
        }
    }
}

impl Entry {
    /// Content of the request; `ended`: the last.
    fn take_body(&mut self, context: &mut WorkerContext, content: &[u8], ended: bool) -> Taken {
        let Some(stream) = &mut self.stream else { return Taken::Valid };
        let outcome = stream.take_body(context, content, ended);
        stream.settle(context);
        if outcome.is_ok() { Taken::Valid } else { Taken::Broken(Code::MESSAGE_ERROR) }
    }
}

/// Trailers, which this server ignores.
fn trailers(entry: &mut Entry, section: &[u8]) -> Result<Taken, Code> {
    let mut are_valid = true;
    qpack::decode(section, usize::MAX, |name, _| are_valid &= is_trailer(name))
        .map_err(|_| Code::QPACK_DECOMPRESSION_FAILED)?;
    entry.reader.set_phase(Phase::End);
    Ok(if are_valid { Taken::Valid } else { Taken::Broken(Code::MESSAGE_ERROR) })
}

/// What follows the bytes that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Later,
    Finished,
    Reset,
}

/// Reads bytes of a stream, [`READ_BYTES`] at most, and more only to find its end.
fn read(quic: &mut Quic, id: StreamId, into: &mut Vec<u8>) -> End {
    let mut receiver = quic.recv_stream(id);
    let Ok(mut chunks) = receiver.read(true) else { return End::Later };
    let end = loop {
        match chunks.next(READ_BYTES) {
            Ok(Some(chunk)) => {
                into.extend_from_slice(&chunk.bytes);
                if into.len() >= READ_BYTES {
                    break End::Later;
                }
            }
            Ok(None) => break End::Finished,
            Err(ReadError::Blocked) => break End::Later,
            Err(ReadError::Reset(_)) => break End::Reset,
        }
    };
    // The window that this frees is sent with the next datagram.
    let _ = chunks.finalize();
    end
}

/// Ends a stream in both directions; either may have ended already.
pub(super) fn refuse(quic: &mut Quic, id: StreamId, code: Code) {
    let _ = quic.send_stream(id).reset(varint_of(code));
    let _ = quic.recv_stream(id).stop(varint_of(code));
}

/// Content that is read at a time.
const READ_BYTES: usize = 16 << 10;
