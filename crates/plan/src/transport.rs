//! Transport of the requests: HTTP version, streams, Unix socket, proxy.

use load::Target;

use super::{AddressFamily, Alpn, Engine, HttpVersion, LoadPlan, Plan};

/// Streams of an HTTP/2 or HTTP/3 connection, if the plan sets no number.
pub const STREAMS: u32 = 100;

impl LoadPlan {
    /// Most concurrent requests on a connection, as far as the server allows: 1 except with HTTP/2 and HTTP/3.
    pub fn streams_at_most(&self) -> u32 {
        match self.http {
            HttpVersion::Http2 | HttpVersion::Http3 if self.close => 1,
            HttpVersion::Http2 | HttpVersion::Http3 => self.streams.unwrap_or(STREAMS),
            HttpVersion::Http10 | HttpVersion::Http11 => 1,
        }
    }

    /// Writes out the defaults of TLS, HTTP/2 and HTTP/3 for the targets found in a list.
    pub fn settle_targets(&mut self, targets: &[Target]) {
        if targets.iter().any(|target| target.secure) {
            self.tls.get_or_insert_default();
        } else {
            self.tls = None;
        }
        self.settle_transport();
    }

    /// Writes out the defaults of HTTP/2 and HTTP/3.
    pub fn settle_transport(&mut self) {
        if self.http.is_http1() {
            return;
        }
        self.streams = Some(self.streams_at_most());
        let is_http3 = self.http == HttpVersion::Http3;
        if is_http3 {
            self.http3.get_or_insert_default();
        } else {
            self.http2.get_or_insert_default();
        }
        if let Some(tls) = &mut self.tls
            && tls.alpn == Alpn::default()
        {
            tls.alpn = if is_http3 { Alpn::H3 } else { Alpn::H2 };
        }
    }
}

