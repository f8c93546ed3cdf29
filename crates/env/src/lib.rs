//! What the core may ask of the world: disks, time, chance, tasks.
