//! Keeping a second machine off a volume that both can reach (feature `mmp`), as Linux and
//! e2fsprogs do it: who opens it writes a number of his own into a block, waits whether somebody
//! else does, and writes another one every few seconds. It knows the disk and that block, and
//! nothing of what else is written; the block's writes belong to no transaction.
//!
//! Invariants  P1 nothing is written to the volume before its block has held a number of ours for
//!             as long as others need to show theirs.
//!             P2 nothing is written after somebody else's number was seen in the block: it is read
//!             before each write of ours to it, and every write to the volume passes [`Fenced`].
//!             P3 who was not able to renew his number for longer than he had promised (the machine
//!             stood still, or its way to the disk was gone) looks into the block before the next
//!             write to the volume: others may have waited long enough meanwhile.

mod hold;
mod seam;

pub(crate) use hold::clear;
pub use hold::{Hold, hold, release};
pub(crate) use seam::{Fenced, check_fresh, claim, warn_reader};

use crate::VolumeError;
use env::sync::{Lock, Notify};
use env::{Block, Disk, DiskError, DiskErrorKind, Durability, Env, Nanos, unless};
use format::BlockNo;
use format::ext::Superblock;
use format::ext::csum::Sums;
use format::ext::mmp::{MMP_BYTES, Mmp, SEQ_CLEAN, SEQ_FSCK, SEQ_MAX};
use format::ext::mmp::{interval_of, update_secs, wait_secs};
use integrity::{Plant, invariant};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Bugs that can be planted.
pub const PLANTS: &[&str] = &[NO_WAIT, NOT_RENEWED, LATE, UNFENCED];
/// Who opens it does not wait whether somebody else does.
const NO_WAIT: &str = "mmp-no-wait";
/// The number is written once, and not again.
const NOT_RENEWED: &str = "mmp-not-renewed";
/// Who is late goes on without a look into the block.
const LATE: &str = "mmp-late-unseen";
/// What the block says stops nobody.
const UNFENCED: &str = "mmp-unfenced";

/// What is read past a cache, of a device that is as large.
const PAGE: u64 = 4096;

/// Who opens a volume, as others are told.
#[derive(Clone, Debug, Default)]
pub struct User {
    /// The machine's name.
    pub node: String,
    /// What it calls the device.
    pub device: String,
}

/// Why it cannot be had.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Somebody else has it: a sentence.
    InUse(String),
    /// The block is none, or the device failed: a sentence.
    Broken(String),
}

impl From<Refused> for VolumeError {
    fn from(r: Refused) -> VolumeError {
        match r {
            Refused::InUse(why) | Refused::Broken(why) => VolumeError(why),
        }
    }
}
impl From<DiskError> for Refused {
    fn from(e: DiskError) -> Refused {
        Refused::Broken(e.to_string())
    }
}

/// A volume that is ours.
pub struct Claim {
    env: Env,
    disk: Rc<dyn Disk>,
    at: BlockNo,
    block_bytes: usize,
    sums: Sums,
    /// How often the number is renewed.
    every: Nanos,
    /// How late that may be.
    promised: Nanos,
    /// The block as we wrote it last.
    ours: RefCell<Mmp>,
    /// What the block holds behind that.
    rest: RefCell<Vec<u8>>,
    /// When the number that is there was begun to be written, by both clocks.
    renewed: Cell<(Nanos, Nanos)>,
    /// Why it is not ours any more, if so.
    lost: RefCell<Option<String>>,
    /// One at a time reads and writes the block.
    turn: Lock,
    stopped: Cell<bool>,
    running: Cell<bool>,
    changed: Notify,
    plant: Plant,
}

