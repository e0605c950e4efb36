//! Scripted agents and their exchanges, the same each time: for tests of the manager's API and page, and for
//! screenshots.
//!
//! Most are healthy. One is away, one has a wrong clock, one has names with HTML that must not run, one has lost
//! records; and the last group fails more and more towards the end.

use schema::{TapAddress, TapPeer, TapRow};
use tap_protocol::{Batch, Gauges, Hello, Losses, Program, SpoolUsage};

/// A scripted agent.
#[derive(Clone, Debug)]
pub struct ScriptedAgent {
    /// Index of the agent, from 0.
    pub at: usize,
    /// Name of the agent.
    pub name: String,
    /// Group of the agent.
    pub group: &'static str,
    /// Number of its next batch.
    pub next: u64,
    /// Zero of the agent's clock on the manager's clock, ns since 1970.
    pub zero_ns: u64,
    seed: u64,
}

/// HTML that must never run.
pub const HOSTILE: &str = "<img src=x onerror=window.ran=1>";
/// A hostile program name.
pub const HOSTILE_PROGRAM: &str = "<script>window.ran=1</script>";
/// Index of the agent that sends it.
pub const HOSTILE_AT: usize = 2;
/// Index of the agent whose wall clock is seven minutes ahead.
pub const WRONG_CLOCK_AT: usize = 5;
/// Index of the agent that is away.
pub const DISCONNECTED_AGENT: usize = 9;
/// Index of the agent that lost records.
pub const LOSES_AT: usize = 13;

const SECOND_NS: u64 = 1_000_000_000;
const GROUPS: [&str; 3] = ["kyoto", "osaka", "nara"];
const PROGRAMS: [&str; 5] = ["curl", "firefox", "backupd", "checkout", "nginx"];

/// Creates this number of agents, whose machines were booted at `zero_ns`.
pub fn agents(count: usize, zero_ns: u64) -> Vec<ScriptedAgent> {
    (0..count)
        .map(|at| {
            let group = if at % 10 == 7 { "" } else { GROUPS[at * GROUPS.len() / count.max(1)] };
            let name = format!("{}-{:03}", if group.is_empty() { "spare" } else { group }, at);
            ScriptedAgent { at, name, group, next: 1, zero_ns: zero_ns - at as u64 * SECOND_NS, seed: at as u64 + 1 }
        })
        .collect()
}

impl ScriptedAgent {
    /// Name of the agent's stream.
    pub fn stream(&self) -> String {
        format!("{:032x}", 0x0ab5_u128 << 64 | self.at as u128)
    }

    /// The agent's hello message.
    pub fn hello(&self, now_ns: u64) -> Hello {
        let host = if self.at == HOSTILE_AT { HOSTILE.to_owned() } else { format!("{}.example", self.name) };
        Hello {
            stream: self.stream(),
            boot: format!("00000000-0000-4000-8000-{:012x}", self.at),
            host,
            version: "0.1.0".to_owned(),
            kernel: "6.12.0".to_owned(),
            spool: SpoolUsage { bytes_max: 256 << 20, ..SpoolUsage::default() },
            now_ns: now_ns - self.zero_ns,
            zero_own_unix_ns: self.own_zero_ns(),
            settings: 1,
        }
    }

    /// The agent's wall clock at the zero.
    fn own_zero_ns(&self) -> u64 {
        if self.at == WRONG_CLOCK_AT { self.zero_ns + 420 * SECOND_NS } else { self.zero_ns + self.at as u64 * 40_000 }
    }

    /// The next batch: exchanges that ended from `from_ns` to before `until_ns` (on the manager's clock), about one
    /// each `every_ns`, sealed at `sealed_ns`.
    pub fn batch(&mut self, from_ns: u64, until_ns: u64, every_ns: u64, sealed_ns: u64) -> Batch {
        let mut rows = Vec::new();
        let mut at = from_ns + self.draw(every_ns);
        while at < until_ns {
            rows.push(self.row(at, sealed_ns));
            at += every_ns / 2 + self.draw(every_ns);
        }
        let loses = self.at == LOSES_AT && self.next == 1;
        let batch = Batch {
            stream: self.stream(),
            sequence: self.next,
            boot: format!("00000000-0000-4000-8000-{:012x}", self.at),
            zero_own_unix_ns: self.own_zero_ns(),
            sealed_at_ns: sealed_ns - self.zero_ns,
            settings: 1,
            share: 1.0,
            gauges: Gauges { processes: 3 + self.draw(5), open: self.draw(30), in_flight: self.draw(4) },
            losses: Losses { records: if loses { 1234 } else { 0 }, ..Losses::default() },
            programs: self.programs(rows.len() as u64),
            rows,
        };
        self.next += 1;
        batch
    }

