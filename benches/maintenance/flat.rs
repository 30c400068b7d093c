//! The same commits on few and on many keys; beside a snapshot; opening and rolling back afterwards.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use alluvium::{RocksDbProvider, StateStoreProvider, StoreOptions, SystemClock};
use tempfile::TempDir;

use crate::measure::report::{Must, Report, median};
use crate::measure::workload::{BATCH_KEYS, KEY_BYTES, VALUE_BYTES};
use crate::setup::{Place, batch, bytes_to_open, load, open_cold, picks, restore_and_copy, roll_back};
use crate::{Args, Failure, float};

/// Enough to roll back by a hundred of them.
const RETAINED: usize = 101;
/// The two stores take turns, since the disk changes its mind from minute to minute. At the end of its turn a store finishes what maintenance
/// has begun, so that none works in the other's.
const TURNS: u64 = 8;

/// A store of some number of keys, and what its commits have cost so far.
struct Subject {
    keys: u64,
    place: Place,
    provider: RocksDbProvider,
    written: Written,
    /// Of each turn, in milliseconds.
    turns: Vec<Vec<f64>>,
    dir: TempDir,
}

pub(crate) fn measure(args: &Args, report: &mut Report) -> Result<(), Failure> {
    let clock = SystemClock::new();
    let subjects: Result<Vec<Subject>, Failure> = args.keys.iter().map(|keys| Subject::load(args, *keys)).collect();
    let mut subjects = subjects?;
    for turn in 0..TURNS {
        for subject in &mut subjects {
            eprintln!("turn {} of {TURNS}, {} keys", turn + 1, subject.keys);
            subject.commit(args.commits * turn / TURNS..args.commits * (turn + 1) / TURNS, &clock)?;
        }
    }
    let [few, many] = subjects.as_slice() else { return Err("two numbers of keys".into()) };
    let flat = || args.required.then_some(Must::AtMost(1.2));
    let time = median(many.medians().iter().zip(few.medians()).map(|(many, few)| many / few));
    report.figure("commit time, many keys / few", time, "×", flat())?;
    report.figure("bytes a commit, many keys / few", many.bytes() / few.bytes(), "×", flat())?;
    for subject in subjects {
        subject.report(args, report)?;
        let (keys, place) = (subject.keys, subject.place.clone());
        let _dir = aftermath(args, subject, &clock, report)?;
        opening(args, keys, &place, report)?;
    }
    Ok(())
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn percentile(mut times: Vec<f64>, percent: usize) -> f64 {
    times.sort_by(f64::total_cmp);
    let place = (times.len() * percent / 100).min(times.len().saturating_sub(1));
    times.get(place).copied().unwrap_or(0.0)
}

impl Subject {
    fn load(args: &Args, keys: u64) -> Result<Self, Failure> {
        let dir = tempfile::tempdir_in(&args.dir)?;
        let place = Place::new(dir.path());
        eprintln!("\n{keys} keys, {} commits of {BATCH_KEYS}", args.commits);
        let provider = place.open(StoreOptions::default().retain_versions(RETAINED)?)?;
        load(&provider, keys)?;
        provider.settle()?;
        let mut written = Written::default();
        written.look(&place)?;
        (written.deltas, written.background) = (Vec::new(), 0);
        Ok(Self { keys, place, provider, written, turns: Vec::new(), dir })
    }

    fn commit(&mut self, numbers: Range<u64>, clock: &SystemClock) -> Result<(), Failure> {
        let mut times = Vec::new();
        for number in numbers {
            times.push(millis(batch(&self.provider, &picks(self.keys, number), clock)?));
            if number % 8 == 7 {
                self.written.look(&self.place)?;
            }
        }
        self.provider.settle()?;
        self.turns.push(times);
        self.written.look(&self.place)
    }

    fn medians(&self) -> Vec<f64> {
        self.turns.iter().map(|turn| median(turn.iter().copied())).collect()
    }

    fn bytes(&self) -> f64 {
        median(self.written.deltas.iter().copied())
    }

    fn report(&self, args: &Args, report: &mut Report) -> Result<(), Failure> {
        let case = |what: &str| format!("{} keys, {what}", self.keys);
        let times = || self.turns.iter().flatten().copied();
        let changed = args.commits * picks(self.keys, 0).len() as u64 * (KEY_BYTES + VALUE_BYTES) as u64;
        let background = float(self.written.background) / float(changed.max(1));
        report.figure(&case("commit p50"), median(times()), "ms", None)?;
        report.figure(&case("commit p99"), percentile(times().collect(), 99), "ms", None)?;
        report.figure(&case("bytes a commit"), self.bytes(), "bytes", None)?;
        let must = args.required.then_some(Must::AtMost(8.0));
        report.figure(&case("background bytes a changed byte"), background, "bytes/byte", must)
    }
}

/// What comes after the commits: those beside a snapshot, and going back.
fn aftermath(args: &Args, subject: Subject, clock: &SystemClock, report: &mut Report) -> Result<TempDir, Failure> {
    let Subject { keys, place, provider, dir, .. } = subject;
    drop(provider);
    // Nothing is deleted while snapshots are measured: where the file system passes every deletion on to the disk (`discard`), one of a
    // large file holds up all syncs, with a snapshot or without.
    let provider = place.open(StoreOptions::default().retain_versions(usize::MAX)?)?;
    beside_a_snapshot(args, keys, &provider, clock, report)?;
    for back in [1, 10, 100] {
        let must = args.required.then_some(Must::Below(50.0));
        // Back, and up again: each is an opening of its own.
        let took = roll_back(&provider, back.min(args.commits / 2), clock)?;
        report.figure(&format!("{keys} keys, roll back {back}"), millis(took), "ms", must)?;
    }
    let upkeep = provider.upkeep();
    eprintln!("  {upkeep:?}");
    match upkeep.last_error {
        Some(error) => Err(format!("maintenance failed: {error}").into()),
        None => Ok(dir),
    }
}

/// Sizes of files by what they are for. Retirement keeps what is new, so nothing comes and goes unseen.
#[derive(Default)]
struct Written {
    seen: HashMap<String, u64>,
    deltas: Vec<f64>,
    background: u64,
}

impl Written {
    fn look(&mut self, place: &Place) -> Result<(), Failure> {
        for (name, bytes) in place.sizes()? {
            if self.seen.insert(name.clone(), bytes).is_none() {
                if name.strip_suffix(".delta").is_some_and(|stem| !stem.contains('-')) {
                    self.deltas.push(float(bytes));
                } else {
                    self.background += bytes;
                }
            }
        }
        Ok(())
    }
}

/// Commits while snapshots are taken one after the other, against commits while none is.
fn beside_a_snapshot(
    args: &Args,
    keys: u64,
    provider: &RocksDbProvider,
    clock: &SystemClock,
    report: &mut Report,
) -> Result<(), Failure> {
    let commits = args.commits.min(400);
    let some = |first: u64| -> Result<Vec<f64>, Failure> {
        (first..first + commits).map(|number| Ok(millis(batch(provider, &picks(keys, number), clock)?))).collect()
    };
    let alone = some(args.commits)?;
    let done = AtomicBool::new(false);
    let beside = thread::scope(|scope| {
        let snapshots = scope.spawn(|| -> alluvium::Result<u64> {
            let mut taken = 0;
            while !done.load(Ordering::Acquire) {
                provider.snapshot()?;
                taken += 1;
            }
            Ok(taken)
        });
        let beside = some(args.commits + commits);
        done.store(true, Ordering::Release);
        let taken = snapshots.join().unwrap_or_else(|_| Err(alluvium::Error::invalid("a snapshot panicked")))?;
        eprintln!("  {taken} snapshots beside {commits} commits");
        beside
    })?;
    let [beside, alone] = [beside, alone].map(|times| percentile(times, 99));
    eprintln!("  commit p99 beside a snapshot {beside:.1} ms, alone {alone:.1} ms");
    let ratio = beside / alone;
    let must = args.required.then_some(Must::Below(2.0));
    report.figure(&format!("{keys} keys, commit p99 beside a snapshot / alone"), ratio, "×", must)
}

fn opening(args: &Args, keys: u64, place: &Place, report: &mut Report) -> Result<(), Failure> {
    let clock = SystemClock::new();
    let case = |what: &str| format!("{keys} keys, {what}");
    let must = args.required.then_some(Must::Below(150.0));
    let times: Result<Vec<f64>, Failure> =
        (0..5).map(|_| Ok(millis(open_cold(place, StoreOptions::default(), &clock)?))).collect();
    report.figure(&case("open without work directory"), median(times?), "ms", must)?;
    report.figure(&case("bytes read to open"), float(bytes_to_open(place)?), "bytes", None)?;
    let (restore, copy) = restore_and_copy(place, &clock)?;
    eprintln!("  restore {:.2} s, copy {:.2} s", restore.as_secs_f64(), copy.as_secs_f64());
    // A restore of few keys is mostly what it costs to make an index at all.
    let must = (args.required && keys == args.keys[1]).then_some(Must::AtLeast(0.4));
    report.figure(&case("restore / copy of the same files"), copy.as_secs_f64() / restore.as_secs_f64(), "×", must)
}
