//! Number and length of a bench's runs, from its options.

use anyhow::{Context, Result, bail};

/// Number and length of a bench's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Number of rounds; each runs every case once.
    pub rounds: usize,
    /// Length of one run in seconds.
    pub seconds: u64,
}

impl Extent {
    /// Applies the options in `words`: `--rounds N` and `--seconds N`.
    ///
    /// # Errors
    /// An unknown option, or a value that is not a positive number.
    pub fn changed_by(mut self, words: &[&str]) -> Result<Self> {
        for pair in words.chunks(2) {
            let [name, value] = *pair else { bail!("{} needs a number", pair[0]) };
            let number: u64 = value.parse().with_context(|| format!("{name} {value}: a whole number is expected"))?;
            match name {
                _ if number == 0 => bail!("{name} 0: at least 1 is needed"),
                "--rounds" => self.rounds = usize::try_from(number)?,
                "--seconds" => self.seconds = number,
                _ => bail!("`{name}` is not understood; there are --rounds N and --seconds N"),
            }
        }
        Ok(self)
    }
}

/// The part that `--only NAME` selects, and the other words.
///
/// # Errors
/// The name is missing or not one of `parts`.
pub fn only<'a>(words: &[&'a str], parts: &[&str]) -> Result<(Option<&'a str>, Vec<&'a str>)> {
    let Some(at) = words.iter().position(|&word| word == "--only") else { return Ok((None, words.to_vec())) };
    let name = words.get(at + 1).copied().unwrap_or_default();
    if !parts.contains(&name) {
        bail!("--only {name}: there are {}", parts.join(", "));
    }
    let mut others = words.to_vec();
    others.drain(at..at + 2);
    Ok((Some(name), others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bench_options_are_parsed_and_invalid_ones_refused() {
        let default = Extent { rounds: 11, seconds: 2 };
        assert_eq!(default.changed_by(&[]).unwrap(), default);
        let short = default.changed_by(&["--seconds", "1", "--rounds", "3"]).unwrap();
        assert_eq!(short, Extent { rounds: 3, seconds: 1 });
        for words in [&["--rounds"][..], &["--rounds", "0"], &["--rounds", "x"], &["--turns", "1"]] {
            assert!(default.changed_by(words).is_err(), "{words:?}");
        }
    }
    #[test]
    fn a_part_of_a_bench_is_selected_by_name() {
        let parts = ["nginx", "event"];
        let none: (Option<&str>, Vec<&str>) = (None, vec!["--rounds", "2"]);
        assert_eq!(only(&["--rounds", "2"], &parts).unwrap(), none);
        let selected = only(&["--rounds", "2", "--only", "event", "--seconds", "3"], &parts).unwrap();
        assert_eq!(selected, (Some("event"), vec!["--rounds", "2", "--seconds", "3"]));
        for words in [&["--only"][..], &["--only", "apache"]] {
            assert!(only(words, &parts).unwrap_err().to_string().contains("nginx, event"), "{words:?}");
        }
    }
}
