//! How far a reading is, and who hears of it.

use std::fmt;
use std::sync::Arc;

/// How far a reading is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Bytes read so far.
    pub done_bytes: u64,
    /// Bytes there were when it began.
    pub total_bytes: u64,
    /// Records delivered so far.
    pub records: u64,
}

/// Hears after each segment how far the opening of a log is.
#[derive(Clone, Default)]
pub struct RecoveryObserver(Option<Arc<dyn Fn(Progress) + Send + Sync>>);

impl RecoveryObserver {
    /// Calls `hear` in the thread that opens the log.
    #[must_use]
    pub fn new(hear: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hear)))
    }

    pub(super) fn call(&self, progress: Progress) {
        if let Some(hear) = &self.0 {
            hear(progress);
        }
    }
}

impl fmt::Debug for RecoveryObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RecoveryObserver").field(&self.0.is_some()).finish()
    }
}
