//! `bench --http 1.1,2,3 --loss 0%,1%`: one load by several HTTP versions and loss rates.
//!
//! The words are expanded before they are parsed: each combination is the command line of one run.

use std::ffi::OsString;

/// The command lines of the runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// All versions at the first loss, then those at the next.
    pub runs: Vec<MatrixRun>,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixRun {
    /// HTTP version, as typed.
    pub http: String,
    /// Loss each way, as typed; `None` without the option.
    pub loss: Option<String>,
    /// Its command line, the program first.
    pub words: Vec<OsString>,
}

/// The versions that have an option; `None` if all have it. Others run without it.
fn versions_of(option: &str) -> Option<&'static [&'static str]> {
    match option {
        "--streams" => Some(&["2", "3"]),
        "--early-data" => Some(&["3"]),
        _ if option.starts_with("--http2-") => Some(&["2"]),
        _ if option.starts_with("--http3-") => Some(&["3"]),
        _ => None,
    }
}

/// Whether an option of [`versions_of`] has a value.
fn has_value(option: &str) -> bool {
    option != "--early-data" && !option.starts_with("--http3-no-")
}

/// Version without `--http`.
const USUAL_VERSION: &str = "1.1";

impl Matrix {
    /// The runs of a command line that has several values of `--http` or `--loss`; `None` of any other.
    ///
    /// # Errors
    /// The same value twice, or an empty one.
    pub fn of(words: impl IntoIterator<Item = OsString>) -> Result<Option<Matrix>, String> {
        let Some(Split { rest, http, loss }) = Split::of(words) else { return Ok(None) };
        let is_list = |typed: &Option<String>| typed.as_ref().is_some_and(|typed| typed.contains(','));
        // Bursts of losses (ge:..) have commas of their own.
        let is_bursts = loss.as_ref().is_some_and(|loss: &String| loss.trim_start().starts_with("ge:"));
        if !is_list(&http) && (!is_list(&loss) || is_bursts) {
            return Ok(None);
        }
        let versions = values("--http", http.as_deref().unwrap_or(USUAL_VERSION))?;
        let losses: Vec<Option<String>> = match &loss {
            Some(loss) if is_bursts => vec![Some(loss.clone())],
            Some(loss) => values("--loss", loss)?.into_iter().map(Some).collect(),
            None => vec![None],
        };
        let mut runs = Vec::new();
        for loss in &losses {
            for http in &versions {
                let words = words_of_run(&rest, http, loss.as_deref());
                runs.push(MatrixRun { http: http.clone(), loss: loss.clone(), words });
            }
        }
        Ok(Some(Matrix { runs }))
    }
}

/// A command line of `bench --http auto`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auto {
    rest: Vec<OsString>,
    loss: Option<String>,
}

impl Auto {
    /// `None` of any other command line.
    pub fn of(words: impl IntoIterator<Item = OsString>) -> Option<Auto> {
        let Split { rest, http, loss } = Split::of(words)?;
        (http.as_deref() == Some("auto")).then_some(Auto { rest, loss })
    }

    /// The command line with this version instead, without the options that it does not have.
    pub fn words(&self, http: &str) -> Vec<OsString> {
        words_of_run(&self.rest, http, self.loss.as_deref())
    }
}

/// A command line of `bench`, in parts.
struct Split {
    /// The words without the two options, the program first.
    rest: Vec<OsString>,
    http: Option<String>,
    loss: Option<String>,
}

impl Split {
    /// `None` of another verb, and if an option is given twice or without a value: clap refuses it.
    fn of(words: impl IntoIterator<Item = OsString>) -> Option<Split> {
        let words: Vec<OsString> = words.into_iter().collect();
        if words.get(1).is_none_or(|verb| verb != "bench") {
            return None;
        }
        let (mut rest, mut http, mut loss) = (Vec::new(), None, None);
        let mut all = words.into_iter();
        while let Some(word) = all.next() {
            let text = word.to_string_lossy().into_owned();
            // What follows is no option.
            if text == "--" {
                rest.push(word);
                rest.extend(all.by_ref());
                break;
            }
            let (name, value) = text.split_once('=').map_or((text.as_str(), None), |(name, value)| (name, Some(value)));
            let into = match name {
                "--http" => &mut http,
                "--loss" => &mut loss,
                _ => {
                    rest.push(word);
                    continue;
                }
            };
            let next = || all.next().map(|word| word.to_string_lossy().into_owned());
            let value = value.map(str::to_owned).or_else(next).filter(|_| into.is_none())?;
            *into = Some(value);
        }
        Some(Split { rest, http, loss })
    }
}

fn words_of_run(rest: &[OsString], http: &str, loss: Option<&str>) -> Vec<OsString> {
    let mut words = without_options_of_others(rest, http);
    let mut options: Vec<OsString> = vec!["--http".into(), http.into()];
    options.extend(loss.map(|loss| OsString::from(format!("--loss={loss}"))));
    words.splice(2..2, options);
    words
}

