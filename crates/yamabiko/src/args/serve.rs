//! `yamabiko serve`: as typed, and the bounds as meant.

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
    after_help = "SIGTERM and Ctrl-C: answers under way are finished, nothing new is accepted; a second one ends \
                        at once. SIGHUP: certificate and key are read again, the log is opened anew."
)]
pub struct Serve {
    /// The folder
    #[arg(required_unless_present_any = ["max", "workload"], conflicts_with_all = ["max", "workload"])]
    pub dir: Option<PathBuf>,
    /// First write into the folder the files of a model, such as specweb99:1000, surge:5000 or even:1000,size=10KB (see
    /// `bench --content`); nothing is overwritten
    #[arg(long, value_name = "MODEL:OBJECTS", requires = "dir")]
    pub make_content: Option<::load::content::Content>,
    /// Address and port
    #[arg(long, default_value = "127.0.0.1:8080", value_parser = address)]
    pub listen: SocketAddr,
    /// Threads, each with its own share of the connections
    #[arg(long, default_value_t = 1, value_parser = threads)]
    pub threads: usize,
    /// How to talk to the kernel
    #[arg(long, value_enum, default_value_t = Engine::Auto)]
    pub engine: Engine,
    /// Speak HTTPS, and nothing else, with this certificate (PEM, the server's own first) and its private key
    #[arg(long, num_args = 2, value_names = ["CERT", "KEY"], conflicts_with = "max")]
    pub tls: Option<Vec<PathBuf>>,
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

/// Which files are shown, and how.
#[derive(Args, Debug)]
#[command(next_help_heading = "Files")]
pub struct FileOptions {
    /// Show files and folders whose name begins with a dot; without it only `.well-known` is
    #[arg(long, conflicts_with = "max")]
    pub hidden: bool,
    /// The file that answers for a folder; may be given more than once: the first that is there [default: index.html]
    #[arg(long, value_name = "NAME", value_parser = file_name, conflicts_with_all = ["max", "no_index"])]
    pub index: Vec<String>,
    /// No file answers for a folder
    #[arg(long, conflicts_with = "max")]
    pub no_index: bool,
    /// Leave NAME.br and NAME.gz alone; without it they are sent in place of NAME to clients that take them
    #[arg(long, conflicts_with = "max")]
    pub no_precompressed: bool,
}

/// What clients may take.
#[derive(Args, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitOptions {
    /// Most connections at once [default: as many as files may be open]; past it the one idle longest makes room
    #[arg(long, value_name = "NUMBER", value_parser = some, conflicts_with = "max")]
    pub connections: Option<usize>,
    /// Most of them from one address (IPv6: one /64) [default: three quarters of all]; further ones are told 503
    #[arg(long, value_name = "NUMBER", value_parser = some, conflicts_with = "max")]
    pub connections_per_address: Option<usize>,
    /// A request's head may be so long, at most 32KiB; longer ones are told 414 or 431
    #[arg(long, value_name = "SIZE", default_value = "8KiB", value_parser = head_size, conflicts_with = "max")]
    pub head_size: Bytes,
    /// A request's body may be so long; longer ones are told 413
    #[arg(long, value_name = "SIZE", default_value = "1MiB", conflicts_with = "max")]
    pub body_size: Bytes,
    /// A client has so long for a request's head, the first time from its connect on and with the TLS handshake
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = patience, conflicts_with = "max")]
    pub head_time: Duration,
    /// A client that takes less than 16 KiB of its answer in this time is cut off
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience, conflicts_with = "max")]
    pub stall_time: Duration,
    /// A client that sends less than 1 KiB of its request's body in this time is cut off
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience, conflicts_with = "max")]
    pub body_time: Duration,
    /// A kept connection is closed when nothing is asked for so long [default: 75s; set by the workload with --workload]
    #[arg(long, value_name = "TIME", value_parser = patience, conflicts_with = "max")]
    pub idle_time: Option<Duration>,
    /// When told to stop, finish what is under way for at most this time
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
    pub think: Option<polymix::Law>,
}

/// MAX: the most a server could do.
#[derive(Args, Debug)]
#[command(next_help_heading = "MAX")]
pub struct MaxOptions {
    /// Serve nothing but one answer of this many bytes, such as 1KiB, from memory to every request: the most a server
    /// could do here
    #[arg(long = "max", id = "max", value_name = "SIZE", allow_hyphen_values = true)]
    pub bytes: Option<Bytes>,
    /// With --max: processes, each with so many threads and with open files of its own, for more connections than one
    /// process may have
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
    fn from(typed: Engine) -> Self {
        match typed {
            Engine::Auto => serve::Engine::Auto,
            Engine::Uring => serve::Engine::Uring,
            Engine::Epoll => serve::Engine::Epoll,
        }
    }
}

impl FileOptions {
    /// As meant.
    pub fn rules(&self) -> serve::FileRules {
        let usual = serve::FileRules::default();
        serve::FileRules {
            hidden: self.hidden,
            index: match (self.no_index, self.index.is_empty()) {
                (true, _) => Vec::new(),
                (false, true) => usual.index,
                (false, false) => self.index.clone(),
            },
            precompressed: !self.no_precompressed,
        }
    }
}

impl LimitOptions {
    /// As meant, where `usual` says what was not typed.
    pub fn limits(&self, usual: serve::Limits) -> serve::Limits {
        serve::Limits {
            head_bytes: usize::try_from(self.head_size.0).unwrap_or(usize::MAX),
            head_time: self.head_time,
            idle_time: self.idle_time.unwrap_or(usual.idle_time),
            stall_time: self.stall_time,
            body_bytes: self.body_size.0,
            body_time: self.body_time,
            connections: self.connections,
            connections_per_address: self.connections_per_address,
            stop_time: self.stop_time,
            ..usual
        }
    }
}

/// A name in a folder, not a path.
fn file_name(typed: &str) -> Result<String, String> {
    match typed {
        "" | "." | ".." => Err("the name of a file is wanted, such as index.html".to_owned()),
        path if path.contains(['/', '\0']) => {
            Err("a name without `/` is wanted: it is looked for in each folder".to_owned())
        }
        name => Ok(name.to_owned()),
    }
}

fn some(typed: &str) -> Result<usize, String> {
    match typed.parse() {
        Ok(some @ 1..=10_000_000) => Ok(some),
        _ => Err("a number from 1 to 10000000 is wanted".to_owned()),
    }
}

/// What a head may take. With less, not even a short request of a browser fits.
fn head_size(typed: &str) -> Result<Bytes, String> {
    match typed.parse() {
        Ok(size @ Bytes(256..=32_768)) => Ok(size),
        Ok(_) => Err("from 256B to 32KiB".to_owned()),
        Err(error) => Err(format!("{error}")),
    }
}

/// Time for something that a client must get done.
fn patience(typed: &str) -> Result<Duration, String> {
    match parse_duration(typed) {
        Ok(time) if time >= PATIENCE_MIN => Ok(time),
        Ok(_) => Err("at least 100ms: some clients are further away than that".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The shortest time-out that is not a denial of service by itself.
const PATIENCE_MIN: Duration = Duration::from_millis(100);
