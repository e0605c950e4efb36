//! Selects the rows that are sent, and hashes the addresses in them. Excluded rows are counted here and forgotten.

use std::net::IpAddr;

use ring::hmac;
use schema::TapExchange;
use stats::Rng;
use tap::Only;
use tap::filter::service_port;

use schema::{TapAddress, TapRow};
use tap_protocol::Settings;

/// Selects exchanges by the settings and turns them into rows.
#[derive(Debug)]
pub(crate) struct RowSelector {
    only: Vec<Only>,
    programs: Vec<String>,
    share: f64,
    seed: u64,
    key: Option<hmac::Key>,
}

/// Result of the selection for an exchange.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "the value is matched immediately after it is returned")]
pub(crate) enum Selection {
    /// The exchange is sent as this row.
    Row(TapRow),
    /// The filter excludes the exchange.
    Filtered,
    /// The connection of the exchange was not sampled.
    NotSampled,
}

impl RowSelector {
    /// Applies `settings`; samples connections with `seed`; hashes addresses with `key`, if there is one.
    pub fn new(settings: &Settings, seed: u64, key: Option<&[u8; 32]>) -> RowSelector {
        let key = key.map(|key| hmac::Key::new(hmac::HMAC_SHA256, key));
        let mut selector = RowSelector { only: Vec::new(), programs: Vec::new(), share: 1.0, seed, key };
        selector.apply_settings(settings);
        selector
    }

    /// Applies new settings. They must have passed [`check`]; invalid conditions would match nothing.
    pub fn apply_settings(&mut self, settings: &Settings) {
        self.only = settings.only.iter().filter_map(|typed| typed.parse().ok()).collect();
        self.programs.clone_from(&settings.programs);
        self.share = settings.share;
    }

    /// Selects `exchange`. All rows of a connection are sampled, or none.
    pub fn select(&self, exchange: &TapExchange) -> Selection {
        let port = service_port(exchange);
        let matches_peer = self.only.is_empty() || self.only.iter().any(|only| only.matches(exchange.peer, port));
        let matches_program =
            || exchange.program.as_deref().is_some_and(|name| self.programs.iter().any(|one| one == name));
        if !matches_peer || !(self.programs.is_empty() || matches_program()) {
            return Selection::Filtered;
        }
        if self.share < 1.0 {
            // A name lookup without a connection is sampled by itself.
            let number = exchange.connection.unwrap_or(exchange.opened_at.as_nanos() ^ (u64::from(exchange.pid) << 40));
            if Rng::new(self.seed, number).uniform() >= self.share {
                return Selection::NotSampled;
            }
        }
        Selection::Row(TapRow::of(exchange, &|ip| self.address(ip)))
    }

    fn address(&self, ip: IpAddr) -> TapAddress {
        // An address has one hash, in IPv4 and in mapped form.
        let ip = ip.to_canonical();
        let Some(key) = &self.key else { return TapAddress::Plain(ip) };
        let tag = match ip {
            IpAddr::V4(ip) => hmac::sign(key, &ip.octets()),
            IpAddr::V6(ip) => hmac::sign(key, &ip.octets()),
        };
        let first = tag.as_ref().first_chunk::<8>().expect("SHA-256 has 32 bytes");
        TapAddress::Hashed(u64::from_be_bytes(*first))
    }
}

