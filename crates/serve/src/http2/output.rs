//! Requests, and frames for the client.

use super::frame::{self, DATA, END_STREAM, ErrorCode, FRAME_BYTES_MAX, FRAME_HEAD_BYTES};
use super::{Departure, Entry, Hpack, Http2, RESET_REMEMBERED, STREAMS_MAX};
use crate::connection::WorkerContext;
use crate::file_response::COPY_MAX;
use crate::multiplexed::{Progress, Stream};
use crate::response::Status;

/// What follows the frames of a stream that were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// More content now.
    Ready,
    /// Something must happen first.
    Waits,
    /// The stream is over.
    Over,
}

impl Http2 {
    /// A new request.
    pub(super) fn request(
        &mut self,
        context: &mut WorkerContext,
        stream: u32,
        section: &[u8],
        ended: bool,
    ) -> Result<(), ErrorCode> {
        let mut head = std::mem::take(&mut context.request_head);
        head.begin("HTTP/2.0", &context.limits);
        let decoded = self.decoder.decode(section, context.limits.head_bytes, |name, value| head.field(name, value));
        if decoded.is_err() {
            context.request_head = head;
            return Err(ErrorCode::CompressionError);
        }
        let is_misdirected = self.authority.is_misdirected(context, &self.ends, head.authority());
        let refusal = is_misdirected.then_some(Status::MisdirectedRequest);
        // Content that cannot be sent now stays where it is.
        let window = usize::try_from(self.window.min(self.initial_window)).unwrap_or(0);
        context.copy_max = window.min(COPY_MAX);
        let begun = Stream::begin(&self.ends, u64::from(stream), context, &mut head, ended, refusal);
        context.copy_max = COPY_MAX;
        context.request_head = head;
        let Ok(begun) = begun else {
            context.out.clear();
            return self.malformed(context, stream);
        };
        self.took_request = true;
        self.count_use(context);
        let mut entry = Entry {
            stream: begun,
            window: self.initial_window,
            receive_window: super::STREAM_WINDOW,
            credit: 0,
            queued: false,
            ended,
        };
        if self.advance(context, stream, &mut entry) {
            self.streams.insert(stream, Box::new(entry));
        }
        Ok(())
    }

    /// Does `work` with a stream, and then what follows from it. Nothing without the stream.
    pub(super) fn with(
        &mut self,
        context: &mut WorkerContext,
        stream: u32,
        work: impl FnOnce(&mut Entry, &mut WorkerContext),
    ) {
        let Some(mut entry) = self.streams.remove(&stream) else { return };
        work(&mut entry, context);
        self.credit += entry.grant(stream, context);
        if self.advance(context, stream, &mut entry) {
            self.streams.insert(stream, entry);
        }
    }

    /// Writes DATA of the streams in turn, up to `most` bytes of output, and an announced end.
    pub(crate) fn fill(&mut self, context: &mut WorkerContext, most: usize) {
        while self.window > 0 && context.frames.len() < most {
            let Some(stream) = self.ready.pop_front() else { break };
            let Some(mut entry) = self.streams.remove(&stream) else { continue };
            entry.queued = false;
            if self.advance(context, stream, &mut entry) {
                self.streams.insert(stream, entry);
            }
        }
        if self.departure == Departure::Wanted {
            self.departure = Departure::Announced;
            frame::write_goaway(&mut context.frames, self.last, ErrorCode::NoError);
        }
        self.grant(context);
    }

    /// Writes the heads and one DATA frame of a stream; false if it is over.
    fn advance(&mut self, context: &mut WorkerContext, stream: u32, entry: &mut Entry) -> bool {
        match self.write(context, stream, entry) {
            Next::Over => {
                self.credit += entry.stream.unreported() as u32;
                entry.stream.leave(context);
                context.out.clear();
                return false;
            }
            Next::Ready if !entry.queued => {
                entry.queued = true;
                self.ready.push_back(stream);
            }
            Next::Ready | Next::Waits => {}
        }
        entry.stream.settle(context);
        // The limit of the backlog may have reset it.
        if entry.stream.progress(context) == Progress::Broken {
            self.write_reset(context, stream, ErrorCode::InternalError);
            entry.stream.leave(context);
            return false;
        }
        true
    }

    fn write(&mut self, context: &mut WorkerContext, stream: u32, entry: &mut Entry) -> Next {
        while let Some(section) = entry.stream.next_head::<Hpack>(context) {
            let ends = entry.stream.progress(context) == Progress::Complete;
            frame::write_section(&mut context.frames, stream, &section, ends);
            if ends {
                return self.completed(context, stream, entry);
            }
        }
        let has_body = entry.stream.has_body(context);
        let room = usize::try_from(self.window.min(entry.window)).unwrap_or(0).min(FRAME_BYTES_MAX);
        if has_body && room > 0 {
            let mut frames = std::mem::take(&mut context.frames);
            let at = frame::begin(&mut frames, DATA, 0, stream);
            let written = entry.stream.body(context, &mut frames, room);
            let ends = entry.stream.progress(context) == Progress::Complete;
            match written {
                Ok(_) => frame::set_length(&mut frames, at),
                Err(_) => frames.truncate(at),
            }
            if written.is_ok() && ends {
                frame::set_flag(&mut frames, at, END_STREAM);
            }
            debug_assert!(frames.len() <= at + FRAME_HEAD_BYTES + FRAME_BYTES_MAX, "the largest frame");
            context.frames = frames;
            let Ok(written) = written else {
                self.write_reset(context, stream, ErrorCode::InternalError);
                return Next::Over;
            };
            self.window -= written as i64;
            entry.window -= written as i64;
            self.idle_frames = self.idle_frames.saturating_sub(USEFUL);
            if ends {
                return self.completed(context, stream, entry);
            }
        }
        match entry.stream.progress(context) {
            Progress::Complete => {
                // Its last content is written already.
                frame::write(&mut context.frames, DATA, END_STREAM, stream, b"");
                self.completed(context, stream, entry)
            }
            Progress::Broken => {
                self.write_reset(context, stream, ErrorCode::InternalError);
                Next::Over
            }
            Progress::Unfinished if entry.window > 0 && entry.stream.has_body(context) => Next::Ready,
            Progress::Unfinished => Next::Waits,
        }
    }

    /// The response is complete. Section 8.1: the client need not send the rest of its request. Some clients lose a
    /// response that is followed by a reset while they send, so a short rest is dropped first.
    fn completed(&mut self, context: &mut WorkerContext, stream: u32, entry: &Entry) -> Next {
        let may_end = entry.receive_window >= FRAME_BYTES_MAX as u32 && self.answered.len() < STREAMS_MAX;
        if !entry.ended && may_end {
            self.answered.insert(stream, entry.receive_window);
        } else if !entry.ended {
            self.write_reset(context, stream, ErrorCode::NoError);
        }
        self.resets = self.resets.saturating_sub(1);
        self.idle_frames = self.idle_frames.saturating_sub(USEFUL);
        Next::Over
    }

    pub(super) fn write_reset(&mut self, context: &mut WorkerContext, stream: u32, code: ErrorCode) {
        if self.reset.len() >= RESET_REMEMBERED {
            self.reset.pop_front();
        }
        self.reset.push_back(stream);
        frame::write_reset(&mut context.frames, stream, code);
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

/// Idle frames that a DATA frame or a response makes up for: a client may grant its window in small steps.
const USEFUL: u32 = 16;
