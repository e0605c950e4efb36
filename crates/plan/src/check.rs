//! Checks of a plan, in the order in which contradictions are refused.

use std::time::Duration;

use schema::Method;

use super::{Engine, LoadPlan, Plan, PlanError, WatchAt, transport};

impl Plan {
    /// Refuses contradictions.
    ///
    /// # Errors
    /// One sentence: which keys contradict each other, and what to write instead.
    pub fn check(&self) -> Result<(), PlanError> {
        if let Some(components) = &self.components {
            components.check()?;
        }
        if let Some(capacity) = &self.capacity {
            self.shard.check_of_search().map_err(PlanError::Contradiction)?;
            return capacity.check(self);
        }
        self.check_run().map_err(PlanError::Contradiction)
    }

    fn check_run(&self) -> Result<(), String> {
        if self.name.is_empty() || !self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            return Err(format!("name `{}`: expected letters, digits, - and _", self.name));
        }
        self.host.check()?;
        self.load.check_amount()?;
        self.load.check_arrivals()?;
        self.load.check_body()?;
        self.load.check_workload()?;
        self.check_transport()?;
        self.load.check_tls()?;
        if self.load.secure() && self.host.engine == Engine::IoUring {
            return Err(transport::TLS_ON_IO_URING.into());
        }
        self.check_ends()?;
        self.check_watch()?;
        self.check_target()?;
        self.shard.check(self)
    }

    /// Refuses a server, an origin or a path that do not go together.
    fn check_ends(&self) -> Result<(), String> {
        if let Some(path) = &self.path {
            path.check()?;
        }
        if let Some(origin) = &self.origin {
            origin.check(self)?;
        }
        if self.server.as_ref().is_some_and(|server| server.command.trim().is_empty()) {
            return Err("the server's command (--server) is empty".into());
        }
        if self.server.is_some() && self.path.is_none() {
            return Err("a server of the testbed needs a path: give one (rtt = \"0ms\" is the shortest)".into());
        }
        Ok(())
    }

    /// Refuses captures and taps that cannot work with this plan.
    fn check_watch(&self) -> Result<(), String> {
        if self.path.is_none() && self.watch_at() != WatchAt::None {
            return Err(format!(
                "watch at = \"{}\" (--watch) captures packets at the ends of a path: give one (--rtt 0ms is the shortest), or \
                 leave it out",
                self.watch_at().name()
            ));
        }
        self.watch.check()?;
        if self.watch.keep && self.path.is_some() && self.watch_at() != WatchAt::Both {
            return Err(format!(
                "watch keep = true with at = \"{}\" (--watch): packets are kept of both ends; leave at (--watch) out",
                self.watch_at().name()
            ));
        }
        if self.watch.tap && self.host.engine == Engine::IoUring {
            return Err(
                "tap (--tap) records function calls, which io_uring does not make: write engine = \"epoll\", or leave it out"
                    .into(),
            );
        }
        if self.watch.tap && self.load.unix.is_some() {
            return Err("tap (--tap) records TCP connections only: leave it out, or the Unix socket (--unix)".into());
        }
        Ok(())
    }

    /// Refuses `[target]` settings that belong under `[server]`.
    fn check_target(&self) -> Result<(), String> {
        if let Some(server) = &self.server {
            server.check()?;
            if !self.target.addresses.is_empty() || !self.target.tcp.is_unset() {
                return Err(
                    "[target] addresses and tcp are for a service that already runs; the server of the testbed has its own under \
                     [server]"
                        .into(),
                );
            }
        }
        if self.path.is_none() && !self.target.tcp.is_unset() {
            return Err(
                "[target] tcp (--server-tcp) is set on the route to the clients of a path: give a path (--rtt 0ms is the \
                 shortest), or leave it out"
                    .into(),
            );
        }
        Ok(())
    }
}

impl LoadPlan {
    /// Refuses numbers of connections and clients and lengths that are out of range.
    fn check_amount(&self) -> Result<(), String> {
        if self.connections == Some(0) {
            return Err("connections = 0 (-c): expected at least one".into());
        }
        if let Some(open) = self.open_connections {
            if !self.is_open() || self.close || !self.http.is_http1() {
                return Err("open_connections (--open-connections) need an open loop over HTTP/1: give a \
                     rate (--rate), and leave out close (--close), HTTP/2 and HTTP/3"
                    .into());
            }
            if open == 0 || self.connections.is_some_and(|most| most < open) {
                return Err(format!(
                    "open_connections = {open} (--open-connections): expected at least 1, and at most as many as connections (-c)"
                ));
            }
        }
        if self.users_over.is_some() && (self.is_open() || self.session.is_empty()) {
            return Err(
                "users_over needs a closed loop of sessions: give [[load.session]] and no rate, or leave it out".into(),
            );
        }
        if self.clients == 0 || self.clients > ::path::AddressPlan::CLIENTS_MAX {
            return Err(format!(
                "clients = {} (--clients): expected 1 to {}",
                self.clients,
                ::path::AddressPlan::CLIENTS_MAX
            ));
        }
        if self.requests == Some(0) || self.duration == Some(Duration::ZERO) {
            return Err("the measured phase is empty: expected -n and -d above 0".into());
        }
        if self.requests.is_none() && self.duration.is_none() && self.rate_file.is_none() && self.replay.is_none() {
            return Err("the run has no end: give requests (-n) or duration (-d)".into());
        }
        if self.timeout.is_zero() || self.connect_timeout.is_zero() {
            return Err("a timeout of 0 fails every request: expected more than 0".into());
        }
        Ok(())
    }

    /// Refuses a body that its method does not allow.
    fn check_body(&self) -> Result<(), String> {
        if self.method == Method::Post && !self.has_body() {
            return Err("POST needs a body: text or a file (--body TEXT, --body @FILE)".into());
        }
        if self.body.is_some() && self.body_text.is_some() {
            return Err("body and body_text both define the body: leave one of the two out".into());
        }
        Ok(())
    }
}
