//! An HTTP/2 server that misbehaves: the program neither hangs nor crashes, and counts each failure under its cause.

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
    ("answers", None, |it| {
        it.settings(&[])?;
        loop {
            let stream = it.request()?;
            it.answer(stream)?;
        }
    }),
    ("trickles", None, |it| {
        it.settings(&[])?;
        loop {
            let stream = it.request()?;
            for byte in http2::answer(stream) {
                it.stream.write_all(&[byte])?;
            }
        }
    }),
    ("answers each with its own connection's end", None, |it| {
        it.settings(&[(STREAMS_MAX, 1)])?;
        let stream = it.request()?;
        it.answer(stream)?;
        it.goaway(stream, 0)?;
        it.sink()
    }),
    ("allows one stream and refuses others", None, |it| {
        it.settings(&[(STREAMS_MAX, 1)])?;
        let first = it.request()?;
        let second = it.request()?;
        it.send(RST_STREAM, 0, second, &7u32.to_be_bytes())?;
        it.answer(first)?;
        loop {
            let stream = it.request()?;
            it.answer(stream)?;
        }
    }),
    ("GOAWAY at once", Some("goaway"), |it| {
        it.settings(&[])?;
        it.goaway(0, 0)?;
        it.sink()
    }),
    ("GOAWAY for an error", Some("goaway"), |it| {
        it.settings(&[])?;
        let stream = it.request()?;
        it.goaway(stream, 1)?;
        it.stream.shutdown(Shutdown::Write)?;
        it.sink()
    }),
    ("no streams allowed", Some("response_timeout"), |it| {
        it.settings(&[(STREAMS_MAX, 0)])?;
        it.sink()
    }),
    ("silent", Some("response_timeout"), |it| {
        it.settings(&[])?;
        it.sink()
    }),
    ("not even SETTINGS", Some("response_timeout"), |it| it.sink()),
    ("stalls in a body", Some("response_timeout"), |it| {
        it.settings(&[])?;
        loop {
            let stream = it.request()?;
            it.send(HEADERS, END_HEADERS, stream, STATUS_200)?;
            it.send(DATA, 0, stream, b"hel")?;
        }
    }),
    ("PING without end", Some("response_timeout"), |it| {
        it.settings(&[])?;
        let flood = http2::frame(PING, 0, 0, &[7; 8]).repeat(1000);
        loop {
            it.stream.write_all(&flood)?;
        }
    }),
    ("CONTINUATION without end", Some("malformed"), |it| {
        it.settings(&[])?;
        let stream = it.request()?;
        it.send(HEADERS, 0, stream, STATUS_200)?;
        // `x: aaaa..`, a literal that is not indexed.
        let field = [&[0, 1, b'x', 0x7f, 0x81, 0x07][..], &[b'a'; 1024]].concat();
        loop {
            it.send(CONTINUATION, 0, stream, &field)?;
        }
    }),
    ("DATA without HEADERS", Some("malformed"), |it| {
        it.settings(&[])?;
        let stream = it.request()?;
        it.send(DATA, END_STREAM, stream, b"hello")?;
        it.sink()
    }),
    ("DATA on a stream of nobody's", Some("malformed"), |it| {
        it.settings(&[])?;
        it.request()?;
        it.send(DATA, 0, 99, b"hello")?;
        it.sink()
    }),
    ("HPACK garbage", Some("malformed"), |it| {
        it.settings(&[])?;
        let stream = it.request()?;
        it.send(HEADERS, END_HEADERS | END_STREAM, stream, &[0xff; 40])?;
        it.sink()
    }),
    ("no HTTP/2 at all", Some("malformed"), |it| {
        it.stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")?;
        it.sink()
    }),
    ("closes without a word", Some("closed_before_response"), |it| {
        it.settings(&[])?;
        it.request()?;
        it.stream.shutdown(Shutdown::Write)?;
        it.sink()
    }),
    ("closes in a body", Some("closed_early"), |it| {
        it.settings(&[])?;
        let (one, other) = (it.request()?, it.request()?);
        for stream in [one, other] {
            it.send(HEADERS, END_HEADERS, stream, STATUS_200)?;
        }
        it.stream.shutdown(Shutdown::Write)?;
        it.sink()
    }),
    ("a body of another length than announced", Some("malformed"), |it| {
        it.settings(&[])?;
        loop {
            let stream = it.request()?;
            // `content-length: 9`, and five bytes.
            it.send(HEADERS, END_HEADERS, stream, &[STATUS_200, &[0x0f, 0x0d, 1, b'9']].concat())?;
            it.send(DATA, END_STREAM, stream, b"hello")?;
        }
    }),
];

