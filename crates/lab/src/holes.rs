//! Holes that take more than one transaction: where their steps end. It is the rule that the
//! documents state, worked out from a file's contents, for the judge: what a power cut may show of
//! such a hole are its first steps, and nothing of any other.
//!
//! Invariants:
//! * V1. Borders rise, and each lies within the hole: at its ends the hole is none of steps.

use crate::contents::Contents;
use crate::setting::{Setting, VolumeKind};

/// The block size of the volumes of the scenarios, and the blocks that an indirect one maps.
const BLOCK_BYTES: u64 = 1024;
const POINTERS: u64 = BLOCK_BYTES / 4;
/// The longest entry of a log of 1 MiB: an eighth of its 15 segments of 64 KiB.
const ENTRY_BYTES_MAX: u64 = 15 * (64 << 10) / 8;
/// What every hole's entry is given: 16 blocks of metadata, two of contents at its ends, and a
/// rest; and a bitmap and a block of descriptors, where the volume has one group.
const BESIDE_BYTES: u64 = (16 + 2 + 2) * BLOCK_BYTES + 512;
/// What a run takes beside the indirect block that maps it.
const RUN_BYTES: u64 = 24;

/// The offsets at which a hole over these bytes of the file may end for a while: none where it fits
/// in one transaction. A journal of 1 MiB has room for every hole of the scenarios.
pub(crate) fn borders(setting: Setting, file: &Contents, (at, len): (u64, u64)) -> Vec<u64> {
    let mut all = Vec::new();
    // A leaf of extents maps many times as much, so that these fit; of larger blocks a hole has
    // fewer.
    if !setting.mode.is_redo() || setting.kind != VolumeKind::Ext3 || setting.block_scale() > 1 {
        return all;
    }
    let end = (at + len).min(file.len());
    let (first, last) = (at.div_ceil(BLOCK_BYTES), end / BLOCK_BYTES);
    let (mut bytes, mut leaf) = (BESIDE_BYTES, None);
    let mut next_in_run = false;
    for b in first..last {
        let mapped = !file.is_zero(b * BLOCK_BYTES..(b + 1) * BLOCK_BYTES);
        let starts_run = mapped && !next_in_run;
        next_in_run = mapped;
        if !starts_run {
            continue;
        }
        // The inode maps the first twelve.
        let this = b.checked_sub(12).map(|n| n / POINTERS);
        let map = if leaf == Some(this) { 0 } else { BLOCK_BYTES };
        if bytes > BESIDE_BYTES && bytes + map + RUN_BYTES > ENTRY_BYTES_MAX {
            all.push(b * BLOCK_BYTES);
            bytes = BESIDE_BYTES;
        }
        bytes += if bytes == BESIDE_BYTES { BLOCK_BYTES } else { map } + RUN_BYTES;
        leaf = Some(this);
    }
    let rise = all.is_sorted() && all.first().is_none_or(|b| *b > at);
    assert!(rise && all.last().is_none_or(|b| *b < end), "V1: {all:?} within {at}..{end}");
    all
}

/// The file as it is when the hole has come to one of its borders: what lies at its ends is zeroed
/// with its first step.
pub(crate) fn half_punched(file: &Contents, (at, len): (u64, u64), border: u64) -> Contents {
    let end = (at + len).min(file.len());
    let mut half = file.clone();
    half.zero(at..border);
    half.zero((end - end % BLOCK_BYTES).max(border)..end);
    half
}
