//! From a request to what its answer depends on.

use polymix::{AskId, Object, World};

use crate::file_response::{modified_since, takes_gzip};
use crate::request::{Method, Request};

/// A request for an object, kept for as long as the origin thinks about it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObjectRequest {
    /// As the URL names them.
    pub world: u32,
    pub object: Object,
    /// What the robot calls its request; `None` of a proxy's own.
    pub ask: Option<AskId>,
    /// GET, HEAD or POST.
    pub method: Method,
    pub gzip: bool,
    /// If-Modified-Since, where it counts.
    pub since_s: Option<i64>,
    /// If-None-Match: a list of tags.
    pub tags: Option<Box<[u8]>>,
    /// HTTP/1.0.
    pub old: bool,
    /// The client wants the connection kept.
    pub keep_alive: bool,
}

/// Why a request is for no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoObject {
    /// It is for the origin's own figures.
    Figures,
    /// OPTIONS: what may be done.
    Options,
    /// No object has this path.
    Path,
    /// Objects have no such method.
    Method,
}

impl ObjectRequest {
    /// Reads a request. `year_now` settles the century of old dates.
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
        // RFC 9110, section 13.1.3: without meaning for other methods, and beside If-None-Match.
        let may_have_it = request.method != Method::Post;
        let tags = fields.if_none_match.filter(|_| may_have_it).map(|first| {
            if fields.repeated {
                let all: Vec<&[u8]> = fields.values(b"if-none-match").collect();
                all.join(&b", "[..]).into()
            } else {
                Box::from(first)
            }
        });
        let since_s = if may_have_it && tags.is_none() { modified_since(fields, year_now) } else { None };
        let ask = fields.lines().find(|(name, _)| name.eq_ignore_ascii_case(polymix::ASK.as_bytes()));
        Ok(ObjectRequest {
            world,
            object,
            ask: ask.and_then(|(_, value)| AskId::read(value)),
            method: request.method,
            gzip: takes_gzip(fields),
            since_s,
            tags,
            old: request.old,
            keep_alive: request.keep_alive,
        })
    }

    /// Whether it has a condition.
    pub fn is_conditional(&self) -> bool {
        self.since_s.is_some() || self.tags.is_some()
    }
}

/// Where the origin tells what it counted.
const FIGURES: &[u8] = b"/-/origin";
