//! Taking a volume over: waiting for the writer to be silent, where that is asked for, and the
//! fence that ends its log (I5, I8). Waiting is courtesy; only the fence makes it safe.

use crate::all::all;
use crate::beat::{Writer, never_began};
use crate::block_cache::BlockCache;
use crate::chain::{Chain, Trouble, head_of, heads_of, list};
use crate::near::Near;
use crate::near_open::Standing;
use crate::object::{Epoch, Head, Kind, Serial, name};
use crate::possible;
use crate::store::OpenOptions;
use crate::tail::Tail;
use crate::volume::Shape;
use crate::writer::{Put, put_own};
use env::sync::Notify;
use env::{Bucket, Env, Local, Nanos};
use std::cell::Cell;
use std::collections::BTreeSet;
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
    (options, near, cache): (&OpenOptions, Option<&Near>, &BlockCache),
) -> Result<(Chain, Taken), String> {
    let (mut silent, mut followed): (_, Option<(Chain, Serial)>) = (None, None);
    for _ in 0..TRIES {
        let chain = match followed.take() {
            Some((chain, end)) => chain.resume(bucket, shape, (end, options.plant)).await,
            None => Chain::load(bucket, shape, options.plant).await,
        };
        let mut chain = match chain {
            Ok(chain) => chain,
            Err(Trouble::Again) => {
                tracing::info!("the log has changed below who follows it: it is read anew");
                continue;
            }
            Err(Trouble::Wrong(why) | Trouble::Unknown(why)) => return Err(why),
        };
        let is_ours = near.is_some_and(|n| n.has_put(chain.last));
        let new = chain.epoch > Epoch::FIRST && silent != Some(chain.epoch);
        // Who has its near log is the writer: the one before has let go of that.
        if new && !is_ours && options.take_over != TakeOver::Insist {
            silent = Some(chain.epoch);
            let tail = Tail { bucket, shape, cache, plant: options.plant };
            let end = wait_for_silence(env, (&mut chain, tail), options).await?;
            tracing::info!("epoch {} has ended or is silent: it is taken over", chain.epoch);
            followed = Some((chain, end));
            continue; // it may have written meanwhile
        }
        let mut taken = Taken::default();
        if let Some(near) = near {
            match near.judge(bucket, shape, &chain).await {
                Ok(standing) => taken.standing = Some(standing),
                Err(Trouble::Again) => continue,
                Err(Trouble::Wrong(why) | Trouble::Unknown(why)) => return Err(why),
            }
        }
        if !is_ours {
            taken.unseen = unseen(bucket, shape, chain.epoch).await;
        }
        if let Some(what) = taken.unseen.as_ref().filter(|_| options.take_over == TakeOver::Refuse)
        {
            return Err(format!(
                "{}: a start on its machine with --near-log {} uploads that; `cairn serve \
                 --take-over` leaves it behind",
                what.told, what.near
            ));
        }
        let by = (options, near.zip(taken.standing));
        if let Some(chain) = fence(env, bucket, (shape, by), chain).await? {
            taken.unseen.iter().for_each(|what| tracing::warn!("taken over: {}", what.left()));
            return Ok((chain, taken));
        }
    }
    Err("others take the volume over again and again".into())
}

/// What taking a volume over has shown.
#[derive(Default)]
pub(crate) struct Taken {
    /// What the chain says of this machine's near log.
    pub(crate) standing: Option<Standing>,
    /// What the writer before may have, and nobody else can see.
    pub(crate) unseen: Option<Unseen>,
}

/// What a writer may have in a near log that is not here, for a person.
pub(crate) struct Unseen {
    told: String,
    near: String,
}

impl Unseen {
    /// Where the volume was taken over all the same.
    pub(crate) fn left(&self) -> String {
        let (told, near) = (&self.told, &self.near);
        format!("{told}: if so, it is lost to the volume, and kept in {near} there")
    }
}

/// A writer with a near log says so behind its name.
const NEAR: &str = ", near log ";

/// The writer of a fence, for a person.
pub(crate) fn who(writer: &str) -> &str {
    if writer.is_empty() { "another writer" } else { writer }
}

/// What the writer of an epoch may have in a near log, for a person.
async fn unseen(bucket: &Rc<dyn Bucket>, shape: &Shape, epoch: Epoch) -> Option<Unseen> {
    let (head, ..) = head_of(bucket, shape, epoch.0).await.ok()?;
    let (writer, near) = head.writer.split_once(NEAR)?;
    if Writer::of(bucket, epoch).await.is_some_and(|w| w.closed) {
        return None;
    }
    let told = format!(
        "{writer} has not ended well, and what it has told to be durable in its last moments may \
         be in its near log alone, which cannot be seen from here"
    );
    Some(Unseen { told, near: near.to_owned() })
}