impl Claim {
    /// Makes the volume ours: returns when it is, or why it is not. `checker`: others are told that
    /// it is being checked, and will not even wait.
    async fn make(
        (env, disk): (&Env, &Rc<dyn Disk>),
        sb: &Superblock,
        user: &User,
        (checker, plant): (bool, Plant),
    ) -> Result<Rc<Claim>, Refused> {
        let Some(at) = sb.mmp_block() else {
            let why = "the block of mmp that the superblock names cannot be there: e2fsck -f";
            return Err(Refused::Broken(why.into()));
        };
        let secs = update_secs(sb.mmp_interval());
        let promised = interval_of(secs);
        assert!(secs <= promised, "P3: renewed every {secs} s, and promised within {promised} s");
        let claim = Claim {
            env: env.clone(),
            disk: disk.clone(),
            at,
            block_bytes: sb.block_bytes(),
            sums: sb.sums(),
            every: Nanos::from_secs(u64::from(secs)),
            promised: Nanos::from_secs(u64::from(promised)),
            ours: RefCell::new(Mmp::new(sb.sums())),
            rest: RefCell::default(),
            renewed: Cell::default(),
            lost: RefCell::default(),
            turn: Lock::new(),
            stopped: Cell::new(false),
            running: Cell::new(false),
            changed: Notify::new(),
            plant,
        };
        let found = claim.read().await.map_err(broken)?;
        let wait = claim.wait_for_others(&found, sb.mmp_interval()).await?;
        let mut new = found.clone();
        new.set_user(&user.node, &user.device, interval_of(secs));
        claim.write(new, 1 + (env.random() % u64::from(SEQ_MAX)) as u32).await?;
        claim.sleep(wait).await;
        let now = claim.read().await.map_err(broken)?;
        if now != *claim.ours.borrow() {
            return Err(Refused::InUse(in_use(&now)));
        }
        let seq = if checker { SEQ_FSCK } else { claim.next_seq() };
        let held = claim.env.now().since(claim.renewed.get().0);
        invariant!(plant, held >= wait, "P1: used {held:?} after our number came, not {wait:?}");
        let new = claim.ours.borrow().clone();
        claim.write(new, seq).await?;
        Ok(Rc::new(claim))
    }

    /// Waits whether who has it is still there. Returns how long that takes.
    async fn wait_for_others(&self, found: &Mmp, field: u16) -> Result<Nanos, Refused> {
        if found.seq() == SEQ_FSCK {
            return Err(Refused::InUse(format!(
                "{} is checking it, or was cut off there: if nobody is, `tune2fs -f -E clear_mmp` \
                 says so",
                found.node()
            )));
        }
        if found.seq() == SEQ_CLEAN {
            // Two who open it at one moment: the other's next number has to be seen. With a wrong
            // checksum it may be half of his first one, and his next one comes as soon.
            return Ok(self.every.plus(Nanos::from_secs(1)));
        }
        let wait = Nanos::from_secs(wait_secs(field, found.interval()));
        tracing::warn!(
            "{} on {} has used it last and not closed it: waiting {} s whether it still does",
            found.device(),
            found.node(),
            2 * wait.secs()
        );
        self.sleep(wait).await;
        let again = self.read().await.map_err(broken)?;
        if again != *found { Err(Refused::InUse(in_use(&again))) } else { Ok(wait) }
    }

    async fn sleep(&self, time: Nanos) {
        if !self.plant.is(NO_WAIT) {
            self.env.sleep(time).await;
        }
    }

    fn next_seq(&self) -> u32 {
        let seq = self.ours.borrow().seq();
        if seq >= SEQ_MAX { 1 } else { seq + 1 }
    }

    /// Reads the block, as others may have written it. Errors: the device's, or what is wrong.
    async fn read(&self) -> Result<Mmp, DiskError> {
        let at = self.at.0 * self.block_bytes as u64;
        let start = at - at % PAGE;
        let whole = start + PAGE <= self.disk.size_bytes();
        let (start, len) = if whole { (start, PAGE as usize) } else { (at, self.block_bytes) };
        let read = self.disk.read_fresh(start, vec![Block::zeroed(len)]).await?;
        let bytes = &read[0].bytes()[(at - start) as usize..][..self.block_bytes];
        let mmp = Mmp::decode(bytes, self.at).map_err(|e| DiskError {
            kind: DiskErrorKind::Io,
            during: "read",
            at,
            detail: e.to_string(),
        })?;
        *self.rest.borrow_mut() = bytes[MMP_BYTES..].to_vec();
        Ok(mmp)
    }

