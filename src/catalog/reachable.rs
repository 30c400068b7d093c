//! What retirement may take: only what no retained version, pin or live claim can reach.
//!
//! A retirement announces itself before it deletes, as a commit looks around before it acknowledges:
//! 1. publish `<version>.horizon` ([`Catalog::next_horizon`]): versions below it are given up;
//! 2. list again, and delete what [`Catalog::retire`] finds in **that** listing, in its order.
//!
//! A writer that wants to roll back claims its epoch and lists again. One of the two always sees the other: either the
//! retirement finds the claim and spares its base, or the writer finds the horizon and starts over. Without the
//! announcement a retirement that had listed before the claim could delete the base under a confirmed writer's feet.
//!
//! **Two retirements at once** know nothing of each other, and their listings differ. So a run goes only where a *wider* run
//! holds all of it, which is *clean*: no other run overlaps it in part. Runs overlap in part only where two maintainers made them
//! side by side, and of two such runs one is seen first: so those that anything was ever deleted for are nested or apart,
//! and together with the single deltas between them they make every kept version (`docs/decisions/0007`).

use std::collections::BTreeSet;
use std::fmt;

use super::catalogue::Catalog;
use super::fork::{self, Fork};
use super::lineage::{End, Lineage};
use super::name::{FileName, RunName, TemporaryName};
use crate::error::{Error, ErrorKind, Result};
use crate::version::{Epoch, Version, VersionId};

/// What stays whatever the horizon says, and what must not be relied upon.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sparing {
    /// Versions that are being read.
    pub(crate) pins: Vec<VersionId>,
    /// The single deltas of so many of the newest versions stay, also of versions that can no longer be read.
    pub(crate) changes: u64,
    /// Runs that are damaged, or that another listing showed: nothing goes because one of these is there.
    pub(crate) doubtful: BTreeSet<RunName>,
}

/// Of so many ends of runs that overlap in part one is likely to lie within no other.
const MOST_ENDS: usize = 64;

/// The versions `(from, to]`, over which runs lie that overlap in part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tangle {
    pub(crate) from: Version,
    pub(crate) to: VersionId,
    /// The snapshots that overlap others in part.
    pub(crate) snapshots: usize,
    /// All runs within.
    pub(crate) files: usize,
}

/// What stays and what goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Retirement {
    /// The runs that stay.
    pub(crate) runs: BTreeSet<RunName>,
    /// The forks that stay.
    pub(crate) forks: BTreeSet<Epoch>,
    /// What goes, in the order in which it is to be deleted; it may stop anywhere.
    pub(crate) delete: Vec<Deletion>,
    /// The runs that others go for the sake of: look at them before anything goes.
    pub(crate) relied_on: BTreeSet<RunName>,
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

impl Doomed {
    /// The run, if it is one.
    pub(crate) fn run(&self) -> Option<RunName> {
        if let Self::Published(FileName::Run(run)) = self { Some(*run) } else { None }
    }

    /// Whether it is an announcement.
    pub(crate) fn is_horizon(&self) -> bool {
        matches!(self, Self::Published(FileName::Horizon(_)))
    }
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
    /// A later announcement says as much.
    Outdone,
    /// Its writer has been overtaken before it published.
    Stale,
    /// Its writer has ended before it published.
    Unfinished,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abandoned => "the head does not build on it, and no claim does",
            Self::Retired => "only versions that were given up need it",
            Self::Subsumed => "a wider run does its work",
            Self::Outdone => "a later announcement says as much",
            Self::Stale => "its writer was overtaken before it was published",
            Self::Unfinished => "its writer ended before it was published",
        })
    }
}

