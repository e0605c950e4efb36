//! Files that change while they are requested.

use super::*;

use std::collections::HashMap;
use std::fs::FileTimes;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

/// Repeats an action on its own thread until dropped.
struct Repeater {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Repeater {
    fn does(mut act: impl FnMut(usize) + Send + 'static) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let thread = thread::spawn(move || {
            let mut turn = 0;
            while !ends.load(Ordering::Relaxed) {
                act(turn);
                turn += 1;
            }
        });
        Repeater { over, thread: Some(thread) }
    }
}

impl Drop for Repeater {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let outcome = self.thread.take().unwrap().join();
        if !thread::panicking() {
            outcome.unwrap();
        }
    }
}

/// Another spelling of the same path: it is not cached, so the file is looked up again.
fn spelt(path: &str, turn: usize) -> String {
    format!("{}{path}", "/".repeat(1 + turn % 500))
}

#[test]
fn a_symlink_that_alternates_out_of_the_directory_never_escapes_it() {
    let server = Running::start();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("file"), "outside").unwrap();
    fs::create_dir(server.root().join("inside")).unwrap();
    fs::write(server.root().join("inside/file"), "inside").unwrap();
    symlink("inside", server.root().join("way")).unwrap();
    fs::create_dir_all(server.root().join("a/b")).unwrap();
    let (root, target) = (server.root().to_owned(), outside.path().to_owned());
    let turning = Repeater::does(move |turn| {
        let to = if turn.is_multiple_of(2) { target.clone() } else { "inside".into() };
        symlink(to, root.join("next")).unwrap();
        fs::rename(root.join("next"), root.join("way")).unwrap();
        // A directory that moves while `..` below it is resolved.
        let (from, to) = if turn.is_multiple_of(2) { ("a/b", "b") } else { ("b", "a/b") };
        fs::rename(root.join(from), root.join(to)).unwrap();
    });
    let mut client = server.connect();
    let (mut found, mut turn) = (0, 0);
    // On a busy machine the link may stay at its outside target during all requests.
    while turn < 2000 || found == 0 {
        turn += 1;
        assert!(turn < 1_000_000, "the link never leads inside the root");
        let path = ["way/file", "a/b/../../way/file", "a/b/../../../file", "way/../file"][turn % 4];
        let response = client.get(&spelt(path, turn));
        match response.status() {
            "200 OK" => {
                assert_eq!(response.body, b"inside");
                found += 1;
            }
            status => assert!(status.starts_with("404") || status.starts_with("503"), "{status}"),
        }
    }
    drop(turning);
}

#[test]
fn head_and_content_come_from_one_version_of_a_file() {
    let server = Running::start();
    let (path, next) = (server.root().join("file"), server.root().join("next"));
    // In-memory and open files alternate; each is filled with a letter derived from its length.
    let version = |turn: usize| {
        let letter = turn % 26;
        let length = if turn.is_multiple_of(2) { 1000 + letter } else { 300_000 + letter };
        vec![b'a' + letter as u8; length]
    };
    fs::write(&path, version(0)).unwrap();
    let replacing = Repeater::does(move |turn| {
        fs::write(&next, version(turn)).unwrap();
        fs::rename(&next, &path).unwrap();
    });
    let mut client = server.connect();
    let mut contents: HashMap<String, u8> = HashMap::new();
    for turn in 0..2000 {
        let response = client.get(&spelt("file", turn));
        assert_eq!(response.status(), "200 OK");
        let letter = response.body[0];
        assert!(response.body.iter().all(|&byte| byte == letter));
        assert_eq!(response.body.len() % 1000, usize::from(letter - b'a'), "the length is that of this version");
        if let Some(etag) = response.field("ETag") {
            assert_eq!(*contents.entry(etag.to_owned()).or_insert(letter), letter, "one tag for two contents");
        }
    }
    drop(replacing);
}

#[test]
fn a_small_file_rewritten_in_place_matches_its_content_length() {
    let server = Running::start();
    let path = server.root().join("file");
    fs::write(&path, "x").unwrap();
    let rewriting = Repeater::does(move |turn| {
        // At most the size of files in memory (IN_MEMORY_BYTES_MAX): larger ones are sent from the file and reset.
        fs::write(&path, vec![b'0' + (turn % 10) as u8; turn * 977 % 16_000]).unwrap();
    });
    let mut client = server.connect();
    for turn in 0..1000 {
        // The framing is checked by the next response on the connection.
        assert_eq!(client.get(&spelt("file", turn)).status(), "200 OK");
    }
    drop(rewriting);
    assert_eq!(client.get("/hello.txt").body, b"hello\n");
}

