//! The logging components.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use sys::clock::Clock;

use super::head;
use super::rounds::{LocalRound, Repetitions, rounds};
use crate::cache::Finding;
use crate::figures::Kind;
use crate::journal::{Entry, LineFormatter};
use crate::spec::{ServeError, system};

/// Bytes of the logged request head.
const HEAD_BYTES: usize = 200;

/// Formats a line of the combined format and appends it to a file, which is written in blocks of `full` bytes.
pub(super) fn lines(folder: &Path, full: usize, repetitions: Repetitions) -> Result<Vec<LocalRound>, ServeError> {
    let path = folder.join(format!("yamabiko-part-{}-{full}.log", std::process::id()));
    let file = OpenOptions::new().append(true).create_new(true).open(&path);
    let mut file = file.map_err(system("create the log of a component"))?;
    let made = written(&mut |bytes| file.write_all(bytes), full, repetitions);
    let _ = fs::remove_file(&path);
    made
}

/// The same with `write` in place of a file.
fn written(
    write: &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
    full: usize,
    repetitions: Repetitions,
) -> Result<Vec<LocalRound>, ServeError> {
    let clock = Clock::start();
    let head = head(HEAD_BYTES)?;
    let (mut line_formatter, mut out) = (LineFormatter::new(), Vec::with_capacity(full + 4096));
    rounds(repetitions, || {
        let now = clock.now();
        let entry = Entry {
            peer: IpAddr::V4(Ipv4Addr::new(198, 19, 0, 1)),
            head: &head,
            status: 200,
            content_bytes: 10_000,
            kind: Kind::Static,
            finding: Finding::NONE,
            began: now,
            ended: now,
            whole: true,
        };
        line_formatter.line(&entry, &mut out);
        if out.len() >= full {
            write(&out).map_err(system("write the log of a component"))?;
            out.clear();
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_operation_writes_one_log_line() {
        let repetitions = Repetitions { rounds: 1, each: Duration::from_micros(100) };
        for (full, alone) in [(1, true), (64 << 10, false)] {
            let (mut text, mut writes) = (Vec::new(), 0_u64);
            let made = written(
                &mut |bytes| {
                    text.extend_from_slice(bytes);
                    writes += 1;
                    Ok(())
                },
                full,
                repetitions,
            )
            .unwrap();
            let lines = text.iter().filter(|byte| **byte == b'\n').count() as u64;
            assert!(!alone || lines > made[0].count && writes == lines, "{lines} {writes} {made:?}");
            assert!(alone || writes * 100 < lines.max(100), "{writes} writes of {lines} lines");
            if let Some(first) = text.split(|byte| *byte == b'\n').next().filter(|line| !line.is_empty()) {
                let first = String::from_utf8_lossy(first);
                assert!(
                    first.starts_with("198.19.0.1 - - [") && first.contains("\"GET /10k.bin HTTP/1.1\" 200 10000"),
                    "{first}"
                );
            }
        }
    }
}
