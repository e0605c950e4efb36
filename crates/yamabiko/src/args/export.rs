//! Arguments of `export`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::Uri;
use units::parse_duration;

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("receiver").args(["remote_write", "otlp"]).required(true))]
#[command(
    after_help = "Put secret headers, such as Authorization, into --header-file or $YAMABIKO_EXPORT_HEADER, not on the command line. \
                        Files in other formats: yamabiko report --export."
)]
pub struct Push {
    /// Run: its name, the start of its name, its folder, or `last`
    #[arg(default_value = "last")]
    pub run: String,
    /// Send to Prometheus, or another receiver of remote write 1.0, such as http://127.0.0.1:9090/api/v1/write
    #[arg(long, value_name = "URL", value_parser = complete_url)]
    pub remote_write: Option<String>,
    /// Send to an OpenTelemetry receiver by OTLP over HTTP, such as http://127.0.0.1:4318; without a path, to /v1/metrics
    #[arg(long, value_name = "URL", value_parser = complete_url)]
    pub otlp: Option<String>,
    /// Header of every message, `Name: value`; may be repeated
    #[arg(short = 'H', long = "header", value_name = "LINE")]
    pub headers: Vec<String>,
    /// File with such headers, one per line
    #[arg(long, value_name = "FILE")]
    pub header_file: Option<PathBuf>,
    /// Trust the certificates in this PEM file instead of the system's
    #[arg(long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// Do not verify the receiver's certificate
    #[arg(short = 'k', long, conflicts_with = "cacert")]
    pub insecure: bool,
    /// Timeout of one message and its response
    #[arg(long, default_value = "30s", value_parser = parse_duration, allow_hyphen_values = true)]
    pub timeout: Duration,
}

/// An http or https URL without credentials: credentials belong into a header, which is not printed.
pub(super) fn complete_url(text: &str) -> Result<String, String> {
    let uri: Uri = text.parse().map_err(|_| "expected a URL, such as http://127.0.0.1:9090/api/v1/write".to_owned())?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
        return Err("expected a complete URL, with http:// or https:// and a host".to_owned());
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("the URL must not contain a user, since it is printed; use --header-file with `Authorization: ..`"
            .to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receiver_must_be_a_complete_url_without_credentials() {
        for right in ["http://127.0.0.1:9090/api/v1/write", "https://[::1]:4318", "http://h"] {
            assert_eq!(complete_url(right).as_deref(), Ok(right));
        }
        for wrong in ["", "h:9090", "ftp://h/", "/path", "http://", "http://u:p@h/"] {
            assert!(complete_url(wrong).is_err(), "{wrong}");
        }
        assert!(complete_url("http://u:secret@h/").unwrap_err().contains("--header-file"));
    }
}
