//! `[shard]`: the part of the load that this machine makes, and the time at which all machines begin.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Plan;

/// The part of the load that this machine makes, and the time at which all machines begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Several machines"))]
pub struct ShardPlan {
    /// Make only this part of the load: shard INDEX of COUNT, from 0/8 to 7/8; other machines make the other shards of
    /// the same plan and seed, and `yamabiko merge` joins the runs. Needs --start-at or --coordinate
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "INDEX/COUNT", requires = "start_of_shards"))]
    pub shard: Option<ShardOf>,
    /// Begin the load at this time by the wall clock, the same for all shards: 2026-11-27T08:00:00Z, or seconds since
    /// 1970
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME", group = "start_of_shards"))]
    pub start_at: Option<StartAt>,
}

/// How the shards of a load find each other. Not a part of the plan: the same load is made wherever they meet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Several machines"))]
pub struct CoordinationOptions {
    /// Meet the other shards at this NATS server, nats://HOST[:PORT][/SESSION]: shard 0 sets the start, ends all, and
    /// merges their runs
    #[cfg_attr(feature = "cli", arg(long, value_name = "URL", group = "start_of_shards", requires = "shard"))]
    #[cfg_attr(feature = "cli", arg(conflicts_with = "no_save"))]
    pub coordinate: Option<String>,
    /// Make a shard on each of these hosts, reached by the system's ssh, and merge their runs here: a,b,user@c
    #[cfg_attr(feature = "cli", arg(long, value_name = "HOST,..", value_delimiter = ',', group = "start_of_shards"))]
    #[cfg_attr(feature = "cli", arg(conflicts_with_all = ["shard", "no_save"]))]
    pub hosts: Vec<String>,
    /// Reach the hosts of --hosts by this command, such as 'ssh -F config' [default: ssh]
    #[cfg_attr(feature = "cli", arg(long, value_name = "COMMAND", requires = "hosts"))]
    pub ssh: Option<String>,
    /// This host of the URL is yours, or its owner has agreed to the load: shards refuse other hosts with public
    /// addresses, unless their /.well-known/yamabiko.txt permits it
    #[cfg_attr(feature = "cli", arg(long, value_name = "HOST", requires = "start_of_shards"))]
    pub i_own_the_target: Vec<String>,
    /// End the load of all shards when one is lost (--hosts; with --coordinate given to shard 0); otherwise its load is
    /// missing
    #[cfg_attr(feature = "cli", arg(long))]
    pub abort_on_lost: bool,
}

/// One of several equal parts of a load: `3/8` is the fourth of eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ShardOf {
    /// Number of this shard, from 0.
    pub index: u32,
    /// Number of shards, at least 1.
    pub count: u32,
}

/// A time by the wall clock, to the nanosecond, from 1970 to the year 2554.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StartAt {
    unix_ns: u64,
}

impl ShardPlan {
    /// This shard with a start that shard 0 sets later (`--coordinate`).
    pub fn coordinated(self) -> Self {
        ShardPlan { start_at: Some(StartAt::LATER), ..self }
    }

    /// Number of shards of the load: 1 for a whole one.
    pub fn count(&self) -> u32 {
        self.shard.map_or(1, |shard| shard.count)
    }

    /// Refuses a start in a search for a capacity: each of its trials has a start of its own.
    ///
    /// # Errors
    /// One sentence: what to write instead.
    pub(crate) fn check_of_search(&self) -> Result<(), String> {
        match self.start_at {
            Some(at) if at != StartAt::LATER => Err(format!(
                "start_at = {at} (--start-at) is the start of one run, and a search for a capacity ([capacity]) makes \
                 many: leave it out, and give --coordinate, by which shard 0 starts each trial"
            )),
            None if self.shard.is_some() => {
                Err("[shard] with [capacity]: the trials of the shards are started by shard 0: give --coordinate"
                    .into())
            }
            _ => Ok(()),
        }
    }

    /// Whether nothing is set.
    pub fn is_unset(&self) -> bool {
        *self == ShardPlan::default()
    }

    /// Refuses what one part of a load cannot do alone.
    ///
    /// # Errors
    /// One sentence: which keys contradict each other, and what to write instead.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), String> {
        let Some(shard) = self.shard else { return Ok(()) };
        if self.start_at.is_none() {
            return Err(format!(
                "shard = \"{shard}\" (--shard) needs start_at (--start-at): the time at which all shards begin"
            ));
        }
        if plan.server.is_some() || plan.origin.is_some() {
            return Err(format!(
                "shard = \"{shard}\" (--shard): a server of the testbed (--server) would be a server for each shard; \
                 start the server by itself and give its URL"
            ));
        }
        if plan.load.cache_workload.is_some() {
            return Err(format!(
                "shard = \"{shard}\" (--shard): the exchanges of a cache workload are verified in one place; leave one of \
                 the two out"
            ));
        }
        // A log's own clients are known when it has been read.
        if plan.load.replay.is_none() {
            self.check_clients(plan)?;
        }
        for (key, value) in [
            ("connections (-c)", plan.load.connections.map(u64::from)),
            ("open_connections (--open-connections)", plan.load.open_connections.map(u64::from)),
            ("requests (-n)", plan.load.requests),
        ] {
            if let Some(value) = value.filter(|&value| value < u64::from(shard.count)) {
                return Err(format!(
                    "{key} = {value} is of the whole load, and fewer than its {} shards: expected at least one for each",
                    shard.count
                ));
            }
        }
        Ok(())
    }

    /// Refuses a path whose clients cannot be divided: a client's link is emulated on one machine, since several would
    /// have several times its rate.
    ///
    /// # Errors
    /// One sentence: which number of clients is expected.
    pub fn check_clients(&self, plan: &Plan) -> Result<(), String> {
        let (Some(shard), Some(_)) = (self.shard, &plan.path) else { return Ok(()) };
        let (load, clients, count) = (&plan.load, plan.load.clients, shard.count);
        if clients < count {
            return Err(format!(
                "clients = {clients} (--clients), fewer than the {count} shards: a client's path is on one machine, so \
                 expected at least {count}"
            ));
        }
        // Connection k of a closed loop is of client k modulo clients, and of shard k modulo count. Without a second
        // connection a client is on one machine.
        let is_shared = load.connections.is_none_or(|connections| connections > clients);
        if !load.is_open() && is_shared && clients % count != 0 {
            return Err(format!(
                "clients = {clients} (--clients): expected a multiple of the {count} shards, so that the connections of a \
                 client, whose path is on one machine, are those of one shard"
            ));
        }
        Ok(())
    }
}

