//! Passes by several hands at once. A hand looks at some groups, or at some directories, in a check
//! of its own, which begins where the passes have come to. If it finds nothing at all, what it has
//! learned is taken over; otherwise these groups are looked at once more, in order, as if nobody
//! had. So findings and repair are the same however many hands there are. It knows nothing of
//! threads: the caller lends them.

use crate::Options;
use crate::inline::InlineDir;
use crate::io::{Hands, ReadBlocks};
use crate::run::Check;
use crate::tables::{At, Claims, Dir, Dirs, Frame, Infos};
use crate::values::Values;
use crate::view::{Laid, Layers, View};
use format::ext::Superblock;
use format::{BlockNo, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// Parts a hand gets before what was learned is taken over: what is learned of names takes memory.
const PARTS: usize = 16;
/// Slots of inodes that take as long to look at as a block of a directory.
const SLOTS_A_BLOCK: u32 = 32;

/// Who works together, and on what.
#[derive(Clone, Copy)]
pub(crate) struct Crew<'a> {
    pub(crate) image: &'a (dyn ReadBlocks + Sync),
    pub(crate) hands: &'a dyn Hands,
}

/// A name that was met: the directory, what it names, and where it is.
pub(crate) type Name = (Ino, Ino, At);

/// Where the passes have come to.
struct Base<'a> {
    crew: Crew<'a>,
    options: Options,
    sb: Superblock,
    frame: Frame,
    crashed: bool,
    resize_top: Option<u32>,
    over: Layers,
}

impl<'a> Base<'a> {
    /// A check that goes on from here.
    fn check<'c>(&'c self, images: Laid, infos: Arc<Infos>, quiet: &'c mut ()) -> Check<'c> {
        let laid = Layers { images, ..self.over.clone() };
        let view = View::over(self.crew.image, self.frame.geo.block_bytes, laid);
        let frame = self.frame.clone();
        let mut c = Check::blank(view, self.options, self.sb.clone(), frame, quiet);
        (c.crashed, c.resize_top, c.infos) = (self.crashed, self.resize_top, infos);
        c
    }

    /// Has a check, since it began here, found nothing and mended nothing?
    fn is_left_alone(&self, c: &Check<'_>) -> bool {
        let nothing_later = c.twice.is_empty() && c.to_rebuild.is_empty() && c.hidden.is_empty();
        c.report.is_sound()
            && nothing_later
            && c.view.mends_only(&self.over.mended)
            && c.sb == self.sb
    }

    /// Several hands' answers to one question about each of so many parts.
    fn ask<T: Send + Sync>(
        &self,
        parts: usize,
        look: &(dyn Fn(usize) -> Option<T> + Sync),
    ) -> Vec<Option<T>> {
        let answers: Vec<OnceLock<Option<T>>> = (0..parts).map(|_| OnceLock::new()).collect();
        self.crew.hands.each(parts, &|n| {
            answers[n].get_or_init(|| look(n));
        });
        answers.into_iter().map(|a| a.into_inner().flatten()).collect()
    }
}

/// What was learned of some groups' inodes.
pub(crate) struct Inodes {
    claims: Claims,
    infos: Infos,
    dirs: Dirs,
    inline: BTreeMap<u32, InlineDir>,
    images: Laid,
    xattr_users: BTreeMap<u64, Option<u32>>,
    values: Values,
    bad_blocks: BTreeSet<u64>,
    large_file: bool,
}

/// What was learned of some directories.
pub(crate) struct Entries {
    dirs: Vec<Dir>,
    names: Vec<Name>,
}

