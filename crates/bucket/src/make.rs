//! Making a volume in a bucket: the store is asked whether it keeps to its condition, what an
//! interrupted attempt left is taken away, and the object `volume` comes last.

use crate::BLOCK_BYTES;
use crate::at_rest::AtRest;
use crate::beat::{BEATS, Writer};
use crate::checkpoint::DELETED_AT_ONCE;
use crate::clone::CLONES;
use crate::object::LOG;
use crate::store::Store;
use crate::volume::{NAME, Shape, is_volume};
use crate::writer::{Put, put_own};
use env::{Bucket, BucketErrorKind, Env, Nanos};
use std::rc::Rc;

/// How to make one.
#[derive(Clone, Debug)]
pub struct FormatOptions {
    /// The volume's name.
    pub uuid: [u8; 16],
    /// Its bytes.
    pub size_bytes: u64,
    /// Even if there is a volume already: that one is lost.
    pub force: bool,
    /// How its objects lie at rest.
    pub at_rest: AtRest,
}

/// Serials under way beyond the acknowledged one at most.
pub(crate) const WINDOW: u64 = 32;

/// A heart that does not beat for so long has stopped: a writer counts as silent after that.
const WATCHED: Nanos = Nanos::from_secs(5);

/// A volume that is being made.
pub struct Making {
    /// Its store, to be filled.
    pub store: Store,
    pub(crate) bucket: Rc<dyn Bucket>,
}

/// Begins to make a volume. Errors: there is one already; the store in the bucket does not do what
/// is needed; or the bucket's.
pub async fn format(
    env: Env,
    bucket: Rc<dyn Bucket>,
    options: &FormatOptions,
) -> Result<Making, String> {
    let blocks = options.size_bytes / BLOCK_BYTES as u64;
    if !(64..=1 << 40).contains(&blocks) {
        return Err(format!("a volume of {} bytes cannot be", options.size_bytes));
    }
    begin(&env, &bucket, options.force).await?;
    let (uuid, window) = (options.uuid, WINDOW);
    let shape = Shape { uuid, blocks, window, compressed: false, clone: false, check: None };
    let shape = shape.lying(&options.at_rest);
    Ok(Making { store: Store::make(env, bucket.clone(), (shape, &options.at_rest)), bucket })
}

/// Makes sure that a volume can be made here, and that nothing is left of others.
pub(crate) async fn begin(env: &Env, bucket: &Rc<dyn Bucket>, force: bool) -> Result<(), String> {
    let text = |e: env::BucketError| e.to_string();
    if is_volume(bucket).await.map_err(text)? {
        if !force {
            return Err("there is a volume already, which --force would destroy".into());
        }
        check_silent(env, bucket).await?;
        bucket.delete(NAME).await.map_err(text)?;
    }
    probe(env, bucket).await?;
    for prefix in [LOG, BEATS, CLONES] {
        for some in bucket.list(prefix, "").await.map_err(text)?.chunks(DELETED_AT_ONCE) {
            bucket.delete_all(some.to_vec()).await.map_err(text)?;
        }
    }
    Ok(())
}

/// Somebody may be writing the volume that is about to go: his heart beats. (One with a longer
/// patience than is usual may beat less often; he is not seen.) Errors: somebody is.
async fn check_silent(env: &Env, bucket: &Rc<dyn Bucket>) -> Result<(), String> {
    let beats = bucket.list(BEATS, "").await.map_err(|e| e.to_string())?;
    let Some(last) = beats.last() else { return Ok(()) };
    let Some(before) = Writer::said(bucket, last).await.filter(|w| !w.closed) else {
        return Ok(());
    };
    env.sleep(WATCHED).await;
    match Writer::said(bucket, last).await {
        Some(now) if !now.closed && now.count != before.count => {
            Err(format!("{} is writing the volume that is there: end it first", now.name))
        }
        _ => Ok(()),
    }
}

impl Making {
    /// It is filled: from now on it is a volume. Errors: the bucket's.
    pub async fn finish(self) -> Result<(), String> {
        self.store.close().await.map_err(|e| e.to_string())?;
        let raw = self.store.shape().encode();
        let len = raw.len();
        // The answer may be lost, and the volume be there (I9).
        let env = &self.store.inner.env;
        let put = put_own(env, &self.bucket, NAME, (raw.into(), len), None).await;
        match put.map_err(|e| e.to_string())? {
            Put::Ours => Ok(()),
            Put::Theirs(_) => Err("somebody else has made a volume here meanwhile".into()),
        }
    }
}

/// Everything hangs on the condition of a PUT: is it kept? Errors: it is not.
async fn probe(env: &Env, bucket: &Rc<dyn Bucket>) -> Result<(), String> {
    let name = format!("probe-{:016x}", env.random());
    let text = |e: env::BucketError| e.to_string();
    bucket.put_absent(&name, b"first"[..].into()).await.map_err(text)?;
    let again = bucket.put_absent(&name, b"second"[..].into()).await;
    let there = bucket.get(&name, None).await.map_err(text)?;
    bucket.delete(&name).await.map_err(text)?;
    let refused = again.is_err_and(|e| e.kind == BucketErrorKind::Exists);
    if refused && there == b"first" {
        return Ok(());
    }
    Err("the store does not keep to the condition of a PUT (If-None-Match: *): two machines could \
         write the same object, so no volume can be kept here"
        .into())
}
