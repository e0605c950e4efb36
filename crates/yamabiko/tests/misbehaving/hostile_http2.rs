//! Loads on a misbehaving HTTP/2 server: the program neither hangs nor crashes, and counts each failure under its
//! cause.

use std::io::Write as _;
use std::net::Shutdown;
use std::time::Duration;

use crate::support::document::{check, count};
use crate::support::http2::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2Server, PING, RST_STREAM, STATUS_200, Script,
    WINDOW_UPDATE,
};
use crate::support::workspace::{Output, Workspace, concurrently};

/// A script and the result of every request: `None` for a complete response, else a cause.
type Behaviour = (&'static str, Option<&'static str>, Script);

/// SETTINGS_MAX_CONCURRENT_STREAMS and SETTINGS_INITIAL_WINDOW_SIZE.
const STREAMS_MAX: u16 = 3;
const WINDOW: u16 = 4;

const BEHAVIOURS: &[Behaviour] = &[
    ("responds", None, |connection| {
        connection.settings(&[])?;
        loop {
            let stream = connection.request()?;
            connection.respond(stream)?;
        }
    }),
    ("trickles", None, |connection| {
        connection.settings(&[])?;
        loop {
            let stream = connection.request()?;
            for byte in http2::respond(stream) {
                connection.stream.write_all(&[byte])?;
            }
        }
    }),
    ("closes the connection after each response", None, |connection| {
        connection.settings(&[(STREAMS_MAX, 1)])?;
        let stream = connection.request()?;
        connection.respond(stream)?;
        connection.goaway(stream, 0)?;
        connection.sink()
    }),
    ("allows one stream and refuses others", None, |connection| {
        connection.settings(&[(STREAMS_MAX, 1)])?;
        let first = connection.request()?;
        let second = connection.request()?;
        connection.send(RST_STREAM, 0, second, &7u32.to_be_bytes())?;
        connection.respond(first)?;
        loop {
            let stream = connection.request()?;
            connection.respond(stream)?;
        }
    }),
    ("GOAWAY before a request", Some("goaway"), |connection| {
        connection.settings(&[])?;
        connection.goaway(0, 0)?;
        connection.sink()
    }),
    ("GOAWAY for an error", Some("goaway"), |connection| {
        connection.settings(&[])?;
        let stream = connection.request()?;
        connection.goaway(stream, 1)?;
        connection.stream.shutdown(Shutdown::Write)?;
        connection.sink()
    }),
    ("no streams allowed", Some("response_timeout"), |connection| {
        connection.settings(&[(STREAMS_MAX, 0)])?;
        connection.sink()
    }),
    ("silent", Some("response_timeout"), |connection| {
        connection.settings(&[])?;
        connection.sink()
    }),
    ("not even SETTINGS", Some("response_timeout"), |connection| connection.sink()),
    ("stalls in a body", Some("response_timeout"), |connection| {
        connection.settings(&[])?;
        loop {
            let stream = connection.request()?;
            connection.send(HEADERS, END_HEADERS, stream, STATUS_200)?;
            connection.send(DATA, 0, stream, b"hel")?;
        }
    }),
    ("PING without end", Some("response_timeout"), |connection| {
        connection.settings(&[])?;
        let flood = http2::frame(PING, 0, 0, &[7; 8]).repeat(1000);
        loop {
            connection.stream.write_all(&flood)?;
        }
    }),
    ("CONTINUATION without end", Some("malformed"), |connection| {
        connection.settings(&[])?;
        let stream = connection.request()?;
        connection.send(HEADERS, 0, stream, STATUS_200)?;
        // `x: aaaa..`, a literal that is not indexed.
        let field = [&[0, 1, b'x', 0x7f, 0x81, 0x07][..], &[b'a'; 1024]].concat();
        loop {
            connection.send(CONTINUATION, 0, stream, &field)?;
        }
    }),
    ("DATA without HEADERS", Some("malformed"), |connection| {
        connection.settings(&[])?;
        let stream = connection.request()?;
        connection.send(DATA, END_STREAM, stream, b"hello")?;
        connection.sink()
    }),
    ("DATA on an unused stream", Some("malformed"), |connection| {
        connection.settings(&[])?;
        connection.request()?;
        connection.send(DATA, 0, 99, b"hello")?;
        connection.sink()
    }),
    ("HPACK garbage", Some("malformed"), |connection| {
        connection.settings(&[])?;
        let stream = connection.request()?;
        connection.send(HEADERS, END_HEADERS | END_STREAM, stream, &[0xff; 40])?;
        connection.sink()
    }),
    ("no HTTP/2 at all", Some("malformed"), |connection| {
        connection.stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
        connection.sink()
    }),
    ("closes without a word", Some("closed_before_response"), |connection| {
        connection.settings(&[])?;
        connection.request()?;
        connection.stream.shutdown(Shutdown::Write)?;
        connection.sink()
    }),
    ("closes in a body", Some("closed_early"), |connection| {
        connection.settings(&[])?;
        let (one, other) = (connection.request()?, connection.request()?);
        for stream in [one, other] {
            connection.send(HEADERS, END_HEADERS, stream, STATUS_200)?;
        }
        connection.stream.shutdown(Shutdown::Write)?;
        connection.sink()
    }),
    ("a body of another length than announced", Some("malformed"), |connection| {
        connection.settings(&[])?;
        loop {
            let stream = connection.request()?;
            // `content-length: 9`, and five bytes.
            connection.send(HEADERS, END_HEADERS, stream, &[STATUS_200, &[0x0f, 0x0d, 1, b'9']].concat())?;
            connection.send(DATA, END_STREAM, stream, b"hello")?;
        }
    }),
];

