//! A bucket of an object store, or a folder in a bucket's place: requests are carried out by the
//! crate `object_store`, on a thread of their own beside the workers. What the objects mean it does
//! not know.

use crate::block_signals;
use crate::kept::{Kept, Part, SLOT_BYTES};
use crate::profile;
use bytes::Bytes;
use env::{BucketError, BucketErrorKind, DiskError, IoDone, IoOp, IoRequest, ObjectDone, ObjectOp};
use env::{DiskErrorKind, ReadNow};
use futures_util::StreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, RetryConfig,
};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::Duration;
use tokio::runtime::Handle;

/// How long a server may say nothing before a request counts as failed, …
const REQUEST_MAX: Duration = Duration::from_secs(10);
/// … where it was sent an object, after the time that this takes at so many bytes a second: several
/// share a line, and sent again they would be no quicker.
const SENT_LEAST: u64 = 100_000;
/// So long threads that wait for a folder's disk, or a name's address, stay: as long as the
/// process.
const KEPT_ALIVE: Duration = Duration::from_secs(1 << 40);

static ENDPOINT: OnceLock<String> = OnceLock::new();
static KEPT: OnceLock<Kept> = OnceLock::new();

/// From now on what is read of objects is kept in this file, of about so many bytes. Errors are for
/// the user.
pub fn set_cache_disk(path: &Path, bytes: u64) -> Result<(), String> {
    let _ = KEPT.set(Kept::open(path, bytes)?); // once a process
    Ok(())
}

/// Is what is read of objects kept?
pub fn has_cache_disk() -> bool {
    KEPT.get().is_some()
}

/// From now on servers are looked for here, whatever the environment says.
pub fn set_endpoint(url: String) {
    let _ = ENDPOINT.set(url); // once a process
}

/// Where a volume in a bucket lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Url {
    /// `s3://BUCKET/PREFIX`
    S3 {
        /// The bucket.
        bucket: String,
        /// What all names of the volume begin with.
        prefix: String,
    },
    /// `file:///DIR`: each object is a file there.
    Folder(PathBuf),
}

impl Url {
    /// The URL that is written in a path's place; None: it is a path. Errors: it is no URL of a
    /// bucket that is known here.
    pub fn of(path: &Path) -> Result<Option<Url>, String> {
        let Some((scheme, rest)) = path.to_str().and_then(|p| p.split_once("://")) else {
            return Ok(None);
        };
        let shown = path.display();
        match scheme {
            "file" if rest.starts_with('/') => Ok(Some(Url::Folder(PathBuf::from(rest)))),
            "file" => Err(format!("{shown}: a folder's URL is file:///DIR, with its whole path")),
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                let prefix = prefix.trim_matches('/').to_owned();
                if bucket.is_empty() || prefix.is_empty() {
                    return Err(format!("{shown}: a volume's URL is s3://BUCKET/PREFIX"));
                }
                Ok(Some(Url::S3 { bucket: bucket.to_owned(), prefix }))
            }
            _ => Err(format!("{shown}: of URLs, s3://BUCKET/PREFIX and file:///DIR are known")),
        }
    }

    /// What all names of the volume begin with for another one whose objects are reached in the
    /// same way: a whole name. Errors: it has characters that would be written otherwise.
    pub fn whole_prefix(&self) -> Result<String, String> {
        let whole = match self {
            Url::Folder(dir) => {
                let real = dir.canonicalize().map_err(|e| format!("{}: {e}", dir.display()))?;
                format!("{}/", real.display())
            }
            Url::S3 { prefix, .. } => format!("/{prefix}/"),
        };
        match ObjectPath::from(whole.as_str()).as_ref() == whole.trim_matches('/') {
            true => Ok(whole),
            false => Err(format!("{whole}: names with such characters cannot be referred to")),
        }
    }

    /// Are both reached in the same way?
    pub fn is_beside(&self, other: &Url) -> bool {
        match (self, other) {
            (Url::Folder(_), Url::Folder(_)) => true,
            (Url::S3 { bucket: a, .. }, Url::S3 { bucket: b, .. }) => a == b,
            _ => false,
        }
    }

    /// Makes a folder for it, where that is what it is.
    pub fn make_folder(&self) -> Result<(), String> {
        match self {
            Url::Folder(dir) => {
                std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))
            }
            Url::S3 { .. } => Ok(()),
        }
    }
}

