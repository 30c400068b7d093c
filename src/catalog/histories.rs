//! Long random histories of writers, zombies, maintainers and cleaners: whatever listing they leave, the catalogue's
//! answers equal those of a model that knows who was whose parent.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::directory::Directory;
use super::protocol::{Claim, Confirmation, Wanted, fenced_by};
use super::reachable::Retirement;
use super::{Catalog, RunName, Sparing};
use crate::error::ErrorKind;
use crate::version::{Epoch, Version, VersionId};

/// One step of one actor; the numbers choose among what it may do.
type Step = (u8, u8, u8);

#[derive(Debug, Clone)]
enum Actor {
    Idle,
    Claim(Claim),
    Confirm(Claim),
    Write {
        epoch: Epoch,
        at: VersionId,
        superseded: BTreeSet<VersionId>,
    },
    Look {
        epoch: Epoch,
        at: VersionId,
    },
    /// A run of what is already there, chosen from a listing and published later.
    Publish(RunName),
    Announce(Version),
    PlanDeletions,
    Delete {
        plan: Box<Retirement>,
        next: usize,
    },
}

#[derive(Debug, Default)]
struct World {
    files: Directory,
    /// The truth: what each version was made from.
    parents: BTreeMap<VersionId, VersionId>,
    acknowledged: BTreeSet<VersionId>,
    pins: BTreeSet<VersionId>,
    /// What lay on no head's lineage when something was retired: of it, only what a claim builds on had to stay.
    forsaken: BTreeSet<VersionId>,
    actors: Vec<Actor>,
    deletions: usize,
}

impl World {
    fn new(actors: usize) -> Self {
        Self { actors: vec![Actor::Idle; actors], ..Self::default() }
    }

    fn catalog(&self) -> Catalog {
        Catalog::new(self.files.listing())
    }

    /// The version and everything below it, newest first, without version 0.
    fn ancestors(&self, of: VersionId) -> Vec<VersionId> {
        let start = Some(of).filter(|id| *id != VersionId::ROOT);
        std::iter::successors(start, |id| self.parents.get(id).copied().filter(|id| *id != VersionId::ROOT)).collect()
    }

    /// The head, by the rule alone: the newest version that was ever made by the highest epoch that made one.
    fn head(&self) -> VersionId {
        self.parents.keys().max_by_key(|id| (id.epoch, id.version)).copied().unwrap_or(VersionId::ROOT)
    }

    fn step(&mut self, (actor, choice, parameter): Step) {
        let who = usize::from(actor) % self.actors.len();
        let actor = self.actors[who].clone();
        self.actors[who] = match actor {
            // Any actor may die at any time; one that only stays idle for long is a zombie.
            _ if choice == 0 => Actor::Idle,
            Actor::Idle => self.start(choice, parameter),
            Actor::Claim(claim) if self.files.forks.contains_key(&claim.epoch) => Actor::Idle,
            Actor::Claim(claim) => {
                self.files.forks.insert(claim.epoch, claim.base);
                Actor::Confirm(claim)
            }
            Actor::Confirm(claim) => self.confirm(claim),
            Actor::Write { epoch, at, superseded } => {
                self.acknowledged.retain(|id| !superseded.contains(id));
                let next = VersionId::new(at.version.next(), epoch);
                assert!(self.files.runs.insert(RunName::single(next).unwrap()), "a name is used twice");
                self.parents.insert(next, at);
                Actor::Look { epoch, at: next }
            }
            Actor::Look { epoch, at } => {
                if fenced_by(self.files.forks.keys().copied(), epoch).is_some() {
                    return self.actors[who] = Actor::Idle;
                }
                self.acknowledged.insert(at);
                Actor::Write { epoch, at, superseded: BTreeSet::new() }
            }
            Actor::Publish(run) => {
                self.files.runs.insert(run);
                Actor::Idle
            }
            Actor::Announce(horizon) => {
                self.files.horizons.insert(horizon);
                Actor::PlanDeletions
            }
            Actor::PlanDeletions => {
                let sparing = Sparing { pins: self.pins.iter().copied().collect(), ..Sparing::default() };
                let plan = self.catalog().retire(&sparing).unwrap();
                let line = self.ancestors(self.head());
                self.forsaken.extend(self.parents.keys().filter(|id| !line.contains(id)));
                Actor::Delete { plan: Box::new(plan), next: 0 }
            }
            Actor::Delete { plan, next } => self.delete(plan, next, usize::from(choice)),
        };
    }

