//! One request and its response, while in flight.

use std::sync::Arc;

use http1::RequestMethod;
use schema::{Framing, WireRequest};
use units::Timestamp;

use super::head::RequestHead;
use crate::fields::Fields;
use crate::interned::Words;
use crate::out::Out;

/// A [`WireRequest`] under construction.
#[derive(Debug)]
pub(crate) struct Exchange {
    index: u32,
    /// Major version of HTTP.
    version: u8,
    /// Number of the stream, if the version has streams.
    stream: Option<u64>,
    request_first_at: Option<u64>,
    request_last_at: u64,
    response_first_at: Option<u64>,
    response_last_at: u64,
    request_bytes: u64,
    response_bytes: u64,
    method: Option<Arc<[u8]>>,
    host: Option<Arc<[u8]>>,
    path: Option<Arc<[u8]>>,
    minor_version: Option<u8>,
    referer: Option<Arc<[u8]>>,
    user_agent: Option<Arc<[u8]>>,
    status: u16,
    kind: Method,
    framing: Framing,
    has_request: bool,
    has_response: bool,
    /// Whether the series no longer counts it as in flight.
    is_out_of_series: bool,
}

/// The property of a method that determines framing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// No head was read.
    Unread,
    Head,
    Connect,
    Other,
}

impl Exchange {
    /// A request whose first byte arrived at `at`.
    pub(crate) fn of_request(index: u32, at: u64) -> Exchange {
        Exchange {
            index,
            version: 1,
            stream: None,
            request_first_at: Some(at),
            request_last_at: at,
            response_first_at: None,
            response_last_at: 0,
            request_bytes: 0,
            response_bytes: 0,
            kind: Method::Unread,
            method: None,
            host: None,
            path: None,
            minor_version: None,
            referer: None,
            user_agent: None,
            status: 0,
            framing: Framing::Exact,
            has_request: false,
            has_response: false,
            is_out_of_series: false,
        }
    }

    /// A response to a request that was not seen.
    pub(crate) fn of_response(index: u32) -> Exchange {
        Exchange { request_first_at: None, has_request: true, is_out_of_series: true, ..Exchange::of_request(index, 0) }
    }

    /// An exchange of a later version of HTTP, on this stream.
    pub(crate) fn on_stream(self, version: u8, stream: u64) -> Exchange {
        Exchange { version, stream: Some(stream), ..self }
    }

    /// Continues as a stream of HTTP/2: the response so far only switched the protocol.
    pub(crate) fn upgraded(self) -> Exchange {
        Exchange { response_first_at: None, status: 0, minor_version: None, ..self.on_stream(2, 1) }
    }

    /// Records the fields of a request's head; its strings only with a place to store them.
    pub(crate) fn note_fields(&mut self, fields: &Fields, words: Option<&mut Words>) {
        self.kind = match fields.method.as_deref() {
            Some(b"HEAD") => Method::Head,
            Some(b"CONNECT") => Method::Connect,
            _ => Method::Other,
        };
        self.note_unknown(fields.unknown);
        let Some(words) = words else { return };
        let mut cut = |field: &Option<Box<[u8]>>, most: usize| {
            field.as_deref().map(|word| words.share(&word[..word.len().min(most)]))
        };
        self.method = cut(&fields.method, METHOD_MAX);
        self.path = cut(&fields.path, PATH_MAX);
        self.host = cut(if fields.authority.is_some() { &fields.authority } else { &fields.host }, HOST_MAX);
        self.referer = cut(&fields.referer, PATH_MAX);
        self.user_agent = cut(&fields.user_agent, PATH_MAX);
    }

    /// Records that fields of a head could not be decoded.
    pub(crate) fn note_unknown(&mut self, fields: u32) {
        if fields > 0 {
            self.miss_frames();
        }
    }

    /// Records that frames were not captured, or not decoded.
    pub(crate) fn miss_frames(&mut self) {
        self.framing = Framing::FramesMissing;
    }

    /// Whether the head of its final response was seen.
    pub(crate) fn has_response_head(&self) -> bool {
        self.response_first_at.is_some()
    }

