//! Parses a request into the properties that its response depends on.

use polymix::{Object, RequestId, World};

use crate::file_response::{modified_since, takes_gzip};
use crate::request::{Method, Request};

/// A request for an object, stored during its think time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObjectRequest {
    /// From the URL.
    pub world: u32,
    pub object: Object,
    /// The virtual user's request id; `None` for requests of a proxy itself.
    pub request_id: Option<RequestId>,
    /// GET, HEAD or POST.
    pub method: Method,
    pub gzip: bool,
    /// If-Modified-Since, if it applies.
    pub since_s: Option<i64>,
    /// If-None-Match: a list of tags.
    pub tags: Option<Box<[u8]>>,
    /// HTTP/1.0.
    pub old: bool,
    /// Whether the client requests a persistent connection.
    pub keep_alive: bool,
}

/// Why a request does not name an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoObject {
    /// It requests the counters of the origin.
    Figures,
    /// OPTIONS: the permitted methods.
    Options,
    /// No object has this path.
    Path,
    /// Objects do not support the method.
    Method,
}

impl ObjectRequest {
    /// Parses a request. `year_now` determines the century of two-digit years.
    pub fn of(request: &Request<'_>, year_now: i64) -> Result<Self, NoObject> {
        if request.path == FIGURES {
            let reads = matches!(request.method, Method::Get | Method::Head);
            return Err(if reads { NoObject::Figures } else { NoObject::Method });
        }
        match request.method {
            Method::Get | Method::Head | Method::Post => {}
            Method::Options => return Err(NoObject::Options),
            _ => return Err(NoObject::Method),
        }
        let (world, object) = World::read_path(request.path).ok_or(NoObject::Path)?;
        let fields = &request.fields;
        // RFC 9110, section 13.1.3: ignored for other methods, and together with If-None-Match.
        let supports_conditions = request.method != Method::Post;
        let tags = fields.if_none_match.filter(|_| supports_conditions).map(|first| {
            if fields.repeated {
                let all: Vec<&[u8]> = fields.values(b"if-none-match").collect();
                all.join(&b", "[..]).into()
            } else {
                Box::from(first)
            }
        });
        let since_s = if supports_conditions && tags.is_none() { modified_since(fields, year_now) } else { None };
        let request_id =
            fields.lines().find(|(name, _)| name.eq_ignore_ascii_case(polymix::REQUEST_ID_FIELD.as_bytes()));
        Ok(ObjectRequest {
            world,
            object,
            request_id: request_id.and_then(|(_, value)| RequestId::read(value)),
            method: request.method,
            gzip: takes_gzip(fields),
            since_s,
            tags,
            old: request.old,
            keep_alive: request.keep_alive,
        })
    }

    /// Whether the request is conditional.
    pub fn is_conditional(&self) -> bool {
        self.since_s.is_some() || self.tags.is_some()
    }
}

/// Path of the origin's counters.
const FIGURES: &[u8] = b"/-/origin";
