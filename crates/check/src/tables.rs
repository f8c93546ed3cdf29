//! What the passes remember: which blocks files claim, what each inode is, which directories there
//! are. All of it is compact and per group, made when the group's first file is met, so that an
//! empty group of a large volume costs nothing.

use format::ext::geometry::INODE_UNINIT;
use format::ext::{Geometry, GroupDesc};
use format::{BlockNo, GroupNo, Ino};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The volume's own metadata: what no file may claim.
#[derive(Clone)]
pub(crate) struct Frame {
    pub(crate) geo: Geometry,
    pub(crate) descs: Arc<[GroupDesc]>,
    /// Superblocks, descriptors, bitmaps, inode tables and the block of mmp, as runs from a block
    /// to the one after their last, in order.
    pub(crate) own: Arc<[(u64, u64)]>,
}

impl Frame {
    pub(crate) fn new(geo: Geometry, descs: Vec<GroupDesc>) -> Frame {
        let mut all = Vec::with_capacity(2 * descs.len());
        all.extend(geo.mmp.map(|b| (b.0, b.0 + 1)));
        for (g, d) in (0..).map(GroupNo).zip(&descs) {
            let (start, overhead) = (geo.group_start(g).0, u64::from(geo.overhead(g)));
            all.push((start, start + overhead.min(u64::from(geo.group_blocks(g)))));
            all.push((d.block_bitmap, d.block_bitmap + 1));
            all.push((d.inode_bitmap, d.inode_bitmap + 1));
            all.push((d.inode_table, d.inode_table + u64::from(geo.inode_table_blocks())));
        }
        all.sort_unstable();
        let mut own: Vec<(u64, u64)> = Vec::new();
        for (from, to) in all.into_iter().filter(|(from, to)| from < to) {
            match own.last_mut() {
                Some(last) if last.1 >= from => last.1 = last.1.max(to),
                _ => own.push((from, to)),
            }
        }
        let apart = own.windows(2).all(|w| w[0].1 < w[1].0);
        assert!(apart, "K3: the volume's own blocks are not in runs that are apart");
        Frame { geo, descs: descs.into(), own: own.into() }
    }
    /// How many slots of a group's inode table have ever been used, as far as it says.
    pub(crate) fn used_slots(&self, g: GroupNo) -> u32 {
        let (d, all) = (&self.descs[g.0 as usize], self.geo.inodes_per_group);
        match self.geo.sums.lazy() {
            true if d.has(INODE_UNINIT) => 0,
            true => all - d.unused_inodes.min(all),
            false => all,
        }
    }
    /// The first run of the volume's own blocks that ends behind this block.
    pub(crate) fn own_after(&self, b: BlockNo) -> Option<(u64, u64)> {
        self.own.get(self.own.partition_point(|r| r.1 <= b.0)).copied()
    }
    /// The volume's own blocks in a group, as bits of its bitmap.
    pub(crate) fn own_bits(&self, g: GroupNo) -> impl Iterator<Item = Range<usize>> + '_ {
        let start = self.geo.group_start(g).0;
        let end = start + u64::from(self.geo.group_blocks(g));
        let first = self.own.partition_point(|r| r.1 <= start);
        let here = self.own[first..].iter().take_while(move |r| r.0 < end);
        here.map(move |r| (r.0.max(start) - start) as usize..(r.1.min(end) - start) as usize)
    }
    /// Is it a block of superblocks, descriptors, bitmaps or inode tables?
    pub(crate) fn is_meta(&self, b: BlockNo) -> bool {
        self.own_after(b).is_some_and(|r| r.0 <= b.0)
    }
    /// May a file's block be there?
    pub(crate) fn may_hold(&self, b: BlockNo) -> bool {
        self.geo.has_block(b) && !self.is_meta(b)
    }
    /// May all of these be a file's blocks?
    pub(crate) fn may_hold_all(&self, first: BlockNo, len: u32) -> bool {
        let end = first.0 + u64::from(len);
        let own = self.own_after(first).is_some_and(|own| own.0 < end);
        self.geo.has_block(first) && end <= self.geo.blocks && !own
    }
    /// May a file's pointer lead there?
    pub(crate) fn is_legal(&self, b: u32) -> bool {
        self.may_hold(BlockNo(u64::from(b)))
    }
}

