//! The virtual world: time, chance, disks that lose power.
