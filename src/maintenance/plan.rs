//! What is worth doing: a pure function from a catalogue and the sizes of its runs to tasks.
//!
//! ```text
//!             oldest retained version
//!                       ▼
//! snapshot ┃ ▒▒▒▒▒ ▒▒▒ ▒ │ ▒ ▒ | | | | | | |      deltas of the chain to the head
//!            ─────────── │
//!   all within wider     │  every run stays: exact history, and parts to settle
//!   runs may go          │  when they come to lie below the line
//! ```
//!
//! - **collapse**: single deltas that no retained version needs by themselves become one run as soon as there are [`SETTLED_SINGLES`]
//!   of them; on top of the chain, once an open would map [`most_singles`]; and runs of like size are merged, four at a time
//!   ([`next_merge`]);
//! - **snapshot**: when the deltas of the chain have as many bytes as the snapshot below them. Each changed byte then pays for at
//!   most two bytes of snapshots;
//! - runs that overlap in part, which only several maintainers make, are put together once all of them lie below what is retained: nothing
//!   can go for the sake of one of them alone;
//! - **retire**: when enough has come together that it is worth an announcement.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound;

use super::options::MaintenanceOptions;
use crate::catalog::{Catalog, MERGED_RUNS, RunName, Sparing, Tangle, next_merge};
use crate::error::Result;
use crate::version::{Version, VersionId};

/// So many single deltas that are only steps to a retained version become one run.
pub(super) const SETTLED_SINGLES: usize = 16;
/// So many single deltas on top of a chain are collapsed, though retained versions need them as well: an open maps each of them, at some
/// 30 µs. Each such run stays until all it holds is given up, so where very many versions are retained there are fewer and larger ones.
pub(super) fn most_singles(retained: usize) -> usize {
    (retained / 32).clamp(32, 16 << 10)
}

/// A chain with more runs than this, or a replay of more deltas than this, does not wait for its turn.
const URGENT_RUNS: usize = 48;
const URGENT_SINGLES: usize = 1024;
/// No snapshot is worth writing for less.
const SMALLEST_SNAPSHOT_BYTES: u64 = 1 << 20;
/// Between two snapshots lie at least so many versions, or more bytes than twice the state: each snapshot stays as long as the
/// versions after it are retained.
const SNAPSHOT_VERSIONS: u64 = 16;
/// From so many claims and versions since the newest snapshot on, the next one does not wait for bytes.
const MANY_CLAIMS: usize = 256;
/// Runs that overlap in part are put together when they and what lies within them are so many files. Where there are snapshots among them it
/// takes another one, which is worth it for so many.
const TANGLED_FILES: usize = 16;
const TANGLED_SNAPSHOTS: usize = 2;
/// An announcement is worth it for so many files.
pub(super) const RETIRED_FILES: usize = 16;

/// How soon a task should be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Urgency {
    /// Worth doing when there is nothing else to do.
    Spare,
    /// Worth doing.
    Due,
    /// Opening or reading suffers until it is done.
    Urgent,
}

/// Something to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Task {
    /// Write the deltas of the versions `(from, to]` as one.
    Collapse {
        /// The version that they start from, which is not among them.
        from: Version,
        /// The newest version among them.
        to: VersionId,
    },
    /// Write the whole state of a version into one file.
    Snapshot {
        /// The version.
        at: VersionId,
    },
    /// Let go of the oldest versions, and of every file that nothing needs.
    Retire,
    /// Make damaged files anew. In no plan, since a listing does not show damage; the background does it when a load has met some.
    Repair,
}

/// A task of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Planned {
    /// What to do.
    pub task: Task,
    /// How soon.
    pub urgency: Urgency,
    /// The bytes that are read for it, or freed by it.
    pub bytes: u64,
    /// How many files take part.
    pub files: usize,
}

/// What an open of the newest version would cost, and what reads touch then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OpenCost {
    /// The single deltas that an open would replay.
    pub replayed_deltas: usize,
    /// Their bytes.
    pub replayed_bytes: u64,
    /// The runs that a read may touch, the replayed deltas not among them.
    pub base_runs: usize,
    /// Their bytes.
    pub base_bytes: u64,
}

