//! The order of the passes, and what they share. It knows which pass needs which, and nothing of
//! what any of them looks for.

use crate::finding::{Finding, Kind, Place};
use crate::inline::InlineDir;
use crate::io::{Hands, Progress, ReadBlocks};
use crate::layout;
use crate::locate::{Located, locate};
use crate::lost_found::LostFound;
use crate::places::Part;
use crate::plan::{Plan, Report};
use crate::tables::{At, Claims, Dirs, Frame, Info, Infos};
use crate::together::{Crew, Name};
use crate::values::Values;
use crate::view::View;
use crate::{CheckError, Options};
use format::FormatError;
use format::bytes::{le16, le32, set16, set32};
use format::ext::csum::Sums;
use format::ext::features::ro_compat::ORPHAN_PRESENT;
use format::ext::superblock::{STATE_ERROR, STATE_VALID, SUPERBLOCK_BYTES};
use format::ext::{Geometry, Superblock};
use format::{BlockNo, GroupNo, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where a superblock has its state.
const STATE_AT: usize = 0x3a;
/// Where it has its third word of features.
const RO_COMPAT_AT: usize = 0x64;
/// Rounds after which a repair that still finds something is given up.
const ROUNDS: usize = 6;
/// Rounds in which blocks with several owners are given to one. A map has four levels; where blocks
/// of pointers lead to one another across these, what a round gives to one file shows more of it.
const LEVELS: usize = 16;

/// Everything the passes share.
pub(crate) struct Check<'a> {
    pub(crate) view: View<'a>,
    pub(crate) options: Options,
    pub(crate) sb: Superblock,
    pub(crate) frame: Frame,
    pub(crate) report: Report,
    pub(crate) progress: &'a mut dyn Progress,
    /// Who looks at several groups at once, if anybody does.
    pub(crate) crew: Option<Crew<'a>>,
    /// Names that were met, where somebody else counts them.
    pub(crate) names_met: Option<Vec<Name>>,
    /// Room for a part of an inode table.
    pub(crate) run: Vec<u8>,
    pub(crate) claims: Claims,
    /// Blocks claimed more than once.
    pub(crate) twice: Claims,
    /// Blocks of which the repair makes copies, which are made first: nothing goes there before.
    pub(crate) copied: Claims,
    /// Inodes whose extent trees have to be made anew, once it is known what is free.
    pub(crate) to_rebuild: BTreeSet<u32>,
    /// Nodes that were made for them.
    pub(crate) nodes_made: usize,
    /// Nodes, sound or not, of trees that the repair makes anew. Until it is written as a whole
    /// inodes of the device lead to them: nothing else goes there.
    pub(crate) old_nodes: BTreeSet<u64>,
    /// Groups with names of inodes that their descriptors say were never used.
    pub(crate) hidden: BTreeSet<u32>,
    /// Groups that hold other groups' bitmaps or inode tables.
    pub(crate) hosts: Vec<bool>,
    /// Bitmaps that have no place yet.
    pub(crate) nowhere: Vec<(GroupNo, Part)>,
    /// The block that the superblock calls mmp's, and that is none; and why.
    pub(crate) mmp_in_doubt: Option<(BlockNo, String)>,
    /// The bitmap that was compared last was not as it should be.
    pub(crate) map_changed: bool,
    pub(crate) infos: Arc<Infos>,
    pub(crate) dirs: Dirs,
    /// Further names of directories that have one: the directory they are in, and where.
    pub(crate) extra_names: BTreeMap<u32, Vec<(Ino, At)>>,
    /// Directories that lie in their inodes.
    pub(crate) inline: BTreeMap<u32, InlineDir>,
    /// lost+found, once it was needed.
    pub(crate) lost_found: Option<LostFound>,
    /// The block of pointers of the inode of reserved descriptors.
    pub(crate) resize_top: Option<u32>,
    /// What the inode of bad blocks lists.
    pub(crate) bad_blocks: BTreeSet<u64>,
    /// Attribute blocks: how many inodes use each; None: it is damaged.
    pub(crate) xattr_users: BTreeMap<u64, Option<u32>>,
    /// Inodes that hold values of attributes, and how many attributes each has been found to be
    /// the value of.
    pub(crate) values: Values,
    /// Was the volume in use when it was last written, and nobody has found errors since?
    pub(crate) crashed: bool,
    /// Did the superblock say, when it was found, that the orphan file lists something?
    pub(crate) listed_orphans: bool,
    /// Are files without a name freed?
    pub(crate) frees_nameless: bool,
    /// Is the chain of orphans as it should be while the volume is in use?
    pub(crate) keeps_chain: bool,
    /// Removed files that were in use, by that chain.
    pub(crate) chain: BTreeSet<Ino>,
    /// A feature that the superblock has lost, and the inode that shows it.
    pub(crate) shown: Option<(Ino, u32)>,
    /// Is there a file of 2 GiB or more?
    pub(crate) large_file: bool,
    /// Where the next free block is looked for.
    pub(crate) alloc_next: u64,
}

