//! Help: the options that `-h` shows, examples of every verb, and the groups of verbs.
//!
//! `-h` fits one screen of 80 columns: [`VERBS`] names the options that most uses need. `--help` shows all of them.

mod verbs;

use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};

use crate::args::Arguments;
use verbs::{GROUPS, VERBS, VerbHelp};

/// Parses the command line, with help as [`command`] has it.
///
/// # Errors
/// Wrong usage, or a request for help or the version.
pub fn parse() -> Result<Arguments, clap::Error> {
    parse_words(crate::args::with_read(std::env::args_os()))
}

/// Parses these words, the program first.
///
/// # Errors
/// As [`parse`].
pub fn parse_words(words: Vec<std::ffi::OsString>) -> Result<Arguments, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(words)?;
    Arguments::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// The command with grouped verbs, short help and examples.
pub fn command() -> Command {
    let command = Arguments::command();
    let groups = groups(&command);
    with_examples(command.mut_subcommands(|verb| with_help(verb, "")), "").help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}\nOptions:\n{{options}}{{after-help}}"
    ))
}

/// Examples of a verb (`bench`, `runs search`; empty: the command itself): what each does, and its command line.
pub fn examples(verb: &str) -> &'static [(&'static str, &'static str)] {
    help_of(verb).map_or(&[], |help| help.examples)
}

fn help_of(verb: &str) -> Option<&'static VerbHelp> {
    VERBS.iter().find(|help| help.verb == verb)
}

/// The verbs in groups by purpose, a line each.
fn groups(command: &Command) -> String {
    let mut text = String::new();
    for (heading, verbs) in GROUPS {
        let known: Vec<&Command> = verbs.iter().filter_map(|verb| command.find_subcommand(verb)).collect();
        text.push_str(&format!("{heading}:\n"));
        for verb in known {
            let about = verb.get_about().map(ToString::to_string).unwrap_or_default();
            text.push_str(&format!("  {:<11} {about}\n", verb.get_name()));
        }
    }
    text
}

fn with_help(verb: Command, before: &str) -> Command {
    let path = if before.is_empty() { verb.get_name().to_owned() } else { format!("{before} {}", verb.get_name()) };
    let mut verb = verb.mut_subcommands(|below| with_help(below, &path));
    if let Some(help) = help_of(&path).filter(|help| !help.options.is_empty()) {
        verb = verb.mut_args(|arg| in_short_help(arg, help));
    }
    if let Some((_, usage)) = USAGES.iter().find(|(verb, _)| *verb == path) {
        verb = verb.override_usage(*usage);
    }
    with_examples(verb, &path)
}

/// Usage of the verbs whose generated usage is wider than 80 columns; one line each, as an error message shows it.
const USAGES: &[(&str, &str)] = &[
    #[cfg(feature = "web")]
    ("watch", "yamabiko watch [OPTIONS] <-i <DEVICE>|-r <FILE>|--from <ADDRESS:PORT>>"),
];

/// An argument with its short text, or hidden from `-h`.
fn in_short_help(arg: Arg, help: &VerbHelp) -> Arg {
    let name = arg.get_long().map_or_else(|| arg.get_id().to_string(), ToOwned::to_owned);
    let Some((_, text)) = help.options.iter().find(|(option, _)| *option == name) else {
        return arg.hide_short_help(true);
    };
    let long = arg.get_help().cloned().unwrap_or_default();
    arg.help(*text).long_help(long)
}

/// The last line of `yamabiko -h`.
const ROOT_FOOTER: &str = "Help of a verb: yamabiko VERB -h; all its options: yamabiko VERB --help";

