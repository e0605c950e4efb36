//! Hints for options of other load generators: for wrk's `-t` the error names the corresponding option.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// Verbs that take the load's options.
const VERBS: [&str; 6] = ["bench", "capacity", "compare", "predict", "cache", "net"];

/// An option of another program, its meaning there, and the option here.
struct ForeignOption {
    options: &'static [&'static str],
    of: &'static str,
    here: &'static str,
}

const fn foreign(options: &'static [&'static str], of: &'static str, here: &'static str) -> ForeignOption {
    ForeignOption { options, of, here }
}

#[rustfmt::skip]
const FOREIGN_OPTIONS: [ForeignOption; 33] = [
    foreign(&["-z"], "hey's and oha's duration", "-d 30s"),
    foreign(&["-q", "--rps", "--qps", "--query-per-second"], "the offered rate of hey, oha and vegeta", "--rate 100/s (of all connections together)"),
    foreign(&["-R"], "wrk2's rate", "--rate 1000/s"),
    foreign(&["-t"], "wrk's number of threads", "--threads 2; of ab and hey, the timeout: --timeout 30s"),
    foreign(&["-X", "--request"], "curl's and hey's method", "-m POST"),
    foreign(&["-I", "--head"], "curl's HEAD request", "-m HEAD"),
    foreign(&["--vus", "-u", "--users"], "the virtual users of k6 and Locust", "-c 10 (a closed loop, without a pause); users that arrive: --rate 10/s --clients 10"),
    foreign(&["--iterations", "--requests-per-connection"], "k6's number of iterations", "-n 1000"),
    foreign(&["--stage", "--stages"], "k6's stages", "--phase '30s ramp to 100/s' --phase '1m at 100/s'"),
    foreign(&["--latency", "--u_latency"], "wrk's percentiles", "not needed: percentiles are always printed"),
    foreign(&["--latency-correction", "-w"], "oha's correction for coordinated omission", "not needed: with --rate response times count from the scheduled time"),
    foreign(&["-s", "--script"], "wrk's script", "a plan with requests and sessions (docs/concepts/workloads.md): yamabiko run PLAN"),
    foreign(&["-o", "--output", "--out", "--summary-export", "--output-format"], "the file of results", "--json > FILE, or afterwards yamabiko report last --export csv FILE"),
    foreign(&["-T", "--content-type"], "the content type of ab and hey", "-H 'Content-Type: application/json'"),
    foreign(&["-A", "--accept"], "hey's Accept", "-H 'Accept: text/html'"),
    foreign(&["-a", "--user"], "basic authentication", "--basic-auth USER:PASSWORD"),
    foreign(&["-b", "--cookie"], "curl's cookie", "-H 'Cookie: name=value'"),
    foreign(&["-D", "--data", "--data-raw", "--data-binary", "--body-file", "-p"], "the body's file or text", "--body 'TEXT' or --body @FILE"),
    foreign(&["-x"], "curl's and hey's proxy", "--proxy HOST:PORT"),
    foreign(&["-L", "--location", "--redirect", "--redirects", "--max-redirs"], "following redirects", "--follow-redirects 5"),
    foreign(&["--http2", "--h2", "--http2-prior-knowledge"], "HTTP/2", "--http 2"),
    foreign(&["--http1.1", "--http1"], "HTTP/1.1", "--http 1.1 (the default)"),
    foreign(&["--http3", "--h3", "--http3-only"], "HTTP/3", "--http 3"),
    foreign(&["--disable-keepalive", "--no-keepalive"], "one connection per request", "--close"),
    foreign(&["--disable-compression", "--compressed"], "compression", "off by default; on: -H 'Accept-Encoding: gzip'"),
    foreign(&["--no-tui", "--no-progress", "--quiet", "--silent"], "a quiet terminal", "not needed: standard output has the result only; --json has one document"),
    foreign(&["--cpus", "--workers", "-W"], "the number of cores", "--threads 2"),
    foreign(&["--connect-to", "--resolve"], "curl's other address", "--to ADDRESS"),
    foreign(&["--unix-socket"], "curl's Unix socket", "--unix PATH"),
    foreign(&["--host"], "the Host header", "-H 'Host: shop.example'"),
    foreign(&["--concurrency", "--parallel"], "the number of connections", "-c 64"),
    foreign(&["--ca-cert", "--ca"], "the trusted authorities", "--cacert FILE"),
    foreign(&["--delay", "--latency-ms"], "a distance", "--rtt 48ms"),
];

