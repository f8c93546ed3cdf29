//! The superblock: the shape of the store, written once when it is made, in two copies. What
//! changes is in the checkpoints.

use crate::codec::{Reader, Writer};
use crate::geometry::{BLOCK, BLOCK_BYTES, FIRST, Geometry, Place};
use crate::measure::Speed;
use env::{Block, Disk};
use std::rc::Rc;

/// The first bytes of a disk that holds a store.
pub const MAGIC: [u8; 8] = *b"CairnLFS";
/// Where these are the first bytes somebody copies a volume to this disk, and has not ended: what
/// the other copy says is not to be believed.
pub const UNFINISHED: &[u8; 24] = b"cairn: unfinished copy \n";
const VERSION: u32 = 1;

/// What the superblock says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// The store's name; it seeds every checksum.
    pub uuid: [u8; 16],
    /// The shape.
    pub geometry: Geometry,
    /// What the disk below was measured to take when the store was made.
    pub speed: Option<Speed>,
}

impl Superblock {
    /// The seed of every checksum of this store.
    pub(crate) fn seed(&self) -> u32 {
        crc32c::crc32c(&self.uuid)
    }

    /// magic 8 | checksum of what follows 4 | version 4 | uuid 16 | virtual blocks 8 |
    /// segment blocks 4 | segments 4 | heads 1 | zero 7 | access 8 | bandwidth 8
    pub(crate) fn encode(&self) -> Vec<u8> {
        let g = &self.geometry;
        let mut body = Writer::default();
        body.u32(VERSION).bytes(&self.uuid).u64(g.virtual_blocks);
        body.u32(g.segment_blocks).u32(g.segments).u8(g.heads).bytes(&[0; 7]);
        let speed = self.speed.unwrap_or_default();
        body.u64(speed.access).u64(speed.bandwidth);
        body.0.resize(BLOCK_BYTES - 12, 0);
        let mut all = Writer::default();
        all.bytes(&MAGIC).u32(crc32c::crc32c(&body.0)).bytes(&body.0);
        all.0
    }

    /// Reads a copy. Errors say what is wrong with it.
    pub fn decode(raw: &[u8]) -> Result<Superblock, String> {
        let mut r = Reader(raw.get(..BLOCK_BYTES).ok_or("the device is too small")?);
        if r.bytes(8) != Some(&MAGIC) {
            return Err("not a log-structured store".into());
        }
        let sum = r.u32();
        if sum != Some(crc32c::crc32c(r.0)) {
            return Err("the checksum is wrong".into());
        }
        let short = "it is cut short";
        let version = r.u32().ok_or(short)?;
        if version != VERSION {
            return Err(format!("version {version} is not known to this program"));
        }
        let uuid = r.bytes(16).and_then(|b| b.try_into().ok()).ok_or(short)?;
        let geometry = Geometry {
            virtual_blocks: r.u64().ok_or(short)?,
            segment_blocks: r.u32().ok_or(short)?,
            segments: r.u32().ok_or(short)?,
            heads: r.u8().ok_or(short)?,
        };
        r.bytes(7).ok_or(short)?;
        let speed = Speed { access: r.u64().ok_or(short)?, bandwidth: r.u64().ok_or(short)? };
        let speed = Some(speed).filter(Speed::is_possible);
        Superblock { uuid, geometry, speed }.checked()
    }

    fn checked(self) -> Result<Superblock, String> {
        let g = &self.geometry;
        let sizes = (8..=1 << 18).contains(&g.segment_blocks) && g.segments <= 1 << 20;
        let heads = (2..=8).contains(&g.heads) && g.segments > 2 * u32::from(g.heads);
        if !sizes || !heads || g.virtual_blocks == 0 || g.virtual_blocks > 1 << 40 {
            return Err(format!("sizes that cannot be: {g:?}"));
        }
        Ok(self)
    }

    /// The bytes a disk must have.
    pub(crate) fn disk_bytes_min(&self) -> u64 {
        let g = &self.geometry;
        (FIRST + u64::from(g.segments) * u64::from(g.segment_blocks) + 1) * BLOCK
    }
}

/// The superblock of a store on this disk, from the first copy that is whole. Errors say what is
/// wrong with the first.
pub async fn superblock(disk: &Rc<dyn Disk>) -> Result<Superblock, String> {
    let mut first = None;
    for place in [Place(0), Geometry::last_copy(disk.size_bytes())] {
        let read = disk.read(place.byte(), vec![Block::zeroed(BLOCK_BYTES)]).await;
        let found = match read {
            Ok(blocks) if blocks[0].bytes().starts_with(UNFINISHED) => {
                return Err("an unfinished copy".into());
            }
            Ok(blocks) => Superblock::decode(blocks[0].bytes()),
            Err(e) => Err(e.to_string()),
        };
        match found {
            Ok(sb) if sb.disk_bytes_min() > disk.size_bytes() => {
                first.get_or_insert_with(|| "the device is cut short".to_owned());
            }
            Ok(sb) => return Ok(sb),
            Err(e) => {
                first.get_or_insert(e);
            }
        }
    }
    Err(first.unwrap_or_default())
}