/// What becomes of files without a name.
enum Nameless {
    /// They go to lost+found.
    Kept,
    /// They are freed.
    Freed,
    /// Those of the chain of orphans are in use; others go to lost+found.
    InUse,
}

/// Checks a volume. Errors: the device's, or a volume that cannot be checked at all (no superblock,
/// unknown features, a journal that must be replayed first). Damage is no error; it is in the
/// report.
pub fn check<'a>(
    image: &'a dyn ReadBlocks,
    options: &Options,
    progress: &'a mut dyn Progress,
) -> Result<Report, CheckError> {
    run(image, (None, Nameless::Kept), options, progress)
}

/// The same of a volume that is whole at every moment, in a store: removed files that were in use
/// are on the chain of orphans then, and opening it frees them. They are no findings.
pub fn check_whole<'a>(
    image: &'a dyn ReadBlocks,
    options: &Options,
    progress: &'a mut dyn Progress,
) -> Result<Report, CheckError> {
    run(image, (None, Nameless::InUse), options, progress)
}

/// The same of what a crash has left in a mode that makes names durable after what they name, and
/// takes them away before it, if `frees_nameless`: files without a name are freed, which else go to
/// lost+found, for they are removed ones, or none that was promised.
pub fn check_left<'a>(
    image: &'a dyn ReadBlocks,
    options: &Options,
    frees_nameless: bool,
    progress: &'a mut dyn Progress,
) -> Result<Report, CheckError> {
    let nameless = if frees_nameless { Nameless::Freed } else { Nameless::Kept };
    run(image, (None, nameless), options, progress)
}

/// The same as [`check`], with hands that look at several groups at once. What is found, and the
/// repair, are the same.
pub fn check_together<'a>(
    image: &'a (dyn ReadBlocks + Sync),
    options: &Options,
    progress: &'a mut dyn Progress,
    hands: &'a dyn Hands,
) -> Result<Report, CheckError> {
    run(image, (Some(Crew { image, hands }), Nameless::Kept), options, progress)
}

