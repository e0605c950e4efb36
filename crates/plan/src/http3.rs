//! `[load.http3]`: the QUIC transport of HTTP/3.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::Bytes;
#[cfg(feature = "cli")]
use units::parse_duration;

use super::named::named;
use super::{Alpn, Engine, HttpVersion, LoadPlan, Plan, TlsVersion};

/// QUIC of `http = "3"`. A checked plan has this table exactly if it uses HTTP/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "HTTP/3 (--http 3)"))]
pub struct Http3Plan {
    /// Let the server send this many bytes of a response ahead [default: 6MiB, as Chromium]
    #[cfg_attr(feature = "cli", arg(id = "http3_stream_window", long = "http3-stream-window", value_name = "BYTES"))]
    #[cfg_attr(feature = "cli", arg(default_value_t = STREAM_WINDOW, hide_default_value = true, allow_hyphen_values = true))]
    pub stream_window: Bytes,
    /// Let the server send this many bytes of all responses of a connection ahead [default: 15MiB, as Chromium]
    #[cfg_attr(
        feature = "cli",
        arg(id = "http3_connection_window", long = "http3-connection-window", value_name = "BYTES")
    )]
    #[cfg_attr(feature = "cli", arg(default_value_t = CONNECTION_WINDOW, hide_default_value = true, allow_hyphen_values = true))]
    pub connection_window: Bytes,
    /// Send requests by this congestion control
    #[cfg_attr(
        feature = "cli",
        arg(id = "http3_congestion_control", long = "http3-congestion-control", value_enum, default_value_t)
    )]
    #[cfg_attr(feature = "cli", arg(value_name = "ALGORITHM"))]
    pub congestion_control: CongestionControl,
    /// Assume this RTT before the first measurement; a lost first packet is repeated after three times as long
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(id = "http3_initial_rtt", long = "http3-initial-rtt", value_name = "TIME"))]
    #[cfg_attr(feature = "cli", arg(default_value = "333ms", value_parser = parse_duration, allow_hyphen_values = true))]
    pub initial_rtt: Duration,
    /// Send this many bytes of requests before the first acknowledgement
    #[cfg_attr(feature = "cli", arg(id = "http3_initial_window", long = "http3-initial-window", value_name = "BYTES"))]
    #[cfg_attr(feature = "cli", arg(default_value_t = INITIAL_WINDOW, allow_hyphen_values = true))]
    pub initial_window: Bytes,
    /// End a connection after this long without a packet; the server may end it earlier
    #[serde(with = "units::time::text")]
    #[cfg_attr(feature = "cli", arg(id = "http3_idle_timeout", long = "http3-idle-timeout", value_name = "TIME"))]
    #[cfg_attr(feature = "cli", arg(default_value = "30s", value_parser = parse_duration, allow_hyphen_values = true))]
    pub idle_timeout: Duration,
    /// Keep idle connections alive by a packet each TIME [default: none, as Chromium]
    #[serde(with = "units::time::text::option", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "http3_keep_alive", long = "http3-keep-alive", value_name = "TIME"))]
    #[cfg_attr(feature = "cli", arg(value_parser = parse_duration, allow_hyphen_values = true))]
    pub keep_alive: Option<Duration>,
    /// Mark no packets as ECN-capable
    #[cfg_attr(feature = "cli", arg(id = "http3_ecn", long = "http3-no-ecn", action = clap::ArgAction::SetFalse))]
    pub ecn: bool,
    /// Send and receive every datagram by itself: no UDP_SEGMENT, no UDP_GRO
    #[cfg_attr(feature = "cli", arg(id = "http3_offload", long = "http3-no-offload", action = clap::ArgAction::SetFalse))]
    pub offload: bool,
    /// Do not show the RTT by the spin bit
    #[cfg_attr(feature = "cli", arg(id = "http3_spin_bit", long = "http3-no-spin-bit", action = clap::ArgAction::SetFalse))]
    pub spin_bit: bool,
    /// Send requests in the first packet to a server that a client already knows (0-RTT)
    // Plan: Needs resumption. A server that does not accept early data gets the request once more.
    #[cfg_attr(feature = "cli", arg(long))]
    pub early_data: bool,
}

impl Default for Http3Plan {
    fn default() -> Self {
        Http3Plan {
            stream_window: STREAM_WINDOW,
            connection_window: CONNECTION_WINDOW,
            congestion_control: CongestionControl::default(),
            initial_rtt: INITIAL_RTT,
            initial_window: INITIAL_WINDOW,
            idle_timeout: IDLE_TIMEOUT,
            keep_alive: None,
            ecn: true,
            offload: true,
            spin_bit: true,
            early_data: false,
        }
    }
}

