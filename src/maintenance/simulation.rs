//! Plans on paper: long histories of commits whose files are names and sizes, so that a million of them fit into a test.

use std::collections::{BTreeMap, BTreeSet};

use super::options::MaintenanceOptions;
use super::plan::{Plan, SETTLED_SINGLES, Task, Urgency, most_singles, plan};
use crate::catalog::{Catalog, Doomed, FileName, Fork, ForkRecord, Listing, RunName, Sparing};
use crate::entry::StateStoreId;
use crate::version::{Mark, RunId, StoreUid, Version, VersionId};

/// The generator called `SplitMix64`.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }
}

/// What is written: `changed` of `keys` keys by each commit, anywhere, of 116 bytes each.
#[derive(Debug, Clone, Copy)]
struct Workload {
    keys: u64,
    changed: u64,
    retain: usize,
}

/// A store on paper.
struct Paper {
    work: Workload,
    options: MaintenanceOptions,
    listing: Listing,
    lengths: BTreeMap<RunName, u64>,
    at: VersionId,
    changed_bytes: u64,
    rewritten_bytes: u64,
    most_files: usize,
    most_replayed: usize,
    most_runs: usize,
}

const ENTRY_BYTES: u64 = 116;
const FILE_BYTES: u64 = 300;

impl Paper {
    fn new(work: Workload) -> Self {
        let mut paper = Self {
            work,
            options: MaintenanceOptions::default().retain_versions(work.retain).unwrap(),
            listing: Listing::default(),
            lengths: BTreeMap::new(),
            at: VersionId::ROOT,
            changed_bytes: 0,
            rewritten_bytes: 0,
            most_files: 0,
            most_replayed: 0,
            most_runs: 0,
        };
        paper.claim(VersionId::ROOT);
        paper
    }

    /// A writer takes over, at `base`.
    fn claim(&mut self, base: VersionId) {
        let epoch = self.listing.forks.keys().next_back().copied().unwrap_or_default().next();
        let store = StateStoreId::new("operator", 0, "store").unwrap();
        let tip = if base == VersionId::ROOT { RunId::NONE } else { RunId([1; 16]) };
        let base = Mark { at: base, tip };
        let record = ForkRecord { uid: StoreUid([7; 16]), store, epoch, base, holder: String::new(), claimed_at_ms: 0 };
        self.listing.forks.insert(epoch, Fork::Whole(record));
        self.at = VersionId::new(base.at.version, epoch);
    }

    /// How many bytes the changes of so many versions are, the newest of each key.
    fn bytes_of(&self, versions: u64) -> u64 {
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let (keys, changes) = (self.work.keys as f64, (versions * self.work.changed) as f64);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate")]
        let distinct = (keys * -(-changes / keys).exp_m1()) as u64;
        FILE_BYTES + distinct * ENTRY_BYTES
    }

    fn commit(&mut self) {
        self.at = VersionId::new(self.at.version.next(), self.at.epoch);
        let bytes = self.bytes_of(1);
        let run = RunName::single(self.at).unwrap();
        self.listing.runs.insert(run);
        self.lengths.insert(run, bytes);
        self.changed_bytes += self.work.changed * ENTRY_BYTES;
    }

    fn catalog(&self) -> Catalog {
        Catalog::new(self.listing.clone())
    }

    fn plan(&self) -> Plan {
        plan(&self.catalog(), &|run| Ok(self.lengths[run]), &self.options).unwrap()
    }

    fn publish(&mut self, run: RunName) {
        let bytes = self.bytes_of(run.to().version.0 - run.from().0);
        if self.listing.runs.insert(run) {
            self.lengths.insert(run, bytes);
            self.rewritten_bytes += bytes;
        }
    }

    /// Does a task as the store would, given what it sees now. A retirement may die after so many deletions.
    fn act(&mut self, task: &Task, dies_after: usize) {
        let catalog = self.catalog();
        match *task {
            Task::Collapse { from, to }
                if catalog.lineage().owns(to)
                    && catalog.deltas(from, to.version, &BTreeSet::new()).is_some_and(|runs| runs.len() > 1) =>
            {
                self.publish(RunName::delta(from, to).unwrap());
            }
            Task::Snapshot { at }
                if at != VersionId::ROOT
                    && catalog.lineage().owns(at)
                    && catalog.chain(at, &BTreeSet::new()).is_ok() =>
            {
                self.publish(RunName::snapshot(at).unwrap());
            }
            Task::Retire => {
                self.listing.horizons.extend(catalog.next_horizon(self.work.retain));
                let delete = self.catalog().retire(&Sparing::default()).unwrap().delete;
                for deletion in delete.into_iter().take(dies_after) {
                    match deletion.file {
                        Doomed::Published(FileName::Run(run)) => {
                            self.listing.runs.remove(&run);
                            self.lengths.remove(&run);
                        }
                        Doomed::Published(FileName::Fork(epoch)) => _ = self.listing.forks.remove(&epoch),
                        Doomed::Published(FileName::Horizon(version)) => _ = self.listing.horizons.remove(&version),
                        Doomed::Temporary(_) => {}
                    }
                }
            }
            _ => {}
        }
    }

