//! Free space, what the disk is told of it, and the label. Who asks, and how often, is not known
//! here.

use super::StoreInfo;
use std::ops::Range;
use vfs::{FsError, StatFs};

/// Free space.
#[expect(async_fn_in_trait, reason = "a volume is one thread's; its futures need not be Send")]
pub trait Space: StoreInfo {
    /// Free space. It may be a while after opening before the layout knows.
    async fn statfs(&self) -> StatFs;
    /// Tells the disk of free blocks among these, in runs of at least `least`; returns how many.
    /// Between two runs it ends if `stop` says so. Errors: `NotSupported` where the layout or the
    /// disk cannot.
    async fn trim(
        &self,
        among: Range<u64>,
        least: u64,
        stop: &dyn Fn() -> bool,
    ) -> Result<u64, FsError> {
        let _ = (among, least, stop);
        Err(FsError::NotSupported)
    }
    /// The same where something was freed and not trimmed since, as far as it may be used again.
    async fn trim_freed(&self, least: u64, stop: &dyn Fn() -> bool) -> Result<u64, FsError> {
        self.trim(0..0, least, stop).await
    }
    /// The volume's label.
    fn label(&self) -> String {
        String::new()
    }
    /// Changes it, durably. `Invalid` where it is too long.
    async fn set_label(&self, label: &str) -> Result<(), FsError> {
        let _ = label;
        Err(FsError::NotSupported)
    }
    /// Counters for metrics.
    fn counters(&self) -> Vec<(&'static str, u64)>;
}
