//! A directory whose files change all the time while a server serves it.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

/// Content that a server must never send: the file is outside of the served folder, and a symbolic link points to it at
/// times.
pub const SECRET: &[u8] = b"outside: never to be seen\n";

/// Names of the files in the folder.
pub const REPLACED: &str = "replaced.txt";
pub const REWRITTEN: &str = "rewritten.txt";
pub const LINK: &str = "link.txt";
pub const BIG: &str = "replaced-big.bin";

/// Version `number` of a page of `lines` lines. Each line contains the version, so that a mix of two versions is
/// detected.
pub fn page(number: u64, lines: usize) -> Vec<u8> {
    format!("version {number:020}\n").repeat(lines).into_bytes()
}

/// The version that all lines of a page contain. `None` for a mix of versions or other content. An empty page is
/// version 0.
pub fn version(page: &[u8]) -> Option<u64> {
    let mut lines = page.split_inclusive(|&byte| byte == b'\n');
    let Some(first) = lines.next() else { return Some(0) };
    let number = first.strip_prefix(b"version ")?.strip_suffix(b"\n")?;
    let is_one_version = first.len() == 29 && lines.all(|line| line == first);
    is_one_version.then(|| std::str::from_utf8(number).ok()?.parse().ok()).flatten()
}

/// Lines of a page that the server keeps in memory, and of a page that it sends from the file.
pub const LINES: usize = 100;
pub const LINES_BIG: usize = 100_000;

/// Writes the pages, and the file `secret` outside of `folder`.
///
/// # Errors
/// File system errors.
pub fn prepare(folder: &Path, secret: &Path) -> io::Result<()> {
    fs::write(secret, SECRET)?;
    fs::write(folder.join(REPLACED), page(1, LINES))?;
    fs::write(folder.join(REWRITTEN), page(1, LINES))?;
    fs::write(folder.join(BIG), page(1, LINES_BIG))?;
    fs::write(folder.join("inside.txt"), page(1, LINES))?;
    symlink("inside.txt", folder.join(LINK))
}

/// Changes the files until `stop` is true: replaced by rename, rewritten in place, truncated, moved away and back,
/// linked outside.
///
/// # Errors
/// File system errors.
pub fn churn(folder: &Path, secret: &Path, stop: &AtomicBool) -> io::Result<u64> {
    let mut number = 1;
    let fresh = folder.join(".fresh");
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        fs::write(&fresh, page(number, LINES))?;
        fs::rename(&fresh, folder.join(REPLACED))?;
        fs::write(folder.join(REWRITTEN), page(number, LINES))?;
        let (to, name) = if number % 2 == 0 { (secret, LINK) } else { (Path::new("inside.txt"), LINK) };
        symlink(to, &fresh)?;
        fs::rename(&fresh, folder.join(name))?;
        if number % 10 == 0 {
            // During a download: truncated, and then replaced by another file.
            fs::File::options().write(true).open(folder.join(BIG))?.set_len(1000)?;
            fs::write(&fresh, page(number, LINES_BIG))?;
            fs::rename(&fresh, folder.join(BIG))?;
            let away = folder.join(".away");
            fs::rename(folder.join(REPLACED), &away)?;
            fs::rename(&away, folder.join(REPLACED))?;
        }
        sleep(Duration::from_millis(1));
    }
    Ok(number)
}
