//! Common programs under the tap: their behaviour does not change, and the bytes of their sockets agree with the
//! kernel's counters and the capture.
#![cfg(feature = "full")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::daemons::{self, Daemon};
use crate::support::document::{check, count};
use crate::support::workspace::{Workspace, str_of, yamabiko};
use crate::support::{servers, tls};
use serde_json::Value;

/// The certificates' authority and nginx with HTTP/1 on 8080, TLS on 8443, HTTP/2 over TLS on 8444.
fn web(workspace: &Workspace) -> (PathBuf, Daemon) {
    let authority = tls::Authority::new(workspace, "ca");
    let certificate = authority.sign(&["server"], 2090);
    let second = "listen 8444 ssl http2;";
    (authority.file(), Daemon { command: tls::nginx(workspace, &[(8443, &certificate, second)]), port: 8080 })
}

/// Runs a shell script at the far end of a path from the server, without and with the tap: output and status are equal.
/// Returns the document; its bytes and connections are compared with the capture.
struct Trial {
    document: Value,
    stdout: String,
}

impl Trial {
    fn run(workspace: &Workspace, daemon: &Daemon, script: &str) -> Trial {
        let (ready, report) = (workspace.file("ready"), workspace.file("net.json"));
        let server = format!(
            // Not a child of the server process: some servers do not expect children.
            "((until ss -Hltn 'sport = :{}' | grep -q .; do sleep 0.05; done; touch {}) &); {}",
            daemon.port,
            ready.display(),
            daemon.command
        );
        let script = format!("until [ -e {} ]; do sleep 0.05; done\n{script}", ready.display());
        let run = |more: &[&str]| {
            let _ = fs::remove_file(&ready);
            workspace.run(&[&["net", "--rtt", "2ms", "--server", &server], more, &["--", "sh", "-c", &script]].concat())
        };
        let plain = run(&[]);
        let tapped = run(&["--tap", "--json", str_of(&report)]);
        assert_eq!((plain.code, &plain.stdout), (tapped.code, &tapped.stdout), "{plain}\n{tapped}");
        assert_eq!(plain.code, Some(0), "{plain}");
        let document: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        Trial { document, stdout: tapped.stdout }
    }

    fn program(&self, name: &str) -> &Value {
        let programs = self.document["tap"]["programs"].as_array().unwrap();
        programs.iter().find(|program| program["name"] == name).unwrap_or_else(|| panic!("{:#}", self.document["tap"]))
    }

    fn difference(&self, name: &str) -> u64 {
        check(&self.document, name)["value"].as_f64().unwrap() as u64
    }

    /// Asserts that the tap has recorded all of program `name`, and that program, kernel and capture agree to the byte.
    fn complete(self, name: &str) -> Trial {
        self.seen(name);
        assert_eq!(self.difference("tap_bytes_agree"), 0, "{:#}", self.document);
        assert_eq!(self.difference("tap_connections_agree"), 0, "{:#}", self.document);
        self
    }

    /// Like [`Trial::complete`], for a program that leaves the peer's last bytes unread: the kernel has discarded them.
    fn complete_except_unread(self, name: &str, bytes: u64) -> Trial {
        self.seen(name);
        assert!(self.difference("tap_bytes_agree") <= bytes, "{:#}", self.document);
        assert_eq!(self.difference("tap_connections_agree"), 0, "{:#}", self.document);
        self
    }

    fn seen(&self, name: &str) {
        for name in ["tap_loaded", "tap_drops", "tap_coverage"] {
            assert_eq!(check(&self.document, name)["state"], "ok", "{:#}", self.document);
        }
        let (client, program) = (&self.document["tap"]["client"], self.program(name));
        assert_eq!(count(client, "unseen_bytes"), 0, "{client:#}");
        assert!(count(program, "connections") > 0, "{program}");
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} |",
            program["coverage"].as_str().unwrap(),
            count(program, "processes"),
            count(client, "connections"),
            count(client, "sent_bytes_total"),
            count(client, "received_bytes_total"),
            self.difference("tap_bytes_agree"),
        );
    }
}

