//! A journal of one transaction that is larger than memory, made by somebody who means harm: who
//! reads it in parts needs no more memory than he says.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use format::BlockNo;
use format::jbd2::{JournalSuperblock, Shape, Tag, incompat};
use mechanisms::{JournalReader, JournalReplay};

const BS: usize = 4096;
/// Descriptors of the transaction, and the copies that each lists.
const LISTS: u32 = 600;
const COPIES: u32 = 100;
const MIB: usize = 1 << 20;

/// The most memory that this process has had.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Block `n` of the journal; `place_of`: where copy `n` of the transaction belongs.
fn block(shape: &Shape, n: u32, place_of: impl Fn(u32) -> u64) -> Vec<u8> {
    let (list, within) = ((n - 1) / (COPIES + 1), (n - 1) % (COPIES + 1));
    let tag = |c: u32| Tag { block: BlockNo(place_of(list * COPIES + c)), escaped: false, sum: 0 };
    match within {
        _ if list == LISTS => shape.commit(7, 1_700_000_000, 0),
        0 => shape.descriptor(7, &[0; 16], &(0..COPIES).map(tag).collect::<Vec<_>>()),
        c => vec![(list * COPIES + c - 1) as u8; BS],
    }
}

fn replayed(place_of: impl Fn(u32) -> u64 + Copy, each: impl Fn(BlockNo, u8)) -> usize {
    let blocks = 2 + LISTS * (COPIES + 1);
    let superblock = JournalSuperblock {
        block_bytes: BS as u32,
        blocks: blocks + 1,
        first: 1,
        sequence: 7,
        start: 1,
        incompat: incompat::REVOKE,
        old_sums: false,
        uuid: [0; 16],
    };
    let shape = Shape::of(&superblock).unwrap();
    let read = |n| Ok(if n < blocks { block(&shape, n, place_of) } else { vec![0; BS] });
    let reader = JournalReader { superblock, volume_blocks: 1 << 20, read: &read };
    let (mut from, mut seen) = (BlockNo(0), 0);
    loop {
        let part = JournalReplay::load_part(&reader, from, 32 * MIB).unwrap();
        assert_eq!(part.transactions, 1);
        for b in part.blocks() {
            let mut bytes = vec![0; BS];
            part.apply(b, &mut bytes);
            each(b, bytes[9]);
            seen += 1;
        }
        match part.rest() {
            Some(rest) => from = rest,
            None => return seen,
        }
    }
}

#[test]
fn one_transaction_takes_no_more_memory_than_its_reader_has() {
    let before = peak();
    // Each copy is another block's, the last ones first; and all are of one block.
    let all = LISTS * COPIES;
    let seen =
        replayed(|c| u64::from(all - c), |b, byte| assert_eq!(byte, (all - b.0 as u32) as u8));
    assert_eq!(seen, all as usize);
    let seen = replayed(|_| 5, |_, byte| assert_eq!(byte, (all - 1) as u8));
    assert_eq!(seen, 1);
    let took = peak() - before;
    assert!(took < 100 * MIB, "{} MiB", took / MIB);
}
