//! Redaction: credentials in commands and plans are shown as `..`.
//!
//! A run's command is in its document, in its progress.json, on pages, in a comparison's JUnit report and in archives,
//! and a plan is on pages; people share all of these. Redacted are the values of the headers Authorization,
//! Proxy-Authorization and Cookie, credentials of basic authentication, and the passwords of proxies and URLs. Only
//! plan.toml contains them, since it repeats the run.

/// Replacement of a credential.
pub const WITHHELD: &str = "..";

/// Headers whose values are credentials.
const HEADERS: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];

/// The redacted header line: `Authorization: ..`. `None` if the line has no credential.
pub fn header(line: &str) -> Option<String> {
    let (name, value) = line.split_once(':')?;
    let is_one = HEADERS.iter().any(|known| name.trim().eq_ignore_ascii_case(known));
    (is_one && !value.trim().is_empty()).then(|| format!("{name}: {WITHHELD}"))
}

/// Redacts `USER:PASSWORD@HOST`, optionally with a scheme before and a path after it: `USER:..@HOST`, or `..@HOST` if
/// the password cannot be identified. `None` without a user before an @.
pub fn authority(typed: &str) -> Option<String> {
    let (scheme, rest) = typed.find("://").map_or(("", typed), |at| typed.split_at(at + 3));
    // The password of a proxy may contain a slash; that of a URL may not.
    let end = if scheme.is_empty() { rest.len() } else { rest.find(['/', '?', '#']).unwrap_or(rest.len()) };
    let (user, host) = rest[..end].rsplit_once('@')?;
    let user = user.split_once(':').map_or(String::new(), |(user, _)| format!("{user}:"));
    Some(format!("{scheme}{user}{WITHHELD}@{host}{}", &rest[end..]))
}

/// A redacted plan. It is processed line by line, not as TOML, so that an invalid plan can be shown as well; strings
/// over several lines are not searched.
pub fn plan(text: &str) -> String {
    text.split_inclusive('\n').map(line).collect()
}

fn line(line: &str) -> String {
    let (key, value) = line.split_once('=').map_or(("", line), |(key, value)| (key.trim(), value));
    let head = &line[..line.len() - value.len()];
    match key {
        "basic_auth" => format!("{head}{}", strings(value, &|_| Some(WITHHELD.to_owned()))),
        "proxy" => format!("{head}{}", strings(value, &authority)),
        // An array's lines have no key of their own, and an `=` may be anywhere in their values.
        _ => strings(line, &header),
    }
}

/// A line of TOML with its strings replaced where `shown` returns a replacement.
fn strings(line: &str, shown: &dyn Fn(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(['"', '\'']) {
        let quote = ["\"\"\"", "'''"].into_iter().find(|quote| rest[at..].starts_with(quote)).unwrap_or(&rest[at..=at]);
        let inner = &rest[at + quote.len()..];
        let length = closing(inner, quote).unwrap_or(inner.trim_end_matches(['\r', '\n']).len());
        out += &rest[..at + quote.len()];
        out += &shown(&inner[..length]).unwrap_or_else(|| inner[..length].to_owned());
        let after = length + if inner[length..].starts_with(quote) { quote.len() } else { 0 };
        out += &inner[length..after];
        rest = &inner[after..];
    }
    out + rest
}

/// The offset of a string's end; `None` if it is not on this line.
fn closing(inner: &str, quote: &str) -> Option<usize> {
    let mut escaped = false;
    let ends = inner.char_indices().find(|&(at, c)| {
        let ends = !escaped && inner[at..].starts_with(quote);
        escaped = quote.starts_with('"') && c == '\\' && !escaped;
        ends
    });
    ends.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credential_headers_are_redacted() {
        for (line, is_shown) in [
            ("Authorization: Bearer s3cret", Some("Authorization: ..")),
            ("authorization:s3cret", Some("authorization: ..")),
            ("PROXY-Authorization: Basic czNjcmV0", Some("PROXY-Authorization: ..")),
            ("Cookie: a=b; c=d", Some("Cookie: ..")),
            ("Accept: text/html", None),
            ("X-Cookie: a", None),
            ("Cookie:", None),
            ("nothing", None),
        ] {
            assert_eq!(header(line).as_deref(), is_shown, "{line}");
        }
    }

    #[test]
    fn passwords_in_urls_and_proxies_are_redacted() {
        for (typed, is_shown) in [
            ("u:s3cret@h:3128", Some("u:..@h:3128")),
            ("u:s3c/r@et@h:3128", Some("u:..@h:3128")),
            ("http://u:s3cret@h:3128/", Some("http://u:..@h:3128/")),
            ("https://s3cret@h/a@b", Some("https://..@h/a@b")),
            ("https://h/a@b?c@d", None),
            ("h:3128", None),
        ] {
            assert_eq!(authority(typed).as_deref(), is_shown, "{typed}");
        }
    }

    #[test]
    fn credentials_in_plans_are_redacted() {
        let typed = "[load]\nurl = \"http://h/a@b\"\nbasic_auth = \"u:s3\\\"cret\"\nproxy = \"u:s3cret@h:1\"\n\
                     headers = [\"Accept: a=\\\"b\\\"\", \"Authorization: s3\\\"cret\", 'Cookie: a=\"s3cret\"', \"X: y\"]\n\
                     more = [\n    \"authorization: s3cret=\",\n    \"B: =c\",\n]\n# the end";
        let is_shown = "[load]\nurl = \"http://h/a@b\"\nbasic_auth = \"..\"\nproxy = \"u:..@h:1\"\n\
                        headers = [\"Accept: a=\\\"b\\\"\", \"Authorization: ..\", 'Cookie: ..', \"X: y\"]\n\
                        more = [\n    \"authorization: ..\",\n    \"B: =c\",\n]\n# the end";
        assert_eq!(plan(typed), is_shown);
        for harmless in ["", "\n", "a = 1\r\n", "it's \"broken", "x = '''\na'b\n'''\n"] {
            assert_eq!(plan(harmless), harmless);
        }
        assert_eq!(plan("x = \"\"\"Cookie: s3\"cret\"\"\"\n"), "x = \"\"\"Cookie: ..\"\"\"\n");
        assert_eq!(plan("x = \"Cookie: s3cret\n"), "x = \"Cookie: ..\n");
    }
}