impl Catalog {
    /// The temporaries that were begun under the newest claim: their writers are at work, or were killed, which the names do not tell.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = Deletion> {
        let begun = self.listing().temporaries.iter().filter(|temporary| temporary.epoch >= self.highest_epoch());
        begun.map(|temporary| Deletion { file: Doomed::Temporary(*temporary), reason: Reason::Unfinished })
    }

    /// The horizon to announce so that the newest `retain` readable versions (at least the head) stay; `None` where no readable
    /// version lies below them, so that there is nothing to give up.
    pub(crate) fn next_horizon(&self, retain: usize) -> Option<Version> {
        let mut newest_first = self.lasting().skip(retain.max(1) - 1);
        let (kept, _given_up) = (newest_first.next()?, newest_first.next()?);
        (kept.version > self.horizon()).then_some(kept.version)
    }

    /// The readable versions that no live claim leaves behind, the newest first: one above them was made by a writer that has been fenced, and
    /// counts only until the claimant's first commit. None where it cannot be known what a claim builds on.
    pub(crate) fn lasting(&self) -> impl Iterator<Item = VersionId> {
        let lowest = self.claims().map(|bases| bases.iter().map(|base| base.version).min());
        let newest = lowest.map_or(Version::EMPTY, |lowest| lowest.unwrap_or(self.head().version));
        self.versions().rev().filter(move |id| id.version <= newest)
    }

    /// Finds what may be deleted. The catalogue must be of a listing that was begun after the horizon in it had become durable.
    ///
    /// Kept are: every version of the head's lineage from the horizon on, the head, the pins, and the base of every
    /// claim that may still become the head; with what makes them, and all forks on the way down. Above the oldest kept version
    /// every run stays; at and below it goes what lies within a wider clean run. Time is O(files · log files), and O(files) again
    /// for each pin or claim that lies on an abandoned lineage.
    ///
    /// # Errors
    /// Where it cannot be known what a live claim builds on, or the head or a pin cannot be made; `Missing` for a fork that went while the listing
    /// was made. Then nothing may go.
    pub(crate) fn retire(&self, sparing: &Sparing) -> Result<Retirement> {
        self.chain(self.head(), &BTreeSet::new())?;
        let mut points = self.claims()?;
        for pin in &sparing.pins {
            self.chain(*pin, &BTreeSet::new())?;
            points.push(*pin);
        }
        // Whatever lies above the horizon stays anyway. Not above the oldest version that can be made: in a listing that was
        // overtaken by another retirement, the files of some versions show neither as they were nor as they are.
        let oldest = self.horizon().min(self.head().version);
        self.check_forks(oldest)?;
        points.retain(|point| !self.lineage().owns(*point) || point.version < oldest);
        points.extend(self.at(oldest));
        let mut kept = Kept::default();
        kept.forks.extend(self.listing().forks.range(self.head().epoch.next()..).map(|(epoch, _)| *epoch));
        let (ours, others): (Vec<_>, Vec<_>) = points.into_iter().partition(|point| self.lineage().owns(*point));
        let main = Layout::of(self, self.lineage(), ours.iter().map(|id| id.version), &sparing.doubtful);
        kept.keep(self, self.lineage(), &main, Some(sparing.changes));
        let mut abandoned = Vec::new(); // a few claims
        for point in others {
            let lineage = Lineage::of(point, &self.listing().forks);
            let layout = Layout::of(self, &lineage, std::iter::once(point.version), &sparing.doubtful);
            kept.keep(self, &lineage, &layout, None);
            abandoned.push(layout);
        }
        kept.keep_unproven(self);
        let delete = doomed(self, &kept, &main);
        let gone: Vec<RunName> = delete.iter().filter_map(|deletion| deletion.file.run()).collect(); // at most the listing
        let layouts = std::iter::once(&main).chain(&abandoned);
        let stand_ins = layouts.flat_map(|layout| gone.iter().filter_map(|run| layout.stand_in(run)));
        let relied_on = stand_ins.filter(|wide| kept.runs.contains(wide)).collect();
        Ok(Retirement { runs: kept.runs, forks: kept.forks, delete, relied_on })
    }

    /// Forks are listed after the runs. Where one has gone in between, since the lineage that the runs show was abandoned meanwhile, all below
    /// it would seem to be abandoned too. A fork goes by itself only with all that lies below the horizon, never that of a version above.
    fn check_forks(&self, oldest: Version) -> Result<()> {
        let End::Gone(epoch) = self.lineage().end() else { return Ok(()) };
        if self.lineage().segments().last().is_none_or(|segment| segment.last < oldest) {
            return Ok(());
        }
        let file = FileName::Fork(*epoch).to_string().into();
        Err(Error::new(
            ErrorKind::Missing { file },
            "the versions that it leads to were abandoned meanwhile; look again",
        ))
    }

    /// Stretches up to `up_to` that nothing goes within, for runs that overlap in part: as far as these reach into one another, unless one
    /// clean run holds them all already. A run over just such a stretch is clean, and all within it may go for its sake.
    pub(crate) fn tangles(&self, up_to: Version) -> Vec<Tangle> {
        let wide = widest_first(self.listing().runs.iter().filter(|run| self.lineage().owns(run.to())));
        let ragged = overlapping_in_part(&wide);
        let below = ragged.iter().filter_map(|place| wide.get(*place)).filter(|run| run.to().version <= up_to);
        let mut tangles: Vec<Vec<RunName>> = Vec::new(); // what maintainers have made side by side
        let mut end = Version::EMPTY;
        for run in below {
            match tangles.last_mut().filter(|_| run.from() < end) {
                Some(last) => last.push(*run),
                None => tangles.push(vec![*run]),
            }
            end = end.max(run.to().version);
        }
        let clean: Vec<RunName> =
            wide.iter().enumerate().filter(|(place, _)| !ragged.contains(place)).map(|(_, run)| *run).collect(); // the listing
        tangles.iter().filter_map(|runs| self.untied(runs, &clean)).collect() // at most as many
    }

    /// As much of these ragged runs as no other reaches out of.
    fn untied(&self, runs: &[RunName], clean: &[RunName]) -> Option<Tangle> {
        let from = runs.first()?.from();
        let mut ends: Vec<VersionId> = runs.iter().map(RunName::to).collect(); // as many as the runs
        ends.sort_unstable_by_key(|end| std::cmp::Reverse(end.version));
        let is_held = |to: Version| clean.iter().any(|run| run.from() <= from && to <= run.to().version);
        if is_held(ends.first()?.version) {
            return None;
        }
        let to = ends.into_iter().take(MOST_ENDS).find(|end| !self.overlaps_in_part(from, end.version))?;
        if is_held(to.version) {
            return None;
        }
        let is_within = |run: &&RunName| from <= run.from() && run.to().version <= to.version;
        let snapshots = runs.iter().filter(|run| is_within(run) && run.is_snapshot()).count();
        let files = self.listing().runs.iter().filter(|run| self.lineage().owns(run.to())).filter(is_within).count();
        Some(Tangle { from, to, snapshots, files })
    }

    /// The versions that live claims build on, wherever they lie.
    fn claims(&self) -> Result<Vec<VersionId>> {
        let mut bases = Vec::new(); // one a writer that has claimed and not committed
        for claim in self.listing().forks.range(self.head().epoch.next()..).map(|(epoch, claim)| (*epoch, claim)) {
            match claim {
                (epoch, Fork::Damaged(reason)) => return Err(fork::damaged(epoch, reason)),
                // A base that cannot be made any more is one that the claim was never confirmed on.
                (_, Fork::Whole(record)) if self.chain(record.base.at, &BTreeSet::new()).is_err() => {}
                (_, Fork::Whole(record)) => bases.push(record.base.at),
            }
        }
        Ok(bases)
    }
}