/// What is worth doing for a store.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Plan {
    /// The tasks, the most urgent first. Doing one may make others unnecessary: plan anew after each.
    pub tasks: Vec<Planned>,
    /// What an open would cost as things are.
    pub open: OpenCost,
    /// The oldest version that is to stay readable.
    pub oldest: Version,
    /// The files that there are: runs, forks, announcements, and what is being written.
    pub files: usize,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Collapse { from, to } => write!(f, "collapse the versions ({from}, {}]", to.version),
            Self::Snapshot { at } => write!(f, "take a snapshot of version {}", at.version),
            Self::Retire => f.write_str("let go of old versions"),
            Self::Repair => f.write_str("make damaged files anew"),
        }
    }
}

/// The length of a listed run in bytes. Asked for the runs of one chain, and for those that may go.
pub(super) type Lengths<'l> = &'l dyn Fn(&RunName) -> Result<u64>;

/// Says what is worth doing.
///
/// # Errors
/// Those of `lengths`; `Missing` or `Corrupt` where the newest version cannot be made: then a repair comes first.
pub(super) fn plan(catalog: &Catalog, lengths: Lengths<'_>, options: &MaintenanceOptions) -> Result<Plan> {
    let chain = catalog.chain(catalog.head(), &BTreeSet::new())?;
    let sized = |run: &RunName| Ok((*run, lengths(run)?));
    let base = chain.base.iter().map(sized).collect::<Result<Vec<_>>>()?; // one chain
    let singles = chain.singles.iter().map(sized).collect::<Result<Vec<_>>>()?; // one chain
    let oldest = oldest_retained(catalog, options.retain_versions);
    let up_to = options.collapse_up_to;
    let folded = singles.partition_point(|(run, _)| run.to().version <= up_to);
    let folded = singles.get(..folded).unwrap_or_default();
    // Whoever keeps all there is has no bound in mind.
    let keeps_all = options.retain_versions == usize::MAX;
    let retained = if keeps_all { catalog.versions().count() } else { options.retain_versions };
    let most_singles = most_singles(retained);
    let view = Seen { catalog, lengths, base: &base, singles: &singles, folded, most_singles, retained, up_to, oldest };
    let settled = view.settled()?;
    let mut tasks: Vec<Planned> =
        [view.snapshot(), view.collapse_settled(&settled), view.collapse_top(&settled), view.merge(), view.untangle()?]
            .into_iter()
            .flatten()
            .collect(); // at most one of each kind
    tasks.extend(view.retire(options)?);
    tasks.sort_by_key(|planned| std::cmp::Reverse(planned.urgency));
    let open = OpenCost {
        replayed_deltas: singles.len(),
        replayed_bytes: bytes_of(&singles),
        base_runs: base.len(),
        base_bytes: bytes_of(&base),
    };
    let listing = catalog.listing();
    let files = listing.runs.len() + listing.forks.len() + listing.horizons.len() + listing.temporaries.len();
    Ok(Plan { tasks, open, oldest, files })
}

/// The oldest version that is to stay readable: the `retain`th from the top, of those that can be read.
pub(super) fn oldest_retained(catalog: &Catalog, retain: usize) -> Version {
    let kept = catalog.lasting().take(retain.max(1)).last();
    kept.map_or(Version::EMPTY, |id| id.version)
}

fn bytes_of(runs: &[(RunName, u64)]) -> u64 {
    runs.iter().map(|(_, bytes)| bytes).sum()
}

/// What a plan looks at.
struct Seen<'c> {
    catalog: &'c Catalog,
    lengths: Lengths<'c>,
    base: &'c [(RunName, u64)],
    singles: &'c [(RunName, u64)],
    /// Those of them that may be collapsed.
    folded: &'c [(RunName, u64)],
    /// An open maps no more of them.
    most_singles: usize,
    retained: usize,
    /// Nothing above it is put together.
    up_to: Version,
    oldest: Version,
}

