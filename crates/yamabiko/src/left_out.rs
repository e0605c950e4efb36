//! Verbs and options of Cargo features that are not in this build.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A verb or an option of a feature.
struct Optional {
    /// Its verb; `None`: several verbs.
    verb: Option<&'static str>,
    word: &'static str,
    feature: &'static str,
    is_built_in: bool,
}

const fn optional(
    verb: Option<&'static str>,
    word: &'static str,
    feature: &'static str,
    is_built_in: bool,
) -> Optional {
    Optional { verb, word, feature, is_built_in }
}

#[rustfmt::skip]
const OPTIONAL: [Optional; 17] = [
    optional(Some("live"), "live", "web", cfg!(feature = "web")),
    optional(None, "--live", "web", cfg!(feature = "web")),
    optional(Some("watch"), "--from", "web", cfg!(feature = "web")),
    optional(Some("watch"), "--to", "web", cfg!(feature = "web")),
    optional(Some("watch"), "--token-file", "web", cfg!(feature = "web")),
    optional(Some("export"), "export", "export", cfg!(feature = "export")),
    optional(Some("compare"), "--junit", "export", cfg!(feature = "export")),
    optional(Some("cache"), "cache", "experiments", cfg!(feature = "experiments")),
    optional(Some("capacity"), "capacity", "experiments", cfg!(feature = "experiments")),
    optional(Some("compare"), "compare", "experiments", cfg!(feature = "experiments")),
    optional(Some("disk"), "disk", "experiments", cfg!(feature = "experiments")),
    optional(Some("gateway"), "gateway", "experiments", cfg!(feature = "experiments")),
    optional(Some("predict"), "predict", "experiments", cfg!(feature = "experiments")),
    optional(Some("reproduce"), "reproduce", "experiments", cfg!(feature = "experiments")),
    optional(Some("tap"), "agent", "agent", cfg!(feature = "agent")),
    optional(Some("tap"), "--agent", "agent", cfg!(feature = "agent")),
    optional(Some("tap"), "manager", "manager", cfg!(feature = "manager")),
];

/// A message with the feature of a refused verb or option; `None` if there is none. `words` are the command line.
pub fn refusal(error: &clap::Error, words: &[String]) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(typed)) = error.get(kind) else { return None };
    let word = typed.split('=').next()?;
    let verb = words.get(1)?;
    let is_it = |optional: &&Optional| optional.word == word && optional.verb.is_none_or(|of| of == verb);
    let found = OPTIONAL.iter().find(|optional| !optional.is_built_in && is_it(optional))?;
    Some(missing(word, found.feature))
}

/// The message about a word that needs a feature.
pub fn missing(word: &str, feature: &str) -> String {
    format!(
        "{word} is not in this build: it needs the feature `{feature}` (cargo build --release --features {feature})"
    )
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;

    use clap::Parser;

    use super::*;
    use crate::args::Arguments;
    use crate::exit;

    /// A command line for each of [`OPTIONAL`], in the same order.
    const LINES: [&str; OPTIONAL.len()] = [
        "yamabiko live",
        "yamabiko bench http://localhost/ --live=127.0.0.1:7030",
        "yamabiko watch --from 7020",
        "yamabiko watch -i lo --to http://localhost:7020",
        "yamabiko watch -i lo --token-file file",
        "yamabiko export --otlp http://localhost/",
        "yamabiko compare a b --junit file",
        "yamabiko cache --proxy 127.0.0.1:3128",
        "yamabiko capacity http://localhost/ --slo p99<1s",
        "yamabiko compare a b",
        "yamabiko disk .",
        "yamabiko gateway",
        "yamabiko predict http://localhost/",
        "yamabiko reproduce koshien",
        "yamabiko tap agent --manager https://localhost:1 --token file",
        "yamabiko tap --agent -- true",
        "yamabiko tap manager --listen [::]:1 --data .",
    ];

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn verb_or_option_of_a_missing_feature_names_the_feature() {
        for (optional, line) in OPTIONAL.iter().zip(LINES) {
            let words = words(line);
            // An option of a verb that is missing itself is refused with the verb.
            let is_verb_missing = |row: &&Optional| Some(row.word) == optional.verb && !row.is_built_in;
            let optional = OPTIONAL.iter().find(is_verb_missing).unwrap_or(optional);
            match Arguments::try_parse_from(&words) {
                Ok(_) => assert!(optional.is_built_in, "{line}"),
                Err(error) => {
                    assert!(!optional.is_built_in, "{line}: {error}");
                    assert_eq!(
                        refusal(&error, &words),
                        Some(missing(optional.word, optional.feature)),
                        "{line}: {error}"
                    );
                    assert_eq!(exit::usage(&error, &words), ExitCode::from(1), "{line}");
                }
            }
        }
    }

    #[test]
    fn option_of_another_verb_names_no_feature() {
        for line in [
            "yamabiko run p.toml --to http://localhost:7020",
            "yamabiko bench http://localhost/ --from 7020",
            "yamabiko run p.toml --token-file file",
            "yamabiko bench http://localhost/ --junit file",
            "yamabiko bench http://localhost/ --agent",
            "yamabiko runs manager",
            "yamabiko tap live",
        ] {
            let words = words(line);
            let error = Arguments::try_parse_from(&words).expect_err(line);
            assert_eq!(refusal(&error, &words), None, "{line}: {error}");
            assert_eq!(exit::usage(&error, &words), ExitCode::from(1), "{line}");
        }
    }

    #[test]
    fn help_lists_only_verbs_of_built_in_features() {
        let help = crate::help::command().render_help().to_string();
        for optional in OPTIONAL.iter().filter(|optional| optional.verb == Some(optional.word)) {
            assert_eq!(help.contains(&format!("\n  {} ", optional.word)), optional.is_built_in, "{}", optional.word);
        }
    }
}
