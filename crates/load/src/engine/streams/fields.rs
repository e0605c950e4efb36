//! Builds requests for HTTP/2: header fields instead of header lines.

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, COOKIE, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Uri};
use schema::Method;

use crate::prepared::PREPARED_MAX;
use crate::rendering::Rendering;
use crate::request::USER_AGENT as DEFAULT_USER_AGENT;

/// Prepared requests, built at their first use, and a buffer for one that differs each time.
#[derive(Debug)]
pub(super) struct Fields {
    prepared: Vec<Option<Box<Written>>>,
    scratch: Written,
}

/// A request, ready for its stream.
#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) head: RequestHead,
    pub(super) body: Vec<u8>,
}

impl Fields {
    pub(super) fn new(requests: usize) -> Self {
        let mut prepared = Vec::new();
        prepared.resize_with(requests.min(PREPARED_MAX), || None);
        Fields { prepared, scratch: Written::default() }
    }

    /// The prepared request with the index `request`, if it has been stored.
    pub(super) fn prepared(&self, request: u32) -> Option<&Written> {
        self.prepared.get(request as usize)?.as_deref()
    }

    /// Stores a request that is the same every time, permanently if it is among the first [`PREPARED_MAX`].
    pub(super) fn store(&mut self, request: u32, written: Written) {
        match self.prepared.get_mut(request as usize) {
            Some(slot) => *slot = Some(Box::new(written)),
            None => self.scratch = written,
        }
    }

    /// Stores a request until the next one.
    pub(super) fn store_once(&mut self, written: Written) {
        self.scratch = written;
    }

    /// The request stored last for the index `request`; `always` if it is the same every time.
    pub(super) fn stored(&self, request: u32, always: bool) -> &Written {
        let prepared = if always { self.prepared(request) } else { None };
        prepared.unwrap_or(&self.scratch)
    }
}

/// Method, URI and header fields of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestHead(Request<()>);

impl RequestHead {
    /// The head as a type of the `http` crate, as h2 requires it.
    pub fn as_http(&self) -> &Request<()> {
        &self.0
    }
}

impl PartialEq for RequestHead {
    fn eq(&self, other: &Self) -> bool {
        let parts = |head: &Self| (head.0.method().clone(), head.0.uri().clone());
        parts(self) == parts(other) && self.0.headers() == other.0.headers()
    }
}

impl Eq for RequestHead {}

/// Connection-specific headers of HTTP/1 that HTTP/2 forbids (RFC 9113, section 8.2.2), and Host, which HTTP/2 sends as
/// `:authority`.
const OMITTED_HEADERS: [&str; 6] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "host"];

/// Builds a request.
///
/// # Errors
/// A path, header name or value that HTTP/2 does not allow.
pub(super) fn write(rendering: &Rendering<'_>) -> Result<Written, http::Error> {
    let target = rendering.target();
    let mut authority = target.authority.clone().into_bytes();
    if let Some((number, _)) = rendering.headers().find(|(_, name)| name.eq_ignore_ascii_case("host")) {
        authority.clear();
        rendering.header_value(number, &mut authority);
    }
    let mut path = Vec::new();
    rendering.path(&mut path);
    let uri = Uri::builder()
        .scheme(if target.secure { "https" } else { "http" })
        .authority(&authority[..])
        .path_and_query(&path[..])
        .build()?;
    let method = rendering.method();
    let mut head = Request::builder().method(method.as_str()).uri(uri).body(())?;
    let headers = head.headers_mut();
    if !rendering.gives("user-agent") {
        headers.insert(USER_AGENT, HeaderValue::from_static(DEFAULT_USER_AGENT));
    }
    if !rendering.gives("accept") {
        headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    }
    if let Some(user) = rendering.basic_auth()
        && !rendering.gives("authorization")
    {
        headers.insert(AUTHORIZATION, HeaderValue::try_from(user)?);
    }
    if let Some(cookie) = &rendering.cookie
        && !rendering.gives("cookie")
    {
        headers.insert(COOKIE, HeaderValue::from_bytes(cookie)?);
    }
    let mut body = Vec::new();
    rendering.body(&mut body);
    let means_content = matches!(method, Method::Post | Method::Put | Method::Patch);
    if (means_content || !body.is_empty()) && !rendering.gives("content-length") {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let mut value = Vec::new();
    for (number, name) in rendering.headers() {
        if OMITTED_HEADERS.iter().any(|omitted| name.eq_ignore_ascii_case(omitted)) {
            continue;
        }
        value.clear();
        rendering.header_value(number, &mut value);
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_bytes(&value)?);
    }
    Ok(Written { head: RequestHead(head), body })
}