#[test]
fn tap_records_curl_and_wget() {
    let workspace = Workspace::new();
    let (authority, web) = web(&workspace);
    let trial = |script: &str| Trial::run(&workspace, &web, &script.replace("CA", str_of(&authority)));
    trial("curl -sS http://server:8080/10k.bin http://server:8080/100k.bin | md5sum; curl -sf http://server:8080/no; echo $?")
        .complete("curl");
    trial("curl -sS --http1.1 --cacert CA https://server:8443/100k.bin | md5sum").complete("curl");
    let two = trial(
        "curl -sS --cacert CA -Z -w '%{http_version} %{http_code}\\n' -o /dev/null -o /dev/null \
         https://server:8444/100k.bin https://server:8444/10k.bin | sort",
    );
    assert_eq!(two.stdout, "2 200\n2 200\n");
    two.complete("curl");
    trial("wget -q -O- http://server:8080/100k.bin http://server:8080/10k.bin | md5sum; wget -q http://server:8080/no; echo $?")
        .complete("wget");
    trial("wget -q --ca-certificate=CA -O- https://server:8443/100k.bin | md5sum").complete("wget");
}

#[test]
fn tap_records_git_over_http() {
    let workspace = Workspace::new();
    let (_, web) = web(&workspace);
    let work = workspace.file("work");
    let repository = workspace.www().join("one.git");
    let script = format!(
        "set -e; export GIT_CONFIG_GLOBAL=/dev/null; git init -q {work}; cd {work}; for i in 1 2 3; do seq $i 9999 > file$i; \
         git add .; git -c user.name=a -c user.email=a@b commit -q -m $i; done; git clone -q --bare . {repository}; \
         git -C {repository} update-server-info",
        work = work.display(),
        repository = repository.display()
    );
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let script = format!(
        "export GIT_CONFIG_GLOBAL=/dev/null; rm -rf {0}; git clone -q http://server:8080/one.git {0} && \
         git -C {0} log --format=%s && cat {0}/file* | md5sum",
        workspace.file("clone").display()
    );
    let trial = Trial::run(&workspace, &web, &script);
    assert!(trial.stdout.starts_with("3\n2\n1\n"), "{}", trial.stdout);
    trial.complete("git-remote-http");
}

#[test]
fn tap_records_clients_of_several_languages() {
    let workspace = Workspace::new();
    let (authority, web) = web(&workspace);
    let write = |name: &str, text: &str| {
        let file = workspace.file(name);
        fs::write(&file, text.replace("CA", str_of(&authority))).unwrap();
        str_of(&file).to_owned()
    };
    let trial = |script: String| Trial::run(&workspace, &web, &script);

    let requests = write(
        "requests_.py",
        "import hashlib, requests\ns = requests.Session()\n\
         for url in ['http://server:8080/10k.bin', 'http://server:8080/100k.bin', 'http://server:8080/no']:\n    \
         r = s.get(url)\n    print(r.status_code, hashlib.md5(r.content).hexdigest())\n\
         print(len(requests.get('https://server:8443/10k.bin', verify='CA').content))\n",
    );
    trial(format!("python3 {requests}")).complete("python3");
    let asyncio = write(
        "asyncio_.py",
        "import asyncio\nasync def get(path):\n    r, w = await asyncio.open_connection('server', 8080)\n    \
         w.write(b'GET %s HTTP/1.0\\r\\n\\r\\n' % path)\n    n = len(await r.read())\n    w.close()\n    \
         await w.wait_closed()\n    return n\nasync def main():\n    \
         sizes = await asyncio.gather(*[get(b'/10k.bin' if i % 2 else b'/100k.bin') for i in range(10)])\n    \
         print(min(sizes), max(sizes))\nasyncio.run(main())\n",
    );
    trial(format!("python3 {asyncio}")).complete("python3");
    let node = write(
        "get.js",
        "const get = (m, u, o) => new Promise((y, n) => m.get(u, o, r => { let c = 0; r.on('data', d => c += d.length); \
         r.on('end', () => y(c)); }).on('error', n));\nconst fs = require('fs');\n(async () => {\n  \
         for (const p of ['10k', '100k']) console.log(await get(require('http'), `http://server:8080/${p}.bin`, {}));\n  \
         console.log(await get(require('https'), 'https://server:8443/100k.bin', { ca: fs.readFileSync('CA') }));\n\
         })().catch(e => { console.log(e.code); process.exit(3); });\n",
    );
    trial(format!("node {node}")).complete("node");
    // Requests of the runtime: a certificate revocation list by HTTP (a dummy here), a TLS handshake.
    let java = "keytool -printcrl -file http://server:8080/100k.bin 2>&1 | head -n 3; \
                keytool -printcert -rfc -sslserver server:8443 2>&1 | md5sum";
    trial(java.to_owned()).complete("keytool");
    let php = write(
        "get.php",
        "<?php foreach (['10k', '100k'] as $p) echo md5(file_get_contents(\"http://server:8080/$p.bin\")), \"\\n\";\n\
         echo strlen(file_get_contents('https://server:8443/10k.bin', false, \
         stream_context_create(['ssl' => ['cafile' => 'CA', 'peer_name' => 'server']]))), \"\\n\";\n\
         echo var_export(@file_get_contents('http://server:8080/no'), true), \"\\n\";\n",
    );
    trial(format!("php {php}")).complete("php");
    let perl = "perl -MHTTP::Tiny -MDigest::MD5=md5_hex -e 'my $h = HTTP::Tiny->new; for (qw(10k 100k)) { \
                my $r = $h->get(\"http://server:8080/$_.bin\"); print $r->{status}, md5_hex($r->{content}), \"\\n\" }'";
    trial(perl.to_owned()).complete("perl");
}