/// What is heard of a writer, told to who follows its log.
#[derive(Default)]
struct Heard {
    /// How often it was.
    times: Cell<u64>,
    /// So far its log goes, by its own word.
    end: Cell<Serial>,
    /// There is nothing more to be heard.
    is_over: Cell<bool>,
    news: Notify,
}

impl Heard {
    fn of(&self, writer: Option<&Writer>) {
        self.end.set(writer.map_or(Serial::NONE, |w| w.end).max(self.end.get()));
        self.times.set(self.times.get() + 1);
        self.news.wake_all();
    }
}

/// Returns when the writer of the chain's epoch was not heard of for so long; the log is followed
/// meanwhile. Returns as well how far it has said that its log goes. Errors: it was heard of, and
/// that is not to be waited for.
async fn wait_for_silence(
    env: &Env,
    (chain, tail): (&mut Chain, Tail<'_>),
    options: &OpenOptions,
) -> Result<Serial, String> {
    let (bucket, epoch) = (tail.bucket, chain.epoch);
    if let TakeOver::Wait = options.take_over {
        tracing::info!("standing by: epoch {} is {}'s", chain.epoch, chain.writer);
    }
    // Side by side: a writer is not heard of the later because it has written much.
    let heard = Heard::default();
    let listen: Local<'_, _> = Box::pin(async {
        let result = silence(env, (bucket, epoch), (options, &heard)).await;
        heard.is_over.set(true);
        heard.news.wake_all();
        result
    });
    let follow: Local<'_, _> = Box::pin(async {
        let mut followed = 0;
        while !heard.is_over.get() {
            if followed == heard.times.get() {
                heard.news.wait().await;
                continue;
            }
            followed = heard.times.get();
            tail.follow(chain, heard.end.get()).await;
        }
        Ok(())
    });
    all(vec![listen, follow]).await.into_iter().collect::<Result<(), String>>()?;
    Ok(heard.end.get())
}

/// Returns when the writer of an epoch was not heard of for so long.
async fn silence(
    env: &Env,
    (bucket, epoch): (&Rc<dyn Bucket>, Epoch),
    (options, told): (&OpenOptions, &Heard),
) -> Result<(), String> {
    let mut last = Writer::of(bucket, epoch).await;
    told.of(last.as_ref());
    // When it was heard of, and until when somebody has looked and heard nothing else: who cannot
    // look, or stood still, knows nothing of the time between.
    let (mut heard, mut looked) = (env.now(), env.now());
    loop {
        if last.as_ref().is_some_and(|w| w.closed) || looked.since(heard) >= options.after {
            return Ok(());
        }
        env.sleep(Nanos((options.after.0 / LOOKS).max(1))).await;
        let began = env.now();
        let now = match Writer::look(bucket, epoch).await {
            Ok(now) => now,
            Err(e) if options.take_over == TakeOver::Refuse => return Err(e.to_string()),
            Err(e) => {
                tracing::warn!("the writer's heartbeat cannot be read: {e}");
                continue;
            }
        };
        looked = began;
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
        told.of(now.as_ref());
        (heard, last) = (env.now(), now);
    }
}

