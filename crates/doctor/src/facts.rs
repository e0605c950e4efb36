//! Facts: settings read, features tried and timers measured. Findings and abilities are computed from these.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schema::doctor::Measured;
use sys::accounting::HostFacts;
use sys::cgroup::BoundTrial;
use sys::namespace::Privilege;
use sys::sched::{Cores, Urgency};

/// All input of findings and abilities.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Privileges of this user.
    pub rights: Rights,
    /// Trials with two small ends of a path.
    pub ends: Ends,
    /// The machine.
    pub machine: Machine,
    /// The run store.
    pub run_store: RunStoreFacts,
    /// Measured timers; absent with `--quick`.
    pub measured: Option<Measured>,
}

/// Result of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trial {
    /// The feature works; a description for the report.
    Worked(String),
    /// The feature was refused.
    Refused(Refusal),
    /// The feature was not tried, because an earlier step was refused.
    NotTried,
}

/// Why a feature does not work, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The system call and the kernel's error.
    pub what: String,
    /// The fix, if one is known.
    pub fix: Option<String>,
}

impl Trial {
    /// The result of a call; `worked` describes its success.
    pub fn of<T>(outcome: sys::Result<T>, worked: &str) -> Trial {
        match outcome {
            Ok(_) => Trial::Worked(worked.to_owned()),
            Err(error) => Trial::Refused(error.into()),
        }
    }

    /// Whether the feature works.
    pub fn worked(&self) -> bool {
        matches!(self, Trial::Worked(_))
    }

    /// The refusal; `None` in the other states.
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
            sys::Error::Refused { remedy: fix, .. } => {
                let what = text.strip_suffix(&fix).unwrap_or(&text).trim_end_matches("; ").to_owned();
                Refusal { what, fix: Some(fix) }
            }
            _ => Refusal { what: text, fix: None },
        }
    }
}

/// Privileges of this user.
#[derive(Clone, Debug)]
pub struct Rights {
    /// Effective user.
    pub user: u32,
    /// Whether this process started in a user namespace other than the machine's.
    pub in_user_namespace: bool,
    /// How this process can create its own namespaces.
    pub privilege: Privilege,
    /// Result of creating a user namespace as user 65534; tried as root only.
    pub ordinary_user: Option<Trial>,
    /// Scheduling class of a thread that requests SCHED_FIFO.
    pub urgency: Urgency,
    /// Keeping idle processors awake.
    pub awake: Trial,
    /// A capturing socket in the host's network.
    pub capture: Trial,
    /// Changing devices and routes of the host's network.
    pub host_network: Trial,
    /// A route of this host to addresses of the testbed: destination and device.
    pub range_taken: Option<String>,
    /// The firewall chain whose policy drops forwarded packets, as far as it is visible.
    pub forwarding_refused_by: Option<String>,
    /// Kernel settings that affect the above, by name, as far as they exist.
    pub settings: BTreeMap<&'static str, String>,
}

/// Trials with two small ends of a path.
#[derive(Clone, Debug)]
pub struct Ends {
    /// A network namespace.
    pub namespace: Trial,
    /// A TUN device in it, with the virtio header.
    pub tun: Trial,
    /// Segmentation and checksum offload of that device.
    pub offload: Trial,
    /// Binding to any address of the clients' IPv4 network.
    pub clients_v4: Trial,
    /// Binding to any address of the clients' IPv6 network.
    pub clients_v6: Trial,
    /// A command in a PID namespace that ends with the run.
    pub sandbox: Trial,
    /// Receive processing of a device on chosen cores.
    pub steering: Trial,
    /// Congestion control by route.
    pub congestion: Trial,
    /// Packets from a device to 127.0.0.1 (route_localnet).
    pub loopback: Trial,
    /// A firewall table that masquerades, removed with its descriptor.
    pub masquerade: Trial,
    /// Forwarding of IPv6 for a single device, or for this host.
    pub forward_v6: Trial,
    /// A CPU limit.
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
            sandbox: not_tried(),
            steering: not_tried(),
            congestion: not_tried(),
            loopback: not_tried(),
            masquerade: not_tried(),
            forward_v6: not_tried(),
            bound: Err(Refusal { what: "not tried".into(), fix: None }),
            cgroups: String::new(),
        }
    }
}

/// The machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Kernel, processor, memory, limits.
    pub facts: HostFacts,
    /// Version of the kernel: major and minor.
    pub kernel: Option<(u32, u32)>,
    /// Cores this process may run on.
    pub allowed: Cores,
    /// CPU limit, in cores, of a control group of this process.
    pub quota: Option<f64>,
    /// Memory available to programs, in bytes.
    pub memory_available_bytes: u64,
    /// The hypervisor.
    pub hypervisor: Option<String>,
    /// The container.
    pub container: Option<String>,
    /// Share of all cores' time since boot that the hypervisor took, 0 to 1.
    pub steal_since_boot: f64,
    /// Clock source, and the available ones.
    pub clock_source: (String, Vec<String>),
    /// Frequency governors of the cores, each once; empty if the system has no control.
    pub governors: Vec<String>,
    /// Congestion controls available to sockets.
    pub congestion_controls: Vec<String>,
    /// Most connections in TIME_WAIT.
    pub time_wait_max: Option<u64>,
    /// Result of setting up an io_uring.
    pub io_uring: Trial,
}

/// The run store.
#[derive(Clone, Debug)]
pub struct RunStoreFacts {
    /// The directory.
    pub root: PathBuf,
    /// Whether it, or its nearest existing parent, is writable.
    pub writable: bool,
    /// Free bytes of its file system.
    pub free_bytes: Option<u64>,
}