/// The thread on which requests of all buckets run.
fn runtime() -> Result<Handle, String> {
    static RUNTIME: OnceLock<Result<Handle, String>> = OnceLock::new();
    let started = RUNTIME.get_or_init(|| {
        let fail = |e: std::io::Error| format!("the thread for buckets cannot be started: {e}");
        // Signals are for the thread that waits for them: here they would end the process at once.
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().on_thread_start(block_signals);
        // Where no further thread can be had, those that are there do the work; without any, it
        // would end the process. So they stay.
        let runtime = builder.thread_keep_alive(KEPT_ALIVE).build();
        let runtime = runtime.map_err(fail)?;
        let handle = runtime.handle().clone();
        one_more_thread().map_err(fail)?;
        drop(handle.spawn_blocking(|| ())); // the first of them
        let run = move || {
            block_signals();
            runtime.block_on(std::future::pending::<()>());
        };
        std::thread::Builder::new().name("buckets".into()).spawn(run).map_err(fail)?;
        Ok(handle)
    });
    started.clone()
}

/// Looks whether a further thread can be had just now; on return it is gone again.
fn one_more_thread() -> std::io::Result<()> {
    let thread = std::thread::Builder::new().spawn(nix::unistd::gettid)?;
    let Ok(id) = thread.join() else { return Ok(()) };
    let counts = PathBuf::from(format!("/proc/self/task/{id}"));
    // A moment after it has ended the kernel counts it still.
    for _ in 0..100 {
        if !counts.exists() {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// The objects of one volume.
#[derive(Clone, Debug)]
pub(crate) struct HostBucket {
    store: Arc<dyn ObjectStore>,
    /// For names that begin with a `/`: whole ones, of other volumes.
    whole: Arc<dyn ObjectStore>,
    prefix: String,
    /// It is on a server, which may say nothing any more.
    is_remote: bool,
    runtime: Handle,
    /// The folder, as long as nothing was written to it from here.
    untouched: Arc<Mutex<Option<PathBuf>>>,
}

impl HostBucket {
    /// A bucket; nothing is asked of it yet. Errors are for the user.
    pub(crate) fn open(url: &Url) -> Result<HostBucket, String> {
        type Store = Arc<dyn ObjectStore>;
        let (store, whole, prefix): (Store, Store, String) = match url {
            Url::Folder(dir) => {
                let fail = |e: Error| format!("file://{}: {e}", dir.display());
                let folder = LocalFileSystem::new_with_prefix(dir).map_err(fail)?;
                let whole = LocalFileSystem::new().with_fsync(true);
                (Arc::new(folder.with_fsync(true)), Arc::new(whole), String::new())
            }
            Url::S3 { bucket, prefix } => {
                let store = s3(bucket)?;
                (store.clone(), store, format!("{prefix}/"))
            }
        };
        let folder = match url {
            Url::Folder(dir) => Some(dir.clone()),
            Url::S3 { .. } => None,
        };
        let (is_remote, untouched) = (folder.is_none(), Arc::new(Mutex::new(folder)));
        Ok(HostBucket { store, whole, prefix, is_remote, runtime: runtime()?, untouched })
    }

    /// Begins a request; `then` is called with its end, on the buckets' thread.
    pub(crate) fn start(&self, request: IoRequest, then: impl FnOnce(IoDone) + Send + 'static) {
        let (me, id) = (self.clone(), request.id);
        let Some(op) = request.object else { return then(refuse(request)) };
        self.runtime.spawn(async move { then(IoDone::of_object(id, me.ask(&op).await)) });
    }

    /// Carries a request out, waiting for it.
    pub(crate) fn carry_out(&self, request: IoRequest) -> IoDone {
        if request.op == IoOp::Lend {
            let lent = Some(Arc::new(self.clone()) as Arc<dyn ReadNow>);
            return IoDone { lent, ..IoDone::of_disk(request.id, request.blocks, Ok(())) };
        }
        match request.object {
            Some(op) => IoDone::of_object(request.id, self.ask_now(op)),
            None => refuse(request),
        }
    }

    pub(crate) fn ask_now(&self, op: ObjectOp) -> Result<ObjectDone, BucketError> {
        let (tx, rx) = mpsc::channel();
        let (me, during, name) = (self.clone(), op.verb(), op.name().to_owned());
        self.runtime.spawn(async move { drop(tx.send(me.ask(&op).await)) });
        rx.recv().unwrap_or_else(|_| {
            let (kind, detail) = (BucketErrorKind::Unknown, "its thread is gone".to_owned());
            Err(BucketError { kind, during, name, detail })
        })
    }

    /// What stands before the first `/` in the names of objects.
    pub(crate) fn folders_now(&self) -> Result<Vec<String>, String> {
        let (tx, rx) = mpsc::channel();
        let (store, prefix) = (self.store.clone(), self.prefix.trim_end_matches('/').to_owned());
        self.runtime.spawn(async move {
            let listed = store.list_with_delimiter(Some(&ObjectPath::from(prefix))).await;
            drop(tx.send(listed));
        });
        let listed = rx.recv().map_err(|_| "the buckets' thread is gone".to_owned())?;
        let found = listed.map_err(|e| format!("LIST: {e}"))?.common_prefixes;
        let names = found.iter().filter_map(|p| p.filename().map(str::to_owned));
        Ok(names.collect::<std::collections::BTreeSet<_>>().into_iter().collect())
    }

    async fn ask(&self, op: &ObjectOp) -> Result<ObjectDone, BucketError> {
        if let ObjectOp::PutAbsent(..) | ObjectOp::Put(..) = op {
            let mut untouched = self.untouched.lock().expect("nobody panics holding it");
            if let Some(folder) = untouched.take() {
                self.runtime.spawn_blocking(move || crate::staged::take_away(&folder));
            }
        }
        let asked = self.carry_on(op).await;
        asked.map_err(|e| error_of(op, &e))
    }

    async fn carry_on(&self, op: &ObjectOp) -> Result<ObjectDone, Error> {
        let at = |name: &str| match name.strip_prefix('/') {
            Some(whole) => ObjectPath::from(whole),
            None => ObjectPath::from(format!("{}{name}", self.prefix)),
        };
        let store = if op.name().starts_with('/') { &self.whole } else { &self.store };
        let payload = |bytes: &Arc<[u8]>| PutPayload::from(Bytes::from_owner(bytes.clone()));
        match op {
            ObjectOp::PutAbsent(name, bytes) => {
                let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
                let at = at(name);
                let put = store.put_opts(&at, payload(bytes), options);
                self.within(time_to_send(bytes), put).await?.map(|_| ObjectDone::Done)
            }
            ObjectOp::Put(name, bytes) => {
                let at = at(name);
                let put = store.put(&at, payload(bytes));
                self.within(time_to_send(bytes), put).await?.map(|_| ObjectDone::Done)
            }
            ObjectOp::Get(name, range) => {
                let range = range.map(|(from, len)| GetRange::Bounded(from..from + len));
                let options = GetOptions { range, ..GetOptions::default() };
                let got = self.within(REQUEST_MAX, store.get_opts(&at(name), options)).await??;
                let (mut stream, mut all) = (got.into_stream(), Vec::new());
                while let Some(part) = self.within(REQUEST_MAX, stream.next()).await? {
                    all.extend_from_slice(&part?);
                }
                Ok(ObjectDone::Bytes(all))
            }
            ObjectOp::GetKept { name, range, of, anew } => {
                self.get_kept(name, *range, (of, *anew)).await
            }
            ObjectOp::List { prefix, after } => self.list(prefix, after).await,
            ObjectOp::Delete(names) => {
                let all = names.iter().map(|name| Ok(at(name))).collect::<Vec<_>>();
                let mut deleted = store.delete_stream(futures_util::stream::iter(all).boxed());
                while let Some(one) = self.within(REQUEST_MAX, deleted.next()).await? {
                    match one {
                        Ok(_) | Err(Error::NotFound { .. }) => (),
                        Err(e) => return Err(e),
                    }
                }
                Ok(ObjectDone::Done)
            }
        }
    }

    /// What the server answers, if it does within this time.
    async fn within<T>(&self, most: Duration, what: impl Future<Output = T>) -> Result<T, Error> {
        if !self.is_remote {
            return Ok(what.await); // a folder's disk answers some time
        }
        let text = || format!("no answer within {} s", most.as_secs());
        let answered = tokio::time::timeout(most, what).await;
        answered.map_err(|_| Error::Generic { store: "bucket", source: text().into() })
    }

    /// From the cache on a disk, if all of it is there; else whole slots are read, and kept.
    async fn get_kept(
        &self,
        name: &str,
        (from, len): (u64, u64),
        (of, anew): (&[u8; 16], bool),
    ) -> Result<ObjectDone, Error> {
        let Some(cache) = KEPT.get() else {
            return Box::pin(self.carry_on(&ObjectOp::Get(name.to_owned(), Some((from, len)))))
                .await;
        };
        let part = |index: u64| Part { of, name, index };
        let (first, last) = (from / SLOT_BYTES, (from + len).div_ceil(SLOT_BYTES));
        let cut = |all: Vec<u8>| {
            let skip = (from - first * SLOT_BYTES).min(all.len() as u64) as usize;
            let n = usize::try_from(len).unwrap_or(usize::MAX).min(all.len() - skip);
            all[skip..skip + n].to_vec()
        };
        let there = || (first..last).map(|n| cache.get(part(n))).collect::<Option<Vec<_>>>();
        if let Some(all) = (!anew).then(there).flatten() {
            return Ok(ObjectDone::Kept(cut(all.concat())));
        }
        let range = (first * SLOT_BYTES, (last - first) * SLOT_BYTES);
        let got = Box::pin(self.carry_on(&ObjectOp::Get(name.to_owned(), Some(range)))).await?;
        let ObjectDone::Bytes(all) = got else { return Ok(got) };
        for (n, bytes) in (first..last).zip(all.chunks(SLOT_BYTES as usize)) {
            cache.put(part(n), bytes);
        }
        Ok(ObjectDone::Bytes(cut(all)))
    }

    /// `object_store` lists folders: the last part of `prefix` is compared here.
    async fn list(&self, prefix: &str, after: &str) -> Result<ObjectDone, Error> {
        let (store, before, cut) = match prefix.starts_with('/') {
            true => (&self.whole, "", "/"),
            false => (&self.store, self.prefix.as_str(), ""),
        };
        let folder = format!("{before}{}", prefix.rsplit_once('/').map_or("", |p| p.0));
        let folder = ObjectPath::from(folder.trim_matches('/'));
        let mut listed = if after.is_empty() {
            store.list(Some(&folder))
        } else {
            let after = ObjectPath::from(format!("{before}{after}").trim_start_matches('/'));
            store.list_with_offset(Some(&folder), &after)
        };
        let mut found = Vec::new();
        while let Some(one) = self.within(REQUEST_MAX, listed.next()).await? {
            match one {
                Err(Error::NotFound { .. }) => break, // a folder is made with its first file
                one => found.push(one?),
            }
        }
        let own = |m: object_store::ObjectMeta| {
            let name = format!("{cut}{}", m.location.as_ref().strip_prefix(before)?);
            (name.starts_with(prefix) && name.as_str() > after).then_some(name)
        };
        let mut names: Vec<String> = found.into_iter().filter_map(own).collect();
        names.sort_unstable();
        Ok(ObjectDone::Names(names))
    }
}

/// How long an object may be on its way to a server, and its answer.
fn time_to_send(bytes: &[u8]) -> Duration {
    REQUEST_MAX + Duration::from_millis(bytes.len() as u64 * 1000 / SENT_LEAST)
}

/// A disk's request where there is no disk.
fn no_disk(at: u64) -> DiskError {
    let detail = "a bucket holds objects, and no bytes of its own".to_owned();
    DiskError { kind: DiskErrorKind::Io, during: "read or write", at, detail }
}

fn refuse(request: IoRequest) -> IoDone {
    IoDone::of_disk(request.id, request.blocks, Err(no_disk(request.at)))
}

impl ReadNow for HostBucket {
    fn read_now(&self, at: u64, _: &mut [u8]) -> Result<(), DiskError> {
        Err(no_disk(at))
    }
    fn object_now(&self, op: &ObjectOp) -> Result<ObjectDone, BucketError> {
        self.ask_now(op.clone())
    }
}

fn s3(bucket: &str) -> Result<Arc<dyn ObjectStore>, String> {
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    let set = |name: &str| std::env::var(name).ok().filter(|v| !v.is_empty());
    let profile = profile::read(&set).map_err(|why| format!("s3://{bucket}: {why}"))?;
    let is_keyless =
        ["AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE"].iter().all(|n| set(n).is_none());
    // Keys that are half of the environment's and half of a file's would be nobody's.
    if let Some((id, secret, token)) = profile.keys.filter(|_| is_keyless) {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
        builder = token.into_iter().fold(builder, AmazonS3Builder::with_token);
    }
    let has_region = set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION")).is_some();
    let region = profile.region.filter(|_| !has_region);
    builder = region.into_iter().fold(builder, AmazonS3Builder::with_region);
    let named = set("AWS_ENDPOINT_URL").or_else(|| set("AWS_ENDPOINT"));
    let endpoint = ENDPOINT.get().cloned().or(named).or(profile.endpoint);
    // How long a request may take depends on its length: see `HostBucket::within`.
    let mut client = ClientOptions::new().with_timeout_disabled();
    if let Some(url) = endpoint {
        client = client.with_allow_http(url.starts_with("http://"));
        builder = builder.with_endpoint(url.trim_end_matches('/'));
    }
    // What fails is tried again where it is known what it means.
    let retry =
        RetryConfig { max_retries: 2, retry_timeout: REQUEST_MAX, ..RetryConfig::default() };
    let built = builder.with_client_options(client).with_retry(retry).build();
    built.map(|s| Arc::new(s) as Arc<dyn ObjectStore>).map_err(|e| format!("s3://{bucket}: {e}"))
}

fn error_of(op: &ObjectOp, e: &Error) -> BucketError {
    let kind = match e {
        Error::AlreadyExists { .. } | Error::Precondition { .. } => BucketErrorKind::Exists,
        Error::NotFound { .. } => BucketErrorKind::NotFound,
        Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::NotImplemented { .. }
        | Error::InvalidPath { .. } => BucketErrorKind::Refused,
        _ => BucketErrorKind::Unknown,
    };
    let text = e.to_string();
    // Where nobody has given a key, the machine's own is asked for at this address.
    let text = match text.contains("169.254.169.254") {
        true => "no key: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY say none, and this machine \
                 has none of its own"
            .to_owned(),
        false => text,
    };
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let detail: String = match kind {
        BucketErrorKind::Exists => String::new(),
        _ => words.join(" ").chars().take(300).collect(),
    };
    BucketError { kind, during: op.verb(), name: op.name().to_owned(), detail }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn folder(name: &str) -> (HostBucket, PathBuf) {
        let dir = crate::file::beside_the_build(name);
        let _ = std::fs::remove_dir_all(&dir);
        let url = Url::Folder(dir.clone());
        url.make_folder().unwrap();
        (HostBucket::open(&url).unwrap(), dir)
    }

    fn put(name: &str, bytes: &[u8]) -> ObjectOp {
        ObjectOp::PutAbsent(name.into(), bytes.into())
    }

    fn names(bucket: &HostBucket, after: &str) -> Vec<String> {
        let (prefix, after) = ("log/".to_owned(), after.to_owned());
        match bucket.ask_now(ObjectOp::List { prefix, after }).unwrap() {
            ObjectDone::Names(names) => names,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_folder_keeps_the_rules_of_a_bucket() {
        let (b, dir) = folder("bucket-rules");
        assert_eq!(names(&b, ""), Vec::<String>::new(), "a folder that is not there yet");
        for n in ["log/3", "log/1", "log/2", "other"] {
            assert_eq!(b.ask_now(put(n, b"0123456789")), Ok(ObjectDone::Done));
        }
        let again = b.ask_now(put("log/1", b"other"));
        assert_eq!(again.unwrap_err().kind, BucketErrorKind::Exists);
        let get = |range| b.ask_now(ObjectOp::Get("log/1".into(), range));
        assert_eq!(get(None), Ok(ObjectDone::Bytes(b"0123456789".to_vec())));
        assert_eq!(get(Some((8, 100))), Ok(ObjectDone::Bytes(b"89".to_vec())));
        let range = (8, 100);
        let kept =
            b.ask_now(ObjectOp::GetKept { name: "log/1".into(), range, of: [0; 16], anew: false });
        assert_eq!(kept, Ok(ObjectDone::Bytes(b"89".to_vec())), "without a cache");
        assert_eq!(names(&b, ""), ["log/1", "log/2", "log/3"]);
        assert_eq!(names(&b, "log/1"), ["log/2", "log/3"]);
        for _ in 0..2 {
            assert_eq!(b.ask_now(ObjectOp::Delete(vec!["log/2".into()])), Ok(ObjectDone::Done));
        }
        let gone = b.ask_now(ObjectOp::Get("log/2".into(), None));
        assert_eq!(gone.unwrap_err().kind, BucketErrorKind::NotFound);
        let over = ObjectOp::Put("log/1".into(), b"new"[..].into());
        assert_eq!(b.ask_now(over), Ok(ObjectDone::Done));
        assert_eq!(get(None), Ok(ObjectDone::Bytes(b"new".to_vec())));
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// Of many who put one name at the same time, one is told that it did.
    #[test]
    fn one_of_many_wins() {
        let (b, dir) = folder("bucket-race");
        for round in 0..20 {
            let racer = |n: u8| {
                let (b, op) = (b.clone(), put(&format!("log/{round}"), &[n; 100]));
                std::thread::spawn(move || b.ask_now(op).is_ok())
            };
            let racers: Vec<_> = (0..6).map(racer).collect();
            let won = racers.into_iter().map(|r| r.join().unwrap());
            assert_eq!(won.filter(|w| *w).count(), 1);
        }
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_a_url_means() {
        let of = |s: &str| Url::of(Path::new(s));
        assert_eq!(of("disk.img"), Ok(None));
        assert_eq!(of("file:///a/b"), Ok(Some(Url::Folder("/a/b".into()))));
        let s3 = Url::S3 { bucket: "b".into(), prefix: "x/y".into() };
        assert_eq!(of("s3://b/x/y/"), Ok(Some(s3)));
        assert!(of("s3://b").is_err() && of("file://a").is_err() && of("ftp://a/b").is_err());
    }
}