#[test]
fn tap_records_mail_clients_and_servers() {
    let workspace = Workspace::new();
    let pop = daemons::dovecot(&workspace);
    let curl = "for i in '' 1 3; do curl -sS pop3://joe:secret@server:1110/$i | md5sum; done; \
                curl -s pop3://joe:wrong@server:1110/; echo $?";
    Trial::run(&workspace, &pop, curl).complete("curl");
    let settings = workspace.file("fetchmailrc");
    let downloaded = workspace.file("downloaded");
    fs::write(
        &settings,
        format!(
            "poll \"server\" protocol pop3 port 1110 auth password username joe password secret mda \"cat >> {}\" keep \
             fetchall no sslcertck sslproto ''\n",
            downloaded.display()
        ),
    )
    .unwrap();
    crate::support::workspace::set_mode(&settings, 0o600);
    let fetchmail = format!(
        "rm -f {downloaded}; HOME={home} fetchmail -s --nosyslog --nodetach -f {settings} -i {home}/ids --pidfile {home}/pid \
         2>&1; echo $?; grep -c 'every line' {downloaded}",
        downloaded = downloaded.display(),
        home = workspace.path().join("out").display(),
        settings = settings.display()
    );
    let trial = Trial::run(&workspace, &pop, &fetchmail);
    assert!(trial.stdout.ends_with("0\n1200\n"), "{}", trial.stdout);
    trial.complete("fetchmail");

    let smtp = daemons::postfix(&workspace);
    let (message, settings) = (workspace.file("message"), workspace.file("msmtprc"));
    fs::write(&message, format!("From: a@b\nTo: c@server\nSubject: x\n\n{}", "a line of it\n".repeat(5000))).unwrap();
    fs::write(&settings, "account default\nhost server\nport 2525\nfrom a@b\nauth off\ntls off\ndomain me\n").unwrap();
    crate::support::workspace::set_mode(&settings, 0o600);
    let (message, settings) = (str_of(&message), str_of(&settings));
    let msmtp = format!("msmtp -C {settings} c@server d@server < {message}; echo $?");
    Trial::run(&workspace, &smtp, &msmtp).complete("msmtp");
    let curl = format!("curl -sS smtp://server:2525 --mail-from a@b --mail-rcpt c@server -T {message}; echo $?");
    Trial::run(&workspace, &smtp, &curl).complete("curl");
}

