//! The server model of `predict --components`, `[components]`: data only, the sum is computed by the experiment.

use serde::{Deserialize, Serialize};
use units::{Bytes, CpuShare, Probability};

use super::PlanError;
use super::named::named;

/// A server model: the components of each request. Connections, TLS and distances are those of the plan (`close`, an
/// https:// URL, `[path]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComponentsPlan {
    /// Where bodies come from.
    pub body: BodyFrom,
    /// How the server waits for its clients.
    pub waits: Waits,
    /// What the server logs per request.
    pub log: LogLines,
    /// Whether the server parses heads; if not, all responses are the same.
    pub parse: bool,
    /// Cores that the server can use: 1 to 64.
    pub threads: u32,
    /// CPU limit of its processes as a share of a core; absent: that of `[server]`, otherwise none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<CpuShare>,
    /// Processes or threads that each serve one connection at a time; absent: as many as necessary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workers: Option<u32>,
    /// Share of resumed TLS sessions among the connections.
    pub resumed: Probability,
    /// Share of the requests whose file is not in the page cache.
    pub cold: Probability,
    /// Sizes of response bodies, with their shares.
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

/// Where the body of a response comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BodyFrom {
    /// From memory of the process.
    #[default]
    Memory,
    /// From a file that is opened, read and closed per request.
    Read,
    /// From a file that is opened and closed per request and sent by the kernel (sendfile).
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
    /// A thread per connection, blocked in read.
    Threads,
}

/// What a server logs per request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LogLines {
    /// Nothing.
    #[default]
    None,
    /// A line, by its own write.
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

impl Default for ComponentsPlan {
    fn default() -> Self {
        ComponentsPlan {
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

impl ComponentsPlan {
    /// Largest object: it is kept in memory and sent repeatedly.
    pub const OBJECT_MAX: Bytes = Bytes(64 << 20);
    /// Largest number of sizes.
    pub const OBJECTS_MAX: usize = 100;

    /// Refuses contradictory values.
    ///
    /// # Errors
    /// The contradiction, as a sentence.
    pub fn check(&self) -> Result<(), PlanError> {
        let refuse = |why: String| Err(PlanError::Contradiction(why));
        if self.objects.is_empty() || self.objects.len() > Self::OBJECTS_MAX {
            return refuse(format!("objects of [components] (--object): expected 1 to {} sizes", Self::OBJECTS_MAX));
        }
        if let Some(object) = self.objects.iter().find(|object| object.size > Self::OBJECT_MAX) {
            return refuse(format!("an object of {} (--object): expected at most {}", object.size, Self::OBJECT_MAX));
        }
        if self.objects.iter().any(|object| !(object.share > 0.0 && object.share.is_finite())) {
            return refuse("the share of an object (--object SIZE:SHARE): expected a number above 0".into());
        }
        if !(1..=64).contains(&self.threads) {
            return refuse(format!("threads = {} of [components] (--model-threads): expected 1 to 64", self.threads));
        }
        if self.workers == Some(0) {
            return refuse("workers = 0 of [components] (--workers): expected 1 or more".into());
        }
        if self.waits == Waits::IoUring && self.body == BodyFrom::Sendfile {
            return refuse(
                "sendfile blocks, and io_uring has no such operation: give body = \"read\" or \"memory\" \
                 (--model-body), or waits = \"epoll\" (--model-waits)"
                    .into(),
            );
        }
        if self.cold.value() > 0.0 && self.body == BodyFrom::Memory {
            return refuse(
                "cold requests need files: give body = \"read\" or \"sendfile\" (--model-body), or omit \
                           cold (--cold)"
                    .into(),
            );
        }
        Ok(())
    }

    /// Shares of the objects, normalised to 1.
    pub fn shares(&self) -> Vec<(u64, f64)> {
        let sum: f64 = self.objects.iter().map(|object| object.share).sum();
        self.objects.iter().map(|object| (object.size.0, object.share / sum)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_shares_are_normalised() {
        let object = |size, share| ObjectPlan { size: Bytes(size), share };
        let parts = ComponentsPlan { objects: vec![object(1000, 3.0), object(9000, 1.0)], ..ComponentsPlan::default() };
        assert_eq!(parts.shares(), [(1000, 0.75), (9000, 0.25)]);
    }

    #[test]
    fn contradictory_server_model_is_refused() {
        let usual = ComponentsPlan::default;
        let object = |size, share| vec![ObjectPlan { size: Bytes(size), share }];
        let share = |share| Probability::new(share).unwrap();
        assert!(usual().check().is_ok());
        assert!(ComponentsPlan { objects: object(64 << 20, 1.0), ..usual() }.check().is_ok());
        let refused = [
            ComponentsPlan { objects: Vec::new(), ..usual() },
            ComponentsPlan { objects: object((64 << 20) + 1, 1.0), ..usual() },
            ComponentsPlan { objects: object(1, 0.0), ..usual() },
            ComponentsPlan { objects: object(1, f64::INFINITY), ..usual() },
            ComponentsPlan { threads: 0, ..usual() },
            ComponentsPlan { threads: 65, ..usual() },
            ComponentsPlan { workers: Some(0), ..usual() },
            ComponentsPlan { waits: Waits::IoUring, body: BodyFrom::Sendfile, ..usual() },
            ComponentsPlan { cold: share(0.1), ..usual() },
        ];
        for parts in refused {
            assert!(parts.check().is_err(), "{parts:?}");
        }
        assert!(ComponentsPlan { cold: share(0.1), body: BodyFrom::Read, ..usual() }.check().is_ok());
    }
}