/// The runs of one lineage, and the versions of it that have to be made from them.
struct Layout {
    /// The versions that must stay, ascending; above the last of them everything stays.
    points: Vec<Version>,
    /// The clean runs of more than one version, by the version they start from, then the widest first.
    clean: Vec<RunName>,
    /// For each place in `clean`, the one that contains it most narrowly.
    outer: Vec<Option<usize>>,
}

impl Layout {
    fn of(
        catalog: &Catalog,
        lineage: &Lineage,
        points: impl Iterator<Item = Version>,
        doubtful: &BTreeSet<RunName>,
    ) -> Self {
        let points: BTreeSet<Version> = points.filter(|version| *version > Version::EMPTY).collect(); // a few
        let listed = catalog.listing().runs.iter().filter(|run| lineage.owns(run.to()));
        let seen_before = doubtful.iter().filter(|run| lineage.owns(run.to()));
        let wide = widest_first(listed.chain(seen_before));
        let ragged = overlapping_in_part(&wide);
        let is_clean = |place: &usize, run: &RunName| !ragged.contains(place) && !doubtful.contains(run);
        let clean: Vec<RunName> =
            wide.iter().enumerate().filter(|(place, run)| is_clean(place, run)).map(|(_, run)| *run).collect();
        let outer = nesting(&clean);
        Self { points: points.into_iter().collect(), clean, outer }
    }

    /// The wider clean run that does the work of `run` for every version that must stay; `None` where there is none.
    fn stand_in(&self, run: &RunName) -> Option<RunName> {
        // The lowest version to be made that lies at or above it is the hardest to please.
        let point = self.points.get(self.points.partition_point(|point| *point < run.to().version))?;
        let after = self.clean.partition_point(|wide| {
            (wide.from(), std::cmp::Reverse(wide.to().version)) <= (run.from(), std::cmp::Reverse(run.to().version))
        });
        // The nested runs around the place where it stands, the narrowest first.
        let mut place = after.checked_sub(1);
        while let Some(wide) = place.and_then(|place| self.clean.get(place)) {
            let holds_it = wide.to().version >= run.to().version && wide != run;
            // A snapshot and the collapsed delta of the same versions hold the same: only one of them may do so.
            let is_other = !same_versions(wide, run) || (wide.is_snapshot() && !run.is_snapshot());
            if holds_it && is_other && wide.to().version <= *point {
                return Some(*wide);
            }
            place = place.and_then(|place| self.outer.get(place).copied().flatten());
        }
        None
    }
}

