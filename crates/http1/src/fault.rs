//! Faults of HTTP/1 messages: a name for each broken rule, and a text for the user.

use std::fmt;

/// Why a message is malformed, with an excerpt of the wrong part.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The rule that the message breaks.
    pub reason: Reason,
    excerpt: Excerpt,
}

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident, $name:literal;)*) => {
        /// A rule that a message can break.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $variant,)*
        }

        impl Reason {
            /// Every reason.
            pub const ALL: &[Reason] = &[$(Reason::$variant,)*];

            /// The name in JSON and in `tests/framing.txt`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Reason::$variant => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// The first bytes are not those of an HTTP/1 response.
    NotHttp1, "not_http1";
    /// The status line is not `HTTP/1.x NNN reason`, or its status is below 100.
    StatusLine, "status_line";
    /// 101 (Switching Protocols) in response to a request without Upgrade.
    UnrequestedUpgrade, "unrequested_upgrade";
    /// A CR without its LF before the status line.
    StrayCr, "stray_cr";
    /// A header line without a colon.
    NoColon, "no_colon";
    /// White space between a header name and its colon.
    SpaceBeforeColon, "space_before_colon";
    /// White space before the first header line.
    LeadingSpace, "leading_space";
    /// A header name that is empty or has an invalid character.
    FieldName, "field_name";
    /// A control character in a header value, such as NUL or a bare CR.
    FieldValue, "field_value";
    /// More header lines than the reader accepts.
    TooManyFields, "too_many_fields";
    /// A longer head than the reader accepts.
    HeadTooLong, "head_too_long";
    /// More interim responses before the final one than the reader accepts.
    TooManyInterim, "too_many_interim_responses";
    /// Content-Length has no value.
    LengthEmpty, "content_length_empty";
    /// Content-Length has a character that is not a digit.
    LengthNotNumber, "content_length_not_a_number";
    /// Content-Length exceeds 64 bits.
    LengthOverflow, "content_length_overflow";
    /// Content-Length has several different values.
    LengthsDiffer, "content_lengths_differ";
    /// Content-Length has several values, where only one is accepted.
    LengthRepeated, "content_length_repeated";
    /// Transfer-Encoding together with Content-Length, where only one of them is accepted.
    CodingAndLength, "transfer_encoding_and_content_length";
    /// Transfer-Encoding in a message of HTTP/1.0, which does not define it.
    CodingInHttp10, "transfer_encoding_in_http_1_0";
    /// Transfer-Encoding has no value.
    CodingEmpty, "transfer_encoding_empty";
    /// The coding chunked with parameters; it is defined without.
    CodingParameters, "chunked_parameters";
    /// The coding chunked more than once.
    CodingRepeated, "chunked_repeated";
    /// A transfer coding other than chunked, where only chunked is accepted.
    CodingUnsupported, "transfer_coding_unsupported";
    /// The last transfer coding is not chunked, so that the end of a request is unknown.
    CodingNotFinal, "chunked_not_last";
    /// A chunk size that is not a hexadecimal number.
    ChunkSize, "chunk_size";
    /// A chunk size of more than 16 digits.
    ChunkSizeOverflow, "chunk_size_overflow";
    /// A line of a chunked body that does not end with CRLF.
    ChunkLineEnd, "chunk_line_end";
    /// An invalid character in a chunk extension.
    ChunkExtension, "chunk_extension";
    /// Chunk data that is not followed by a line end.
    ChunkDataEnd, "chunk_data_end";
    /// A trailer line that is not a field.
    Trailer, "trailer";
    /// More bytes of chunk extensions and trailers than the reader accepts.
    ChunkOverhead, "chunk_overhead";
    /// A longer body than the reader accepts.
    BodyTooLong, "body_too_long";
}

/// The first bytes of the wrong part of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Excerpt {
    bytes: [u8; EXCERPT_MAX],
    length: u8,
    is_cut: bool,
}

/// Maximum bytes of an excerpt: enough to recognise a header line.
const EXCERPT_MAX: usize = 38;

impl Excerpt {
    fn of(text: &[u8]) -> Self {
        let length = text.len().min(EXCERPT_MAX);
        let mut bytes = [0; EXCERPT_MAX];
        bytes[..length].copy_from_slice(&text[..length]);
        Excerpt { bytes, length: length as u8, is_cut: length < text.len() }
    }
}

impl fmt::Display for Excerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.bytes[..usize::from(self.length)].escape_ascii();
        write!(f, "`{text}{}`", if self.is_cut { ".." } else { "" })
    }
}

