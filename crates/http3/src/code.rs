//! Error codes of HTTP/3 (RFC 9114, section 8.1) and QPACK (RFC 9204, section 6).

/// An error code of a stream or a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u64);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl Code {
            $($(#[$doc])* pub const $name: Code = Code($value);)*

            /// The name in the specification; `None` for a code that it does not define.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    /// The connection or stream ends without an error.
    NO_ERROR = 0x100, "H3_NO_ERROR";
    /// A violation without a code of its own.
    GENERAL_PROTOCOL_ERROR = 0x101, "H3_GENERAL_PROTOCOL_ERROR";
    /// An internal error of the sender.
    INTERNAL_ERROR = 0x102, "H3_INTERNAL_ERROR";
    /// A stream that may not be created.
    STREAM_CREATION_ERROR = 0x103, "H3_STREAM_CREATION_ERROR";
    /// A stream was closed that the connection needs.
    CLOSED_CRITICAL_STREAM = 0x104, "H3_CLOSED_CRITICAL_STREAM";
    /// A frame that is not allowed here.
    FRAME_UNEXPECTED = 0x105, "H3_FRAME_UNEXPECTED";
    /// A frame with an invalid layout or length.
    FRAME_ERROR = 0x106, "H3_FRAME_ERROR";
    /// The peer causes excessive work.
    EXCESSIVE_LOAD = 0x107, "H3_EXCESSIVE_LOAD";
    /// A stream or push identifier used wrongly.
    ID_ERROR = 0x108, "H3_ID_ERROR";
    /// An invalid SETTINGS frame.
    SETTINGS_ERROR = 0x109, "H3_SETTINGS_ERROR";
    /// The control stream does not begin with SETTINGS.
    MISSING_SETTINGS = 0x10a, "H3_MISSING_SETTINGS";
    /// The server did not process the request.
    REQUEST_REJECTED = 0x10b, "H3_REQUEST_REJECTED";
    /// The request or its response is cancelled.
    REQUEST_CANCELLED = 0x10c, "H3_REQUEST_CANCELLED";
    /// The request ended before it was complete.
    REQUEST_INCOMPLETE = 0x10d, "H3_REQUEST_INCOMPLETE";
    /// A malformed message.
    MESSAGE_ERROR = 0x10e, "H3_MESSAGE_ERROR";
    /// The connection of a CONNECT was reset.
    CONNECT_ERROR = 0x10f, "H3_CONNECT_ERROR";
    /// The request must be repeated over HTTP/1.1.
    VERSION_FALLBACK = 0x110, "H3_VERSION_FALLBACK";
    /// A field section that cannot be decoded.
    QPACK_DECOMPRESSION_FAILED = 0x200, "QPACK_DECOMPRESSION_FAILED";
    /// An invalid instruction on the encoder stream.
    QPACK_ENCODER_STREAM_ERROR = 0x201, "QPACK_ENCODER_STREAM_ERROR";
    /// An invalid instruction on the decoder stream.
    QPACK_DECODER_STREAM_ERROR = 0x202, "QPACK_DECODER_STREAM_ERROR";
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{:#x}", self.0),
        }
    }
}

impl std::fmt::Debug for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