#[test]
fn tap_records_ssh_redis_and_postgresql() {
    let workspace = Workspace::new();
    let sshd = daemons::sshd(&workspace);
    let home = workspace.path().join("ssh");
    let ssh = format!(
        "ssh -q -F none -p 2222 -i {0}/key -o UserKnownHostsFile={0}/known -o BatchMode=yes root@server",
        home.display()
    );
    let script = format!("seq 100000 | {ssh} 'md5sum; seq 50000; exit 7' | md5sum; {ssh} 'exit 7'; echo $?");
    let trial = Trial::run(&workspace, &sshd, &script);
    assert!(trial.stdout.ends_with("\n7\n"), "{}", trial.stdout);
    trial.complete("ssh");

    let redis = daemons::redis(&workspace);
    let script = "redis-cli -h server set a 1; redis-cli -h server append a 2; redis-cli -h server get a; \
                  (for i in $(seq 3000); do echo SET key$i $i; done) | redis-cli -h server --pipe; \
                  redis-cli -h server dbsize; redis-cli -h server lpush a x; redis-cli -h server flushall";
    Trial::run(&workspace, &redis, script).complete("redis-cli");

    let postgres = daemons::postgres(&workspace);
    let script = "psql -h server -U postgres -Atc 'select sum(n), count(*) from generate_series(1, 1000) n' \
                  -c 'select * from generate_series(1, 5000)' | md5sum; psql -h server -U postgres -c 'select 1/0' 2>&1; echo $?";
    Trial::run(&workspace, &postgres, script).complete("psql");
}

#[test]
fn tap_records_other_load_generators() {
    let workspace = Workspace::new();
    let (_, web) = web(&workspace);
    let ab = "ab -q -k -n 400 -c 7 http://server:8080/10k.bin | grep -E '^(Complete|Failed|Non-2xx|HTML)'";
    Trial::run(&workspace, &web, ab).complete("ab");
    // The program closes connections while responses are in transit: the capture has these, and no call has.
    let wrk = "wrk -t2 -c6 -d1s http://server:8080/10k.bin | grep -cE 'Socket errors|Non-2xx'; true";
    let trial = Trial::run(&workspace, &web, wrk);
    let all = count(&trial.document, "tap.client.received_bytes_total");
    trial.complete_except_unread("wrk", (6 * 11_000).max(all / 1000));
}

/// Programs with rare socket use: see `talk.c`.
#[test]
fn tap_records_programs_with_unusual_socket_use() {
    let workspace = Workspace::new();
    let (_, web) = web(&workspace);
    fs::write(workspace.www().join("20000"), vec![b'y'; 20_000]).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tap/tests/programs/talk.c");
    let talk = workspace.file("talk");
    let built = Command::new("cc").args(["-O1", "-w", "-pthread", "-o"]).args([&talk, &source]).status().unwrap();
    assert!(built.success());
    let trial = |modes: &str| {
        let script =
            format!("export TALK_SERVER=198.18.0.1; for mode in {modes}; do {} $mode 8080 40; done", talk.display());
        Trial::run(&workspace, &web, &script)
    };
    for modes in ["vfork", "spawn", "threads", "plain nonblocking dups messages", "passes raw-fork"] {
        trial(modes).complete("talk");
    }
    let response = workspace.file("response");
    let script = format!(
        "rm -f {0}; export TALK_SERVER=198.18.0.1; {1} closes 8080 {0}; echo $?; cat {0}",
        response.display(),
        talk.display()
    );
    let trial = Trial::run(&workspace, &web, &script);
    assert!(trial.stdout.starts_with("0\n0 40"), "{}", trial.stdout);
    trial.complete("talk");
}

/// Servers under a tap, whose clients are under another tap.
#[test]
fn tap_records_forking_and_threaded_servers() {
    let workspace = Workspace::new();
    for kind in ["Forking", "Threading"] {
        let (program, report) = (workspace.file("server.py"), workspace.file(&format!("{kind}.json")));
        let text = format!(
            "import socketserver\nclass Answer(socketserver.StreamRequestHandler):\n    def handle(self):\n        \
             while True:\n            n = self.rfile.readline()\n            if not n: return\n            \
             self.wfile.write(b'y' * int(n))\n\
             s = socketserver.{kind}TCPServer(('0.0.0.0', 8080), Answer)\n\
             for _ in range(20): s.handle_request()\ns.server_close()\n"
        );
        fs::write(&program, text).unwrap();
        let command = format!(
            "exec {} tap --no-save --json {} -- python3 {}",
            yamabiko().display(),
            report.display(),
            program.display()
        );
        let client = workspace.file("client.py");
        let text = "import socket, threading\ndef talk(k):\n    s = socket.create_connection(('server', 8080)); f = s.makefile('rb')\n    \
                    for n in range(1, 40):\n        s.sendall(b'%d\\n' % (n * k)); assert len(f.read(n * k)) == n * k\n    \
                    s.close(); f.close()\nt = [threading.Thread(target=talk, args=(k,)) for k in range(1, 21)]\n\
                    for x in t: x.start()\nfor x in t: x.join()\nprint('done')\n";
        fs::write(&client, text).unwrap();
        let daemon = Daemon { command, port: 8080 };
        // The server ends after a number of connections, and the testbed must not end it before its records are
        // complete.
        let script = format!(
            "rm -f {0}; python3 {1}; until [ -s {0} ]; do sleep 0.05; done",
            report.display(),
            client.display()
        );
        let trial = Trial::run(&workspace, &daemon, &script);
        assert_eq!(trial.stdout, "done\n");
        let trial = trial.complete("python3");
        let of_server: Value = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
        let (client, server) = (&trial.document["tap"]["client"], &of_server["tap"]["server"]);
        assert_eq!(count(server, "sent_bytes_total"), count(client, "received_bytes_total"), "{server:#}");
        assert_eq!(count(server, "received_bytes_total"), count(client, "sent_bytes_total"), "{server:#}");
        assert_eq!((count(server, "connections"), count(server, "exchanges")), (20, 20 * 39), "{server:#}");
        assert_eq!(count(server, "unseen_bytes"), 0);
    }
}

