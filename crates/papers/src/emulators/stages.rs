//! An emulated path as a chain of stages, and the configuration of each emulator for that path.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// Bytes of a full packet: one delivery opportunity of a mahimahi trace, which are 1504 bytes with what mahimahi adds.
pub const MTU: u64 = 1500;
/// Longest trace that expresses a constant rate.
const LONGEST_TRACE_MS: u64 = 60_000;
/// Most delivery opportunities of such a trace, a line each.
const TRACE_LINES_MAX: u64 = 1_000_000;

/// One stage; a packet to the server passes all in order, a packet from the server in reverse order.
#[derive(Clone, Debug, PartialEq)]
pub enum LinkStage {
    /// Loss of packets from the server.
    Loss(LossModel),
    /// A bottleneck for packets from the server, drop-tail.
    Rate {
        /// Bits of IP packets a second.
        bits_per_s: u64,
        /// Bytes that may wait.
        queue_bytes: u64,
    },
    /// A bottleneck for packets from the server by a trace in mahimahi's format.
    Trace {
        /// The trace.
        file: PathBuf,
        /// Bytes that may wait.
        queue_bytes: u64,
    },
    /// A delay each way.
    Delay(Duration),
}

/// How packets are lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LossModel {
    /// Independently, with this probability.
    Independent(f64),
    /// Gilbert's model: all packets of the bad state are lost. Probabilities of a change of state before each packet.
    Gilbert {
        /// From good to bad.
        to_bad: f64,
        /// From bad to good.
        to_good: f64,
    },
}

impl LossModel {
    /// Share of packets lost in the long run.
    pub fn share(self) -> f64 {
        match self {
            LossModel::Independent(p) => p,
            LossModel::Gilbert { to_bad, to_good } => to_bad / (to_bad + to_good),
        }
    }

    /// Correlation of the outcomes of neighbouring packets.
    pub fn correlation(self) -> f64 {
        match self {
            LossModel::Independent(_) => 0.0,
            LossModel::Gilbert { to_bad, to_good } => 1.0 - to_bad - to_good,
        }
    }

    /// Mean length of a burst of losses in packets.
    pub fn burst_length(self) -> f64 {
        match self {
            LossModel::Independent(p) => 1.0 / (1.0 - p),
            LossModel::Gilbert { to_good, .. } => 1.0 / to_good,
        }
    }
}

/// A file that an emulator's command needs: name and content.
pub type NamedFile = (String, String);

/// The profile of yamabiko for these stages.
pub fn yamabiko_profile(stages: &[LinkStage]) -> String {
    let delays = stages.iter().filter(|stage| matches!(stage, LinkStage::Delay(_))).count();
    let mut rtt = Duration::ZERO;
    let (mut up, mut down) = (Vec::new(), Vec::new());
    for stage in stages {
        match stage {
            // One delay is the RTT; several are effects of the chain.
            LinkStage::Delay(delay) if delays == 1 => rtt = *delay * 2,
            LinkStage::Delay(delay) => {
                let effect = format!("{{ delay = \"{}us\" }}", delay.as_micros());
                up.push(effect.clone());
                down.push(effect);
            }
            LinkStage::Loss(LossModel::Independent(p)) => down.push(format!("{{ loss = {p:.9} }}")),
            LinkStage::Loss(LossModel::Gilbert { to_bad, to_good }) => {
                // By default all packets of the bad state are lost, and none of the good one.
                let states = format!("to_bad = {to_bad}, to_good = {to_good}");
                down.push(format!("{{ loss = {{ gilbert_elliott = {{ {states} }} }} }}"));
            }
            LinkStage::Rate { bits_per_s, queue_bytes } => {
                down.push(format!("{{ rate = \"{bits_per_s}bit\", queue = \"{queue_bytes}B\" }}"));
            }
            LinkStage::Trace { file, queue_bytes } => {
                down.push(format!("{{ rate = {{ trace = \"{}\" }}, queue = \"{queue_bytes}B\" }}", file.display()))
            }
        }
    }
    down.reverse();
    let list = |name: &str, effects: &[String]| {
        if effects.is_empty() { String::new() } else { format!("{name} = [\n    {},\n]\n", effects.join(",\n    ")) }
    };
    format!(
        "name = \"emulated\"\nabout = \"a path of `reproduce emulators`\"\n\
         [[clients]]\nshare = 1.0\nrtt = \"{}us\"\n{}{}",
        rtt.as_micros(),
        list("up", &up),
        list("down", &down)
    )
}

