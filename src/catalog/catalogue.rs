//! [`Catalog`]: a listing and what follows from it.

use std::collections::BTreeSet;

use super::chain::{self, Chain, Steps};
use super::lineage::{self, Lineage};
use super::listing::Listing;
use super::name::RunName;
use crate::error::{Error, ErrorKind, Result};
use crate::version::{Epoch, StoreUid, Version, VersionId};

/// A listing with its head, its lineage and the chains to all versions. A pure function of the listing; O(files) to make.
#[derive(Debug, Clone)]
pub(crate) struct Catalog {
    listing: Listing,
    head: VersionId,
    lineage: Lineage,
    steps: Steps,
}

impl Catalog {
    /// Judges a listing. Never fails: what is missing or damaged fails the answers that need it.
    pub(crate) fn new(listing: Listing) -> Self {
        let head = lineage::head(&listing);
        let lineage = Lineage::of(head, &listing.forks);
        let steps = Steps::over(&lineage, &listing.runs, &BTreeSet::new());
        Self { listing, head, lineage, steps }
    }

    /// The listing.
    pub(crate) fn listing(&self) -> &Listing {
        &self.listing
    }

    /// The newest version that counts.
    pub(crate) fn head(&self) -> VersionId {
        self.head
    }

    /// What lies below the head.
    pub(crate) fn lineage(&self) -> &Lineage {
        &self.lineage
    }

    pub(super) fn steps(&self) -> &Steps {
        &self.steps
    }

    /// The store's uid, as the oldest readable fork has it; `None` before the first claim.
    pub(crate) fn uid(&self) -> Option<StoreUid> {
        self.listing.forks.values().find_map(|fork| match fork {
            super::fork::Fork::Whole(record) => Some(record.uid),
            super::fork::Fork::Damaged(_) => None,
        })
    }

    /// The highest epoch that anything here belongs to: claimed, or (where forks were lost) used by a run.
    pub(crate) fn highest_epoch(&self) -> Epoch {
        let claimed = self.listing.forks.keys().next_back().copied().unwrap_or_default();
        claimed.max(self.head.epoch)
    }

    /// The version below which everything has been given up for deletion.
    pub(crate) fn horizon(&self) -> Version {
        self.listing.horizons.last().copied().unwrap_or_default()
    }

    /// The version with this number on the head's lineage.
    pub(crate) fn at(&self, version: Version) -> Option<VersionId> {
        self.lineage.at(version)
    }

    /// The versions that can be read, in ascending order: those of the head's lineage that a chain exists for and that
    /// have not been given up. Version 0, which needs no file, is not among them.
    pub(crate) fn versions(&self) -> impl DoubleEndedIterator<Item = VersionId> {
        let horizon = self.horizon().min(self.head.version);
        self.steps.iter().map(|step| step.run.to()).filter(move |id| id.version >= horizon)
    }

    /// The version `version` of the head's lineage, if it can be read; 0 always can.
    ///
    /// # Errors
    /// `VersionNotFound` where it is too old or too new, `Missing` or `Corrupt` where a file that it needs is not usable.
    pub(crate) fn readable(&self, version: Version) -> Result<VersionId> {
        let newest = self.head.version;
        let oldest = self.versions().next().map_or(newest, |id| id.version);
        let not_found = || {
            let kind = ErrorKind::VersionNotFound { requested: version, oldest, newest };
            Error::new(kind, "the version cannot be read")
        };
        let id = self.at(version).ok_or_else(not_found)?;
        if version != Version::EMPTY && version < oldest.min(newest) {
            return Err(not_found());
        }
        self.chain(id, &BTreeSet::new()).map(|_| id)
    }

    /// The runs that make `at`, without those that were found to be `unusable`. `at` may lie on an abandoned lineage.
    ///
    /// # Errors
    /// `Missing` with the stretch of versions that no file fits; `Corrupt` where that is because a fork is damaged.
    pub(crate) fn chain(&self, at: VersionId, unusable: &BTreeSet<RunName>) -> Result<Chain> {
        if unusable.is_empty() && self.lineage.owns(at) {
            let chain = self.steps.chain(at);
            return chain.ok_or_else(|| chain::missing(at, &self.lineage, &self.listing.runs, unusable, &self.steps));
        }
        let lineage = Lineage::of(at, &self.listing.forks);
        let steps = Steps::over(&lineage, &self.listing.runs, unusable);
        steps.chain(at).ok_or_else(|| chain::missing(at, &lineage, &self.listing.runs, unusable, &steps))
    }

    /// The runs that lead to `at`, the narrowest first.
    pub(crate) fn leading_to(&self, at: VersionId) -> Vec<RunName> {
        let from_lowest = self.listing.runs.range(RunName::lowest(at)..).map(|(name, _)| *name);
        let mut runs: Vec<RunName> = from_lowest.take_while(|name| name.to() == at).collect(); // a few
        runs.reverse();
        runs
    }

    /// The deltas of the single versions `(from, to]`, oldest first: what the change feed reads.
    ///
    /// # Errors
    /// `Missing` for the first version whose own delta is not there (any more).
    pub(crate) fn singles(&self, from: Version, to: VersionId) -> Result<Vec<RunName>> {
        let walked;
        let lineage = if self.lineage.owns(to) {
            &self.lineage
        } else {
            walked = Lineage::of(to, &self.listing.forks);
            &walked
        };
        let mut singles = Vec::new(); // what was asked for, and never more than there are files
        for version in (from.0..to.version.0).map(|version| Version(version).next()) {
            let id = lineage.at(version).ok_or_else(|| chain::gap(version.previous(), to))?;
            let run = RunName::single(id)?;
            if !self.listing.runs.contains_key(&run) {
                return Err(lineage.damage_at(version).unwrap_or_else(|| chain::gap(version.previous(), id)));
            }
            singles.push(run);
        }
        Ok(singles)
    }
}
