//! What a volume in a log-structured store has to show after a crash beside what all have to: that
//! the older checkpoint stands in for the newer and is whole by itself, that what is written after
//! recovery is found when the power fails again, and that the store keeps nothing that the volume
//! does not use. It knows where a store's checkpoints lie, and nothing else of how it works.

use crate::acts::Act;
use crate::judge::{Expected, Verdict};
use crate::prefix::{How, in_recovery};
use crate::seen::both_same;
use crate::setting::{JUDGED_SECS, exported, exported_at};
use crate::subject::{Seen, Setting, SimDevice, Subject};
use check::{Class, Options, ReadBlocks, check};
use format::ext::{Geometry, GroupDesc};
use format::{BlockNo, GroupNo};
use integrity::Plant;
use sim::{Image, World};
use std::collections::BTreeMap;

/// Of so many states, the newest checkpoint of one is taken away too.
const OLDER_OF: u64 = 12;
/// Of so many, one is written on, and the power fails again.
const ON_OF: u64 = 8;

/// Judges a state that was found right so far.
pub(crate) fn judge(
    images: &[Image],
    setting: Setting,
    (all, digest): (&[Expected<'_>], u64),
    v: &mut Verdict,
) {
    if (digest >> 24).is_multiple_of(OLDER_OF)
        && let Some(older) = without_the_newest(&images[0])
    {
        let after = crate::prefix::judge(&[older], setting, all, How::default());
        let told = |w| format!("with the newest checkpoint gone: {w}");
        v.wrong.extend(after.wrong.into_iter().map(told));
        let alone = older_view(&images[0]);
        v.wrong.extend(alone.err().map(|why| format!("at the older checkpoint: {why}")));
        v.again += 1;
    }
    if (digest >> 16).is_multiple_of(ON_OF) {
        let on = written_on(&images[0], setting, in_recovery(all[0].plant));
        v.wrong.extend(on.err().map(|why| format!("written on: {why}")));
        v.again += 1;
    }
}

/// The number of a checkpoint; None: there is none that is whole.
fn generation(image: &Image, at: lfs::At) -> Option<u64> {
    let opened = sim::block_on(&mut World::new(image.clone()), move |env, disk| async move {
        let options = lfs::OpenOptions { read_only: true, at, ..lfs::OpenOptions::default() };
        lfs::Store::open(env, disk, options).await
    });
    opened.ok().map(|s| s.opened().generation)
}

/// The disk with its newest checkpoint unreadable; None: there is no older one beside it.
fn without_the_newest(image: &Image) -> Option<Image> {
    generation(image, lfs::At::Older)?;
    let newest = generation(image, lfs::At::Newer)?;
    let mut image = image.clone();
    image.write((2 + newest % 2) * lfs::BLOCK_BYTES as u64, &[0; 512]);
    Some(image)
}

/// Looks at what the older checkpoint leads to, without a log: a volume in use, whose counts come
/// with its end, and whose files may be about to go. Errors: it is not whole.
fn older_view(image: &Image) -> Result<(), String> {
    let (plain, _) = exported_at(image, lfs::At::Older, true)?;
    let options = Options { now_secs: JUDGED_SECS, verify: false, mark_clean: false };
    let report = check(&SimDevice(plain), &options, &mut ()).map_err(|e| e.to_string())?;
    let damage = report.findings.iter().find(|f| f.kind.class() != Class::Leftover);
    damage.map_or(Ok(()), |f| Err(f.to_string()))
}

/// A file that no scenario makes.
const LATER: &str = "/written-on";

/// Recovers, writes something durable, and looks at what is there when it is opened again. Errors:
/// something else than before and that; or the store is not what it says.
fn written_on(image: &Image, setting: Setting, plant: Plant) -> Result<(), String> {
    let open = |image: &Image| {
        Subject::open(vec![image.clone()], setting, false, (plant, 1))
            .map_err(|why| format!("opening: {why}"))
    };
    let mut s = open(image)?;
    let mut want = tree(&mut s)?;
    let acts = [Act::Create(LATER.into()), Act::Fsync(LATER.into())];
    for (n, act) in (0..).zip(&acts) {
        match s.act(n, act) {
            Ok(()) => (),
            Err(vfs::FsError::NoSpace) => return Ok(()),
            Err(e) => return Err(format!("{act:?}: {e}")),
        }
    }
    let disk = s.disks().swap_remove(0);
    let seen = tree(&mut s)?.remove(LATER).ok_or("what was made is not there")?;
    want.insert(LATER.to_owned(), seen);
    drop(s);
    let mut s = open(&disk)?;
    let found = tree(&mut s)?;
    let other = |p: &&String| !both_same(found.get(*p), want.get(*p));
    let first = found.keys().chain(want.keys()).find(other);
    if first.is_some() {
        return Err(format!("{first:?} is another when it is opened again"));
    }
    exported(&disk, true).map(|_| ())
}

fn tree(s: &mut Subject) -> Result<BTreeMap<String, Seen>, String> {
    s.tree(true).map_err(|why| format!("reading: {why}"))
}

/// A block that the store keeps and the volume does not use. `plain`: the volume. Errors: it cannot
/// be read.
pub(crate) fn kept_for_nothing(plain: &Image, kept: &[(u64, u64)]) -> Result<Option<u64>, String> {
    let device = SimDevice(plain.clone());
    let probe = volume::probe(&device).map_err(|e| e.to_string())?;
    let g = Geometry::of(&probe.superblock);
    let read = |block: u64| {
        let mut raw = vec![0; g.block_bytes];
        device.read_at(block * g.block_bytes as u64, &mut raw).map(|()| raw).map_err(|e| e.what)
    };
    let mut maps = Vec::new();
    for group in 0..g.groups {
        let (block, at) = g.desc_place(GroupNo(group));
        let desc = GroupDesc::decode(&read(block.0)?[at..at + g.desc_bytes]);
        maps.push(read(desc.block_bitmap)?);
    }
    let is_used = |b: u64| {
        let bit = g.bit_of(BlockNo(b));
        b < g.blocks && maps[g.group_of(BlockNo(b)).0 as usize][bit / 8] >> (bit % 8) & 1 == 1
    };
    Ok(kept.iter().flat_map(|(first, n)| *first..first + n).find(|b| !is_used(*b)))
}