    /// What the background does after some commits.
    fn upkeep(&mut self, urgency: Urgency) {
        let mut idle = Vec::new();
        loop {
            let planned = self.plan();
            let next = planned.tasks.iter().find(|one| one.urgency >= urgency && !idle.contains(&one.task));
            let Some(next) = next else {
                self.most_replayed = self.most_replayed.max(planned.open.replayed_deltas);
                self.most_runs = self.most_runs.max(planned.open.base_runs);
                break;
            };
            let before = (self.listing.clone(), next.task);
            self.act(&next.task, usize::MAX);
            if before.0 == self.listing {
                idle.push(before.1);
            }
        }
        self.most_files = self.most_files.max(self.files());
    }

    fn files(&self) -> usize {
        self.listing.runs.len() + self.listing.forks.len() + self.listing.horizons.len()
    }

    fn check_retained(&self) {
        let catalog = self.catalog();
        let versions: BTreeSet<Version> = catalog.versions().map(|id| id.version).collect();
        let oldest =
            catalog.horizon().0.max(catalog.head().version.0.saturating_sub(self.work.retain as u64 - 1)).max(1);
        let head = catalog.head().version.0;
        let lost = (oldest..=head).find(|version| !versions.contains(&Version(*version)));
        assert_eq!(lost, None, "of {oldest} to {head}, {:?}", self.listing.runs);
    }

    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    fn rewritten(&self) -> f64 {
        self.rewritten_bytes as f64 / self.changed_bytes as f64
    }
}

fn run(work: Workload, commits: u64, every: u64, urgency: Urgency) -> Paper {
    let mut paper = Paper::new(work);
    for number in 1..=commits {
        paper.commit();
        if number % every == 0 {
            paper.upkeep(urgency);
        }
        if number % (commits / 20) == 0 {
            paper.check_retained();
        }
    }
    paper.upkeep(Urgency::Spare);
    paper.check_retained();
    eprintln!(
        "{work:?}, {commits} commits: at most {} files, in the end {}, {} replayed, {} runs, {:.2} bytes rewritten a changed byte",
        paper.most_files,
        paper.files(),
        paper.most_replayed,
        paper.most_runs,
        paper.rewritten(),
    );
    paper
}

/// What the pages promise, with a plan after every `every` commits.
fn check_bounds(paper: &Paper, commits: u64, every: u64, urgency: Urgency) {
    let versions = f64::from(u32::try_from(commits).unwrap());
    let retain = paper.work.retain;
    // The retained ones; their single deltas that wait to be collapsed; the parts that wait to settle; the tiers.
    let waiting = SETTLED_SINGLES + most_singles(retain).min(retain) + usize::try_from(every).unwrap();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a bound")]
    let tiers = (3.0 * versions.log2()) as usize;
    // At most 32 runs within what is retained, and what was merged of them; twice as many where somebody always has time.
    let parts = if urgency == Urgency::Spare { 96 } else { 48 };
    assert!(paper.most_files <= retain + waiting + parts + tiers, "{} files", paper.most_files);
    assert!(paper.files() <= retain + waiting + parts + tiers / 2, "{} files in the end", paper.files());
    assert!(
        paper.most_replayed <= most_singles(retain) + usize::try_from(every).unwrap(),
        "{} replayed",
        paper.most_replayed
    );
    assert!(paper.most_runs <= tiers, "{} runs", paper.most_runs);
    // Two bytes of snapshots, one of the first collapse, and one a tier: no size of the state is in it.
    assert!(paper.rewritten() <= 3.0 + versions.log(4.0), "{} rewritten", paper.rewritten());
}

#[test]
fn a_million_commits_leave_a_bounded_number_of_files_and_are_rewritten_a_bounded_number_of_times() {
    let commits = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    let paper = run(Workload { keys: 1_000_000, changed: 10, retain: 10 }, commits, 32, Urgency::Due);
    check_bounds(&paper, commits, 32, Urgency::Due);
    assert!(paper.files() < 64, "{}", paper.files());
}

#[test]
fn what_is_rewritten_does_not_depend_on_the_size_of_the_state() {
    let commits = if cfg!(debug_assertions) { 2_000 } else { 20_000 };
    for (keys, changed) in [(10_000, 10), (1_000_000, 10_000), (20_000_000, 10_000), (2_000_000_000, 10_000)] {
        let many = if keys == 20_000_000 { 5000 } else { 200 };
        for retain in [1, 100, 1000, many] {
            for urgency in [Urgency::Due, Urgency::Spare] {
                let paper = run(Workload { keys, changed, retain }, commits, 16, urgency);
                check_bounds(&paper, commits, 16, urgency);
                assert!(paper.rewritten() <= 8.0, "{}", paper.rewritten());
            }
        }
    }
}

