//! The command line of this process as it is stored and printed: without credentials.

use std::ffi::OsString;

use schema::withheld::{self, WITHHELD};

use crate::args;

/// The command line of this process, quoted for a shell, with `..` in place of credentials ([`schema::withheld`]).
pub fn command_line() -> String {
    without_credentials(std::env::args_os().collect())
}

/// A word, quoted for a shell.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The printed command line of `words`, which begin with the program.
fn without_credentials(words: Vec<OsString>) -> String {
    let is_ab = args::ab::words(words.iter().cloned()).is_some();
    let mut before = String::new();
    let mut line = "yamabiko".to_owned();
    for word in words.into_iter().skip(1).map(|word| word.to_string_lossy().into_owned()) {
        line.push(' ');
        line += &quote(&shown(&before, &word, is_ab));
        before = word;
    }
    line
}

/// A word as it is printed; `before` is the word before it.
fn shown(before: &str, word: &str, is_ab: bool) -> String {
    let is_next = credential_option(before).filter(|(_, value)| value.is_empty());
    let after_option = is_next.and_then(|(kind, _)| kind.shown(word));
    let of_ab = || if is_ab { ab_argument(before, word) } else { None };
    let within_option = || {
        let (kind, value) = credential_option(word).filter(|(_, value)| !value.is_empty())?;
        kind.shown(value).map(|printed| with_value(word, value, &printed))
    };
    let value_withheld = after_option.or_else(of_ab).or_else(within_option);
    value_withheld.or_else(|| withheld::header(word)).or_else(|| in_url(word)).unwrap_or_else(|| word.to_owned())
}

/// A word with its value replaced.
fn with_value(word: &str, value: &str, printed: &str) -> String {
    format!("{}{printed}", &word[..word.len() - value.len()])
}

fn in_url(word: &str) -> Option<String> {
    if word.contains("://") { withheld::authority(word) } else { None }
}

/// The kind of an option's value, by which credentials in it are withheld.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Header,
    Credentials,
    Proxy,
}

impl Kind {
    fn shown(self, value: &str) -> Option<String> {
        match self {
            Kind::Header => withheld::header(value),
            Kind::Credentials => Some(WITHHELD.to_owned()),
            Kind::Proxy => withheld::authority(value),
        }
    }
}

/// The kind of an option's value, and the value if it is in the same word.
fn credential_option(word: &str) -> Option<(Kind, &str)> {
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long.split_once('=').unwrap_or((long, ""));
        let kind = match name {
            "header" => Kind::Header,
            "basic-auth" => Kind::Credentials,
            "proxy" => Kind::Proxy,
            _ => return None,
        };
        return Some((kind, value));
    }
    // The letter may follow other letters: -kH.
    let (_, value) = word.strip_prefix('-')?.split_once('H')?;
    Some((Kind::Header, value.strip_prefix('=').unwrap_or(value)))
}

/// An argument of ab as it is printed: `-A user:password`, `-Auser:password`, also after letters without a value.
fn ab_argument(before: &str, word: &str) -> Option<String> {
    if let Some((letter, "")) = args::ab::letter_with_value(before) {
        return ab_value(letter, word);
    }
    let (letter, value) = args::ab::letter_with_value(word).filter(|(_, value)| !value.is_empty())?;
    ab_value(letter, value).map(|printed| with_value(word, value, &printed))
}

fn ab_value(letter: char, value: &str) -> Option<String> {
    match letter {
        'A' | 'P' | 'C' => Some(WITHHELD.to_owned()),
        'H' => withheld::header(value),
        'X' => withheld::authority(value),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(words: &[&str]) -> String {
        without_credentials(["/usr/bin/yamabiko"].iter().chain(words).map(OsString::from).collect())
    }

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quote("--rate=110/s"), "--rate=110/s");
        assert_eq!(quote("nginx -c x"), "'nginx -c x'");
        assert_eq!(quote("it's"), "'it'\\''s'");
        assert_eq!(quote(""), "''");
    }

    #[test]
    fn credentials_are_withheld_from_the_command_line() {
        for (words, line) in [
            (&["-H", "Authorization: Bearer s3cret"][..], "-H 'Authorization: ..'"),
            (&["-Hauthorization:s3cret", "-H=Cookie: s=3cret"], "'-Hauthorization: ..' '-H=Cookie: ..'"),
            (&["-kH", "PROXY-AUTHORIZATION: s3cret"], "-kH 'PROXY-AUTHORIZATION: ..'"),
            (&["--header=Cookie: s=3cret", "http://h/"], "'--header=Cookie: ..' http://h/"),
            (&["--header", "Cookie: s=3cret", "-c", "8"], "--header 'Cookie: ..' -c 8"),
            (&["--basic-auth", "u:s3cret", "--basic-auth=u:s3cret"], "--basic-auth .. --basic-auth=.."),
            (&["--proxy", "u:s3cret@h:3128", "-n", "5"], "--proxy u:..@h:3128 -n 5"),
            (&["--proxy=http://u:s3cret@h:3128"], "--proxy=http://u:..@h:3128"),
            (&["http://u:s3cret@h/a", "--url=http://s3cret@h/"], "http://u:..@h/a --url=http://..@h/"),
            (&["--", "curl", "-HAuthorization: s3cret"], "-- curl '-HAuthorization: ..'"),
        ] {
            assert_eq!(printed(&[&["bench"], words].concat()), format!("yamabiko bench {line}"));
        }
    }

    #[test]
    fn words_without_credentials_are_unchanged() {
        for words in [
            &["http://h/a@b:c", "-H", "X: Authorization", "--proxy", "h:3128"][..],
            &["--path", "Home-2026", "--url=http://h/Cookie:5", "-r", "5/s", "--server-name", "H"],
            // In other verbs these letters have another meaning, or none.
            &["-A", "one", "-P", "two", "-C", "three"],
        ] {
            let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
            assert_eq!(printed(words), format!("yamabiko {}", line.join(" ")));
        }
    }

    #[test]
    fn credentials_of_ab_options_are_withheld() {
        let line = "yamabiko ab -k -A .. -kP.. -C .. -H 'Cookie: ..' -X u:..@h:1 -n 5 http://h/";
        let typed = "ab -k -A u:s3cret -kPu:s3cret -C s=3cret -H Cookie:3cret -X u:s3cret@h:1 -n 5 http://h/";
        assert_eq!(printed(&typed.split(' ').collect::<Vec<_>>()), line);
    }
}
