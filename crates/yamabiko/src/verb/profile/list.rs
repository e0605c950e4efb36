//! `yamabiko profile list`: lists the built-in profiles with their figures.

use anyhow::Result;
use path::{ClientPath, LinkSpec, Profile};
use report::ProfileEntry;
use serde::Serialize;

use crate::exit::Exit;
use crate::terminal;
use crate::verb::bench::print;

/// Number of clients for which the figures of each profile are computed.
const CLIENTS: u32 = 1000;

/// Prints one line a profile.
pub fn run(json: bool) -> Result<Exit> {
    let entries: Vec<ProfileEntry> =
        Profile::names().filter_map(Profile::builtin).map(|profile| entry(&profile)).collect();
    if json {
        let profiles: Vec<EntryDocument<'_>> = entries.iter().map(EntryDocument::from).collect();
        let document = serde_json::json!({ "schema": "yamabiko.profiles/1", "profiles": profiles });
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
        return Ok(Exit::Success);
    }
    let mut text = report::terminal::profiles(&entries, terminal::style());
    text.push_str(
        "\nAny file of the same form can be used in their place: docs/concepts/profiles.md shows it. The sources of the\n\
         figures: yamabiko profile show NAME --source\n",
    );
    print(&text)?;
    Ok(Exit::Success)
}

fn entry(profile: &Profile) -> ProfileEntry {
    let clients = profile.clients(CLIENTS);
    let mut rtts: Vec<u64> = clients.iter().map(ClientPath::rtt_ns).collect();
    rtts.sort_unstable();
    let at = |q: f64| rtts[((rtts.len() as f64 * q) as usize).min(rtts.len() - 1)];
    ProfileEntry {
        name: profile.name().to_owned(),
        rtt_ns: [at(0.1), at(0.5), at(0.9)],
        down_bits_per_s: median_rate(&clients, |client| &client.down),
        up_bits_per_s: median_rate(&clients, |client| &client.up),
        loss: clients.iter().map(|client| client.down.loss()).sum::<f64>() / f64::from(CLIENTS),
        about: profile.about().to_owned(),
    }
}

fn median_rate(clients: &[ClientPath], link: impl Fn(&ClientPath) -> &LinkSpec) -> Option<f64> {
    let rate = |client| link(client).rate().value().map_or(f64::INFINITY, |rate| rate.bits_per_second() as f64);
    let mut rates: Vec<f64> = clients.iter().map(rate).collect();
    rates.sort_by(f64::total_cmp);
    Some(rates[rates.len() / 2]).filter(|rate| rate.is_finite())
}

#[derive(Serialize)]
struct EntryDocument<'a> {
    name: &'a str,
    about: &'a str,
    rtt_ns: RttDocument,
    #[serde(skip_serializing_if = "Option::is_none")]
    down_bits_per_s_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    up_bits_per_s_p50: Option<f64>,
    loss_down_mean: f64,
}

#[derive(Serialize)]
struct RttDocument {
    p10: u64,
    p50: u64,
    p90: u64,
}

impl<'a> From<&'a ProfileEntry> for EntryDocument<'a> {
    fn from(entry: &'a ProfileEntry) -> Self {
        let [p10, p50, p90] = entry.rtt_ns;
        EntryDocument {
            name: &entry.name,
            about: &entry.about,
            rtt_ns: RttDocument { p10, p50, p90 },
            down_bits_per_s_p50: entry.down_bits_per_s,
            up_bits_per_s_p50: entry.up_bits_per_s,
            loss_down_mean: entry.loss,
        }
    }
}
