//! What carries the requests: the version of HTTP, streams, a Unix socket, a proxy.

use load::Target;

use super::{Alpn, Engine, HttpVersion, LoadPlan, Plan};

/// Streams of an HTTP/2 connection, where the plan does not say how many.
pub const STREAMS: u32 = 100;

impl LoadPlan {
    /// Requests at once on a connection, as far as the server allows: 1 but for HTTP/2.
    pub fn streams_at_most(&self) -> u32 {
        match self.http {
            HttpVersion::Http2 if self.close => 1,
            HttpVersion::Http2 => self.streams.unwrap_or(STREAMS),
            HttpVersion::Http10 | HttpVersion::Http11 => 1,
        }
    }

    /// Writes the defaults of HTTP/2 out where it is asked for.
    pub fn settle_transport(&mut self) {
        if self.http == HttpVersion::Http2 {
            self.streams = Some(self.streams_at_most());
            if let Some(tls) = &mut self.tls
                && tls.alpn == Alpn::default()
            {
                tls.alpn = Alpn::H2;
            }
        }
    }
}

impl Plan {
    /// Refuses what cannot carry the requests.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn check_transport(&self) -> Result<(), String> {
        let load = &self.load;
        self.check_http2()?;
        if let Some(socket) = &load.unix {
            let socket = socket.display();
            if self.path.is_some() || self.server.is_some() {
                return Err(format!(
                    "unix = \"{socket}\" (--unix) is a socket of this host, to which no path leads: leave out the path and \
                     --server, or the socket"
                ));
            }
            if load.proxy.is_some() || !self.target.addresses.is_empty() {
                return Err(format!(
                    "unix = \"{socket}\" (--unix) says where to connect, and so does a proxy (--proxy) or an address (--to): \
                     leave one of the two out"
                ));
            }
        }
        if let (Some(proxy), false) = (&load.proxy, self.target.addresses.is_empty()) {
            return Err(format!(
                "[target] addresses (--to) are the URL's host's, but with a proxy (--proxy {proxy}) that is the proxy's to \
                 find: leave one of the two out"
            ));
        }
        Ok(())
    }

    fn check_http2(&self) -> Result<(), String> {
        let load = &self.load;
        let alpn = load.tls.as_ref().map(|tls| tls.alpn);
        if load.http != HttpVersion::Http2 {
            if load.streams.is_some() {
                return Err("streams (--streams) are HTTP/2's: ask for it with http = \"2\" (--http 2)".into());
            }
            return match alpn {
                Some(Alpn::H2) => {
                    Err("alpn = \"h2\" (--alpn) offers HTTP/2: ask for it with http = \"2\" (--http 2)".into())
                }
                _ => Ok(()),
            };
        }
        match load.streams {
            Some(0) => return Err("streams = 0 (--streams): at least one is needed".into()),
            Some(streams @ 2..) if load.close => {
                return Err(format!(
                    "streams = {streams} (--streams) share a connection, close (--close) gives each request its own: leave one \
                     of the two out"
                ));
            }
            _ => {}
        }
        if self.host.engine == Engine::IoUring {
            return Err(
                "engine = \"io_uring\" (--engine) has no way for HTTP/2 yet: write epoll, or leave it out".into()
            );
        }
        // The default is what is offered for HTTP/1; written out it becomes h2.
        if let Some(alpn @ (Alpn::Http10 | Alpn::None)) = alpn {
            return Err(format!(
                "alpn = \"{}\" (--alpn) and http = \"2\" (--http) contradict each other: over TLS HTTP/2 is chosen by ALPN",
                alpn.name()
            ));
        }
        if let Some(name) = load.headers.iter().filter_map(|line| line.split(':').next()).find(|name| {
            let forbidden = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
            forbidden.iter().any(|other| name.trim().eq_ignore_ascii_case(other))
        }) {
            return Err(format!(
                "`{}` (-H) is a header of HTTP/1 connections, which HTTP/2 has not: leave it out",
                name.trim()
            ));
        }
        let plain = Target::parse(&load.url).is_ok_and(|target| !target.secure);
        if load.proxy.is_some() && plain {
            return Err("HTTP/2 goes through a proxy (--proxy) only inside TLS, to https:// URLs, by CONNECT".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::plan::{Alpn, Plan};

    fn plan(rest: &str) -> Result<Plan, String> {
        Plan::from_toml(&format!("[load]\nduration = \"1s\"\n{rest}"), "plan.toml").map_err(|error| error.to_string())
    }

    #[test]
    fn http2_is_written_out() {
        let plan = plan("url = \"https://h/\"\nhttp = \"2\"\n").unwrap();
        assert_eq!(plan.load.streams, Some(100));
        assert_eq!(plan.load.tls.as_ref().unwrap().alpn, Alpn::H2);
        assert_eq!(Plan::from_toml(&plan.to_toml(), "print").unwrap(), plan);
    }

    #[test]
    fn what_contradicts_http2_is_refused() {
        let refused = |rest: &str| plan(rest).unwrap_err();
        let two = |rest: &str| refused(&format!("url = \"https://h/\"\nhttp = \"2\"\n{rest}"));
        assert!(two("streams = 0\n").contains("at least one"));
        assert!(two("streams = 2\nclose = true\n").contains("leave one"));
        assert!(two("headers = [\"Connection: close\"]\n").contains("HTTP/1"));
        assert!(two("[load.tls]\nalpn = \"none\"\n").contains("contradict"));
        assert!(two("[host]\nengine = \"io_uring\"\n").contains("HTTP/2"));
        assert!(refused("url = \"http://h/\"\nstreams = 3\n").contains("--http 2"));
        assert!(refused("url = \"https://h/\"\n[load.tls]\nalpn = \"h2\"\n").contains("--http 2"));
        assert!(refused("url = \"http://h/\"\nhttp = \"2\"\nproxy = \"p:1\"\n").contains("CONNECT"));
    }

    #[test]
    fn a_unix_socket_is_the_only_way_there() {
        assert!(plan("url = \"http://h/\"\nunix = \"/run/s\"\n").is_ok());
        let refused = |rest: &str| plan(&format!("url = \"http://h/\"\nunix = \"/run/s\"\n{rest}")).unwrap_err();
        assert!(refused("proxy = \"p:1\"\n").contains("leave one"));
        assert!(refused("[target]\naddresses = [\"192.0.2.1\"]\n").contains("leave one"));
        assert!(refused("[path]\nrtt = \"10ms\"\n").contains("no path"));
    }
}
