//! Frames of the client.

use super::frame::{
    ACK, CONTINUATION, DATA, ENABLE_PUSH, END_HEADERS, END_STREAM, ErrorCode, FRAME_BYTES_MAX, FRAME_HEAD_BYTES,
    FrameHead, GOAWAY, HEADERS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE, PADDED, PING, PREFACE, PRIORITY, PUSH_PROMISE,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, WITH_PRIORITY, write,
};
use super::{
    CONNECTION_WINDOW, Departure, Http2, IDLE_FRAMES_MAX, OpenSection, RESETS_MAX, SECTION_BYTES_MAX,
    SECTION_FRAMES_MAX, STREAM_WINDOW,
};
use crate::connection::WorkerContext;
use crate::multiplexed::is_trailer;

impl Http2 {
    /// Processes complete frames at the beginning of `input` while the output has space; returns the bytes used.
    ///
    /// # Errors
    /// The connection ends with this code.
    pub(crate) fn work(&mut self, context: &mut WorkerContext, input: &[u8]) -> Result<usize, ErrorCode> {
        let mut at = 0;
        if !self.preface_read {
            let length = input.len().min(PREFACE.len());
            if input[..length] != PREFACE[..length] {
                return Err(ErrorCode::ProtocolError);
            }
            if length < PREFACE.len() {
                return Ok(0);
            }
            self.preface_read = true;
            at = length;
        }
        while let Some(head) = FrameHead::read(&input[at..]) {
            if head.length > FRAME_BYTES_MAX {
                return Err(ErrorCode::FrameSizeError);
            }
            let end = at + FRAME_HEAD_BYTES + head.length;
            if input.len() < end || context.frames.len() >= context.backlog.output_full() {
                break;
            }
            self.frame(context, head, &input[at + FRAME_HEAD_BYTES..end])?;
            self.took_frame = true;
            at = end;
        }
        Ok(at)
    }

    /// Whether `input` begins with a complete frame, or one that is too long.
    pub(crate) fn has_frame(input: &[u8]) -> bool {
        FrameHead::read(input)
            .is_some_and(|head| head.length > FRAME_BYTES_MAX || input.len() >= FRAME_HEAD_BYTES + head.length)
    }

    fn frame(&mut self, context: &mut WorkerContext, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        let continues = self.open_section.map(|section| section.stream);
        let is_expected = match continues {
            Some(stream) => head.kind == CONTINUATION && head.stream == stream,
            None => head.kind != CONTINUATION,
        };
        if !is_expected || (!self.settings_read && (head.kind != SETTINGS || head.has(ACK))) {
            return Err(ErrorCode::ProtocolError);
        }
        match head.kind {
            DATA => self.data(context, head, payload),
            HEADERS => self.headers(context, head, payload),
            CONTINUATION => self.continuation(context, head, payload),
            PRIORITY => self.priority(context, head, payload),
            RST_STREAM => self.reset_by_client(context, head, payload),
            SETTINGS => self.settings(context, head, payload),
            PUSH_PROMISE => Err(ErrorCode::ProtocolError),
            PING => self.ping(context, head, payload),
            GOAWAY if head.stream != 0 => Err(ErrorCode::ProtocolError),
            GOAWAY if payload.len() < 8 => Err(ErrorCode::FrameSizeError),
            WINDOW_UPDATE => self.window_update(context, head, payload),
            // Section 5.5: unknown types are ignored.
            _ => self.idle_frame(),
        }
    }

    fn data(&mut self, context: &mut WorkerContext, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        let stream = head.stream;
        self.known(stream)?;
        let length = payload.len() as u32;
        // Section 6.9.1: padding counts too.
        self.receive_window = self.receive_window.checked_sub(length).ok_or(ErrorCode::FlowControlError)?;
        let content = unpadded(head, payload)?;
        let ended = head.has(END_STREAM);
        if content.is_empty() && !ended {
            self.idle_frame()?;
        }
        let Some(entry) = self.streams.get_mut(&stream).filter(|entry| !entry.ended) else {
            self.credit += length;
            if self.drops(context, stream, length, ended) {
                return Ok(());
            }
            return self.closed(context, stream, ErrorCode::StreamClosed);
        };
        self.credit += length - content.len() as u32;
        let Some(left) = entry.receive_window.checked_sub(length) else {
            self.credit += content.len() as u32;
            return self.reset(context, stream, ErrorCode::FlowControlError);
        };
        entry.receive_window = left;
        entry.credit += length - content.len() as u32;
        entry.ended = ended;
        let mut outcome = Ok(());
        self.with(context, stream, |entry, context| outcome = entry.stream.take_body(context, content, ended));
        if outcome.is_err() { self.malformed(context, stream) } else { Ok(()) }
    }

