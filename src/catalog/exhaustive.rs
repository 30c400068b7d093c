//! The protocol, checked in all interleavings: three writers and a cleaner that may stop for ever at any step.
//!
//! The processes take their decisions with the very functions that the store uses, from listings that are made of real
//! names and real fork records. A state is the directory, what was acknowledged, and where each process stands; a breadth-first
//! search visits every state within the bounds. Leaving a step out must be found, or the check would prove nothing.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::rc::Rc;

use super::directory::Directory;
use super::protocol::{Claim, Confirmation, Wanted, fenced_by};
use super::{Catalog, RunName, Sparing};
use crate::version::{Epoch, Version, VersionId};

/// What may happen, and which step is left out.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each is one thing that may happen or be left out")]
struct Bounds {
    writers: usize,
    max_epoch: u64,
    max_commits: u8,
    rollbacks: bool,
    cleaner: bool,
    listing: Listed,
    second_listing: bool,
    look: bool,
    cleaning: Cleaning,
}

/// How a listing is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    AtOnce,
    RunsThenForks,
    ForksThenRuns,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleaning {
    Proper,
    /// Deletes without having published the horizon.
    Unannounced,
    /// Publishes the horizon, but deletes what the listing from before it says.
    NotListedAgain,
}

const PROTOCOL: Bounds = Bounds {
    writers: 3,
    max_epoch: 4,
    max_commits: 2,
    rollbacks: false,
    cleaner: false,
    listing: Listed::AtOnce,
    second_listing: true,
    look: true,
    cleaning: Cleaning::Proper,
};