/// Chromium's kQuicStreamMaxRecvWindowSize (net/quic/quic_context.h).
const STREAM_WINDOW: Bytes = Bytes(6 << 20);
/// Chromium's kQuicSessionMaxRecvWindowSize (net/quic/quic_context.h).
const CONNECTION_WINDOW: Bytes = Bytes(15 << 20);
/// RFC 9002, section 6.2.2.
const INITIAL_RTT: Duration = Duration::from_millis(333);
/// RFC 9002, section 7.2: ten datagrams of 1,200 bytes.
const INITIAL_WINDOW: Bytes = Bytes(12_000);
/// Chromium's kIdleConnectionTimeout (net/quic/quic_context.h).
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// Smallest window: one packet.
const WINDOW_MIN: Bytes = Bytes(1 << 11);
/// Largest window: what a connection can have in transit at 100 Gbit/s and 80 ms.
const WINDOW_MAX: Bytes = Bytes(1 << 30);
/// Range of the assumed RTT.
const INITIAL_RTT_MIN: Duration = Duration::from_millis(1);
const INITIAL_RTT_MAX: Duration = Duration::from_secs(10);
/// Smallest initial window: two datagrams (RFC 9002, section 7.2).
const INITIAL_WINDOW_MIN: Bytes = Bytes(2_400);
/// Range of the idle timeout, and of the time between keep-alive packets.
const IDLE_TIMEOUT_MIN: Duration = Duration::from_secs(1);
const IDLE_TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Algorithms that decide how fast the load sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionControl {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR, version 1.
    Bbr,
    /// NewReno (RFC 9002).
    NewReno,
}

named!(CongestionControl: Cubic "cubic", Bbr "bbr", NewReno "newreno");

impl Plan {
    /// Refuses settings that contradict HTTP/3, and settings of HTTP/3 without it.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn check_http3(&self) -> Result<(), String> {
        let load = &self.load;
        if load.http != HttpVersion::Http3 {
            if load.http3.is_some() {
                return Err("[load.http3] (--http3-*, --early-data) needs HTTP/3: add http = \"3\" (--http 3)".into());
            }
            return match &load.tls {
                Some(tls) if tls.alpn == Alpn::H3 => {
                    Err("alpn = \"h3\" (--alpn) offers HTTP/3: add http = \"3\" (--http 3)".into())
                }
                _ => Ok(()),
            };
        }
        let plain = |url: &String| url.trim_start().get(..5).is_some_and(|front| front.eq_ignore_ascii_case("http:"));
        if load.stated_urls().iter().any(plain) {
            return Err(NEEDS_HTTPS.into());
        }
        let without = [
            (load.proxy.is_some(), "a proxy (--proxy)"),
            (load.unix.is_some(), "a Unix socket (--unix)"),
            (self.watch.tap, "tap (--tap), which records TCP connections"),
        ];
        if let Some((_, what)) = without.iter().find(|(is_set, _)| *is_set) {
            return Err(format!("http = \"3\" (--http 3) does not support {what}: leave one of the two out"));
        }
        if self.host.engine == Engine::IoUring {
            return Err("engine = \"io_uring\" (--engine) does not support HTTP/3: write epoll, or leave it out".into());
        }
        if let Some(tls) = &load.tls {
            if tls.version == TlsVersion::V12 {
                return Err("QUIC has TLS 1.3 inside: leave version = \"1.2\" (--tls-version 1.2) out".into());
            }
            if !matches!(tls.alpn, Alpn::Http11 | Alpn::H3) {
                return Err(format!(
                    "alpn = \"{}\" (--alpn) and http = \"3\" (--http) contradict each other: HTTP/3 is negotiated by ALPN",
                    tls.alpn.name()
                ));
            }
            if !tls.resumption && load.http3.is_some_and(|http3| http3.early_data) {
                return Err(
                    "early_data (--early-data) needs a resumed session: leave it out, or resumption = false (--no-resumption)"
                        .into(),
                );
            }
        }
        load.http3.unwrap_or_default().check()
    }
}

/// Why URLs without TLS are refused.
pub(super) const NEEDS_HTTPS: &str = "http = \"3\" (--http 3) is always encrypted: write https:// URLs";

impl LoadPlan {
    /// The QUIC settings; those of the default where the plan has none.
    pub fn quic(&self) -> Http3Plan {
        self.http3.unwrap_or_default()
    }
}

