//! Which runs make a version: the newest usable snapshot, then the fewest deltas above it.

use std::collections::{BTreeMap, BTreeSet};

use super::lineage::Lineage;
use super::name::RunName;
use crate::error::{Error, ErrorKind};
use crate::version::{Version, VersionId};

/// The runs that make one version, in the order in which they are laid on top of each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Chain {
    /// The version that the chain makes.
    pub(crate) at: VersionId,
    /// What reads fall through to, oldest first: the snapshot, and everything up to the last collapsed delta.
    pub(crate) base: Vec<RunName>,
    /// The single deltas above the base, oldest first: what is replayed into a generation.
    pub(crate) singles: Vec<RunName>,
}

impl Chain {
    fn split(at: VersionId, runs: Vec<RunName>) -> Self {
        let bottom = runs.iter().rposition(|run| !run.is_single()).map_or(0, |last| last + 1);
        let mut base = runs;
        let singles = base.split_off(bottom);
        Self { at, base, singles }
    }

    /// All runs, oldest first.
    #[cfg(test)]
    pub(crate) fn runs(&self) -> impl Iterator<Item = RunName> {
        self.base.iter().chain(&self.singles).copied()
    }

    /// The version that the base alone makes.
    #[cfg(test)]
    pub(crate) fn base_version(&self) -> Version {
        self.base.last().map_or(Version::EMPTY, |run| run.to().version)
    }
}

/// The best last step to every version of a lineage that can be reached at all: the tree of all its chains.
///
/// One pass over the runs in ascending order. A chain is better the newer its snapshot, then the fewer its runs; adding a
/// run to two chains keeps their order, so that the best chain to a version ends in a step from a best chain.
#[derive(Debug, Clone, Default)]
pub(crate) struct Steps(Vec<Step>);

/// The last run of the best chain to a version, and what makes it the best.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) run: RunName,
    /// The version of the snapshot that the chain starts with; 0 without one.
    pub(crate) base: Version,
    /// How many runs the chain has.
    length: u64,
}

impl Step {
    pub(crate) fn version(&self) -> Version {
        self.run.to().version
    }

    fn is_better_than(&self, other: &Self) -> bool {
        // The last component only makes the choice repeatable.
        let rank = |step: &Self| (std::cmp::Reverse(step.base), step.length, step.run.from());
        rank(self) < rank(other)
    }
}

impl Steps {
    /// Finds the best chains over those `runs` that belong to `lineage`, without the unusable ones.
    pub(crate) fn over(lineage: &Lineage, runs: &BTreeSet<RunName>, unusable: &BTreeSet<RunName>) -> Self {
        let mut steps = Self::default();
        // `RunName` sorts by the version it makes, so whatever a run starts from is already settled.
        for run in runs.iter().filter(|run| lineage.owns(run.to()) && !unusable.contains(run)) {
            if let Some(step) = steps.extended_by(*run) {
                steps.offer(step);
            }
        }
        steps
    }

    fn extended_by(&self, run: RunName) -> Option<Step> {
        if run.is_snapshot() {
            return Some(Step { run, base: run.to().version, length: 1 });
        }
        if run.from() == Version::EMPTY {
            return Some(Step { run, base: Version::EMPTY, length: 1 });
        }
        let below = self.find(run.from())?;
        Some(Step { run, base: below.base, length: below.length.saturating_add(1) })
    }

    fn offer(&mut self, step: Step) {
        match self.0.last_mut().filter(|last| last.version() == step.version()) {
            Some(last) if step.is_better_than(last) => *last = step,
            Some(_) => {}
            None => self.0.push(step),
        }
    }

    /// The step to `version`, if a chain to it exists.
    pub(crate) fn find(&self, version: Version) -> Option<&Step> {
        let place = self.0.binary_search_by_key(&version, Step::version).ok()?;
        self.0.get(place)
    }

    /// All versions that a chain exists for, in ascending order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Step> {
        self.0.iter()
    }

    /// The steps from `version` down to where its chain starts, newest first.
    pub(crate) fn down_from(&self, version: Version) -> impl Iterator<Item = &Step> {
        std::iter::successors(self.find(version), |step| {
            if step.run.is_snapshot() { None } else { self.find(step.run.from()) }
        })
    }

    /// The chain to `at`, where there is one.
    pub(crate) fn chain(&self, at: VersionId) -> Option<Chain> {
        let mut runs: Vec<RunName> = self.down_from(at.version).map(|step| step.run).collect(); // one chain
        if runs.is_empty() && at != VersionId::ROOT {
            return None;
        }
        runs.reverse();
        Some(Chain::split(at, runs))
    }

    /// The highest version below `version` that a chain exists for.
    fn highest_below(&self, version: Version) -> Version {
        let place = self.0.partition_point(|step| step.version() < version);
        place.checked_sub(1).and_then(|place| self.0.get(place)).map_or(Version::EMPTY, Step::version)
    }
}

/// Says which stretch of versions no file fits, where there is no chain to `at`.
pub(crate) fn missing(
    at: VersionId,
    lineage: &Lineage,
    runs: &BTreeSet<RunName>,
    unusable: &BTreeSet<RunName>,
    steps: &Steps,
) -> Error {
    // The versions from which one can go on to `at`; the lowest of them is where the hole ends.
    let mut onwards = BTreeSet::from([at.version]);
    for run in runs.iter().rev().filter(|run| !run.is_snapshot() && !unusable.contains(run)) {
        if lineage.owns(run.to()) && onwards.contains(&run.to().version) {
            onwards.insert(run.from());
        }
    }
    let end = onwards.first().copied().unwrap_or(at.version);
    let start = steps.highest_below(end);
    if let Some(error) = lineage.damage_at(end) {
        return error;
    }
    let end = lineage.at(end).unwrap_or(at);
    gap(start, end).context(format!("version {at} cannot be made"))
}

/// The error for versions that no file covers.
pub(crate) fn gap(from: Version, to: VersionId) -> Error {
    let file = RunName::delta(from, to).map_or_else(|_| to.to_string(), |run| run.to_string()).into();
    Error::new(ErrorKind::Missing { file }, format!("no usable file covers the versions ({from}, {}]", to.version))
}

/// The fewest deltas that lead from `from` to `to` along a lineage, oldest first, without the unusable ones; `None` where none do.
pub(crate) fn deltas_between(
    lineage: &Lineage,
    runs: &BTreeSet<RunName>,
    unusable: &BTreeSet<RunName>,
    from: Version,
    to: Version,
) -> Option<Vec<RunName>> {
    // The fewest to each version, and the last of them. `RunName` sorts by the version it makes.
    let mut best: BTreeMap<Version, (u64, RunName)> = BTreeMap::new();
    let within = runs.iter().filter(|run| !run.is_snapshot() && run.from() >= from && run.to().version <= to);
    for run in within.filter(|run| lineage.owns(run.to()) && !unusable.contains(run)) {
        let below = if run.from() == from { Some(0) } else { best.get(&run.from()).map(|(count, _)| *count) };
        let Some(count) = below.map(|below| below.saturating_add(1)) else { continue };
        if best.get(&run.to().version).is_none_or(|(most, _)| count < *most) {
            best.insert(run.to().version, (count, *run));
        }
    }
    let mut chain = Vec::new(); // one stretch
    let mut at = to;
    while at > from {
        let (_, run) = best.get(&at)?;
        chain.push(*run);
        at = run.from();
    }
    chain.reverse();
    Some(chain)
}
