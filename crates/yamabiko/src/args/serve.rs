//! Arguments of `serve`, and the limits that they configure.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use units::{Bytes, parse_duration};

use super::cache::CacheOptions;
use super::component::ComponentOptions;
use super::dynamic::DynamicOptions;
use super::log::LogOptions;
use super::steps::StepOptions;
use super::{address, threads};

#[derive(Args, Debug)]
#[command(
    after_help = "SIGTERM and Ctrl-C complete the responses in progress and accept nothing new; a second signal ends \
                        immediately. SIGHUP reads certificate and key again and reopens the log."
)]
pub struct Serve {
    /// Serve the files of this folder
    #[arg(required_unless_present_any = ["max", "workload"], conflicts_with_all = ["max", "workload"])]
    pub dir: Option<PathBuf>,
    /// Write the files of a content model into the folder first, such as specweb99:1000, surge:5000 or even:1000,size=10KB (see
    /// `bench --content`); existing files are never overwritten
    #[arg(long, value_name = "MODEL:OBJECTS", requires = "dir")]
    pub make_content: Option<::load::content::Content>,
    /// Listen on this address and port
    #[arg(long, default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Use this many threads, each with its share of the connections
    #[arg(long, default_value_t = 1, value_parser = threads)]
    pub threads: usize,
    /// Use this kernel interface
    #[arg(long, value_enum, default_value_t = Engine::Auto)]
    pub engine: Engine,
    /// Serve HTTPS only, with this certificate chain (PEM, the server's certificate first) and private key
    #[arg(long, num_args = 2, value_names = ["CERT", "KEY"], conflicts_with = "max")]
    pub tls: Option<Vec<PathBuf>>,
    /// Serve HTTP/3, too, on the UDP port of the same number, with a thread more for each of --threads
    #[arg(long, requires = "tls")]
    pub http3: bool,
    #[command(flatten)]
    pub files: FileOptions,
    #[command(flatten)]
    pub limits: LimitOptions,
    #[command(flatten)]
    pub dynamic: DynamicOptions,
    #[command(flatten)]
    pub cache: CacheOptions,
    #[command(flatten)]
    pub log: LogOptions,
    #[command(flatten)]
    pub steps: StepOptions,
    #[command(flatten)]
    pub component: ComponentOptions,
    #[command(flatten)]
    pub origin: OriginOptions,
    #[command(flatten)]
    pub max: MaxOptions,
}

/// Which files are served, and how.
#[derive(Args, Debug)]
#[command(next_help_heading = "Files")]
pub struct FileOptions {
    /// Serve files and folders whose name begins with a dot, too [default: only `.well-known`]
    #[arg(long, conflicts_with = "max")]
    pub hidden: bool,
    /// Serve this file for a folder; may be repeated, and the first that exists is served [default: index.html]
    #[arg(long, value_name = "NAME", value_parser = file_name, conflicts_with_all = ["max", "no_index"])]
    pub index: Vec<String>,
    /// Serve no file for a folder
    #[arg(long, conflicts_with = "max")]
    pub no_index: bool,
    /// Do not serve NAME.br and NAME.gz in place of NAME to clients that accept the encoding
    #[arg(long, conflicts_with = "max")]
    pub no_precompressed: bool,
}

/// Limits for clients.
#[derive(Args, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitOptions {
    /// Limit concurrent connections; beyond it the connection that is idle longest is closed [default: the limit of open files]
    #[arg(long, value_name = "NUMBER", value_parser = positive, conflicts_with = "max")]
    pub connections: Option<usize>,
    /// Limit connections from one address (IPv6: one /64); further ones get 503 [default: three quarters of --connections]
    #[arg(long, value_name = "NUMBER", value_parser = positive, conflicts_with = "max")]
    pub connections_per_address: Option<usize>,
    /// Limit the size of a request head, at most 32KiB; longer ones get 414 or 431
    #[arg(long, value_name = "SIZE", default_value = "8KiB", value_parser = head_size, conflicts_with = "max")]
    pub head_size: Bytes,
    /// Limit the size of a request body; longer ones get 413
    #[arg(long, value_name = "SIZE", default_value = "1MiB", conflicts_with = "max")]
    pub body_size: Bytes,
    /// Wait this long for a request head; for the first one from the connect, TLS handshake included
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = timeout, conflicts_with = "max")]
    pub head_time: Duration,
    /// Disconnect a client that receives less than 16 KiB of its response in this time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = timeout, conflicts_with = "max")]
    pub stall_time: Duration,
    /// Disconnect a client that sends less than 1 KiB of its request body in this time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = timeout, conflicts_with = "max")]
    pub body_time: Duration,
    /// Close a persistent connection after this time without a request [default: 75s; set by the workload with --workload]
    #[arg(long, value_name = "TIME", value_parser = timeout, conflicts_with = "max")]
    pub idle_time: Option<Duration>,
    /// Wait at most this long for requests in flight when the server is stopped
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration, conflicts_with = "max")]
    pub stop_time: Duration,
}