/// Checks whether settings can be applied.
///
/// # Errors
/// The reason, in words.
pub(crate) fn check(settings: &Settings) -> Result<(), String> {
    if !(settings.share > 0.0 && settings.share <= 1.0) {
        return Err(format!("a share of {} is not valid: expected above 0 and at most 1", settings.share));
    }
    if settings.version == 0 {
        return Err("settings version 0 is not valid: expected 1 or higher".to_owned());
    }
    match settings.only.iter().find_map(|typed| typed.parse::<Only>().err()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::TapSide;

    fn exchange(connection: u64) -> TapExchange {
        TapExchange {
            connection: Some(connection),
            peer: Some("192.0.2.7:443".parse().unwrap()),
            local: Some("[::ffff:192.0.2.1]:50000".parse().unwrap()),
            program: Some("curl".into()),
            side: TapSide::Client,
            ..TapExchange::BLANK
        }
    }

    fn settings(only: &[&str], programs: &[&str], share: f64) -> Settings {
        let owned = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Settings { version: 2, only: owned(only), programs: owned(programs), share }
    }

    #[test]
    fn rows_are_filtered_by_peer_port_and_program() {
        for (only, programs, is_chosen) in [
            (&[][..], &[][..], true),
            (&["443"], &[], true),
            (&["80", "192.0.2.0/24"], &["wget", "curl"], true),
            (&["80"], &[], false),
            (&[], &["wget"], false),
            (&["443"], &["cur"], false),
        ] {
            let selector = RowSelector::new(&settings(only, programs, 1.0), 1, None);
            let choice = selector.select(&exchange(1));
            assert_eq!(matches!(choice, Selection::Row(_)), is_chosen, "{only:?} {programs:?}");
        }
        let lookup = TapExchange { connection: None, peer: None, local: None, ..exchange(1) };
        assert_eq!(RowSelector::new(&settings(&["443"], &[], 1.0), 1, None).select(&lookup), Selection::Filtered);
    }

    #[test]
    fn connections_are_sampled_whole_at_the_configured_share() {
        let selector = RowSelector::new(&settings(&[], &[], 0.25), 7, None);
        let is_drawn = |number| matches!(selector.select(&exchange(number)), Selection::Row(_));
        let drawn = (0..10_000).filter(|number| is_drawn(*number)).count();
        // 130 is three standard deviations.
        assert!((2_350..2_650).contains(&drawn), "{drawn}");
        assert!((0..1_000).all(|number| is_drawn(number) == is_drawn(number)));
        // A larger share includes all connections of a smaller one: the operator can raise it without losing a
        // connection.
        let wider = RowSelector::new(&settings(&[], &[], 0.5), 7, None);
        let both = |number| !is_drawn(number) || matches!(wider.select(&exchange(number)), Selection::Row(_));
        assert!((0..1_000).all(both));
    }

    #[test]
    fn hashed_addresses_stay_distinct_and_reveal_nothing() {
        let hashed = |key: &[u8; 32]| {
            let Selection::Row(row) = RowSelector::new(&Settings::default(), 1, Some(key)).select(&exchange(1)) else {
                panic!()
            };
            (row.peer.unwrap(), row.local.unwrap())
        };
        let (peer, local) = hashed(&[1; 32]);
        assert_eq!((peer.port, local.port), (443, 50_000));
        assert!(matches!((peer.address, local.address), (TapAddress::Hashed(a), TapAddress::Hashed(b)) if a != b));
        assert_eq!(hashed(&[1; 32]), (peer.clone(), local.clone()));
        assert_ne!(hashed(&[2; 32]).0, peer);
        // An IPv4 address and its IPv6-mapped form are equal.
        let selector = RowSelector::new(&Settings::default(), 1, Some(&[1; 32]));
        assert_eq!(selector.address("192.0.2.1".parse().unwrap()), local.address);
        // Reference value: HMAC-SHA-256 of the four bytes with a key of 32 ones, computed by another program.
        assert_eq!(local.address.to_string(), "h:6cf5eedfd3530cb1");
    }

    #[test]
    fn invalid_settings_are_rejected() {
        assert_eq!(check(&settings(&["443"], &["curl"], 0.001)), Ok(()));
        for wrong in [
            settings(&[], &[], 0.0),
            settings(&[], &[], 1.01),
            settings(&[], &[], f64::NAN),
            settings(&["x"], &[], 1.0),
        ] {
            assert!(check(&wrong).is_err(), "{wrong:?}");
        }
        assert!(check(&Settings { version: 0, ..Settings::default() }).is_err());
    }
}