fn run<'a>(
    image: &'a dyn ReadBlocks,
    (crew, nameless): (Option<Crew<'a>>, Nameless),
    options: &Options,
    mut progress: &'a mut dyn Progress,
) -> Result<Report, CheckError> {
    let mut located = locate(image)?;
    let mut settled = layout::settled(image, &located.superblock)?;
    let unknown = located.superblock.features().not_checked_because();
    if !unknown.is_empty() {
        let advice = "check the volume with e2fsck".to_owned();
        return Err(FormatError::Incompatible { feature: unknown.join(", "), advice }.into());
    }
    let mut texts = Vec::new();
    let mut c = loop {
        if let Some((superblock, text)) = settled.take() {
            located.superblock = superblock;
            texts.push(text);
        }
        let mut c = Check::new(image, options, located.clone(), progress);
        c.crew = crew;
        (c.frees_nameless, c.keeps_chain) = match nameless {
            Nameless::Kept => (false, false),
            Nameless::Freed => (true, false),
            Nameless::InUse => (false, true),
        };
        texts.iter().for_each(|t| c.found(Kind::SuperField, Place::Volume, t));
        c.passes()?;
        let Some(shown) = c.shown else { break c };
        // All that was learned by the superblock without it is void. (There are two of them.)
        settled = Some(layout::with_features(located.superblock.clone(), shown));
        progress = c.progress;
    };
    let first = c.report.clone();
    let mut left = Vec::new();
    if options.verify && !first.is_sound() {
        for _ in 0..ROUNDS {
            c.forget();
            c.passes()?;
            if let Some((ino, _)) = c.shown {
                let what = "it shows a feature of the volume only once it is mended";
                return Err(FormatError::corrupt(what, format!("inode {ino}")).into());
            }
            left = std::mem::take(&mut c.report).findings;
            if left.is_empty() {
                break;
            }
        }
    }
    c.finish(first, left)
}

