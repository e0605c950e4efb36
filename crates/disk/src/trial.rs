//! The tests and their fio options.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::time::Duration;

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::Serialize;
use stats::Rng;

use super::scratch::Scratch;
use experiment::ExperimentError;

/// Block size of Bonnie.
const BLOCK_BYTES: u64 = 16 << 10;
/// Concurrent seek processes of Bonnie.
const SEEK_PROCESSES: u64 = 3;
/// One in this number of blocks read by a seeker is written back.
const WRITE_BACK_INTERVAL: u64 = 10;
/// Limit of blocks that are rewritten or read by seekers: 4 GiB.
const BLOCKS_MAX: u64 = 1 << 18;
/// Queue depth of a busy cache or database.
const DEEP_QUEUE: u32 = 32;

/// One test of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Trial {
    /// Sequential, a system call per byte, as in Bonnie++ 2 (Bonnie 1 called putc).
    WritePerChar,
    /// Sequential, 16 KiB per call, into an empty file.
    WritePerBlock,
    /// Each block of 16 KiB read and written back.
    Rewrite,
    /// Sequential, a system call per byte.
    ReadPerChar,
    /// Sequential, 16 KiB per call.
    ReadPerBlock,
    /// Three concurrent seekers read blocks of 16 KiB, each once, and write back one in ten.
    Seeks,
    /// 4 KiB reads at random offsets, one at a time, O_DIRECT.
    #[serde(rename = "random_read_4k")]
    RandomRead,
    /// The same, 32 concurrent.
    #[serde(rename = "random_read_4k_32")]
    RandomReadDeep,
    /// 4 KiB writes at random offsets, one at a time, O_DIRECT.
    #[serde(rename = "random_write_4k")]
    RandomWrite,
    /// The same, 32 concurrent.
    #[serde(rename = "random_write_4k_32")]
    RandomWriteDeep,
    /// 4 KiB write at a random offset, then fdatasync, repeatedly: a database commit.
    Commits,
}

impl Trial {
    /// All tests, in order.
    pub const ALL: [Trial; 11] = [
        Trial::WritePerChar,
        Trial::WritePerBlock,
        Trial::Rewrite,
        Trial::ReadPerChar,
        Trial::ReadPerBlock,
        Trial::Seeks,
        Trial::RandomRead,
        Trial::RandomReadDeep,
        Trial::RandomWrite,
        Trial::RandomWriteDeep,
        Trial::Commits,
    ];