/// One bit a block: claimed by a file.
#[derive(Default)]
pub(crate) struct Claims {
    /// Groups in which something is claimed, and where their bits are.
    groups: BTreeMap<u32, usize>,
    maps: Vec<Box<[u8]>>,
    /// The group that was claimed in last: the next block mostly is one of its.
    last: Option<(u32, usize)>,
}

impl Claims {
    fn map_mut(&mut self, geo: &Geometry, g: u32) -> &mut [u8] {
        let place = match self.last {
            Some((last, place)) if last == g => place,
            _ => *self.groups.entry(g).or_insert_with(|| {
                self.maps.push(vec![0; geo.blocks_per_group as usize / 8].into());
                self.maps.len() - 1
            }),
        };
        self.last = Some((g, place));
        &mut self.maps[place]
    }
    /// Claims a block; true if it was claimed before.
    pub(crate) fn claim(&mut self, geo: &Geometry, b: BlockNo) -> bool {
        assert!(geo.has_block(b), "K3: block {b} is claimed, of {}", geo.blocks);
        let map = self.map_mut(geo, geo.group_of(b).0);
        let bit = geo.bit_of(b);
        let before = map[bit / 8] >> (bit % 8) & 1 == 1;
        map[bit / 8] |= 1 << (bit % 8);
        before
    }
    /// Is nothing claimed?
    pub(crate) fn is_empty(&self) -> bool {
        self.maps.iter().all(|map| map.iter().all(|b| *b == 0))
    }
    pub(crate) fn release(&mut self, geo: &Geometry, b: BlockNo) {
        let bit = geo.bit_of(b);
        self.map_mut(geo, geo.group_of(b).0)[bit / 8] &= !(1 << (bit % 8));
    }
    pub(crate) fn is_claimed(&self, geo: &Geometry, b: BlockNo) -> bool {
        let bit = geo.bit_of(b);
        self.group(geo.group_of(b)).is_some_and(|map| map[bit / 8] >> (bit % 8) & 1 == 1)
    }
    /// A group's bits; None: nothing is claimed in it.
    pub(crate) fn group(&self, g: GroupNo) -> Option<&[u8]> {
        self.groups.get(&g.0).map(|place| &*self.maps[*place])
    }
    /// Is there a block that both claim?
    pub(crate) fn meet(&self, others: &Claims) -> bool {
        others.groups.iter().any(|(g, place)| {
            let own = self.group(GroupNo(*g)).unwrap_or(&[]);
            own.iter().zip(&others.maps[*place]).any(|(a, b)| a & b != 0)
        })
    }
    /// Claims what the others do.
    pub(crate) fn join(&mut self, geo: &Geometry, others: &Claims) {
        for (g, place) in &others.groups {
            let (own, len) = (self.map_mut(geo, *g), others.maps[*place].len());
            assert_eq!(own.len(), len, "K7: group {g} has {len} bytes of bits elsewhere");
            own.iter_mut().zip(&others.maps[*place]).for_each(|(a, b)| *a |= b);
        }
    }
}

/// What is known of an inode.
#[derive(Clone, Copy, Default)]
pub(crate) struct Info {
    /// Its kind as entries have it; 0: free.
    pub(crate) kind: u8,
    /// Neither contents nor attributes of its own: nothing is lost if it goes.
    pub(crate) empty: bool,
    /// Links as it says.
    pub(crate) links: u16,
    /// Names found, and for directories the entries that count as links.
    pub(crate) names: u32,
}

/// Every inode's `Info`, from a group on.
#[derive(Clone, Default)]
pub(crate) struct Infos {
    first: u32,
    groups: Vec<Option<Box<[Info]>>>,
    per_group: u32,
}

