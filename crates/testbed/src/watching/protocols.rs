//! What the packet capture of a run reads of the load's connections, and why it does not read the rest.

use path::{ChangeKind, PathSpec};
use plan::{HttpVersion, Plan};
use watch::Limits;

use super::secrets::{SecretReceiver, SecretSender, secrets};

/// Protocols that the capture reads.
#[derive(Debug)]
pub struct Protocols {
    /// HTTP/2, QUIC and HTTP/3. Without them HTTP/1 alone.
    pub are_later: bool,
    /// Most concurrent streams that are read of a connection.
    pub streams: usize,
    /// Secrets of the load's connections, which are decrypted with them.
    pub secrets: Option<SecretReceiver>,
    /// Why requests are not compared with the load's, if they are not.
    pub unread: Option<&'static str>,
}

impl Default for Protocols {
    /// HTTP/1 in clear.
    fn default() -> Self {
        Protocols { are_later: false, streams: Limits::default().streams, secrets: None, unread: None }
    }
}

impl Protocols {
    /// The protocols of a plan's connections. The load's loops report their secrets to the sender, if there is one.
    /// `is_one_process`: all loops are threads of this process.
    pub fn of(plan: &Plan, path: Option<&PathSpec>, is_one_process: bool) -> (Protocols, Option<SecretSender>) {
        let rebinds = path.is_some_and(|path| path.changes.iter().any(|change| change.kind == ChangeKind::Rebind));
        let unread = if rebinds { Some(REBOUND_REASON) } else { why_unread(plan, is_one_process) };
        let is_secure = plan.load.secure() || plan.load.http == HttpVersion::Http3;
        let (sender, receiver) = if is_secure && unread.is_none() { Some(secrets()).unzip() } else { (None, None) };
        // A stream that the load has reset stays until the server has answered.
        let streams = (plan.load.streams_at_most() as usize).saturating_mul(2).max(Limits::default().streams);
        let are_later = !plan.load.http.is_http1();
        (Protocols { are_later, streams, secrets: receiver, unread }, sender)
    }
}

const REBOUND_REASON: &str =
    "a change (rebind) gives connections other ports on their way, by which the load's are found in the packets";

/// Why the requests of a plan's connections cannot be read.
fn why_unread(plan: &Plan, is_one_process: bool) -> Option<&'static str> {
    let is_secure = plan.load.secure();
    if !plan.needs_whole_packets() {
        None
    } else if plan.snaplen() < plan::SNAPLEN_MAX {
        Some("--watch-snaplen cuts packets, and TLS, HTTP/2 and HTTP/3 can be read from whole packets only")
    } else if is_secure && plan.load.proxy.is_some() {
        Some("TLS is inside a tunnel of the proxy, where the packet capture does not read it")
    } else if is_secure && !is_one_process {
        Some("the load runs in several processes, which do not report their TLS secrets to the packet capture")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rest: &str, is_one_process: bool) -> (Protocols, Option<SecretSender>) {
        let text = format!("[load]\nduration = \"1s\"\n{rest}\n");
        Protocols::of(&Plan::from_toml(&text, "plan").unwrap(), None, is_one_process)
    }

    #[test]
    fn secrets_are_reported_where_there_is_tls() {
        for (load, are_later, is_secure) in [
            ("url = \"http://h/\"", false, false),
            ("url = \"https://h/\"", false, true),
            ("url = \"http://h/\"\nhttp = \"2\"", true, false),
            ("url = \"https://h/\"\nhttp = \"2\"\nstreams = 5000", true, true),
            ("url = \"https://h/\"\nhttp = \"3\"", true, true),
        ] {
            let (protocols, sender) = of(load, true);
            assert_eq!((protocols.are_later, protocols.unread), (are_later, None), "{load}");
            assert_eq!((protocols.secrets.is_some(), sender.is_some()), (is_secure, is_secure), "{load}");
            assert!(protocols.streams >= if load.contains("5000") { 10_000 } else { 1024 });
        }
    }

    #[test]
    fn reasons_not_to_read_requests_are_named() {
        let reason = |load: &str, is_one_process| of(load, is_one_process).0.unread.unwrap_or_default();
        let cut = "url = \"https://h/\"\n[watch]\nsnaplen = \"1KiB\"";
        assert!(reason(cut, true).contains("--watch-snaplen"));
        assert!(reason("url = \"http://h/\"\nhttp = \"2\"\n[watch]\nsnaplen = \"32KiB\"", true).contains("HTTP/2"));
        assert!(reason("url = \"https://h/\"\nproxy = \"p:1\"", true).contains("proxy"));
        assert!(reason("url = \"https://h/\"", false).contains("several processes"));
        assert_eq!(reason("url = \"http://h/\"\nhttp = \"2\"", false), "");
        assert_eq!(reason("url = \"http://h/\"\n[watch]\nsnaplen = \"1KiB\"", false), "");
    }
    /// The load's ports are not those that the server sees.
    #[test]
    fn requests_behind_a_rebinding_nat_are_not_compared() {
        let plan = Plan::from_toml("[load]\nurl = \"https://h/\"\nduration = \"1s\"\n", "plan").unwrap();
        let mut path = PathSpec::new(vec![path::ClientPath::constant(std::time::Duration::ZERO)]);
        let at = std::time::Duration::ZERO;
        let place = path::ChangedLinks::Clients(0..1);
        path.changes = vec![path::Change { at, duration: None, place, kind: ChangeKind::Rebind }];
        let (protocols, sender) = Protocols::of(&plan, Some(&path), true);
        assert!(protocols.unread.unwrap().contains("rebind") && sender.is_none());
    }
}