    /// Name in the JSON document and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Trial::WritePerChar => "write_per_char",
            Trial::WritePerBlock => "write_per_block",
            Trial::Rewrite => "rewrite",
            Trial::ReadPerChar => "read_per_char",
            Trial::ReadPerBlock => "read_per_block",
            Trial::Seeks => "seeks",
            Trial::RandomRead => "random_read_4k",
            Trial::RandomReadDeep => "random_read_4k_32",
            Trial::RandomWrite => "random_write_4k",
            Trial::RandomWriteDeep => "random_write_4k_32",
            Trial::Commits => "commits",
        }
    }

    /// The test with this name.
    pub fn named(name: &str) -> Option<Trial> {
        Trial::ALL.into_iter().find(|test| test.name() == name)
    }

    /// Whether the page cache is bypassed.
    pub const fn direct(self) -> bool {
        matches!(self, Trial::RandomRead | Trial::RandomReadDeep | Trial::RandomWrite | Trial::RandomWriteDeep)
    }

    /// Whether the test goes through the whole file once instead of ending by time.
    pub const fn covers_whole_file(self) -> bool {
        matches!(self, Trial::WritePerBlock | Trial::Rewrite | Trial::ReadPerBlock)
    }

    /// Whether the test starts with an empty file.
    pub(super) const fn needs_empty_file(self) -> bool {
        matches!(self, Trial::WritePerChar | Trial::WritePerBlock)
    }

    /// Whether the file must be written before.
    pub(super) const fn needs_written_file(self) -> bool {
        !self.needs_empty_file()
    }

    /// The fio command line, and lists of blocks that fio inherits.
    ///
    /// # Errors
    /// No memory for a list.
    pub(super) fn command(
        self,
        scratch: &Scratch,
        duration: Duration,
        seed: u64,
    ) -> Result<FioCommand, ExperimentError> {
        let mut words = FioCommand::default();
        words.add("output-format", "json");
        words.add("percentile_list", "50:75:90:95:99:99.9:99.99");
        match self {
            Trial::Seeks => {
                let lists = shuffled_blocks(scratch.size().0 / BLOCK_BYTES, seed);
                for (at, blocks) in lists.iter().enumerate() {
                    words.job(&format!("seeks{at}"), scratch, duration);
                    let written_back = |index: usize| (index as u64) % WRITE_BACK_INTERVAL == WRITE_BACK_INTERVAL - 1;
                    words
                        .list(scratch, blocks.iter().enumerate().map(|(index, &block)| (block, written_back(index))))?;
                }
                return Ok(words);
            }
            Trial::Rewrite => {
                words.job(self.name(), scratch, duration);
                let blocks = (scratch.size().0 / BLOCK_BYTES).min(BLOCKS_MAX);
                words.list(scratch, (0..blocks).map(|block| (block, true)))?;
                words.add("end_fsync", "1");
                return Ok(words);
            }
            _ => {}
        }
        words.job(self.name(), scratch, duration);
        words.add("size", &scratch.size().0.to_string());
        words.add("randseed", &seed.to_string());
        let (kind, bytes) = match self {
            Trial::WritePerChar => ("write", "1"),
            Trial::WritePerBlock => ("write", "16k"),
            Trial::ReadPerChar => ("read", "1"),
            Trial::ReadPerBlock => ("read", "16k"),
            Trial::RandomRead | Trial::RandomReadDeep => ("randread", "4k"),
            _ => ("randwrite", "4k"),
        };
        words.add("rw", kind);
        words.add("bs", bytes);
        match self {
            // Avoid the cost of timing each call.
            Trial::WritePerChar | Trial::ReadPerChar => words.add("gtod_reduce", "1"),
            Trial::RandomReadDeep | Trial::RandomWriteDeep => {
                words.add("ioengine", "libaio");
                words.add("iodepth", &DEEP_QUEUE.to_string());
            }
            Trial::Commits => words.add("fdatasync", "1"),
            _ => {}
        }
        if self.direct() {
            words.add("direct", "1");
        }
        if !self.covers_whole_file() && !matches!(self, Trial::WritePerChar | Trial::ReadPerChar) {
            words.add("time_based", "1");
        }
        if kind == "write" {
            words.add("end_fsync", "1");
        }
        Ok(words)
    }
}

/// fio's command line, and files in memory that it reads.
#[derive(Debug, Default)]
pub(super) struct FioCommand {
    pub words: Vec<String>,
    pub lists: Vec<File>,
}

impl FioCommand {
    fn add(&mut self, option: &str, value: &str) {
        self.words.push(format!("--{option}={value}"));
    }

    /// Begins a job: later options apply to it. Jobs are threads, since fio's processes would create sessions of their
    /// own and outlive fio.
    fn job(&mut self, name: &str, scratch: &Scratch, duration: Duration) {
        self.add("name", name);
        self.add("thread", "1");
        self.add("filename", &scratch.name());
        self.add("ioengine", "psync");
        self.add("invalidate", "1");
        self.add("runtime", &format!("{}ms", duration.as_millis()));
    }

    /// Adds an iolog of version 2 in memory: blocks to read, each with whether it is written back.
    fn list(&mut self, scratch: &Scratch, blocks: impl Iterator<Item = (u64, bool)>) -> Result<(), ExperimentError> {
        use std::os::fd::AsRawFd as _;
        let memory = memfd_create("blocks", MFdFlags::MFD_CLOEXEC);
        let file: File = memory.map_err(|errno| ExperimentError::file("a list in memory")(errno.into()))?.into();
        let name = scratch.name();
        let written = (|| {
            let mut out = BufWriter::new(&file);
            writeln!(out, "fio version 2 iolog\n{name} add\n{name} open")?;
            for (block, back) in blocks {
                let at = block * BLOCK_BYTES;
                writeln!(out, "{name} read {at} {BLOCK_BYTES}")?;
                if back {
                    writeln!(out, "{name} write {at} {BLOCK_BYTES}")?;
                }
            }
            writeln!(out, "{name} close")?;
            out.flush()
        })();
        written.map_err(ExperimentError::file("a list in memory"))?;
        self.add("read_iolog", &format!("/proc/self/fd/{}", file.as_raw_fd()));
        self.lists.push(file);
        Ok(())
    }
}