    /// Whether the stream is answered and its content is dropped. What its window does not permit is not needed: the
    /// client is told so when it has used the window up.
    fn drops(&mut self, context: &mut WorkerContext, stream: u32, length: u32, ended: bool) -> bool {
        let Some(left) = self.answered.get_mut(&stream) else { return false };
        *left = left.saturating_sub(length);
        let is_used_up = *left < FRAME_BYTES_MAX as u32;
        if ended || is_used_up {
            self.answered.remove(&stream);
        }
        if is_used_up && !ended {
            self.write_reset(context, stream, ErrorCode::NoError);
        }
        true
    }

    fn headers(&mut self, context: &mut WorkerContext, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        // Section 5.1.1: streams of clients are odd.
        if head.stream.is_multiple_of(2) {
            return Err(ErrorCode::ProtocolError);
        }
        let mut section = unpadded(head, payload)?;
        let mut malformed = false;
        if head.has(WITH_PRIORITY) {
            let (priority, rest) = section.split_first_chunk::<5>().ok_or(ErrorCode::FrameSizeError)?;
            malformed = depends_on(priority) == head.stream;
            section = rest;
        }
        let open = OpenSection { stream: head.stream, ended: head.has(END_STREAM), malformed, frames: 1 };
        if head.has(END_HEADERS) {
            return self.section(context, open, section);
        }
        self.section.extend_from_slice(section);
        self.open_section = Some(open);
        Ok(())
    }

    fn continuation(&mut self, context: &mut WorkerContext, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        let Some(open) = &mut self.open_section else { return Err(ErrorCode::ProtocolError) };
        open.frames += 1;
        if open.frames > SECTION_FRAMES_MAX || self.section.len() + payload.len() > SECTION_BYTES_MAX {
            return Err(ErrorCode::EnhanceYourCalm);
        }
        self.section.extend_from_slice(payload);
        if !head.has(END_HEADERS) {
            return Ok(());
        }
        let open = *open;
        self.open_section = None;
        let section = std::mem::take(&mut self.section);
        self.section(context, open, &section)
    }

    /// A complete field section: a request, or the trailers of one.
    fn section(&mut self, context: &mut WorkerContext, open: OpenSection, section: &[u8]) -> Result<(), ErrorCode> {
        let OpenSection { stream, ended, malformed, .. } = open;
        let is_new = stream > self.last;
        if is_new && self.departure != Departure::Announced && self.streams.len() < super::STREAMS_MAX && !malformed {
            self.last = stream;
            return self.request(context, stream, section, ended);
        }
        // The tables must follow every section.
        let mut are_trailers = true;
        let decoded = self.decoder.decode(section, context.limits.head_bytes, |name, _| {
            are_trailers &= is_trailer(name);
        });
        decoded.map_err(|_| ErrorCode::CompressionError)?;
        if is_new {
            if self.departure == Departure::Announced {
                return self.idle_frame();
            }
            self.last = stream;
            let code = if malformed { ErrorCode::ProtocolError } else { ErrorCode::RefusedStream };
            self.count_reset()?;
            self.write_reset(context, stream, code);
            return Ok(());
        }
        match self.streams.get_mut(&stream) {
            None if self.answered.contains_key(&stream) && ended => {
                self.answered.remove(&stream);
                Ok(())
            }
            None if self.reset.contains(&stream) => self.idle_frame(),
            None => Err(ErrorCode::StreamClosed),
            Some(entry) if entry.ended => self.reset(context, stream, ErrorCode::StreamClosed),
            Some(_) if malformed || !ended || !are_trailers => self.malformed(context, stream),
            Some(entry) => {
                entry.ended = true;
                let mut outcome = Ok(());
                self.with(context, stream, |entry, context| outcome = entry.stream.take_body(context, b"", true));
                if outcome.is_err() { self.malformed(context, stream) } else { Ok(()) }
            }
        }
    }

