//! [`Proven`]: which runs were read from end to end, and what came of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::catalog::{Catalog, RunName};
use crate::version::RunId;

/// What came of the last time that a run was read from end to end by this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Finding {
    Whole,
    Damaged,
}

/// The runs that were read from end to end. A run never changes, so once is enough, until a scrub reads it again.
#[derive(Debug, Default)]
pub(super) struct Proven {
    /// Nothing is called under it.
    found: Mutex<Findings>,
}

#[derive(Debug, Default)]
struct Findings {
    /// At most the runs of a listing.
    runs: BTreeMap<(RunName, RunId), Finding>,
    /// How often damage was found that was not known before.
    news: u64,
}

impl Proven {
    pub(super) fn find(&self, name: &RunName, id: RunId) -> Option<Finding> {
        self.lock().runs.get(&(*name, id)).copied()
    }

    /// Notes what came of reading a run, and forgets those that are no longer listed.
    pub(super) fn note(&self, name: RunName, id: RunId, finding: Finding, listed: &Catalog) {
        let mut found = self.lock();
        found.runs.retain(|(name, _), _| listed.listing().runs.contains(name));
        let before = found.runs.insert((name, id), finding);
        found.news += u64::from(finding == Finding::Damaged && before != Some(finding));
    }

    /// How often damage was found that was not known before.
    pub(super) fn news(&self) -> u64 {
        self.lock().news
    }

    fn lock(&self) -> MutexGuard<'_, Findings> {
        // Every change is one call on the map, which is whole whatever happened to a thread that held it.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