/// Maximum duration of a run of eight requests and its drain, on a machine with a hundred concurrent runs.
const MAX_DURATION: Duration = Duration::from_secs(60);

#[test]
fn each_hostile_http2_behaviour_fails_with_its_cause() {
    let workspace = Workspace::concurrent();
    concurrently(4, BEHAVIOURS, |(name, cause, script)| {
        for shape in [&["-c", "2", "-n", "8"][..], &["--rate", "40/s", "-n", "8", "--warmup", "0s", "-c", "2"]] {
            // These need two concurrent requests, which an open loop does not guarantee.
            if shape.len() > 4
                && (name.contains("refuses others") || name.contains("in a body") && *cause == Some("closed_early"))
            {
                continue;
            }
            let server = Http2Server::start(*script);
            let output = run(&workspace, &server, *cause, shape);
            assert_outcome(name, *cause, &output);
        }
    });
}

/// RST_STREAM with each code, and with an unknown one.
#[test]
fn every_rst_stream_code_is_reported() {
    let workspace = Workspace::concurrent();
    let scripts: [Script; 15] = [
        reset::<0>,
        reset::<1>,
        reset::<2>,
        reset::<3>,
        reset::<4>,
        reset::<5>,
        reset::<6>,
        reset::<7>,
        reset::<8>,
        reset::<9>,
        reset::<10>,
        reset::<11>,
        reset::<12>,
        reset::<13>,
        reset::<0xdead>,
    ];
    concurrently(4, scripts.into_iter().enumerate(), |(code, script)| {
        let server = Http2Server::start(script);
        let output = run(&workspace, &server, Some("stream_reset"), &["-c", "2", "-n", "8"]);
        assert_outcome(&format!("reset, {code}"), Some("stream_reset"), &output);
        assert_eq!(server.connections(), 2, "a connection stays open when its streams are reset\n{output}");
    });
}

fn reset<const CODE: u32>(connection: &mut http2::Connection) -> std::io::Result<()> {
    connection.settings(&[])?;
    loop {
        let stream = connection.request()?;
        connection.send(RST_STREAM, 0, stream, &CODE.to_be_bytes())?;
    }
}

/// A request body is not sent to a server that grants no window.
#[test]
fn a_zero_flow_control_window_stalls_until_the_timeout() {
    let workspace = Workspace::concurrent();
    std::fs::write(workspace.path().join("body"), vec![b'b'; 100_000]).unwrap();
    let server = Http2Server::start(|connection| {
        connection.settings(&[(WINDOW, 0)])?;
        connection.sink()
    });
    let shape = ["-c", "2", "-n", "4", "--body", "body"];
    assert_outcome("window", Some("response_timeout"), &run(&workspace, &server, Some("response_timeout"), &shape));
}

/// A server that grants its window immediately but sends no response until it has received the complete body.
#[test]
fn a_large_upload_to_a_silent_http2_server_times_out() {
    let workspace = Workspace::concurrent();
    std::fs::write(workspace.path().join("large"), vec![b'b'; 6_000_000]).unwrap();
    let server = Http2Server::start(|connection| {
        connection.settings(&[(WINDOW, 0x7fff_ffff)])?;
        connection.send(WINDOW_UPDATE, 0, 0, &(0x7fff_ffff - 65_535u32).to_be_bytes())?;
        loop {
            let frame = connection.read()?;
            if frame.kind == DATA && frame.flags & END_STREAM != 0 {
                connection.respond(frame.stream)?;
            }
        }
    });
    let output = run(&workspace, &server, None, &["-c", "1", "-n", "4", "--body", "large"]);
    assert_outcome("a large body", None, &output);
    assert!(count(&output.json(), "load.bytes_sent") > 24_000_000, "{output}");
}

fn run(workspace: &Workspace, server: &Http2Server, cause: Option<&str>, shape: &[&str]) -> Output {
    // Only servers that never respond get a short timeout: on a loaded machine other requests must not time out.
    let timeout = if cause == Some("response_timeout") { "300ms" } else { "30s" };
    let url = server.url();
    let fixed = ["bench", &url, "--http", "2", "--streams", "2", "--timeout", timeout, "--json"];
    workspace.run(&fixed.into_iter().chain(shape.iter().copied()).collect::<Vec<_>>())
}

fn assert_outcome(name: &str, cause: Option<&str>, output: &Output) {
    assert!(output.elapsed < MAX_DURATION, "{name}: {:?}: {output}", output.elapsed);
    let document = output.json();
    let offered = count(&document, "load.offered_requests");
    assert!(offered > 0, "{name}: {output}");
    assert_eq!(check(&document, "conservation")["state"], "ok", "{name}: {output}");
    match cause {
        None => assert_eq!(document["load"]["status"], serde_json::json!({ "200": offered }), "{name}: {output}"),
        Some(cause) => {
            assert_eq!(document["load"]["failed"], serde_json::json!({ cause: offered }), "{name}: {output}")
        }
    }
}
