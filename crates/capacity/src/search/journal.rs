//! The journal of a search, `trials.jsonl` in its folder, one line per trial. Each line is on disk before the next
//! trial begins, so that an interrupted or killed search can resume.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use schema::TrialPart;
use schema::document::Host;
use serde::{Deserialize, Serialize};

use experiment::ExperimentError;

/// File name.
pub const NAME: &str = "trials.jsonl";

/// The machine and version that made the trials; trials of another one do not belong to the search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialMachine {
    /// Version of Yamabiko.
    pub version: String,
    /// CPU model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Kernel release.
    pub kernel: String,
    /// Machines that make each trial together; this one is the first.
    pub shards: u32,
}

impl TrialMachine {
    /// This machine, as the first of `shards`.
    pub fn of(host: &Host, shards: u32) -> Self {
        TrialMachine {
            version: env!("CARGO_PKG_VERSION").into(),
            cpu: host.cpu.clone(),
            cores: host.cores,
            memory_bytes: host.memory_bytes,
            kernel: host.kernel.clone(),
            shards,
        }
    }

    /// The differences from another machine in words; `None` if there are none.
    pub fn differs(&self, other: &TrialMachine) -> Option<String> {
        let fields = [
            ("version", &self.version, &other.version),
            ("processor", &self.cpu, &other.cpu),
            ("kernel", &self.kernel, &other.kernel),
        ];
        let words = fields.iter().filter(|(_, a, b)| a != b).map(|(name, a, b)| format!("{name} {a}, not {b}"));
        let mut words: Vec<String> = words.collect();
        if self.cores != other.cores {
            words.push(format!("{} cores, not {}", self.cores, other.cores));
        }
        if self.shards != other.shards {
            words.push(format!("{} shards, not {}", self.shards, other.shards));
        }
        // A virtual machine's memory may differ by some pages between starts.
        if self.memory_bytes.abs_diff(other.memory_bytes) > self.memory_bytes / 50 {
            words.push(format!("{} bytes of memory, not {}", self.memory_bytes, other.memory_bytes));
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// First line.
    Begun(TrialMachine),
    /// The search was resumed, RFC 3339.
    Resumed(String),
    /// A trial.
    Trial(Box<TrialPart>),
}

/// Contents of a journal.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JournalContents {
    /// The machine; absent if the journal is empty.
    pub place: Option<TrialMachine>,
    /// Times of resumption.
    pub resumed: Vec<String>,
    /// Trials of the search, in order.
    pub trials: Vec<TrialPart>,
}

/// A journal open for appending.
#[derive(Debug)]
pub struct Journal {
    file: File,
}

impl Journal {
    /// Creates the journal of a folder.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(folder: &Path, place: &TrialMachine) -> Result<Journal, ExperimentError> {
        let path = folder.join(NAME);
        let file =
            OpenOptions::new().create_new(true).append(true).open(&path).map_err(ExperimentError::file(&path))?;
        let mut journal = Journal { file };
        journal.line(&Line::Begun(place.clone())).map_err(ExperimentError::file(&path))?;
        Ok(journal)
    }

    /// Opens the journal of a folder, removes an incomplete last line, and returns the contents.
    ///
    /// # Errors
    /// The file cannot be read or written, or a line belongs to another version.
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

    /// Appends a trial. It is on disk on return.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn trial(&mut self, trial: &TrialPart) -> Result<(), ExperimentError> {
        self.line(&Line::Trial(Box::new(trial.clone()))).map_err(ExperimentError::file(NAME))
    }

    /// Records a resumption.
    ///
    /// # Errors
    /// The file cannot be written.
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

/// Parses complete lines. Error: number of the unreadable line, and the reason.
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
        let host =
            Host { cpu: "a cpu".into(), cores: 2, memory_bytes: 1 << 30, kernel: "6.1".into(), ..Host::default() };
        TrialMachine::of(&host, 1)
    }

    #[test]
    fn journal_cut_at_any_byte_keeps_the_complete_lines() {
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
            // Appending works after reopening.
            journal.trial(&trials[0]).unwrap();
            let (_, again) = Journal::reopen(folder.path()).unwrap();
            assert_eq!(again.trials.len(), read.trials.len() + 1);
        }
        assert!(Journal::begin(folder.path(), &place()).is_err(), "machine line");
    }

    #[test]
    fn journal_line_of_another_version_is_refused_with_its_number() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "{\"trail\":{}}\n").unwrap();
        let error = Journal::reopen(folder.path()).unwrap_err().to_string();
        assert!(error.contains("trials.jsonl:1:"), "{error}");
    }

    #[test]
    fn journal_reports_differences_between_machines() {
        let here = place();
        assert_eq!(here.differs(&here), None);
        let there = TrialMachine { cores: 4, cpu: "another".into(), ..place() };
        let words = here.differs(&there).unwrap();
        assert!(words.contains("processor a cpu, not another") && words.contains("2 cores, not 4"), "{words}");
        let words = here.differs(&TrialMachine { shards: 3, ..place() }).unwrap();
        assert_eq!(words, "1 shards, not 3");
    }
}
