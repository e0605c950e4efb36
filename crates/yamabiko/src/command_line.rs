//! This process's command line, as it is kept and shown: without the credentials in it.

use std::ffi::OsString;

use schema::withheld::{self, WITHHELD};

use crate::args;

/// This process's command line, quoted so that a shell reads it back, with `..` in the place of credentials
/// ([`schema::withheld`]).
pub fn command_line() -> String {
    of(std::env::args_os().collect())
}

/// A word as a shell reads it back.
pub fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// `words` begin with the program.
fn of(words: Vec<OsString>) -> String {
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

/// A word as it is shown; `before` is the one before it.
fn shown(before: &str, word: &str, is_ab: bool) -> String {
    let is_next = of_option(before).filter(|(_, value)| value.is_empty());
    let after_option = is_next.and_then(|(kind, _)| kind.shown(word));
    let of_ab = || if is_ab { of_letter(before, word) } else { None };
    let within_option = || {
        let (kind, value) = of_option(word).filter(|(_, value)| !value.is_empty())?;
        kind.shown(value).map(|is_shown| behind(word, value, &is_shown))
    };
    let told = after_option.or_else(of_ab).or_else(within_option);
    told.or_else(|| withheld::header(word)).or_else(|| in_url(word)).unwrap_or_else(|| word.to_owned())
}

/// A word with another value at its end.
fn behind(word: &str, value: &str, is_shown: &str) -> String {
    format!("{}{is_shown}", &word[..word.len() - value.len()])
}

fn in_url(word: &str) -> Option<String> {
    if word.contains("://") { withheld::authority(word) } else { None }
}

/// What an option's value is.
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

/// What an option's value is, and the value if it is in the same word.
fn of_option(word: &str) -> Option<(Kind, &str)> {
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
    // Also behind other letters: -kH.
    let (_, value) = word.strip_prefix('-')?.split_once('H')?;
    Some((Kind::Header, value.strip_prefix('=').unwrap_or(value)))
}

/// What is shown of a word of ab: `-A user:password`, `-Auser:password`, also behind letters without a value.
fn of_letter(before: &str, word: &str) -> Option<String> {
    if let Some((letter, "")) = args::ab::letter_with_value(before) {
        return of_value(letter, word);
    }
    let (letter, value) = args::ab::letter_with_value(word).filter(|(_, value)| !value.is_empty())?;
    of_value(letter, value).map(|is_shown| behind(word, value, &is_shown))
}

fn of_value(letter: char, value: &str) -> Option<String> {
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

    fn told(words: &[&str]) -> String {
        of(["/usr/bin/yamabiko"].iter().chain(words).map(OsString::from).collect())
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
            assert_eq!(told(&[&["bench"], words].concat()), format!("yamabiko bench {line}"));
        }
    }

    #[test]
    fn words_without_credentials_are_unchanged() {
        for words in [
            &["http://h/a@b:c", "-H", "X: Authorization", "--proxy", "h:3128"][..],
            &["--path", "Home-2026", "--url=http://h/Cookie:5", "-r", "5/s", "--server-name", "H"],
            // In other verbs these letters are something else, or nothing.
            &["-A", "one", "-P", "two", "-C", "three"],
        ] {
            let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
            assert_eq!(told(words), format!("yamabiko {}", line.join(" ")));
        }
    }

    #[test]
    fn credentials_of_ab_options_are_withheld() {
        let line = "yamabiko ab -k -A .. -kP.. -C .. -H 'Cookie: ..' -X u:..@h:1 -n 5 http://h/";
        let typed = "ab -k -A u:s3cret -kPu:s3cret -C s=3cret -H Cookie:3cret -X u:s3cret@h:1 -n 5 http://h/";
        assert_eq!(told(&typed.split(' ').collect::<Vec<_>>()), line);
    }
}
