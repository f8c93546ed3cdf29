//! The object `volume`: the shape of a volume in a bucket, put once and last when it is made, so
//! that a volume is there whole or not at all. What changes is in the log.
//!
//! ```text
//!  0 "CairnBKT" | 8 sum of what follows | 12 version | 16 name (16) | 32 blocks | 40 window
//!  version 2, where objects do not lie as they were put, or of a clone:
//!  48 1 if compressed, + 2 if encrypted, + 4 if a clone (4)
//!  52 the key's word for bytes 12 to 51 (16), or zeros
//! ```

use crate::at_rest::{AtRest, Key, Sealer, TAG_BYTES};
use crate::sealed::Sealed;
use env::{Bucket, BucketError, BucketErrorKind};
use lfs::codec::{Reader, Writer};
use std::rc::Rc;

const MAGIC: [u8; 8] = *b"CairnBKT";
/// Of volumes whose objects lie as they were put, and of others.
const VERSIONS: [u32; 2] = [1, 2];
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
    /// Objects are made shorter by zstd.
    pub compressed: bool,
    /// It began as a snapshot of another volume, and shares blocks with that (clone.rs).
    pub clone: bool,
    /// They are encrypted, and this is what the key says of the shape.
    pub check: Option<[u8; TAG_BYTES]>,
}

impl Shape {
    fn flags(&self) -> u32 {
        let clone = 4 * u32::from(self.clone);
        u32::from(self.compressed) + 2 * u32::from(self.check.is_some()) + clone
    }

    /// What the object says, but for its sum and the key's word.
    fn body(&self) -> Writer {
        let flags = self.flags();
        let mut body = Writer::default();
        body.u32(VERSIONS[usize::from(flags > 0)]);
        body.bytes(&self.uuid).u64(self.blocks).u64(self.window);
        if flags > 0 {
            body.u32(flags);
        }
        body
    }

    /// The same shape, of a volume whose objects lie at rest like this.
    pub(crate) fn lying(self, how: &AtRest) -> Shape {
        let mut shape = Shape { compressed: how.compressed, check: None, ..self };
        if let Some(key) = &how.key {
            shape.check = Some([0; TAG_BYTES]); // that it is encrypted is among what it says
            shape.check = Some(key.check(&shape.body().0));
        }
        shape
    }

    /// How the objects lie at rest. Errors: the key is not the right one, or there should be one.
    pub(crate) fn at_rest(&self, key: Option<&Key>) -> Result<AtRest, String> {
        let compressed = self.compressed;
        match (self.check, key) {
            (None, None) => Ok(AtRest { compressed, key: None }),
            (Some(check), Some(key)) if key.check(&self.body().0) == check => {
                Ok(AtRest { compressed, key: Some(key.clone()) })
            }
            (Some(_), Some(_)) => Err("the object `volume` was not made with this key".into()),
            (Some(_), None) => {
                Err("it is encrypted: --key-file or --key-command gives its key".into())
            }
            (None, Some(_)) => Err("a key is given, and this volume is not encrypted".into()),
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut body = self.body();
        if self.flags() > 0 {
            body.bytes(&self.check.unwrap_or_default());
        }
        let mut all = Writer::default();
        all.bytes(&MAGIC).u32(crc32c::crc32c(&body.0)).bytes(&body.0);
        let again = Shape::decode(&all.0);
        assert_eq!(again.as_ref(), Ok(self), "I13: a volume of another shape than is read again");
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
        if !VERSIONS.contains(&version) {
            return Err(format!("version {version} is not known to this program"));
        }
        let uuid = r.bytes(16).and_then(|b| b.try_into().ok()).ok_or(short)?;
        let (blocks, window) = (r.u64().ok_or(short)?, r.u64().ok_or(short)?);
        let (mut compressed, mut clone, mut check) = (false, false, None);
        if version > VERSIONS[0] {
            let flags = r.u32().ok_or(short)?;
            let word = r.bytes(TAG_BYTES).and_then(|b| b.try_into().ok()).ok_or(short)?;
            (compressed, clone) = (flags & 1 > 0, flags & 4 > 0);
            check = (flags & 2 > 0).then_some(word);
            if !(1..8).contains(&flags) {
                return Err("objects lie in a way that is not known to this program".into());
            }
        }
        let shape = Shape { uuid, blocks, window, compressed, clone, check };
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

/// The bucket as who reads and writes the volume sees it.
pub(crate) fn opened(below: Rc<dyn Bucket>, how: &AtRest) -> Rc<dyn Bucket> {
    if how.is_plain() { below } else { Rc::new(Sealed::new(below, Sealer::new(how))) }
}

/// Is there a volume in this bucket? Errors: the bucket's.
pub(crate) async fn is_volume(bucket: &Rc<dyn Bucket>) -> Result<bool, BucketError> {
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
        let key = Key::parse(&[5; 32]).ok();
        let (compressed, clone, check) = (false, false, None);
        let plain = Shape { uuid: [3; 16], blocks: 1 << 20, window: 32, compressed, clone, check };
        let hows = [(false, None), (true, None), (false, key.clone()), (true, key)];
        let hows = hows.map(|(compressed, key)| AtRest { compressed, key });
        for (how, clone) in hows.into_iter().flat_map(|h| [(h.clone(), false), (h, true)]) {
            let shape = Shape { clone, ..plain }.lying(&how);
            let raw = shape.encode();
            assert_eq!(Shape::decode(&raw), Ok(shape));
            assert_eq!(shape.at_rest(how.key.as_ref()), Ok(how.clone()));
            let wrong = Key::parse(&[6; 32]).ok();
            assert!(shape.at_rest(wrong.as_ref()).is_err(), "another key, or one too many");
            assert_eq!(shape.at_rest(None).is_err(), how.key.is_some());
            for i in 0..raw.len() {
                let mut other = raw.clone();
                other[i] ^= 1;
                assert!(Shape::decode(&other).is_err(), "byte {i}");
            }
        }
    }
}
