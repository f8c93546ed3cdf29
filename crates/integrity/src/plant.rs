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
    pub fn is(self, name: &str) -> bool {
        self.0 == Some(name)
    }
}
