//! A manager with two hundred scripted agents: a day in its files, and new data from now on. Prints the page's URL
//! and serves it until stdin closes.
//!
//! ```text
//! cargo run -p manager --example fleet_day -- [DATA [AGENTS]]
//! ```

#[allow(dead_code, reason = "tests use the other functions")]
#[path = "../tests/support/scripted.rs"]
mod scripted;

use std::error::Error;
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use manager::alerts::{self, Rule};
use manager::start::{Plan, Running};
use manager::tokens::{self, Role};
use manager::{Data, settings};
use scripted::{DISCONNECTED_AGENT, ScriptedAgent, agents};
use serde::Serialize;
use sys::clock::realtime_ns;
use web::post::{Post, Receiver, Roots};

const SECOND_NS: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3600 * SECOND_NS;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let temporary = tempfile::tempdir()?;
    let data = arguments.next().map_or_else(|| temporary.path().join("data"), PathBuf::from);
    let count: usize = arguments.next().map_or(Ok(200), |count| count.parse())?;
    let plan = Plan::new(data, "127.0.0.1:0".parse()?);
    let running = Running::start(&plan, Arc::new(|line| eprintln!("{line}")))?;
    println!("{}", running.page_url());
    let roots = Roots::File(running.served().trusted.clone());
    let now = realtime_ns();
    let mut senders = Vec::new();
    for agent in agents(count, now - 30 * HOUR_NS) {
        let token = tokens::add(running.data(), &agent.name, Role::Agent, now)?;
        senders.push(Sender::new(agent, running.url(), &token, &roots)?);
    }
    for sender in &mut senders {
        sender.post("hello", &sender.agent.hello(now))?;
        let (name, group) = (sender.agent.name.clone(), sender.agent.group);
        running.data().change(|index| settings::set_group(index, &name, group, now))?;
        sender.see(now - 24 * HOUR_NS, now - HOUR_NS, 300 * SECOND_NS)?;
        sender.see(now - HOUR_NS, now, 8 * SECOND_NS)?;
    }
    rules(running.data(), now / SECOND_NS)?;
    tokens::add(running.data(), "not-yet-there", Role::Agent, now)?;
    eprintln!("{count} agents have reported their day");

    let (end_sender, end_receiver) = channel::<()>();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        drop(end_sender);
    });
    let mut last = now;
    while end_receiver.recv_timeout(Duration::from_secs(5)) == Err(RecvTimeoutError::Timeout) {
        let now = realtime_ns();
        for sender in senders.iter_mut().filter(|sender| sender.agent.at != DISCONNECTED_AGENT) {
            sender.see(last, now, 2 * SECOND_NS)?;
        }
        last = now;
    }
    running.stop();
    Ok(())
}

/// Alert rules, one of which fires soon.
fn rules(data: &Data, now_s: u64) -> Result<(), Box<dyn Error>> {
    for rule in [
        r#"{"name":"failing","metric":"error_ratio","threshold":"3%","over":"5m","by":"group"}"#,
        r#"{"name":"slow","metric":"response_p99","threshold":"2s","over":"10m","by":"group","for":"3m"}"#,
        r#"{"name":"silent","metric":"agent_silent","threshold":"1min"}"#,
    ] {
        let rule: Rule = serde_json::from_str(rule)?;
        data.change(|index| alerts::put(index, &rule, now_s))?;
    }
    Ok(())
}

/// A scripted agent, and its connection to the manager.
struct Sender {
    agent: ScriptedAgent,
    post: Post,
}

impl Sender {
    fn new(agent: ScriptedAgent, url: &str, token: &str, roots: &Roots) -> Result<Sender, Box<dyn Error>> {
        let zero = (HeaderName::from_static(tap_protocol::ZERO), HeaderValue::from(agent.zero_ns));
        let error = (HeaderName::from_static(tap_protocol::ZERO_ERROR), HeaderValue::from(300_000));
        let authorization = (AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}"))?);
        let url = format!("{url}api/1/agents/{}", agent.name);
        let receiver = Receiver {
            url,
            headers: vec![zero, error, authorization],
            roots: roots.clone(),
            timeout: Duration::from_secs(60),
        };
        Ok(Sender { agent, post: Post::new(receiver)? })
    }

    fn post(&self, what: &str, body: &impl Serialize) -> Result<(), Box<dyn Error>> {
        let kind = [("content-type", "application/json")];
        let reply = self.post.exchange(&format!("/{what}"), &serde_json::to_vec(body)?, &kind)?;
        if reply.status != 200 {
            return Err(format!("{what}: {} {}", reply.status, String::from_utf8_lossy(&reply.body)).into());
        }
        Ok(())
    }

    /// Sends the exchanges that ended in this time.
    fn see(&mut self, from_ns: u64, until_ns: u64, every_ns: u64) -> Result<(), Box<dyn Error>> {
        let batch = self.agent.batch(from_ns, until_ns, every_ns, until_ns);
        self.post("batches", &batch)
    }
}