impl Plan {
    /// Refuses contradicting transport settings.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn check_transport(&self) -> Result<(), String> {
        let load = &self.load;
        self.check_http3()?;
        self.check_http2()?;
        self.check_streams()?;
        if let Some(socket) = &load.unix {
            let socket = socket.display();
            if self.path.is_some() || self.server.is_some() {
                return Err(format!(
                    "unix = \"{socket}\" (--unix) is a socket of this host, which no path can reach: leave out the path and \
                     --server, or the socket"
                ));
            }
            if load.proxy.is_some() || !self.target.addresses.is_empty() || self.target.family != AddressFamily::Any {
                return Err(format!(
                    "unix = \"{socket}\" (--unix) defines where to connect, as does a proxy (--proxy), an address (--to) or an \
                     address family (-4, -6): leave one of the two out"
                ));
            }
        }
        // The proxy may have a password, which must not appear in messages.
        if load.proxy.is_some() && !self.target.addresses.is_empty() {
            return Err(
                "[target] addresses (--to) belong to the URL's host, which with a proxy (--proxy) the proxy itself has to \
                        resolve: leave one of the two out"
                    .into(),
            );
        }
        Ok(())
    }

    /// Refuses settings that contradict HTTP/2 or streams of either version.
    fn check_streams(&self) -> Result<(), String> {
        let load = &self.load;
        let alpn = load.tls.as_ref().map(|tls| tls.alpn);
        if load.streams.is_some() && load.http.is_http1() {
            return Err("streams (--streams) need HTTP/2 or HTTP/3: add http = \"2\" or \"3\" (--http 2)".into());
        }
        if alpn == Some(Alpn::H2) && load.http != HttpVersion::Http2 {
            return Err("alpn = \"h2\" (--alpn) offers HTTP/2: add http = \"2\" (--http 2)".into());
        }
        if load.http.is_http1() {
            return Ok(());
        }
        let concurrent = u64::from(load.streams_at_most()) * u64::from(load.connections.unwrap_or(1));
        match load.streams {
            Some(0) => return Err("streams = 0 (--streams): expected at least one".into()),
            Some(streams) if streams > STREAMS_MAX => {
                return Err(format!("streams = {streams} (--streams): expected at most {STREAMS_MAX}"));
            }
            _ if !load.is_open() && concurrent > REQUESTS_MAX => {
                return Err(format!(
                    "connections (-c) times streams (--streams) make {concurrent} concurrent requests in a closed loop: expected at most \
                     {REQUESTS_MAX}"
                ));
            }
            Some(streams @ 2..) if load.close => {
                return Err(format!(
                    "streams = {streams} (--streams) share a connection, but close (--close) gives each request its own: leave one \
                     of the two out"
                ));
            }
            _ => {}
        }
        if self.host.engine == Engine::IoUring {
            return Err("engine = \"io_uring\" (--engine) does not support HTTP/2: write epoll, or leave it out".into());
        }
        // The default for HTTP/1 becomes h2 when it is written out.
        if let (HttpVersion::Http2, Some(alpn @ (Alpn::Http10 | Alpn::None))) = (load.http, alpn) {
            return Err(format!(
                "alpn = \"{}\" (--alpn) and http = \"2\" (--http) contradict each other: over TLS, HTTP/2 is negotiated by ALPN",
                alpn.name()
            ));
        }
        let lines = load.headers.iter().chain(load.request.iter().flat_map(|request| &request.headers));
        if let Some(name) = lines.filter_map(|line| line.split_once(':')).find_map(of_http1) {
            return Err(format!(
                "`{name}` (-H) is a header of HTTP/1 connections, which HTTP/2 and HTTP/3 forbid: leave it out"
            ));
        }
        let plain = |url: &String| url.trim_start().get(..5).is_some_and(|front| front.eq_ignore_ascii_case("http:"));
        if load.http == HttpVersion::Http2 && load.proxy.is_some() && load.stated_urls().iter().any(plain) {
            return Err(PLAIN_THROUGH_PROXY.into());
        }
        Ok(())
    }

    /// Refuses transport settings that contradict these targets, which a list of URLs may have added.
    ///
    /// # Errors
    /// One sentence.
    pub fn check_targets(&self, targets: &[Target]) -> Result<(), String> {
        let load = &self.load;
        if load.http == HttpVersion::Http3 && targets.iter().any(|target| !target.secure) {
            return Err(super::http3::NEEDS_HTTPS.into());
        }
        if load.http == HttpVersion::Http2 && load.proxy.is_some() && targets.iter().any(|target| !target.secure) {
            return Err(PLAIN_THROUGH_PROXY.into());
        }
        let Some(tls) = &load.tls else { return Ok(()) };
        if self.host.engine == Engine::IoUring {
            return Err(TLS_ON_IO_URING.into());
        }
        let mut secure = targets.iter().filter(|target| target.secure);
        secure.try_for_each(|target| tls.server_name(&target.host).map(drop))
    }
}

/// Most streams of a connection: more than servers allow.
const STREAMS_MAX: u32 = 65_536;
/// Most concurrent requests in a closed loop; memory for each is reserved at the start.
const REQUESTS_MAX: u64 = 10_000_000;

const PLAIN_THROUGH_PROXY: &str = "HTTP/2 through a proxy (--proxy) works only for https:// URLs (TLS inside CONNECT)";

/// Why io_uring is refused with TLS.
pub(super) const TLS_ON_IO_URING: &str =
    "engine = \"io_uring\" (--engine) does not support https:// URLs: write epoll, or leave it out";

/// The name of a header line that HTTP/2 and HTTP/3 forbid (RFC 9113, section 8.2.2; RFC 9114, section 4.2).
fn of_http1<'a>((name, value): (&'a str, &str)) -> Option<&'a str> {
    let name = name.trim();
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    let forbidden = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
    (forbidden.into_iter().any(is) || is("te") && !value.trim().eq_ignore_ascii_case("trailers")).then_some(name)
}

#[cfg(test)]
mod tests {
    use load::Target;

    use crate::{Alpn, Plan};

