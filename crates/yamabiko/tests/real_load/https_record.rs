//! `bench --http auto` with a name server: the HTTPS record of a site decides before its first response.

use std::fs;
use std::path::Path;

use crate::support::host::Host;
use crate::support::tls::Authority;
use crate::support::workspace::{Output, Running, Workspace, str_of, wait_until, yamabiko};

const NAME: &str = "shop.example";
const PORT: u16 = 8443;

/// A name server of one site: its address, and its HTTPS record if the argument is `h3`. Prints a line when it is bound.
const NAME_SERVER: &str = r#"
import socket, struct, sys
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind(("127.0.0.1", 53))
print("bound", file=sys.stderr, flush=True)
while True:
    query, client = udp.recvfrom(512)
    end = 12
    while query[end]:
        end += query[end] + 1
    end += 5
    name, kind = query[12:end - 4].lower(), struct.unpack(">H", query[end - 4:end - 2])[0]
    data = b""
    if kind == 1 and name == b"\x04shop\x07example\x00":
        data = bytes([127, 0, 0, 1])
    elif kind == 65 and name == b"\x05_8443\x06_https\x04shop\x07example\x00" and sys.argv[1] == "h3":
        data = struct.pack(">H", 1) + b"\x00" + struct.pack(">HH", 1, 3) + b"\x02h3"
    answers = [b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 60, len(data)) + data] if data else []
    head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(answers), 0, 0)
    udp.sendto(head + query[12:end] + b"".join(answers), client)
"#;

struct Site {
    workspace: Workspace,
    host: Host,
    trust: String,
    _server: Running,
}

impl Site {
    fn new() -> Site {
        let workspace = Workspace::concurrent_as_root();
        let host = Host::new(&workspace);
        host.ip(&["link", "set", "lo", "up"]);
        let authority = Authority::new(&workspace, "authority");
        let certificate = authority.sign(&[NAME], 4000);
        let listen = format!("127.0.0.1:{PORT}");
        let (cert, key) = (str_of(&certificate.cert), str_of(&certificate.key));
        let www = workspace.www();
        let arguments = ["serve", str_of(&www), "--listen", &listen, "--tls", cert, key, "--http3"];
        let server = host.start(&workspace, &arguments);
        wait_until("the server listens", || host.output_of("ss", &["-Hlntu"]).matches(&listen).count() == 2);
        fs::write(workspace.file("resolv.conf"), "nameserver 127.0.0.1\n").unwrap();
        Site { trust: str_of(&authority.file()).to_owned(), workspace, host, _server: server }
    }

    fn name_server(&self, record: &str) -> Running {
        let running = self.workspace.start_command(self.host.command("python3", &["-c", NAME_SERVER, record]));
        wait_until("the name server is bound", || running.stderr().contains("bound"));
        running
    }

    /// A load of the site where this name server is the system's.
    fn bench(&self) -> Output {
        let resolvers = self.workspace.file("resolv.conf");
        let script = "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\"";
        let (program, url) = (yamabiko(), format!("https://{NAME}:{PORT}/10k.bin"));
        let words = ["--http", "auto", "-c", "1", "-n", "4", "--cacert", &self.trust];
        let own = ["-m", "sh", "-c", script, str_of(&resolvers), str_of(&program), "bench", &url];
        self.workspace.start_command(self.host.command("unshare", &[&own[..], &words].concat())).finish()
    }
}

#[test]
fn an_https_record_offers_http3_before_the_first_response() {
    let site = Site::new();
    let server = site.name_server("h3");
    let output = site.bench();
    assert!(output.stderr.contains("HTTP/3: the site's HTTPS record in DNS offers it"), "{output}");
    let run = site.workspace.run(&["runs", "--json"]).success().json();
    assert_eq!(run["runs"].as_array().unwrap().len(), 1, "{run}");
    let plan = fs::read_to_string(Path::new(run["runs"][0]["dir"].as_str().unwrap()).join("plan.toml")).unwrap();
    assert!(plan.contains("http = \"3\""), "{plan}");
    drop(server);
    // Without a record Alt-Svc of the first response decides.
    let server = site.name_server("none");
    let output = site.bench();
    assert!(output.stderr.contains("HTTP/3: the server offers it (Alt-Svc: "), "{output}");
    drop(server);
    // Without a name server the name itself is not found.
    let output = site.bench();
    assert!(
        output.stderr.contains("note: the HTTPS record of shop.example is not known: name server 127.0.0.1"),
        "{output}"
    );
    assert!(output.code == Some(1) && output.stderr.contains("`shop.example` has no address"), "{output}");
}