/// mahimahi's nested shells, outermost first, and the traces that they read; an error names what mahimahi cannot do.
/// `folder` is where the files will be.
pub fn mahimahi_shells(
    stages: &[LinkStage],
    folder: &std::path::Path,
) -> Result<(Vec<Vec<String>>, Vec<NamedFile>), &'static str> {
    let (mut shells, mut files) = (Vec::new(), Vec::new());
    let path = |name: &str| folder.join(name).display().to_string();
    // The stage next to the client is the innermost shell.
    for stage in stages.iter().rev() {
        match stage {
            LinkStage::Delay(delay) if delay.subsec_nanos() % 1_000_000 != 0 => {
                return Err("delays are whole milliseconds");
            }
            LinkStage::Delay(delay) => shells.push(vec!["mm-delay".to_owned(), delay.as_millis().to_string()]),
            LinkStage::Loss(LossModel::Independent(p)) => {
                shells.push(vec!["mm-loss".to_owned(), "downlink".to_owned(), format!("{p:.9}")]);
            }
            LinkStage::Loss(LossModel::Gilbert { .. }) => return Err("losses are independent"),
            LinkStage::Rate { queue_bytes, .. } | LinkStage::Trace { queue_bytes, .. } => {
                let down = match stage {
                    LinkStage::Rate { bits_per_s, .. } => {
                        let name = format!("{bits_per_s}.trace");
                        files.push((
                            name.clone(),
                            constant_rate_trace(*bits_per_s)
                                .ok_or("rates are traces, which are at most a minute here")?,
                        ));
                        path(&name)
                    }
                    LinkStage::Trace { file, .. } => file.display().to_string(),
                    _ => String::new(),
                };
                files.push((UNLIMITED.to_owned(), unlimited_trace()));
                let mut words = vec!["mm-link".to_owned(), path(UNLIMITED), down];
                words.push("--downlink-queue=droptail".to_owned());
                words.push(format!("--downlink-queue-args=bytes={queue_bytes}"));
                words.push("--".to_owned());
                shells.push(words);
            }
        }
    }
    Ok((shells, files))
}

const UNLIMITED: &str = "unlimited.trace";

/// 1.2 Gbit/s, which requests and acknowledgements upstream do not reach: mahimahi has no link with a limit in one
/// direction only.
fn unlimited_trace() -> String {
    "1\n".repeat(100)
}

/// A trace whose opportunities give `bits_per_s` of full packets in the long run; `None` if even one opportunity takes
/// longer than [`LONGEST_TRACE_MS`], or one millisecond has more than [`TRACE_LINES_MAX`].
pub fn constant_rate_trace(bits_per_s: u64) -> Option<String> {
    // The shortest whole number of milliseconds with a whole number of opportunities.
    let bits = MTU * 8;
    let longest = (TRACE_LINES_MAX * bits * 1000 / bits_per_s).min(LONGEST_TRACE_MS);
    let period = (1..=longest).find(|ms| (bits_per_s * ms).is_multiple_of(bits * 1000)).or_else(|| {
        // Without one, the nearest to a whole number within the longest period.
        (1..=longest).filter(|ms| bits_per_s * ms >= bits * 1000).min_by_key(|ms| {
            let rest = bits_per_s * ms % (bits * 1000);
            rest.min(bits * 1000 - rest) * 1_000_000 / (bits_per_s * ms / 1000)
        })
    })?;
    let count = (bits_per_s * period + bits * 500) / (bits * 1000);
    let mut text = String::new();
    for opportunity in 1..=count {
        // Opportunities are at whole milliseconds from 1 to the period.
        let _ = writeln!(text, "{}", (opportunity * period).div_ceil(count));
    }
    Some(text)
}

