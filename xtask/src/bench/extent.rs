//! How long a bench takes, as typed behind its name.

use anyhow::{Context, Result, bail};

/// How long a bench takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Of each round one run of everything.
    pub rounds: usize,
    /// Length of one run in seconds.
    pub seconds: u64,
}

impl Extent {
    /// This one, with what `words` change of it: `--rounds N` and `--seconds N`.
    ///
    /// # Errors
    /// Other words; a number that is none, or 0.
    pub fn changed_by(mut self, words: &[&str]) -> Result<Self> {
        for pair in words.chunks(2) {
            let [name, value] = *pair else { bail!("{} needs a number", pair[0]) };
            let number: u64 = value.parse().with_context(|| format!("{name} {value}: a whole number is wanted"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_and_nonsense_is_refused() {
        let usual = Extent { rounds: 11, seconds: 2 };
        assert_eq!(usual.changed_by(&[]).unwrap(), usual);
        let short = usual.changed_by(&["--seconds", "1", "--rounds", "3"]).unwrap();
        assert_eq!(short, Extent { rounds: 3, seconds: 1 });
        for words in [&["--rounds"][..], &["--rounds", "0"], &["--rounds", "x"], &["--turns", "1"]] {
            assert!(usual.changed_by(words).is_err(), "{words:?}");
        }
    }
}
