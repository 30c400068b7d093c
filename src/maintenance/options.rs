//! What is kept, and how fast the background may write.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::run::Access;
use crate::store::StoreOptions;
use crate::version::Version;

/// Options of a store's maintenance.
#[derive(Debug, Clone)]
pub struct MaintenanceOptions {
    pub(super) retain_versions: usize,
    pub(super) retain_changes: Option<u64>,
    pub(super) pace: Option<NonZeroU64>,
    pub(super) access: Access,
    pub(super) scrub_every: Option<Duration>,
    /// Above this version nothing is collapsed: folding is at work there.
    pub(super) collapse_up_to: Version,
}

impl Default for MaintenanceOptions {
    fn default() -> Self {
        Self::from(&StoreOptions::default())
    }
}

impl From<&StoreOptions> for MaintenanceOptions {
    fn from(options: &StoreOptions) -> Self {
        Self {
            retain_versions: options.retained_versions(),
            retain_changes: options.retained_changes_if_set(),
            pace: options.pace(),
            access: options.run_access(),
            scrub_every: options.scrub_interval(),
            collapse_up_to: Version(u64::MAX),
        }
    }
}

impl MaintenanceOptions {
    /// How many of the newest versions stay readable; 100 unless set, at least 1.
    ///
    /// # Errors
    /// `InvalidInput` for 0.
    pub fn retain_versions(mut self, versions: usize) -> Result<Self> {
        if versions == 0 {
            return Err(Error::invalid("at least the newest version stays"));
        }
        self.retain_versions = versions;
        Ok(self)
    }

    /// Of how many of the newest versions the exact changes stay, also where the versions themselves are let go; as many as
    /// versions are retained unless set.
    #[must_use]
    pub fn retain_changes(mut self, versions: u64) -> Self {
        self.retain_changes = Some(versions);
        self
    }

    /// The most bytes a second that are written to collapse and to take snapshots; unless set, as fast as they can be.
    #[must_use]
    pub fn pace(mut self, bytes_per_second: NonZeroU64) -> Self {
        self.pace = Some(bytes_per_second);
        self
    }

    /// How runs are read; mapped unless set.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }
}
