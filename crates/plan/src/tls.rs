//! `[load.tls]`: TLS of the load.

use std::path::PathBuf;

use load::Target;
use rustls_pki_types::ServerName;
use serde::{Deserialize, Serialize};

use super::LoadPlan;
use super::named::named;

/// TLS of `https://` URLs. A checked plan has this table exactly if the URL is secure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "TLS (https:// URLs)"))]
pub struct TlsPlan {
    /// Do not verify the server's TLS certificate, like curl -k
    // Plan: The handshake's signature is verified all the same, because it costs CPU time.
    #[cfg_attr(feature = "cli", arg(short = 'k', long))]
    pub insecure: bool,
    /// Trust the authorities in this PEM file instead of the system's
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub cacert: Option<PathBuf>,
    /// Send this name in SNI and expect it in the certificate of every host [default: each URL's host]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub sni: Option<String>,
    /// Use only this TLS version [default: 1.3, or 1.2 if the server has no later one]
    #[cfg_attr(feature = "cli", arg(id = "tls_version", long = "tls-version", value_enum, value_name = "VERSION"))]
    #[cfg_attr(feature = "cli", arg(default_value_t, hide_default_value = true))]
    pub version: TlsVersion,
    /// Offer this protocol by ALPN: http/1.1, http/1.0, h2, h3 or none [default: http/1.1, h2 with --http 2,
    /// h3 with --http 3]
    #[cfg_attr(feature = "cli", arg(long, value_name = "PROTOCOL", default_value_t, hide_default_value = true))]
    pub alpn: Alpn,
    /// Make every handshake a full one: clients do not resume sessions
    // Plan: Each client has its own sessions; tickets are not shared.
    #[cfg_attr(feature = "cli", arg(long = "no-resumption", action = clap::ArgAction::SetFalse))]
    pub resumption: bool,
    /// Authenticate clients with this certificate and its chain, PEM
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE"))]
    pub cert: Option<PathBuf>,
    /// Use this private key for the client certificate, PEM [default: in the same file]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "FILE", requires = "cert"))]
    pub key: Option<PathBuf>,
}

impl Default for TlsPlan {
    fn default() -> Self {
        TlsPlan {
            insecure: false,
            cacert: None,
            sni: None,
            version: TlsVersion::default(),
            alpn: Alpn::default(),
            resumption: true,
            cert: None,
            key: None,
        }
    }
}

/// TLS versions offered to the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TlsVersion {
    /// 1.2 and 1.3; the server chooses the later one that it supports.
    #[default]
    #[serde(rename = "any")]
    Any,
    /// 1.2 only.
    #[serde(rename = "1.2")]
    V12,
    /// 1.3 only.
    #[serde(rename = "1.3")]
    V13,
}

named!(TlsVersion: Any "any" (hidden), V12 "1.2", V13 "1.3");

/// Protocol offered by ALPN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Alpn {
    /// `http/1.1`.
    #[default]
    Http11,
    /// `http/1.0`.
    Http10,
    /// `h2`: HTTP/2.
    H2,
    /// `h3`: HTTP/3.
    H3,
    /// The extension is not sent.
    None,
}

impl Alpn {
    /// The name in a plan, and (except `none`) on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Alpn::Http11 => "http/1.1",
            Alpn::Http10 => "http/1.0",
            Alpn::H2 => "h2",
            Alpn::H3 => "h3",
            Alpn::None => "none",
        }
    }
}

impl std::fmt::Display for Alpn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Alpn {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        match typed {
            "http/1.1" => Ok(Alpn::Http11),
            "http/1.0" => Ok(Alpn::Http10),
            "none" => Ok(Alpn::None),
            "h2" => Ok(Alpn::H2),
            "h3" => Ok(Alpn::H3),
            _ => Err(format!("`{typed}` is not a supported protocol: expected http/1.1, http/1.0, h2, h3 or none")),
        }
    }
}

impl TryFrom<String> for Alpn {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        typed.parse()
    }
}

impl From<Alpn> for String {
    fn from(alpn: Alpn) -> Self {
        alpn.name().into()
    }
}

impl LoadPlan {
    /// Whether any request uses TLS. With a list of URLs this is known after reading it.
    pub fn secure(&self) -> bool {
        self.lists() && self.tls.is_some() || self.states_secure()
    }