    fn start(&mut self, choice: u8, parameter: u8) -> Actor {
        let catalog = self.catalog();
        let versions: Vec<_> = catalog.versions().collect();
        let pick = versions.get(usize::from(parameter) % versions.len().max(1)).copied();
        match choice % 8 {
            1 | 2 => Actor::Claim(Claim::plan(&catalog, Wanted::Newest).unwrap()),
            3 => {
                let version = pick.map_or(Version::EMPTY, |id| id.version);
                Actor::Claim(Claim::plan(&catalog, Wanted::At(version)).unwrap())
            }
            4 => pick.map_or(Actor::Idle, |id| Actor::Publish(RunName::snapshot(id).unwrap())),
            5 => {
                let from = Version(catalog.head().version.0 * u64::from(parameter) / 256);
                let to = pick.filter(|to| from.next() < to.version && catalog.singles(from, *to).is_ok());
                to.map_or(Actor::Idle, |to| Actor::Publish(RunName::delta(from, to).unwrap()))
            }
            6 => catalog.next_horizon(usize::from(parameter) % 6).map_or(Actor::PlanDeletions, Actor::Announce),
            _ => {
                // A pin and a retirement of one process know of each other, so no plan is under way.
                let planned = self.actors.iter().any(|actor| matches!(actor, Actor::Delete { .. }));
                match pick {
                    Some(id) if !planned && parameter.is_multiple_of(2) => _ = self.pins.insert(id),
                    _ => _ = self.pins.pop_first(),
                }
                Actor::Idle
            }
        }
    }

    fn confirm(&self, claim: Claim) -> Actor {
        let catalog = self.catalog();
        if claim.confirm(&catalog) == Confirmation::StartOver {
            return Actor::Idle;
        }
        let shown = self.ancestors(catalog.head()).into_iter();
        let superseded = shown.filter(|id| id.version > claim.base.version).collect();
        Actor::Write { epoch: claim.epoch, at: claim.base, superseded }
    }

    fn delete(&mut self, plan: Box<Retirement>, next: usize, count: usize) -> Actor {
        let end = plan.delete.len().min(next + count);
        for deletion in &plan.delete[next..end] {
            self.files.remove(deletion.file);
            self.deletions += 1;
        }
        if end == plan.delete.len() { Actor::Idle } else { Actor::Delete { plan, next: end } }
    }

    /// Everything that must hold of whatever files there are.
    fn check(&self) {
        let catalog = self.catalog();
        assert_eq!(catalog.head(), self.head());
        let line = self.ancestors(catalog.head());
        let horizon = catalog.horizon();
        for id in &self.acknowledged {
            assert!(line.contains(id) || id.version < horizon, "{id} was acknowledged and is lost");
        }
        assert!(catalog.chain(catalog.head(), &BTreeSet::new()).is_ok(), "the head cannot be made");
        for id in &self.pins {
            self.check_chain(&catalog, *id, &BTreeSet::new()).expect("a pinned version can be made");
        }
        for number in 1..=catalog.head().version.next().0 {
            let Some(id) = line.iter().find(|id| id.version.0 == number) else {
                assert!(matches!(
                    catalog.readable(Version(number)).unwrap_err().kind(),
                    ErrorKind::VersionNotFound { .. }
                ));
                continue;
            };
            let made = self.check_chain(&catalog, *id, &BTreeSet::new()).is_some();
            let listed = catalog.versions().any(|listed| listed == *id);
            let given_up = number < horizon.0 && number != catalog.head().version.0;
            assert!(made || given_up || self.forsaken.contains(id), "{id} was not given up and cannot be made");
            assert_eq!(listed, made && !given_up, "{id}");
        }
    }

