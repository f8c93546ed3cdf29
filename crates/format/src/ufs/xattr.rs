//! Extended attributes: in the inode after its extra fields, and in one block of their own. In
//! both, entries grow from the front and values from the back. The hashes are the kernel's, which
//! e2fsck checks.

use crate::bytes::{le16, le32, set16, set32};
use crate::{FormatError, Ino};

/// Magic number before attributes in an inode and in a block.
pub const MAGIC: u32 = 0xea02_0000;
/// Bytes before the entries of an attribute block.
pub const BLOCK_HEAD: usize = 32;
/// Bytes before the entries in an inode.
pub const INODE_HEAD: usize = 4;
const ENTRY_HEAD: usize = 16;
/// The longest value, as Linux has it.
pub const VALUE_MAX: usize = 65_536;

/// A value that is another inode's contents (`ea_inode`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elsewhere {
    /// That inode.
    pub ino: Ino,
    /// How long it is.
    pub len: u32,
    /// The entry's hash: of the name, and of the value's hash.
    pub hash: u32,
}

/// One attribute: its name's prefix as a number, the rest of the name, the value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Attribute {
    /// See [`split_name`].
    pub index: u8,
    /// The name without its prefix.
    pub name: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// Where it is, if it is not here; then `value` is empty.
    pub elsewhere: Option<Elsewhere>,
}

/// The prefixes by number. Access lists are a whole name each.
const PREFIXES: &[(u8, &[u8])] = &[
    (2, b"system.posix_acl_access"),
    (3, b"system.posix_acl_default"),
    (1, b"user."),
    (4, b"trusted."),
    (6, b"security."),
];

/// A full name as (prefix number, rest); None for a name space we do not have.
pub fn split_name(full: &[u8]) -> Option<(u8, &[u8])> {
    PREFIXES.iter().find_map(|(i, p)| {
        let rest = full.strip_prefix(*p)?;
        let whole = !p.ends_with(b".");
        (whole == rest.is_empty()).then_some((*i, rest))
    })
}

/// The full name.
pub fn join_name(index: u8, rest: &[u8]) -> Option<Vec<u8>> {
    let (_, p) = PREFIXES.iter().find(|(i, _)| *i == index)?;
    Some([p, rest].concat())
}

impl Attribute {
    fn entry_bytes(&self) -> usize {
        (ENTRY_HEAD + self.name.len()).next_multiple_of(4)
    }
    fn value_bytes(&self) -> usize {
        self.value.len().next_multiple_of(4)
    }
}

/// How many bytes of room these need, without the head.
pub fn room_needed(list: &[Attribute]) -> usize {
    list.iter().map(|a| a.entry_bytes() + a.value_bytes()).sum::<usize>() + 4
}

/// Blocks that the values of these take that are other inodes' contents.
pub fn blocks_elsewhere(list: &[Attribute], block_bytes: usize) -> u64 {
    let values = list.iter().filter_map(|a| a.elsewhere);
    values.map(|e| u64::from(e.len).div_ceil(block_bytes as u64)).sum()
}

