//! The page cache on a real directory.

use super::*;
use std::fs;
use std::fs::FileTimes;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

fn with(rules: FileRules) -> (tempfile::TempDir, Files) {
    let directory = tempfile::tempdir().unwrap();
    let files = Files::new(Root::open(directory.path()).unwrap(), rules);
    (directory, files)
}

fn files() -> (tempfile::TempDir, Files) {
    with(FileRules::default())
}

fn text(found: Found) -> String {
    match found {
        Found::Page(page) => match &page.content {
            Content::Held(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            Content::Stored(_, length) => format!("{length} bytes stored"),
        },
        Found::Directory => "directory".to_owned(),
        Found::Nothing(status) => status.line().to_owned(),
    }
}

fn page(found: Found) -> Rc<Page> {
    match found {
        Found::Page(page) => page,
        other => panic!("{other:?}"),
    }
}

#[allow(clippy::disallowed_methods, reason = "times of files are times of the wall clock")]
fn now() -> SystemTime {
    SystemTime::now()
}

/// Sets the modification time that many seconds back.
fn age(path: &Path, seconds: u64) {
    let then = now() - Duration::from_secs(seconds);
    fs::File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(then)).unwrap();
}

/// Checks all counters of the cache against its content.
fn check(files: &Files) {
    let live: Vec<_> = files.slots.iter().flatten().collect();
    let sums = live.iter().fold((0, 0), |sum, slot| {
        let (bytes, open) = slot.page.weight();
        (sum.0 + bytes + slot.key.len() + SLOT_BYTES, sum.1 + open)
    });
    assert_eq!((files.held_bytes, files.open_files), sums);
    assert_eq!(files.table.len(), live.len());
    let in_clocks: usize = files.clocks.iter().map(VecDeque::len).sum();
    assert_eq!(in_clocks + files.free.len(), files.slots.len(), "every slot is in a clock or free");
}

#[test]
fn a_file_change_is_visible_in_the_next_second() {
    let (directory, mut files) = files();
    let path = directory.path().join("a");
    fs::write(&path, "one").unwrap();
    assert_eq!(text(files.find(b"/a", 1)), "one");
    fs::write(&path, "three").unwrap();
    assert_eq!(text(files.find(b"/a", 1)), "one");
    assert_eq!(text(files.find(b"/a", 2)), "three");
    fs::remove_file(&path).unwrap();
    assert_eq!(text(files.find(b"/a", 3)), "404 Not Found");
    assert_eq!((files.table.len(), files.held_bytes, files.open_files), (0, 0, 0));
    fs::write(&path, "four").unwrap();
    assert_eq!(text(files.find(b"/a", 3)), "four");
    check(&files);
}

#[test]
fn a_change_within_one_tick_of_the_file_clock_is_visible() {
    let (directory, mut files) = files();
    let path = directory.path().join("a");
    // Same length and minimal distance in time: the stamps may be equal.
    for (second, content) in ["aaaa", "bbbb", "cccc", "dddd", "eeee"].iter().enumerate() {
        fs::write(&path, content).unwrap();
        assert_eq!(text(files.find(b"/a", second as u64)), *content);
    }
}

#[test]
fn a_file_with_restored_size_and_time_is_reloaded() {
    let (directory, mut files) = files();
    let path = directory.path().join("a");
    fs::write(&path, "one").unwrap();
    let times = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    let set = || fs::File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
    set();
    assert_eq!(text(files.find(b"/a", 1)), "one");
    fs::write(&path, "two").unwrap();
    set();
    assert_eq!(text(files.find(b"/a", 2)), "two");
}

#[test]
fn entity_tags_follow_the_content() {
    let (directory, mut files) = files();
    let path = directory.path().join("a");
    fs::write(&path, "one").unwrap();
    let one = page(files.find(b"/a", 1));
    fs::write(&path, "two").unwrap();
    let two = page(files.find(b"/a", 2));
    fs::write(&path, "one").unwrap();
    age(&path, 100);
    let again = page(files.find(b"/a", 3));
    assert!(one.etag.is_some() && one.etag != two.etag && one.etag == again.etag);
    // No Last-Modified in the second of the change.
    assert!(one.modified_s.is_none() || one.modified_s < Some(now_s()));
    assert!(again.modified_s.is_some());
    let head = String::from_utf8(again.head.whole().to_vec()).unwrap();
    assert!(head.contains(&format!("\r\nETag: {}\r\n", one.etag.as_deref().unwrap())), "{head}");
}