/// A killed program has recorded all but its last tenth of a second; unread bytes are in no record.
#[test]
fn tap_records_a_program_killed_during_a_transfer() {
    let workspace = Workspace::new();
    let (_, web) = web(&workspace);
    fs::write(workspace.www().join("large"), vec![b'y'; 50_000_000]).unwrap();
    let script =
        "curl -s --limit-rate 4M -o /dev/null http://server:8080/large & sleep 1; kill -9 $!; wait $!; echo $?";
    let trial = Trial::run(&workspace, &web, script);
    assert_eq!(trial.stdout, "137\n");
    for name in ["tap_loaded", "tap_drops", "tap_coverage"] {
        assert_eq!(check(&trial.document, name)["state"], "ok", "{:#}", trial.document);
    }
    let client = &trial.document["tap"]["client"];
    assert_eq!((count(client, "connections"), count(client, "exchanges_cut")), (1, 1), "{client:#}");
    assert!(count(client, "received_bytes_total") > 1_000_000, "{client:#}");
    assert_eq!(trial.difference("tap_connections_agree"), 0);
}

/// A Go program makes its system calls without libc: only the capture has its connections.
#[test]
fn a_go_program_is_not_tapped_and_with_cgo_partially() {
    let workspace = Workspace::new();
    let source = workspace.file("get.go");
    let text = "package main\nimport (\"fmt\"; \"io\"; \"net\")\nfunc main() {\n\tc, err := net.Dial(\"tcp\", \"198.18.0.1:8080\")\n\
                \tif err != nil { panic(err) }\n\tfmt.Fprint(c, \"GET /10k.bin HTTP/1.0\\r\\n\\r\\n\")\n\
                \tn, err := io.Copy(io.Discard, c)\n\tfmt.Println(n > 10000, err)\n\tc.Close()\n}\n";
    fs::write(&source, text).unwrap();
    let server = Daemon { command: servers::nginx(&workspace), port: 8080 };
    for (with_c, coverage) in [("0", "unseen"), ("1", "partial")] {
        let program = workspace.file(&format!("get-go-{with_c}"));
        let built = Command::new("go")
            .args(["build", "-o"])
            .args([&program, &source])
            .current_dir(workspace.path())
            .env("CGO_ENABLED", with_c)
            .env("GOCACHE", workspace.path().join("go-cache"))
            .env("GOPATH", workspace.path().join("go"))
            .envs([("GOFLAGS", ""), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local"), ("GO111MODULE", "off")])
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        let trial = Trial::run(&workspace, &server, &format!("{}; true", program.display()));
        assert_eq!(trial.stdout, "true <nil>\n");
        assert_eq!(check(&trial.document, "tap_coverage")["state"], "failed");
        let named = trial.program(program.file_name().unwrap().to_str().unwrap());
        assert_eq!(named["coverage"], coverage, "{named}");
        assert!(named["why"].as_str().unwrap().contains("a Go program"), "{named}");
        assert_eq!(check(&trial.document, "tap_bytes_agree")["state"], "failed", "{:#}", trial.document);
    }
}
