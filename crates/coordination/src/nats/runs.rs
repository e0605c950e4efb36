//! Stored runs as objects of JetStream's object store: a member sends its own, the leader fetches those of all.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::Client;
use async_nats::jetstream::context::AccountErrorKind;
use async_nats::jetstream::{self, object_store};
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};

use super::Pack;
use crate::Local;
use crate::message::Ended;

/// Longest time to send or fetch one run.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(300);
/// Pause after a failed transfer, before it is repeated: a server that is started again has the bucket's contents.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Transfers of one run, the first included.
const ATTEMPTS: u32 = 10;
/// Age at which the server forgets a run that nobody fetched.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Runs that are fetched at the same time.
const CONCURRENT_FETCHES: usize = 4;
/// Largest archive of a run, in bytes.
const ARCHIVE_MAX: u64 = 64 << 30;

/// The runs of one session.
pub struct Runs {
    client: Client,
    bucket: String,
    instance: u64,
    dir: PathBuf,
    pack: Pack,
    done: mpsc::Sender<Local>,
    slots: Arc<Semaphore>,
    /// Runs that were sent: no two have the same name.
    sent: AtomicU32,
    received: Arc<Mutex<Vec<PathBuf>>>,
}

impl Runs {
    /// Archives are in `dir` meanwhile; ends of transfers go to `done`.
    pub fn new(
        client: Client,
        session: &str,
        instance: u64,
        dir: PathBuf,
        pack: Pack,
        done: mpsc::Sender<Local>,
    ) -> Self {
        Runs {
            client,
            bucket: format!("yamabiko_{session}"),
            instance,
            dir,
            pack,
            done,
            slots: Arc::new(Semaphore::new(CONCURRENT_FETCHES)),
            sent: AtomicU32::new(0),
            received: Arc::default(),
        }
    }

    /// Sends a run, in the background.
    pub fn send(&self, index: u32, ended: Ended) {
        let archive = self.dir.join(format!("send-{index}.tar.gz"));
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let object = format!("{index}-{:016x}-{number}.tar.gz", self.instance);
        let (client, bucket, pack, done) =
            (self.client.clone(), self.bucket.clone(), self.pack.clone(), self.done.clone());
        tokio::spawn(async move {
            let sending = send(client, bucket, &object, ended, &archive, pack);
            let result = timeout(TRANSFER_TIMEOUT, sending).await.unwrap_or_else(|_| Err("it took too long".into()));
            let _ = tokio::fs::remove_file(&archive).await;
            let _ = done.send(Local::Sent(result.map(|()| object))).await;
        });
    }

    /// Fetches a member's run, in the background.
    pub fn fetch(&self, index: u32, ended: Ended) {
        let archive = self.dir.join(format!("shard-{index}.tar.gz"));
        let (client, bucket, done, slots, received) =
            (self.client.clone(), self.bucket.clone(), self.done.clone(), self.slots.clone(), self.received.clone());
        tokio::spawn(async move {
            let _slot = slots.acquire().await;
            let result = match &ended.object {
                None => Err(format!("its run {} was not sent: {}", ended.run, ended.not_sent)),
                Some(object) => {
                    timeout(TRANSFER_TIMEOUT, repeated(|| fetch(client.clone(), bucket.clone(), object, &archive)))
                        .await
                        .unwrap_or_else(|_| Err("it took too long".into()))
                        .map_err(|why| format!("its run {} was not received: {why}", ended.run))
                }
            };
            if result.is_ok() {
                received.lock().unwrap_or_else(PoisonError::into_inner).push(archive);
            }
            let _ = done.send(Local::Fetched { index, result }).await;
        });
    }

    /// Removes the object of a run that is here already.
    pub fn discard(&self, ended: Ended) {
        let (client, bucket) = (self.client.clone(), self.bucket.clone());
        tokio::spawn(async move {
            let Some(object) = ended.object else { return };
            if let Ok(store) = jetstream::new(client).get_object_store(bucket).await {
                let _ = store.delete(object).await;
            }
        });
    }

    /// Archives of the fetched runs.
    pub fn received(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.received.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Removes what the server keeps of the session. Without a store there is nothing to remove.
    pub async fn remove_bucket(&self) {
        let context = jetstream::new(self.client.clone());
        let _ = timeout(Duration::from_secs(5), context.delete_object_store(&self.bucket)).await;
    }
}

/// Why a transfer failed.
enum Failure {
    /// It would fail again.
    Lasting(String),
    /// It may succeed later: the server was restarted, or the connection is lost.
    Passing(String),
}

fn passing(error: impl std::fmt::Display) -> Failure {
    Failure::Passing(error.to_string())
}

/// Repeats a transfer until it succeeds or fails permanently.
async fn repeated<F: Future<Output = Result<(), Failure>>>(transfer: impl Fn() -> F) -> Result<(), String> {
    let mut attempt = 1;
    loop {
        match transfer().await {
            Ok(()) => return Ok(()),
            Err(Failure::Passing(_)) if attempt < ATTEMPTS => sleep(RETRY_INTERVAL).await,
            Err(Failure::Passing(why) | Failure::Lasting(why)) => return Err(why),
        }
        attempt += 1;
    }
}

async fn send(
    client: Client,
    bucket: String,
    object: &str,
    ended: Ended,
    archive: &Path,
    pack: Pack,
) -> Result<(), String> {
    let (dir, to) = (PathBuf::from(&ended.dir), archive.to_owned());
    tokio::task::spawn_blocking(move || pack(&dir, &to)).await.map_err(|error| error.to_string())??;
    repeated(|| put(client.clone(), bucket.clone(), object, archive)).await
}

async fn put(client: Client, bucket: String, object: &str, archive: &Path) -> Result<(), Failure> {
    let context = jetstream::new(client);
    // Only whether there is a JetStream: after a server was killed, the client cannot read this answer.
    if let Err(error) = context.query_account().await
        && matches!(error.kind(), AccountErrorKind::JetStreamUnavailable | AccountErrorKind::JetStream(_))
    {
        return Err(Failure::Lasting(format!(
            "the server has no object store ({error}); JetStream is enabled by nats-server's option -js"
        )));
    }
    let config = object_store::Config {
        bucket,
        description: Some("runs of yamabiko's shards".into()),
        max_age: AGE_MAX,
        num_replicas: 1,
        ..object_store::Config::default()
    };
    let store = context.create_object_store(config).await.map_err(passing)?;
    let mut file = tokio::fs::File::open(archive).await.map_err(|error| Failure::Lasting(error.to_string()))?;
    store.put(object, &mut file).await.map_err(passing)?;
    Ok(())
}

async fn fetch(client: Client, bucket: String, object: &str, archive: &Path) -> Result<(), Failure> {
    let store = jetstream::new(client).get_object_store(bucket).await.map_err(passing)?;
    let content = store.get(object).await.map_err(passing)?;
    let size = content.info().size as u64;
    if size > ARCHIVE_MAX {
        return Err(Failure::Lasting(format!("it has {size} bytes: expected at most {ARCHIVE_MAX}")));
    }
    let of_disk = |error: std::io::Error| Failure::Lasting(error.to_string());
    let mut file = tokio::fs::File::create(archive).await.map_err(of_disk)?;
    let copied = tokio::io::copy(&mut content.take(size + 1), &mut file).await.map_err(passing)?;
    file.sync_all().await.map_err(of_disk)?;
    if copied != size {
        return Err(Failure::Passing(format!("{copied} of {size} bytes")));
    }
    let _ = store.delete(object).await;
    Ok(())
}
