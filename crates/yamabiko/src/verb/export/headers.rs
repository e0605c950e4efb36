//! Headers that the user adds to every message: credentials, a tenant. Their values are never printed.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use http::header::{HeaderName, HeaderValue};

use crate::args;
use crate::terminal::print_message;

/// Reads the headers of the command line, the file and the environment, in this order.
///
/// # Errors
/// A line is not a valid header, or is a header that the program sets. A file cannot be read. No message contains a
/// value.
pub fn read(arguments: &args::Push) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let mut headers = Vec::new();
    for line in &arguments.headers {
        headers.push(header(line).context("--header")?);
    }
    if let Some(path) = &arguments.header_file {
        headers.extend(file(path)?);
    }
    if let Some(line) = std::env::var_os(VARIABLE) {
        headers.push(header(&line.to_string_lossy()).with_context(|| format!("${VARIABLE}"))?);
    }
    Ok(headers)
}

/// Reads the headers of a file.
///
/// # Errors
/// Those of [`read`].
pub fn file(path: &Path) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let text = text(path).with_context(|| format!("reading {}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| header(line).with_context(|| format!("{}, line {}", path.display(), at + 1))).collect()
}

fn header(line: &str) -> Result<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':').context("expected a header such as `Name: value`")?;
    let name: HeaderName =
        name.trim().parse().map_err(|_| anyhow!("the text before the colon is not a valid header name"))?;
    if RESERVED.contains(&name.as_str()) {
        bail!("{name} is set by this program and cannot be given");
    }
    let mut value: HeaderValue = value
        .trim()
        .parse()
        .map_err(|_| anyhow!("the value of {name} has characters that are not allowed in a header"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

fn text(path: &Path) -> std::io::Result<String> {
    let file = File::open(path)?;
    if file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o077 != 0) {
        print_message(format_args!("note: other users may read the headers in {0}: chmod 600 {0}", path.display()));
    }
    let mut text = String::new();
    file.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Headers that the program sets.
const RESERVED: [&str; 6] = [
    "content-type",
    "content-encoding",
    "content-length",
    "transfer-encoding",
    "host",
    "x-prometheus-remote-write-version",
];
const VARIABLE: &str = "YAMABIKO_EXPORT_HEADER";
const FILE_MAX: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_lines_are_parsed() {
        let (name, value) = header("Authorization:  Bearer a:b ").unwrap();
        assert_eq!((name.as_str(), value.as_bytes()), ("authorization", &b"Bearer a:b"[..]));
        assert!(value.is_sensitive());
    }

    #[test]
    fn header_errors_never_contain_the_value() {
        for wrong in
            ["secret", "se cret: secret", "x: secret\u{1}", "x: secret\r\ny: z", "Host: secret", "Content-Type: secret"]
        {
            let error = format!("{:?}", header(wrong).unwrap_err());
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