/// The command lines that a command line makes: of each run, or itself.
///
/// # Panics
/// A list has the same value twice, or an empty one.
#[cfg(test)]
pub fn expanded(words: Vec<OsString>) -> Vec<Vec<OsString>> {
    if let Some(auto) = Auto::of(words.clone()) {
        return ["1.1", "2", "3"].map(|http| auto.words(http)).to_vec();
    }
    match Matrix::of(words.clone()).unwrap() {
        Some(matrix) => matrix.runs.into_iter().map(|run| run.words).collect(),
        None => vec![words],
    }
}

/// The values of a list.
fn values(option: &str, typed: &str) -> Result<Vec<String>, String> {
    let mut values: Vec<String> = Vec::new();
    for value in typed.split(',').map(str::trim) {
        if value.is_empty() || values.iter().any(|known| known == value) {
            return Err(format!("{option} {typed}: expected different values, separated by commas, such as 1.1,2,3"));
        }
        values.push(value.to_owned());
    }
    Ok(values)
}

/// The words without options that this version does not have.
fn without_options_of_others(words: &[OsString], http: &str) -> Vec<OsString> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let name = text.split_once('=').map_or(&*text, |(name, _)| name);
        match versions_of(name) {
            Some(versions) if !versions.contains(&http) => {
                if has_value(name) && !text.contains('=') {
                    words.next();
                }
            }
            _ => kept.push(word.clone()),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(line: &str) -> Result<Option<Vec<String>>, String> {
        let matrix = Matrix::of(line.split(' ').map(OsString::from))?;
        let line = |run: MatrixRun| run.words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        Ok(matrix.map(|matrix| matrix.runs.into_iter().map(line).collect()))
    }

    #[test]
    fn each_version_at_each_loss_is_a_run() {
        let runs = matrix("yamabiko bench https://h/ --http 1.1,3 --loss=0%,1% -k").unwrap().unwrap();
        assert_eq!(
            runs,
            [
                "yamabiko bench --http 1.1 --loss=0% https://h/ -k",
                "yamabiko bench --http 3 --loss=0% https://h/ -k",
                "yamabiko bench --http 1.1 --loss=1% https://h/ -k",
                "yamabiko bench --http 3 --loss=1% https://h/ -k",
            ]
        );
        let runs = matrix("yamabiko bench https://h/ --loss 0%,1%").unwrap().unwrap();
        assert_eq!(runs[0], "yamabiko bench --http 1.1 --loss=0% https://h/");
    }

    #[test]
    fn options_of_a_version_are_left_out_for_the_others() {
        let runs = matrix(
            "yamabiko bench --streams 10 --http2-stream-window=64KiB --early-data --http3-no-ecn --http3-idle-timeout 9s u \
             --http 1.1,2,3",
        );
        assert_eq!(
            runs.unwrap().unwrap(),
            [
                "yamabiko bench --http 1.1 u",
                "yamabiko bench --http 2 --streams 10 --http2-stream-window=64KiB u",
                "yamabiko bench --http 3 --streams 10 --early-data --http3-no-ecn --http3-idle-timeout 9s u",
            ]
        );
    }

    /// Whether an option has a value must not depend on a list that nobody keeps.
    #[test]
    fn every_option_of_a_version_is_known_with_its_value() {
        let command = crate::help::command();
        let bench = command.find_subcommand("bench").unwrap();
        let mut seen = 0;
        for option in bench.get_arguments() {
            let Some(name) = option.get_long().map(|long| format!("--{long}")) else { continue };
            if versions_of(&name).is_some() {
                seen += 1;
                assert_eq!(has_value(&name), option.get_action().takes_values(), "{name}");
            }
        }
        assert!(seen >= 12, "{seen}");
    }

    #[test]
    fn auto_takes_the_words_of_the_version_that_is_chosen() {
        let auto = |line: &str| Auto::of(line.split(' ').map(OsString::from));
        let words = auto("yamabiko bench u --loss 1% --http auto --http3-no-ecn").unwrap();
        let line = |http| words.words(http).iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
        assert_eq!(line("2"), "yamabiko bench --http 2 --loss=1% u");
        assert_eq!(line("3"), "yamabiko bench --http 3 --loss=1% u --http3-no-ecn");
        for other in ["yamabiko bench u --http 3", "yamabiko compare u --http auto", "yamabiko bench u -- --http auto"]
        {
            assert_eq!(auto(other), None, "{other}");
        }
    }

    #[test]
    fn one_value_each_is_an_ordinary_run() {
        for line in [
            "yamabiko bench u --http 2 --loss 1%",
            "yamabiko bench u --loss ge:1%,20%",
            "yamabiko explain u --http 1.1,2",
            "yamabiko bench u -- --http 1.1,2",
            "yamabiko bench u --http 1.1,2 --http 3",
            "yamabiko bench u --http",
            "yamabiko",
        ] {
            assert_eq!(matrix(line), Ok(None), "{line}");
        }
        assert_eq!(matrix("yamabiko bench u --http 2,3 --loss ge:1%,20%").unwrap().unwrap().len(), 2);
    }

    #[test]
    fn repeated_and_empty_values_are_refused() {
        assert!(matrix("yamabiko bench u --http 2,2").unwrap_err().contains("--http"));
        assert!(matrix("yamabiko bench u --loss 1%,").unwrap_err().contains("--loss"));
    }
}
