//! Makes the document of a run of a program that has ended.

use std::time::Duration;

use schema::document::{Check, Document, Host, Run, SCHEMA, Validity};
use sys::netlink::LinkStats;
use sys::sched::Urgency;

use super::NetPlan;
use super::instruments::Capture;
use super::sandboxes::Sandboxes;
use crate::drive::path_io::PathIo;
use crate::error::TestbedError;
use crate::path_part::Refused;
use crate::recording_folder::RecordingFolder;
use crate::{distances, host, path_part, watch_part};
use validity::evidence::{LoopHealth, WireEvidence};

/// Results when the program has ended.
pub(super) struct Ended<'a> {
    pub plan: &'a NetPlan,
    /// The program and its arguments.
    pub words: String,
    pub sandboxes: &'a Sandboxes,
    pub folder: &'a RecordingFolder,
    pub path: PathIo,
    pub health: LoopHealth,
    /// Scheduling class of the path.
    pub urgency: Urgency,
    /// From the program's start to its end.
    pub phase: Duration,
    /// The devices' counters before and after.
    pub devices: [Option<[LinkStats; 2]>; 2],
    /// Share of all cores' time that the hypervisor took while the program ran.
    pub steal_share: Option<f64>,
    pub capture: Capture,
}

impl Ended<'_> {
    /// The document, with its verdict.
    ///
    /// # Errors
    /// The properties of the host cannot be read.
    pub fn document(&self) -> Result<Document, TestbedError> {
        let packets = self.capture.packets.as_ref();
        let clients = &self.sandboxes.spec.clients[..];
        let mut path_part = path_part::document(distances::name(&self.plan.path), clients, &self.path, None);
        path_part.packet_capture = packets.and_then(|(watched, ..)| watched.between.clone());
        Ok(Document {
            schema: SCHEMA.into(),
            run: Run {
                id: self.folder.id(),
                dir: self.folder.dir(),
                command: self.words.clone(),
                seed: self.plan.seed,
                started_at: store::rfc3339(self.sandboxes.clock.started()),
                duration_s: self.health.wall.as_secs_f64(),
                host: self.host()?,
                ..Run::default()
            },
            validity: Validity::from_checks(self.checks()),
            load: None,
            path: Some(path_part),
            watch: packets.map(|(watched, figures, _)| watch_part::document(watched, figures, self.phase)),
            tap: self.capture.sockets.as_ref().map(|tapped| tapped.part.clone()),
            server: None,
            slo: None,
            cache: None,
        })
    }

    /// The machine, and its use by the run.
    fn host(&self) -> Result<Host, TestbedError> {
        let Sandboxes { cores, wakefulness, topology, far, .. } = self.sandboxes;
        let mut host = host::facts(cores, 1)?;
        host.steal_share = self.steal_share;
        let mut set = |name: &str, value: String| host.settings.insert(name.into(), value);
        set("wait", self.plan.host.wait.name().into());
        set("idle", wakefulness.words().into());
        set("loop_scheduling", self.urgency.name().into());
        set("server_tcp", topology.tcp.clone());
        if !far.is_empty() {
            set("target", format!("{}; by device {}", self.sandboxes.far_end(), topology.server_device));
        }
        set("loop_busy", format!("{:.1}%", 100.0 * self.health.busy_share()));
        if let Some((watched, ..)) = &self.capture.packets {
            set("watch", watched.cost());
        }
        Ok(host)
    }

    /// Checks of the instruments against each other.
    fn checks(&self) -> Vec<Check> {
        let packets = self.capture.packets.as_ref();
        let [before, after] = self.devices;
        let mistaken = path_part::mistaken_drops(before, after, Refused::by(&self.path), false);
        let wire = packets.map(|(watched, figures, _)| WireEvidence {
            watched,
            figures,
            phase_ns: self.phase.as_nanos() as f64,
        });
        let mut checks = vec![validity::unintended_drops_check(mistaken.as_ref())];
        checks.extend(validity::capture_checks(wire.as_ref()));
        if let Some(error) = packets.and_then(|(_, _, error)| error.as_deref()) {
            checks.push(validity::files_whole(error));
        }
        let Some(tapped) = &self.capture.sockets else { return checks };
        let part = &tapped.part;
        checks.extend(validity::tap_checks(part, tapped.cut, tapped.error.as_deref()));
        checks.extend(validity::tap_kernel(part, tapped.client.called, tapped.kernel));
        if let Some((_, figures, _)) = packets {
            let outside = tapped.outside;
            checks.extend(validity::tap_agrees(part, outside, figures.made, figures.up_bytes, figures.down_bytes));
        }
        checks.extend(validity::tap_little(part, tapped.levels.as_ref()));
        checks
    }
}
