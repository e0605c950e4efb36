//! Shards and a host with a public address: it permits their load by a file, or a person repeats its name.

use std::fs;
use std::time::{Duration, SystemTime};

use super::machines::served;
use crate::support::document::count;
use crate::support::host::Host;
use crate::support::workspace::{Output, Workspace, str_of};

/// A former 6to4 address: a public one that no host has, in a network without a route to elsewhere.
const PUBLIC: &str = "192.88.99.9";

struct Site {
    workspace: Workspace,
    host: Host,
}

impl Site {
    fn new() -> Site {
        let workspace = Workspace::concurrent_as_root();
        let host = Host::new(&workspace);
        host.ip(&["link", "set", "lo", "up"]);
        host.ip(&["addr", "add", &format!("{PUBLIC}/32"), "dev", "lo"]);
        Site { workspace, host }
    }

    /// Makes the only shard of a load of one second.
    fn shard(&self, url: &str, options: &str) -> Output {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let start = (now + Duration::from_secs(4)).as_secs().to_string();
        let mut arguments =
            vec!["bench", url, "--shard", "0/1", "--start-at", &start, "-d", "1s", "--warmup", "0s", "--json"];
        arguments.extend(options.split_whitespace());
        self.host.yamabiko(&self.workspace, &arguments)
    }

    fn permit(&self, text: &str) {
        let folder = self.workspace.www().join(".well-known");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("yamabiko.txt"), text).unwrap();
    }
}

#[test]
fn shards_offer_load_to_a_public_address_only_with_its_permission() {
    let site = Site::new();
    let _nginx = site.host.nginx(&site.workspace, "machines", &[&format!("listen {PUBLIC}:80;")]);
    let url = format!("http://{PUBLIC}/10k.bin");
    let open = "-r 50/s";
    site.shard(&url, open).refused(1, &["/.well-known/yamabiko.txt", "404", &format!("--i-own-the-target {PUBLIC}")]);
    // Only the permission was requested.
    assert_eq!(served(&site.workspace), 1);
    site.permit("load-test: allowed\n");
    assert_eq!(count(&site.shard(&url, open).json(), "load.completed"), 50);
    assert_eq!(served(&site.workspace), 52);
    site.shard(&url, "-r 1001/s").refused(1, &["permits 1000 requests per second", "up to 1001"]);
    site.shard(&url, "-c 2").refused(1, &["closed loop"]);
    site.permit("load-test: allowed\nmax-rate: 40\n");
    site.shard(&url, open).refused(1, &["permits 40 requests per second"]);
    // A person's word needs no request.
    let before = served(&site.workspace);
    let owned = format!("{open} --i-own-the-target {PUBLIC}");
    assert_eq!(count(&site.shard(&url, &owned).json(), "load.completed"), 50);
    assert_eq!(served(&site.workspace), before + 50);
    let other = format!("{open} --i-own-the-target shop.example");
    site.shard(&url, &other).refused(1, &["`shop.example` is not a host of this load", PUBLIC]);
    // One machine alone is not asked for it.
    let alone = site.host.yamabiko(&site.workspace, &["bench", &url, "-r", "50/s", "-d", "1s", "--json"]);
    assert!(count(&alone.json(), "load.completed") > 0);
}

#[test]
fn permission_is_requested_over_tls_with_the_load_s_own_trust() {
    let site = Site::new();
    let key = rcgen::generate_simple_self_signed([PUBLIC.to_owned()]).unwrap();
    let [cert, secret] = ["cert.pem", "key.pem"].map(|name| site.workspace.file(name));
    fs::write(&cert, key.cert.pem()).unwrap();
    fs::write(&secret, key.signing_key.serialize_pem()).unwrap();
    let server = format!(
        "listen {PUBLIC}:443 ssl; ssl_certificate {}; ssl_certificate_key {};",
        cert.display(),
        secret.display()
    );
    let _nginx = site.host.nginx(&site.workspace, "machines", &[&server]);
    let url = format!("https://{PUBLIC}/10k.bin");
    site.permit("load-test: allowed\n");
    site.shard(&url, "-r 50/s").refused(1, &["/.well-known/yamabiko.txt", "certificate"]);
    let trusted = format!("-r 50/s --cacert {}", str_of(&cert));
    assert_eq!(count(&site.shard(&url, &trusted).json(), "load.completed"), 50);
}
