//! `yamabiko export`: sends a run's metrics to a Prometheus server or an OpenTelemetry receiver.
//!
//! ```text
//!   run folder --Figures--> metrics --messages, in order--> post: one at a time, with the protocol's retries
//! ```
//!
//! Only the metrics and the given headers are sent, to the receiver that the user names.

pub(super) mod headers;
mod post;

use anyhow::{Result, ensure};
use report::export::metrics::Metric;
use report::export::{self, Figures, otlp, remote_write};
use store::RunStore;

use self::post::Post;
use super::bench::print;
use super::report::export::open_telemetry::durations;
use crate::args;
use crate::exit::Exit;
use crate::terminal::print_message;

/// Sends the metrics of the run.
pub fn run(arguments: &args::Push) -> Result<Exit> {
    let dir = RunStore::open()?.find(&arguments.run)?;
    // Options are checked before a long table is read.
    let (url, is_otlp) = match (&arguments.remote_write, &arguments.otlp) {
        (Some(url), _) => (url.clone(), false),
        (None, url) => (otlp::metrics_url(url.as_deref().unwrap_or_default()), true),
    };
    let post = Post::new(&url, arguments)?;
    let figures = Figures::read(&dir)?;
    let metrics = export::metrics(&figures);
    let points = metrics.iter().flat_map(|metric| &metric.series).map(|series| series.points.len()).sum::<usize>();
    ensure!(points > 0, "the run has no seconds to send: it is an experiment of several runs, or stored none");
    let sent = if is_otlp {
        let durations = durations(&dir, &store::read_summary(&dir)?)?;
        open_telemetry(&post, &otlp::messages(&figures, &metrics, &durations))?
    } else {
        prometheus(&post, &metrics)?
    };
    print(&format!("{}: {} series sent to {} in {sent}\n", figures.run, series_of(&metrics), post.receiver()))?;
    Ok(Exit::Success)
}

fn prometheus(post: &Post, metrics: &[Metric]) -> Result<String> {
    let messages = remote_write::messages(metrics);
    for (at, message) in messages.iter().enumerate() {
        progress(at, messages.len());
        let headers =
            [("content-encoding", "snappy"), ("content-type", remote_write::CONTENT_TYPE), remote_write::VERSION];
        post.send(&remote_write::body(message), &headers, post::PROMETHEUS_RETRYABLE)?;
    }
    let samples: usize =
        messages.iter().flat_map(|message| &message.timeseries).map(|series| series.samples.len()).sum();
    Ok(format!("{} of remote write, {samples} samples", counted(messages.len())))
}

fn open_telemetry(post: &Post, messages: &[otlp::Request]) -> Result<String> {
    let (mut rejected, mut why) = (0, String::new());
    for (at, message) in messages.iter().enumerate() {
        progress(at, messages.len());
        let headers = [("content-type", otlp::CONTENT_TYPE)];
        let answer = post.send(&otlp::body(message), &headers, web::post::OTLP_RETRYABLE)?;
        // A response that is not OTLP, such as an empty one of a proxy, reports no rejected points.
        if let Ok(Some((points, words))) = otlp::rejected(&answer) {
            rejected += points;
            why = words;
        }
    }
    if rejected > 0 {
        // The receiver accepted the rest. An io::Error makes this an error of the environment; a retry would not help.
        let words = report::figures::plain(why.lines().next().unwrap_or_default());
        let error = std::io::Error::other(format!("the receiver rejected {rejected} points: {words}"));
        return Err(anyhow::Error::from(error).context(format!("sending to {}", post.receiver())));
    }
    Ok(format!("{} of OTLP", counted(messages.len())))
}

fn series_of(metrics: &[Metric]) -> usize {
    metrics.iter().map(|metric| metric.series.len()).sum()
}

fn counted(messages: usize) -> String {
    if messages == 1 { "1 message".to_owned() } else { format!("{messages} messages") }
}

/// Prints progress after every 50 messages.
fn progress(at: usize, of: usize) {
    if at > 0 && at.is_multiple_of(50) {
        print_message(format_args!("{at} of {of} messages sent"));
    }
}
