//! Queue limits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::{Bytes, parse_duration};

use crate::spec::QueueLimit;

impl FromStr for QueueLimit {
    type Err = String;

    /// `64KB`, `100 packets`, `200ms`.
    fn from_str(typed: &str) -> Result<Self, String> {
        let packets = typed.trim().strip_suffix("packets").or_else(|| typed.trim().strip_suffix("packet"));
        let limit = match packets {
            Some(number) => number.trim().parse().ok().filter(|&packets| packets > 0).map(QueueLimit::Packets),
            None => {
                let bytes = typed.parse::<Bytes>().map(QueueLimit::Bytes);
                bytes.or_else(|_| parse_duration(typed).map(QueueLimit::Time)).ok()
            }
        };
        limit.ok_or_else(|| {
            let why = if typed.trim().parse::<f64>().is_ok() { "has no unit" } else { "is not a queue limit" };
            format!("`{typed}` {why}; a queue limit is written like 64KB, \"100 packets\" or 200ms (time)")
        })
    }
}

impl fmt::Display for QueueLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueLimit::Bytes(bytes) => bytes.fmt(f),
            QueueLimit::Packets(1) => f.write_str("1 packet"),
            QueueLimit::Packets(packets) => write!(f, "{packets} packets"),
            QueueLimit::Time(time) => f.write_str(&units::time::text::exact(*time)),
        }
    }
}

impl Serialize for QueueLimit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for QueueLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