/// Bytes of full packets that a trace lets pass in each millisecond of its period.
pub fn trace_bytes(text: &str) -> Vec<u64> {
    let times: Vec<usize> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    let mut bytes = vec![0u64; times.last().copied().unwrap_or(0)];
    for at in times {
        if let Some(slot) = at.checked_sub(1).and_then(|at| bytes.get_mut(at)) {
            *slot += MTU;
        }
    }
    bytes
}

/// rattan's configuration: cells and links, in namespaces of its own.
pub fn rattan_config(stages: &[LinkStage]) -> String {
    let mut text = String::from("[env]\nmode = \"Isolated\"\n\n[cells]\n");
    let (mut up, mut down) = (vec!["left".to_owned()], vec!["left".to_owned()]);
    for (at, stage) in stages.iter().enumerate() {
        let (to_server, to_client) = (format!("up{at}"), format!("down{at}"));
        let mut cell = |name: &str, content: &str| {
            let _ = write!(text, "[cells.{name}]\n{content}\n");
        };
        match stage {
            LinkStage::Delay(delay) => {
                let content = format!("type = \"Delay\"\ndelay = \"{}us\"\n", delay.as_micros());
                cell(&to_server, &content);
                cell(&to_client, &content);
                up.push(to_server);
            }
            LinkStage::Loss(loss) => {
                // The pattern is the probability after 0, 1 .. lost packets; the last one repeats.
                let pattern = match loss {
                    LossModel::Independent(p) => format!("[{p:.9}]"),
                    LossModel::Gilbert { to_bad, to_good } => format!("[{to_bad}, {}]", 1.0 - to_good),
                };
                cell(&to_client, &format!("type = \"Loss\"\npattern = {pattern}\n"));
            }
            LinkStage::Rate { bits_per_s, queue_bytes } => cell(
                &to_client,
                &format!(
                    "type = \"Bw\"\nbw_type = \"NetworkLayer\"\nbandwidth = \"{}\"\nqueue = \"DropTail\"\n\
                     queue_config = {{ byte_limit = {queue_bytes} }}\n",
                    rattan_rate(*bits_per_s)
                ),
            ),
            LinkStage::Trace { file, queue_bytes } => cell(
                &to_client,
                &format!(
                    "type = \"BwReplay\"\ntrace = \"{}\"\nqueue = \"DropTail\"\n\
                     queue_config = {{ byte_limit = {queue_bytes} }}\n",
                    file.display()
                ),
            ),
        }
        down.push(to_client);
    }
    up.push("right".to_owned());
    down.push("right".to_owned());
    text.push_str("[links]\n");
    for pair in up.windows(2) {
        let _ = writeln!(text, "{} = \"{}\"", pair[0], pair[1]);
    }
    for pair in down.windows(2) {
        let _ = writeln!(text, "{} = \"{}\"", pair[1], pair[0]);
    }
    text
}

