use super::*;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::AsFd as _;
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::journal::{LogFormat, LogSpec, LogTarget};

const BODY: &str = "<html>hello</html>";

/// Starts a server for a folder with one page and these features; `client` gets its address.
fn with(features: &[Feature], log: Option<Log>, client: impl FnOnce(SocketAddr)) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.html"), BODY).unwrap();
    let spec = StepsSpec {
        root: folder.path().to_owned(),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        features: features.to_vec(),
        log,
        tls: None,
    };
    spec.check().unwrap();
    let stop = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
    let (address_sender, address_receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| serve_steps(&spec, stop.as_fd(), |address| address_sender.send(address).unwrap()));
        client(address_receiver.recv().unwrap());
        stop.write(1).unwrap();
        served.join().unwrap().unwrap();
    });
}

/// Sends `request` and reads responses until their bodies are `count` pages.
fn ask(stream: &mut TcpStream, request: &str, count: usize) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while text.matches(BODY).count() < count {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "closed after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    text
}

const GET: &str = "GET /index.html HTTP/1.1\r\nHost: x\r\n\r\n";

/// Every feature set sends the same page in response to the same requests: persistent, pipelined and fragmented.
#[test]
fn every_feature_set_serves_the_page() {
    use Feature::{Conditional, Date, Figures, Held, Open, Parse};
    let ladder: [&[Feature]; 7] = [
        &[],
        &[Parse],
        &[Parse, Date],
        &[Parse, Date, Open],
        &[Parse, Date, Held],
        &[Parse, Date, Conditional],
        &[Parse, Date, Conditional, Figures],
    ];
    for features in ladder {
        with(features, None, |address| {
            let mut client = TcpStream::connect(address).unwrap();
            for _ in 0..3 {
                let answer = ask(&mut client, GET, 1);
                assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{features:?}: {answer}");
                assert!(answer.contains(&format!("Content-Length: {}\r\n", BODY.len())), "{features:?}: {answer}");
                assert_eq!(answer.contains("\r\nDate: "), features.contains(&Date), "{features:?}: {answer}");
            }
            assert_eq!(ask(&mut client, &GET.repeat(50), 50).matches("200 OK").count(), 50, "{features:?}");
            let (first, second) = GET.split_at(20);
            client.write_all(first.as_bytes()).unwrap();
            ask(&mut client, second, 1);
            if features.contains(&Parse) {
                client.write_all(b"GET /index.html HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
                let mut last = String::new();
                client.read_to_string(&mut last).unwrap();
                assert!(last.contains("Connection: close\r\n") && last.ends_with(BODY), "{features:?}: {last}");
            }
        });
    }
}

#[test]
fn conditions_and_ranges_work_once_their_feature_is_on() {
    use Feature::{Conditional, Date, Held, Open, Parse};
    let range = "GET /index.html HTTP/1.1\r\nHost: x\r\nRange: bytes=0-5\r\nConnection: close\r\n\r\n";
    let get = |features: &[Feature]| {
        let mut text = String::new();
        with(features, None, |address| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(range.as_bytes()).unwrap();
            client.read_to_string(&mut text).unwrap();
        });
        text
    };
    assert!(get(&[Parse, Date, Conditional]).starts_with("HTTP/1.1 206"));
    assert!(get(&[Parse, Date, Held]).starts_with("HTTP/1.1 200"));
    assert!(get(&[Parse, Date, Open]).starts_with("HTTP/1.1 200"));
}

#[test]
fn logged_requests_are_in_the_log_file_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("access.log");
    let log = Log::open(LogSpec { to: LogTarget::File(file.clone()), format: LogFormat::Combined, anonymous: false });
    with(&[Feature::Parse, Feature::Held, Feature::Log], Some(log.unwrap()), |address| {
        let mut client = TcpStream::connect(address).unwrap();
        ask(&mut client, &GET.repeat(7), 7);
    });
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(text.lines().filter(|line| line.contains("\"GET /index.html HTTP/1.1\" 200 18")).count(), 7, "{text}");
}

#[test]
fn features_without_their_prerequisites_are_refused() {
    let spec = |features: &[Feature]| StepsSpec {
        root: PathBuf::from("/"),
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        features: features.to_vec(),
        log: None,
        tls: None,
    };
    assert!(spec(&[]).check().is_ok());
    assert!(spec(&[Feature::Held]).check().unwrap_err().contains("`parse`"));
    assert!(spec(&[Feature::Parse, Feature::Log]).check().is_err());
    assert!(spec(&[Feature::Tls]).check().is_err());
}