    fn priority(&mut self, context: &mut WorkerContext, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        if head.stream == 0 {
            return Err(ErrorCode::ProtocolError);
        }
        self.idle_frame()?;
        match payload.first_chunk::<5>() {
            Some(priority) if payload.len() == 5 => {
                if depends_on(priority) == head.stream {
                    return self.reset(context, head.stream, ErrorCode::ProtocolError);
                }
                Ok(())
            }
            _ => self.reset(context, head.stream, ErrorCode::FrameSizeError),
        }
    }

    fn reset_by_client(
        &mut self,
        context: &mut WorkerContext,
        head: FrameHead,
        payload: &[u8],
    ) -> Result<(), ErrorCode> {
        if payload.len() != 4 {
            return Err(ErrorCode::FrameSizeError);
        }
        self.known(head.stream)?;
        match self.streams.remove(&head.stream) {
            None => {
                self.answered.remove(&head.stream);
                self.idle_frame()
            }
            Some(mut entry) => {
                self.credit += entry.stream.unreported() as u32;
                entry.stream.leave(context);
                self.count_reset()
            }
        }
    }

    fn settings(&mut self, context: &mut WorkerContext, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        if head.stream != 0 {
            return Err(ErrorCode::ProtocolError);
        }
        if head.has(ACK) {
            return if payload.is_empty() { self.idle_frame() } else { Err(ErrorCode::FrameSizeError) };
        }
        if !payload.len().is_multiple_of(6) {
            return Err(ErrorCode::FrameSizeError);
        }
        self.settings_read = true;
        self.idle_frame()?;
        for setting in payload.as_chunks::<6>().0 {
            let [a, b, value @ ..] = *setting;
            let value = u32::from_be_bytes(value);
            match u16::from_be_bytes([a, b]) {
                ENABLE_PUSH if value > 1 => return Err(ErrorCode::ProtocolError),
                INITIAL_WINDOW_SIZE if value > WINDOW_MAX => return Err(ErrorCode::FlowControlError),
                INITIAL_WINDOW_SIZE => self.set_initial_window(context, value)?,
                MAX_FRAME_SIZE if !(1 << 14..1 << 24).contains(&value) => return Err(ErrorCode::ProtocolError),
                // This server sends the smallest frames, uses no dynamic table, and pushes nothing.
                _ => {}
            }
        }
        write(&mut context.frames, SETTINGS, ACK, 0, b"");
        Ok(())
    }

    /// Section 6.9.2: the windows of all streams change, and may become negative.
    fn set_initial_window(&mut self, context: &WorkerContext, value: u32) -> Result<(), ErrorCode> {
        let change = i64::from(value) - self.initial_window;
        self.initial_window = i64::from(value);
        for (&stream, entry) in &mut self.streams {
            entry.window += change;
            if entry.window > i64::from(WINDOW_MAX) {
                return Err(ErrorCode::FlowControlError);
            }
            if entry.window > 0 && !entry.queued && entry.stream.has_body(context) {
                entry.queued = true;
                self.ready.push_back(stream);
            }
        }
        Ok(())
    }

    fn ping(&mut self, context: &mut WorkerContext, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        if head.stream != 0 {
            return Err(ErrorCode::ProtocolError);
        }
        if payload.len() != 8 {
            return Err(ErrorCode::FrameSizeError);
        }
        self.idle_frame()?;
        if !head.has(ACK) {
            write(&mut context.frames, PING, ACK, 0, payload);
        }
        Ok(())
    }

