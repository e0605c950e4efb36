//! `--try`: the run again with the remedy that the sentence names, and what was predicted beside what was measured.

use explain::{Advice, Prediction, Remedy, Summary};
use plan::{HttpVersion, Plan};
use schema::Verdict;
use units::Bytes;
use units::figures::duration;

/// A remedy that was tried.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Attempt {
    /// What was changed, as options of `bench`.
    pub change: String,
    /// The change and its predicted response time.
    pub prediction: Prediction,
    /// Response time without the change, nanoseconds: of the response for which the gain was predicted.
    pub before_ns: u64,
    /// Median response time of the run with the change, at the same distance, nanoseconds.
    pub measured_ns: u64,
    /// The run with the change.
    pub run: String,
    /// Its verdict.
    pub verdict: Verdict,
    /// What limits that run.
    pub sentence: String,
}

impl Attempt {
    /// Predicted beside measured, in a line.
    pub fn text(&self) -> String {
        let Attempt { change, prediction, before_ns, measured_ns, run, verdict, .. } = self;
        let verdict = verdict.name();
        format!(
            "Tried {change}: the median response took {} before, {} were predicted, {} were measured \
             (run {run}, {verdict}).",
            duration(*before_ns),
            duration(prediction.response_time_ns),
            duration(*measured_ns)
        )
    }
}

/// What came of `--try`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Try {
    /// A run with the remedy was made.
    Tried(Attempt),
    /// Nothing was tried; why, in a sentence.
    NotTried(String),
}

impl Try {
    /// A line about it.
    pub fn text(&self) -> String {
        match self {
            Try::Tried(attempt) => attempt.text(),
            Try::NotTried(why) => format!("Not tried: {why}."),
        }
    }
}

/// The plan with the remedy of the summary's sentence, the change as options, and what is predicted of it.
///
/// # Errors
/// Why there is no remedy that a run can have, in a sentence without a full stop.
pub fn changed(plan: &Plan, summary: &Summary) -> Result<(Plan, String, Advice), String> {
    let Some(advice) = summary.advice else {
        return Err("the sentence names no remedy whose gain is known".to_owned());
    };
    let mut plan = plan.clone();
    let change = match advice.prediction.remedy {
        Remedy::InitialWindow(segments) => {
            if plan.load.http == HttpVersion::Http3 {
                return Err("the initial window of HTTP/3 is the server's own setting".to_owned());
            }
            let Some(server) = &mut plan.server else {
                return Err("the initial window of a service that runs already is the service's own setting; \
                            `ip route change .. initcwnd` sets it on its host"
                    .to_owned());
            };
            let segments = u32::try_from(segments).unwrap_or(u32::MAX).min(INITCWND_MAX);
            server.tcp.initcwnd = Some(segments);
            format!("--server-tcp initcwnd={segments}")
        }
        Remedy::KeepAlive if plan.load.close => {
            plan.load.close = false;
            "persistent connections, without --close".to_owned()
        }
        Remedy::KeepAlive => {
            return Err("the run has persistent connections already; the responses that opened one are those of its \
                        beginning, or of a server that closes"
                .to_owned());
        }
        Remedy::TlsResumption => match &mut plan.load.tls {
            Some(tls) if !tls.resumption => {
                tls.resumption = true;
                "session resumption, without --no-resumption".to_owned()
            }
            _ => return Err("the run's clients resume sessions where the server lets them".to_owned()),
        },
        Remedy::ReceiveWindow(_) => {
            return Err("the clients' receive window is the setting net.ipv4.tcp_rmem of this host".to_owned());
        }
        Remedy::SendBuffer(_) => return Err("the send buffer is the server's own setting".to_owned()),
        Remedy::StreamWindow(bytes) if plan.load.http == HttpVersion::Http3 => {
            let mut http3 = plan.load.quic();
            let window = Bytes(bytes.clamp(1 << 16, 1 << 30));
            http3.stream_window = http3.stream_window.max(window);
            http3.connection_window = http3.connection_window.max(window);
            plan.load.http3 = Some(http3);
            let (stream, connection) = (http3.stream_window, http3.connection_window);
            format!("--http3-stream-window {stream} --http3-connection-window {connection}")
        }
        Remedy::StreamWindow(bytes) => {
            let Some(http2) = &mut plan.load.http2 else {
                return Err("the load does not use HTTP/2".to_owned());
            };
            let window = Bytes(bytes.clamp(1 << 16, (1 << 31) - 1));
            http2.stream_window = http2.stream_window.max(window);
            http2.connection_window = http2.connection_window.max(window);
            let (stream, connection) = (http2.stream_window, http2.connection_window);
            format!("--http2-stream-window {stream} --http2-connection-window {connection}")
        }
        Remedy::Rtt(_) => return Err("a shorter way is another --rtt".to_owned()),
    };
    plan.name = format!("{}-try", plan.name);
    Ok((plan, change, advice))
}

