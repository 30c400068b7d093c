//! From histories to states: who crashes when, what survives, and what is found then.

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::ControlFlow;
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use alluvium::StoreOptions;
use alluvium::backend::{IndexImage, SimIndex};
use alluvium::fs::SimDisk;
use alluvium::fs::sim::Survivors;

use super::checks::{Told, Verdict, check, check_swept};
use super::disk::{Lie, Moment, is_temporary};
use super::model::{Line, Machine, Op, Process};

/// What histories start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Base {
    /// A disk without anything.
    Empty,
    /// Two versions, nothing folded.
    Two,
    /// A snapshot, a superseded version, a range deleted; part of it folded.
    Snapshotted,
    /// The same, and the snapshot is cut off in the middle.
    Damaged,
}

impl Base {
    pub(super) const ALL: [Self; 3] = [Self::Empty, Self::Two, Self::Snapshotted];

    fn operations(self) -> &'static [Op] {
        match self {
            Self::Empty => &[],
            Self::Two => &[Op::Commit, Op::Commit],
            Self::Snapshotted | Self::Damaged => {
                &[Op::Commit, Op::DeleteRange, Op::Snapshot, Op::Settle, Op::Commit, Op::Settle, Op::Older]
            }
        }
    }

    pub(super) fn machine(self) -> Machine {
        if self == Self::Empty {
            return Machine::new();
        }
        let mut process = Process::on(&Machine::new(), &StoreOptions::default());
        process.open().unwrap();
        self.operations().iter().try_for_each(|op| process.run(*op)).unwrap();
        let machine = process.machine();
        let disk = machine.disk.survive(Survivors::All);
        if self == Self::Damaged {
            let files = disk.files();
            let snapshot = files.iter().find(|path| path.extension().is_some_and(|extension| extension == "snapshot"));
            disk.truncate(snapshot.unwrap(), 700).unwrap();
        }
        Machine { disk, ..machine }
    }
}

/// A base and what is done on it. The crash is in the last operation, or in the first open where there is none.
#[derive(Debug, Clone)]
pub(super) struct History {
    pub(super) base: Base,
    pub(super) ops: Vec<Op>,
}

/// All histories of up to `longest` operations, the short ones first.
pub(super) fn histories(bases: &[Base], longest: usize) -> Vec<History> {
    histories_of(&Op::ALL, bases, longest)
}

/// All histories of up to `longest` of these operations, the short ones first.
pub(super) fn histories_of(operations: &[Op], bases: &[Base], longest: usize) -> Vec<History> {
    let mut all: Vec<History> = bases.iter().map(|base| History { base: *base, ops: Vec::new() }).collect();
    let mut first = 0;
    for _ in 0..longest {
        let end = all.len();
        for place in first..end {
            let History { base, ops } = all[place].clone();
            all.extend(operations.iter().map(|op| History { base, ops: [ops.as_slice(), &[*op]].concat() }));
        }
        first = end;
    }
    all
}

/// What is explored, and which bug is in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) histories: Vec<History>,
    pub(super) options: StoreOptions,
    pub(super) lie: Lie,
    /// Whether whoever recovers cleans up as well, and leaves exactly what is needed.
    pub(super) cleans_up: bool,
}

/// What was explored.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) histories: usize,
    /// Moments at which the power was cut or the process killed.
    pub(super) crashes: u64,
    /// Surviving sets of pieces that were tried.
    pub(super) subsets: u64,
    /// Different images, each with one index, that were opened and checked.
    pub(super) states: u64,
    /// Those of them that are of a crash during a recovery.
    pub(super) second_states: u64,
    /// The first thing that was wrong, and where.
    pub(super) violation: Option<String>,
}

