//! What a capacity has made so far, a line a trial: `trials.jsonl` in its folder. Each line is on the disk before the next trial begins, so
//! that a search that was interrupted, or killed, goes on with the next.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use schema::TrialPart;
use schema::document::Host;
use serde::{Deserialize, Serialize};

use experiment::ExperimentError;

/// Its name in the folder.
pub const NAME: &str = "trials.jsonl";

/// Where its trials are made: those of another machine or version are no trials of this search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialMachine {
    /// This program's version.
    pub version: String,
    /// CPU model.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
}

impl TrialMachine {
    /// This machine.
    pub fn of(host: &Host) -> Self {
        TrialMachine {
            version: env!("CARGO_PKG_VERSION").into(),
            cpu: host.cpu.clone(),
            cores: host.cores,
            memory_bytes: host.memory_bytes,
            kernel: host.kernel.clone(),
        }
    }

    /// In what it differs from another, in words; none if in nothing.
    pub fn differs(&self, other: &TrialMachine) -> Option<String> {
        let fields = [
            ("version", &self.version, &other.version),
            ("processor", &self.cpu, &other.cpu),
            ("kernel", &self.kernel, &other.kernel),
        ];
        let words = fields.iter().filter(|(_, a, b)| a != b).map(|(name, a, b)| format!("{name} {a} and not {b}"));
        let mut words: Vec<String> = words.collect();
        if self.cores != other.cores {
            words.push(format!("{} cores and not {}", self.cores, other.cores));
        }
        // A virtual machine's may differ by some pages from start to start.
        if self.memory_bytes.abs_diff(other.memory_bytes) > self.memory_bytes / 50 {
            words.push(format!("{} bytes of memory and not {}", self.memory_bytes, other.memory_bytes));
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The first.
    Begun(TrialMachine),
    /// It was taken up again, RFC 3339.
    Resumed(String),
    /// A trial.
    Trial(Box<TrialPart>),
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalContents {
    /// Where it was begun; absent if not even that is there.
    pub place: Option<TrialMachine>,
    /// When it was taken up again.
    pub resumed: Vec<String>,
    /// Its trials, in order.
    pub trials: Vec<TrialPart>,
}

/// The journal, open for more.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Begins one in a folder.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn begin(folder: &Path, place: &TrialMachine) -> Result<Journal, ExperimentError> {
        let path = folder.join(NAME);
        let file =
            OpenOptions::new().create_new(true).append(true).open(&path).map_err(ExperimentError::file(&path))?;
        let mut journal = Journal { file };
        journal.line(&Line::Begun(place.clone())).map_err(ExperimentError::file(&path))?;
        Ok(journal)
    }

    /// Opens the one of a folder, cuts what was not written to its end, and says what it holds.
    ///
    /// # Errors
    /// It cannot be read or written; a line is none of this version's.
    pub fn reopen(folder: &Path) -> Result<(Journal, JournalContents), ExperimentError> {
        let path = folder.join(NAME);
        let open = OpenOptions::new().read(true).append(true).open(&path);
        let mut file = open.map_err(ExperimentError::file(&path))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(ExperimentError::file(&path))?;
        let whole = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        file.set_len(whole as u64).map_err(ExperimentError::file(&path))?;
        file.seek(SeekFrom::End(0)).map_err(ExperimentError::file(&path))?;
        let read = parse(&text[..whole]).map_err(|(line, why)| {
            ExperimentError::Plan(format!("{}:{line}: not a trial of this version: {why}", path.display()))
        })?;
        Ok((Journal { file }, read))
    }

    /// A trial was made. It is on the disk when this returns.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn trial(&mut self, trial: &TrialPart) -> Result<(), ExperimentError> {
        self.line(&Line::Trial(Box::new(trial.clone()))).map_err(ExperimentError::file(NAME))
    }

    /// It was taken up again.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn resumed(&mut self, at: &str) -> Result<(), ExperimentError> {
        self.line(&Line::Resumed(at.to_owned())).map_err(ExperimentError::file(NAME))
    }

    fn line(&mut self, line: &Line) -> std::io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())?;
        self.file.sync_data()
    }
}

/// Reads whole lines; the number of a line that cannot be read, and why.
fn parse(text: &[u8]) -> Result<JournalContents, (usize, String)> {
    let mut read = JournalContents::default();
    for (at, line) in text.split(|&byte| byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty()) {
        match serde_json::from_slice(line).map_err(|error| (at + 1, error.to_string()))? {
            Line::Begun(place) => read.place = Some(place),
            Line::Resumed(at) => read.resumed.push(at),
            Line::Trial(trial) => read.trials.push(*trial),
        }
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> TrialMachine {
        TrialMachine::of(&Host {
            cpu: "a cpu".into(),
            cores: 2,
            memory_bytes: 1 << 30,
            kernel: "6.1".into(),
            ..Host::default()
        })
    }

    #[test]
    fn cut_at_any_byte_it_holds_what_was_written_whole() {
        let folder = tempfile::tempdir().unwrap();
        let mut journal = Journal::begin(folder.path(), &place()).unwrap();
        let trials: Vec<TrialPart> = (1..4)
            .map(|load| TrialPart {
                stage: "short".into(),
                load: f64::from(load) / 3.0,
                verdict: "good".into(),
                ..TrialPart::default()
            })
            .collect();
        trials.iter().for_each(|trial| journal.trial(trial).unwrap());
        let path = folder.path().join(NAME);
        let text = std::fs::read(&path).unwrap();
        for length in 0..=text.len() {
            std::fs::write(&path, &text[..length]).unwrap();
            let (mut journal, read) = Journal::reopen(folder.path()).unwrap();
            let whole = text[..length].iter().filter(|&&byte| byte == b'\n').count();
            assert_eq!(read.place.is_some(), whole > 0);
            assert_eq!(read.trials, trials[..whole.saturating_sub(1)]);
            // And more can be added to it.
            journal.trial(&trials[0]).unwrap();
            let (_, again) = Journal::reopen(folder.path()).unwrap();
            assert_eq!(again.trials.len(), read.trials.len() + 1);
        }
        assert!(Journal::begin(folder.path(), &place()).is_err(), "it is there");
    }

    #[test]
    fn a_line_of_another_kind_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "{\"trail\":{}}\n").unwrap();
        let error = Journal::reopen(folder.path()).unwrap_err().to_string();
        assert!(error.contains("trials.jsonl:1:"), "{error}");
    }

    #[test]
    fn another_machine_is_told_from_this_one() {
        let here = place();
        assert_eq!(here.differs(&here), None);
        let there = TrialMachine { cores: 4, cpu: "another".into(), ..place() };
        let words = here.differs(&there).unwrap();
        assert!(words.contains("processor a cpu and not another") && words.contains("2 cores and not 4"), "{words}");
    }
}
