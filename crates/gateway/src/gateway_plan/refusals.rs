//! Rejects contradictory gateway plans.

use std::time::Duration;

use crate::tester::message::BYTES_MAX;

use super::{GatewayLocation, GatewayPlan, TestName};

/// Smallest IP packet: 20 + 8 + 24 bytes for a numbered datagram, rounded up.
const SIZE_MIN: u16 = 64;
const SIZE_MAX: u16 = 1500;
const TRIALS_MAX: u32 = 1000;
/// Shorter trials consist mostly of slow start.
const LASTS_MIN: Duration = Duration::from_millis(500);
/// The longest trial that a server accepts.
const LASTS_MAX: Duration = Duration::from_secs(120);
const BUFFER_MIN: u32 = 1024;

impl GatewayPlan {
    /// The first contradiction.
    pub(super) fn contradiction(&self) -> Option<String> {
        if self.name.is_empty() || !self.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
            return Some(format!("name `{}`: expected letters, digits, - and _", self.name));
        }
        if self.tests.is_empty() {
            return Some("tests (--tests): expected at least one".into());
        }
        if has_duplicates(&self.tests)
            || has_duplicates(&self.conditions)
            || has_duplicates(&self.sizes)
            || has_duplicates(&self.links)
        {
            return Some("a test, a condition, a size or a link is given twice: give each once".into());
        }
        if !(1..=TRIALS_MAX).contains(&self.trials) {
            return Some(format!("trials (--trials): expected 1 to {TRIALS_MAX}"));
        }
        if !(LASTS_MIN..=LASTS_MAX).contains(&self.lasts) {
            return Some("lasts (--duration), the length of a trial: expected 500ms to 120s".into());
        }
        if let Some(size) = self.sizes.iter().find(|size| !(SIZE_MIN..=SIZE_MAX).contains(size)) {
            return Some(format!("sizes (--sizes) {size}: expected IP packets of {SIZE_MIN} to {SIZE_MAX} bytes"));
        }
        if self.sizes.is_empty() {
            return Some("sizes (--sizes): expected at least one".into());
        }
        if self.socket_bytes.is_some_and(|bytes| !(BUFFER_MIN..=BYTES_MAX).contains(&bytes))
            || !(1..=BYTES_MAX).contains(&self.message_bytes)
        {
            return Some(format!(
                "socket buffers (--socket-bytes): expected {BUFFER_MIN} to {BYTES_MAX} bytes, or auto; messages (--message-bytes): from 1"
            ));
        }
        if self.loss.value() > 0.5 {
            return Some("loss (--loss): expected at most 50%".into());
        }
        if !(0.001..=0.5).contains(&self.width.value()) {
            return Some("width (--width): expected 0.1% to 50%".into());
        }
        match &self.to {
            GatewayLocation::Lab => self.lab_contradiction(),
            GatewayLocation::Server(address) => self.remote_contradiction(address),
        }
    }

    fn lab_contradiction(&self) -> Option<String> {
        if self.conditions.is_empty() {
            return Some("conditions (--condition): expected at least one".into());
        }
        if self.links.is_empty() {
            return Some("links (--link): expected at least one".into());
        }
        let remote = [
            (self.label.is_some(), "label"),
            (self.proxy.is_some(), "proxy (--proxy)"),
            (self.origin_at.is_some(), "origin_at (--origin-at)"),
            (self.gateway_stat.is_some(), "gateway_stat (--gateway-stat)"),
            (self.token_file.is_some(), "token_file (--token-file)"),
        ];
        remote.iter().find(|(given, _)| *given).map(|(_, key)| {
            format!("{key} applies to a real gateway only (to = \"ADDRESS\", yamabiko gateway client): leave it out")
        })
    }

    fn remote_contradiction(&self, address: &str) -> Option<String> {
        if address.is_empty() {
            return Some("to: expected ADDRESS[:PORT] of a yamabiko gateway server, or lab".into());
        }
        let labs = [
            (!self.conditions.is_empty(), "conditions"),
            (!self.links.is_empty(), "links"),
            (self.share.is_some(), "share"),
            (self.memory.is_some(), "memory"),
            (self.setup.is_some(), "setup"),
        ];
        if let Some((_, key)) = labs.iter().find(|(given, _)| *given) {
            return Some(format!(
                "{key} applies to the emulated gateway only: leave it out; a real gateway is described by label"
            ));
        }
        match (&self.proxy, self.origin_at) {
            (Some(_), None) => Some(
                "proxy (--proxy) needs origin_at (--origin-at): the address of a `yamabiko serve --workload polymix-1` \
                 behind the gateway"
                    .into(),
            ),
            (None, Some(_)) => Some("origin_at (--origin-at) needs proxy (--proxy)".into()),
            (Some(proxy), Some(_)) if proxy.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) => {
                Some(format!("proxy (--proxy) {proxy}: expected HOST:PORT"))
            }
            _ if self.gateway_stat.as_ref().is_some_and(|command| command.trim().is_empty()) => {
                Some("gateway_stat (--gateway-stat): expected a command that prints a /proc/stat".into())
            }
            _ => None,
        }
    }

    /// Whether a test sends datagrams.
    pub fn sends_datagrams(&self) -> bool {
        self.tests.iter().any(|test: &TestName| test.udp())
    }
}

fn has_duplicates<T: PartialEq>(values: &[T]) -> bool {
    values.iter().enumerate().any(|(at, value)| values[..at].contains(value))
}
