//! Translates ab's options into a plan.

use plan::{Alpn, HttpVersion, LoadPlan, Plan, TlsPlan, literal};

use crate::args::ab::Options;

/// The plan of ab's options: a closed loop of HTTP/1.0 without an emulated path. As in ab, no certificate is verified
/// and every TLS handshake is a full one.
///
/// # Errors
/// Options that contradict each other.
pub fn plan(options: &Options) -> anyhow::Result<Plan> {
    let secure = options.url.starts_with("https:");
    let mut plan = Plan {
        name: "ab".into(),
        seed: 1,
        load: LoadPlan {
            method: options.method,
            body: options.body.clone(),
            // Braces in ab's headers and URL are literal, not placeholders.
            headers: options.headers.iter().map(|line| literal(line)).collect(),
            proxy: options.proxy.clone(),
            http: HttpVersion::Http10,
            close: !options.keep_alive,
            connections: Some(options.concurrency),
            requests: Some(options.requests),
            duration: options.time_limit,
            connect_timeout: options.timeout,
            timeout: options.timeout,
            tls: secure.then(|| TlsPlan {
                insecure: true,
                version: options.tls_version,
                alpn: Alpn::None,
                resumption: false,
                cert: options.certificate.clone(),
                ..TlsPlan::default()
            }),
            ..LoadPlan::get(&literal(&options.url))
        },
        ..Plan::default()
    };
    plan.settle()?;
    Ok(plan)
}
