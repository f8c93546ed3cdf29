//! fsck: finds what is wrong with a volume and plans its repair.