/// Somebody who was late collapses all there is, far into what is retained: none of what lies in it may wait for that to be given up.
#[test]
fn a_run_that_reaches_into_what_is_retained_does_not_hold_up_what_is_not() {
    let mut paper = Paper::new(Workload { keys: 1_000_000, changed: 10, retain: 10 });
    for _ in 0..5 {
        (0..2_000).for_each(|_| paper.commit());
        let from = paper.catalog().chain(paper.at, &BTreeSet::new()).unwrap().base_version();
        paper.publish(RunName::delta(from, paper.at).unwrap());
        paper.upkeep(Urgency::Due);
        assert!(paper.files() < 64, "{} files", paper.files());
        // And while the retained stretch moves through it.
        for _ in 0..40 {
            paper.commit();
            paper.upkeep(Urgency::Due);
            assert!(paper.files() < 64, "{} files", paper.files());
        }
        paper.check_retained();
    }
}

/// A writer that joins its own deltas two by two while somebody else takes snapshots: each of these overlaps a joined pair in part.
#[test]
fn runs_that_several_maintainers_make_across_each_other_do_not_pile_up() {
    for snapshots in [true, false] {
        let (mut most, mut paper) = (0, Paper::new(Workload { keys: 1_000_000, changed: 10, retain: 5 }));
        for _ in 0..500 {
            let from = paper.at.version;
            (0..7).for_each(|_| paper.commit());
            let at = paper.at;
            if snapshots {
                paper.act(&Task::Snapshot { at }, 0);
            } else {
                paper.publish(RunName::delta(from, at).unwrap());
            }
            paper.commit();
            paper.publish(RunName::delta(Version(at.version.0 - 1), paper.at).unwrap());
            paper.upkeep(Urgency::Due);
            most = most.max(paper.files());
        }
        paper.check_retained();
        assert!(most < 96, "{most} files");
        assert!(snapshots || paper.rewritten() < 16.0, "{}", paper.rewritten());
    }
}

#[test]
fn whoever_keeps_all_versions_has_few_deltas_to_replay_all_the_same() {
    let mut paper = Paper::new(Workload { keys: 1_000_000, changed: 10, retain: usize::MAX });
    for _ in 0..900 {
        paper.commit();
    }
    paper.upkeep(Urgency::Due);
    assert!(paper.most_replayed < 32, "{}", paper.most_replayed);
    paper.check_retained();
}

#[test]
fn a_writer_that_is_started_anew_for_every_commit_leaves_a_bounded_number_of_claims() {
    let mut paper = Paper::new(Workload { keys: 1_000_000, changed: 10, retain: 10 });
    for number in 1..=5_000_u64 {
        let base = paper.catalog().head();
        paper.claim(base);
        paper.commit();
        if number % 16 == 0 {
            paper.upkeep(Urgency::Due);
        }
    }
    paper.upkeep(Urgency::Spare);
    paper.check_retained();
    assert!(paper.most_files < 700, "{}", paper.most_files);
    assert!(paper.listing.forks.len() < 600, "{}", paper.listing.forks.len());
}

/// Writers that die and are taken over, that roll back, maintainers that act on what they saw long ago, and retirements that die
/// half-way, two at a time.
#[test]
fn whatever_is_planned_done_late_or_left_undone_every_retained_version_can_be_made() {
    for seed in 0..if cfg!(debug_assertions) { 20 } else { 200 } {
        let mut dice = Dice(seed);
        let retain = [1, 3, 20, 200][usize::try_from(dice.below(4)).unwrap()];
        let mut paper = Paper::new(Workload { keys: 1000 << dice.below(12), changed: 10, retain });
        let mut late: Vec<Task> = Vec::new();
        let mut snapshots = 0;
        for _ in 0..600 {
            match dice.below(20) {
                0 => {
                    let base = paper.catalog().head();
                    paper.claim(base);
                }
                1 => {
                    let versions: Vec<VersionId> = paper.catalog().versions().collect();
                    let back = versions.len().saturating_sub(1 + usize::try_from(dice.below(6)).unwrap());
                    let base = versions.get(back).copied().unwrap_or(VersionId::ROOT);
                    paper.claim(base);
                    paper.commit();
                }
                2..=4 => {
                    let tasks = paper.plan().tasks;
                    late.extend(tasks.iter().map(|planned| planned.task));
                }
                5..=7 if !late.is_empty() => {
                    let chosen = usize::try_from(dice.below(late.len() as u64)).unwrap();
                    let task = late.swap_remove(chosen);
                    let dies_after = usize::try_from(dice.below(40)).unwrap();
                    paper.act(&task, dies_after);
                }
                8 => {
                    let at = paper.catalog().head();
                    snapshots += usize::from(at != VersionId::ROOT);
                    paper.act(&Task::Snapshot { at }, 0);
                }
                9 => paper.upkeep(Urgency::Spare),
                _ => paper.commit(),
            }
            paper.check_retained();
        }
        assert!(snapshots > 5 && paper.at.version.0 > 100, "seed {seed}");
    }
}