/// The origin behind a cache under test.
#[derive(Args, Debug)]
#[command(next_help_heading = "Origin of a cache benchmark")]
pub struct OriginOptions {
    /// Serve the objects of this workload instead of a folder: polymix-1 to polymix-4, modern, or a TOML file. `yamabiko cache`
    /// starts such an origin itself; use this for one on another machine. Its counters are at /-/origin
    #[arg(long, value_name = "FILE|NAME", requires = "seed", conflicts_with_all = ["max", "dynamic", "hidden", "index", "no_index", "no_precompressed"])]
    pub workload: Option<String>,
    /// Set the seed of the objects; it must equal the seed of the load
    #[arg(long, value_name = "NUMBER", requires = "workload")]
    pub seed: Option<u64>,
    /// Set the think time before each response, overriding the workload: none, 200ms or 'norm(3s,1.5s)'
    #[arg(long, value_name = "TIME", requires = "workload")]
    pub think: Option<polymix::Distribution>,
}

/// MAX: an upper bound of any server.
#[derive(Args, Debug)]
#[command(next_help_heading = "MAX")]
pub struct MaxOptions {
    /// Serve one response of this size, such as 1KiB, from memory to every request: an upper bound of any server on this
    /// machine
    #[arg(long = "max", id = "max", value_name = "SIZE", allow_hyphen_values = true)]
    pub bytes: Option<Bytes>,
    /// Use this many processes, each with --threads threads and its own open files, for more connections than one process
    /// may have [with --max]
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = threads, conflicts_with = "dir")]
    pub processes: usize,
}

/// io_uring where the kernel has it, or one of the two by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Engine {
    Auto,
    #[value(name = "io_uring", alias = "uring")]
    Uring,
    Epoll,
}

impl From<Engine> for serve::Engine {
    fn from(engine: Engine) -> Self {
        match engine {
            Engine::Auto => serve::Engine::Auto,
            Engine::Uring => serve::Engine::Uring,
            Engine::Epoll => serve::Engine::Epoll,
        }
    }
}

impl FileOptions {
    /// The rules for files that these options configure.
    pub fn rules(&self) -> serve::FileRules {
        let defaults = serve::FileRules::default();
        serve::FileRules {
            hidden: self.hidden,
            index: match (self.no_index, self.index.is_empty()) {
                (true, _) => Vec::new(),
                (false, true) => defaults.index,
                (false, false) => self.index.clone(),
            },
            precompressed: !self.no_precompressed,
        }
    }
}

impl LimitOptions {
    /// The limits that these options configure; `defaults` has the defaults.
    pub fn limits(&self, defaults: serve::Limits) -> serve::Limits {
        serve::Limits {
            head_bytes: usize::try_from(self.head_size.0).unwrap_or(usize::MAX),
            head_time: self.head_time,
            idle_time: self.idle_time.unwrap_or(defaults.idle_time),
            stall_time: self.stall_time,
            body_bytes: self.body_size.0,
            body_time: self.body_time,
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            stop_time: self.stop_time,
            ..defaults
        }
    }
}

/// A name in a folder, not a path.
fn file_name(text: &str) -> Result<String, String> {
    match text {
        "" | "." | ".." => Err("expected the name of a file, such as index.html".to_owned()),
        path if path.contains(['/', '\0']) => {
            Err("expected a name without `/`: it is searched in each folder".to_owned())
        }
        name => Ok(name.to_owned()),
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number @ 1..=10_000_000) => Ok(number),
        _ => Err("expected a number from 1 to 10000000".to_owned()),
    }
}

/// What a head may take. With less, not even a short request of a browser fits.
fn head_size(text: &str) -> Result<Bytes, String> {
    match text.parse() {
        Ok(size @ Bytes(256..=32_768)) => Ok(size),
        Ok(_) => Err("from 256B to 32KiB".to_owned()),
        Err(error) => Err(format!("{error}")),
    }
}

/// Time for something that a client must get done.
fn timeout(text: &str) -> Result<Duration, String> {
    match parse_duration(text) {
        Ok(time) if time >= TIMEOUT_MIN => Ok(time),
        Ok(_) => Err("expected at least 100ms: the RTT of some clients is longer than that".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The shortest time-out that is not a denial of service by itself.
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
