//! The bugs that can be planted in these modes, by name. What each of them does is said where it is
//! asked for; this file knows none of it.

/// Bugs that can be planted in both modes; those of the log itself are in [`wal::PLANTS`].
pub(crate) const PLANTS: &[&str] = &[
    "home-before-log",
    "ack-before-log",
    "trim-at-append",
    "trim-before-flush",
    "no-revoke",
    "reuse-at-once",
    "open-bytes-logged",
    "never-sent",
    "entry-not-atomic",
    "log-not-fua",
    "ack-out-of-order",
    "torn-tail-accepted",
    "emptied-before-home",
    "room-while-open",
    "guard-before-flag",
    "flag-before-guard",
];

/// Bugs that can be planted in mode `unified`: these, and some of the others'.
pub(crate) const UNIFIED_PLANTS: &[&str] = &[
    "home-before-log",
    "ack-before-log",
    "trim-at-append",
    "trim-before-flush",
    "no-revoke",
    "reuse-at-once",
    "open-bytes-logged",
    "never-sent",
    "log-not-fua",
    "direct-over-logged",
    "entry-before-contents",
    "freed-contents-forgotten",
    "new-block-not-cleared",
    "room-while-open",
    "guard-before-flag",
    "flag-before-guard",
];