impl Infos {
    /// Of no inode yet; none before this group's will follow.
    pub(crate) fn from_group(geo: &Geometry, first: u32) -> Infos {
        Infos { first, groups: Vec::new(), per_group: geo.inodes_per_group }
    }
    fn place(&self, ino: Ino) -> (usize, usize) {
        let n = ino.0.wrapping_sub(1);
        let (g, first) = (n / self.per_group, self.first);
        assert!(ino.0 > 0 && g >= first, "K7: inode {ino} is asked of who knows group {first} on");
        ((g - first) as usize, (n % self.per_group) as usize)
    }
    /// Of an inode of the volume.
    pub(crate) fn get(&self, ino: Ino) -> Info {
        let (g, i) = self.place(ino);
        self.groups.get(g).and_then(Option::as_ref).map_or(Info::default(), |t| t[i])
    }
    pub(crate) fn get_mut(&mut self, ino: Ino) -> &mut Info {
        let (g, i) = self.place(ino);
        let n = self.per_group as usize;
        if self.groups.len() <= g {
            self.groups.resize(g + 1, None);
        }
        &mut self.groups[g].get_or_insert_with(|| vec![Info::default(); n].into())[i]
    }
    /// A group's inodes; None: all are free.
    pub(crate) fn group(&self, g: GroupNo) -> Option<&[Info]> {
        self.groups.get((g.0 - self.first) as usize)?.as_deref()
    }
    /// All inodes in use, ascending.
    pub(crate) fn used(&self) -> impl Iterator<Item = (Ino, Info)> + '_ {
        self.groups.iter().zip(self.first..).flat_map(move |(table, g)| {
            let first = g * self.per_group + 1;
            let infos = table.as_deref().unwrap_or(&[]).iter().enumerate();
            infos.filter(|(_, i)| i.kind != 0).map(move |(n, i)| (Ino(first + n as u32), *i))
        })
    }
    /// Takes over what others know of the groups behind its last.
    pub(crate) fn append(&mut self, others: Infos) {
        let (own, more) = ((self.first, self.per_group), (others.first, others.per_group));
        assert!(own.0 <= more.0 && own.1 == more.1, "K7: {own:?} groups and inodes, and {more:?}");
        let at = (others.first - self.first) as usize;
        let behind = self.groups.len() <= at || others.groups.is_empty();
        assert!(behind, "K7: what was learned is of groups before the last that is known");
        self.groups.resize(self.groups.len().max(at), None);
        self.groups.extend(others.groups);
    }
}

/// Where an entry lies.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct At {
    pub(crate) block: u64,
    pub(crate) byte: u16,
}

/// A directory.
#[derive(Clone, Copy, Default)]
pub(crate) struct Dir {
    pub(crate) ino: u32,
    /// The directory that names it; 0: none.
    pub(crate) parent: u32,
    /// Where that name is.
    pub(crate) name: At,
    /// What its ".." says; 0: nothing.
    pub(crate) dotdot: u32,
    /// No entries but the dots?
    pub(crate) empty: bool,
    /// Has it a hash index?
    pub(crate) indexed: bool,
    /// Its blocks: `first..first + count` of the list of directory blocks.
    pub(crate) first: usize,
    pub(crate) count: u32,
}

/// All directories, ascending, and their blocks (0: a hole).
#[derive(Default)]
pub(crate) struct Dirs {
    pub(crate) list: Vec<Dir>,
    pub(crate) blocks: Vec<u64>,
}

impl Dirs {
    /// Some of them.
    pub(crate) fn part(&self, range: Range<u32>) -> Dirs {
        let mut part = Dirs::default();
        for d in &self.list[range.start as usize..range.end as usize] {
            let end = d.first + d.count as usize;
            let has = self.blocks.len();
            assert!(end <= has, "K4: directory {} has blocks up to {end}, of {has}", d.ino);
            let blocks = &self.blocks[d.first..d.first + d.count as usize];
            part.list.push(Dir { first: part.blocks.len(), ..*d });
            part.blocks.extend(blocks);
        }
        part
    }
    /// More of them, behind the last.
    pub(crate) fn append(&mut self, more: Dirs) {
        let ends = (self.list.last().map(|d| d.ino), more.list.first().map(|d| d.ino));
        assert!(ends.1.is_none() || ends.0 < ends.1, "K4: directories of inodes {ends:?}");
        let told: usize = more.list.iter().map(|d| d.count as usize).sum();
        let has = more.blocks.len();
        assert_eq!(told, has, "K4: directories have so many blocks, and {has} are listed");
        let first = self.blocks.len();
        self.list.extend(more.list.into_iter().map(|d| Dir { first: first + d.first, ..d }));
        self.blocks.extend(more.blocks);
    }
    /// The index of a directory in the list.
    pub(crate) fn find(&self, ino: Ino) -> Option<usize> {
        self.list.binary_search_by_key(&ino.0, |d| d.ino).ok()
    }
    pub(crate) fn get_mut(&mut self, ino: Ino) -> Option<&mut Dir> {
        let i = self.find(ino)?;
        Some(&mut self.list[i])
    }
}