impl<'a> Check<'a> {
    fn base(&self, crew: Crew<'a>) -> Base<'a> {
        let over = self.view.laid();
        let (sb, frame) = (self.sb.clone(), self.frame.clone());
        let (crashed, resize_top) = (self.crashed, self.resize_top);
        Base { crew, options: self.options, sb, frame, crashed, resize_top, over }
    }

    /// How many parts are looked at before what was learned is taken over.
    pub(crate) fn parts_at_once(&self) -> usize {
        self.crew.map_or(1, |c| PARTS * c.hands.count().max(1))
    }

    fn slots_a_part(&self) -> u32 {
        self.crew.map_or(8192, |c| c.hands.slots().max(1))
    }

    /// Groups by the parts in which they are looked at.
    pub(crate) fn parts_of_groups(&self) -> Vec<Range<u32>> {
        let slots = |g| self.frame.used_slots(GroupNo(g));
        split(self.geo().groups, self.slots_a_part(), slots)
    }

    /// Directories by the parts in which they are looked at.
    pub(crate) fn parts_of_dirs(&self) -> Vec<Range<u32>> {
        let blocks = |i: u32| self.dirs.list[i as usize].count;
        split(self.dirs.list.len() as u32, self.slots_a_part() / SLOTS_A_BLOCK, blocks)
    }

    /// What several hands learn of these parts of the groups; None: something is found there, or
    /// cannot be read.
    pub(crate) fn learn_inodes(&self, parts: &[Range<u32>]) -> Vec<Option<Inodes>> {
        let Some(crew) = self.crew else { return Vec::new() };
        let base = &self.base(crew);
        base.ask(parts.len(), &|n| {
            let mut quiet = ();
            let infos = Arc::new(Infos::from_group(&base.frame.geo, parts[n].start));
            let mut c = base.check(Laid::default(), infos, &mut quiet);
            for g in parts[n].clone() {
                c.check_group(GroupNo(g)).ok()?;
                if !base.is_left_alone(&c) {
                    return None;
                }
            }
            Some(Inodes {
                claims: c.claims,
                infos: Arc::unwrap_or_clone(c.infos),
                dirs: c.dirs,
                inline: c.inline,
                images: c.view.laid().images,
                xattr_users: c.xattr_users,
                values: c.values,
                bad_blocks: c.bad_blocks,
                large_file: c.large_file,
            })
        })
    }

    /// Takes over what was learned of the groups behind those that were looked at. False: they hold
    /// what those hold, too.
    pub(crate) fn take_inodes(&mut self, mut new: Inodes) -> bool {
        let geo = self.geo();
        for b in new.xattr_users.keys().filter(|b| self.xattr_users.contains_key(b)) {
            // Its users may be anywhere, and it is claimed once; the values that it names are, too.
            if self.xattr_users[b].is_none() || self.values.in_block.contains_key(b) {
                return false;
            }
            new.claims.release(&geo, BlockNo(*b));
        }
        if self.claims.meet(&new.claims) {
            return false;
        }
        self.claims.join(&geo, &new.claims);
        for (b, users) in new.xattr_users {
            let all = self.xattr_users.entry(b).or_insert(Some(0));
            *all = all.zip(users).map(|(a, b)| a + b);
        }
        Arc::make_mut(&mut self.infos).append(new.infos);
        self.dirs.append(new.dirs);
        self.inline.append(&mut new.inline);
        self.view.show(new.images);
        self.values.append(new.values);
        self.bad_blocks.append(&mut new.bad_blocks);
        self.large_file |= new.large_file;
        true
    }

    /// What several hands learn of these parts of the directories.
    pub(crate) fn learn_entries(&self, parts: &[Range<u32>]) -> Vec<Option<Entries>> {
        let Some(crew) = self.crew else { return Vec::new() };
        let (base, infos, dirs) = (&self.base(crew), &self.infos, &self.dirs);
        base.ask(parts.len(), &|n| {
            let mut quiet = ();
            let mut c = base.check(base.over.images.clone(), infos.clone(), &mut quiet);
            c.dirs = dirs.part(parts[n].clone());
            c.names_met = Some(Vec::new());
            for i in 0..c.dirs.list.len() {
                c.check_dir(i).ok()?;
                if !base.is_left_alone(&c) || !c.view.shows_only(&base.over.images) {
                    return None;
                }
            }
            Some(Entries { dirs: c.dirs.list, names: c.names_met.unwrap_or_default() })
        })
    }

    /// Takes over what was learned of these directories.
    pub(crate) fn take_entries(&mut self, part: &Range<u32>, new: Entries) {
        let own = &mut self.dirs.list[part.start as usize..part.end as usize];
        let same = own.iter().map(|d| d.ino).eq(new.dirs.iter().map(|d| d.ino));
        assert!(same, "K7: what was learned is not of the directories {part:?}");
        for (d, seen) in own.iter_mut().zip(new.dirs) {
            (d.dotdot, d.empty) = (seen.dotdot, seen.empty);
        }
        let its = &self.dirs.list[part.start as usize..part.end as usize];
        let (first, last) = (its.first().map(|d| d.ino), its.last().map(|d| d.ino));
        let other = new.names.iter().find(|(d, ..)| Some(d.0) < first || Some(d.0) > last);
        assert!(other.is_none(), "K7: of directories {first:?} to {last:?} it tells {other:?}");
        new.names.into_iter().for_each(|name| self.count_name(name));
    }
}

/// So many things in parts, each of which weighs as much or is a single one.
fn split(count: u32, weight: u32, of: impl Fn(u32) -> u32) -> Vec<Range<u32>> {
    let (mut parts, mut from, mut sum): (Vec<Range<u32>>, _, _) = (Vec::new(), 0, 0u32);
    for n in 0..count {
        sum = sum.saturating_add(of(n));
        if sum >= weight || n + 1 == count {
            parts.push(from..n + 1);
            (from, sum) = (n + 1, 0);
        }
    }
    let all: u32 = parts.iter().map(|p| p.end - p.start).sum();
    assert_eq!(
        (all, from),
        (count, count),
        "K7: parts of so many things are not each of them once"
    );
    parts
}