    fn plan(rest: &str) -> Result<Plan, String> {
        Plan::from_toml(&format!("[load]\nduration = \"1s\"\n{rest}"), "plan.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_of_http2_are_written_out() {
        let plan = plan("url = \"https://h/\"\nhttp = \"2\"\n").unwrap();
        assert_eq!(plan.load.streams, Some(100));
        assert_eq!(plan.load.tls.as_ref().unwrap().alpn, Alpn::H2);
        assert_eq!(Plan::from_toml(&plan.to_toml(), "print").unwrap(), plan);
    }

    #[test]
    fn settings_that_contradict_http2_are_refused() {
        let refused = |rest: &str| plan(rest).unwrap_err();
        let two = |rest: &str| refused(&format!("url = \"https://h/\"\nhttp = \"2\"\n{rest}"));
        assert!(two("streams = 0\n").contains("at least one"));
        assert!(two("streams = 65537\n").contains("at most 65536"));
        assert!(two("streams = 65536\nconnections = 1000\n").contains("65536000 concurrent requests"));
        assert!(plan("url = \"https://h/\"\nhttp = \"2\"\nrate = \"1/s\"\nconnections = 1000000\n").is_ok());
        assert!(two("streams = 2\nclose = true\n").contains("leave one"));
        assert!(two("headers = [\"Connection: close\"]\n").contains("HTTP/1"));
        assert!(two("headers = [\"TE: gzip\"]\n").contains("`TE`"));
        assert!(two("[[load.request]]\nurl = \"/\"\nheaders = [\"Upgrade: x\"]\n").contains("`Upgrade`"));
        assert!(plan("url = \"https://h/\"\nhttp = \"2\"\nheaders = [\"TE: trailers\"]\n").is_ok());
        assert!(two("[load.tls]\nalpn = \"none\"\n").contains("contradict"));
        assert!(two("[host]\nengine = \"io_uring\"\n").contains("HTTP/2"));
        assert!(refused("url = \"http://h/\"\nstreams = 3\n").contains("--http 2"));
        assert!(refused("url = \"https://h/\"\n[load.tls]\nalpn = \"h2\"\n").contains("--http 2"));
        assert!(refused("url = \"http://h/\"\nhttp = \"2\"\nproxy = \"p:1\"\n").contains("CONNECT"));
        let requests = "[[load.request]]\nurl = \"http://h/{client}\"\n";
        assert!(refused(&format!("http = \"2\"\nproxy = \"p:1\"\n{requests}")).contains("CONNECT"));
    }

    /// The schemes of a list's URLs are known only after reading the list.
    #[test]
    fn targets_of_a_list_decide_on_tls_and_transport() {
        let settled = |rest: &str, urls: &[&str]| {
            let mut plan = plan(&format!("urls = \"list\"\n{rest}")).unwrap();
            let targets: Vec<Target> = urls.iter().map(|url| Target::parse(url).unwrap()).collect();
            plan.load.settle_targets(&targets);
            plan.check_targets(&targets).map(|()| plan)
        };
        let secure = settled("http = \"2\"\n", &["http://a/", "https://b/"]).unwrap();
        assert_eq!(secure.load.tls.as_ref().unwrap().alpn, Alpn::H2);
        assert!(secure.load.secure());
        let plain = settled("[load.tls]\ninsecure = true\n", &["http://a/"]).unwrap();
        assert!(plain.load.tls.is_none() && !plain.load.secure());
        let ring = "[host]\nengine = \"io_uring\"\n";
        assert!(settled(ring, &["https://b/"]).unwrap_err().contains("io_uring"));
        assert!(settled(ring, &["http://b/"]).is_ok());
        assert!(settled("http = \"2\"\nproxy = \"p:1\"\n", &["http://a/"]).unwrap_err().contains("CONNECT"));
        assert!(settled("", &["https://-_-/"]).unwrap_err().contains("--sni"));
    }

    #[test]
    fn a_unix_socket_excludes_proxy_address_family_and_path() {
        assert!(plan("url = \"http://h/\"\nunix = \"/run/s\"\n").is_ok());
        let refused = |rest: &str| plan(&format!("url = \"http://h/\"\nunix = \"/run/s\"\n{rest}")).unwrap_err();
        assert!(refused("proxy = \"p:1\"\n").contains("leave one"));
        assert!(refused("[target]\naddresses = [\"192.0.2.1\"]\n").contains("leave one"));
        assert!(refused("[target]\nfamily = \"ipv6\"\n").contains("-6"));
        assert!(refused("[path]\nrtt = \"10ms\"\n").contains("no path"));
    }
}
