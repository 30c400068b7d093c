//! [`Catalog`]: a listing and what follows from it.

use std::collections::BTreeSet;

use super::chain::{self, Chain, Steps};
use super::lineage::{self, End, Lineage};
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

    /// As it would be once the versions below `horizon` are given up.
    pub(crate) fn giving_up(&self, horizon: Option<Version>) -> Self {
        let mut listing = self.listing.clone();
        listing.horizons.extend(horizon);
        Self::new(listing)
    }

    /// Whether a damaged fork hides what the lineage goes through below it.
    pub(crate) fn is_cut_short(&self) -> bool {
        matches!(self.lineage.end(), End::Damaged(..))
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
        let oldest = self.versions().next().map_or(self.head.version, |id| id.version);
        let id = self.at(version).ok_or_else(|| self.not_readable(version))?;
        if version != Version::EMPTY && version < oldest.min(self.head.version) {
            return Err(self.not_readable(version));
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

    /// The fewest deltas of the head's lineage that lead from `from` to `to`, oldest first, without the `unusable` ones.
    pub(crate) fn deltas(&self, from: Version, to: Version, unusable: &BTreeSet<RunName>) -> Option<Vec<RunName>> {
        chain::deltas_between(&self.lineage, &self.listing.runs, unusable, from, to)
    }

    /// The versions that could be read if the `unusable` runs were gone, in ascending order.
    pub(crate) fn versions_without(&self, unusable: &BTreeSet<RunName>) -> Vec<VersionId> {
        let horizon = self.horizon().min(self.head.version);
        let steps = Steps::over(&self.lineage, &self.listing.runs, unusable);
        steps.iter().map(|step| step.run.to()).filter(|id| id.version >= horizon).collect() // as many as are retained
    }

    /// Whether a run of the lineage overlaps `(from, to]` in part. One more run over these versions would keep both, and all their parts, on
    /// the disk for long.
    pub(crate) fn overlaps_in_part(&self, from: Version, to: Version) -> bool {
        self.overlapping_in_part(from, to).next().is_some()
    }

    /// Where runs that overlap `(from, to]` in part begin or end within it.
    pub(crate) fn cuts(&self, from: Version, to: Version) -> BTreeSet<Version> {
        let edges = self.overlapping_in_part(from, to).flat_map(|run| [run.from(), run.to().version]);
        edges.filter(|edge| from < *edge && *edge < to).collect() // a few
    }

    fn overlapping_in_part(&self, from: Version, to: Version) -> impl Iterator<Item = &RunName> {
        self.listing.runs.iter().filter(move |run| {
            let (low, high) = (run.from(), run.to().version);
            let apart = high <= from || to <= low;
            let nested = (low <= from && to <= high) || (from <= low && high <= to);
            !apart && !nested && self.lineage.owns(run.to())
        })
    }

    /// The runs that lead to `at`, the narrowest first.
    pub(crate) fn leading_to(&self, at: VersionId) -> Vec<RunName> {
        let from_lowest = self.listing.runs.range(RunName::lowest(at)..).copied();
        let mut runs: Vec<RunName> = from_lowest.take_while(|name| name.to() == at).collect(); // a few
        runs.reverse();
        runs
    }

    /// The deltas of the single versions `(from, to]` of the head's lineage, oldest first: what the change feed reads.
    ///
    /// # Errors
    /// `VersionNotFound` above the head; for the first version whose own delta is not there (any more) `Collapsed` with the
    /// readable versions around it, or `Missing` or `Corrupt` where there is none above.
    pub(crate) fn singles(&self, from: Version, to: Version) -> Result<Vec<RunName>> {
        if to > self.head.version {
            return Err(self.not_readable(to));
        }
        let mut singles = Vec::new(); // what was asked for, and never more than there are files
        for version in (from.0..to.0).map(|version| Version(version).next()) {
            let single = self.at(version).map(RunName::single).transpose()?;
            match single.filter(|run| self.listing.runs.contains(run)) {
                Some(run) => singles.push(run),
                None => return Err(self.collapsed(version)),
            }
        }
        Ok(singles)
    }

    fn not_readable(&self, version: Version) -> Error {
        let newest = self.head.version;
        let oldest = self.versions().next().map_or(newest, |id| id.version);
        let kind = ErrorKind::VersionNotFound { requested: version, oldest, newest };
        Error::new(kind, "the version cannot be read")
    }

    /// The error for a version of the head's lineage whose own delta is not there.
    fn collapsed(&self, version: Version) -> Error {
        if let Some(error) = self.lineage.damage_at(version) {
            return error;
        }
        let at = self.at(version).unwrap_or(self.head);
        let above = self.versions().find(|id| id.version >= version);
        let Some(to) = above.map(|id| id.version) else { return chain::gap(version.previous(), at) };
        let below = self.versions().rev().find(|id| id.version < version);
        let from = below.map_or(Version::EMPTY, |id| id.version);
        Error::new(ErrorKind::Collapsed { from, to }, format!("the delta of version {version} is not kept"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::directory::fork_record;
    use super::super::{Fork, Listing, Sparing};
    use super::*;
    use crate::clock::{Clock, SystemClock};

    fn id(version: u64, epoch: u64) -> VersionId {
        VersionId::new(Version(version), Epoch(epoch))
    }

    fn delta(from: u64, to: VersionId) -> RunName {
        RunName::delta(Version(from), to).unwrap()
    }

    fn listing(runs: &[RunName], forks: &[(u64, VersionId)]) -> Listing {
        let forks = forks.iter().map(|(epoch, base)| (Epoch(*epoch), Fork::Whole(fork_record(Epoch(*epoch), *base))));
        Listing { runs: runs.iter().copied().collect(), forks: forks.collect(), ..Listing::default() }
    }

    /// The single deltas of the versions `(from, to]`, all of one epoch.
    fn singles(from: u64, to: u64, epoch: u64) -> Vec<RunName> {
        (from..to).map(|version| delta(version, id(version + 1, epoch))).collect()
    }

    fn missing_file(result: Result<Chain>) -> String {
        match result.unwrap_err().kind() {
            ErrorKind::Missing { file } => file.display().to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_empty_directory_is_version_0() {
        let catalog = Catalog::new(Listing::default());
        assert_eq!((catalog.head(), catalog.versions().count(), catalog.uid()), (VersionId::ROOT, 0, None));
        assert_eq!(catalog.chain(VersionId::ROOT, &BTreeSet::new()).unwrap().runs().count(), 0);
        assert_eq!(catalog.readable(Version(0)).unwrap(), VersionId::ROOT);
        let (requested, none) = (Version(1), Version(0));
        let expected = ErrorKind::VersionNotFound { requested, oldest: none, newest: none };
        assert_eq!(*catalog.readable(requested).unwrap_err().kind(), expected);
    }

    #[test]
    fn the_head_is_seen_by_whatever_run_is_left_of_its_epoch() {
        let base = id(3, 1);
        let mut runs = singles(0, 5, 1);
        let void = Catalog::new(listing(&runs, &[(1, VersionId::ROOT), (2, base)]));
        assert_eq!(void.head(), id(5, 1), "a fork without runs says nothing yet");
        runs.push(RunName::snapshot(id(4, 2)).unwrap());
        let catalog = Catalog::new(listing(&runs, &[(1, VersionId::ROOT), (2, base)]));
        assert_eq!(catalog.head(), id(4, 2));
        assert_eq!((catalog.at(Version(4)), catalog.at(Version(3))), (Some(id(4, 2)), Some(base)));
        assert!(!catalog.lineage().owns(id(5, 1)) && !catalog.lineage().owns(id(4, 1)));
        assert_eq!(catalog.versions().collect::<Vec<_>>(), [id(1, 1), id(2, 1), id(3, 1), id(4, 2)]);
    }

    #[test]
    fn a_chain_is_split_above_its_last_collapsed_run() {
        let mut runs = singles(0, 9, 1);
        runs.extend([RunName::snapshot(id(2, 1)).unwrap(), delta(2, id(4, 1)), delta(5, id(7, 1))]);
        let catalog = Catalog::new(listing(&runs, &[(1, VersionId::ROOT)]));
        let chain = catalog.chain(id(9, 1), &BTreeSet::new()).unwrap();
        assert_eq!(
            chain.base,
            [RunName::snapshot(id(2, 1)).unwrap(), delta(2, id(4, 1)), delta(4, id(5, 1)), delta(5, id(7, 1))]
        );
        assert_eq!(chain.singles, singles(7, 9, 1));
        assert_eq!(chain.base_version(), Version(7));
        let without = catalog.chain(id(9, 1), &BTreeSet::from([delta(5, id(7, 1)), delta(2, id(4, 1))])).unwrap();
        assert_eq!((without.base_version(), without.singles.len()), (Version(2), 7));
    }

    #[test]
    fn a_missing_run_is_named_with_the_versions_it_should_cover() {
        let mut runs = singles(0, 9, 1);
        runs.retain(|run| *run != delta(4, id(5, 1)));
        runs.push(delta(6, id(8, 1)));
        let catalog = Catalog::new(listing(&runs, &[(1, VersionId::ROOT)]));
        assert_eq!(missing_file(catalog.chain(id(9, 1), &BTreeSet::new())), delta(4, id(5, 1)).to_string());
        assert_eq!(missing_file(catalog.chain(id(5, 1), &BTreeSet::new())), delta(4, id(5, 1)).to_string());
        catalog.chain(id(4, 1), &BTreeSet::new()).unwrap();
        assert!(matches!(catalog.readable(Version(9)).unwrap_err().kind(), ErrorKind::Missing { .. }));
        assert!(matches!(catalog.singles(Version(3), Version(9)).unwrap_err().kind(), ErrorKind::Missing { .. }));
        assert_eq!(catalog.singles(Version(5), Version(7)).unwrap(), singles(5, 7, 1));
        assert!(catalog.retire(&Sparing::default()).is_err(), "where the head cannot be made, nothing may go");
    }

    #[test]
    fn where_single_deltas_are_gone_the_finest_range_still_known_is_named() {
        let mut runs = singles(0, 12, 1);
        runs.retain(|run| !(2..=7).contains(&run.to().version.0));
        runs.extend([delta(1, id(4, 1)), delta(4, id(7, 1)), delta(1, id(7, 1)), RunName::snapshot(id(9, 1)).unwrap()]);
        let catalog = Catalog::new(listing(&runs, &[(1, VersionId::ROOT)]));
        let collapsed = |from, to| match catalog.singles(Version(from), Version(to)).unwrap_err().kind() {
            ErrorKind::Collapsed { from, to } => (from.0, to.0),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            (collapsed(0, 12), collapsed(2, 3), collapsed(4, 12), collapsed(6, 8)),
            ((1, 4), (1, 4), (4, 7), (4, 7))
        );
        assert_eq!(catalog.singles(Version(7), Version(12)).unwrap(), singles(7, 12, 1));
        assert_eq!(catalog.singles(Version(5), Version(5)).unwrap(), []);
        let above = catalog.singles(Version(11), Version(13)).unwrap_err();
        assert!(matches!(above.kind(), ErrorKind::VersionNotFound { .. }), "{above}");
        assert_eq!(
            catalog.deltas(Version(1), Version(8), &BTreeSet::new()).unwrap(),
            [delta(1, id(7, 1)), delta(7, id(8, 1))]
        );
        assert_eq!(catalog.deltas(Version(4), Version(7), &BTreeSet::new()).unwrap(), [delta(4, id(7, 1))]);
        assert_eq!(catalog.deltas(Version(8), Version(8), &BTreeSet::new()).unwrap(), []);
        assert_eq!(catalog.deltas(Version(2), Version(8), &BTreeSet::new()), None);
    }

    #[test]
    fn a_damaged_fork_is_an_error_only_where_the_answer_needs_it() {
        let mut runs = singles(0, 3, 1);
        runs.extend(singles(3, 6, 2));
        let mut files = listing(&runs, &[(1, VersionId::ROOT), (2, id(3, 1))]);
        files.forks.insert(Epoch(2), Fork::Damaged("a test".into()));
        let catalog = Catalog::new(files.clone());
        assert_eq!(catalog.head(), id(6, 2));
        assert!(catalog.chain(id(6, 2), &BTreeSet::new()).unwrap_err().is_corrupt());
        assert!(catalog.readable(Version(5)).is_err());
        files.runs.insert(RunName::snapshot(id(5, 2)).unwrap());
        let catalog = Catalog::new(files.clone());
        assert_eq!(catalog.versions().collect::<Vec<_>>(), [id(5, 2), id(6, 2)]);
        assert_eq!(catalog.highest_epoch(), Epoch(2), "the number is taken");
        let kept = catalog.retire(&Sparing::default()).unwrap();
        assert_eq!(kept.delete, [], "what lies below is not proven to be unreachable: the fork may be repaired");
        files.forks.insert(Epoch(3), Fork::Damaged("a test".into()));
        assert!(
            Catalog::new(files).retire(&Sparing::default()).unwrap_err().is_corrupt(),
            "nobody knows what that writer builds on"
        );
    }

    #[test]
    fn a_store_whose_forks_are_lost_can_still_be_read_from_its_snapshot_on() {
        let mut runs = singles(3, 6, 2);
        runs.push(RunName::snapshot(id(4, 2)).unwrap());
        let catalog = Catalog::new(listing(&runs, &[]));
        assert_eq!(catalog.versions().collect::<Vec<_>>(), [id(4, 2), id(5, 2), id(6, 2)]);
        assert_eq!(catalog.highest_epoch(), Epoch(2), "no epoch is given out twice");
        assert_eq!(missing_file(catalog.chain(id(3, 2), &BTreeSet::new())), delta(0, id(3, 2)).to_string());
    }

    #[test]
    fn retirement_keeps_what_a_live_claim_builds_on_an_abandoned_branch() {
        // Epoch 1 made 1 to 5; epoch 3 claimed version 5 and hangs; epoch 2 had rolled back to 2 and commits now.
        let mut runs = singles(0, 5, 1);
        runs.extend(singles(2, 4, 2));
        let hanging = [(1, VersionId::ROOT), (2, id(2, 1)), (3, id(5, 1))];
        let catalog = Catalog::new(listing(&runs, &hanging));
        assert_eq!(catalog.head(), id(4, 2));
        assert_eq!(catalog.retire(&Sparing::default()).unwrap().delete, []);
        let gone: Vec<_> = Catalog::new(listing(&runs, &hanging[..2])).retire(&Sparing::default()).unwrap().delete;
        let gone: Vec<_> = gone.iter().map(|deletion| deletion.file.to_string()).collect();
        assert_eq!(gone, singles(2, 5, 1).iter().map(ToString::to_string).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_retired_by_a_listing_whose_forks_went_after_its_runs_were_listed() {
        // Epoch 2 had committed 4 and 5 on top of 3, with a snapshot. Then epoch 3 rolled back to 3, and another retirement took what epoch 2
        // had made: its runs, and its fork, while this listing had the runs and was about to list the forks.
        let mut runs = singles(0, 3, 1);
        runs.extend(singles(3, 5, 2));
        runs.push(RunName::snapshot(id(5, 2)).unwrap());
        let torn = Catalog::new(listing(&runs, &[(1, VersionId::ROOT), (3, id(3, 1))]));
        assert_eq!(torn.head(), id(5, 2));
        let error = torn.retire(&Sparing::default()).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Missing { .. }), "{error}");
        // By itself a fork goes only with what lies below the horizon: then there is nothing to be seen below it.
        let mut retired = listing(&runs[3..], &[(2, id(3, 1))]);
        retired.horizons.insert(Version(5));
        assert!(Catalog::new(retired).retire(&Sparing::default()).is_ok());
    }

    #[test]
    fn a_horizon_is_announced_only_where_it_gives_a_version_up() {
        let next = |runs: &[RunName], horizon: u64, retain| {
            let mut files = listing(runs, &[(1, VersionId::ROOT)]);
            files.horizons.extend(Some(Version(horizon)).filter(|horizon| *horizon > Version::EMPTY));
            Catalog::new(files).next_horizon(retain)
        };
        let three = singles(0, 3, 1);
        assert_eq!((next(&three, 0, 100), next(&three, 0, 4), next(&three, 0, 3)), (None, None, None));
        assert_eq!((next(&three, 0, 2), next(&three, 0, 1)), (Some(Version(2)), Some(Version(3))));
        assert_eq!(next(&three, 0, 0), Some(Version(3)), "the head stays");
        assert_eq!((next(&three, 2, 2), next(&three, 2, 3), next(&three, 2, 1)), (None, None, Some(Version(3))));
        assert_eq!(next(&[], 0, 1), None);
        let started_from_an_export = [RunName::snapshot(id(12, 1)).unwrap()];
        assert_eq!((next(&started_from_an_export, 0, 1), next(&started_from_an_export, 0, 9)), (None, None));
    }

    #[test]
    fn a_hundred_thousand_runs_are_judged_in_time() {
        let runs = (1..=100_000u64).map(|version| RunName::single(id(version, 1 + version / 1000)).unwrap());
        let names: Vec<String> = runs.map(|run| run.to_string()).collect();
        let mut files = Listing::of(names.iter().map(String::as_str));
        for epoch in 1..=101 {
            let base = if epoch == 1 { VersionId::ROOT } else { id((epoch - 1) * 1000 - 1, epoch - 1) };
            files.forks.insert(Epoch(epoch), Fork::Whole(fork_record(Epoch(epoch), base)));
        }
        let clock = SystemClock::new();
        let catalog = Catalog::new(files.clone());
        let made = clock.elapsed();
        assert_eq!(catalog.versions().count(), 100_000);
        let chain = catalog.chain(catalog.head(), &BTreeSet::new()).unwrap();
        let chained = clock.elapsed();
        assert_eq!(chain.singles.len(), 100_000);
        let around = BTreeSet::from([delta(99_000, id(99_001, 100))]);
        let missed = catalog.chain(catalog.head(), &around).unwrap_err();
        let retired = catalog.retire(&Sparing::default()).unwrap();
        eprintln!("catalogue {made:?}, chain {:?}, all {:?}: {missed}", chained.saturating_sub(made), clock.elapsed());
        assert_eq!(retired.delete, []);
        // Generous, for busy machines without optimisation; anything quadratic takes minutes.
        assert!(clock.elapsed().as_secs() < 20);
    }
}
