//! The origin of a sweep: started here or running elsewhere, verified before the load; its counters are read around
//! each point.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use plan::TlsPlan;
use polymix::{BodyContent, CacheWorkload, OriginFigures};

use super::sweep_plan::CachePlan;
use experiment::ExperimentError;
use experiment::Order;
use experiment::local::free_address;
use experiment::local::{CoreDivision, LocalServer};
use experiment::programs::quoted;
use testbed::get;

/// Path of the origin's counters.
const COUNTERS_PATH: &str = "/-/origin";

/// A running origin.
pub struct Origin {
    /// Server processes, which end when dropped.
    _servers: Vec<LocalServer>,
    /// Address for HTTP.
    pub plain: SocketAddr,
    /// Address for TLS, and how its certificate is verified.
    pub secure: Option<(SocketAddr, TlsPlan)>,
}

impl Origin {
    /// Starts the origin on this host, unless the plan names a running one, and verifies workload and seed. Must be
    /// called while this process has one thread. `folder` receives workload file, certificate and logs.
    ///
    /// # Errors
    /// The origin does not start, does not respond, or has another workload, seed or build.
    pub fn start(
        plan: &CachePlan,
        workload: &CacheWorkload,
        order: &Order,
        folder: &Path,
        division: &CoreDivision,
    ) -> Result<Origin, ExperimentError> {
        if let Some(plain) = plan.cache.origin_at {
            let origin = Origin { _servers: Vec::new(), plain, secure: None };
            origin.verify(plan, workload)?;
            return Ok(origin);
        }
        let plain = plan.origin.listen.map_or_else(free_address, Ok)?;
        let cores = division.server.as_ref();
        let start = |listen, tls, log: &str| {
            let command = command(plan, workload, order, listen, tls, folder)?;
            LocalServer::start(&command, listen, cores, &folder.join(log))
        };
        let mut servers = vec![start(plain, None, "origin.out")?];
        let mut secure = None;
        if workload.https > 0.0 {
            let listen = SocketAddr::new(plain.ip(), free_address()?.port());
            let (certificate, key) = certificate(folder, listen)?;
            servers.push(start(listen, Some((&certificate, &key)), "origin-tls.out")?);
            secure = Some((listen, TlsPlan { cacert: Some(certificate), ..TlsPlan::default() }));
        }
        let origin = Origin { _servers: servers, plain, secure };
        origin.verify(plan, workload)?;
        Ok(origin)
    }

    /// Counters of the HTTP listener. Requests over TLS are not counted, since no proxy can save them.
    ///
    /// # Errors
    /// The origin does not respond, or not with counters.
    pub fn figures(&self) -> Result<OriginFigures, ExperimentError> {
        figures(self.plain)
    }

    /// Verifies that the server is an origin with this workload and seed.
    fn verify(&self, plan: &CachePlan, workload: &CacheWorkload) -> Result<(), ExperimentError> {
        let found = figures(self.plain)?;
        let mismatch = |what: &str, its: &str, expected: &str| {
            let its = excerpt(its);
            let why = format!("at {} it has {what} {its}, expected {expected}: start it with the same", self.plain);
            ExperimentError::Program { program: "the origin", why }
        };
        if found.workload != workload.name {
            return Err(mismatch("the workload", &found.workload, &workload.name));
        }
        if found.seed != plan.seed {
            return Err(mismatch("the seed", &found.seed.to_string(), &plan.seed.to_string()));
        }
        let differences = found.digest.origin_differences(&workload.digest(plan.seed));
        if !differences.is_empty() {
            let why = format!(
                "at {} its workload {} differs from this sweep's of the same name in {}; start it with the same \
                 (--workload with a file of all fields, --think)",
                self.plain,
                workload.name,
                differences.join(", ")
            );
            return Err(ExperimentError::Program { program: "the origin", why });
        }
        let body_content = BodyContent::shared().digest();
        if u32::from_str_radix(&found.body_content, 16) != Ok(body_content) {
            return Err(mismatch(
                "the body content of another version of this program,",
                &found.body_content,
                &format!("{body_content:08x}"),
            ));
        }
        Ok(())
    }
}

/// The shell command that starts an origin with this workload, which is written to a file in `folder`.
///
/// # Errors
/// The folder cannot be written.
pub fn command(
    plan: &CachePlan,
    workload: &CacheWorkload,
    order: &Order,
    listen: SocketAddr,
    tls: Option<(&Path, &Path)>,
    folder: &Path,
) -> Result<String, ExperimentError> {
    if let Some(command) = &plan.origin.command {
        return Ok(command.clone());
    }
    let file = folder.join("workload.toml");
    let text = toml::to_string_pretty(workload).map_err(|error| ExperimentError::Program {
        program: "the workload",
        why: format!("cannot be written: {error}"),
    })?;
    fs::write(&file, text).map_err(ExperimentError::file(&file))?;
    let tls = tls.map_or(String::new(), |(certificate, key)| format!(" --tls {} {}", quoted(certificate), quoted(key)));
    let (program, file, seed) = (quoted(&order.program), quoted(&file), plan.seed);
    Ok(format!("exec {program} serve --workload {file} --seed {seed} --listen {listen}{tls}"))
}