    fn window_update(&mut self, context: &mut WorkerContext, head: FrameHead, payload: &[u8]) -> Result<(), ErrorCode> {
        let bytes: &[u8; 4] = payload.try_into().map_err(|_| ErrorCode::FrameSizeError)?;
        let bytes = i64::from(u32::from_be_bytes(*bytes) & WINDOW_MAX);
        self.idle_frame()?;
        if head.stream == 0 {
            self.window += bytes;
            return match bytes {
                0 => Err(ErrorCode::ProtocolError),
                _ if self.window > i64::from(WINDOW_MAX) => Err(ErrorCode::FlowControlError),
                _ => Ok(()),
            };
        }
        self.known(head.stream)?;
        let Some(entry) = self.streams.get_mut(&head.stream) else { return Ok(()) };
        entry.window += bytes;
        if bytes == 0 {
            return self.reset(context, head.stream, ErrorCode::ProtocolError);
        }
        if entry.window > i64::from(WINDOW_MAX) {
            return self.reset(context, head.stream, ErrorCode::FlowControlError);
        }
        if entry.window > 0 && !entry.queued && entry.stream.has_body(context) {
            entry.queued = true;
            self.ready.push_back(head.stream);
        }
        Ok(())
    }

    /// A frame for this stream must not come before the stream has begun.
    fn known(&self, stream: u32) -> Result<(), ErrorCode> {
        let is_begun = stream != 0 && stream <= self.last && !stream.is_multiple_of(2);
        if is_begun { Ok(()) } else { Err(ErrorCode::ProtocolError) }
    }

    /// A frame for a closed stream.
    fn closed(&mut self, context: &mut WorkerContext, stream: u32, code: ErrorCode) -> Result<(), ErrorCode> {
        if self.reset.contains(&stream) {
            // It was in transit when the stream was reset.
            return Ok(());
        }
        self.reset(context, stream, code)
    }

    /// The request is malformed (section 8.1.1).
    pub(super) fn malformed(&mut self, context: &mut WorkerContext, stream: u32) -> Result<(), ErrorCode> {
        self.reset(context, stream, ErrorCode::ProtocolError)
    }

    /// Resets a stream because of the client.
    fn reset(&mut self, context: &mut WorkerContext, stream: u32, code: ErrorCode) -> Result<(), ErrorCode> {
        if let Some(mut entry) = self.streams.remove(&stream) {
            self.credit += entry.stream.unreported() as u32;
            entry.stream.leave(context);
        }
        self.write_reset(context, stream, code);
        self.count_reset()
    }

    pub(super) fn count_reset(&mut self) -> Result<(), ErrorCode> {
        self.resets += 1;
        if self.resets > RESETS_MAX { Err(ErrorCode::EnhanceYourCalm) } else { Ok(()) }
    }

    fn idle_frame(&mut self) -> Result<(), ErrorCode> {
        self.idle_frames += 1;
        if self.idle_frames > IDLE_FRAMES_MAX { Err(ErrorCode::EnhanceYourCalm) } else { Ok(()) }
    }

    /// Grants the client what was forwarded, once it is much.
    pub(super) fn grant(&mut self, context: &mut WorkerContext) {
        if self.credit >= CONNECTION_WINDOW / 2 {
            self.receive_window += self.credit;
            super::frame::write_window(&mut context.frames, 0, std::mem::take(&mut self.credit));
        }
    }
}

impl super::Entry {
    /// The same for the content of one stream; returns the bytes for the connection.
    pub(super) fn grant(&mut self, stream: u32, context: &mut WorkerContext) -> u32 {
        let bytes = self.stream.forwarded() as u32;
        self.credit += bytes;
        if self.credit >= STREAM_WINDOW / 2 && !self.ended {
            self.receive_window += self.credit;
            super::frame::write_window(&mut context.frames, stream, std::mem::take(&mut self.credit));
        }
        bytes
    }
}

/// The payload without its padding.
fn unpadded(head: FrameHead, payload: &[u8]) -> Result<&[u8], ErrorCode> {
    if !head.has(PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) = payload.split_first().ok_or(ErrorCode::FrameSizeError)?;
    let length = rest.len().checked_sub(usize::from(padding)).ok_or(ErrorCode::ProtocolError)?;
    Ok(&rest[..length])
}

/// The stream that a priority depends on.
fn depends_on(priority: &[u8; 5]) -> u32 {
    let [a, b, c, d, _] = *priority;
    u32::from_be_bytes([a, b, c, d]) & WINDOW_MAX
}

/// The largest window, and the largest stream.
const WINDOW_MAX: u32 = u32::MAX >> 1;