/// A large file with an old change, and a client that has begun to read it.
fn begun(server: &Running) -> (std::path::PathBuf, Client) {
    let path = server.root().join("big");
    // More than the socket buffers of both ends.
    fs::write(&path, vec![b'a'; 64 << 20]).unwrap();
    let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(784_111_777));
    fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    let mut client = server.connect();
    client.send(b"GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    client.more();
    (path, client)
}

#[test]
fn a_large_file_rewritten_in_place_resets_the_connection() {
    let server = Running::start();
    let (path, mut client) = begun(&server);
    let head = client.read.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    fs::write(&path, vec![b'b'; 64 << 20]).unwrap();
    let mut rest = std::mem::take(&mut client.read);
    let _ = client.stream.read_to_end(&mut rest);
    assert!(rest.len() < head + (64 << 20), "two versions in one response");
}

/// Within the second in which only the file itself is checked again, or after it.
#[test]
fn a_variant_rewritten_in_place_is_not_sent_with_the_head_of_its_old_version() {
    let server = Running::start();
    let (path, variant) = (server.root().join("file.txt"), server.root().join("file.txt.gz"));
    let changed = |path: &Path, seconds: u64| {
        let times = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(784_111_777 + seconds));
        fs::File::options().write(true).open(path).unwrap().set_times(times).unwrap();
    };
    fs::write(&path, vec![b'x'; 100_000]).unwrap();
    changed(&path, 0);
    for (seconds, letter) in [(0, b'a'), (1, b'b'), (2, b'c')] {
        fs::write(&variant, vec![letter; 50_000]).unwrap();
        changed(&variant, seconds);
        let mut client = server.connect();
        let fields = "Host: x\r\nAccept-Encoding: gzip\r\nConnection: close\r\n";
        client.send(format!("GET /file.txt HTTP/1.1\r\n{fields}\r\n").as_bytes());
        let mut response = Vec::new();
        // The server may break the response off.
        let _ = client.stream.read_to_end(&mut response);
        let head = response.windows(4).position(|window| window == b"\r\n\r\n").map_or(0, |at| at + 4);
        let is_whole = response.len() == head + 50_000;
        assert!(is_whole || seconds > 0, "{} bytes", response.len());
        if is_whole {
            let text = String::from_utf8_lossy(&response[..head]);
            let expected = format!("Last-Modified: Sun, 06 Nov 1994 08:49:{} GMT\r\n", 37 + seconds);
            assert!(text.contains(&expected), "{}: {text}", char::from(letter));
            assert!(response[head..].iter().all(|&byte| byte == letter), "{}", char::from(letter));
        }
    }
}

/// Within the second in which the file is not checked again.
#[test]
fn a_request_after_an_in_place_rewrite_gets_the_new_content() {
    let server = Running::start();
    let path = server.root().join("file");
    let long_ago = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(784_111_777));
    fs::write(&path, vec![b'a'; 600_000]).unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_times(long_ago).unwrap();
    let mut client = server.connect();
    for (letter, length) in [(b'a', 600_000), (b'b', 600_000), (b'c', 500_000)] {
        fs::write(&path, vec![letter; length]).unwrap();
        let set = FileTimes::new().set_modified(UNIX_EPOCH + Duration::from_secs(784_111_777 + u64::from(letter)));
        fs::File::options().write(true).open(&path).unwrap().set_times(set).unwrap();
        assert!(client.get("/file").body == vec![letter; length], "{letter}");
    }
}

#[test]
fn a_large_file_that_is_replaced_or_appended_to_arrives_unchanged() {
    let server = Running::start();
    for change in ["rename", "remove", "append"] {
        let (path, mut client) = begun(&server);
        match change {
            "rename" => {
                fs::write(server.root().join("next"), "other").unwrap();
                fs::rename(server.root().join("next"), &path).unwrap();
            }
            "remove" => fs::remove_file(&path).unwrap(),
            _ => fs::File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap(),
        }
        let response = client.response(true);
        assert_eq!(response.body.len(), 64 << 20, "{change}");
        assert!(response.body.iter().all(|&byte| byte == b'a'), "{change}");
        assert_eq!(client.get("/hello.txt").body, b"hello\n");
        let _ = fs::remove_file(&path);
    }
}