impl Report {
    fn add(&mut self, other: Self) {
        self.histories += other.histories;
        self.crashes += other.crashes;
        self.subsets += other.subsets;
        self.states += other.states;
        self.second_states += other.second_states;
        self.violation = self.violation.take().or(other.violation);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { histories, crashes, subsets, states, second_states, .. } = self;
        write!(
            f,
            "{histories} histories, {crashes} crashes, {subsets} surviving sets, {states} states checked, {second_states} of \
             them after a second crash"
        )
    }
}

/// Explores a plan on two threads, until all is done or something is wrong.
pub(super) fn explore(plan: &Plan) -> Report {
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let work = || {
        let mut report = Report::default();
        while !stop.load(Ordering::Relaxed) {
            let Some(history) = plan.histories.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let mut explorer = Explorer { plan, report: Report::default() };
            if let Err(what) = explorer.history(history) {
                explorer.report.violation = Some(format!("{history:?}: {what}"));
                stop.store(true, Ordering::Relaxed);
            }
            report.add(explorer.report);
        }
        report
    };
    let mut total = Report::default();
    thread::scope(|scope| {
        let threads = [scope.spawn(work), scope.spawn(work)];
        for thread in threads {
            total.add(thread.join().unwrap());
        }
    });
    total
}

/// How a crash ends: the power is cut and some pieces survive, or only the process is killed and all are still pending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Cut(Survivors),
    Kill,
}

impl End {
    fn of(self, disk: &SimDisk) -> SimDisk {
        match self {
            Self::Cut(survivors) => disk.survive(survivors),
            Self::Kill => disk.fork(),
        }
    }
}

/// The most pieces of which every subset is tried.
const MOST_PIECES: usize = 10;

/// Every end of a crash with that many pieces; sampled where they are many. Torn appends are sampled always.
fn all_ends(pieces: usize, seed: u64) -> Vec<End> {
    let whole: Vec<Survivors> = if pieces <= MOST_PIECES {
        (0..1 << pieces).map(Survivors::Subset).collect()
    } else {
        [Survivors::All, Survivors::None].into_iter().chain((0..256).map(|n| Survivors::Seeded(seed + n))).collect()
    };
    let torn = (0..if pieces == 0 { 0 } else { 8 }).map(|number| Survivors::Seeded(seed ^ (number << 32)));
    whole.into_iter().chain(torn).map(End::Cut).chain([End::Kill]).collect()
}

/// A few ends: all of them where there are few pieces.
fn some_ends(pieces: usize, seed: u64) -> Vec<End> {
    if pieces <= 3 {
        return (0..1 << pieces).map(|mask| End::Cut(Survivors::Subset(mask))).collect();
    }
    let sampled = (0..6).map(|number| Survivors::Seeded(seed ^ (number << 32)));
    [Survivors::All, Survivors::None].into_iter().chain(sampled).map(End::Cut).collect()
}

/// The disk but for the bytes of temporary files, which no reader looks at.
fn fingerprint(disk: &SimDisk, end: End) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in disk.files() {
        path.hash(&mut hasher);
        if !is_temporary(&path) {
            disk.read_file(&path).unwrap().hash(&mut hasher);
        }
    }
    if end == End::Kill {
        disk.pending().hash(&mut hasher);
    }
    hasher.finish()
}

/// What was checked already: an image, an index, and what was allowed.
type Seen = HashSet<(u64, usize, Vec<Line>)>;

/// One history's exploration.
struct Explorer<'p> {
    plan: &'p Plan,
    report: Report,
}