/// Blocks of each seeker: all blocks in random order, each once, distributed in turn.
fn shuffled_blocks(blocks: u64, seed: u64) -> Vec<Vec<u64>> {
    let mut all: Vec<u64> = (0..blocks).collect();
    let mut rng = Rng::new(seed, 0x5ee4);
    let count = all.len().min(BLOCKS_MAX as usize);
    // A partial Fisher-Yates shuffle: only the first elements are used.
    for at in 0..count {
        let other = at + (rng.next() % (all.len() - at) as u64) as usize;
        all.swap(at, other);
    }
    let blocks_of =
        |seeker: u64| all[..count].iter().copied().skip(seeker as usize).step_by(SEEK_PROCESSES as usize).collect();
    (0..SEEK_PROCESSES).map(blocks_of).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use units::Bytes;

    use super::*;

    fn scratch() -> Scratch {
        Scratch::make(&std::env::temp_dir(), Bytes(16 << 20)).unwrap()
    }

    #[test]
    fn test_names_are_unique_and_match_the_plan() {
        let names: BTreeSet<&str> = Trial::ALL.iter().map(|test| test.name()).collect();
        assert_eq!(names.len(), Trial::ALL.len());
        for test in Trial::ALL {
            assert_eq!(serde_json::to_string(&test).unwrap(), format!("\"{}\"", test.name()));
            assert_eq!(Trial::named(test.name()), Some(test));
        }
        assert_eq!(Trial::named("x"), None);
    }

    #[test]
    fn sought_blocks_are_unique_and_depend_on_the_seed() {
        let lists = shuffled_blocks(1000, 7);
        assert_eq!(lists.len(), 3);
        let all: BTreeSet<u64> = lists.iter().flatten().copied().collect();
        assert_eq!((all.len(), lists.iter().map(Vec::len).sum::<usize>()), (1000, 1000));
        assert_ne!(lists[0][..10], [0, 3, 6, 9, 12, 15, 18, 21, 24, 27]);
        assert_eq!(lists, shuffled_blocks(1000, 7));
        assert_ne!(lists, shuffled_blocks(1000, 8));
        assert_eq!(shuffled_blocks(BLOCKS_MAX * 2, 1).iter().map(Vec::len).sum::<usize>() as u64, BLOCKS_MAX);
        assert!(shuffled_blocks(0, 1).iter().all(Vec::is_empty));
    }

    #[test]
    fn rewrite_list_reads_and_writes_each_block() {
        let (scratch, mut lines) = (scratch(), String::new());
        let words = Trial::Rewrite.command(&scratch, Duration::from_secs(1), 1).unwrap();
        let list = words.words.iter().find_map(|word| word.strip_prefix("--read_iolog=")).unwrap();
        lines.push_str(&fs::read_to_string(list).unwrap());
        let of = |what: &str| lines.lines().filter(|line| line.split(' ').nth(1) == Some(what)).count();
        assert_eq!((of("read"), of("write")), (1024, 1024));
        assert!(lines.contains(" read 16384 16384\n") && lines.contains(" write 16384 16384\n"));
        let seeks = Trial::Seeks.command(&scratch, Duration::from_secs(1), 1).unwrap();
        let written: usize = seeks
            .words
            .iter()
            .filter_map(|word| word.strip_prefix("--read_iolog="))
            .map(|list| fs::read_to_string(list).unwrap().matches(" write ").count())
            .sum();
        assert_eq!((seeks.lists.len(), written), (3, 102));
    }

    #[test]
    fn tests_end_by_time_or_with_the_whole_file() {
        let scratch = scratch();
        for test in Trial::ALL {
            let words = test.command(&scratch, Duration::from_millis(1500), 3).unwrap().words;
            let has = |word: &str| words.iter().any(|w| w == word);
            assert!(has("--runtime=1500ms") && has("--thread=1") && has("--output-format=json"), "{words:?}");
            assert_eq!(has("--direct=1"), test.direct(), "{words:?}");
            assert!(!(has("--time_based=1") && test.covers_whole_file()), "{words:?}");
            assert!(
                !words.iter().any(|word| word.contains(std::env::temp_dir().to_str().unwrap())),
                "no name: {words:?}"
            );
        }
    }
}
