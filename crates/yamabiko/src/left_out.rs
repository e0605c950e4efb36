//! Verbs and options of features that this build does not have.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A verb or an option that is there with a feature only.
struct Optional {
    word: &'static str,
    feature: &'static str,
    is_built_in: bool,
}

const fn optional(word: &'static str, feature: &'static str, is_built_in: bool) -> Optional {
    Optional { word, feature, is_built_in }
}

const OPTIONAL: [Optional; 9] = [
    optional("live", "web", cfg!(feature = "web")),
    optional("--live", "web", cfg!(feature = "web")),
    optional("--from", "web", cfg!(feature = "web")),
    optional("--to", "web", cfg!(feature = "web")),
    optional("export", "export", cfg!(feature = "export")),
    optional("--junit", "export", cfg!(feature = "export")),
    optional("agent", "agent", cfg!(feature = "agent")),
    optional("--agent", "agent", cfg!(feature = "agent")),
    optional("manager", "manager", cfg!(feature = "manager")),
];

/// Which feature brings the verb or option that was refused; `None` where none does.
pub fn told(error: &clap::Error) -> Option<String> {
    let kind = match error.kind() {
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        _ => return None,
    };
    let Some(ContextValue::String(typed)) = error.get(kind) else { return None };
    let word = typed.split('=').next()?;
    let found = OPTIONAL.iter().find(|optional| !optional.is_built_in && optional.word == word)?;
    Some(missing(word, found.feature))
}

/// What is said of a word that needs a feature.
pub fn missing(word: &str, feature: &str) -> String {
    format!(
        "{word} is not in this build: it needs the feature `{feature}` (cargo build --release --features {feature})"
    )
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::args::Arguments;

    #[test]
    fn what_is_built_in_is_known_and_what_is_not_names_its_feature() {
        for (line, word) in [
            ("yamabiko live", "live"),
            ("yamabiko bench http://localhost/ --live", "--live"),
            ("yamabiko watch --from 7020", "--from"),
            ("yamabiko watch -i lo --to http://localhost:7020", "--to"),
            ("yamabiko export --otlp http://localhost/", "export"),
            ("yamabiko compare a b --junit file", "--junit"),
            ("yamabiko tap agent --manager https://localhost:1 --token file", "agent"),
            ("yamabiko tap --agent -- true", "--agent"),
            ("yamabiko tap manager --listen [::]:1 --data .", "manager"),
        ] {
            let is_built_in = OPTIONAL.iter().find(|optional| optional.word == word).unwrap().is_built_in;
            match Arguments::try_parse_from(line.split(' ')) {
                Ok(_) => assert!(is_built_in, "{line}"),
                Err(error) => assert!(!is_built_in && told(&error).unwrap().contains("feature"), "{line}: {error}"),
            }
        }
    }

    #[test]
    fn help_lists_the_verbs_that_are_there() {
        let help = Arguments::command().render_help().to_string();
        for optional in OPTIONAL.iter().filter(|optional| ["live", "export"].contains(&optional.word)) {
            assert_eq!(help.contains(&format!("\n  {} ", optional.word)), optional.is_built_in, "{}", optional.word);
        }
    }
}