impl Seen<'_> {
    fn snapshot(&self) -> Option<Planned> {
        let (snapshot_bytes, below) = match self.base.first() {
            Some((run, bytes)) if run.is_snapshot() => (*bytes, run.to().version),
            _ => (0, Version::EMPTY),
        };
        let all = bytes_of(self.base).saturating_add(bytes_of(self.singles));
        let delta_bytes = all.saturating_sub(snapshot_bytes);
        let worth = snapshot_bytes.max(SMALLEST_SNAPSHOT_BYTES);
        let at = self.catalog.head();
        let versions = at.version.0.saturating_sub(below.0);
        let is_far = versions >= SNAPSHOT_VERSIONS || delta_bytes >= worth.saturating_mul(2);
        // Claims stay as long as runs above them: a job that is started anew every few commits would gather them without end.
        let has_many_claims = self.catalog.listing().forks.len() >= MANY_CLAIMS && versions >= MANY_CLAIMS as u64;
        let is_due = (delta_bytes >= worth && is_far) || has_many_claims;
        let urgency = if delta_bytes >= worth.saturating_mul(4) { Urgency::Urgent } else { Urgency::Due };
        let files = self.base.len() + self.singles.len();
        is_due.then_some(Planned { task: Task::Snapshot { at }, urgency, bytes: all, files })
    }

    /// Single deltas that only lead to the oldest retained version.
    fn collapse_settled(&self, settled: &[(RunName, u64)]) -> Option<Planned> {
        self.apart(settled).into_iter().find_map(|part| self.collapse(part, SETTLED_SINGLES, self.urgency()))
    }

    /// These adjacent runs, cut where a wide run begins or ends that holds only some of them: what lies between two cuts can be collapsed.
    fn apart<'r>(&self, runs: &'r [(RunName, u64)]) -> Vec<&'r [(RunName, u64)]> {
        let (Some((first, _)), Some((last, _))) = (runs.first(), runs.last()) else { return Vec::new() };
        let cuts = self.catalog.cuts(first.from(), last.to().version);
        let after = |edge: Version| (Bound::Excluded(edge), Bound::Unbounded);
        // One that is cut through belongs to neither side, and stays.
        let is_cut = |run: &RunName| cuts.range(after(run.from())).next().is_some_and(|cut| *cut < run.to().version);
        let parts = runs.chunk_by(|(run, _), (next, _)| !cuts.contains(&next.from()) && is_cut(run) == is_cut(next));
        parts.filter(|part| part.first().is_some_and(|(run, _)| !is_cut(run))).collect() // as many as two maintainers have made side by side
    }

    /// All single deltas on top, where an open would have to map very many.
    fn collapse_top(&self, settled: &[(RunName, u64)]) -> Option<Planned> {
        // What no retained version needs goes first, and by itself: within one run with what is retained, all its parts would stay.
        if settled.len() >= SETTLED_SINGLES {
            return None;
        }
        let half = self.most_singles / 2;
        let due = self.collapse(self.folded, self.most_singles, self.urgency());
        // Half as many when there is time: not where few versions are retained, which such a run would hold together with those below them.
        due.or_else(|| {
            self.collapse(self.folded, half, Urgency::Spare).filter(|_| self.retained >= 2 * self.most_singles)
        })
    }

    /// The single deltas that only lead to the oldest retained version. They are those of its own chain: a run that reaches
    /// across it, into what is retained, is of no use to it, and lets none of them go.
    fn settled(&self) -> Result<Vec<(RunName, u64)>> {
        let Some(oldest) = self.catalog.at(self.oldest) else { return Ok(Vec::new()) };
        let singles = self.catalog.chain(oldest, &BTreeSet::new())?.singles;
        let folded = singles.iter().take_while(|run| run.to().version <= self.up_to);
        folded.map(|run| Ok((*run, (self.lengths)(run)?))).collect() // one chain
    }

    fn urgency(&self) -> Urgency {
        if self.singles.len() >= URGENT_SINGLES.max(2 * self.most_singles) { Urgency::Urgent } else { Urgency::Due }
    }

    fn merge(&self) -> Option<Planned> {
        let deltas = self.base.iter().filter(|(run, _)| !run.is_snapshot());
        let newest_first: Vec<(RunName, u64)> = deltas.rev().copied().collect(); // one chain
        let urgency = if self.base.len() >= URGENT_RUNS { Urgency::Urgent } else { Urgency::Due };
        let mut rest = newest_first.as_slice();
        while let Some(alike) = next_merge(rest.iter().map(|(_, bytes)| *bytes)) {
            let (tier, older) = rest.split_at_checked(alike.end)?;
            let mut tier = tier.get(alike.start..)?.to_vec();
            tier.reverse();
            if let Some(merge) = self.collapse(&tier, 2, urgency) {
                return Some(merge);
            }
            // Some other run reaches across it.
            let parts = self.apart(&tier);
            if let Some(merge) = parts.into_iter().find_map(|part| self.collapse(part, MERGED_RUNS, urgency)) {
                return Some(merge);
            }
            rest = older;
        }
        None
    }

    /// One run over all those below what is retained that overlap in part, for whose sake they can go.
    fn untangle(&self) -> Result<Option<Planned>> {
        let is_worth_it = |tangle: &Tangle| tangle.from > Version::EMPTY || tangle.snapshots >= TANGLED_SNAPSHOTS;
        let mut tangles = self.catalog.tangles(self.oldest.min(self.up_to));
        tangles.retain(is_worth_it);
        let files: usize = tangles.iter().map(|tangle| tangle.files).sum();
        let largest = tangles.into_iter().max_by_key(|tangle| tangle.files);
        let Some(tangle) = largest.filter(|_| files >= TANGLED_FILES) else { return Ok(None) };
        let (from, to) = (tangle.from, tangle.to);
        let (task, runs) = if from == Version::EMPTY {
            let chain = self.catalog.chain(to, &BTreeSet::new())?;
            (Task::Snapshot { at: to }, chain.base.into_iter().chain(chain.singles).collect())
        } else {
            let runs = self.catalog.deltas(from, to.version, &BTreeSet::new());
            (Task::Collapse { from, to }, runs.unwrap_or_default()) // none where parts below a snapshot have gone
        };
        let bytes = runs.iter().try_fold(0_u64, |sum, run| Ok(sum.saturating_add((self.lengths)(run)?)))?;
        let planned = Planned { task, urgency: Urgency::Due, bytes, files: tangle.files };
        Ok((runs.len() > 1).then_some(planned))
    }

    /// The collapse of these adjacent runs, oldest first, if there are enough of them.
    fn collapse(&self, runs: &[(RunName, u64)], enough: usize, urgency: Urgency) -> Option<Planned> {
        let ((first, _), (last, _)) = (runs.first()?, runs.last()?);
        let (from, to) = (first.from(), last.to());
        if runs.len() < enough || self.catalog.overlaps_in_part(from, to.version) {
            return None;
        }
        Some(Planned { task: Task::Collapse { from, to }, urgency, bytes: bytes_of(runs), files: runs.len() })
    }

    fn retire(&self, options: &MaintenanceOptions) -> Result<Option<Planned>> {
        let after = self.catalog.giving_up(self.catalog.next_horizon(options.retain_versions));
        let sparing = Sparing { changes: options.retained_changes(), ..Sparing::default() };
        let delete = after.retire(&sparing)?.delete;
        let mut runs = delete.iter().filter_map(|deletion| deletion.file.run());
        let bytes = runs.try_fold(0_u64, |sum, run| Ok(sum.saturating_add((self.lengths)(&run)?)))?;
        // What is left of horizons alone is not worth another one.
        let left = delete.iter().filter(|deletion| !deletion.file.is_horizon()).count();
        // Whether what is being written was left by a killed writer shows only at the file.
        let files = left + self.catalog.unfinished().count();
        let urgency = if left >= RETIRED_FILES { Urgency::Due } else { Urgency::Spare };
        Ok((files > 0).then_some(Planned { task: Task::Retire, urgency, bytes, files }))
    }
}