fn figures(origin: SocketAddr) -> Result<OriginFigures, ExperimentError> {
    let wrong = |why: String| ExperimentError::Program {
        program: "the origin",
        why: format!("http://{origin}{COUNTERS_PATH} {why}; is `yamabiko serve --workload` running there?"),
    };
    let text = get::body(origin, COUNTERS_PATH).map_err(|error| wrong(format!("does not respond: {error}")))?;
    // The error quotes parts of the response.
    serde_json::from_str(&text)
        .map_err(|error| wrong(format!("does not have an origin's counters: {}", excerpt(&error.to_string()))))
}

/// An excerpt of a foreign response for an error message: one line, printable, short.
fn excerpt(response: &str) -> String {
    let printable = |c: char| if units::is_unprintable(c) { char::REPLACEMENT_CHARACTER } else { c };
    let mut excerpt: String = response.chars().take(EXCERPT_MAX).map(printable).collect();
    if response.chars().nth(EXCERPT_MAX).is_some() {
        excerpt.push_str("..");
    }
    excerpt
}

/// Characters quoted of a foreign response.
const EXCERPT_MAX: usize = 80;

/// Creates a certificate for an address, and its key.
fn certificate(folder: &Path, listen: SocketAddr) -> Result<(PathBuf, PathBuf), ExperimentError> {
    let (certificate, key) = (folder.join("origin.pem"), folder.join("origin.key"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=origin", "-addext", &format!("subjectAltName=IP:{}", listen.ip()), "-keyout"])
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .output();
    match made {
        Ok(output) if output.status.success() => Ok((certificate, key)),
        _ => Err(ExperimentError::Missing { program: "openssl", fix: "apt-get install openssl" }),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;
    use crate::sweep_plan::SweepPlan;

    /// The error message for an origin whose counters are this document; empty if it is accepted.
    fn error_for(document: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let plain = listener.local_addr().unwrap();
        let answers = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{document}", document.len()).unwrap();
        });
        let plan = CachePlan::new(SweepPlan { direct: true, ..SweepPlan::default() });
        let workload = plan.workload.spec().unwrap();
        let origin = Origin { _servers: Vec::new(), plain, secure: None };
        let message = origin.verify(&plan, &workload).map_or_else(|error| error.to_string(), |()| String::new());
        answers.join().unwrap();
        message
    }

    fn figures_of(change: impl FnOnce(&mut CacheWorkload, &mut OriginFigures)) -> String {
        let plan = CachePlan::new(SweepPlan { direct: true, ..SweepPlan::default() });
        let mut workload = plan.workload.spec().unwrap();
        let mut figures = OriginFigures {
            workload: workload.name.clone(),
            seed: plan.seed,
            body_content: format!("{:08x}", BodyContent::shared().digest()),
            ..OriginFigures::default()
        };
        change(&mut workload, &mut figures);
        figures.digest = workload.digest(plan.seed);
        serde_json::to_string(&figures).unwrap()
    }

    #[test]
    fn origin_with_another_workload_of_the_same_name_is_rejected() {
        assert_eq!(error_for(figures_of(|_, _| ())), "");
        assert_eq!(error_for(figures_of(|workload, _| workload.recurrence = 0.1)), "", "only the load uses recurrence");
        let other =
            error_for(figures_of(|workload, _| (workload.origin_abort, workload.kinds[0].cacheable) = (0.5, 0.1)));
        assert!(other.contains("of the same name in kinds, origin_abort;"), "{other}");
        let thinks = error_for(figures_of(|workload, _| workload.think = None));
        assert!(thinks.contains("same name in think;"), "{thinks}");
        let earlier = error_for(figures_of(|_, _| ()).replace("\"digest\"", "\"of old\""));
        assert!(earlier.contains("of the same name in"), "{earlier}");
        let seed = error_for(figures_of(|_, figures| figures.seed = 99));
        assert!(seed.contains("the seed 99, expected"), "{seed}");
    }

    #[test]
    fn foreign_responses_are_quoted_short_and_printable() {
        let foul = "\u{1b}[31m\r\n\u{202e}".repeat(100_000);
        let quoted = |message: String| {
            assert!(message.chars().count() < 400, "{} characters", message.chars().count());
            assert!(!message.chars().any(|c| c.is_control() || c == '\u{202e}'), "{message:?}");
            message
        };
        let workload = foul.clone();
        assert!(
            quoted(error_for(figures_of(|_, figures| figures.workload = workload))).contains("it has the workload")
        );
        let body_content = foul.clone();
        assert!(
            quoted(error_for(figures_of(|_, figures| figures.body_content = body_content))).contains("another version")
        );
        let text =
            serde_json::to_string(&serde_json::json!({ "body_content": "", "workload": "", "seed": foul })).unwrap();
        assert!(quoted(error_for(text)).contains("does not have an origin's counters"));
        assert!(quoted(error_for("<html>".into())).contains("does not have an origin's counters"));
    }
}
