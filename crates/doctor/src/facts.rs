//! What was seen, tried and measured, before anything is made of it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schema::doctor::Measured;
use sys::accounting::HostFacts;
use sys::cgroup::BoundTrial;
use sys::namespace::Privilege;
use sys::sched::{Cores, Urgency};

/// Everything that findings and abilities are drawn from.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What this user may do.
    pub rights: Rights,
    /// What became of two small ends of a path.
    pub ends: Ends,
    /// The machine as it is.
    pub machine: Machine,
    /// Where runs are kept.
    pub book: BookFacts,
    /// What was measured.
    pub measured: Option<Measured>,
}

/// What came of trying something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// It worked; what was seen, in words.
    Worked(String),
    /// It was refused.
    Refused(Refusal),
    /// It was not tried, because something before it was refused.
    NotTried,
}

/// Who said no, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The call and the kernel's answer.
    pub what: String,
    /// What would mend it, where that is known.
    pub mend: Option<String>,
}

impl Trial {
    /// From a call: `worked` says what it means that it was not refused.
    pub fn of<T>(outcome: sys::Result<T>, worked: &str) -> Trial {
        match outcome {
            Ok(_) => Trial::Worked(worked.to_owned()),
            Err(error) => Trial::Refused(error.into()),
        }
    }

    /// Whether it worked.
    pub fn worked(&self) -> bool {
        matches!(self, Trial::Worked(_))
    }

    /// Who said no.
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Trial::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }
}

impl From<sys::Error> for Refusal {
    fn from(error: sys::Error) -> Self {
        let text = error.to_string();
        match error {
            sys::Error::Refused { remedy, .. } => {
                let what = text.strip_suffix(&remedy).unwrap_or(&text).trim_end_matches("; ").to_owned();
                Refusal { what, mend: Some(remedy) }
            }
            _ => Refusal { what: text, mend: None },
        }
    }
}

/// What this user may do.
#[derive(Clone, Debug)]
pub struct Rights {
    /// Effective user.
    pub user: u32,
    /// Whether this process came in a user namespace that is not the machine's.
    pub in_user_namespace: bool,
    /// How it can come to own namespaces.
    pub privilege: Privilege,
    /// What user 65534 could do; only root can find out.
    pub ordinary_user: Option<Trial>,
    /// What SCHED_FIFO became.
    pub urgency: Urgency,
    /// Keeping idle processors from sleeping.
    pub awake: Trial,
    /// A capturing socket in the host's network.
    pub capture: Trial,
    /// Changing devices and routes of the host's network.
    pub host_network: Trial,
    /// What of this host's own has a route to addresses of the lab: destination and device.
    pub range_taken: Option<String>,
    /// The chain by whose policy this host drops what it forwards, as far as it can be seen.
    pub forwarding_refused_by: Option<String>,
    /// Kernel settings that decide about the above, by name, as far as they exist.
    pub settings: BTreeMap<&'static str, String>,
}

/// What became of two small ends of a path.
#[derive(Clone, Debug)]
pub struct Ends {
    /// A network namespace.
    pub namespace: Trial,
    /// A TUN device in it, with the virtio header.
    pub tun: Trial,
    /// Segmentation and checksum offload on it.
    pub offload: Trial,
    /// Binding to any address of the clients' IPv4 network.
    pub clients_v4: Trial,
    /// The same of IPv6.
    pub clients_v6: Trial,
    /// A command in a PID namespace that dies with the run.
    pub place: Trial,
    /// Receive processing of a device on chosen cores.
    pub steering: Trial,
    /// Congestion control by route.
    pub congestion: Trial,
    /// Packets from a device to 127.0.0.1 (route_localnet).
    pub loopback: Trial,
    /// A firewall table that masquerades, and goes with its descriptor.
    pub masquerade: Trial,
    /// Forwarding of IPv6 for one device alone, or for all of this host.
    pub forward_v6: Trial,
    /// A bound on processor time.
    pub bound: Result<BoundTrial, Refusal>,
    /// The mounted versions of control groups.
    pub cgroups: String,
}

impl Default for Ends {
    /// Nothing was tried.
    fn default() -> Self {
        let not_tried = || Trial::NotTried;
        Ends {
            namespace: not_tried(),
            tun: not_tried(),
            offload: not_tried(),
            clients_v4: not_tried(),
            clients_v6: not_tried(),
            place: not_tried(),
            steering: not_tried(),
            congestion: not_tried(),
            loopback: not_tried(),
            masquerade: not_tried(),
            forward_v6: not_tried(),
            bound: Err(Refusal { what: "not tried".into(), mend: None }),
            cgroups: String::new(),
        }
    }
}

/// The machine as it is.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Kernel, processor, memory, limits.
    pub facts: HostFacts,
    /// Version of the kernel: major and minor.
    pub kernel: Option<(u32, u32)>,
    /// Cores this process may run on.
    pub allowed: Cores,
    /// Bound on processor time, in cores, of a control group this process is in.
    pub quota: Option<f64>,
    /// Memory that programs may still have, in bytes.
    pub memory_available_bytes: u64,
    /// What virtualises this machine.
    pub hypervisor: Option<String>,
    /// What looks like a container.
    pub container: Option<String>,
    /// Share of all cores' time since boot that a hypervisor took, 0 to 1.
    pub steal_since_boot: f64,
    /// Clock source, and those it could be.
    pub clock_source: (String, Vec<String>),
    /// Frequency governors of the cores, each once; empty where the system has no say.
    pub governors: Vec<String>,
    /// Congestion controls that sockets may be given.
    pub congestion_controls: Vec<String>,
    /// Most connections in TIME_WAIT.
    pub time_wait_max: Option<u64>,
    /// What became of setting up an io_uring.
    pub io_uring: Trial,
}

/// Where runs are kept.
#[derive(Clone, Debug)]
pub struct BookFacts {
    /// The folder of runs.
    pub root: PathBuf,
    /// Whether it, or the first folder above it that exists, may be written to.
    pub writable: bool,
    /// Room on its file system, in bytes.
    pub free_bytes: Option<u64>,
}
