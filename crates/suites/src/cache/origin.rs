//! The origin of a sweep: started here, or running elsewhere; asked before the load, and counted around each point.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::LabError;
use lab::plan::TlsPlan;
use mix::{Matter, MixSpec, OriginFigures};

use super::plan::CachePlan;
use crate::error::SuiteError;
use crate::get;
use crate::local::{Division, Local};
use crate::reproduce::dserver::free_address;
use crate::reproduce::{Order, quoted};

/// What it says of itself.
const FIGURES: &str = "/-/origin";

/// An origin that answers.
pub struct Origin {
    /// Kept running.
    _servers: Vec<Local>,
    /// Where it speaks plainly.
    pub plain: SocketAddr,
    /// Where it speaks TLS, and how its certificate is verified.
    pub secure: Option<(SocketAddr, TlsPlan)>,
}

impl Origin {
    /// Starts it on this host, unless the plan says where it runs already, and asks it once. Must be called while this
    /// process has one thread. `folder` takes its mix, certificate and logs.
    ///
    /// # Errors
    /// It does not start; one that runs elsewhere does not answer, or is another build.
    pub fn start(
        plan: &CachePlan,
        mix: &MixSpec,
        order: &Order,
        folder: &Path,
        division: &Division,
    ) -> Result<Origin, SuiteError> {
        if let Some(plain) = plan.cache.origin_at {
            if mix.https > 0.0 {
                return Err(LabError::Plan(
                    "a share of https (https in the mix) needs an origin with TLS beside the plain one: let it be started \
                     here (leave --origin-at out)"
                        .into(),
                )
                .into());
            }
            let origin = Origin { _servers: Vec::new(), plain, secure: None };
            origin.asked(plan, mix)?;
            return Ok(origin);
        }
        let plain = plan.origin.listen.map_or_else(free_address, Ok)?;
        let cores = division.server.as_ref();
        let start = |listen, tls, log: &str| {
            let command = command(plan, mix, order, listen, tls, folder)?;
            Local::start(&command, listen, cores, &folder.join(log))
        };
        let mut servers = vec![start(plain, None, "origin.out")?];
        let mut secure = None;
        if mix.https > 0.0 {
            let listen = SocketAddr::new(plain.ip(), free_address()?.port());
            let (certificate, key) = certificate(folder, listen)?;
            servers.push(start(listen, Some((&certificate, &key)), "origin-tls.out")?);
            secure = Some((listen, TlsPlan { cacert: Some(certificate), ..TlsPlan::default() }));
        }
        let origin = Origin { _servers: servers, plain, secure };
        origin.asked(plan, mix)?;
        Ok(origin)
    }

    /// What its plain listener has counted so far. What goes to the other one no proxy can keep from it.
    ///
    /// # Errors
    /// It does not answer, or not as an origin does.
    pub fn figures(&self) -> Result<OriginFigures, SuiteError> {
        figures(self.plain)
    }

    /// Whether what answers is an origin, and of this mix and seed.
    fn asked(&self, plan: &CachePlan, mix: &MixSpec) -> Result<(), SuiteError> {
        let said = figures(self.plain)?;
        let other = |what: &str, its: &str, ours: &str| {
            let why = format!("at {} it has {what} {its}, and this sweep {ours}: start it with the same", self.plain);
            SuiteError::Program { program: "the origin", why }
        };
        if said.mix != mix.name {
            return Err(other("the mix", &said.mix, &mix.name));
        }
        if said.seed != plan.seed {
            return Err(other("the seed", &said.seed.to_string(), &plan.seed.to_string()));
        }
        let matter = Matter::shared().digest();
        if u32::from_str_radix(&said.matter, 16) != Ok(matter) {
            return Err(other("bodies of another version of this program,", &said.matter, &format!("{matter:08x}")));
        }
        Ok(())
    }
}

/// The command of an origin of this mix. Its mix is written beside it, since any field may have been set.
///
/// # Errors
/// The folder cannot be written.
pub fn command(
    plan: &CachePlan,
    mix: &MixSpec,
    order: &Order,
    listen: SocketAddr,
    tls: Option<(&Path, &Path)>,
    folder: &Path,
) -> Result<String, SuiteError> {
    if let Some(command) = &plan.origin.command {
        return Ok(command.clone());
    }
    let file = folder.join("mix.toml");
    let text = toml::to_string_pretty(mix)
        .map_err(|error| SuiteError::Program { program: "the mix", why: format!("cannot be written: {error}") })?;
    fs::write(&file, text).map_err(SuiteError::file(&file))?;
    let tls = tls.map_or(String::new(), |(certificate, key)| format!(" --tls {} {}", quoted(certificate), quoted(key)));
    let (program, file, seed) = (quoted(&order.program), quoted(&file), plan.seed);
    Ok(format!("exec {program} serve --mix {file} --seed {seed} --listen {listen}{tls}"))
}

fn figures(origin: SocketAddr) -> Result<OriginFigures, SuiteError> {
    let wrong = |why: String| SuiteError::Program {
        program: "the origin",
        why: format!("http://{origin}{FIGURES} {why}; is `yamabiko serve --mix` running there?"),
    };
    let text = get::body(origin, FIGURES).map_err(|error| wrong(format!("does not answer: {error}")))?;
    serde_json::from_str(&text).map_err(|error| wrong(format!("is not what an origin says: {error}")))
}

/// A certificate for an address, and its key.
fn certificate(folder: &Path, listen: SocketAddr) -> Result<(PathBuf, PathBuf), SuiteError> {
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
        _ => Err(SuiteError::Missing { program: "openssl", mend: "apt-get install openssl" }),
    }
}