/// rattan's units are decimal, and each part is a whole number.
fn rattan_rate(bits_per_s: u64) -> String {
    let (gbit, bit) = (bits_per_s / 1_000_000_000, bits_per_s % 1_000_000_000);
    match (gbit, bit) {
        (0, bit) => format!("{bit}bps"),
        (gbit, 0) => format!("{gbit}Gbps"),
        (gbit, bit) => format!("{gbit}Gbps {bit}bps"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn chain() -> Vec<LinkStage> {
        vec![
            LinkStage::Loss(LossModel::Gilbert { to_bad: 0.01, to_good: 0.25 }),
            LinkStage::Rate { bits_per_s: 16_000_000, queue_bytes: 80_000 },
            LinkStage::Delay(Duration::from_millis(20)),
        ]
    }

    #[test]
    fn yamabiko_gets_one_delay_as_rtt_and_several_as_effects_in_order() {
        let profile = |text: &str| path::Profile::parse(text, Path::new("path.toml"), &|_: &Path| Ok(String::new()));
        let text = yamabiko_profile(&chain());
        assert!(text.contains("rtt = \"40000us\"") && !text.contains("delay ="), "{text}");
        assert!(text.find("rate =") < text.find("loss ="), "packets from the server pass the last stage first: {text}");
        profile(&text).unwrap();
        let twice = yamabiko_profile(&[chain(), chain()].concat());
        assert!(twice.contains("rtt = \"0us\"") && twice.matches("delay = \"20000us\"").count() == 4, "{twice}");
        profile(&twice).unwrap();
    }

    #[test]
    fn mahimahi_nests_the_first_stage_innermost_and_refuses_bursts() {
        let independent = LinkStage::Loss(LossModel::Independent(0.01));
        let stages = [&[independent][..], &chain()[1..]].concat();
        let (shells, files) = mahimahi_shells(&stages, Path::new("/f")).unwrap();
        let names: Vec<&str> = shells.iter().map(|shell| shell[0].as_str()).collect();
        assert_eq!(names, ["mm-delay", "mm-link", "mm-loss"]);
        assert_eq!(shells[0], ["mm-delay", "20"]);
        assert_eq!(shells[1][1..3], ["/f/unlimited.trace", "/f/16000000.trace"]);
        assert_eq!(files.len(), 2);
        assert!(mahimahi_shells(&chain(), Path::new("/f")).is_err());
        let fraction = [LinkStage::Delay(Duration::from_micros(1500))];
        assert!(mahimahi_shells(&fraction, Path::new("/f")).is_err());
    }

    #[test]
    fn constant_rate_traces_have_the_rate_in_the_long_run() {
        for bits in [300, 9_600, 64_000, 1_000_000, 16_000_000, 720_000_000, 1_000_000_000, 5_000_000_000] {
            let bytes = trace_bytes(&constant_rate_trace(bits).unwrap());
            let rate = bytes.iter().sum::<u64>() as f64 * 8e3 / bytes.len() as f64;
            assert!((rate / bits as f64 - 1.0).abs() < 1e-3, "{bits}: {rate}");
        }
        assert_eq!(constant_rate_trace(100), None, "a full packet takes two minutes");
        let lines = constant_rate_trace(99_987_654_321).unwrap().lines().count() as u64;
        assert!(lines <= TRACE_LINES_MAX, "{lines}");
    }

    #[test]
    fn rattan_links_both_directions_through_the_same_stages() {
        let text = rattan_config(&chain());
        for line in [
            "pattern = [0.01, 0.75]",
            "bandwidth = \"16000000bps\"",
            "left = \"up2\"",
            "up2 = \"right\"",
            "right = \"down2\"",
            "down2 = \"down1\"",
            "down1 = \"down0\"",
            "down0 = \"left\"",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert_eq!(rattan_rate(2_500_000_000), "2Gbps 500000000bps");
        assert_eq!(rattan_rate(5_000_000_000), "5Gbps");
    }

    #[test]
    fn loss_models_state_share_burst_length_and_correlation() {
        let gilbert = LossModel::Gilbert { to_bad: 0.01, to_good: 0.3 };
        assert!((gilbert.share() - 0.01 / 0.31).abs() < 1e-12);
        assert!((gilbert.burst_length() - 1.0 / 0.3).abs() < 1e-12);
        assert!((gilbert.correlation() - 0.69).abs() < 1e-12);
        let independent = LossModel::Independent(0.5);
        assert_eq!((independent.share(), independent.burst_length(), independent.correlation()), (0.5, 2.0, 0.0));
    }
}