impl Fault {
    /// A fault with the wrong part of the message, which is shortened to an excerpt.
    #[cold]
    pub fn new(reason: Reason, excerpt: &[u8]) -> Self {
        Fault { reason, excerpt: Excerpt::of(excerpt) }
    }

    /// Whether the head, or the extensions and trailers of a chunked body, are valid but exceed a limit of the reader.
    pub fn is_head_too_large(&self) -> bool {
        matches!(
            self.reason,
            Reason::TooManyFields | Reason::HeadTooLong | Reason::TooManyInterim | Reason::ChunkOverhead
        )
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.excerpt;
        match self.reason {
            Reason::NotHttp1 => write!(f, "{text} is not the beginning of an HTTP/1 response"),
            Reason::StatusLine => write!(f, "status line {text} is not `HTTP/1.x` and a status of three digits"),
            Reason::UnrequestedUpgrade => write!(f, "status 101 without a request to switch protocols"),
            Reason::StrayCr => write!(f, "CR without LF before the status line"),
            Reason::NoColon => write!(f, "header line {text} has no colon"),
            Reason::SpaceBeforeColon => write!(f, "header line {text} has white space before its colon"),
            Reason::LeadingSpace => write!(f, "the first header line {text} begins with white space"),
            Reason::FieldName => write!(f, "header line {text} begins with something other than a header name"),
            Reason::FieldValue => write!(f, "header line {text} has a control character"),
            Reason::TooManyFields => write!(f, "more than {text} header lines"),
            Reason::HeadTooLong => write!(f, "head of more than {text} bytes"),
            Reason::TooManyInterim => write!(f, "more than {text} interim responses before a final one"),
            Reason::LengthEmpty => write!(f, "Content-Length without a value"),
            Reason::LengthNotNumber => write!(f, "Content-Length {text} is not a number"),
            Reason::LengthOverflow => write!(f, "Content-Length {text} is more than 64 bits hold"),
            Reason::LengthsDiffer => write!(f, "Content-Length has the different values {text}"),
            Reason::LengthRepeated => write!(f, "Content-Length with more than one value"),
            Reason::CodingAndLength => write!(f, "Transfer-Encoding together with Content-Length"),
            Reason::CodingInHttp10 => write!(f, "Transfer-Encoding {text} in a message of HTTP/1.0"),
            Reason::CodingEmpty => write!(f, "Transfer-Encoding without a value"),
            Reason::CodingParameters => write!(f, "Transfer-Encoding {text}: chunked has no parameters"),
            Reason::CodingRepeated => write!(f, "Transfer-Encoding with chunked more than once"),
            Reason::CodingUnsupported => write!(f, "transfer coding {text} is not supported"),
            Reason::CodingNotFinal => write!(f, "the last transfer coding is {text}, not chunked"),
            Reason::ChunkSize => write!(f, "chunk size with {text}, which is not a hexadecimal digit"),
            Reason::ChunkSizeOverflow => write!(f, "chunk size of more than 16 digits"),
            Reason::ChunkLineEnd => write!(f, "line of a chunked body with {text} where CRLF is expected"),
            Reason::ChunkExtension => write!(f, "chunk extension with {text}"),
            Reason::ChunkDataEnd => write!(f, "chunk data followed by {text} where CRLF is expected"),
            Reason::Trailer => write!(f, "trailer line with {text} where a field is expected"),
            Reason::ChunkOverhead => write!(f, "more than {text} bytes of chunk extensions and trailers"),
            Reason::BodyTooLong => write!(f, "body longer than {text} bytes"),
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.reason)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_fault_names_the_rule_and_the_text() {
        let fault = Fault::new(Reason::LengthNotNumber, b"+5");
        assert_eq!(fault.to_string(), "Content-Length `+5` is not a number");
        let long = Fault::new(Reason::NoColon, &[b'x'; 100]);
        assert_eq!(long.to_string(), format!("header line `{}..` has no colon", "x".repeat(EXCERPT_MAX)));
        let hostile = Fault::new(Reason::FieldValue, b"X: \x1b[2J\0\xff`");
        assert!(hostile.to_string().bytes().all(|byte| (b' '..0x7f).contains(&byte)), "{hostile}");
    }

    #[test]
    fn fault_names_are_unique_and_alphanumeric() {
        let names: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
        assert!(names.iter().all(|name| name.bytes().all(|byte| byte == b'_' || byte.is_ascii_alphanumeric())));
        for &reason in Reason::ALL {
            assert!(!Fault::new(reason, b"x").to_string().is_empty());
        }
    }
}
