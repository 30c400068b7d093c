//! [`OpenChain`]: the runs that make one version.

use std::sync::Arc;

use crate::catalog::RunName;
use crate::entry::Families;
use crate::error::Result;
use crate::run::{Run, RunHeader};
use crate::version::{Mark, RunKind, StoreUid};

/// The runs that make one version, opened and checked against each other; oldest first.
#[derive(Debug)]
pub(crate) struct OpenChain {
    /// The newest snapshot and the collapsed deltas above it.
    pub(crate) base: Vec<Arc<Run>>,
    /// The single deltas above the base.
    pub(crate) singles: Vec<Arc<Run>>,
    pub(crate) mark: Mark,
    pub(super) families: Arc<Families>,
    /// Files that should have been used but were damaged or gone.
    pub(super) passed_over: Vec<RunName>,
}

impl OpenChain {
    /// The mark that the base ends with.
    pub(crate) fn base_mark(&self) -> Mark {
        self.base.last().map_or(Mark::ROOT, |run| run.header().mark())
    }

    /// The store that the runs belong to; `None` where there are none.
    pub(super) fn uid(&self) -> Option<StoreUid> {
        self.singles.last().or(self.base.last()).map(|run| run.header().uid)
    }

    /// Their names, oldest first.
    pub(super) fn names(&self) -> impl Iterator<Item = RunName> {
        self.base.iter().chain(&self.singles).filter_map(|run| name_of(run.header()).ok()) // they were found by their names
    }

    /// All runs, newest first.
    pub(crate) fn newest_first(&self) -> Vec<Arc<Run>> {
        self.base.iter().chain(&self.singles).rev().cloned().collect()
    }
}

/// The name that a run with this header has.
pub(super) fn name_of(header: &RunHeader) -> Result<RunName> {
    match header.kind {
        RunKind::Snapshot => RunName::snapshot(header.to_id()),
        RunKind::Delta => RunName::delta(header.from, header.to_id()),
    }
}
