//! The head, and the lineage below a version: who owns which version number.

use std::collections::BTreeMap;

use super::fork::{self, Fork};
use super::listing::Listing;
use super::name::RunName;
use crate::error::Error;
use crate::version::{Epoch, Version, VersionId};

/// The newest version of the highest epoch that has runs of any kind; [`VersionId::ROOT`] where there are none.
///
/// Any run counts, since retirement may have left only a snapshot of an epoch. A fork without runs says nothing yet.
pub(crate) fn head(listing: &Listing) -> VersionId {
    let newest = listing.runs.iter().map(RunName::to).max_by_key(|to| (to.epoch, to.version));
    newest.unwrap_or(VersionId::ROOT)
}

/// The versions below and including one version, as stretches of one epoch each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lineage {
    /// Newest first, without gaps.
    segments: Vec<Segment>,
    end: End,
}

/// The versions of one epoch on a lineage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) epoch: Epoch,
    /// The lowest version of the epoch. Where its fork is gone or damaged that is not known, and 1 stands here: a run
    /// of the epoch counts all the same, since an epoch makes no version at or below its base.
    pub(crate) first: Version,
    /// The highest version of the epoch that the lineage goes through.
    pub(crate) last: Version,
}

/// Why a lineage goes no further down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// It has reached version 0.
    Root,
    /// The fork of this epoch is gone: what lies below was retired.
    Gone(Epoch),
    /// The fork of this epoch cannot be read; the text says why.
    Damaged(Epoch, String),
}

impl Lineage {
    /// Walks from `at` down each epoch to its fork's base.
    pub(crate) fn of(at: VersionId, forks: &BTreeMap<Epoch, Fork>) -> Self {
        let mut segments = Vec::new(); // at most one for each fork: epochs only ever go down
        let mut at = at;
        while at.version > Version::EMPTY {
            let VersionId { version: last, epoch } = at;
            match step_down(at, forks) {
                Ok(base) => {
                    segments.push(Segment { epoch, first: base.version.next(), last });
                    at = base;
                }
                Err(end) => {
                    segments.push(Segment { epoch, first: Version(1), last });
                    return Self { segments, end };
                }
            }
        }
        Self { segments, end: End::Root }
    }

    /// The version with this number, if the lineage goes through it.
    pub(crate) fn at(&self, version: Version) -> Option<VersionId> {
        if version == Version::EMPTY {
            return Some(VersionId::ROOT);
        }
        // The segments descend without gaps, so the first that reaches down to the version is the one, or none is.
        let place = self.segments.partition_point(|segment| segment.first > version);
        let segment = self.segments.get(place)?;
        (version <= segment.last).then(|| VersionId::new(version, segment.epoch))
    }

    /// Whether the lineage goes through `id`.
    pub(crate) fn owns(&self, id: VersionId) -> bool {
        self.at(id.version) == Some(id)
    }

    /// The stretches of one epoch each, newest first.
    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Why it goes no further down.
    pub(crate) fn end(&self) -> &End {
        &self.end
    }

    /// The error that stands behind a missing run at `version`, where it is a damaged fork.
    pub(crate) fn damage_at(&self, version: Version) -> Option<Error> {
        let End::Damaged(epoch, reason) = &self.end else { return None };
        let lowest = self.segments.last()?;
        (version <= lowest.last).then(|| fork::damaged(*epoch, reason))
    }
}

fn step_down(at: VersionId, forks: &BTreeMap<Epoch, Fork>) -> Result<VersionId, End> {
    match forks.get(&at.epoch) {
        None => Err(End::Gone(at.epoch)),
        Some(Fork::Damaged(reason)) => Err(End::Damaged(at.epoch, reason.clone())),
        Some(Fork::Whole(record)) => {
            let base = record.base.at;
            if base.version < at.version && base.epoch < at.epoch {
                return Ok(base);
            }
            Err(End::Damaged(at.epoch, format!("it builds on {base}, and there is a run for {at}")))
        }
    }
}