/// The runs of more than one version, by the version they start from, then the widest first.
fn widest_first<'r>(runs: impl Iterator<Item = &'r RunName>) -> Vec<RunName> {
    let mut wide: Vec<RunName> = runs.filter(|run| !run.is_single()).copied().collect(); // the listing
    wide.sort_unstable_by_key(|run| (run.from(), std::cmp::Reverse(run.to().version), !run.is_snapshot()));
    wide.dedup();
    wide
}

fn same_versions(one: &RunName, other: &RunName) -> bool {
    (one.from(), one.to().version) == (other.from(), other.to().version)
}

/// The places of the runs that overlap another one in part. `wide` is sorted by start, the widest first.
fn overlapping_in_part(wide: &[RunName]) -> BTreeSet<usize> {
    let mut ragged = BTreeSet::new();
    // Those that are still open where the next one starts. Nested ones end in reverse order; every other end shows an overlap.
    let mut open: Vec<usize> = Vec::new();
    let end = |place: usize| wide.get(place).map_or(Version::EMPTY, |run| run.to().version);
    for (place, run) in wide.iter().enumerate() {
        open.retain(|before| end(*before) > run.from());
        for before in open.iter().filter(|before| end(**before) < run.to().version) {
            ragged.extend([*before, place]);
        }
        open.push(place);
    }
    ragged
}

/// For each of these nested runs the one that contains it most narrowly.
fn nesting(clean: &[RunName]) -> Vec<Option<usize>> {
    let mut open: Vec<usize> = Vec::new();
    let mut outer = Vec::with_capacity(clean.len());
    for (place, run) in clean.iter().enumerate() {
        while let Some(last) = open.last().and_then(|last| clean.get(*last)) {
            if last.to().version >= run.to().version {
                break;
            }
            open.pop();
        }
        outer.push(open.last().copied());
        open.push(place);
    }
    outer
}

#[derive(Debug, Default)]
struct Kept {
    runs: BTreeSet<RunName>,
    forks: BTreeSet<Epoch>,
}

impl Kept {
    /// Keeps what one lineage needs. `changes` is set for the head's own, of which all above the points stays as well.
    fn keep(&mut self, catalog: &Catalog, lineage: &Lineage, layout: &Layout, changes: Option<u64>) {
        let last = layout.points.last().copied().unwrap_or_default();
        let exact_from = changes.map(|changes| Version(catalog.head().version.0.saturating_sub(changes)));
        // The forks say which runs count, down to the lowest that stays: whatever another retirement relies on is among them.
        let mut lowest = catalog.head().version;
        for run in catalog.listing().runs.iter().filter(|run| lineage.owns(run.to())) {
            let is_above = run.to().version > last;
            let is_exact = run.is_single() && exact_from.is_some_and(|from| run.from() >= from);
            let is_needed = if is_above { changes.is_some() } else { layout.stand_in(run).is_none() };
            if is_needed || is_exact {
                lowest = lowest.min(if run.is_snapshot() { run.to().version } else { run.from() });
                self.runs.insert(*run);
            }
        }
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
        self.runs.extend(listing.runs.iter().filter(|run| run.to().epoch <= *damaged));
        self.forks.extend(listing.forks.range(..=*damaged).map(|(epoch, _)| *epoch));
    }
}

fn doomed(catalog: &Catalog, kept: &Kept, main: &Layout) -> Vec<Deletion> {
    let listing = catalog.listing();
    let published = |file, reason| Deletion { file: Doomed::Published(file), reason };
    // Runs before forks: a run without its fork would be void anyway, but one can then no longer see why.
    let runs = listing.runs.iter().filter(|run| !kept.runs.contains(run));
    let runs = runs.map(|run| published(FileName::Run(*run), reason_for(catalog, main, run)));
    let forks = listing.forks.keys().filter(|epoch| !kept.forks.contains(epoch));
    let forks = forks.map(|epoch| {
        let below = catalog.lineage().segments().iter().any(|segment| segment.epoch == *epoch);
        published(FileName::Fork(*epoch), if below { Reason::Retired } else { Reason::Abandoned })
    });
    let horizons = listing.horizons.iter().filter(|version| **version < catalog.horizon());
    let horizons = horizons.map(|version| published(FileName::Horizon(*version), Reason::Outdone));
    let stale = listing.temporaries.iter().filter(|temporary| temporary.epoch < catalog.highest_epoch());
    let stale = stale.map(|temporary| Deletion { file: Doomed::Temporary(*temporary), reason: Reason::Stale });
    runs.chain(forks).chain(horizons).chain(stale).collect() // at most the listing
}

fn reason_for(catalog: &Catalog, main: &Layout, run: &RunName) -> Reason {
    if !catalog.lineage().owns(run.to()) {
        return Reason::Abandoned;
    }
    let snapshot = main.stand_in(run).is_some_and(|wide| wide.is_snapshot());
    if snapshot { Reason::Retired } else { Reason::Subsumed }
}
