//! The hashes of indexed directories: which hash a name has, given the index's version and the
//! volume's seed. The index's own blocks are in `dirindex`, those with the names in `dirleaf`.

/// A hash of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HashKind {
    /// The first one: a multiplication a byte.
    Legacy,
    /// A shortened MD4.
    HalfMd4,
    /// The cipher TEA used as a hash.
    Tea,
}

/// How names are hashed: by which function, with which seed, bytes taken as signed or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameHash {
    kind: HashKind,
    signed: bool,
    start: [u32; 4],
}

const START: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
/// The hash that means "end": no name has it.
const END: u32 = 0x7fff_ffff << 1;

impl NameHash {
    /// By the version in an index's root; `unsigned` is the volume's flag, which counts for
    /// versions 0 to 2. None: there is no such version.
    pub fn new(version: u8, unsigned: bool, seed: [u32; 4]) -> Option<NameHash> {
        let kind = match version {
            0 | 3 => HashKind::Legacy,
            1 | 4 => HashKind::HalfMd4,
            2 | 5 => HashKind::Tea,
            _ => return None,
        };
        let signed = version < 3 && !unsigned;
        let start = if seed == [0; 4] { START } else { seed };
        Some(NameHash { kind, signed, start })
    }

    /// The same of an index on disk, which has no other versions than 0 to 2: there an unsigned
    /// hash is the volume's flag, and versions 3 to 5 are names for it in memory only.
    pub fn on_disk(version: u8, unsigned: bool, seed: [u32; 4]) -> Option<NameHash> {
        NameHash::new(version, unsigned, seed).filter(|_| version < 3)
    }

    /// The hash of a name; the lowest bit is always clear.
    pub fn of(&self, name: &[u8]) -> u32 {
        let hash = match self.kind {
            HashKind::Legacy => self.legacy(name),
            HashKind::HalfMd4 => {
                let mut state = self.start;
                for at in (0..name.len()).step_by(32) {
                    half_md4(&mut state, &self.words::<8>(&name[at..]));
                }
                state[1]
            }
            HashKind::Tea => {
                let mut state = self.start;
                for at in (0..name.len()).step_by(16) {
                    tea(&mut state, &self.words::<4>(&name[at..]));
                }
                state[0]
            }
        };
        let hash = hash & !1;
        if hash == END { END - 2 } else { hash }
    }

    fn byte(&self, b: u8) -> u32 {
        if self.signed { i32::from(b.cast_signed()).cast_unsigned() } else { u32::from(b) }
    }

    fn legacy(&self, name: &[u8]) -> u32 {
        let (mut now, mut before) = (0x12a3_fe2du32, 0x37ab_e8f9u32);
        for b in name {
            let mut next = before.wrapping_add(now ^ self.byte(*b).wrapping_mul(7_152_373));
            if next & 0x8000_0000 != 0 {
                next = next.wrapping_sub(0x7fff_ffff);
            }
            before = now;
            now = next;
        }
        now << 1
    }

    /// The next bytes of a name as N big-endian words, filled up with its remaining length.
    fn words<const N: usize>(&self, rest: &[u8]) -> [u32; N] {
        let len = rest.len() as u32 & 0xff;
        let fill = len | len << 8 | len << 16 | len << 24;
        let mut out = [fill; N];
        for (word, bytes) in out.iter_mut().zip(rest.chunks(4)) {
            *word = bytes.iter().fold(fill, |w, b| (w << 8).wrapping_add(self.byte(*b)));
        }
        out
    }
}

/// What a volume says of its directories' indexes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexRules {
    /// The version of a new index's hash.
    pub version: u8,
    /// Do versions 0 to 2 take bytes as unsigned?
    pub unsigned: bool,
    /// What hashes begin with.
    pub seed: [u32; 4],
    /// The most levels of nodes below a root.
    pub levels_max: u8,
}

impl IndexRules {
    /// The hash of an index's version; None: no index may have it.
    pub fn hash(&self, version: u8) -> Option<NameHash> {
        NameHash::on_disk(version, self.unsigned, self.seed)
    }
}

/// One round of MD4: which words of the input, in which order, rotated how far.
fn md4_round(
    s: &mut [u32; 4],
    input: &[u32; 8],
    order: [usize; 8],
    turns: [u32; 4],
    mix: impl Fn(u32, u32, u32) -> u32,
) {
    for (n, i) in order.into_iter().enumerate() {
        // The four words of the state take turns: 0, 3, 2, 1.
        let a = (4 - n % 4) % 4;
        let (b, c, d) = (s[(a + 1) % 4], s[(a + 2) % 4], s[(a + 3) % 4]);
        s[a] = s[a].wrapping_add(mix(b, c, d)).wrapping_add(input[i]).rotate_left(turns[n % 4]);
    }
}

fn half_md4(state: &mut [u32; 4], input: &[u32; 8]) {
    let mut s = *state;
    md4_round(&mut s, input, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19], |x, y, z| z ^ (x & (y ^ z)));
    md4_round(&mut s, input, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13], |x, y, z| {
        (x & y).wrapping_add((x ^ y) & z).wrapping_add(0x5a82_7999)
    });
    md4_round(&mut s, input, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15], |x, y, z| {
        (x ^ y ^ z).wrapping_add(0x6ed9_eba1)
    });
    state.iter_mut().zip(s).for_each(|(to, add)| *to = to.wrapping_add(add));
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    let (mut x, mut y, mut sum) = (state[0], state[1], 0u32);
    let mix = |v: u32, sum: u32, a: u32, b: u32| {
        (v << 4).wrapping_add(a) ^ v.wrapping_add(sum) ^ (v >> 5).wrapping_add(b)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9e37_79b9);
        x = x.wrapping_add(mix(y, sum, key[0], key[1]));
        y = y.wrapping_add(mix(x, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}
