//! nats-server, and a second manager that reads the same stream.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::super::networks::MANAGER;
use super::super::parties::{self, path, wait};
use super::super::process::Process;
use super::super::{Result, TEST_TIMEOUT};
use super::{Trial, add};

/// The processes of a trial over NATS.
#[derive(Default)]
pub struct Nats {
    server: Option<Process>,
    second: Option<Process>,
    starts: usize,
}

/// The stream that agents publish to, as all parties address it.
pub fn stream() -> String {
    format!("nats://{MANAGER}:4222/TAPS")
}

impl Trial {
    /// The folder of the second manager's data.
    pub fn second_data(&self) -> PathBuf {
        self.at("manager-2")
    }

    /// Compares the rows of both managers, which have ended: `readers/fleet.py differing`.
    pub fn differing(&self) -> Result<Value> {
        self.read(&["differing", path(&self.second_data())])
    }

    pub(super) fn begin_nats(&mut self) -> Result<()> {
        self.nats = Some(Nats::default());
        self.start_nats()?;
        self.start_second()
    }

    fn start_nats(&mut self) -> Result<()> {
        let Some(nats) = &mut self.nats else { return Ok(()) };
        nats.starts += 1;
        let (data, log) =
            (self.folder.path().join("nats"), self.folder.path().join(format!("logs/nats-{:03}.log", nats.starts)));
        let command = ["nats-server", "-a", MANAGER, "-p", "4222", "-js", "-sd", path(&data)];
        let process = Process::start(self.networks.at_manager(&command), &log)?;
        wait("nats-server is ready", || {
            process.still_runs()?;
            Ok(process.log_text().contains("Server is ready"))
        })?;
        nats.server = Some(process);
        Ok(())
    }

    fn start_second(&mut self) -> Result<()> {
        let (data, log) = (self.second_data(), self.at("logs/manager-2.log"));
        let stream = stream();
        let mut command = vec![path(&self.plan.yamabiko)];
        command.extend(parties::manager_arguments("127.0.0.1:0", "localhost", &data));
        command.extend(["--from", &stream]);
        let process = Process::start(self.networks.at_manager(&command), &log)?;
        if let Some(nats) = &mut self.nats {
            nats.second = Some(process);
        }
        Ok(())
    }

    /// Kills nats-server, and with `second` the second manager, and starts both again.
    pub(super) fn restart_nats(&mut self, duration: Duration, second: bool) -> Result<()> {
        let Some(nats) = &mut self.nats else { return Ok(()) };
        let server = nats.server.take().ok_or("no nats-server")?;
        server.still_runs()?;
        server.end(Signal::SIGKILL, TEST_TIMEOUT)?;
        self.faults_injected.nats_kills += 1;
        if second {
            let process = nats.second.take().ok_or("no second manager")?;
            process.still_runs()?;
            add(&mut self.costs.manager, process.end(Signal::SIGKILL, TEST_TIMEOUT)?);
            self.faults_injected.manager_kills += 1;
        }
        sleep(duration);
        self.start_nats()?;
        if second { self.start_second() } else { Ok(()) }
    }

    /// Waits until the second manager has all rows, too, or none arrives for long.
    pub(super) fn wait_for_second(&self, expected: u64) -> Result<()> {
        let Some(nats) = &self.nats else { return Ok(()) };
        let (mut last, mut since) = (0, Instant::now());
        while last < expected && since.elapsed() < TEST_TIMEOUT / 2 {
            nats.second.as_ref().ok_or("no second manager")?.still_runs()?;
            let stored = self.read_of(&self.second_data(), &["stored"])?["rows"].as_u64().unwrap_or_default();
            if stored != last {
                (last, since) = (stored, Instant::now());
            }
            sleep(Duration::from_millis(300));
        }
        Ok(())
    }

    pub(super) fn end_nats(&mut self) -> Result<()> {
        let Some(nats) = &mut self.nats else { return Ok(()) };
        let second = nats.second.take().ok_or("no second manager")?;
        add(&mut self.costs.manager, second.end(Signal::SIGTERM, TEST_TIMEOUT)?);
        let server = nats.server.take().ok_or("no nats-server")?;
        server.end(Signal::SIGKILL, TEST_TIMEOUT)?;
        Ok(())
    }
}