    /// Compares a chain with the best that a search over all sets of runs finds; `None` where neither finds one.
    fn check_chain(&self, catalog: &Catalog, at: VersionId, unusable: &BTreeSet<RunName>) -> Option<Vec<RunName>> {
        let line = self.ancestors(at);
        let best = self.best(&line, at.version, unusable);
        match catalog.chain(at, unusable) {
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Missing { .. }), "{error:?}");
                // A fork that was retired may hide a run that a maintainer has published since, below the horizon.
                assert!(best.is_none() || at.version < catalog.horizon(), "{at} can be made: {error}");
                None
            }
            Ok(chain) => {
                let runs: Vec<_> = chain.runs().collect();
                let mut made = Version::EMPTY;
                for run in &runs {
                    assert!(self.files.runs.contains(run) && !unusable.contains(run) && line.contains(&run.to()));
                    assert_eq!(run.from(), made, "the runs follow each other");
                    made = run.to().version;
                }
                assert_eq!(made, at.version);
                assert!(chain.singles.iter().all(RunName::is_single));
                assert!(chain.base.last().is_none_or(|run| !run.is_single()));
                let snapshot = if runs[0].is_snapshot() { runs[0].to().version } else { Version::EMPTY };
                assert_eq!(best, Some((snapshot, runs.len())), "{at}: the newest snapshot, then the fewest runs");
                Some(runs)
            }
        }
    }

    /// The version of the snapshot and the number of runs of the best chain to `version` of `line`, by trying all.
    fn best(&self, line: &[VersionId], version: Version, unusable: &BTreeSet<RunName>) -> Option<(Version, usize)> {
        let usable = |run: &&RunName| line.contains(&run.to()) && !unusable.contains(run);
        let into = self.files.runs.iter().filter(usable).filter(|run| run.to().version == version);
        let ways = into.filter_map(|run| match (run.is_snapshot(), run.from()) {
            (true, _) => Some((version, 1)),
            (false, Version::EMPTY) => Some((Version::EMPTY, 1)),
            (false, from) => self.best(line, from, unusable).map(|(base, length)| (base, length + 1)),
        });
        ways.max_by_key(|(base, length)| (*base, std::cmp::Reverse(*length)))
    }

    /// A retirement, stopped anywhere, changes no answer about what it keeps.
    fn check_retirement(&self, stop: usize) {
        let before = self.catalog();
        let pins: Vec<_> = self.pins.iter().copied().collect();
        let plan = before.retire(&Sparing { pins: pins.clone(), ..Sparing::default() }).unwrap();
        let mut after = Self { files: self.files.clone(), parents: self.parents.clone(), ..Self::default() };
        for deletion in plan.delete.iter().take(stop) {
            after.files.remove(deletion.file);
        }
        let catalog = after.catalog();
        assert_eq!(catalog.head(), before.head());
        assert_eq!(catalog.highest_epoch(), before.highest_epoch());
        let kept: Vec<_> = before.versions().collect();
        let left: Vec<_> = catalog.versions().collect();
        assert_eq!(left, kept, "{plan:?}");
        let claims = self.files.forks.range(before.head().epoch.next()..).map(|(_, base)| *base);
        let claims = claims.filter(|base| before.chain(*base, &BTreeSet::new()).is_ok());
        for id in kept.into_iter().chain(pins).chain(claims).filter(|id| *id != VersionId::ROOT) {
            after.check_chain(&catalog, id, &BTreeSet::new()).expect("a kept version can be made");
        }
    }
}

