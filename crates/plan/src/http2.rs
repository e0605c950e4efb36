//! `[load.http2]`: flow control of HTTP/2.

use serde::{Deserialize, Serialize};
use units::Bytes;

use super::{HttpVersion, LoadPlan, Plan};

/// Flow-control windows of `http = "2"`. A checked plan has this table exactly if it uses HTTP/2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "HTTP/2 (--http 2)"))]
pub struct Http2Plan {
    /// Let the server send this many bytes of a response ahead [default: 6MiB, as Chromium]
    #[cfg_attr(feature = "cli", arg(id = "http2_stream_window", long = "http2-stream-window", value_name = "BYTES"))]
    #[cfg_attr(feature = "cli", arg(default_value_t = STREAM_WINDOW, hide_default_value = true, allow_hyphen_values = true))]
    pub stream_window: Bytes,
    /// Let the server send this many bytes of all responses of a connection ahead [default: 15MiB, as Chromium]
    #[cfg_attr(
        feature = "cli",
        arg(id = "http2_connection_window", long = "http2-connection-window", value_name = "BYTES")
    )]
    #[cfg_attr(feature = "cli", arg(default_value_t = CONNECTION_WINDOW, hide_default_value = true, allow_hyphen_values = true))]
    pub connection_window: Bytes,
}

impl Default for Http2Plan {
    fn default() -> Self {
        Http2Plan { stream_window: STREAM_WINDOW, connection_window: CONNECTION_WINDOW }
    }
}

/// Chromium's kSpdyStreamMaxRecvWindowSize (net/http/http_network_session.cc).
const STREAM_WINDOW: Bytes = Bytes(6 << 20);
/// Chromium's kSpdySessionMaxRecvWindowSize (net/http/http_network_session.cc).
const CONNECTION_WINDOW: Bytes = Bytes(15 << 20);

/// Smallest window of a stream: a packet's payload.
const STREAM_WINDOW_MIN: Bytes = Bytes(1 << 10);
/// Smallest window of a connection, with which each begins (RFC 9113, section 6.9.2).
const CONNECTION_WINDOW_MIN: Bytes = Bytes((1 << 16) - 1);
/// Largest window (RFC 9113, section 6.9.1).
const WINDOW_MAX: Bytes = Bytes((1 << 31) - 1);

impl Plan {
    /// Refuses windows without HTTP/2, and those that the protocol cannot have.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn check_http2(&self) -> Result<(), String> {
        let Some(http2) = self.load.http2 else { return Ok(()) };
        if self.load.http != HttpVersion::Http2 {
            return Err("[load.http2] (--http2-*) needs HTTP/2: add http = \"2\" (--http 2)".into());
        }
        let windows = [
            ("stream_window", "--http2-stream-window", http2.stream_window, STREAM_WINDOW_MIN),
            ("connection_window", "--http2-connection-window", http2.connection_window, CONNECTION_WINDOW_MIN),
        ];
        for (key, option, window, least) in windows {
            if window < least || window > WINDOW_MAX {
                return Err(format!(
                    "http2 {key} = {window} ({option}): expected {} to {} bytes",
                    least.0, WINDOW_MAX.0
                ));
            }
        }
        Ok(())
    }
}

impl LoadPlan {
    /// The HTTP/2 windows; those of the default where the plan has none.
    pub fn http2_windows(&self) -> Http2Plan {
        self.http2.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rest: &str) -> Result<Plan, String> {
        Plan::from_toml(&format!("[load]\nurl = \"https://h/\"\nduration = \"1s\"\n{rest}"), "plan.toml")
            .map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_of_http2_windows_are_written_out() {
        let two = plan("http = \"2\"\n").unwrap();
        assert_eq!(two.load.http2, Some(Http2Plan::default()));
        let printed = two.to_toml();
        assert!(printed.contains("stream_window = \"6MiB\"") && printed.contains("\"15MiB\""), "{printed}");
        assert_eq!(Plan::from_toml(&printed, "print").unwrap(), two);
        assert_eq!(plan("").unwrap().load.http2, None);
    }

    #[test]
    fn windows_that_http2_cannot_have_are_refused() {
        let two = |rest: &str| plan(&format!("http = \"2\"\n[load.http2]\n{rest}"));
        assert!(two("stream_window = \"64KiB\"\nconnection_window = \"64KiB\"\n").is_ok());
        assert!(two("stream_window = \"1B\"\n").unwrap_err().contains("--http2-stream-window"));
        assert!(two("stream_window = \"2GiB\"\n").unwrap_err().contains("--http2-stream-window"));
        assert!(two("connection_window = \"64000B\"\n").unwrap_err().contains("65535"));
        assert!(plan("[load.http2]\n").unwrap_err().contains("--http 2"));
        assert!(plan("http = \"3\"\n[load.http2]\n").unwrap_err().contains("--http 2"));
    }
}
