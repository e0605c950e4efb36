//! Arguments of `explain`: options of `bench` for a run to be made, or a capture file, or a stored run.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::{At, Bench};

#[derive(Args, Debug)]
#[command(mut_arg("url", |url| url.required_unless_present("read").value_name("URL|RUN").help(
    "URL as for `bench`: makes a run, by default at 20 requests/s, and explains it. Without `://`: a stored run, by its name, the start of its name, \
     its folder, or `last`"
)))]
#[command(mut_arg("explain", |explain| explain.hide(true)))]
pub struct Explain {
    #[command(flatten)]
    pub bench: Bench,
    /// Read this pcap or pcapng file instead of making a run; without a URL, -r is the same
    #[arg(long, value_name = "FILE", conflicts_with = "url", help_heading = "Capture file")]
    pub read: Option<PathBuf>,
    /// Where the packets of --read were captured, which decides what they show
    #[arg(long, value_enum, default_value_t = At::Client, help_heading = "Capture file")]
    pub at: At,
    /// Also read a capture of the same connections at the server, on the same clock; --read is then of the client
    #[arg(long, value_name = "FILE", requires = "read", help_heading = "Capture file")]
    pub read_server: Option<PathBuf>,
    /// Decrypt HTTP/3 with the secrets in this file, as written by SSLKEYLOGFILE
    #[arg(long, value_name = "FILE", requires = "read", help_heading = "Capture file")]
    pub keylog: Option<PathBuf>,
    /// Also write a page with stacked bars and time-sequence diagrams to this file, and print its URL; `-` is standard
    /// output
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output, help_heading = "Explanation")]
    pub html: Option<PathBuf>,
    /// Make a second run with the remedy that the sentence names, where an option of `bench` has it, and print predicted
    /// beside measured
    #[arg(id = "try", long = "try", conflicts_with_all = ["read", "tap"], help_heading = "Explanation")]
    pub try_remedy: bool,
    /// Also write the shares of every explained response to this Parquet file
    #[arg(long, value_name = "FILE", value_parser = crate::page_file::output, help_heading = "Explanation")]
    pub parquet: Option<PathBuf>,
}

/// Options of a run that also apply to a capture file.
const WITH_FILES: &[&str] = &["read", "at", "read_server", "keylog", "rtt", "json", "html", "parquet"];
/// Options of a run that also apply to a stored one.
const WITH_STORED: &[&str] = &["url", "json", "html", "parquet"];

impl Explain {
    /// Options that were typed and do not apply: all but those of capture files, or of stored runs.
    pub fn without_effect(&self) -> Vec<&str> {
        let known = if self.read.is_some() { WITH_FILES } else { WITH_STORED };
        self.bench.given.iter().filter(|option| !known.contains(option)).collect()
    }

    /// Whether the positional argument is a stored run.
    pub fn is_stored(&self) -> bool {
        self.read.is_none() && self.bench.url.iter().all(|url| !url.contains("://")) && !self.bench.url.is_empty()
    }
}

/// The words of a command line in which `-r` of an `explain` without a URL is `--read`: `-r` is `--rate` of a run.
pub fn with_read(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut words: Vec<OsString> = words.into_iter().collect();
    let is_url = |word: &OsString| word.to_string_lossy().contains("://");
    if words.get(1).is_none_or(|verb| verb != "explain") || words.iter().any(is_url) {
        return words;
    }
    for word in words.iter_mut().skip(2) {
        let text = word.to_string_lossy();
        if text == "-r" {
            *word = "--read".into();
        } else if let Some(file) = text.strip_prefix("-r").filter(|_| !text.starts_with("--")) {
            *word = format!("--read={}", file.strip_prefix('=').unwrap_or(file)).into();
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_is_the_file_without_a_url_and_the_rate_with_one() {
        let words = |line: &str| -> Vec<String> {
            let words = with_read(line.split(' ').map(OsString::from));
            words.into_iter().map(|word| word.into_string().unwrap()).collect()
        };
        assert_eq!(words("yamabiko explain -r x.pcap").join(" "), "yamabiko explain --read x.pcap");
        assert_eq!(words("yamabiko explain -rx.pcap").join(" "), "yamabiko explain --read=x.pcap");
        assert_eq!(words("yamabiko explain -r 9/s http://a/").join(" "), "yamabiko explain -r 9/s http://a/");
        assert_eq!(words("yamabiko watch -r x.pcap").join(" "), "yamabiko watch -r x.pcap");
        assert_eq!(words("yamabiko").join(" "), "yamabiko");
    }
}
