//! Taking a volume over: waiting for the writer to be silent, where that is asked for, and the
//! fence that ends its log (I5, I8). Waiting is courtesy; only the fence makes it safe.

use crate::beat::Writer;
use crate::chain::{Chain, Trouble, heads_of, list};
use crate::object::{Head, Kind, name};
use crate::store::OpenOptions;
use crate::volume::Shape;
use crate::writer::{Put, put_own};
use env::{Bucket, Env, Nanos};
use std::rc::Rc;

/// What to do where somebody else writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TakeOver {
    /// Nothing: opening fails if the writer is heard of.
    #[default]
    Refuse,
    /// Wait until it is silent or has ended.
    Wait,
    /// Take over at once.
    Insist,
}

/// Looks at heartbeats so often within the time after which a writer counts as silent.
const LOOKS: u64 = 20;
/// Somebody else was first so often, and it is given up.
const TRIES: usize = 100;

/// Opens the log for writing: it is followed to its end, and a fence put there. Errors: somebody
/// writes, or the bucket's.
pub(crate) async fn take(
    env: &Env,
    bucket: &Rc<dyn Bucket>,
    shape: &Shape,
    options: &OpenOptions,
) -> Result<Chain, String> {
    let mut silent = None;
    for _ in 0..TRIES {
        let chain = match Chain::load(bucket, shape, options.plant).await {
            Ok(chain) => chain,
            Err(Trouble::Again) => continue,
            Err(Trouble::Wrong(why)) => return Err(why),
        };
        let new = chain.epoch > 0 && silent != Some(chain.epoch);
        if new && options.take_over != TakeOver::Insist {
            wait_for_silence(env, bucket, &chain, options).await?;
            silent = Some(chain.epoch);
            continue; // it may have written meanwhile
        }
        if let Some(chain) = fence(env, bucket, (shape, options), chain).await? {
            return Ok(chain);
        }
    }
    Err("others take the volume over again and again".into())
}

/// Returns when the writer of the chain's epoch was not heard of for so long. Errors: it was, and
/// that is not to be waited for.
async fn wait_for_silence(
    env: &Env,
    bucket: &Rc<dyn Bucket>,
    chain: &Chain,
    options: &OpenOptions,
) -> Result<(), String> {
    if let TakeOver::Wait = options.take_over {
        tracing::info!("standing by: epoch {} is {}'s", chain.epoch, chain.writer);
    }
    let (mut heard, mut last) = (env.now(), Writer::of(bucket, chain.epoch).await);
    loop {
        if last.as_ref().is_some_and(|w| w.closed) || env.now().since(heard) >= options.after {
            return Ok(());
        }
        env.sleep(Nanos((options.after.0 / LOOKS).max(1))).await;
        let now = Writer::of(bucket, chain.epoch).await;
        if now.is_none() || now == last {
            continue;
        }
        if let Some(w) = now.as_ref().filter(|w| !w.closed)
            && options.take_over == TakeOver::Refuse
        {
            return Err(format!(
                "it is in use: {} writes it and was heard of a moment ago; --take-over takes it \
                 over all the same, `cairn serve --standby` when that one is silent",
                w.name
            ));
        }
        (heard, last) = (env.now(), now);
    }
}

/// Puts the fence at the first absent serial. None: somebody else was there first, or it had been
/// there and was deleted; then everything is looked at again.
async fn fence(
    env: &Env,
    bucket: &Rc<dyn Bucket>,
    (shape, options): (&Shape, &OpenOptions),
    mut chain: Chain,
) -> Result<Option<Chain>, String> {
    let serial = chain.next;
    let head = Head {
        kind: Kind::Fence,
        serial,
        epoch: serial,
        previous: chain.last,
        checkpoint: chain.checkpoint,
        nonce: env.random(),
        written: Vec::new(),
        freed: Vec::new(),
        writer: options.writer.clone(),
        body_sum: 0,
        said: None,
    };
    let (raw, sum) = head.encode(&shape.uuid);
    let bytes = raw.len();
    let put = put_own(env, bucket, &name(serial), (raw.into(), bytes), options.plant).await;
    match put.map_err(|e| e.to_string())? {
        Put::Ours => (),
        Put::Theirs(_) => return Ok(None),
    }
    if options.plant != Some("fence-not-looked-at-again")
        && was_deleted(bucket, shape, serial).await?
    {
        return Ok(None);
    }
    chain.table.fences.insert(serial);
    (chain.last, chain.epoch) = ((serial, sum), serial);
    chain.next = serial + shape.window;
    Ok(Some(chain))
}

/// Who has put fences: the epoch that each begins and its writer, in their order. One that was put
/// under a name that had been used before is among them, and begins none (I8). Errors: there is no
/// volume, or the bucket's.
pub async fn writers(bucket: &Rc<dyn Bucket>) -> Result<Vec<(u64, String)>, String> {
    let shape = Shape::of(bucket).await?;
    let serials: Vec<u64> = list(bucket, 0).await.map_err(|e| e.to_string())?.into_iter().collect();
    let mut fences = Vec::new();
    for found in heads_of(bucket, &shape, &serials).await {
        match found {
            Ok((head, ..)) if head.kind == Kind::Fence => fences.push((head.serial, head.writer)),
            // What is gone meanwhile was no fence (I7).
            Ok(_) | Err(Trouble::Again) => (),
            Err(Trouble::Wrong(why)) => return Err(why),
        }
    }
    Ok(fences)
}

/// Had this name been used and deleted before the fence was put there? (I8)
pub(crate) async fn was_deleted(
    bucket: &Rc<dyn Bucket>,
    shape: &Shape,
    serial: u64,
) -> Result<bool, String> {
    let behind = list(bucket, serial).await.map_err(|e| e.to_string())?;
    if behind.range(serial + shape.window..).next().is_some() {
        return Ok(true);
    }
    let behind: Vec<u64> = behind.into_iter().collect();
    for found in heads_of(bucket, shape, &behind).await {
        match found {
            Ok((head, ..)) if head.kind == Kind::Checkpoint => return Ok(true),
            Ok(_) => (),
            // It was listed and is gone: a checkpoint beyond it is acknowledged (I7).
            Err(Trouble::Again) => return Ok(true),
            Err(Trouble::Wrong(why)) => return Err(why),
        }
    }
    Ok(false)
}
