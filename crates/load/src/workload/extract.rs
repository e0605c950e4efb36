//! Extracts values from a response for later requests of the session.

use super::fields;

/// Maximum bytes of an extracted value: longer than any token or address, and short enough that a hundred thousand
/// sessions can store several.
pub const VALUE_BYTES_MAX: usize = 16 * 1024;

/// A value to extract from a response.
#[derive(Clone, Debug)]
pub struct Extract {
    /// Index of the session's variable that stores it.
    pub variable: usize,
    /// Where the value is in the response.
    pub source: Source,
}

/// The position of a value in a response.
#[derive(Clone, Debug)]
pub enum Source {
    /// The value of the first header with this name, case-insensitive.
    Header(String),
    /// The value at a JSON pointer (RFC 6901) in the body: a string without its quotes, any other value as JSON.
    Json(String),
    /// The first group of a regular expression in the body, or the whole match if it has no group.
    Body(regex::bytes::Regex),
}

impl Extract {
    /// Whether the complete body must be stored.
    pub fn needs_body(&self) -> bool {
        !matches!(self.source, Source::Header(_))
    }

    /// Extracts the value from an unmodified head (see [`fields()`](fields::fields)) and the body, if it was stored.
    ///
    /// `None` if the value is missing (no such header, invalid JSON, nothing at the pointer, no match, a group that did
    /// not participate in the match, a body that was not stored) or longer than [`VALUE_BYTES_MAX`]. An empty value is
    /// valid.
    pub fn from(&self, head: &[u8], body: Option<&[u8]>) -> Option<Box<[u8]>> {
        let value: Box<[u8]> = match &self.source {
            Source::Header(name) => fields::first(head, name)?.into(),
            Source::Json(pointer) => {
                let document: serde_json::Value = serde_json::from_slice(body?).ok()?;
                match document.pointer(pointer)? {
                    serde_json::Value::String(text) => text.as_bytes().into(),
                    other => other.to_string().into_bytes().into(),
                }
            }
            Source::Body(expression) => {
                let found = expression.captures(body?)?;
                // Group 0 is the whole match.
                let group = usize::from(expression.captures_len() > 1);
                found.get(group)?.as_bytes().into()
            }
        };
        (value.len() <= VALUE_BYTES_MAX).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nX-Token:  abc \r\nx-token: second\r\nX-Empty:\r\n\r\n";

    fn extract(source: Source, body: Option<&[u8]>) -> Option<String> {
        let value = Extract { variable: 0, source }.from(HEAD, body)?;
        Some(String::from_utf8(value.into_vec()).unwrap())
    }

    fn json(pointer: &str, body: &str) -> Option<String> {
        extract(Source::Json(pointer.into()), Some(body.as_bytes()))
    }

    fn regex(expression: &str, body: &str) -> Option<String> {
        extract(Source::Body(regex::bytes::Regex::new(expression).unwrap()), Some(body.as_bytes()))
    }

    #[test]
    fn header_values_are_extracted_whatever_the_case_of_the_name() {
        assert_eq!(extract(Source::Header("x-TOKEN".into()), None).as_deref(), Some("abc"));
        assert_eq!(extract(Source::Header("x-empty".into()), None).as_deref(), Some(""));
        assert_eq!(extract(Source::Header("x-other".into()), None), None);
    }

    #[test]
    fn values_are_extracted_by_json_pointer() {
        let body = r#"{"user": {"id": 17, "name": "a \"b\"", "tags": ["x", null]}, "a/b": true, "m~n": 1.5}"#;
        assert_eq!(json("/user/id", body).as_deref(), Some("17"));
        assert_eq!(json("/user/name", body).as_deref(), Some("a \"b\""));
        assert_eq!(json("/user/tags/0", body).as_deref(), Some("x"));
        assert_eq!(json("/user/tags/1", body).as_deref(), Some("null"));
        assert_eq!(json("/user/tags", body).as_deref(), Some("[\"x\",null]"));
        assert_eq!((json("/a~1b", body).as_deref(), json("/m~0n", body).as_deref()), (Some("true"), Some("1.5")));
        assert_eq!((json("/user/none", body), json("/user/tags/2", body)), (None, None));
        assert_eq!((json("/a", "not json"), json("/a", "")), (None, None));
        assert_eq!(json("", "\"whole\"").as_deref(), Some("whole"));
        assert_eq!(json("/0", &"[".repeat(100_000)), None, "deep nesting is rejected");
    }

    #[test]
    fn a_regex_extracts_its_first_group_or_the_whole_match() {
        assert_eq!(
            regex(r#"name="csrf" value="([^"]*)""#, r#"<input name="csrf" value="t0k">"#).as_deref(),
            Some("t0k")
        );
        assert_eq!(regex(r"\d+", "id 42, 43").as_deref(), Some("42"));
        assert_eq!(regex(r"(a)|(b)", "b"), None, "the first group did not participate in the match");
        assert_eq!(regex(r"(x*)y", "y").as_deref(), Some(""));
        assert_eq!(regex("z", "y"), None);
    }

    #[test]
    fn extracted_values_are_bounded_and_need_the_complete_body() {
        assert_eq!(regex("(?s).*", &"a".repeat(VALUE_BYTES_MAX)).map(|value| value.len()), Some(VALUE_BYTES_MAX));
        assert_eq!(regex("(?s).*", &"a".repeat(VALUE_BYTES_MAX + 1)), None);
        assert_eq!(extract(Source::Json("/a".into()), None), None);
        let needs = |source| Extract { variable: 0, source }.needs_body();
        assert!(needs(Source::Json(String::new())) && !needs(Source::Header("a".into())));
    }

    proptest! {
        #[test]
        fn extraction_never_panics_on_any_response(
            head in prop::collection::vec(any::<u8>(), 0..200),
            body in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let expression = regex::bytes::Regex::new("(a)b*").unwrap();
            for source in [Source::Header("a".into()), Source::Json("/a/0".into()), Source::Body(expression)] {
                let _ = Extract { variable: 0, source }.from(&head, Some(&body));
            }
        }
    }
}
