//! `yamabiko profile show`: shows the distributions of a profile.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use path::{ClientPath, DelayOverTime, LinkSpec, PathSpec, Profile, Propagation};
use report::{ProfileView, Series, Spread, SpreadUnit};
use serde::Serialize;
use units::time::saturating_nanos;

use super::check_clients;
use crate::args;
use crate::exit::Exit;
use crate::terminal;
use crate::verb::bench::print;

/// Number of intervals into which a series over time is divided for the plot.
const SERIES_STEPS: u32 = 400;

/// Prints the profile as plots, as JSON, or as its source file.
pub fn run(show: &args::Show) -> Result<Exit> {
    check_clients(show.clients)?;
    if show.source {
        let Some(text) = Profile::builtin_text(&show.name) else {
            bail!("--source prints the file of a built-in profile; `{}` is not one (yamabiko profile list)", show.name);
        };
        print(text)?;
        return Ok(Exit::Success);
    }
    let profile = testbed::distances::named(&show.name)?;
    let path = profile.path(show.clients);
    if show.json {
        let document = document(&profile, &path);
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
    } else {
        print(&report::terminal::profile(&view(&profile, &path), terminal::style()))?;
    }
    Ok(Exit::Success)
}

fn sorted_rtts(path: &PathSpec) -> Vec<u64> {
    let mut rtts: Vec<u64> = path.clients.iter().map(ClientPath::rtt_ns).collect();
    rtts.sort_unstable();
    rtts
}

fn view(profile: &Profile, path: &PathSpec) -> ProfileView {
    let of = |label: &str, unit, value: &dyn Fn(&ClientPath) -> Option<f64>| Spread {
        label: label.to_owned(),
        unit,
        values: path.clients.iter().map(value).collect(),
    };
    let rate = |link: &LinkSpec| link.rate().value().map(|rate| rate.bits_per_second() as f64);
    ProfileView {
        name: profile.name().to_owned(),
        about: profile.about().to_owned(),
        rtts_ns: sorted_rtts(path),
        lines: profile.describe(),
        spreads: vec![
            of("rate down", SpreadUnit::BitsPerSecond, &|client| rate(&client.down)),
            of("rate up", SpreadUnit::BitsPerSecond, &|client| rate(&client.up)),
            of("loss down", SpreadUnit::Share, &|client| Some(client.down.loss())),
            of("loss up", SpreadUnit::Share, &|client| Some(client.up.loss())),
        ],
        series: series(path),
    }
}

/// One series for each class of clients whose RTT follows a file. The clients of a class share the series.
fn series(path: &PathSpec) -> Vec<Series> {
    let mut seen: Vec<&Arc<DelayOverTime>> = Vec::new();
    let mut found = Vec::new();
    for client in &path.clients {
        let (Propagation::OverTime(up), Propagation::OverTime(down)) =
            (&client.up.propagation, &client.down.propagation)
        else {
            continue;
        };
        if seen.iter().any(|known| Arc::ptr_eq(known, up)) {
            continue;
        }
        seen.push(up);
        let length = up.points().last().map_or(Duration::ZERO, |&(time, _)| time);
        // In a repeating series the last time is the first of the next repetition, so the plot ends just before it.
        let end = if up.repeats() { length.saturating_sub(Duration::from_nanos(1)) } else { length };
        let rtt = |at: u32| saturating_nanos(up.at(end * at / SERIES_STEPS) + down.at(end * at / SERIES_STEPS));
        found.push(Series {
            label: if up.repeats() { "RTT over time, repeated".into() } else { "RTT over time".into() },
            length_ns: saturating_nanos(length),
            delays_ns: (0..=SERIES_STEPS).map(rtt).collect(),
        });
    }
    found
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    name: &'a str,
    about: &'a str,
    clients: usize,
    rtt_ns: schema::document::Quantiles,
    up: LinkDocument,
    down: LinkDocument,
    /// The lines of [`Profile::describe`].
    parts: Vec<String>,
}

/// Figures of a link direction over the clients; rates are absent if no client has one.
#[derive(Serialize)]
struct LinkDocument {
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bits_per_s: Option<RateDocument>,
    loss_mean: f64,
    loss_max: f64,
}

#[derive(Serialize)]
struct RateDocument {
    min: u64,
    p50: u64,
    max: u64,
    /// Clients without a rate limit, which are not in the figures.
    clients_without: usize,
}

fn document<'a>(profile: &'a Profile, path: &PathSpec) -> Document<'a> {
    let link = |of: &dyn Fn(&ClientPath) -> &LinkSpec| {
        let rate = |client| Some(of(client).rate().value()?.bits_per_second());
        let mut rates: Vec<u64> = path.clients.iter().filter_map(rate).collect();
        rates.sort_unstable();
        let losses = path.clients.iter().map(|client| of(client).loss());
        LinkDocument {
            rate_bits_per_s: rates.first().map(|&min| RateDocument {
                min,
                p50: rates[rates.len() / 2],
                max: rates[rates.len() - 1],
                clients_without: path.clients.len() - rates.len(),
            }),
            loss_mean: losses.clone().sum::<f64>() / path.clients.len() as f64,
            loss_max: losses.fold(0.0, f64::max),
        }
    };
    Document {
        schema: "yamabiko.profile/1",
        name: profile.name(),
        about: profile.about(),
        clients: path.clients.len(),
        rtt_ns: stats::quantiles_of_sorted(&sorted_rtts(path)),
        up: link(&|client| &client.up),
        down: link(&|client| &client.down),
        parts: profile.describe(),
    }
}
