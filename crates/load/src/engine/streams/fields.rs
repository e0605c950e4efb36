//! A request as HTTP/2 has it: header fields instead of lines.

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, COOKIE, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, Uri};
use schema::Method;

use crate::prepared::PREPARED_MAX;
use crate::rendering::Rendering;
use crate::request::USER_AGENT as OURS;

/// The requests that are always the same, written when first asked for, and room for one that is not.
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

    /// The request of that number, if it was kept.
    pub(super) fn prepared(&self, request: u32) -> Option<&Written> {
        self.prepared.get(request as usize)?.as_deref()
    }

    /// Keeps a request that is always the same, if it is among those that are kept; [`Self::kept`] has it then.
    pub(super) fn keep(&mut self, request: u32, written: Written) {
        match self.prepared.get_mut(request as usize) {
            Some(place) => *place = Some(Box::new(written)),
            None => self.scratch = written,
        }
    }

    /// Keeps a request for the moment.
    pub(super) fn keep_once(&mut self, written: Written) {
        self.scratch = written;
    }

    /// What was kept last for the request of that number.
    pub(super) fn kept(&self, request: u32, always: bool) -> &Written {
        let prepared = if always { self.prepared(request) } else { None };
        prepared.unwrap_or(&self.scratch)
    }
}

/// Method, URI and header fields of a request.
#[derive(Clone, Debug, Default)]
pub struct RequestHead(Request<()>);

impl RequestHead {
    /// As the `http` crate has it, ready for h2.
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

/// Headers that belong to an HTTP/1 connection, and that HTTP/2 has not (RFC 9113, section 8.2.2); and Host, which is
/// `:authority` there.
const LEFT_OUT: [&str; 6] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade", "host"];

/// Writes a request.
///
/// # Errors
/// A path, a header or a name that HTTP/2 has no way to say.
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
        headers.insert(USER_AGENT, HeaderValue::from_static(OURS));
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
        if LEFT_OUT.iter().any(|left_out| name.eq_ignore_ascii_case(left_out)) {
            continue;
        }
        value.clear();
        rendering.header_value(number, &mut value);
        headers.append(HeaderName::from_bytes(name.as_bytes())?, HeaderValue::from_bytes(&value)?);
    }
    Ok(Written { head: RequestHead(head), body })
}