/// Reads the entries that begin at byte `first` of `space`; value offsets count from byte `base`.
fn decode(space: &[u8], first: usize, base: usize) -> Result<Vec<Attribute>, FormatError> {
    let bad = |what: &str, at: usize| {
        Err(FormatError::corrupt(format!("an extended attribute {what}"), format!("byte {at}")))
    };
    let mut list = Vec::new();
    let mut at = first;
    loop {
        if at + 4 > space.len() {
            return bad("runs over the end", at);
        }
        if le32(space, at) == 0 {
            // Values that lie in one another, or in the entries, would not fit side by side.
            let room = room_needed(&list);
            if room > space.len() - first {
                return bad(&format!("and others, which need {room} bytes, lie in less"), first);
            }
            return Ok(list);
        }
        let name_len = usize::from(space[at]);
        // Without a name and its prefix it would be the list's end where it has no value.
        if name_len == 0 && space[at + 1] == 0 {
            return bad("has no name", at);
        }
        let next = at + (ENTRY_HEAD + name_len).next_multiple_of(4);
        if next + 4 > space.len() {
            return bad("runs over the end", at);
        }
        let value_at = base + usize::from(le16(space, at + 2));
        let value_len = le32(space, at + 8) as usize;
        let name = space[at + ENTRY_HEAD..at + ENTRY_HEAD + name_len].to_vec();
        let ino = Ino(le32(space, at + 4));
        if ino.0 != 0 {
            let (len, hash) = (value_len as u32, le32(space, at + 12));
            let elsewhere = Some(Elsewhere { ino, len, hash });
            list.push(Attribute { index: space[at + 1], name, value: Vec::new(), elsewhere });
            at = next;
            continue;
        }
        let Some(value) = value_at.checked_add(value_len).and_then(|e| space.get(value_at..e))
        else {
            return bad("has its value beyond the end", at);
        };
        list.push(Attribute { index: space[at + 1], name, value: value.to_vec(), elsewhere: None });
        at = next;
    }
}

/// The attributes in an inode's space after its extra fields.
pub fn decode_inode(space: &[u8]) -> Result<Vec<Attribute>, FormatError> {
    if space.len() < INODE_HEAD + 4 || le32(space, 0) != MAGIC {
        return Ok(Vec::new());
    }
    decode(space, INODE_HEAD, INODE_HEAD)
}

/// The attributes in a block.
pub fn decode_block(block: &[u8]) -> Result<Vec<Attribute>, FormatError> {
    if le32(block, 0) != MAGIC || le32(block, 8) != 1 {
        return Err(FormatError::corrupt("no attribute block's magic number", "byte 0"));
    }
    decode(block, BLOCK_HEAD, 0)
}

/// How many inodes share an attribute block.
pub fn refcount(block: &[u8]) -> u32 {
    le32(block, 4)
}
/// Sets how many share it.
pub fn set_refcount(block: &mut [u8], n: u32) {
    let magic = le32(block, 0);
    assert_eq!(magic, MAGIC, "F1: {n} users of what is no block of attributes");
    set32(block, 4, n);
}

fn encode(space: &mut [u8], first: usize, base: usize, list: &[Attribute]) {
    let in_block = base == 0;
    let mut sorted: Vec<&Attribute> = list.iter().collect();
    sorted.sort_by(|a, b| (a.index, a.name.len(), &a.name).cmp(&(b.index, b.name.len(), &b.name)));
    let (mut at, mut end) = (first, space.len());
    for a in &sorted {
        let long = a.value.len().max(a.elsewhere.map_or(0, |e| e.len as usize));
        let apart = a.elsewhere.is_none() || a.value.is_empty();
        assert!(apart, "F1: a value of {long} bytes is here and in another inode");
        end -= a.value_bytes();
        space[end..end + a.value.len()].copy_from_slice(&a.value);
        space[at] = a.name.len() as u8;
        space[at + 1] = a.index;
        let value_at = if a.value.is_empty() { 0 } else { end - base };
        set16(space, at + 2, value_at as u16);
        set32(space, at + 8, a.value.len() as u32);
        space[at + ENTRY_HEAD..at + ENTRY_HEAD + a.name.len()].copy_from_slice(&a.name);
        // In inodes the kernel leaves the hash out, and there it changes values in place.
        let hash = if in_block { entry_hash(a) } else { 0 };
        set32(space, at + 12, a.elsewhere.map_or(hash, |e| e.hash));
        if let Some(e) = a.elsewhere {
            set32(space, at + 4, e.ino.0);
            set32(space, at + 8, e.len);
        }
        at += a.entry_bytes();
    }
    assert!(at + 4 <= end, "F1: attributes up to byte {at}, and their values from {end} on");
    let again = decode(space, first, base);
    let same = again.is_ok_and(|all| all.iter().eq(sorted.iter().copied()));
    assert!(same, "F1: {} attributes are read as others", list.len());
}