/// Largest value of `--server-tcp initcwnd`.
const INITCWND_MAX: u32 = 1_000;

/// The median response time of a summary at a distance, or of all its responses.
pub fn median_ns(summary: &Summary, distance_ns: Option<u64>) -> Option<u64> {
    let of_distance = summary.distances.iter().find(|group| group.distance_ns == distance_ns);
    of_distance.or(summary.percentiles.first()).map(|group| group.response_time_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(remedy: Option<Remedy>) -> Summary {
        let advice = |remedy| Advice {
            distance_ns: None,
            measured_ns: 120_000_000,
            prediction: Prediction { remedy, response_time_ns: 60_000_000, gain_ns: 60_000_000, round_trips: [2, 1] },
        };
        Summary { advice: remedy.map(advice), ..Summary::of(&[]) }
    }

    fn plan(text: &str) -> Plan {
        Plan::from_toml(&format!("[load]\nurl = \"https://server/\"\nduration = \"1s\"\n{text}"), "plan.toml").unwrap()
    }

    #[test]
    fn the_remedy_of_the_sentence_changes_one_setting_of_the_plan() {
        let tried = |text, remedy| changed(&plan(text), &summary(Some(remedy))).map(|(plan, change, _)| (plan, change));
        let (with, change) =
            tried("[server]\ncommand = \"s\"\n[path]\nrtt = \"0ms\"\n", Remedy::InitialWindow(32)).unwrap();
        assert_eq!(with.server.unwrap().tcp.initcwnd, Some(32));
        assert_eq!(change, "--server-tcp initcwnd=32");
        let (with, _) = tried("close = true\n", Remedy::KeepAlive).unwrap();
        assert!(!with.load.close);
        let (with, _) = tried("[load.tls]\nresumption = false\n", Remedy::TlsResumption).unwrap();
        assert!(with.load.tls.unwrap().resumption);
        let windows = "http = \"2\"\n[load.http2]\nstream_window = \"64KiB\"\nconnection_window = \"64KiB\"\n";
        let (with, change) = tried(windows, Remedy::StreamWindow(24 << 20)).unwrap();
        assert_eq!(
            with.load.http2.map(|http2| [http2.stream_window, http2.connection_window]),
            Some([Bytes(24 << 20); 2])
        );
        assert_eq!(change, "--http2-stream-window 24MiB --http2-connection-window 24MiB");
    }

    #[test]
    fn a_remedy_without_an_option_gives_one_line_with_the_reason() {
        let refused = |text, remedy| changed(&plan(text), &summary(remedy)).unwrap_err();
        assert!(refused("", None).contains("no remedy"));
        assert!(refused("", Some(Remedy::InitialWindow(32))).contains("service's own setting"));
        assert!(refused("", Some(Remedy::KeepAlive)).contains("already"));
        assert!(refused("", Some(Remedy::TlsResumption)).contains("resume sessions"));
        for remedy in [Remedy::ReceiveWindow(1), Remedy::SendBuffer(1), Remedy::StreamWindow(1), Remedy::Rtt(1)] {
            assert!(!refused("", Some(remedy)).is_empty());
        }
        let line = Try::NotTried(refused("", None)).text();
        assert_eq!(line.lines().count(), 1);
    }
}
