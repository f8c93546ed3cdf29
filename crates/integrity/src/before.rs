//! The bytes from before an edit. They are few nearly always (a number, the head of a name, a byte
//! of a map), and then need no memory of their own.

use std::fmt;
use std::ops::Deref;

/// So many lie in it.
const INSIDE: usize = 22;

/// Some bytes that do not change any more.
#[derive(Clone)]
pub struct Before(Held);

#[derive(Clone)]
enum Held {
    Inside(u8, [u8; INSIDE]),
    Apart(Box<[u8]>),
}

const _: () = assert!(size_of::<Option<Before>>() == 24);

impl From<&[u8]> for Before {
    fn from(bytes: &[u8]) -> Before {
        let mut inside = [0; INSIDE];
        match inside.get_mut(..bytes.len()) {
            Some(these) => {
                these.copy_from_slice(bytes);
                Before(Held::Inside(bytes.len() as u8, inside))
            }
            None => Before(Held::Apart(bytes.into())),
        }
    }
}

impl Deref for Before {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Held::Inside(len, bytes) => &bytes[..usize::from(*len)],
            Held::Apart(bytes) => bytes,
        }
    }
}

impl Before {
    /// Bytes of memory that it needs besides its own.
    pub(crate) fn bytes_apart(&self) -> usize {
        match &self.0 {
            Held::Inside(..) => 0,
            Held::Apart(bytes) => {
                assert!(bytes.len() > INSIDE, "{} bytes apart have room inside", bytes.len());
                bytes.len()
            }
        }
    }
}

impl PartialEq for Before {
    fn eq(&self, other: &Before) -> bool {
        **self == **other
    }
}
impl Eq for Before {}

impl fmt::Debug for Before {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_were_given() {
        let bytes: Vec<u8> = (1..100).collect();
        for len in 0..bytes.len() {
            let before = Before::from(&bytes[..len]);
            assert_eq!(*before, bytes[..len]);
            assert_eq!(before.bytes_apart(), if len > INSIDE { len } else { 0 });
            assert_eq!(before, before.clone());
        }
        assert_ne!(Before::from(&[1u8][..]), Before::from(&[1u8, 0][..]));
    }
}