impl Explorer<'_> {
    fn start(&self, machine: &Machine) -> Process {
        let process = Process::on(machine, &self.plan.options);
        process.recorder.lie(self.plan.lie);
        process
    }

    fn history(&mut self, history: &History) -> Verdict<()> {
        self.report.histories += 1;
        let mut process = self.start(&history.base.machine());
        let before = process.line.clone();
        let Some((last, first)) = history.ops.split_last() else {
            process.recorder.record(&process.index);
            process.open().told("the first open")?;
            return self.moments(&process, from_ref(&before), &before);
        };
        process.open().told("the first open")?;
        for op in first {
            process.run(*op).told(format!("{op:?}"))?;
        }
        let before = process.line.clone();
        let after = process.next_line(*last);
        process.recorder.record(&process.index);
        process.run(*last).told(format!("{last:?}"))?;
        self.moments(&process, &[before, after.clone()], &after)
    }

    /// Crashes at each moment of the last operation. All but the last moment are before the operation was acknowledged.
    fn moments(&mut self, process: &Process, open: &[Line], acked: &Line) -> Verdict<()> {
        let moments = process.recorder.moments();
        check_offences(process)?;
        let mut seen = Seen::default();
        let last = moments.len() - 1;
        for (number, moment) in moments.iter().enumerate() {
            let allowed = if number == last { from_ref(acked) } else { open };
            self.crash(process, moment, number, allowed, &mut seen)
                .map_err(|what| format!("crash before change {} of {last}, {what}", number + 1))?;
        }
        Ok(())
    }

    fn crash(
        &mut self,
        process: &Process,
        moment: &Moment,
        number: usize,
        allowed: &[Line],
        seen: &mut Seen,
    ) -> Verdict<()> {
        self.report.crashes += 1;
        for end in all_ends(moment.disk.pending(), number as u64) {
            self.report.subsets += 1;
            let disk = end.of(&moment.disk);
            let print = fingerprint(&disk, end);
            if !seen.insert((print, moment.index_moments, allowed.to_vec())) {
                continue;
            }
            let machine = Machine { disk, ..process.machine() };
            for which in [Index::Kept, Index::Lost, Index::Older(print)] {
                let machine = Machine { index: which.of(&process.index, moment), ..machine.fork() };
                self.recover(&machine, allowed).map_err(|what| format!("{end:?}, index {which:?}, {what}"))?;
            }
            // The process may also die while it recovers.
            let which =
                [Index::Kept, Index::Older(print), Index::Kept, Index::Lost][usize::try_from(print % 4).unwrap()];
            let machine = Machine { index: which.of(&process.index, moment), ..machine };
            self.second(&machine, allowed).map_err(|what| format!("{end:?}, index {which:?}, {what}"))?;
        }
        Ok(())
    }

    /// What the next process finds; it goes on, and what the one after it finds.
    fn recover(&mut self, machine: &Machine, allowed: &[Line]) -> Verdict<()> {
        self.report.states += 1;
        let mut process = self.start(machine);
        process.open().told("the open after the crash")?;
        let found = check(process.provider(), allowed).map_err(|what| format!("after the crash: {what}"))?;
        process.line.clone_from(&allowed[found]);
        process.run(Op::Commit).told("the commit after the crash")?;
        check(process.provider(), from_ref(&process.line)).map_err(|what| format!("after the commit: {what}"))?;
        process.index.run_pending(); // the index takes in what it lacked
        check(process.provider(), from_ref(&process.line)).map_err(|what| format!("after folding: {what}"))?;
        process.open().told("the open after that")?;
        check(process.provider(), from_ref(&process.line)).map_err(|what| format!("after the next open: {what}"))?;
        check_swept(process.recorder.sim())?;
        if self.plan.cleans_up {
            clean_up(&mut process)?;
        }
        check_offences(&process)
    }

    /// Crashes again at each moment of the recovery: of the open, and of the first commit.
    fn second(&mut self, machine: &Machine, allowed: &[Line]) -> Verdict<()> {
        let mut process = self.start(&machine.fork());
        process.recorder.record(&process.index);
        process.open().told("the open after the crash")?;
        let during_open = process.recorder.moments();
        let found = check(process.provider(), allowed).map_err(|what| format!("after the crash: {what}"))?;
        process.line.clone_from(&allowed[found]);
        let before = process.line.clone();
        process.recorder.record(&process.index);
        process.run(Op::Commit).told("the commit after the crash")?;
        let during_commit = process.recorder.moments();
        // What a finished open has shown must not change any more, acknowledged or not.
        let [opened, committed] = [before, process.line.clone()].map(|line| vec![line]);
        let either = [opened.as_slice(), committed.as_slice()].concat();
        let mut seen = Seen::default();
        let stages = [(during_open, "open", allowed, &opened), (during_commit, "commit", &either, &committed)];
        for (moments, stage, open, done) in stages {
            let last = moments.len() - 1;
            for (number, moment) in moments.iter().enumerate() {
                let allowed = if number == last { done } else { open };
                self.crash_again(&process, moment, allowed, &mut seen)
                    .map_err(|what| format!("second crash before change {} of the {stage}, {what}", number + 1))?;
            }
        }
        Ok(())
    }

    fn crash_again(&mut self, process: &Process, moment: &Moment, allowed: &[Line], seen: &mut Seen) -> Verdict<()> {
        self.report.crashes += 1;
        for end in some_ends(moment.disk.pending(), self.report.crashes) {
            self.report.subsets += 1;
            let disk = end.of(&moment.disk);
            let print = fingerprint(&disk, end);
            if !seen.insert((print, moment.index_moments, allowed.to_vec())) {
                continue;
            }
            self.report.states += 1;
            self.report.second_states += 1;
            let which = [Index::Kept, Index::Older(print)][usize::try_from(print % 2).unwrap()];
            let index = which.of(&process.index, moment);
            let mut next = self.start(&Machine { disk, index, ..process.machine() });
            next.open().told(format!("{end:?}, index {which:?}: the open"))?;
            check(next.provider(), allowed).map_err(|what| format!("{end:?}, index {which:?}: {what}"))?;
            check_offences(&next)?;
        }
        Ok(())
    }
}

