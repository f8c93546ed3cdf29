//! Whose a virtual block is: the volume and each of its snapshots have blocks of the same numbers,
//! told apart by the bits above them. What a snapshot keeps in its blocks it does not know.

use crate::geometry::Virt;

/// Numbers of virtual blocks: an owner above, and below it as many bits as the volume's need.
/// Owner 0 is the volume, the others are snapshots by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owners {
    bits: u32,
}

impl Owners {
    /// Where the volume has so many blocks.
    pub fn of(blocks: u64) -> Owners {
        Owners { bits: u64::BITS - blocks.leading_zeros() }
    }
    /// An owner's own block of the number `v`.
    pub fn own_block(&self, owner: u32, v: Virt) -> Virt {
        Virt(u64::from(owner) << self.bits | v.0)
    }
    /// The block behind the last that an owner can have.
    pub fn own_end(&self, owner: u32) -> u64 {
        (u64::from(owner) + 1) << self.bits
    }
    /// Whose it is, and which of his. A number from a disk may name an owner that no number has:
    /// that is the highest, and never one of those that there are.
    pub fn owner(&self, v: Virt) -> (u32, Virt) {
        let owner = u32::try_from(v.0 >> self.bits).unwrap_or(u32::MAX);
        (owner, Virt(v.0 & ((1 << self.bits) - 1)))
    }
    /// The highest number of a snapshot, where a block's number has `most` bits.
    pub fn snapshots_max(&self, most: u32) -> u32 {
        (1_u64 << (most - self.bits)).min(1 << 30) as u32 - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_different_owners_are_different_blocks() {
        for blocks in [1, 63, 64, 1 << 40] {
            let owners = Owners::of(blocks);
            let last = Virt(blocks - 1);
            for owner in [0, 1, 9] {
                assert_eq!(owners.owner(owners.own_block(owner, last)), (owner, last));
                assert!(owners.own_block(owner, last).0 < owners.own_end(owner));
                assert_eq!(owners.own_end(owner), owners.own_block(owner + 1, Virt(0)).0);
            }
        }
        let owners = Owners::of(1 << 11);
        let far = Virt(1 << (32 + 12) | 7);
        assert_eq!(
            owners.owner(far),
            (u32::MAX, Virt(7)),
            "not the volume's: it is cut to no bits"
        );
        assert_eq!(Owners::of(255).snapshots_max(56), (1 << 30) - 1);
        assert_eq!(Owners::of(1 << 40).snapshots_max(63), (1 << 22) - 1);
    }
}