    /// Writes the block with this number. It is ours from then on, whatever comes of the write.
    async fn write(&self, mut mmp: Mmp, seq: u32) -> Result<(), DiskError> {
        let began = (self.env.now(), self.env.wall());
        let (before, _) = self.renewed.get();
        assert!(before <= began.0, "P3: a number is renewed before the one before it was");
        let known = (1..=SEQ_MAX).contains(&seq) || seq == SEQ_CLEAN || seq == SEQ_FSCK;
        assert!(known, "P1: {seq} is no number of who uses a volume");
        mmp.set_seq(seq, self.env.wall().secs(), self.sums);
        let bytes = [&mmp.bytes()[..], &self.rest.borrow()].concat();
        let len = bytes.len();
        assert_eq!(len, self.block_bytes, "P2: the block is written that was read: {len} bytes");
        *self.ours.borrow_mut() = mmp;
        let at = self.at.0 * self.block_bytes as u64;
        self.disk.write(at, vec![Block::copy_of(&bytes)], Durability::Fua).await?;
        self.renewed.set(began);
        Ok(())
    }

    /// Looks whether the block is as we left it, and writes the next number. Errors: it is not, or
    /// the device's.
    async fn renew(&self, seq: impl FnOnce(&Claim) -> u32) -> Result<(), DiskError> {
        let _turn = self.turn.lock().await;
        self.check_ours()?;
        let found = self.read().await?;
        if found != *self.ours.borrow() && !self.plant.is(UNFENCED) {
            self.lose(format!("{}: nothing is written any more", in_use(&found)));
            return self.check_ours();
        }
        let ours = self.ours.borrow().clone();
        let written = self.write(ours, seq(self)).await;
        written.inspect_err(|e| self.lose(format!("its block of mmp cannot be written: {e}")))
    }

    fn lose(&self, why: String) {
        tracing::error!("{why}");
        *self.lost.borrow_mut() = Some(why);
        self.changed.wake_all();
    }

    fn check_ours(&self) -> Result<(), DiskError> {
        let Some(why) = self.lost.borrow().clone() else { return Ok(()) };
        let at = self.at.0 * self.block_bytes as u64;
        Err(DiskError { kind: DiskErrorKind::ReadOnly, during: "write", at, detail: why })
    }

    /// Before a write to the volume: is it still ours?
    async fn sure(&self) -> Result<(), DiskError> {
        self.check_ours()?;
        let (mono, wall) = self.renewed.get();
        let slept = self.env.wall().since(wall); // on one clock or the other, by what stood still
        let late = self.env.now().since(mono).max(slept) > self.promised;
        if late && !self.plant.is(LATE) {
            self.renew(Claim::next_seq).await?;
        }
        let looked = !late || self.renewed.get() != (mono, wall);
        invariant!(self.plant, looked, "P3: a write by who is late and has not looked");
        let ours = self.lost.borrow().is_none();
        invariant!(self.plant, ours, "P2: a write after another's number was seen");
        Ok(())
    }

    /// Renews the number until it is released or lost.
    fn keep(self: &Rc<Self>) {
        if self.plant.is(NOT_RENEWED) {
            return;
        }
        assert!(!self.running.replace(true), "P2: two tasks renew one number");
        let me = self.clone();
        self.env.spawn("mmp", async move {
            while !me.stopped.get() && me.lost.borrow().is_none() {
                let next = me.env.sleep_until(me.renewed.get().0.plus(me.every).max(soon(&me.env)));
                if unless(me.changed.wait(), next).await.is_none()
                    && let Err(e) = me.renew(Claim::next_seq).await
                {
                    tracing::warn!("mmp: {e}");
                }
            }
            assert!(me.running.replace(false), "P2: a task ends that nobody has begun");
            me.changed.wake_all();
        });
    }

    /// Returns when it is not ours any more; or never.
    pub(crate) async fn lost(&self) {
        while self.lost.borrow().is_none() {
            self.changed.wait().await;
        }
    }

    /// Says that nobody uses the volume. Errors: somebody does, or the device's.
    async fn release(&self) -> Result<(), DiskError> {
        self.stopped.set(true);
        self.changed.wake_all();
        while self.running.get() {
            self.changed.wait().await;
        }
        self.renew(|_| SEQ_CLEAN).await
    }
}

/// A device that fails is not asked again at once.
fn soon(env: &Env) -> Nanos {
    env.now().plus(Nanos::from_millis(100))
}

fn broken(e: DiskError) -> Refused {
    let why = if e.detail.is_empty() { e.to_string() } else { e.detail };
    Refused::Broken(format!("mmp, which keeps a second machine off: {why}: e2fsck -f mends it"))
}

fn in_use(by: &Mmp) -> String {
    format!("{} uses it, there called {} (mmp)", by.node(), by.device())
}
