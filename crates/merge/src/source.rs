//! The runs to merge: whether they are shards of one load, and which are missing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use coordination::record::{self, Record};
use plan::{Plan, ShardPlan, StartAt};
use schema::Document;
use schema::document::Shard;
use store::StoreError;

use crate::error::MergeError;

/// The runs of one load's shards.
#[derive(Debug)]
pub(crate) struct Sources {
    /// The plan of the whole.
    pub plan: Plan,
    /// Number of shards of the load.
    pub count: u32,
    /// The shards with a result, by number.
    pub complete: Vec<Source>,
    /// The shards without one: their number, and the run's folder if one was given.
    pub missing: BTreeMap<u32, Option<PathBuf>>,
    start_at: StartAt,
}

/// The run of one shard.
#[derive(Debug)]
pub(crate) struct Source {
    /// The run's folder.
    pub dir: PathBuf,
    /// Number of the shard.
    pub index: u32,
    /// The run's document.
    pub document: Document,
    /// What the coordination measured; `None` without coordination.
    pub coordination: Option<Record>,
}

/// A run as given: its plan, and its document if it has ended.
struct Given {
    dir: PathBuf,
    plan: Plan,
    document: Option<Document>,
}

impl Sources {
    /// Reads plans and documents of the runs in `dirs`.
    ///
    /// # Errors
    /// The runs are not shards of one load, a shard is given twice, none has a result, or a file cannot be read.
    pub fn read(dirs: &[PathBuf]) -> Result<Self, MergeError> {
        let given = dirs.iter().map(|dir| Given::read(dir)).collect::<Result<Vec<_>, _>>()?;
        let Some(first) = given.iter().find(|given| given.document.is_some()) else {
            return Err(MergeError::NotOneLoad(
                "none of these runs has a result: all were killed, or still run".into(),
            ));
        };
        let (first_part, first_dir) = (first.part()?.clone(), first.dir.clone());
        let mut taken = BTreeMap::<u32, &Path>::new();
        for given in &given {
            given.check_same_load(first, &first_part)?;
            if let Some(twice) = taken.insert(given.index(), &given.dir) {
                return Err(MergeError::NotOneLoad(format!(
                    "shard {}/{} is given twice: {} and {}",
                    given.index(),
                    first_part.count,
                    twice.display(),
                    given.dir.display()
                )));
            }
        }
        let start_at = first.plan.shard.start_at.ok_or_else(|| not_a_shard(&first_dir))?;
        let plan = Plan { shard: ShardPlan::default(), ..first.plan.clone() };
        let mut missing: BTreeMap<u32, Option<PathBuf>> =
            (0..first_part.count).filter(|index| !taken.contains_key(index)).map(|index| (index, None)).collect();
        let mut complete = Vec::new();
        for given in given {
            let index = given.index();
            match given.document {
                Some(document) => {
                    let coordination = coordination_of(&given.dir)?;
                    complete.push(Source { dir: given.dir, index, document, coordination });
                }
                None => drop(missing.insert(index, Some(given.dir))),
            }
        }
        complete.sort_by_key(|source| source.index);
        Ok(Sources { plan, count: first_part.count, complete, missing, start_at })
    }

    /// When the load began, by the wall clock.
    pub fn started_at(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.start_at.unix_ns())
    }

    /// A shard as text: `3/8`.
    pub fn name(&self, index: u32) -> String {
        format!("{index}/{}", self.count)
    }
}

impl Source {
    /// The shard's part of the document.
    pub fn part(&self) -> &Shard {
        self.document.run.shard.as_ref().expect("checked when the run was read")
    }
}

impl Given {
    fn read(dir: &Path) -> Result<Self, MergeError> {
        let unreadable = |why: String| MergeError::Unreadable { run: dir.to_owned(), why };
        let text = store::read_plan(dir)?;
        let plan = Plan::from_toml(&text, "plan.toml").map_err(|error| unreadable(error.to_string()))?;
        if plan.shard.shard.is_none() {
            return Err(not_a_shard(dir));
        }
        let document = match store::read_summary(dir) {
            Ok(document) => Some(document),
            Err(StoreError::Unfinished { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let given = Given { dir: dir.to_owned(), plan, document };
        if given.document.is_some() {
            let part = given.part()?;
            if (part.index, part.count) != (given.index(), given.count()) {
                return Err(unreadable(format!(
                    "its plan is of shard {}/{}, its result of shard {}/{}",
                    given.index(),
                    given.count(),
                    part.index,
                    part.count
                )));
            }
        }
        Ok(given)
    }

    fn index(&self) -> u32 {
        self.plan.shard.shard.map_or(0, |shard| shard.index)
    }

    fn count(&self) -> u32 {
        self.plan.shard.shard.map_or(1, |shard| shard.count)
    }

    fn part(&self) -> Result<&Shard, MergeError> {
        self.document.as_ref().and_then(|document| document.run.shard.as_ref()).ok_or_else(|| not_a_shard(&self.dir))
    }

    /// Refuses a run that is not a shard of the same load as `first`. A killed run has no digest of its plan: its seed,
    /// count and start are compared.
    fn check_same_load(&self, first: &Given, first_part: &Shard) -> Result<(), MergeError> {
        let differs = |what: &str, own: String, other: String| {
            let (own_dir, other_dir) = (self.dir.display(), first.dir.display());
            Err(MergeError::NotOneLoad(format!(
                "not shards of one load: the {what} of {own_dir} is {own}, that of {other_dir} is {other}"
            )))
        };
        if self.count() != first_part.count {
            return differs("number of shards", self.count().to_string(), first_part.count.to_string());
        }
        if self.plan.seed != first.plan.seed {
            return differs("seed", self.plan.seed.to_string(), first.plan.seed.to_string());
        }
        let start = |given: &Given| given.plan.shard.start_at.map_or_else(String::new, |at| at.to_string());
        if start(self) != start(first) {
            return differs("start", start(self), start(first));
        }
        if self.document.is_none() {
            return Ok(());
        }
        let part = self.part()?;
        if part.version != first_part.version {
            return differs("version of yamabiko", part.version.clone(), first_part.version.clone());
        }
        if part.plan_digest != first_part.plan_digest {
            return differs("plan (its digest)", short(&part.plan_digest), short(&first_part.plan_digest));
        }
        Ok(())
    }
}

fn coordination_of(dir: &Path) -> Result<Option<Record>, MergeError> {
    let why = |error| format!("{}: {error}", record::FILE);
    record::read(dir).map_err(|error| MergeError::Unreadable { run: dir.to_owned(), why: why(error) })
}

fn short(digest: &str) -> String {
    format!("{}..", digest.chars().take(12).collect::<String>())
}

fn not_a_shard(dir: &Path) -> MergeError {
    MergeError::NotOneLoad(format!(
        "{} is not the run of a shard: expected runs of bench --shard INDEX/COUNT",
        dir.display()
    ))
}