    /// Records the head; its strings only with a place to store them.
    pub(super) fn note_head(&mut self, head: &RequestHead<'_>, words: Option<&mut Words>) {
        self.kind = match head.method {
            b"HEAD" => Method::Head,
            b"CONNECT" => Method::Connect,
            _ => Method::Other,
        };
        let Some(words) = words else { return };
        let mut cut = |word: &[u8], most: usize| words.share(&word[..word.len().min(most)]);
        self.method = Some(cut(head.method, METHOD_MAX));
        self.path = head.target.map(|target| cut(target, PATH_MAX));
        self.host = head.host.map(|host| cut(host, HOST_MAX));
        self.minor_version = head.minor_version;
        self.referer = head.referer.map(|referer| cut(referer, PATH_MAX));
        self.user_agent = head.user_agent.map(|agent| cut(agent, PATH_MAX));
    }

    /// Records a status; true when it is interim, so that another follows.
    pub(crate) fn note_status(&mut self, status: u16) -> bool {
        if status / 100 == 1 && status != 101 {
            self.response_first_at = None;
            return true;
        }
        self.status = status;
        false
    }

    /// The kind of request, as far as the framing of the response depends on it.
    pub(crate) fn request_kind(&self) -> RequestMethod {
        match self.kind {
            Method::Head => RequestMethod::Head,
            Method::Connect => RequestMethod::Connect,
            Method::Unread | Method::Other => RequestMethod::Other,
        }
    }

    /// Whether no part of its head could be read.
    pub(crate) fn is_unread(&self) -> bool {
        self.kind == Method::Unread && self.request_first_at.is_some() && self.response_first_at.is_none()
    }

    /// Whether no head of the request was read.
    pub(crate) fn lacks_head(&self) -> bool {
        self.kind == Method::Unread
    }

    /// Whether no status of a final response was read.
    pub(crate) fn lacks_status(&self) -> bool {
        self.status == 0
    }

    /// Whether it is a response without a request, of which no part could be read.
    pub(crate) fn has_no_request(&self) -> bool {
        self.request_first_at.is_none() && self.kind == Method::Unread && self.status == 0
    }

    pub(crate) fn has_response(&self) -> bool {
        self.has_response
    }

    pub(crate) fn is_done(&self) -> bool {
        self.has_request && self.has_response
    }

    pub(crate) fn count_request(&mut self, bytes: u64, at: u64) {
        if !self.has_request {
            self.request_bytes = self.request_bytes.saturating_add(bytes);
            self.request_last_at = at;
        }
    }

    pub(crate) fn count_response(&mut self, bytes: u64, at: u64) {
        self.response_bytes = self.response_bytes.saturating_add(bytes);
        self.response_last_at = at;
    }

    pub(crate) fn request_ended(&mut self, framing: Framing) {
        self.has_request = true;
        self.framing = self.framing.max(framing);
    }

    pub(crate) fn response_began(&mut self, at: u64) {
        self.response_first_at = Some(at);
        self.response_last_at = at;
    }

    pub(crate) fn response_ended(&mut self, framing: Framing, out: &mut Out<'_>) {
        self.has_response = true;
        self.framing = self.framing.max(framing);
        out.series.row.responses += 1;
        self.leave_series(out);
    }

    /// Discards an exchange that turned out not to be a request.
    pub(crate) fn forget(mut self, out: &mut Out<'_>) {
        self.leave_series(out);
        out.series.row.requests = out.series.row.requests.saturating_sub(1);
    }

    /// Writes the record, complete or not.
    pub(crate) fn record(mut self, out: &mut Out<'_>) {
        self.leave_series(out);
        let timestamp = Timestamp::from_nanos;
        let [client, server] = out.ends();
        let record = WireRequest {
            connection: out.connection,
            client,
            server,
            index: self.index,
            http_version: self.version,
            stream: self.stream,
            request_first_at: self.request_first_at.map(timestamp),
            request_last_at: (self.has_request && self.request_first_at.is_some())
                .then_some(timestamp(self.request_last_at)),
            response_first_at: self.response_first_at.map(timestamp),
            response_last_at: (self.response_bytes > 0).then_some(timestamp(self.response_last_at)),
            method: self.method.take(),
            host: self.host.take(),
            path: self.path.take(),
            minor_version: self.minor_version,
            referer: self.referer.take(),
            user_agent: self.user_agent.take(),
            status: (self.status != 0).then_some(self.status),
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            framing: self.framing,
            complete: self.has_response,
        };
        if let Some(service) = record.service_time_ns() {
            out.series.service_time.record(service);
        }
        out.requests.push(record);
    }

    fn leave_series(&mut self, out: &mut Out<'_>) {
        if !std::mem::replace(&mut self.is_out_of_series, true) {
            out.series.request_ended();
        }
    }
}

const METHOD_MAX: usize = 32;
const HOST_MAX: usize = 255;
const PATH_MAX: usize = 1024;
