//! A request ready to be written: its spec, the values of its placeholders, and the changes by redirects.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use schema::Method;

use crate::Target;
use crate::in_flight::Hop;
use crate::virtual_users::RequestContent;
use crate::workload::{RequestSpec, Template, Values};

/// The input for writing one request, for every version of HTTP.
#[derive(Debug)]
pub(crate) struct Rendering<'a> {
    pub(crate) request: &'a RequestSpec,
    pub(crate) values: Values<'a>,
    /// The current hop, after redirects.
    pub(crate) hop: Option<&'a Hop>,
    /// Value of the Cookie header.
    pub(crate) cookie: Option<Vec<u8>>,
    /// The parts that a cache workload determines.
    pub(crate) workload_content: Option<RequestContent<'a>>,
}

impl<'a> Rendering<'a> {
    /// A request whose bytes are the same every time.
    pub(crate) fn literal(request: &'a RequestSpec) -> Self {
        let values = Values { client: 0, sequence: 0, session: None, variables: &[], seed: 0 };
        Rendering { request, values, hop: None, cookie: None, workload_content: None }
    }

    pub(crate) fn method(&self) -> Method {
        match (&self.workload_content, self.hop) {
            (Some(content), _) => content.method(),
            (None, Some(hop)) => hop.method,
            (None, None) => self.request.method,
        }
    }

    /// Scheme, host and port.
    pub(crate) fn target(&self) -> &'a Target {
        self.hop.map_or(&self.request.target, |hop| &hop.target)
    }

    /// Appends path and query to `into`.
    pub(crate) fn path(&self, into: &mut Vec<u8>) {
        match (&self.workload_content, self.hop) {
            (Some(content), _) => content.path(into),
            (None, Some(hop)) => into.extend_from_slice(hop.target.path_and_query.as_bytes()),
            (None, None) => self.request.path.render_target(&self.values, into),
        }
    }

    /// The plan's headers that apply: their indices, for [`Self::header_value`], and names.
    ///
    /// RFC 9110, section 15.4: a redirected request loses the headers that describe removed content and, on its way to
    /// another host, those that are meant for the original host. Headers for a proxy are not sent inside TLS, where the
    /// server would receive them.
    pub(crate) fn headers(&self) -> impl Iterator<Item = (usize, &'a str)> {
        let drops_body = self.hop.is_some_and(|hop| hop.drops_body);
        let left_original_host = self.hop.is_some_and(|hop| hop.left_original_host);
        let into_tls = self.hop.is_some_and(|hop| hop.target.secure);
        let is_one_of = |name: &str, names: &[&str]| names.iter().any(|other| name.eq_ignore_ascii_case(other));
        let names = self.request.headers.iter().map(|(name, _)| name.as_str()).enumerate();
        names.filter(move |(_, name)| {
            let content = name.get(..8).is_some_and(|begins| begins.eq_ignore_ascii_case("content-"));
            let of_body = content || is_one_of(name, &["Transfer-Encoding", "Digest", "Expect"]);
            let of_home = is_one_of(name, &["Host", "Authorization", "Cookie", "Origin"]);
            let of_proxy = is_one_of(name, &["Proxy-Authorization"]);
            !(drops_body && of_body || left_original_host && of_home || into_tls && of_proxy)
        })
    }

    /// Whether the plan defines this header.
    pub(crate) fn gives(&self, name: &str) -> bool {
        !self.request.headers.is_empty() && self.headers().any(|(_, given)| given.eq_ignore_ascii_case(name))
    }

    /// Appends the value of one of [`Self::headers`] to `into`.
    pub(crate) fn header_value(&self, number: usize, into: &mut Vec<u8>) {
        self.request.headers[number].1.render_field(&self.drawing(2 + number), into);
    }

    /// The value of an Authorization header for basic authentication (RFC 7617), if the request has one.
    pub(crate) fn basic_auth(&self) -> Option<String> {
        let user = self.request.basic_auth.as_ref().filter(|_| !self.hop.is_some_and(|hop| hop.left_original_host))?;
        let mut text = Vec::new();
        user.render(&self.values, &mut text);
        Some(format!("Basic {}", STANDARD.encode(text)))
    }

    /// Appends the body to `into`.
    pub(crate) fn body(&self, into: &mut Vec<u8>) {
        if let Some(content) = &self.workload_content {
            content.body(into);
        } else if let Some(body) = self.body_template() {
            body.render(&self.drawing(1), into);
        }
    }

    /// Bytes of the body, if known without rendering it.
    pub(crate) fn body_length(&self) -> Option<usize> {
        match &self.workload_content {
            Some(content) => Some(content.body_length()),
            None => self.body_template().map_or(Some(0), Template::literal_length),
        }
    }

    fn body_template(&self) -> Option<&'a Template> {
        (!self.hop.is_some_and(|hop| hop.drops_body)).then_some(&self.request.body)
    }

    /// The values for the `nth` text of the request; each text has its own seed, so that their random numbers differ.
    fn drawing(&self, nth: usize) -> Values<'a> {
        Values { seed: self.values.seed.wrapping_add(nth as u64), ..self.values }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_credentials_are_sent_only_to_the_proxy() {
        let mut request = RequestSpec::get(Target::parse("http://h/").unwrap());
        request.headers = vec![("Proxy-Authorization".into(), Template::literal("Basic eA=="))];
        let gives = |leads: &str| {
            let hop = Hop {
                target: Target::parse(leads).unwrap(),
                endpoint: 1,
                method: Method::Get,
                count: 1,
                drops_body: false,
                left_original_host: true,
            };
            Rendering { hop: Some(&hop), ..Rendering::literal(&request) }.gives("proxy-authorization")
        };
        assert!(gives("http://other/") && !gives("https://h/"));
        assert!(Rendering::literal(&request).gives("proxy-authorization"));
    }
}
