//! What was learned, on one screen.

use path::Profile;
use report::figures::{count, duration, level, share};
use report::terminal::{Entry, entries};
use report::{ProfileView, Style};
use schema::document::CheckState;

use super::files::{Targets, loss_words, pace_words};
use super::{Found, document, replay, rtts_ns};

/// The profile with its plot, then what else was seen, then how to replay it.
pub fn render(found: &Found, targets: &Targets, profile: &Profile, style: Style) -> String {
    let learned = &found.learned;
    let view = ProfileView {
        name: profile.name().to_owned(),
        about: profile.about().to_owned(),
        rtts_ns: rtts_ns(profile, learned),
        lines: profile.describe(),
        ..ProfileView::default()
    };
    let mut text = report::terminal::profile(&view, style);
    text.push('\n');
    text.push_str(&entries(&said(found, targets), style));
    text
}

fn said(found: &Found, targets: &Targets) -> Vec<Entry> {
    let learned = &found.learned;
    let tallies = learned.tallies;
    let mut said = Vec::new();
    let mut words = |label: &str, text: String| said.push(Entry::Words(label.to_owned(), text));
    words(
        "connections",
        format!(
            "{} ({} by handshake, {} by data, {} of unknown distance); {} begun and not established",
            count(tallies.connections),
            count(tallies.by_handshake),
            count(tallies.by_data),
            count(tallies.untold),
            count(tallies.half_open)
        ),
    );
    words(
        "clients",
        format!(
            "{}{}, worth {} with equal shares; the busiest hundredth makes {} of the connections, the busiest tenth {}",
            if learned.clients_sampled { "about " } else { "" },
            count(learned.clients),
            level(learned.effective),
            share(learned.shares.busiest_hundredth),
            share(learned.shares.busiest_tenth)
        ),
    );
    words("quantiles", quantiles(found));
    if let Some(spread) = learned.spread {
        words(
            "jitter",
            format!(
                "within a client {} (median absolute deviation, {} clients)",
                duration(spread.deviation_ns),
                count(spread.clients)
            ),
        );
    }
    words("loss up", loss_words(&learned.up));
    words("loss down", loss_words(&learned.down));
    words("arrivals", pace_words(&learned.arrivals));
    for check in document::checks(found).iter().filter(|check| check.state != CheckState::Ok) {
        said.push(Entry::Warning("suspect".to_owned(), format!("{}: {}", check.name, check.why)));
    }
    for note in document::notes(found) {
        said.push(Entry::Words("note".to_owned(), note));
    }
    said.push(Entry::Blank);
    for file in [&targets.profile, &targets.arrivals] {
        said.push(Entry::Verbatim("written".to_owned(), file.display().to_string()));
    }
    said.push(Entry::Verbatim("replay".to_owned(), replay(found, targets)));
    said
}

/// Three quantiles with the range that chance leaves them.
fn quantiles(found: &Found) -> String {
    let shown = found.learned.estimates.iter().filter(|estimate| [0.5, 0.9, 0.99].contains(&estimate.quantile));
    let words: Vec<String> = shown
        .map(|estimate| {
            let end = |ns: Option<u64>| ns.map_or("beyond what was seen".to_owned(), duration);
            format!(
                "p{:.0} {} ({} to {})",
                estimate.quantile * 100.0,
                duration(estimate.rtt_ns),
                end(estimate.low_ns),
                end(estimate.high_ns)
            )
        })
        .collect();
    format!("{}; in brackets what chance leaves open", words.join(", "))
}