fn histories() -> impl Strategy<Value = Vec<Step>> {
    // Mostly going on, sometimes (choice 0) dying.
    let choice = prop_oneof![1 => Just(0u8), 30 => 1u8..=8];
    prop::collection::vec((0u8..4, choice, any::<u8>()), 1..160)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 64 } else { 1000 }))]

    #[test]
    fn every_listing_has_one_answer(steps in histories()) {
        let mut world = World::new(4);
        for step in steps {
            world.step(step);
            world.check();
        }
    }

    #[test]
    fn a_retirement_changes_no_answer_about_what_it_keeps(steps in histories(), stop in 0usize..60) {
        let mut world = World::new(4);
        for (number, step) in steps.into_iter().enumerate() {
            world.step(step);
            if number % 8 == 0 {
                world.check_retirement(stop);
                world.check_retirement(usize::MAX);
            }
        }
    }

    #[test]
    fn a_chain_goes_round_the_files_that_are_not_usable(steps in histories(), bad in any::<u64>()) {
        let mut world = World::new(4);
        for step in steps {
            world.step(step);
        }
        let bad = world.files.runs.iter().enumerate().filter(|(place, _)| bad >> (place % 64) & 1 == 1);
        let bad: BTreeSet<_> = bad.map(|(_, run)| *run).collect();
        let catalog = world.catalog();
        for id in world.ancestors(catalog.head()) {
            world.check_chain(&catalog, id, &bad);
        }
    }
}

/// One retirement sees a claim on an abandoned branch, where a collapsed delta leads to its base; the next one, after the
/// claim's first commit, goes by a newer snapshot and finds the collapsed delta superfluous. Neither may take what the other counts on.
#[test]
fn two_retirements_at_once_leave_a_chain_to_a_claim_that_becomes_the_head() {
    let id = |version, epoch| VersionId::new(Version(version), Epoch(epoch));
    let mut world = World::new(1);
    let singles = [(1, 1), (2, 1), (3, 3), (4, 3), (5, 3), (3, 4)];
    world.files.runs.extend(singles.map(|(version, epoch)| RunName::single(id(version, epoch)).unwrap()));
    world.files.runs.insert(RunName::delta(Version(3), id(5, 3)).unwrap());
    let forks = [(1, VersionId::ROOT), (3, id(2, 1)), (4, id(2, 1)), (5, id(5, 3))];
    world.files.forks.extend(forks.map(|(epoch, base)| (Epoch(epoch), base)));
    world.files.horizons.insert(Version(3));
    assert_eq!(world.catalog().head(), id(3, 4));
    let first = world.catalog().retire(&Sparing::default()).unwrap();
    world.files.runs.insert(RunName::single(id(6, 5)).unwrap());
    world.files.runs.insert(RunName::snapshot(id(4, 3)).unwrap());
    world.files.horizons.insert(Version(6));
    let second = world.catalog().retire(&Sparing::default()).unwrap();
    for deletion in second.delete.iter().chain(&first.delete) {
        world.files.remove(deletion.file);
    }
    assert_eq!(world.catalog().head(), id(6, 5));
    world.catalog().chain(id(6, 5), &BTreeSet::new()).unwrap();
}

#[test]
fn the_histories_do_what_they_are_for() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut deletions, mut rollbacks, mut collapsed, mut acknowledged) = (0, 0, 0, 0);
    for _ in 0..100 {
        let mut world = World::new(4);
        for step in histories().new_tree(&mut runner).unwrap().current() {
            world.step(step);
            rollbacks += usize::from(matches!(&world.actors[usize::from(step.0) % 4],
                Actor::Write { superseded, .. } if !superseded.is_empty()));
        }
        deletions += world.deletions;
        collapsed += world.files.runs.iter().filter(|run| !run.is_single()).count();
        acknowledged += world.acknowledged.len();
    }
    assert!(
        deletions > 100 && rollbacks > 20 && collapsed > 100 && acknowledged > 100,
        "{deletions} {rollbacks} {collapsed} {acknowledged}"
    );
}