impl<'a> Check<'a> {
    pub(crate) fn new(
        image: &'a dyn ReadBlocks,
        options: &Options,
        located: Located,
        progress: &'a mut dyn Progress,
    ) -> Check<'a> {
        let geo = Geometry::of(&located.superblock);
        let view = View::new(image, geo.block_bytes);
        let frame = Frame { geo, descs: Vec::new().into(), own: Vec::new().into() };
        let mut c = Check::blank(view, *options, located.superblock, frame, progress);
        c.crashed = c.sb.state() & (STATE_VALID | STATE_ERROR) == 0;
        c.listed_orphans = c.sb.lists_orphans();
        c.report.marked_clean = c.sb.is_clean() && located.copy_of.is_none();
        if let Some(g) = located.copy_of {
            let text = format!("{}; the copy in group {g} takes its place", located.fault);
            c.found(Kind::SuperDamaged, Place::Volume, text);
        }
        c
    }

    /// One that has looked at nothing.
    pub(crate) fn blank(
        view: View<'a>,
        options: Options,
        sb: Superblock,
        frame: Frame,
        progress: &'a mut dyn Progress,
    ) -> Check<'a> {
        Check {
            view,
            options,
            sb,
            frame,
            report: Report::default(),
            progress,
            crew: None,
            names_met: None,
            run: Vec::new(),
            claims: Claims::default(),
            twice: Claims::default(),
            copied: Claims::default(),
            to_rebuild: BTreeSet::new(),
            nodes_made: 0,
            old_nodes: BTreeSet::new(),
            hidden: BTreeSet::new(),
            hosts: Vec::new(),
            nowhere: Vec::new(),
            mmp_in_doubt: None,
            map_changed: false,
            infos: Arc::default(),
            dirs: Dirs::default(),
            extra_names: BTreeMap::new(),
            inline: BTreeMap::new(),
            lost_found: None,
            resize_top: None,
            bad_blocks: BTreeSet::new(),
            xattr_users: BTreeMap::new(),
            values: Values::default(),
            crashed: false,
            listed_orphans: false,
            keeps_chain: false,
            chain: BTreeSet::new(),
            frees_nameless: false,
            shown: None,
            large_file: false,
            alloc_next: 0,
        }
    }

    /// Forgets what the passes have learned, but not what they have mended.
    fn forget(&mut self) {
        self.report = Report { marked_clean: self.report.marked_clean, ..Report::default() };
        self.reset_tables();
    }

    pub(crate) fn reset_tables(&mut self) {
        let geo = self.geo();
        self.claims = Claims::default();
        self.twice = Claims::default();
        self.to_rebuild.clear();
        self.infos = Arc::new(Infos::from_group(&geo, 0));
        self.dirs = Dirs::default();
        self.extra_names.clear();
        self.forget_images();
        self.lost_found = None;
        self.xattr_users.clear();
        self.values = Values::default();
        self.bad_blocks.clear();
        self.large_file = false;
        self.alloc_next = 0;
        if let Some(top) = self.resize_top {
            self.claims.claim(&geo, BlockNo(u64::from(top)));
        }
    }

    fn passes(&mut self) -> Result<(), CheckError> {
        self.resize_top = None;
        self.nowhere.clear();
        self.check_descs()?;
        self.reset_tables();
        self.check_journal()?;
        self.check_superblock()?;
        self.check_orphan_file()?;
        self.check_resize_inode()?;
        self.check_all_inodes()?;
        if self.shown.is_some() {
            return Ok(());
        }
        if !self.nowhere.is_empty() {
            self.place_bitmaps()?;
            self.reset_tables();
            self.check_all_inodes()?;
        }
        self.check_dirs()?;
        if !self.hidden.is_empty() {
            self.put_inline_dirs()?;
            self.show_hidden()?;
            self.reset_tables();
            self.check_all_inodes()?;
            self.check_dirs()?;
        }
        self.check_connections()?;
        self.check_links()?;
        self.check_bitmaps()?;
        self.put_inline_dirs()?;
        self.forget_images();
        self.seal_all()
    }

    /// Every inode, until no tree has to be made anew and each block has one owner.
    fn check_all_inodes(&mut self) -> Result<(), CheckError> {
        self.check_inodes()?;
        if self.shown.is_some() {
            return Ok(());
        }
        self.settle_mmp()?;
        if !self.to_rebuild.is_empty() {
            self.rebuild_trees()?;
            self.reset_tables();
            self.check_inodes()?;
        }
        // What hangs below a block is claimed only once that has an owner.
        for _ in 0..LEVELS {
            if self.twice.is_empty() {
                break;
            }
            self.resolve_double_claims()?;
            self.reset_tables();
            self.check_inodes()?;
        }
        if !self.twice.is_empty() {
            let what = format!("after {LEVELS} rounds several still have the same blocks");
            return Err(CheckError::Format(FormatError::corrupt(what, "maps of pointers")));
        }
        self.check_xattr_counts()
    }

    fn finish(mut self, first: Report, left: Vec<Finding>) -> Result<Report, CheckError> {
        if !first.is_sound() {
            // By this indexes were judged; e2fsck would judge them by something else.
            self.sb.settle_hash_sign();
        }
        self.write_superblock()?;
        let block_bytes = self.view.block_bytes();
        let from = crate::superblock::offset_in_block(block_bytes);
        let primary = self.super_block_no();
        let last = self.view.read(primary)?;
        let crashed = self.crashed;
        let has_sums = matches!(self.geo().sums, Sums::All(_));
        let orphans = self.orphan_file().is_some() && self.listed_orphans;
        let (mut rest, fresh, copies) = self.view.into_changes()?;
        let changed = rest.remove(&primary.0).is_some();
        let others = !rest.is_empty() || !copies.is_empty();
        let closing = (changed || others).then_some((primary.0, last));
        let opening = closing.clone().filter(|_| others).map(|(b, mut bytes)| {
            // Not clean, and the victim of a crash only if it was that before: the next check goes
            // on as this one.
            let at = from + STATE_AT;
            let state = le16(&bytes, at) & !(STATE_VALID | STATE_ERROR);
            set16(&mut bytes, at, if crashed { state } else { state | STATE_ERROR });
            if orphans {
                // What the file lists is not finished yet: whoever comes next does that.
                let features = le32(&bytes, from + RO_COMPAT_AT);
                set32(&mut bytes, from + RO_COMPAT_AT, features | ORPHAN_PRESENT);
            }
            if has_sums {
                Superblock::seal_bytes(&mut bytes[from..from + SUPERBLOCK_BYTES]);
            }
            (b, bytes)
        });
        let reads = |written: &Option<(u64, Vec<u8>)>, may_be_clean: bool| {
            written.as_ref().is_none_or(|(_, bytes)| {
                let s = Superblock::decode(&bytes[from..from + SUPERBLOCK_BYTES]);
                s.is_ok_and(|s| may_be_clean || !s.is_clean())
            })
        };
        assert!(reads(&opening, false), "K1: the superblock amid a repair is clean, or none");
        assert!(reads(&closing, true), "K1: the superblock behind a repair is none");
        let listed = first.findings.len() as u64;
        let counted: u64 = first.counts.values().sum();
        assert!(listed <= counted, "K10: {listed} findings are listed, and {counted} counted");
        let names = first.names_lost;
        assert!(names <= counted, "K10: {names} of {counted} findings take away what has a name");
        let idle = !first.is_sound() || !others;
        // Every place where something is mended would have to be known to be sure.
        debug_assert!(idle, "K11: nothing is found, and {} blocks are mended", rest.len());
        let (mut new, mut old) = (BTreeMap::new(), BTreeMap::new());
        for (b, bytes) in rest {
            if fresh.contains(&b) {
                new.insert(b, bytes)
            } else {
                old.insert(b, bytes)
            };
        }
        let plan = Plan { block_bytes, opening, copies, fresh: new, rest: old, closing };
        let blocks = self.frame.geo.blocks;
        let beyond = plan.images().map(|(b, _)| b).find(|b| *b >= blocks);
        assert!(beyond.is_none(), "K1: block {beyond:?} is written, of {blocks}");
        let end = |(to, from, len): &(u64, u64, u64)| to.max(from) + len;
        let beyond = plan.copies.iter().find(|c| end(c) > blocks);
        assert!(beyond.is_none(), "K2: {beyond:?} is copied, of {blocks} blocks");
        Ok(Report { plan, left, ..first })
    }

    pub(crate) fn geo(&self) -> Geometry {
        self.frame.geo
    }

    /// Notes a finding whose repair takes nothing away.
    pub(crate) fn found(&mut self, kind: Kind, place: Place, text: impl Into<String>) {
        self.report.add(Finding { kind, place, text: text.into(), loses_name: false });
    }

    /// Notes a finding whose repair takes away something that has a name.
    pub(crate) fn found_losing(&mut self, kind: Kind, place: Place, text: impl Into<String>) {
        self.report.add(Finding { kind, place, text: text.into(), loses_name: true });
    }

    pub(crate) fn info_mut(&mut self, ino: Ino) -> &mut Info {
        Arc::make_mut(&mut self.infos).get_mut(ino)
    }

    /// The raw inode, as the view has it.
    pub(crate) fn raw_inode(&self, ino: Ino) -> Result<Vec<u8>, CheckError> {
        let (block, at) = self.inode_place(ino);
        let bytes = self.view.read(block)?;
        Ok(bytes[at..at + self.geo().inode_bytes].to_vec())
    }

    /// Changes the raw inode in the view; its checksum follows.
    pub(crate) fn edit_inode<T>(
        &mut self,
        ino: Ino,
        f: impl FnOnce(&mut [u8]) -> T,
    ) -> Result<T, CheckError> {
        let (block, at) = self.inode_place(ino);
        let (len, sums) = (self.geo().inode_bytes, self.geo().sums);
        self.view.edit(block, |b| {
            let raw = &mut b[at..at + len];
            let out = f(raw);
            if raw.iter().any(|b| *b != 0) {
                sums.seal_inode(ino, raw);
                assert!(sums.check_inode(ino, raw).is_ok(), "K8: inode {ino} is sealed wrongly");
            }
            out
        })
    }

    pub(crate) fn inode_place(&self, ino: Ino) -> (BlockNo, usize) {
        let geo = self.geo();
        let (n, at) = geo.ino_place(ino);
        let table = self.frame.descs[geo.group_of_ino(ino).0 as usize].inode_table;
        (BlockNo(table + u64::from(n)), at)
    }
}
