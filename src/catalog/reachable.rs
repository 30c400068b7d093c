//! What retirement may take: only what no retained version, pin or live claim can reach.
//!
//! A retirement announces itself before it deletes, as a commit looks around before it acknowledges:
//! 1. publish `<version>.horizon` ([`Catalog::next_horizon`]): versions below it are given up;
//! 2. list again, and delete what [`Catalog::retire`] finds in **that** listing, in its order.
//!
//! A writer that wants to roll back claims its epoch and lists again. One of the two always sees the other: either the
//! retirement finds the claim and spares its base, or the writer finds the horizon and starts over. Without the
//! announcement a retirement that had listed before the claim could delete the base under a confirmed writer's feet.

use std::collections::BTreeSet;
use std::fmt;

use super::catalogue::Catalog;
use super::fork::{self, Fork};
use super::lineage::{End, Lineage};
use super::name::{FileName, RunName, TemporaryName};
use crate::error::Result;
use crate::version::{Epoch, Version, VersionId};

/// What stays and what goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retirement {
    /// The runs that stay.
    pub(crate) runs: BTreeSet<RunName>,
    /// The forks that stay.
    pub(crate) forks: BTreeSet<Epoch>,
    /// What goes, in the order in which it is to be deleted; it may stop anywhere.
    pub(crate) delete: Vec<Deletion>,
}

/// A file that may be deleted, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deletion {
    pub(crate) file: Doomed,
    pub(crate) reason: Reason,
}

/// A file that may be deleted, displayed as its path within the store's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Doomed {
    Published(FileName),
    Temporary(TemporaryName),
}

impl fmt::Display for Doomed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Published(name) => name.fmt(f),
            Self::Temporary(name) => name.fmt(f),
        }
    }
}

/// Why a file may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// The head's lineage does not go through it, and no live claim builds on it.
    Abandoned,
    /// Only versions below the horizon need it.
    Retired,
    /// A wider run does its work, and the single deltas are still there.
    Subsumed,
    /// Its writer has been overtaken before it published.
    Stale,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abandoned => "the head does not build on it, and no claim does",
            Self::Retired => "only versions that were given up need it",
            Self::Subsumed => "a wider run does its work",
            Self::Stale => "its writer was overtaken before it was published",
        })
    }
}

impl Catalog {
    /// The horizon to announce so that the newest `retain` readable versions (at least the head) stay; `None` where the
    /// one that is already announced says as much.
    pub(crate) fn next_horizon(&self, retain: usize) -> Option<Version> {
        let kept = self.versions().rev().take(retain.max(1)).last()?;
        (kept.version > self.horizon()).then_some(kept.version)
    }

    /// Finds what may be deleted, given that the versions in `pins` are being read. The catalogue must be of a listing
    /// that was begun after the horizon in it had become durable.
    ///
    /// Kept are: every version of the head's lineage from the horizon on, the head, the pins, and the base of every
    /// claim that may still become the head; with all runs on their chains, all single deltas and snapshots above the
    /// snapshot that each of them starts from, and all forks on the way down. Time is O(files), and O(files) again for each pin or claim that lies
    /// on an abandoned lineage.
    ///
    /// # Errors
    /// Where it cannot be known what a live claim builds on, or the head or a pin cannot be made. Then nothing may go.
    pub(crate) fn retire(&self, pins: &[VersionId]) -> Result<Retirement> {
        let mut kept = Kept::default();
        let floor = kept.keep_head(self)?;
        for (epoch, claim) in self.listing().forks.range(self.head().epoch.next()..) {
            kept.forks.insert(*epoch);
            match claim {
                Fork::Damaged(reason) => return Err(fork::damaged(*epoch, reason)),
                // A base that cannot be made any more is one that the claim was never confirmed on.
                Fork::Whole(record) if self.chain(record.base.at, &BTreeSet::new()).is_err() => {}
                Fork::Whole(record) => kept.keep_chain(self, record.base.at)?,
            }
        }
        for pin in pins {
            kept.keep_chain(self, *pin)?;
        }
        kept.keep_unproven(self);
        let delete = doomed(self, &kept, floor);
        Ok(Retirement { runs: kept.runs, forks: kept.forks, delete })
    }
}

#[derive(Debug, Default)]
struct Kept {
    runs: BTreeSet<RunName>,
    forks: BTreeSet<Epoch>,
}

