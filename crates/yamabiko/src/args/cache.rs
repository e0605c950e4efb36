//! Arguments of `serve` for its result cache.

use std::time::Duration;

use clap::Args;
use units::{Bytes, parse_duration};

/// Options of the result cache for dynamic responses.
#[derive(Args, Debug)]
#[command(next_help_heading = "Result cache")]
pub struct CacheOptions {
    /// Keep dynamic answers in memory and give them again, as far as their origin allows it (Cache-Control, Expires, Vary ..)
    #[arg(long, requires = "dynamic")]
    pub cache: bool,
    /// All stored answers together may take this much memory
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = memory, requires = "cache")]
    pub cache_memory: Bytes,
    /// A body that is larger is not stored [default: 4MiB, at most a quarter of --cache-memory]
    #[arg(long, value_name = "SIZE", requires = "cache")]
    pub cache_object_max: Option<Bytes>,
    /// Where the origin gives no lifetime: a tenth of the time since Last-Modified, at most this; without it such answers
    /// are not stored
    #[arg(long, value_name = "TIME", value_parser = parse_duration, requires = "cache")]
    pub cache_heuristic: Option<Duration>,
    /// Clients cannot demand a fetch: their Cache-Control and Pragma are not heard, but for only-if-cached
    #[arg(long, requires = "cache")]
    pub cache_ignore_clients: bool,
}

impl CacheOptions {
    /// The configured cache; `None` without `--cache`.
    pub fn spec(&self) -> Option<serve::CacheSpec> {
        let memory_bytes = usize::try_from(self.cache_memory.0).unwrap_or(usize::MAX);
        let defaults = serve::CacheSpec::default();
        let object_bytes_max = match self.cache_object_max {
            Some(size) => usize::try_from(size.0).unwrap_or(usize::MAX).min(memory_bytes),
            None => defaults.object_bytes_max.min(memory_bytes / 4),
        };
        self.cache.then_some(serve::CacheSpec {
            memory_bytes,
            object_bytes_max,
            heuristic_max: self.cache_heuristic,
            ignores_clients: self.cache_ignore_clients,
        })
    }
}

/// Less would hold nothing worth a look-up.
fn memory(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(size @ Bytes(65_536..)) => Ok(size),
        Ok(_) => Err("at least 64KiB".to_owned()),
        Err(error) => Err(format!("{error}")),
    }
}