fn with_examples(command: Command, path: &str) -> Command {
    let Some(help) = help_of(path) else { return command };
    let notes = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let mut examples = String::from("Examples:");
    for (what, line) in help.examples {
        examples.push_str(&format!("\n  {what}:\n    {line}"));
    }
    let is_short = !help.options.is_empty();
    let all = if is_short { format!("All options: yamabiko {path} --help") } else { notes.clone() };
    let paragraphs =
        |parts: &[&str]| parts.iter().copied().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n\n");
    // The root command lists all verbs, which leaves no lines for examples.
    let short = if path.is_empty() { ROOT_FOOTER.to_owned() } else { paragraphs(&[&examples, &all]) };
    command.after_help(short).after_long_help(paragraphs(&[&examples, &notes]))
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    /// Calls `check` with every verb that is not hidden, and its path.
    fn for_each_verb(command: &Command, path: &str, check: &mut dyn FnMut(&Command, &str)) {
        check(command, path);
        for below in command.get_subcommands().filter(|below| !below.is_hide_set() && below.get_name() != "help") {
            let path =
                if path.is_empty() { below.get_name().to_owned() } else { format!("{path} {}", below.get_name()) };
            for_each_verb(below, &path, check);
        }
    }

    /// Words of a command line, with quotes as in a shell.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
        for c in line.chars() {
            match (c, quote) {
                (c, Some(end)) if c == end => quote = None,
                ('\'' | '"', None) => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (' ', None) => words.extend(word.take()),
                (c, _) => word.get_or_insert_default().push(c),
            }
        }
        words.extend(word);
        words
    }

    #[test]
    fn short_help_of_every_verb_fits_one_screen() {
        let command = command();
        for_each_verb(&command, "", &mut |verb, path| {
            if path == "ab" {
                return;
            }
            let mut verb = verb.clone().term_width(80).bin_name(format!("yamabiko {path}"));
            let text = verb.render_help().to_string();
            let lines = text.lines().count();
            assert!(lines <= LINES_MAX, "yamabiko {path} -h has {lines} lines:\n{text}");
            if let Some(long) = text.lines().find(|line| line.chars().count() > 80) {
                panic!("yamabiko {path} -h has a line of more than 80 columns: {long}");
            }
        });
    }

    /// Most lines of short help: one screen.
    const LINES_MAX: usize = 40;

    #[test]
    fn every_verb_has_examples_that_parse() {
        let command = command();
        for_each_verb(&command, "", &mut |_, path| {
            assert!(!examples(path).is_empty(), "`yamabiko {path}` has no example");
            for (_, line) in examples(path) {
                let line = line.split(" | ").next().unwrap_or_default();
                let words = words(line);
                if words.first().map(String::as_str) != Some("yamabiko") {
                    continue;
                }
                let words = crate::args::with_read(words.iter().map(Into::into));
                for words in crate::args::expanded(words) {
                    if let Err(error) = super::command().try_get_matches_from(&words) {
                        assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{line}: {error}");
                    }
                }
            }
        });
    }

    #[test]
    fn options_of_short_help_exist() {
        let command = Arguments::command();
        for help in VERBS.iter().filter(|help| !help.verb.is_empty()) {
            let verb = help.verb.split(' ').try_fold(&command, |command, name| command.find_subcommand(name));
            if !cfg!(all(feature = "agent", feature = "export", feature = "manager", feature = "web")) {
                // Verbs and options of features that are not built in.
                continue;
            }
            let verb = verb.unwrap_or_else(|| panic!("verb {} does not exist", help.verb));
            for (option, _) in help.options {
                let exists = verb
                    .get_arguments()
                    .any(|arg| arg.get_long() == Some(option) || arg.get_long().is_none() && arg.get_id() == option);
                assert!(exists, "yamabiko {}: option {option} does not exist", help.verb);
            }
        }
    }

    #[test]
    fn every_verb_belongs_to_one_group() {
        let command = Arguments::command();
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            let groups = GROUPS.iter().filter(|(_, verbs)| verbs.contains(&verb.get_name())).count();
            assert_eq!(groups, 1, "{}", verb.get_name());
        }
    }
}