fn now_s() -> i64 {
    now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64
}

#[test]
fn large_files_have_an_entity_tag_two_seconds_after_a_change() {
    let (directory, mut files) = files();
    let path = directory.path().join("large");
    fs::write(&path, vec![b'x'; IN_MEMORY_BYTES_MAX as usize + 1]).unwrap();
    // Its inode has just changed, whatever its modification time.
    age(&path, 1000);
    let young = page(files.find(b"/large", 1));
    assert_eq!((young.etag.as_deref(), young.changed_recently()), (None, true));
    assert!(young.modified_s.is_some());
    assert!(young.is_intact());
    // Appended to: the announced bytes still exist.
    use std::io::Write as _;
    fs::File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    assert!(young.is_intact());
    fs::File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
    assert!(!young.is_intact());
}

#[test]
fn files_up_to_the_size_limit_are_stored_in_memory() {
    let (directory, mut files) = files();
    fs::write(directory.path().join("fits"), vec![b'x'; IN_MEMORY_BYTES_MAX as usize]).unwrap();
    fs::write(directory.path().join("not"), vec![b'x'; IN_MEMORY_BYTES_MAX as usize + 1]).unwrap();
    assert_eq!(text(files.find(b"/fits", 1)).len(), IN_MEMORY_BYTES_MAX as usize);
    assert_eq!(text(files.find(b"/not", 1)), format!("{} bytes stored", IN_MEMORY_BYTES_MAX + 1));
    assert_eq!(files.open_files, 1);
    check(&files);
}

#[test]
fn repeatedly_requested_files_outlive_files_requested_once() {
    let (directory, mut files) = files();
    let large = vec![0; IN_MEMORY_BYTES_MAX as usize + 1];
    for name in 0..3 * OPEN_MAX {
        fs::write(directory.path().join(name.to_string()), &large).unwrap();
    }
    for name in 0..3 * OPEN_MAX {
        files.find(format!("/{name}").as_bytes(), 1);
        files.find(b"/0", 1);
        files.find(b"/1", 1);
    }
    assert_eq!(files.open_files, OPEN_MAX);
    let held = |files: &Files, path: &[u8]| files.slots.iter().flatten().any(|slot| *slot.key == *path);
    assert!(held(&files, b"/0") && held(&files, b"/1") && !held(&files, b"/2"));
    check(&files);
}

#[test]
fn memory_of_stored_files_is_limited_for_any_requests() {
    let (directory, mut files) = files();
    fs::write(directory.path().join("f"), vec![b'x'; IN_MEMORY_BYTES_MAX as usize]).unwrap();
    let spellings = 2 * IN_MEMORY_TOTAL_MAX / IN_MEMORY_BYTES_MAX as usize;
    for spelling in 0..spellings {
        files.find(format!("{}f", "/".repeat(spelling + 1)).as_bytes(), 1);
    }
    assert!(files.held_bytes <= IN_MEMORY_TOTAL_MAX && files.held_bytes > IN_MEMORY_TOTAL_MAX / 2);
    check(&files);
    for absent in 0..1000 {
        files.find(format!("/absent{absent}").as_bytes(), 1);
    }
    check(&files);
    assert!(files.slots.len() <= spellings);
}

#[test]
fn created_and_deleted_files_leave_no_memory_behind() {
    let (directory, mut files) = files();
    for round in 0..1000u64 {
        let path = directory.path().join(format!("f{}", round % 7));
        fs::write(&path, "x").unwrap();
        let name = format!("/f{}", round % 7);
        assert_eq!(text(files.find(name.as_bytes(), 2 * round)), "x");
        fs::remove_file(&path).unwrap();
        assert_eq!(text(files.find(name.as_bytes(), 2 * round + 1)), "404 Not Found");
    }
    check(&files);
    assert!(files.slots.len() < 2 * EMPTY_PLACES_MAX, "{} places", files.slots.len());
}

