//! Writes a profile as a file: the result of `profile learn`.

use std::time::Duration;

use units::Probability;
use units::time::text::exact;

/// A profile of one class, to be written to a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Draft {
    /// The name in reports.
    pub name: String,
    /// The source of its figures.
    pub about: String,
    /// Comment lines at the top of the file.
    pub notes: Vec<String>,
    /// The curve: quantile (0 to 1, rising) and RTT in nanoseconds (not falling); at least one point.
    pub quantiles: Vec<(f64, u64)>,
    /// Jitter of each packet's delay, each way.
    pub jitter: Duration,
    /// Loss probability of a packet on the way up.
    pub up_loss: Probability,
    /// Loss probability of a packet on the way down.
    pub down_loss: Probability,
}

impl Draft {
    /// The file's text. [`Profile::parse`](super::Profile::parse) reads exactly these values from it. The file contains
    /// the curve, so that the profile is one file.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            text.push_str(&format!("# {}\n", one_line(note)));
        }
        let quoted = |words: &str| toml::Value::String(words.to_owned()).to_string();
        text.push_str(&format!(
            "name = {}\nabout = {}\n\n[[clients]]\nshare = 1\n",
            quoted(&one_line(&self.name)),
            quoted(&one_line(&self.about))
        ));
        if !self.jitter.is_zero() {
            text.push_str(&format!("jitter = \"{}\"\n", exact(self.jitter)));
        }
        for (direction, loss) in [("up", self.up_loss), ("down", self.down_loss)] {
            if loss.value() > 0.0 {
                text.push_str(&format!("{direction} = {{ loss = {} }}\n", number(loss.value())));
            }
        }
        text.push_str("rtt.quantiles = [\n");
        for &(quantile, rtt_ns) in &self.quantiles {
            text.push_str(&format!("    [{}, \"{}\"],\n", number(quantile), rtt(rtt_ns)));
        }
        text.push_str("]\n");
        text
    }
}

/// A number in a form that TOML reads back to the last bit: without exponent, with a decimal point.
fn number(value: f64) -> String {
    let text = value.to_string();
    if text.contains('.') { text } else { format!("{text}.0") }
}

/// Milliseconds, to the microsecond if that is exact.
fn rtt(nanos: u64) -> String {
    if nanos >= 1_000_000 && nanos.is_multiple_of(1000) && nanos < 1_000_000_000_000 {
        let (whole, micros) = (nanos / 1_000_000, nanos / 1000 % 1000);
        let fraction = format!(".{micros:03}");
        return format!("{whole}{}ms", fraction.trim_end_matches('0').trim_end_matches('.'));
    }
    exact(Duration::from_nanos(nanos))
}

/// Replaces line breaks and other control characters: a name from outside must not end a comment.
fn one_line(words: &str) -> String {
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::profile::{Files, Profile};

    const NO_FILES: Files<'static> = &|_| Err(std::io::ErrorKind::NotFound.into());

    fn read(draft: &Draft) -> Profile {
        let text = draft.to_toml();
        Profile::parse(&text, Path::new("p.toml"), NO_FILES).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn written_profile_is_readable_toml() {
        let draft = Draft {
            name: "shop".into(),
            about: "said \"so\"".into(),
            notes: vec!["two\nlines = 1".into()],
            quantiles: vec![(0.0, 48_100_000), (0.25, 48_123_456), (1.0, 2_000_000_000)],
            jitter: Duration::from_micros(1500),
            up_loss: Probability::ZERO,
            down_loss: Probability::new(0.0012).unwrap(),
        };
        let expected = "# two lines = 1\nname = \"shop\"\nabout = 'said \"so\"'\n\n[[clients]]\nshare = 1\n\
                      jitter = \"1500us\"\ndown = { loss = 0.0012 }\nrtt.quantiles = [\n    \
                      [0.0, \"48.1ms\"],\n    [0.25, \"48123456ns\"],\n    [1.0, \"2000ms\"],\n]\n";
        assert_eq!(draft.to_toml(), expected);
        let profile = read(&draft);
        assert_eq!((profile.name(), profile.about()), ("shop", "said \"so\""));
        let client = &profile.clients(1)[0];
        assert_eq!(client.down.loss(), 0.0012);
        assert_eq!((client.up.loss(), client.up.jitter()), (0.0, draft.jitter));
    }

    proptest! {
        /// parse(write(x)) = x: every point is read back to the nanosecond, whatever the name contains.
        #[test]
        fn written_profile_reads_back_to_the_same_values(
            name in ".{1,20}",
            steps in prop::collection::vec((1u64..1000, 0u64..2_000_000_000), 1..100),
            loss in 0.0f64..1.0,
        ) {
            let all: u64 = steps.iter().map(|step| step.0).sum();
            let (mut below, mut rtt_ns) = (0, 0);
            let quantiles: Vec<(f64, u64)> = steps
                .iter()
                .map(|&(step, more)| {
                    (below, rtt_ns) = (below + step, rtt_ns + more);
                    (below as f64 / all as f64, rtt_ns)
                })
                .collect();
            let draft = Draft {
                name,
                quantiles: quantiles.clone(),
                up_loss: Probability::new(loss).unwrap(),
                ..Draft::default()
            };
            let profile = read(&draft);
            for (quantile, rtt_ns) in quantiles {
                let client = profile.classes[0].client(quantile);
                prop_assert_eq!(client.rtt(), Duration::from_nanos(rtt_ns));
                prop_assert_eq!(client.up.loss(), draft.up_loss.value());
            }
        }
    }
}