/// How somebody opens the log, and his near log with what the chain says of it.
type By<'a> = (&'a OpenOptions, Option<(&'a Near, Standing)>);

/// Puts the fence at the first absent serial. None: somebody else was there first, or it had been
/// there and was deleted; then everything is looked at again.
async fn fence(
    env: &Env,
    bucket: &Rc<dyn Bucket>,
    (shape, (options, near)): (&Shape, By<'_>),
    mut chain: Chain,
) -> Result<Option<Chain>, String> {
    let with = near.map_or(String::new(), |(near, _)| format!("{NEAR}{}", near.name));
    let serial = chain.next;
    if serial >= possible::SERIALS_TO_OPEN {
        let what = format!("{serial} would be the next of its objects");
        return Err(format!(
            "{what}, and no writer comes so far: somebody else wrote into the bucket"
        ));
    }
    let head = Head {
        kind: Kind::Fence,
        serial,
        epoch: Epoch(serial),
        previous: chain.last,
        checkpoint: chain.checkpoint,
        nonce: env.random(),
        written: Vec::new(),
        freed: Vec::new(),
        writer: format!("{}{with}", options.writer),
        body_sum: 0,
        said: None,
        notes: Vec::new(),
    };
    let can_be = possible::head(&head, shape);
    assert_eq!(can_be, Ok(()), "I4: fence {serial} would be taken for damaged");
    assert!(serial > chain.epoch.0, "I5: fence {serial} lies before that of epoch {}", chain.epoch);
    let (raw, sum) = head.encode(&shape.uuid);
    let bytes = raw.len();
    if let Some((near, standing)) = near {
        near.mark_fence(&head, sum, standing.upto).await?;
    }
    let began = env.now();
    let put = put_own(env, bucket, &name(serial), (raw.into(), bytes), options.plant).await;
    match put.map_err(|e| e.to_string())? {
        Put::Ours => (),
        Put::Theirs(_) => return Ok(None),
    }
    let put_took = env.now().since(began);
    if options.plant != Some("fence-not-looked-at-again") {
        let looked = was_deleted(bucket, shape, serial).await;
        // Nobody will beat in this epoch. What is in the near log alone would be missed by who is
        // told that it has ended.
        if looked.is_err() && near.is_none_or(|(near, s)| !near.has_behind(s.upto)) {
            never_began(bucket, Epoch(serial), &options.writer).await;
        }
        if looked? {
            tracing::info!("the fence lies in a name that had been deleted: the log is read anew");
            return Ok(None);
        }
    }
    let ms = |t: Nanos| t.0 / 1_000_000;
    let (put_ms, all_ms) = (ms(put_took), ms(env.now().since(began)));
    tracing::info!(
        "epoch {serial} begins: its fence took {put_ms} ms, and {all_ms} with a look behind it"
    );
    if let Some((near, _)) = near {
        // Not as of now: this machine may have stood still since it looked.
        near.confirm(began);
    }
    let new = chain.table.fences.insert(serial);
    assert!(new && chain.last.0 < serial, "I5: fence {serial} is put behind {}", chain.last.0);
    (chain.last, chain.epoch) = ((serial, sum), Epoch(serial));
    chain.next = serial.plus(shape.window);
    Ok(Some(chain))
}

/// Who has put fences: the epoch that each begins and its writer, in their order. One that was put
/// under a name that had been used before is among them, and begins none (I8). Errors: there is no
/// volume, or the bucket's.
pub async fn writers(bucket: &Rc<dyn Bucket>) -> Result<Vec<(Epoch, String)>, String> {
    let shape = Shape::of(bucket).await?;
    let there = list(bucket, Serial::NONE).await.map_err(|e| e.to_string())?;
    let serials: Vec<Serial> = there.into_iter().collect();
    let mut fences = Vec::new();
    for found in heads_of(bucket, &shape, &serials).await {
        match found {
            Ok((head, ..)) if head.kind == Kind::Fence => fences.push((head.epoch, head.writer)),
            // What is gone meanwhile was no fence (I7).
            Ok(_) | Err(Trouble::Again) => (),
            Err(Trouble::Wrong(why) | Trouble::Unknown(why)) => return Err(why),
        }
    }
    Ok(fences)
}

/// Had this name been used and deleted before the fence was put there? (I8)
pub(crate) async fn was_deleted(
    bucket: &Rc<dyn Bucket>,
    shape: &Shape,
    serial: Serial,
) -> Result<bool, String> {
    let text = |e: env::BucketError| e.to_string();
    let mut behind = list(bucket, serial).await.map_err(text)?;
    loop {
        // Its own writer has no more than a window under way behind it (I3).
        if behind.range(serial.plus(2 * shape.window)..).next().is_some() {
            return Ok(true);
        }
        match what_lies_behind(bucket, (shape, serial), &behind).await? {
            Behind::Deletion => return Ok(true),
            Behind::Nothing => return Ok(false),
            // A checkpoint that was listed may have been deleted since, and that fence lie in its
            // place. Then a newer one is there: if no name has come, none was missed.
            Behind::Fence => {
                let now = list(bucket, serial).await.map_err(text)?;
                if now == behind {
                    return Ok(false);
                }
                behind = now;
            }
        }
    }
}

/// What the objects behind a fence show.
enum Behind {
    /// They are its own writer's, or void.
    Nothing,
    /// The same but for another fence: nobody puts anything else where something was deleted.
    Fence,
    /// The fence's name had been deleted.
    Deletion,
}

/// A deletion: one of these is a checkpoint, or gone, or where only the fence's own writer puts
/// anything, and not its. One of that writer may be there while what it put first is not: it was
/// killed then.
async fn what_lies_behind(
    bucket: &Rc<dyn Bucket>,
    (shape, fence): (&Shape, Serial),
    serials: &BTreeSet<Serial>,
) -> Result<Behind, String> {
    let behind: Vec<Serial> = serials.iter().copied().collect();
    let mut shown = Behind::Nothing;
    for found in heads_of(bucket, shape, &behind).await {
        match found {
            Ok((head, ..)) => {
                let is_foreign =
                    head.serial >= fence.plus(shape.window) && head.epoch != Epoch(fence);
                if head.kind == Kind::Checkpoint || is_foreign {
                    return Ok(Behind::Deletion);
                }
                if head.kind == Kind::Fence {
                    shown = Behind::Fence;
                }
            }
            // It was listed and is gone: a checkpoint beyond it is acknowledged (I7).
            Err(Trouble::Again) => return Ok(Behind::Deletion),
            Err(Trouble::Wrong(why) | Trouble::Unknown(why)) => return Err(why),
        }
    }
    Ok(shown)
}