/// The option to type instead of a refused one, if known; `words` are the command line.
pub fn hint(error: &clap::Error, words: &[String]) -> Option<String> {
    let verb = words.get(1).map_or("", String::as_str);
    match error.kind() {
        ErrorKind::UnknownArgument if VERBS.contains(&verb) => hint_of_option(&text(error, ContextKind::InvalidArg)?),
        ErrorKind::InvalidSubcommand => {
            let typed = text(error, ContextKind::InvalidSubcommand)?;
            is_url(&typed).then(|| format!("a verb is missing before the URL: yamabiko bench {typed}"))
        }
        // `-d` is the body in curl and hey.
        ErrorKind::ValueValidation if VERBS.contains(&verb) => {
            let value = text(error, ContextKind::InvalidValue)?;
            let is_body = text(error, ContextKind::InvalidArg)?.contains("--duration")
                && value.starts_with(['{', '[', '@', '<', '"']);
            is_body.then(|| {
                format!("'{value}' is not a duration: -d is the length of the measured phase; a body is --body 'TEXT' or --body @FILE")
            })
        }
        _ => None,
    }
}

/// Whether clap's suggestion is plausible: a misspelt word differs in a letter or two.
pub fn is_misspelt(error: &clap::Error) -> bool {
    let typed = text(error, ContextKind::InvalidArg).or_else(|| text(error, ContextKind::InvalidSubcommand));
    let guesses = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue];
    let Some(typed) = typed else { return true };
    let typed = typed.trim_start_matches('-').split('=').next().unwrap_or_default().to_owned();
    let guessed = guesses.into_iter().filter_map(|kind| error.get(kind)).flat_map(|value| match value {
        ContextValue::String(guess) => vec![guess.clone()],
        ContextValue::Strings(guesses) => guesses.clone(),
        _ => Vec::new(),
    });
    let allowed = if typed.chars().count() < 5 { 1 } else { 2 };
    let mut guessed = guessed.peekable();
    guessed.peek().is_none()
        || guessed.any(|guess| {
            let guess = guess.trim_start_matches('-');
            strsim::damerau_levenshtein(guess, &typed) <= allowed || guess.starts_with(&typed)
        })
}

fn hint_of_option(text: &str) -> Option<String> {
    let name = text.split('=').next()?;
    let option = FOREIGN_OPTIONS.iter().find(|option| option.options.contains(&name))?;
    Some(format!("{name} is {}; here: {}", option.of, option.here))
}

fn is_url(word: &str) -> bool {
    let starts = ["http://", "https://", "localhost", "127.0.0.1", "www."];
    starts.iter().any(|start| word.starts_with(start))
}

fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Arguments;

    fn refused(line: &str) -> (clap::Error, Vec<String>) {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        (Arguments::try_parse_from(&words).unwrap_err(), words)
    }

    #[test]
    fn every_foreign_option_has_a_hint_and_is_not_an_own_option() {
        for option in FOREIGN_OPTIONS.iter().flat_map(|option| option.options) {
            let (error, words) = refused(&format!("yamabiko bench http://localhost/ {option} 5"));
            let text = hint(&error, &words);
            assert!(text.as_ref().is_some_and(|text| text.starts_with(option)), "{option}: {error} {text:?}");
        }
    }

    #[test]
    fn common_command_lines_of_other_tools_get_a_hint() {
        for (line, expected) in [
            ("yamabiko bench -t4 -c100 -d30s http://localhost:8080/", "--threads"),
            ("yamabiko bench -z 30s http://localhost:8080/", "-d 30s"),
            ("yamabiko bench --rps=100 http://localhost/", "--rate 100/s"),
            ("yamabiko bench -R2000 http://localhost/", "--rate 1000/s"),
            ("yamabiko bench http://localhost/ -X POST", "-m POST"),
            ("yamabiko capacity http://localhost/ --vus 10", "-c 10"),
            ("yamabiko bench http://localhost/ -d {\"a\":1}", "--body"),
            ("yamabiko http://localhost:8080/", "yamabiko bench http://localhost:8080/"),
            ("yamabiko localhost:8080", "yamabiko bench localhost:8080"),
        ] {
            let (error, words) = refused(line);
            let text = hint(&error, &words);
            assert!(text.as_ref().is_some_and(|text| text.contains(expected)), "{line}: {error} {text:?}");
        }
    }

    #[test]
    fn only_misspelt_words_get_a_suggestion() {
        for (line, misspelt) in [
            ("yamabiko bench --conections 5 http://localhost/", true),
            ("yamabiko bench --rat 5 http://localhost/", true),
            ("yamabiko benhc http://localhost/", true),
            ("yamabiko bench --report-file x http://localhost/", false),
            ("yamabiko bench --ratelimit 5 http://localhost/", false),
            ("yamabiko start", false),
        ] {
            let (error, _) = refused(line);
            let guessed = [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand];
            let has_guess = guessed.into_iter().any(|kind| error.get(kind).is_some());
            assert_eq!(is_misspelt(&error), misspelt || !has_guess, "{line}: {error}");
        }
    }
}
