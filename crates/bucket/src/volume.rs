//! The object `volume`: the shape of a volume in a bucket, put once and last when it is made, so
//! that a volume is there whole or not at all. What changes is in the log.
//!
//! ```text
//!  0 "CairnBKT" | 8 sum of what follows | 12 version | 16 name (16) | 32 blocks | 40 window
//! ```

use env::{Bucket, BucketError, BucketErrorKind};
use lfs::codec::{Reader, Writer};
use std::rc::Rc;

const MAGIC: [u8; 8] = *b"CairnBKT";
const VERSION: u32 = 1;
/// Its name.
pub(crate) const NAME: &str = "volume";

/// The shape of a volume in a bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// The volume's name; it is in every sum.
    pub uuid: [u8; 16],
    /// Virtual blocks.
    pub blocks: u64,
    /// Serials that may be under way beyond the acknowledged one (I3).
    pub window: u64,
}

impl Shape {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.u32(VERSION).bytes(&self.uuid).u64(self.blocks).u64(self.window);
        let mut all = Writer::default();
        all.bytes(&MAGIC).u32(crc32c::crc32c(&body.0)).bytes(&body.0);
        all.0
    }

    pub(crate) fn decode(raw: &[u8]) -> Result<Shape, String> {
        let mut r = Reader(raw);
        if r.bytes(8) != Some(&MAGIC) {
            return Err("the object `volume` is none of Cairn's".into());
        }
        let sum = r.u32();
        if sum != Some(crc32c::crc32c(r.0)) {
            return Err("the object `volume` is damaged: its checksum is wrong".into());
        }
        let short = "the object `volume` is cut short";
        let version = r.u32().ok_or(short)?;
        if version != VERSION {
            return Err(format!("version {version} is not known to this program"));
        }
        let uuid = r.bytes(16).and_then(|b| b.try_into().ok()).ok_or(short)?;
        let shape = Shape { uuid, blocks: r.u64().ok_or(short)?, window: r.u64().ok_or(short)? };
        let possible = shape.blocks > 0 && shape.blocks <= 1 << 40;
        if !possible || !(2..=1 << 16).contains(&shape.window) {
            return Err(format!("sizes that cannot be: {shape:?}"));
        }
        Ok(shape)
    }

    /// The shape of the volume in this bucket. Errors: there is none, or the bucket's.
    pub(crate) async fn of(bucket: &Rc<dyn Bucket>) -> Result<Shape, String> {
        match bucket.get(NAME, None).await {
            Ok(raw) => Shape::decode(&raw),
            Err(e) if e.kind == BucketErrorKind::NotFound => {
                Err("there is no volume here: cairn mkfs URL --size SIZE makes one".into())
            }
            Err(e) => Err(e.to_string()),
        }
    }
}

/// Is there a volume in this bucket? Errors: the bucket's.
pub async fn is_volume(bucket: &Rc<dyn Bucket>) -> Result<bool, BucketError> {
    match bucket.get(NAME, None).await {
        Ok(_) => Ok(true),
        Err(e) if e.kind == BucketErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_decoded_and_a_changed_byte_is_seen() {
        let shape = Shape { uuid: [3; 16], blocks: 1 << 20, window: 32 };
        let raw = shape.encode();
        assert_eq!(Shape::decode(&raw), Ok(shape));
        for i in 0..raw.len() {
            let mut other = raw.clone();
            other[i] ^= 1;
            assert!(Shape::decode(&other).is_err(), "byte {i}");
        }
    }
}
