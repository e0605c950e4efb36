//! Settings of a gateway link, parsed from text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::emulation::LinkSettings;
use serde::{Deserialize, Serialize};
use units::time::text::exact;
use units::{BitRate, Bytes, Limit, Probability, parse_duration};

/// Settings of both links of the gateway, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Link {
    /// Link rate; unlimited: as fast as this host forwards packets.
    pub rate: Limit<BitRate>,
    /// Queue limit of a link with a rate.
    pub queue: Bytes,
    /// Packet loss probability.
    pub loss: Probability,
    /// RTT of the link, at most 1 s.
    pub rtt: Duration,
}

/// Default queue limit.
const QUEUE: Bytes = LinkSettings::QUEUE;
/// One full packet.
const QUEUE_MIN: Bytes = Bytes(1_500);
/// Limit of the RTT. Both links double it, and the tester's timeouts are 5 s for connecting and 3 s for the first
/// datagram.
const RTT_MAX: Duration = Duration::from_secs(1);

const LINK_SYNTAX: &str =
    "expected a link such as 10Mbit, unlimited or '10Mbit,queue=64KiB,loss=1%,rtt=2ms': a rate, then settings";

impl Link {
    /// As fast as this host forwards packets.
    pub const UNLIMITED: Link =
        Link { rate: Limit::Unlimited, queue: QUEUE, loss: Probability::ZERO, rtt: Duration::ZERO };

    /// A link with only a rate.
    pub const fn of(rate: BitRate) -> Link {
        Link { rate: Limit::At(rate), ..Link::UNLIMITED }
    }

    /// The settings of the emulation.
    pub fn settings(&self) -> LinkSettings {
        LinkSettings { rate: self.rate, queue: self.queue, loss: self.loss, delay: self.rtt / 2 }
    }

    /// Bits per second; `None` if unlimited.
    pub fn bits_per_s(&self) -> Option<f64> {
        self.rate.value().map(|rate| rate.bits_per_second() as f64)
    }
}

/// Parses a list of links: a comma before a rate or `unlimited` begins the next link, one before `name=value` a
/// setting.
///
/// # Errors
/// One sentence.
pub fn links(typed: &str) -> Result<Vec<Link>, String> {
    let mut each: Vec<String> = Vec::new();
    for word in typed.split(',') {
        match each.last_mut() {
            Some(link) if word.contains('=') => {
                link.push(',');
                link.push_str(word);
            }
            _ => each.push(word.to_owned()),
        }
    }
    each.iter().map(|link| link.parse()).collect()
}

impl FromStr for Link {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let mut settings = typed.split(',').map(str::trim);
        let first = settings.next().unwrap_or_default();
        let mut link = match first {
            "unlimited" => Link::UNLIMITED,
            "" => return Err(LINK_SYNTAX.to_owned()),
            rate if rate.contains('=') => return Err(format!("`{rate}` is given before the rate; {LINK_SYNTAX}")),
            rate => Link::of(rate.parse::<BitRate>().map_err(|error| format!("{error}, or unlimited"))?),
        };
        for word in settings {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("`{word}`: {LINK_SYNTAX}"))?;
            let value = value.trim();
            match name.trim() {
                "queue" if link.rate == Limit::Unlimited => {
                    return Err("queue: an unlimited link has no queue; leave it out".to_owned());
                }
                "queue" => link.queue = value.parse().map_err(|error| format!("queue: {error}"))?,
                "loss" => link.loss = value.parse().map_err(|error| format!("loss: {error}"))?,
                "rtt" => link.rtt = parse_duration(value).map_err(|error| format!("rtt: {error}"))?,
                other => return Err(format!("`{other}` is not a valid setting; {LINK_SYNTAX}")),
            }
        }
        if link.queue < QUEUE_MIN {
            return Err(format!("queue={}: expected at least a full packet, {QUEUE_MIN}", link.queue));
        }
        if link.rtt > RTT_MAX {
            return Err("rtt: expected at most 1s".to_owned());
        }
        if link.loss.value() >= 1.0 {
            return Err("loss: expected less than 100%".to_owned());
        }
        Ok(link)
    }
}

impl TryFrom<String> for Link {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        typed.parse().map_err(|why| format!("link `{typed}`: {why}"))
    }
}

impl From<Link> for String {
    fn from(link: Link) -> String {
        link.to_string()
    }
}

impl fmt::Display for Link {
    /// Round-trips through [`FromStr`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rate {
            Limit::At(rate) => write!(f, "{rate}")?,
            Limit::Unlimited => f.write_str("unlimited")?,
        }
        if self.queue != QUEUE {
            write!(f, ",queue={}", self.queue)?;
        }
        if self.loss != Probability::ZERO {
            write!(f, ",loss={}", self.loss)?;
        }
        if !self.rtt.is_zero() {
            write!(f, ",rtt={}", exact(self.rtt))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_links_is_split_at_rates() {
        let read = links("10Mbit,queue=64KB,loss=1%,rtt=2ms,unlimited,100Mbit").unwrap();
        assert_eq!(read.len(), 3);
        assert_eq!((read[0].queue, read[0].loss.value(), read[0].rtt), (Bytes(64_000), 0.01, Duration::from_millis(2)));
        assert_eq!(read[1], Link::UNLIMITED);
        assert_eq!(read[2], Link { queue: QUEUE, ..Link::of(BitRate::from_bits_per_second(100_000_000).unwrap()) });
    }

    #[test]
    fn link_settings_round_trip() {
        for typed in ["unlimited", "10Mbit", "10Mbit,queue=1500B,loss=0.5,rtt=1500us", "unlimited,loss=0.001,rtt=1s"] {
            let link: Link = typed.parse().unwrap();
            assert_eq!(link.to_string().parse(), Ok(link), "{typed}");
        }
        assert_eq!("10Mbit,queue=64KiB".parse::<Link>().unwrap().to_string(), "10Mbit");
    }

    #[test]
    fn invalid_link_settings_are_rejected() {
        for wrong in [
            "",
            "10",
            "fast",
            "loss=1%",
            "10Mbit,loss",
            "10Mbit,delay=1ms",
            "10Mbit,queue=1499B",
            "10Mbit,loss=100%",
            "10Mbit,rtt=1001ms",
            "unlimited,queue=64KB",
            "10Mbit,,rtt=1ms",
        ] {
            assert!(wrong.parse::<Link>().is_err(), "{wrong}");
        }
        assert!(links("10Mbit,,1Mbit").is_err());
    }
}
