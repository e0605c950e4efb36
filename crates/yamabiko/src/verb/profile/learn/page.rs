//! Prints a learned profile on one screen.

use path::Profile;
use report::figures::{count, duration, level, share};
use report::terminal::{Entry, entries};
use report::{ProfileView, Style};
use schema::document::CheckState;

use super::files::{Targets, arrivals_text, loss_text};
use super::{CaptureResult, document, replay, rtts_ns};

/// The profile with its plot, further figures of the capture, and the command that replays it.
pub fn render(capture_result: &CaptureResult, targets: &Targets, profile: &Profile, style: Style) -> String {
    let learned = &capture_result.learned;
    let view = ProfileView {
        name: profile.name().to_owned(),
        about: profile.about().to_owned(),
        rtts_ns: rtts_ns(profile, learned),
        lines: profile.describe(),
        ..ProfileView::default()
    };
    let mut text = report::terminal::profile(&view, style);
    text.push('\n');
    text.push_str(&entries(&entries_of(capture_result, targets), style));
    text
}

fn entries_of(capture_result: &CaptureResult, targets: &Targets) -> Vec<Entry> {
    let learned = &capture_result.learned;
    let tallies = learned.tallies;
    let mut list = Vec::new();
    let mut words = |label: &str, text: String| list.push(Entry::Words(label.to_owned(), text));
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
    words("quantiles", quantiles(capture_result));
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
    words("loss up", loss_text(&learned.up));
    words("loss down", loss_text(&learned.down));
    words("arrivals", arrivals_text(&learned.arrivals));
    for check in document::checks(capture_result).iter().filter(|check| check.state != CheckState::Ok) {
        list.push(Entry::Warning("suspect".to_owned(), format!("{}: {}", check.name, check.why)));
    }
    for note in document::notes(capture_result) {
        list.push(Entry::Words("note".to_owned(), note));
    }
    list.push(Entry::Blank);
    for file in [&targets.profile, &targets.arrivals] {
        list.push(Entry::Verbatim("written".to_owned(), file.display().to_string()));
    }
    list.push(Entry::Verbatim("replay".to_owned(), replay(capture_result, targets)));
    list
}

/// Three quantiles with their confidence intervals.
fn quantiles(capture_result: &CaptureResult) -> String {
    let shown =
        capture_result.learned.estimates.iter().filter(|estimate| [0.5, 0.9, 0.99].contains(&estimate.quantile));
    let words: Vec<String> = shown
        .map(|estimate| {
            let end = |ns: Option<u64>| ns.map_or("outside the captured values".to_owned(), duration);
            format!(
                "p{:.0} {} ({} to {})",
                estimate.quantile * 100.0,
                duration(estimate.rtt_ns),
                end(estimate.low_ns),
                end(estimate.high_ns)
            )
        })
        .collect();
    format!("{}; in brackets the confidence interval", words.join(", "))
}