/// Cleans up twice: the first time leaves what the newest versions need, so the second finds nothing. Then nothing is damaged, and
/// every run that is left is one that a version in the listing, or one after it, is made of.
fn clean_up(process: &mut Process) -> Verdict<()> {
    process.run(Op::Repair).told("the repair")?;
    process.run(Op::Retire).told("the clean-up")?;
    check(process.provider(), from_ref(&process.line)).map_err(|what| format!("after the clean-up: {what}"))?;
    let again = process.provider().retire(2).told("the second clean-up")?;
    if !again.deleted.is_empty() {
        return Err(format!("the second clean-up found {:?}", again.deleted));
    }
    let damaged = process.provider().verify(|_| ControlFlow::Continue(())).told("verifying")?.damaged;
    if !damaged.is_empty() {
        return Err(format!("damaged after the clean-up: {damaged:?}"));
    }
    let files = process.recorder.sim().files();
    let horizons = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "horizon")).count();
    if horizons > 1 {
        return Err(format!("{horizons} announcements are left: {files:?}"));
    }
    process.open().told("the open after the clean-up")?;
    check(process.provider(), from_ref(&process.line))
        .map(drop)
        .map_err(|what| format!("opened after the clean-up: {what}"))
}

fn check_offences(process: &Process) -> Verdict<()> {
    process.recorder.offences().first().map_or(Ok(()), |what| Err(what.clone()))
}

/// Which index the next process finds.
#[derive(Debug, Clone, Copy)]
enum Index {
    /// As it was at the crash.
    Kept,
    Lost,
    /// As it was at some earlier moment, chosen by the number.
    Older(u64),
}

impl Index {
    fn of(self, index: &SimIndex, moment: &Moment) -> IndexImage {
        match self {
            Self::Kept => index.moment(moment.index_moments - 1).unwrap(),
            Self::Lost => IndexImage::default(),
            Self::Older(number) => {
                let moments = u64::try_from(moment.index_moments).unwrap();
                index.moment(usize::try_from(number % moments).unwrap()).unwrap()
            }
        }
    }
}
