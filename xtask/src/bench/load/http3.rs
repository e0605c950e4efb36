//! HTTP/3: the load generator compared with oha, if `YAMABIKO_OHA` names one that was built with its feature `http3`, and
//! what a request by QUIC costs beside one by TCP.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};

use super::measure::Client;
use super::{ROUNDS, cpu, show, times};
use crate::bench::rounds::ratio;
use crate::bench::servers::{PORT, Running, Site, certificate};

/// Environment variable with the path of oha.
const VARIABLE: &str = "YAMABIKO_OHA";
/// Connections of one request at a time.
const CONNECTIONS: &str = "64";

/// Prints requests per second and CPU time of both against `serve --http3`.
pub fn compare(client: &Client) -> Result<()> {
    let site = Site::new()?;
    let folder = site.path("");
    certificate(&folder)?;
    let (program, folder) = (client.yamabiko().display(), folder.display());
    let server = format!(
        "exec {program} serve {folder} --listen 127.0.0.1:{PORT} --tls {folder}/certificate.pem {folder}/key.pem --http3"
    );
    let _server = Running::start(&server, Some("0"))?;
    let url = format!("https://localhost:{PORT}/1k.bin");
    let oha = std::env::var_os(VARIABLE).map(PathBuf::from);
    if oha.is_none() {
        println!("\noha is not compared: {VARIABLE} names none");
    }
    println!("\nHTTP/3, 1 KB, {CONNECTIONS} connections, against `serve`");
    let (mut theirs, mut ours, mut by_tcp, mut again) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let bench = |version| client.bench_of(&url, &["-k", "--http", version, "-c", CONNECTIONS, "--streams", "1"]);
    // oha waits for its idle timeout at its end, so that a round takes half a minute.
    let peer = || oha.as_ref().map(|oha| client.oha(oha, &url, CONNECTIONS)).transpose();
    for _ in 0..ROUNDS {
        theirs.extend(peer()?);
        ours.push(bench("3")?);
        by_tcp.push(bench("2")?);
        again.extend(peer()?);
    }
    if let Some(failed) = ours.iter().chain(&theirs).map(|figures| figures.failed).find(|&failed| failed > 0) {
        bail!("{failed} requests failed: the figures are meaningless");
    }
    show("yamabiko, closed loop, HTTP/3", &ours);
    show("yamabiko, closed loop, HTTP/2", &by_tcp);
    println!("  CPU a request by HTTP/3 / by HTTP/2 {:.2}", ratio(&cpu(&ours), &cpu(&by_tcp)));
    if !theirs.is_empty() {
        show("oha, closed loop, HTTP/3", &theirs);
        println!(
            "  yamabiko / oha {:.2}, CPU a request {:.2}; oha / oha again {:.2}",
            times(&ours, &theirs),
            ratio(&cpu(&ours), &cpu(&theirs)),
            times(&theirs, &again)
        );
    }
    Ok(())
}

/// Requests per second, and failed ones, from oha's JSON.
pub fn figures(text: &str) -> Result<(f64, u64)> {
    let document: serde_json::Value = serde_json::from_str(text).context("oha's result cannot be read")?;
    let rate = document["summary"]["requestsPerSec"].as_f64().context("oha's result has no rate")?;
    let errors = document["errorDistribution"].as_object().into_iter().flatten();
    // Requests in flight at the end are cut off.
    let failed =
        errors.filter(|(why, _)| !why.contains("deadline")).filter_map(|(_, count)| count.as_u64()).sum::<u64>();
    let statuses = document["statusCodeDistribution"].as_object().into_iter().flatten();
    let others: u64 = statuses.filter(|(status, _)| *status != "200").filter_map(|(_, count)| count.as_u64()).sum();
    Ok((rate, failed + others))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_of_oha_is_parsed() {
        let text = r#"{"summary":{"requestsPerSec":1234.5},"statusCodeDistribution":{"200":10,"404":2},
            "errorDistribution":{"aborted due to deadline":64,"connection lost":1}}"#;
        assert_eq!(figures(text).unwrap(), (1234.5, 3));
        assert!(figures("{}").is_err());
    }
}
