//! HTTP/2 of `serve` for clients of others: curl and h2load, over TLS and without.

use std::fs;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::support::serving::Serving;
use crate::support::tls::Authority;
use crate::support::workspace::{Workspace, str_of};

const EXPIRY_YEAR: i32 = 4000;
const FILES: usize = 40;

/// The standard output of a program that succeeds.
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn curl_and_h2load_are_served_by_http_2() {
    let workspace = Workspace::concurrent();
    let big: Vec<u8> = (0..3_000_000u32).map(|at| (at ^ at >> 9) as u8).collect();
    for number in 0..FILES {
        fs::write(workspace.www().join(format!("big{number}.bin")), &big[number..]).unwrap();
    }
    let authority = Authority::new(&workspace, "authority");
    let certificate = authority.sign(&["server"], EXPIRY_YEAR);
    let tls = ["--tls", str_of(&certificate.cert), str_of(&certificate.key)];
    let ca = authority.file();
    for secure in [false, true] {
        let log = workspace.path().join(format!("access-{secure}.log"));
        let mut options = vec!["--log", str_of(&log)];
        options.extend(if secure { &tls[..] } else { &[] });
        let serving = Serving::start(&workspace, &options);
        let port = serving.address.port();
        let resolve = format!("server:{port}:127.0.0.1");
        let (scheme, version) =
            if secure { ("https", ["--http2", "--cacert"]) } else { ("http", ["--http2-prior-knowledge", "--cacert"]) };
        let url = format!("{scheme}://server:{port}");
        let curl = |more: &[&str]| {
            let common = ["-sS", "--max-time", "60", "--resolve", &resolve, version[0], version[1], str_of(&ca)];
            run("curl", &[&common, more].concat())
        };
        assert_eq!(curl(&["-o", "/dev/null", "-w", "%{http_version} %{http_code}", &format!("{url}/")]), "2 404");
        assert_eq!(curl(&["-I", "-w", "%{http_code}", "-o", "/dev/null", &format!("{url}/big0.bin")]), "200");
        let part =
            curl(&["-r", "0-9", "-w", "%{http_code} %{size_download}", "-o", "/dev/null", &format!("{url}/big0.bin")]);
        assert_eq!(part, "206 10");
        // All files at the same time over one connection. Without TLS curl 7.88 cannot use a connection again: with
        // nginx, too, it reports an error of framing.
        let target = |name: &str| workspace.path().join(format!("got-{secure}-{name}"));
        if secure {
            let all = format!("{url}/big[0-{}].bin", FILES - 1);
            curl(&["-Z", "--parallel-max", "40", "-o", str_of(&target("#1")), &all]);
        } else {
            for number in 0..FILES {
                curl(&["-o", str_of(&target(&number.to_string())), &format!("{url}/big{number}.bin")]);
            }
        }
        for number in 0..FILES {
            let read = fs::read(target(&number.to_string())).unwrap();
            assert!(read == big[number..], "{number}: {} bytes", read.len());
        }
        let posted = ["--data-binary", "content", "-o", "/dev/null", "-w", "%{http_code}", &format!("{url}/10k.bin")];
        assert_eq!(curl(&posted), "405", "a method for no file");
        let load = ["-n", "2000", "-c", "5", "-m", "20", &format!("{scheme}://127.0.0.1:{port}/10k.bin")];
        let report = run("h2load", &load);
        assert!(report.contains("2000 succeeded, 0 failed, 0 errored"), "{report}");
        serving.running.signal(Signal::SIGTERM);
        serving.running.finish().success();
        let lines = fs::read_to_string(&log).unwrap();
        assert_eq!(lines.matches(" HTTP/2.0\" 200 10240 ").count(), 2000);
        assert_eq!(lines.lines().filter(|line| !line.contains(" HTTP/2.0\" ")).count(), 0);
        assert_eq!(lines.lines().count(), 2000 + FILES + 4);
    }
}