/// A run of eight requests and its drain, on a machine where a hundred others go on.
const LONGEST: Duration = Duration::from_secs(60);

#[test]
fn each_hostile_http2_behaviour_fails_with_its_cause() {
    let workspace = Workspace::shared();
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
            judge(name, *cause, &output);
        }
    });
}

/// RST_STREAM with each code, and one that no one knows.
#[test]
fn every_rst_stream_code_is_reported() {
    let workspace = Workspace::shared();
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
        judge(&format!("reset, {code}"), Some("stream_reset"), &output);
        assert_eq!(server.connections(), 2, "a connection lives on when its streams are reset\n{output}");
    });
}

fn reset<const CODE: u32>(it: &mut http2::Connection) -> std::io::Result<()> {
    it.settings(&[])?;
    loop {
        let stream = it.request()?;
        it.send(RST_STREAM, 0, stream, &CODE.to_be_bytes())?;
    }
}

/// A server that gives no window takes no body.
#[test]
fn a_zero_flow_control_window_stalls_until_the_timeout() {
    let workspace = Workspace::shared();
    std::fs::write(workspace.path().join("body"), vec![b'b'; 100_000]).unwrap();
    let server = Http2Server::start(|it| {
        it.settings(&[(WINDOW, 0)])?;
        it.sink()
    });
    let shape = ["-c", "2", "-n", "4", "--body", "body"];
    judge("window", Some("response_timeout"), &run(&workspace, &server, Some("response_timeout"), &shape));
}

/// A server that grants its window immediately sends nothing until it has the complete body.
#[test]
fn a_large_upload_to_a_silent_http2_server_times_out() {
    let workspace = Workspace::shared();
    std::fs::write(workspace.path().join("large"), vec![b'b'; 6_000_000]).unwrap();
    let server = Http2Server::start(|it| {
        it.settings(&[(WINDOW, 0x7fff_ffff)])?;
        it.send(WINDOW_UPDATE, 0, 0, &(0x7fff_ffff - 65_535u32).to_be_bytes())?;
        loop {
            let frame = it.read()?;
            if frame.kind == DATA && frame.flags & END_STREAM != 0 {
                it.answer(frame.stream)?;
            }
        }
    });
    let output = run(&workspace, &server, None, &["-c", "1", "-n", "4", "--body", "large"]);
    judge("a large body", None, &output);
    assert!(count(&output.json(), "load.bytes_sent") > 24_000_000, "{output}");
}

fn run(workspace: &Workspace, server: &Http2Server, cause: Option<&str>, shape: &[&str]) -> Output {
    // Only what is to time out is given little time: a loaded machine must not make a timeout of anything else.
    let timeout = if cause == Some("response_timeout") { "300ms" } else { "30s" };
    let url = server.url();
    let fixed = ["bench", &url, "--http", "2", "--streams", "2", "--timeout", timeout, "--json"];
    workspace.run(&fixed.into_iter().chain(shape.iter().copied()).collect::<Vec<_>>())
}

fn judge(name: &str, cause: Option<&str>, output: &Output) {
    assert!(output.lasted < LONGEST, "{name}: {:?}: {output}", output.lasted);
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
