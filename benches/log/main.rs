//! The write-ahead log against a bare loop of append and sync.
//!
//! Every figure is the median over turns that alternate between the contenders, on files next to each other. The rivals are RocksDB's log, where
//! it is built in, and `raft-engine`, which is built on demand in a package of its own (`benches/rivals/log`) and runs as a process.
//!
//! ```text
//! make bench NAME=log                      # all
//! make bench NAME=log ARGS="--quick"       # does it work at all? no requirements
//! make bench NAME=log ARGS="--no-rivals --only synced,unsynced,replay"
//! ```
//! One JSON line a figure on standard output, a table on standard error; the exit code is 1 if a requirement is missed.

mod bare_group;
mod replayed;
#[allow(dead_code, unused_imports, reason = "a bench uses a part of it, and without a harness drops its tests")]
#[path = "../../examples/measure/report.rs"]
mod report;
mod rival;
mod slow;
mod synced;
mod unsynced;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use alluvium::{Clock, SystemClock};

use crate::report::{Must, Report, median};

/// Why it ends early.
pub(crate) type Failure = Box<dyn Error>;

#[derive(Debug)]
pub(crate) struct Args {
    pub(crate) pairs: usize,
    /// Syncs in a turn.
    pub(crate) syncs: usize,
    /// Bytes in a turn without syncs.
    pub(crate) unsynced_bytes: usize,
    pub(crate) dir: PathBuf,
    pub(crate) required: bool,
    pub(crate) rivals: bool,
    only: Option<String>,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut args = Self {
            pairs: 7,
            syncs: 250,
            unsynced_bytes: 48 << 20,
            dir: concat!(env!("CARGO_TARGET_TMPDIR"), "/log").into(),
            required: true,
            rivals: true,
            only: None,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--pairs" => args.pairs = value()?.parse()?,
                "--syncs" => args.syncs = value()?.parse()?,
                "--dir" => args.dir = value()?.into(),
                "--no-rivals" => args.rivals = false,
                "--only" => args.only = Some(value()?),
                "--quick" => {
                    (args.pairs, args.syncs, args.unsynced_bytes) = (1, 20, 4 << 20);
                    (args.required, args.rivals) = (false, false);
                }
                // Cargo's own.
                "--bench" => {}
                _ => return Err(format!("unknown argument {word:?}").into()),
            }
        }
        Ok(args)
    }

    pub(crate) fn must(&self, least: f64) -> Option<Must> {
        self.required.then_some(Must::AtLeast(least))
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only.split(',').any(|wanted| wanted == part))
    }
}

fn main() -> ExitCode {
    match Args::parse(std::env::args().skip(1)).and_then(|args| measure(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("log: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<(), Failure> {
    let mut report = Report::of("log");
    fs::create_dir_all(&args.dir)?;
    let dir = tempfile::tempdir_in(&args.dir)?;
    let dir = dir.path();
    if args.wants("synced") {
        synced::one_writer(args, dir, &mut report)?;
        synced::many_writers(args, dir, &mut report)?;
    }
    if args.wants("unsynced") {
        unsynced::appends(args, dir, &mut report)?;
    }
    if args.wants("replay") {
        replayed::replay(args, dir, &mut report)?;
        replayed::handles(args, dir, &mut report)?;
    }
    report.finish()
}

/// One turn of a contender, in a folder of its own.
pub(crate) type Turn<'a> = dyn FnMut(&Path) -> Result<f64, Failure> + 'a;

/// Time since it was made.
pub(crate) struct Stopwatch(SystemClock);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(SystemClock::new())
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Turns that alternate, each on a fresh place below `dir`: for every contender its figures.
pub(crate) fn alternate(args: &Args, dir: &Path, contenders: &mut [&mut Turn<'_>]) -> Result<Vec<Vec<f64>>, Failure> {
    let mut figures = vec![Vec::new(); contenders.len()];
    for pair in 0..args.pairs {
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        if pair % 2 == 1 {
            order.reverse();
        }
        for place in order {
            let place_dir = dir.join(format!("{pair}-{place}"));
            fs::create_dir_all(&place_dir)?;
            if let (Some(contender), Some(found)) = (contenders.get_mut(place), figures.get_mut(place)) {
                found.push(contender(&place_dir)?);
            }
            fs::remove_dir_all(&place_dir)?;
        }
    }
    Ok(figures)
}

/// The median of the ratios within each pair.
pub(crate) fn ratio(own: &[f64], rival: &[f64]) -> f64 {
    median(own.iter().zip(rival).map(|(own, rival)| own / rival))
}

/// Only for people and ratios: what is lost beyond 2^53 doesn't show.
#[expect(clippy::cast_precision_loss, reason = "figures are rounded to a few digits")]
pub(crate) fn float(count: usize) -> f64 {
    count as f64
}

/// Does the same in so many threads at once, and waits for all of them.
pub(crate) fn side_by_side<E>(threads: usize, work: impl Fn() -> Result<(), E> + Sync) -> Result<(), Failure>
where
    E: Error + Send + 'static,
{
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(&work)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(Failure::from)
        })
    })
}