#[test]
fn directories_and_special_files_are_not_pages() {
    let (directory, mut files) = files();
    fs::create_dir_all(directory.path().join("d/index.html")).unwrap();
    fs::write(directory.path().join("f"), "x").unwrap();
    nix::unistd::mkfifo(&directory.path().join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert_eq!(text(files.find(b"/d", 1)), "directory");
    assert_eq!(text(files.find(b"/d/", 1)), "404 Not Found");
    assert_eq!(text(files.find(b"/f/", 1)), "404 Not Found");
    assert_eq!(text(files.find(b"/pipe", 1)), "404 Not Found");
    assert_eq!(text(files.find(b"/../x", 1)), "404 Not Found");
}

#[test]
fn the_first_existing_index_file_is_served() {
    let index = ["index.html", "default.htm"].map(str::to_owned).to_vec();
    let (directory, mut files) = with(FileRules { index, ..FileRules::default() });
    fs::write(directory.path().join("default.htm"), "second").unwrap();
    assert_eq!(text(files.find(b"/", 1)), "second");
    fs::write(directory.path().join("index.html"), "first").unwrap();
    assert_eq!(text(files.find(b"/", 2)), "first");
    fs::remove_file(directory.path().join("index.html")).unwrap();
    assert_eq!(text(files.find(b"/", 3)), "second");
    let (directory, mut files) = with(FileRules { index: Vec::new(), ..FileRules::default() });
    fs::write(directory.path().join("index.html"), "x").unwrap();
    assert_eq!(text(files.find(b"/", 1)), "404 Not Found");
}

#[test]
fn names_with_a_leading_dot_are_hidden() {
    let (directory, mut files) = files();
    fs::create_dir_all(directory.path().join(".well-known")).unwrap();
    fs::create_dir_all(directory.path().join(".git")).unwrap();
    for name in [".well-known/a", ".git/config", ".htpasswd"] {
        fs::write(directory.path().join(name), "x").unwrap();
    }
    assert_eq!(text(files.find(b"/.well-known/a", 1)), "x");
    for hidden in ["/.htpasswd", "/.git/config", "/%2egit/config", "/a/../.git/config", "/.git"] {
        assert_eq!(text(files.find(hidden.as_bytes(), 1)), "404 Not Found", "{hidden}");
    }
    let mut all = Files::new(Root::open(directory.path()).unwrap(), FileRules { hidden: true, ..FileRules::default() });
    assert_eq!(text(all.find(b"/.git/config", 1)), "x");
}

#[test]
fn precompressed_files_are_found_by_suffix() {
    let (directory, mut files) = files();
    let file = |name: &str| directory.path().join(name);
    fs::write(file("a.js"), "plain").unwrap();
    age(&file("a.js"), 100);
    let twins = |files: &mut Files, now_s| -> Vec<(Coding, String)> {
        let page = page(files.find(b"/a.js", now_s));
        page.variants.iter().map(|twin| (twin.coding.unwrap(), text(Found::Page(Rc::clone(twin))))).collect()
    };
    assert_eq!(twins(&mut files, 1), []);
    fs::write(file("a.js.gz"), "gz").unwrap();
    assert_eq!(twins(&mut files, 1), [], "looked for again in the next second");
    assert_eq!(twins(&mut files, 2), [(Coding::Gzip, "gz".to_owned())]);
    fs::write(file("a.js.br"), "br").unwrap();
    assert_eq!(twins(&mut files, 3), [(Coding::Brotli, "br".to_owned()), (Coding::Gzip, "gz".to_owned())]);
    // Older than the file: the variant of an earlier version.
    age(&file("a.js.br"), 200);
    assert_eq!(twins(&mut files, 4), [(Coding::Gzip, "gz".to_owned())]);
    fs::remove_file(file("a.js.gz")).unwrap();
    assert_eq!(twins(&mut files, 5), []);
    check(&files);
    let plain = page(files.find(b"/a.js", 6));
    assert!(!String::from_utf8_lossy(plain.head.whole()).contains("Vary"));
    // A compressed type has no variants.
    fs::write(file("a.png"), "x").unwrap();
    fs::write(file("a.png.gz"), "x").unwrap();
    assert!(page(files.find(b"/a.png", 1)).variants.is_empty());
}

#[test]
fn the_type_of_a_file_without_extension_is_sniffed() {
    let (directory, mut files) = files();
    let mut large = b"%PDF-1.7\n".to_vec();
    large.resize(IN_MEMORY_BYTES_MAX as usize + 1, b' ');
    for (name, content, kind) in [
        ("note", b"hello\n".to_vec(), "text/plain; charset=utf-8"),
        ("picture", b"\x89PNG\r\n\x1a\nrest".to_vec(), "image/png"),
        ("noise", b"\x01\x02\0\xff".to_vec(), "application/octet-stream"),
        ("paper", large, "application/pdf"),
    ] {
        fs::write(directory.path().join(name), content).unwrap();
        let page = page(files.find(format!("/{name}").as_bytes(), 1));
        let kind_lines = format!("Content-Type: {kind}\r\nX-Content-Type-Options: nosniff\r\n");
        assert_eq!(String::from_utf8_lossy(page.head.kind()), kind_lines);
    }
    fs::write(directory.path().join("a.txt"), b"\x89PNG\r\n\x1a\n").unwrap();
    let named = page(files.find(b"/a.txt", 1));
    assert_eq!(named.head.kind(), b"Content-Type: text/plain; charset=utf-8\r\n");
}

#[test]
fn a_moved_link_to_the_served_directory_is_followed_in_the_next_second() {
    let all = tempfile::tempdir().unwrap();
    let current = all.path().join("current");
    for release in ["r1", "r2"] {
        fs::create_dir_all(all.path().join(release).join("sub")).unwrap();
        for name in ["index.html", "sub/a", release] {
            fs::write(all.path().join(release).join(name), release).unwrap();
        }
    }
    symlink("r1", &current).unwrap();
    let mut files = Files::new(Root::open(&current).unwrap(), FileRules::default());
    assert_eq!([&b"/"[..], b"/sub/a", b"/r1"].map(|path| text(files.find(path, 1))), ["r1"; 3]);
    symlink("r2", all.path().join("next")).unwrap();
    fs::rename(all.path().join("next"), &current).unwrap();
    assert_eq!(text(files.find(b"/", 1)), "r1");
    assert_eq!([&b"/"[..], b"/sub/a", b"/r2"].map(|path| text(files.find(path, 2))), ["r2"; 3]);
    assert_eq!(text(files.find(b"/r1", 2)), "404 Not Found");
    check(&files);
}

#[test]
fn a_removed_and_recreated_root_directory_is_served_again() {
    let all = tempfile::tempdir().unwrap();
    let root = all.path().join("www");
    let make = |content: &str| {
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a"), content).unwrap();
    };
    make("one");
    let mut files = Files::new(Root::open(&root).unwrap(), FileRules::default());
    assert_eq!(text(files.find(b"/a", 1)), "one");
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(text(files.find(b"/a", 2)), "404 Not Found");
    make("two");
    assert_eq!(text(files.find(b"/a", 2)), "two", "immediately: absence is not cached");
    // Moved away and replaced.
    fs::rename(&root, all.path().join("old")).unwrap();
    make("three");
    assert_eq!(text(files.find(b"/a", 3)), "three");
    fs::rename(&root, all.path().join("older")).unwrap();
    fs::write(&root, "a file in its place").unwrap();
    assert_eq!(text(files.find(b"/a", 4)), "404 Not Found");
    check(&files);
}

#[test]
fn sockets_fifos_and_devices_are_not_found() {
    use nix::sys::stat::{Mode, SFlag, makedev, mknod};
    let (directory, mut files) = files();
    let at = |name: &str| directory.path().join(name);
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    nix::unistd::mkfifo(&at("fifo"), Mode::S_IRUSR).unwrap();
    // Creating a device needs root; without it the two others are tested.
    let _ = mknod(&at("device"), SFlag::S_IFCHR, Mode::S_IRUSR, makedev(1, 3));
    symlink("socket", at("link")).unwrap();
    fs::create_dir(at("folder")).unwrap();
    let _index = std::os::unix::net::UnixListener::bind(at("folder/index.html")).unwrap();
    for path in ["/socket", "/fifo", "/device", "/link", "/folder/", "/socket/x"] {
        assert_eq!(text(files.find(path.as_bytes(), 1)), "404 Not Found", "{path}");
    }
}