/// A directory by number, so that a state is small.
type Dir = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Process {
    Gone,
    Open,
    Claim(Claim),
    Confirm(Claim),
    /// `supersedes`: the listing that confirmed a rollback, until its first commit.
    Ready {
        epoch: Epoch,
        at: VersionId,
        commits: u8,
        supersedes: Option<Dir>,
    },
    Look {
        epoch: Epoch,
        at: VersionId,
        commits: u8,
    },
    Compact,
    Snapshot(VersionId),
    ChooseHorizon,
    /// `seen`: the listing that the horizon was chosen from.
    Announce {
        horizon: Version,
        seen: Dir,
    },
    PlanDeletions,
    /// Deletes what retirement finds in a listing, file by file.
    Delete {
        plan: Dir,
        next: u8,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct World {
    files: Dir,
    acknowledged: BTreeSet<VersionId>,
    /// Each with the first half of a listing, where it is in the middle of one.
    processes: Vec<(Process, Option<Dir>)>,
}

#[derive(Debug)]
struct Outcome {
    states: usize,
    violation: Option<String>,
}

/// All directories met so far, with what the catalogue says about them.
#[derive(Default)]
struct Directories {
    numbers: HashMap<Directory, Dir>,
    all: Vec<(Directory, Rc<Catalog>)>,
}

impl Directories {
    fn number(&mut self, directory: Directory) -> Dir {
        if let Some(number) = self.numbers.get(&directory) {
            return *number;
        }
        let number = Dir::try_from(self.all.len()).unwrap();
        self.numbers.insert(directory.clone(), number);
        let catalog = Rc::new(Catalog::new(directory.listing()));
        self.all.push((directory, catalog));
        number
    }

    fn files(&self, dir: Dir) -> &Directory {
        &self.all[dir as usize].0
    }

    fn catalog(&self, dir: Dir) -> Rc<Catalog> {
        Rc::clone(&self.all[dir as usize].1)
    }
}

struct Search {
    bounds: Bounds,
    directories: Directories,
    seen: HashSet<Rc<World>>,
    queue: VecDeque<Rc<World>>,
}

/// Visits every state within the bounds, or stops at the first that breaks a promise.
fn search(bounds: Bounds) -> Outcome {
    let mut search =
        Search { bounds, directories: Directories::default(), seen: HashSet::new(), queue: VecDeque::new() };
    let files = search.directories.number(Directory::default());
    let mut processes = vec![(Process::Open, None); bounds.writers];
    processes.extend(bounds.cleaner.then_some((Process::Compact, None)));
    search.reach(World { files, acknowledged: BTreeSet::new(), processes });
    while let Some(world) = search.queue.pop_front() {
        if let Some(promise) = search.broken_promise(&world) {
            let violation = format!("{promise}\n{:?}\n{world:?}", search.directories.files(world.files));
            return Outcome { states: search.seen.len(), violation: Some(violation) };
        }
        (0..world.processes.len()).for_each(|who| search.step(&world, who));
    }
    Outcome { states: search.seen.len(), violation: None }
}

impl Search {
    fn reach(&mut self, world: World) {
        let world = Rc::new(world);
        if self.seen.insert(Rc::clone(&world)) {
            self.queue.push_back(world);
        }
    }

    fn broken_promise(&self, world: &World) -> Option<&'static str> {
        let catalog = self.directories.catalog(world.files);
        let counts = |id: &VersionId| catalog.lineage().owns(*id) || id.version < catalog.horizon();
        if !world.acknowledged.iter().all(counts) {
            return Some("an acknowledged version is lost");
        }
        let makes = |id: VersionId| catalog.chain(id, &BTreeSet::new()).is_ok();
        if !makes(catalog.head()) {
            return Some("the head cannot be made");
        }
        for (process, _) in &world.processes {
            if let Process::Ready { epoch, at, .. } = process
                && *epoch == catalog.highest_epoch()
                && !makes(*at)
            {
                return Some("the base of a confirmed writer is gone");
            }
        }
        None
    }

    /// Adds every state that one step of one process leads to.
    fn step(&mut self, world: &World, who: usize) {
        let (process, half) = world.processes[who];
        if process == Process::Gone {
            return;
        }
        self.go(world, who, Process::Gone, None); // it may stop for ever at any step
        match process {
            Process::Gone => {}
            Process::Open
            | Process::Confirm(_)
            | Process::Compact
            | Process::ChooseHorizon
            | Process::PlanDeletions => {
                self.list(world, who, process, half);
            }
            Process::Claim(claim) => self.claim(world, who, claim),
            Process::Ready { epoch, at, commits, supersedes } => {
                if commits < self.bounds.max_commits {
                    self.publish(world, who, (epoch, at, commits), supersedes);
                }
            }
            Process::Look { epoch, at, commits } => self.look(world, who, (epoch, at, commits)),
            Process::Snapshot(at) => {
                let snapshot = RunName::snapshot(at).unwrap();
                self.go(world, who, Process::ChooseHorizon, Some(&|files| _ = files.runs.insert(snapshot)));
            }
            Process::Announce { horizon, seen } => self.announce(world, who, horizon, seen),
            Process::Delete { plan, next } => self.delete(world, who, plan, next),
        }
    }

    /// Moves one process on, and changes the files if `change` is given.
    fn go(&mut self, world: &World, who: usize, to: Process, change: Option<&dyn Fn(&mut Directory)>) {
        let mut next = world.clone();
        next.processes[who] = (to, None);
        if let Some(change) = change {
            let mut files = self.directories.files(world.files).clone();
            change(&mut files);
            next.files = self.directories.number(files);
        }
        self.reach(next);
    }

    /// Takes a listing, at once or in two steps, and lets the process decide by it.
    fn list(&mut self, world: &World, who: usize, process: Process, half: Option<Dir>) {
        let dir = match (self.bounds.listing, half) {
            (Listed::AtOnce, _) => world.files,
            (_, None) => {
                let mut next = world.clone();
                next.processes[who] = (process, Some(world.files));
                return self.reach(next);
            }
            (order, Some(first)) => {
                let (runs_of, forks_of) =
                    if order == Listed::RunsThenForks { (first, world.files) } else { (world.files, first) };
                let mut files = self.directories.files(runs_of).clone();
                files.forks.clone_from(&self.directories.files(forks_of).forks);
                self.directories.number(files)
            }
        };
        let catalog = self.directories.catalog(dir);
        match process {
            Process::Open => self.open(world, who, &catalog),
            Process::Confirm(claim) => self.confirm(world, who, claim, dir),
            Process::Compact if catalog.head() != VersionId::ROOT => {
                self.go(world, who, Process::Snapshot(catalog.head()), None);
            }
            Process::ChooseHorizon => {
                let horizon = catalog.next_horizon(1);
                let next = horizon.map(|horizon| Process::Announce { horizon, seen: dir });
                self.go(world, who, next.unwrap_or(Process::PlanDeletions), None);
            }
            Process::PlanDeletions => self.go(world, who, Process::Delete { plan: dir, next: 0 }, None),
            _ => {}
        }
    }

    fn open(&mut self, world: &World, who: usize, catalog: &Catalog) {
        let mut wanted = vec![Wanted::Newest];
        if self.bounds.rollbacks {
            let below = catalog.versions().map(|id| id.version).filter(|version| *version < catalog.head().version);
            wanted.extend([Version::EMPTY].into_iter().chain(below).map(Wanted::At));
        }
        for wanted in wanted {
            match Claim::plan(catalog, wanted) {
                Ok(claim) if claim.epoch.0 <= self.bounds.max_epoch => {
                    self.go(world, who, Process::Claim(claim), None);
                }
                // A listing in two steps can show a head whose files a retirement has meanwhile replaced: list again.
                Ok(_) | Err(_) => {}
            }
        }
    }

    fn claim(&mut self, world: &World, who: usize, claim: Claim) {
        if self.directories.files(world.files).forks.contains_key(&claim.epoch) {
            return self.go(world, who, Process::Open, None); // lost the race for the number
        }
        let next = if self.bounds.second_listing {
            Process::Confirm(claim)
        } else {
            Process::Ready { epoch: claim.epoch, at: claim.base, commits: 0, supersedes: None }
        };
        self.go(world, who, next, Some(&|files| _ = files.forks.insert(claim.epoch, claim.base)));
    }

    fn confirm(&mut self, world: &World, who: usize, claim: Claim, dir: Dir) {
        let next = match claim.confirm(&self.directories.catalog(dir)) {
            Confirmation::StartOver => Process::Open,
            Confirmation::Confirmed => {
                let supersedes = (claim.base != claim.seen_head).then_some(dir);
                Process::Ready { epoch: claim.epoch, at: claim.base, commits: 0, supersedes }
            }
        };
        self.go(world, who, next, None);
    }

    fn publish(&mut self, world: &World, who: usize, writer: (Epoch, VersionId, u8), supersedes: Option<Dir>) {
        let (epoch, base, commits) = writer;
        let at = VersionId::new(base.version.next(), epoch);
        let run = RunName::single(at).unwrap();
        assert!(!self.directories.files(world.files).runs.contains(&run), "a name is used twice");
        let mut world = world.clone();
        if let Some(shown) = supersedes {
            // Exactly what the listing that confirmed the rollback showed above its base may be lost.
            let shown = self.directories.catalog(shown);
            world.acknowledged.retain(|id| id.version <= base.version || !shown.lineage().owns(*id));
        }
        let next = Process::Look { epoch, at, commits: commits + 1 };
        self.go(&world, who, next, Some(&|files| _ = files.runs.insert(run)));
    }

    fn look(&mut self, world: &World, who: usize, writer: (Epoch, VersionId, u8)) {
        let (epoch, at, commits) = writer;
        let forks = self.directories.files(world.files).forks.keys().copied();
        if self.bounds.look && fenced_by(forks, epoch).is_some() {
            return self.go(world, who, Process::Gone, None);
        }
        let mut world = world.clone();
        world.acknowledged.insert(at);
        self.go(&world, who, Process::Ready { epoch, at, commits, supersedes: None }, None);
    }

    fn announce(&mut self, world: &World, who: usize, horizon: Version, seen: Dir) {
        let publish = |files: &mut Directory| _ = files.horizons.insert(horizon);
        let mut before = self.directories.files(seen).clone();
        publish(&mut before);
        let by_the_old_listing = Process::Delete { plan: self.directories.number(before), next: 0 };
        match self.bounds.cleaning {
            Cleaning::Proper => self.go(world, who, Process::PlanDeletions, Some(&publish)),
            Cleaning::NotListedAgain => self.go(world, who, by_the_old_listing, Some(&publish)),
            Cleaning::Unannounced => self.go(world, who, by_the_old_listing, None),
        }
    }

    fn delete(&mut self, world: &World, who: usize, plan: Dir, next: u8) {
        // A listing in two steps may be of a head that is no longer whole: then nothing is deleted.
        let Ok(retirement) = self.directories.catalog(plan).retire(&Sparing::default()) else { return };
        let Some(deletion) = retirement.delete.get(usize::from(next)) else { return };
        let file = deletion.file;
        self.go(world, who, Process::Delete { plan, next: next + 1 }, Some(&|files| files.remove(file)));
    }
}

/// Smaller bounds without optimisation, where a state costs twenty times as much.
const SMALL: bool = cfg!(debug_assertions);

fn holds(name: &str, bounds: Bounds, at_least: usize) {
    let outcome = search(bounds);
    eprintln!("{name}: {} states", outcome.states);
    assert_eq!(outcome.violation, None, "{bounds:?}");
    assert!(SMALL || outcome.states >= at_least, "only {} states: the bounds have shrunk", outcome.states);
}

fn breaks(bounds: Bounds, promise: &str) {
    let outcome = search(bounds);
    let Some(violation) = outcome.violation else { panic!("nothing was found in {} states", outcome.states) };
    assert!(violation.starts_with(promise), "expected {promise:?}, found {violation}");
}

#[test]
fn the_protocol_holds_in_all_interleavings() {
    let max_epoch = if SMALL { 3 } else { 4 };
    holds("protocol", Bounds { max_epoch, max_commits: 3, ..PROTOCOL }, 150_000);
}

#[test]
fn the_protocol_holds_with_rollbacks() {
    let max_epoch = if SMALL { 2 } else { 4 };
    holds("with rollbacks", Bounds { rollbacks: true, max_epoch, ..PROTOCOL }, 350_000);
}

#[test]
fn the_protocol_holds_with_listings_that_take_two_steps() {
    let max_epoch = if SMALL { 2 } else { 3 };
    let bounds = Bounds { rollbacks: true, listing: Listed::RunsThenForks, max_epoch, ..PROTOCOL };
    holds("two-step listings", bounds, 200_000);
}

/// A writer that can commit and one that rolls back, or two of either, while files are being deleted one by one.
const WITH_CLEANER: Bounds = Bounds { writers: 2, max_epoch: 3, rollbacks: true, cleaner: true, ..PROTOCOL };

#[test]
fn the_protocol_holds_while_a_cleaner_deletes() {
    let max_epoch = if SMALL { 2 } else { 3 };
    holds("with a cleaner", Bounds { max_epoch, ..WITH_CLEANER }, 100_000);
}

#[test]
fn the_protocol_holds_while_a_cleaner_deletes_and_listings_take_two_steps() {
    let max_epoch = if SMALL { 2 } else { 3 };
    let bounds = Bounds { listing: Listed::RunsThenForks, max_epoch, ..WITH_CLEANER };
    holds("with a cleaner and two-step listings", bounds, 100_000);
}

#[test]
#[ignore = "takes minutes and gigabytes; for changes of the protocol"]
fn the_protocol_holds_for_three_writers_a_cleaner_and_listings_that_take_two_steps() {
    let bounds = Bounds { listing: Listed::RunsThenForks, writers: 3, max_commits: 1, ..WITH_CLEANER };
    holds("three writers and a cleaner", bounds, 500_000);
}

/// It takes three writers: one to build on, one that rolls back, and one whose claim between the two steps is not seen.
#[test]
#[cfg_attr(debug_assertions, ignore = "takes a minute without optimisation")]
fn listing_the_forks_before_the_runs_is_found() {
    let bounds = Bounds { listing: Listed::ForksThenRuns, writers: 3, max_commits: 1, ..WITH_CLEANER };
    breaks(bounds, "the base of a confirmed writer is gone");
}

#[test]
fn leaving_out_the_second_listing_is_found() {
    breaks(Bounds { second_listing: false, ..PROTOCOL }, "an acknowledged version is lost");
}

#[test]
fn leaving_out_the_look_is_found() {
    breaks(Bounds { look: false, ..PROTOCOL }, "an acknowledged version is lost");
}

#[test]
fn retiring_without_an_announcement_is_found() {
    breaks(Bounds { cleaning: Cleaning::Unannounced, ..WITH_CLEANER }, "the base of a confirmed writer is gone");
}

#[test]
fn retiring_without_a_listing_after_the_announcement_is_found() {
    breaks(Bounds { cleaning: Cleaning::NotListedAgain, ..WITH_CLEANER }, "the base of a confirmed writer is gone");
}
