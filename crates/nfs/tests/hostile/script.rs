//! A fuzzer's bytes as what a hostile client does: raw bytes, heads of calls with anything in them,
//! and calls of every procedure whose arguments are odd in one place and sensible in the others.

use crate::hostile::{Bench, MOUNT, NFS, call, opaque, record, word, words};

/// One input does at most so many things.
const STEPS_MAX: usize = 60;

/// The bytes, taken from the front; zeros when they are used up.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((b, rest)) => {
                self.0 = rest;
                *b
            }
            None => 0,
        }
    }
    fn word(&mut self) -> u32 {
        u32::from_be_bytes(std::array::from_fn(|_| self.byte()))
    }
    fn bytes(&mut self, n: usize) -> &'a [u8] {
        let (some, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        some
    }
    /// A number near an edge, or any.
    fn long(&mut self) -> u64 {
        const EDGES: [u64; 12] = [
            0,
            1,
            511,
            4096,
            1 << 20,
            u32::MAX as u64,
            1 << 32,
            1 << 42,
            (1 << 63) - 1,
            1 << 63,
            u64::MAX,
            1000,
        ];
        match self.byte() {
            b if b < 200 => EDGES[usize::from(b) % EDGES.len()],
            _ => u64::from(self.word()) << 32 | u64::from(self.word()),
        }
    }
    fn name(&mut self) -> Vec<u8> {
        match self.byte() % 16 {
            0 => b".".to_vec(),
            1 => b"..".to_vec(),
            2 => b"a/b".to_vec(),
            3 => b"nul\0".to_vec(),
            4 => vec![b'n'; 255],
            5 => vec![b'n'; 300],
            6 => Vec::new(),
            7 => self.bytes(20).to_vec(),
            8 => b"lost+found".to_vec(),
            n => vec![b'a' + n],
        }
    }
    /// `sattr3`: each part there or not.
    fn attributes(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        for part in 0..6 {
            let b = self.byte();
            match (part, b % 3) {
                (_, 0) => all.extend(words(&[0])),
                (3, _) => all.extend([words(&[1]), self.long().to_be_bytes().to_vec()].concat()),
                (4 | 5, 1) => all.extend(words(&[1])),
                (4 | 5, _) => all.extend(words(&[2, self.word(), self.word()])),
                _ => all.extend(words(&[1, u32::from(b) << 4])),
            }
        }
        all
    }
}

/// What follows the head of each procedure: H a handle, N a name, L a number of 64 bits, W one of
/// 32, S attributes, G a guard, C how to create, K what special file, D bytes.
const ARGUMENTS: [&str; 22] = [
    "", "H", "HSG", "HN", "HW", "H", "HLW", "HLWWD", "HNC", "HNS", "HNSN", "HNK", "HN", "HN",
    "HNHN", "HHN", "HLLW", "HLLWW", "H", "H", "H", "HLW",
];

fn arguments(s: &mut Script<'_>, procedure: u32, handles: &[Vec<u8>]) -> Vec<u8> {
    let mut all = Vec::new();
    for kind in ARGUMENTS[procedure as usize].chars() {
        match kind {
            'H' => {
                let mut h = handles[usize::from(s.byte()) % handles.len()].clone();
                if s.byte() > 240 {
                    let at = usize::from(s.byte()) % h.len();
                    h[at] ^= 1 << (s.byte() % 8);
                }
                all.extend(opaque(&h));
            }
            'N' => all.extend(opaque(&s.name())),
            'L' => all.extend(s.long().to_be_bytes()),
            'W' => {
                let w = if s.byte() < 200 { u32::from(s.byte()) << 4 } else { s.word() };
                all.extend(words(&[w % if procedure == 7 { 3 } else { u32::MAX }]));
            }
            'S' => all.extend(s.attributes()),
            'G' => all.extend(words(&[0])),
            'C' => {
                let how = u32::from(s.byte() % 4);
                all.extend(words(&[how]));
                all.extend(if how == 2 { vec![7; 8] } else { s.attributes() });
            }
            'K' => {
                all.extend(words(&[u32::from(s.byte() % 9)]));
                all.extend(s.attributes());
                all.extend(words(&[1, 2]));
            }
            _ => {
                let n = usize::from(s.byte()) * 17;
                all.extend(opaque(&vec![s.byte(); n]));
            }
        }
    }
    // Now and then cut off.
    if s.byte() > 230 {
        all.truncate(usize::from(s.byte()));
    }
    all
}

/// A new handle in the reply, if it brought one.
fn new_handle(procedure: u32, reply: &[u8]) -> Option<Vec<u8>> {
    let at = match procedure {
        _ if word(reply, 5)? != 0 || word(reply, 6)? != 0 => return None,
        3 => 28,
        8..=11 if word(reply, 7)? == 1 => 32,
        _ => return None,
    };
    let len = word(reply, at / 4)? as usize;
    reply.get(at + 4..at + 4 + len).map(<[u8]>::to_vec)
}

/// Does what the bytes say. Whatever that is, every call of a version that is ours is answered
/// once, nobody panics, and the volume works on.
pub(crate) fn run(input: &[u8]) {
    let mut s = Script(input);
    let mut bench = Bench::new();
    let mut handles = vec![bench.root()];
    let mut xid = 100;
    for _ in 0..STEPS_MAX {
        if s.0.is_empty() {
            break;
        }
        xid += 1;
        match s.byte() % 16 {
            0 => {
                // Bytes as they are. What they leave unfinished would swallow what follows.
                let n = usize::from(s.byte());
                let raw = s.bytes(n);
                let _ = bench.feed(raw);
                bench.reconnect();
            }
            1 => {
                let n = usize::from(s.byte());
                let raw = record(s.bytes(n));
                let _ = bench.feed(&raw);
            }
            2 => {
                // A head with any numbers in it, and a record in pieces.
                let program = [NFS, MOUNT, 100_000, s.word()][usize::from(s.byte() % 4)];
                let which = (program, u32::from(s.byte() % 5), u32::from(s.byte() % 30));
                let mut head = call(xid, which, &[]);
                let at = 4 + usize::from(s.byte()) % (head.len() - 4);
                head[at] ^= s.byte();
                for piece in head.chunks(1 + usize::from(s.byte() % 40)) {
                    if bench.feed(piece).is_err() {
                        break;
                    }
                }
                bench.reconnect();
            }
            _ => {
                let procedure = u32::from(s.byte() % 22);
                let args = arguments(&mut s, procedure, &handles);
                let reply = bench.one(&call(xid, (NFS, 3, procedure), &args));
                assert_eq!(word(&reply, 0), Some(xid));
                assert_eq!(word(&reply, 2), Some(0), "accepted");
                handles.extend(new_handle(procedure, &reply).filter(|_| handles.len() < 20));
            }
        }
    }
    let alive = bench.one(&call(1, (NFS, 3, 1), &opaque(&handles[0])));
    assert_eq!((word(&alive, 5), word(&alive, 6)), (Some(0), Some(0)), "the root is there");
}