    fn programs(&self, rows: u64) -> Vec<Program> {
        let program = |name: &str, connections: u64, why: &str| Program {
            name: name.to_owned(),
            seen: u64::from(why.is_empty()),
            unseen: u64::from(!why.is_empty()),
            connections,
            unseen_bytes: 0,
            why: why.to_owned(),
        };
        let mut programs = vec![program(self.program(), rows, "")];
        if self.at % 11 == 3 {
            programs.push(program("backup-go", 0, "linked statically"));
        }
        if self.at == HOSTILE_AT {
            programs.push(program(HOSTILE_PROGRAM, 0, HOSTILE));
        }
        programs
    }

    fn program(&self) -> &'static str {
        if self.at == HOSTILE_AT { HOSTILE_PROGRAM } else { PROGRAMS[self.at % PROGRAMS.len()] }
    }

    /// An exchange that ended at `at_ns`. `sealed_ns` is the end of the script: failures increase towards it.
    fn row(&mut self, at_ns: u64, sealed_ns: u64) -> TapRow {
        let remaining_s = (sealed_ns - at_ns.min(sealed_ns)) / SECOND_NS;
        let is_nara = self.group == "nara";
        // Per thousand: some always fail, many of one group in the last quarter of an hour.
        let fails = self.draw(1000) < if is_nara && remaining_s < 900 { 60 } else { 4 };
        // Load of the day, as a share: responses are slowest at 1.
        let day = (at_ns / SECOND_NS % 86_400) as f64 / 86_400.0;
        let busy = 0.5 - 0.5 * (day * std::f64::consts::TAU).cos();
        let base_ms = if self.group == "osaka" { 16.0 } else { 12.0 } + 8.0 * busy + (self.at % 7) as f64;
        let tail = (1.0 - self.draw(1_000_000) as f64 / 1_000_000.0).recip().powf(0.35);
        let response_ns = (base_ms * tail * 1e6) as u64;
        let setup_ns = 4_000_000 + self.draw(2_000_000);
        let end = at_ns - self.zero_ns;
        let request_at = end.saturating_sub(response_ns);
        let opened = request_at.saturating_sub(setup_ns);
        let response_at = request_at + response_ns * 3 / 4;
        let has_response = (!fails).then_some(());
        let host = 1 + self.draw(4) as u8;
        TapRow {
            connection: Some(at_ns / 1000),
            exchange: Some(0),
            last: true,
            pid: 1000 + self.at as u32,
            program: Some(self.program().to_owned()),
            side: if self.program() == "nginx" { "server" } else { "client" }.to_owned(),
            peer: Some(TapPeer { address: TapAddress::Plain([192, 0, 2, host].into()), port: 443 }),
            local: Some(TapPeer { address: TapAddress::Plain([198, 51, 100, 7].into()), port: 50_000 }),
            opened_at_ns: opened,
            lookup_ns: None,
            setup_ns: Some(setup_ns),
            sent_first_at_ns: Some(request_at),
            sent_last_at_ns: Some(request_at + 100_000.min(response_ns / 4)),
            received_first_at_ns: has_response.map(|()| response_at),
            received_last_at_ns: has_response.map(|()| end),
            sent_bytes: 300 + self.draw(200),
            received_bytes: if fails { 0 } else { 2_000 + self.draw(40_000) },
            calls: 4,
            blocked_ns: response_ns,
            outcome: if fails { "failed" } else { "succeeded" }.to_owned(),
            error: fails.then(|| if self.at.is_multiple_of(2) { "ECONNRESET" } else { "no_response" }.to_owned()),
            closed_at_ns: Some(end),
            connection_bytes: None,
            retransmits: Some(u64::from(fails)),
            unseen_bytes: None,
        }
    }

    /// A number below `below`: splitmix64.
    fn draw(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below.max(1)
    }
}
