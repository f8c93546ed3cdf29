//! Where it lives: the ext2 and ext3 layout, updated in place.