impl ShardOf {
    /// Most shards of a load.
    pub const COUNT_MAX: u32 = 10_000;
}

impl fmt::Display for ShardOf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.index, self.count)
    }
}

impl FromStr for ShardOf {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let digits = |text: &str| text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()));
        let numbers = typed.split_once('/').and_then(|(index, count)| Some((digits(index)?, digits(count)?)));
        let Some((index, count)) = numbers else {
            return Err("expected INDEX/COUNT, such as 3/8: the first of eight is 0/8".into());
        };
        if count == 0 || count > Self::COUNT_MAX {
            return Err(format!("{count} shards: expected 1 to {}", Self::COUNT_MAX));
        }
        if index >= count {
            return Err(format!("shard {index} of {count}: expected 0 to {}", count - 1));
        }
        Ok(ShardOf { index, count })
    }
}

impl StartAt {
    /// A start that is not known yet: one beyond all that can be.
    pub const LATER: StartAt = StartAt { unix_ns: u64::MAX };

    /// The time in nanoseconds since 1970.
    pub const fn of_unix_ns(unix_ns: u64) -> Self {
        StartAt { unix_ns }
    }

    /// Nanoseconds since 1970.
    pub const fn unix_ns(self) -> u64 {
        self.unix_ns
    }

    /// The time as the system's.
    pub fn system_time(self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.unix_ns)
    }
}

impl fmt::Display for StartAt {
    /// RFC 3339, UTC.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Timestamp::from_nanosecond(i128::from(self.unix_ns)) {
            Ok(time) => time.fmt(formatter),
            Err(_) => write!(formatter, "{}", self.unix_ns / 1_000_000_000),
        }
    }
}

impl FromStr for StartAt {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let expected =
            || "expected a time such as 2026-11-27T08:00:00Z (RFC 3339, with Z or an offset) or seconds since 1970";
        if let Some(unix_ns) = unix_seconds(typed) {
            return Ok(StartAt { unix_ns });
        }
        let time: Timestamp = typed.parse().map_err(|_| expected().to_owned())?;
        let unix_ns = u64::try_from(time.as_nanosecond()).map_err(|_| expected().to_owned())?;
        Ok(StartAt { unix_ns })
    }
}

/// Nanoseconds of `SECONDS[.FRACTION]`, with at most nine digits of fraction; `None` for any other text.
fn unix_seconds(typed: &str) -> Option<u64> {
    let (seconds, fraction) = typed.split_once('.').unwrap_or((typed, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let nanoseconds: u64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

macro_rules! as_text {
    ($type:ty) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

as_text!(ShardOf);
as_text!(StartAt);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_numbered_from_0() {
        assert_eq!("0/1".parse(), Ok(ShardOf { index: 0, count: 1 }));
        assert_eq!("9999/10000".parse(), Ok(ShardOf { index: 9999, count: 10_000 }));
        for wrong in
            ["8/8", "0/0", "0/10001", "", "3", "/8", "3/", "-1/8", "+1/8", "1/8/2", "a/b", "1.0/2", "4294967296/9"]
        {
            assert!(wrong.parse::<ShardOf>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn start_times_are_read_and_printed() {
        let at = |typed: &str| typed.parse::<StartAt>().map(StartAt::unix_ns);
        assert_eq!(at("2026-11-27T08:00:00Z"), Ok(1_795_766_400_000_000_000));
        assert_eq!(at("2026-11-27T09:00:00+01:00"), at("2026-11-27T08:00:00Z"));
        assert_eq!(at("1795766400.25"), Ok(1_795_766_400_250_000_000));
        assert_eq!(at("0"), Ok(0));
        for wrong in [
            "",
            "now",
            "2026-11-27",
            "08:00",
            "-1",
            "1e9",
            "1969-12-31T23:59:59Z",
            "1.",
            ".5",
            "1.0123456789",
            "99999999999999999999",
        ] {
            assert!(at(wrong).is_err(), "{wrong}");
        }
        for text in ["2026-11-27T08:00:00Z", "2026-11-27T08:00:00.000000001Z"] {
            assert_eq!(text.parse::<StartAt>().unwrap().to_string(), text);
        }
    }
}