impl Kept {
    /// Keeps what the readable versions need; returns the version at and below which only chains are kept.
    fn keep_head(&mut self, catalog: &Catalog) -> Result<Version> {
        catalog.chain(catalog.head(), &BTreeSet::new())?;
        let mut lowest = catalog.head().version;
        let mut floor = catalog.horizon().min(lowest);
        for id in catalog.versions() {
            // The chains of all versions form a tree, so a run that is kept already has kept all below it.
            for step in catalog.steps().down_from(id.version) {
                if !self.runs.insert(step.run) {
                    break;
                }
            }
            lowest = catalog.steps().find(id.version).map_or(lowest, |step| lowest.min(step.base));
        }
        if let Some(oldest) = catalog.versions().next() {
            floor = catalog.steps().find(oldest.version).map_or(floor, |step| floor.min(step.base));
        }
        // Exact history, and the reason why two retirements at once do no harm: whatever collapsed runs each of them
        // finds superfluous, both leave a chain of these.
        let above = catalog.listing().runs.keys().filter(|run| run.to().version > floor);
        let exact = above.filter(|run| run.is_single() || run.is_snapshot());
        self.runs.extend(exact.filter(|run| catalog.lineage().owns(run.to())));
        self.keep_forks(catalog.lineage(), lowest.min(floor));
        Ok(floor)
    }

    fn keep_chain(&mut self, catalog: &Catalog, at: VersionId) -> Result<()> {
        let chain = catalog.chain(at, &BTreeSet::new())?;
        let lowest = chain.runs().next().filter(RunName::is_snapshot).map_or(Version::EMPTY, |run| run.to().version);
        self.runs.extend(chain.runs());
        let walked;
        let lineage = if catalog.lineage().owns(at) {
            catalog.lineage()
        } else {
            walked = Lineage::of(at, &catalog.listing().forks);
            &walked
        };
        // For the same reason as above the head: once a claim has become the head, another retirement keeps these.
        let leading =
            catalog.listing().runs.keys().filter(|run| lowest < run.to().version && run.to().version <= at.version);
        let exact = leading.filter(|run| run.is_single() || run.is_snapshot());
        self.runs.extend(exact.filter(|run| lineage.owns(run.to())));
        self.keep_forks(lineage, lowest);
        Ok(())
    }

    fn keep_forks(&mut self, lineage: &Lineage, lowest: Version) {
        let on_the_way = lineage.segments().iter().take_while(|segment| segment.last >= lowest);
        self.forks.extend(on_the_way.map(|segment| segment.epoch));
    }

    /// Where a damaged fork hides what some version from the horizon on is made of, nothing below it is proven to be
    /// unreachable.
    fn keep_unproven(&mut self, catalog: &Catalog) {
        let End::Damaged(damaged, _) = catalog.lineage().end() else { return };
        let oldest = catalog.versions().next().map_or(Version::EMPTY, |id| id.version);
        if catalog.horizon() >= oldest {
            return;
        }
        let listing = catalog.listing();
        self.runs.extend(listing.runs.keys().filter(|run| run.to().epoch <= *damaged));
        self.forks.extend(listing.forks.range(..=*damaged).map(|(epoch, _)| *epoch));
    }
}

fn doomed(catalog: &Catalog, kept: &Kept, floor: Version) -> Vec<Deletion> {
    let listing = catalog.listing();
    let published = |file, reason| Deletion { file: Doomed::Published(file), reason };
    // Runs before forks: a run without its fork would be void anyway, but one can then no longer see why.
    let runs = listing.runs.keys().filter(|run| !kept.runs.contains(run));
    let runs = runs.filter_map(|run| Some(published(FileName::Run(*run), reason_for(catalog, run, floor)?)));
    let forks = listing.forks.keys().filter(|epoch| !kept.forks.contains(epoch));
    let forks = forks.map(|epoch| {
        let below = catalog.lineage().segments().iter().any(|segment| segment.epoch == *epoch);
        published(FileName::Fork(*epoch), if below { Reason::Retired } else { Reason::Abandoned })
    });
    let horizons = listing.horizons.iter().filter(|version| **version < catalog.horizon());
    let horizons = horizons.map(|version| published(FileName::Horizon(*version), Reason::Subsumed));
    let stale = listing.temporaries.iter().filter(|temporary| temporary.epoch < catalog.highest_epoch());
    let stale = stale.map(|temporary| Deletion { file: Doomed::Temporary(*temporary), reason: Reason::Stale });
    runs.chain(forks).chain(horizons).chain(stale).collect() // at most the listing
}

/// Why a run that is not kept may go; `None` where that is not proven.
fn reason_for(catalog: &Catalog, run: &RunName, floor: Version) -> Option<Reason> {
    if !catalog.lineage().owns(run.to()) {
        return Some(Reason::Abandoned);
    }
    if run.to().version <= floor {
        return Some(Reason::Retired);
    }
    // The version it makes has a better chain. Without one, the run may be half of an answer that a repair completes.
    catalog.steps().find(run.to().version).map(|_| Reason::Subsumed)
}
