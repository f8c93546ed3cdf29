//! Planted bugs: a mechanism asks at the places where forgetting something would lose data, and the
//! crash explorer plants one to see whether it is caught. In every build, because a checker that
//! has never caught a bug is blind; none is planted unless `cairn crash --plant` says so.

/// The bug that is planted, if any.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Plant(pub Option<&'static str>);

impl Plant {
    /// No bug.
    pub const NONE: Plant = Plant(None);
    /// Is this the planted bug?
    #[inline]
    pub fn is(self, name: &str) -> bool {
        self.0 == Some(name)
    }
    /// Is any?
    pub fn is_any(self) -> bool {
        self.0.is_some()
    }
}

/// Asserts an invariant of a mechanism, whose number in its header begins the message. It rests
/// while a bug is planted: the explorer is to find that from outside, in what a crash leaves.
#[macro_export]
macro_rules! invariant {
    ($plant:expr, $holds:expr, $($message:tt)+) => {
        assert!($plant.is_any() || $holds, $($message)+)
    };
}