/// Fills an inode's space with these; false if they do not fit. No attributes: zeros.
pub fn encode_inode(space: &mut [u8], list: &[Attribute]) -> bool {
    if list.is_empty() {
        space.fill(0);
        return true;
    }
    if space.len() < INODE_HEAD || room_needed(list) > space.len() - INODE_HEAD {
        return false;
    }
    space.fill(0);
    set32(space, 0, MAGIC);
    encode(space, INODE_HEAD, INODE_HEAD, list);
    true
}

/// A whole attribute block with these, used by one inode; None if they do not fit.
pub fn encode_block(block_bytes: usize, list: &[Attribute]) -> Option<Vec<u8>> {
    if room_needed(list) > block_bytes - BLOCK_HEAD {
        return None;
    }
    let mut block = vec![0; block_bytes];
    set32(&mut block, 0, MAGIC);
    set32(&mut block, 4, 1);
    set32(&mut block, 8, 1);
    encode(&mut block, BLOCK_HEAD, 0, list);
    let mut hash = 0u32;
    let mut at = BLOCK_HEAD;
    while le32(&block, at) != 0 {
        let e = le32(&block, at + 12);
        hash = if e == 0 { 0 } else { hash.rotate_left(16) ^ e };
        if e == 0 {
            break;
        }
        at += (ENTRY_HEAD + usize::from(block[at])).next_multiple_of(4);
    }
    set32(&mut block, 12, hash);
    Some(block)
}

fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0u32, |h, &c| h.rotate_left(5) ^ u32::from(c))
}

/// The kernel's hash of an entry whose value is another inode's contents: of its name, and of the
/// value's own hash.
pub fn elsewhere_hash(name: &[u8], value_hash: u32) -> u32 {
    name_hash(name).rotate_left(16) ^ value_hash
}

/// The kernel's hash of an entry: its name, then its value in 32-bit words.
fn entry_hash(a: &Attribute) -> u32 {
    let mut h = name_hash(&a.name);
    for word in a.value.chunks(4) {
        let mut w = [0; 4];
        w[..word.len()].copy_from_slice(word);
        h = h.rotate_left(16) ^ u32::from_le_bytes(w);
    }
    h
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let list: Vec<Attribute> =
            [("user.a", "1"), ("trusted.long", "some value"), ("user.b", "")]
                .iter()
                .map(|(n, v)| {
                    let (index, name) = split_name(n.as_bytes()).unwrap();
                    let (name, value) = (name.to_vec(), v.as_bytes().to_vec());
                    Attribute { index, name, value, elsewhere: None }
                })
                .collect();
        let block = encode_block(1024, &list).unwrap();
        let mut back = decode_block(&block).unwrap();
        back.sort_by_key(|a| list.iter().position(|x| x == a));
        assert_eq!(back, list);
        let mut space = vec![0; 96];
        assert!(encode_inode(&mut space, &list[..1]));
        assert_eq!(decode_inode(&space).unwrap(), list[..1]);
        assert!(!encode_inode(&mut space[..20], &list));
        assert_eq!(split_name(b"system.posix_acl_access"), Some((2, &b""[..])));
        assert_eq!(split_name(b"nonsense.x"), None);
    }

    /// An entry without name and prefix, seen as one by its value's place alone, would be the
    /// list's end where it is encoded without a value.
    #[test]
    fn an_entry_without_any_name_is_damage() {
        let name = |n: &[u8]| {
            let (index, name) = split_name(n).unwrap();
            Attribute { index, name: name.to_vec(), ..Attribute::default() }
        };
        let list = [name(b"system.posix_acl_access"), name(b"trusted.behind")];
        let mut block = encode_block(1024, &list).unwrap();
        assert_eq!(decode_block(&block).unwrap(), list, "a prefix that is a whole name");
        block[BLOCK_HEAD + 1] = 0;
        set16(&mut block, BLOCK_HEAD + 2, 1000);
        assert!(decode_block(&block).is_err());
    }
}