    /// Whether the URLs are defined elsewhere: in a list or in a workload.
    fn lists(&self) -> bool {
        self.urls.is_some() || self.cache_workload.is_some()
    }

    /// Whether a URL in the plan itself is `https://`.
    fn states_secure(&self) -> bool {
        let https = |url: &String| url.trim_start().get(..6).is_some_and(|front| front.eq_ignore_ascii_case("https:"));
        self.stated_urls().iter().any(https)
    }

    /// Writes out the defaults of TLS, HTTP/2 and HTTP/3 where the URLs need them.
    pub fn settle_tls(&mut self) {
        if self.states_secure() {
            self.tls.get_or_insert_default();
        }
        self.settle_transport();
    }

    /// Refuses contradicting TLS settings. An unreadable URL is refused elsewhere.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn check_tls(&self) -> Result<(), String> {
        let Some(tls) = &self.tls else { return Ok(()) };
        // The URLs of a list are not known yet.
        if !self.states_secure() && !self.lists() {
            return Err("TLS options ([load.tls]; -k, --cacert, --sni and others) need an https:// URL".into());
        }
        if tls.insecure && tls.cacert.is_some() {
            return Err(
                "insecure (-k) trusts every server, cacert (--cacert) only some: leave one of the two out".into()
            );
        }
        if tls.key.is_some() && tls.cert.is_none() {
            return Err("key (--key) needs a client certificate: give cert (--cert) as well".into());
        }
        let secure =
            self.stated_urls().into_iter().filter_map(|url| Target::parse(&url).ok()).filter(|target| target.secure);
        secure.map(|target| tls.server_name(&target.host)).find(Result::is_err).map_or(Ok(()), |bad| bad.map(drop))
    }
}

impl TlsPlan {
    /// The name that the server's certificate must have.
    ///
    /// # Errors
    /// The name is neither a valid host name nor an address.
    pub fn server_name(&self, host: &str) -> Result<ServerName<'static>, String> {
        let name = self.sni.as_deref().unwrap_or(host);
        ServerName::try_from(name.to_owned())
            .map_err(|_| format!("`{name}` is not a valid name of a certificate: give one with sni (--sni)"))
    }
}

#[cfg(test)]
mod tests {
    use crate::Plan;

    fn plan(load: &str) -> Result<Plan, String> {
        Plan::from_toml(&format!("[load]\nduration = \"1s\"\n{load}"), "plan.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn a_plan_with_tls_survives_printing_and_reading() {
        let full = "url = \"https://shop.example/\"\n[load.tls]\ncacert = \"ca.pem\"\nsni = \"other.example\"\n\
                    version = \"1.2\"\nalpn = \"none\"\nresumption = false\ncert = \"me.pem\"\nkey = \"me.key\"\n";
        for load in [full, "url = \"https://shop.example/\"\n", "url = \"https://h/\"\n[load.tls]\ninsecure = true\n"] {
            let plan = plan(load).unwrap();
            let printed = plan.to_toml();
            assert_eq!(Plan::from_toml(&printed, "print").unwrap(), plan, "{printed}");
            assert!(printed.contains("[load.tls]"), "defaults must be written out\n{printed}");
        }
        let plain = plan("url = \"http://h/\"\n").unwrap();
        assert!(plain.load.tls.is_none() && !plain.to_toml().contains("tls"));
    }

    #[test]
    fn contradicting_tls_settings_are_refused() {
        let refused = |load: &str| plan(load).unwrap_err();
        assert!(refused("url = \"http://h/\"\n[load.tls]\n").contains("https://"));
        let https = |tls: &str| refused(&format!("url = \"https://h/\"\n[load.tls]\n{tls}\n"));
        assert!(https("insecure = true\ncacert = \"a\"").contains("leave one of the two out"));
        assert!(https("key = \"k\"").contains("--cert"));
        assert!(https("sni = \"a b\"").contains("--sni"));
        assert!(https("alpn = \"h2\"").contains("HTTP/2"));
        assert!(https("alpn = \"h3\"").contains("HTTP/3"));
        assert!(https("alpn = \"h9\"").contains("h3"));
        assert!(https("version = \"1.1\"").contains("1.1"));
        assert!(https("early_data = true").contains("early_data"));
    }
}