impl Http3Plan {
    fn check(&self) -> Result<(), String> {
        let windows = [
            ("stream_window", "--http3-stream-window", self.stream_window),
            ("connection_window", "--http3-connection-window", self.connection_window),
        ];
        let windows = windows.map(|(key, option, window)| (key, option, window, WINDOW_MIN));
        let initial = ("initial_window", "--http3-initial-window", self.initial_window, INITIAL_WINDOW_MIN);
        for (key, option, window, least) in windows.into_iter().chain([initial]) {
            if window < least || window > WINDOW_MAX {
                return Err(format!("http3 {key} = {window} ({option}): expected {least} to {WINDOW_MAX}"));
            }
        }
        let idle = IDLE_TIMEOUT_MIN..=IDLE_TIMEOUT_MAX;
        let times = [
            ("initial_rtt", "--http3-initial-rtt", Some(self.initial_rtt), INITIAL_RTT_MIN..=INITIAL_RTT_MAX),
            ("idle_timeout", "--http3-idle-timeout", Some(self.idle_timeout), idle.clone()),
            ("keep_alive", "--http3-keep-alive", self.keep_alive, idle),
        ];
        for (key, option, time, range) in times {
            if let Some(time) = time.filter(|time| !range.contains(time)) {
                let [time, least, most] = [time, *range.start(), *range.end()].map(units::format_duration);
                return Err(format!("http3 {key} = {time} ({option}): expected {least} to {most}"));
            }
        }
        if self.keep_alive.is_some_and(|keep_alive| keep_alive >= self.idle_timeout) {
            return Err(
                "http3 keep_alive (--http3-keep-alive) must be shorter than idle_timeout (--http3-idle-timeout), \
                        or connections end before it"
                    .into(),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(rest: &str) -> Result<Plan, String> {
        Plan::from_toml(&format!("[load]\nduration = \"1s\"\n{rest}"), "plan.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_of_http3_are_written_out() {
        let plan = plan("url = \"https://h/\"\nhttp = \"3\"\n").unwrap();
        assert_eq!((plan.load.streams, plan.load.http3), (Some(100), Some(Http3Plan::default())));
        assert_eq!(plan.load.tls.as_ref().unwrap().alpn, Alpn::H3);
        assert_eq!(Plan::from_toml(&plan.to_toml(), "print").unwrap(), plan);
        let printed = plan.to_toml();
        assert!(
            printed.contains("stream_window = \"6MiB\"") && printed.contains("connection_window = \"15MiB\""),
            "{printed}"
        );
    }

    #[test]
    fn settings_that_contradict_http3_are_refused() {
        let refused = |rest: &str| plan(rest).unwrap_err();
        let three = |rest: &str| refused(&format!("url = \"https://h/\"\nhttp = \"3\"\n{rest}"));
        assert!(refused("url = \"http://h/\"\nhttp = \"3\"\n").contains("https://"));
        assert!(three("proxy = \"p:1\"\n").contains("--proxy"));
        assert!(three("unix = \"/run/s\"\n").contains("--unix"));
        assert!(three("[watch]\ntap = true\n").contains("--tap"));
        assert!(three("[host]\nengine = \"io_uring\"\n").contains("HTTP/3"));
        assert!(three("[load.tls]\nversion = \"1.2\"\n").contains("1.3"));
        assert!(three("[load.tls]\nalpn = \"h2\"\n").contains("contradict"));
        assert!(three("streams = 0\n").contains("at least one"));
        assert!(three("headers = [\"Connection: close\"]\n").contains("HTTP/1"));
        assert!(three("open_connections = 5\nrate = \"1/s\"\n").contains("HTTP/1"));
        assert!(three("[load.http3]\nstream_window = \"1KiB\"\n").contains("--http3-stream-window"));
        assert!(three("[load.http3]\nconnection_window = \"2GiB\"\n").contains("--http3-connection-window"));
        assert!(three("[load.http3]\ninitial_rtt = \"0s\"\n").contains("--http3-initial-rtt"));
        assert!(three("[load.http3]\ninitial_window = \"2KB\"\n").contains("--http3-initial-window"));
        assert!(three("[load.http3]\nidle_timeout = \"0s\"\n").contains("--http3-idle-timeout): expected 1s to"));
        assert!(three("[load.http3]\nkeep_alive = \"2h\"\n").contains("--http3-keep-alive"));
        assert!(three("[load.http3]\nkeep_alive = \"30s\"\n").contains("shorter than"));
        assert!(three("[load.http3]\nearly_data = true\n[load.tls]\nresumption = false\n").contains("--no-resumption"));
        assert!(refused("url = \"https://h/\"\n[load.http3]\n").contains("--http 3"));
        assert!(refused("url = \"https://h/\"\n[load.tls]\nalpn = \"h3\"\n").contains("--http 3"));
        assert!(plan("url = \"https://h/\"\nhttp = \"3\"\n[load.http3]\nearly_data = true\n").is_ok());
    }
}
