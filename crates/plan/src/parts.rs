//! A server in words, `[parts]`: what `predict --parts` adds the measured parts of a server up to. Data only; the adding is a suite.

use serde::{Deserialize, Serialize};
use units::{Bytes, CpuShare, Probability};

use super::PlanError;
use super::named::named;

/// A server as described: which parts each of its requests brings. The connection, TLS and the distances are those of the plan itself
/// (`close`, an https:// URL, `[path]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PartsPlan {
    /// Where bodies come from.
    pub body: BodyFrom,
    /// How it waits for its clients.
    pub waits: Waits,
    /// What it writes down of a request.
    pub log: LogLines,
    /// Whether it reads heads; one that does not answers everything alike.
    pub parse: bool,
    /// Cores that it can use: 1 to 64.
    pub threads: u32,
    /// Share of a core that its processes are held to; absent: that of `[server]`, and without one none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuShare>,
    /// Processes or threads that each keep one connection at a time; absent: as many as are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Share of the connections that take up an earlier TLS session.
    pub resumed: Probability,
    /// Share of the requests whose file is not in the page cache.
    pub cold: Probability,
    /// Sizes of the bodies of its answers, and how often each is asked for.
    pub objects: Vec<ObjectPlan>,
}

/// Objects of one size.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectPlan {
    /// Bytes of the body.
    pub size: Bytes,
    /// Share of the requests, over the sum of all shares.
    #[serde(default = "one")]
    pub share: f64,
}

/// Where the body of an answer comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BodyFrom {
    /// It is in the process's memory.
    #[default]
    Memory,
    /// The file is opened, read and closed for each request.
    Read,
    /// The file is opened and closed for each request, and the kernel sends it (sendfile).
    Sendfile,
}

/// How a server waits for its clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waits {
    /// One loop over all connections, by readiness.
    #[default]
    Epoll,
    /// One loop over all connections, by completion.
    IoUring,
    /// A thread for each connection, that sleeps in its read.
    Threads,
}

/// What is written down of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLines {
    /// Nothing.
    #[default]
    None,
    /// A line, by a write of its own.
    Line,
    /// A line, with others in one write.
    Buffered,
}

named!(BodyFrom: Memory "memory", Read "read", Sendfile "sendfile");
named!(Waits: Epoll "epoll", IoUring "io_uring" | "uring", Threads "threads");
named!(LogLines: None "none", Line "line", Buffered "buffered");

fn one() -> f64 {
    1.0
}

impl Default for PartsPlan {
    fn default() -> Self {
        PartsPlan {
            objects: vec![ObjectPlan { size: Bytes(10_000), share: 1.0 }],
            body: BodyFrom::default(),
            waits: Waits::default(),
            log: LogLines::default(),
            parse: true,
            threads: 1,
            cpu: None,
            workers: None,
            resumed: Probability::new(0.0).expect("a share"),
            cold: Probability::new(0.0).expect("a share"),
        }
    }
}

impl PartsPlan {
    /// The largest object: it is kept in memory, and sent over and over.
    pub const OBJECT_MAX: Bytes = Bytes(64 << 20);
    /// Most sizes of objects.
    pub const OBJECTS_MAX: usize = 100;

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), PlanError> {
        let refuse = |why: String| Err(PlanError::Contradiction(why));
        if self.objects.is_empty() || self.objects.len() > Self::OBJECTS_MAX {
            return refuse(format!("objects of [parts] (--object): from 1 to {} sizes are wanted", Self::OBJECTS_MAX));
        }
        if let Some(object) = self.objects.iter().find(|object| object.size > Self::OBJECT_MAX) {
            return refuse(format!("an object of {} (--object): at most {}", object.size, Self::OBJECT_MAX));
        }
        if self.objects.iter().any(|object| !(object.share > 0.0 && object.share.is_finite())) {
            return refuse("the share of an object (--object SIZE:SHARE) is above 0".into());
        }
        if !(1..=64).contains(&self.threads) {
            return refuse(format!("threads = {} of [parts] (--described-threads): from 1 to 64", self.threads));
        }
        if self.workers == Some(0) {
            return refuse("workers of [parts] (--workers): at least 1".into());
        }
        if self.waits == Waits::IoUring && self.body == BodyFrom::Sendfile {
            return refuse(
                "sendfile is a call that waits, and io_uring has none: body = \"read\" or \"memory\" (--described-body), or waits = \"epoll\" (--described-waits)".into(),
            );
        }
        if self.cold.value() > 0.0 && self.body == BodyFrom::Memory {
            return refuse("what is in memory is never cold: body = \"read\" or \"sendfile\" (--described-body), or no cold (--cold)".into());
        }
        Ok(())
    }

    /// Shares of the objects, which sum up to 1.
    pub fn shares(&self) -> Vec<(u64, f64)> {
        let sum: f64 = self.objects.iter().map(|object| object.share).sum();
        self.objects.iter().map(|object| (object.size.0, object.share / sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_their_sum() {
        let object = |size, share| ObjectPlan { size: Bytes(size), share };
        let parts = PartsPlan { objects: vec![object(1000, 3.0), object(9000, 1.0)], ..PartsPlan::default() };
        assert_eq!(parts.shares(), [(1000, 0.75), (9000, 0.25)]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let usual = PartsPlan::default;
        let object = |size, share| vec![ObjectPlan { size: Bytes(size), share }];
        let share = |share| Probability::new(share).unwrap();
        assert!(usual().check().is_ok());
        assert!(PartsPlan { objects: object(64 << 20, 1.0), ..usual() }.check().is_ok());
        let refused = [
            PartsPlan { objects: Vec::new(), ..usual() },
            PartsPlan { objects: object((64 << 20) + 1, 1.0), ..usual() },
            PartsPlan { objects: object(1, 0.0), ..usual() },
            PartsPlan { objects: object(1, f64::INFINITY), ..usual() },
            PartsPlan { threads: 0, ..usual() },
            PartsPlan { threads: 65, ..usual() },
            PartsPlan { workers: Some(0), ..usual() },
            PartsPlan { waits: Waits::IoUring, body: BodyFrom::Sendfile, ..usual() },
            PartsPlan { cold: share(0.1), ..usual() },
        ];
        for parts in refused {
            assert!(parts.check().is_err(), "{parts:?}");
        }
        assert!(PartsPlan { cold: share(0.1), body: BodyFrom::Read, ..usual() }.check().is_ok());
    }
}
