//! The main job: a year of real flights through a state store, killed and resumed on the way.
//!
//! ```text
//! flights.csv.zst ─► input: event order ─► batch ─► job: one row, three tables ─► commit with the input position
//!                                                          └─► stored: one column family a table
//! at the end: oracle (a plain pass in memory) ─► compared with what is stored ─► report
//! ```
//!
//! Run it with `make demo`, or see `cargo run --release --example flights -- --help`.

mod args;
mod cost;
mod crash;
mod input;
mod job;
#[path = "../measure/mod.rs"]
mod measure;
mod oracle;
mod report;
mod stored;

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use alluvium::{
    Backend, BackendOptions, Clock, LocalCheckpoint, Residency, RocksDbProvider, StateStoreId, StateStoreProvider,
    StoreOptions, SystemClock, Version,
};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::args::{Args, HELP};
use crate::cost::Cost;
use crate::crash::Bomb;
use crate::input::Input;
use crate::measure::kernel::held;
use crate::measure::meter::Meter;
use crate::report::Report;
use crate::stored::{Batch, Position};

/// Why the program ends early: a sentence.
#[derive(Debug)]
pub(crate) struct Failure(String);

impl Failure {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    pub(crate) fn file(path: &Path, error: &io::Error) -> Self {
        Self(format!("{}: {error}", path.display()))
    }

    pub(crate) fn input(path: &Path, offset_bytes: u64, reason: &str) -> Self {
        Self(format!("{} at byte {offset_bytes}: {reason}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<alluvium::Error> for Failure {
    fn from(error: alluvium::Error) -> Self {
        Self(error.to_string())
    }
}

fn main() -> ExitCode {
    let outcome = match Args::parse(std::env::args().skip(1)) {
        Ok(Some(args)) => run(&args),
        Ok(None) => print(HELP),
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("flights: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn print(text: &str) -> Result<(), Failure> {
    writeln!(io::stdout().lock(), "{text}").map_err(|e| Failure::new(format!("standard output: {e}")))
}

fn run(args: &Args) -> Result<(), Failure> {
    let meter = Meter::start().map_err(|e| Failure::new(format!("could not start a thread: {e}")))?;
    let clock = SystemClock::new();
    let input = Input::open(&args.input, &args.work.join("input"))?;
    let provider = open(args)?;
    let (version, position) = stored::newest(&provider)?;
    if version != Version::EMPTY && !args.resume {
        return Err(Failure::new(format!(
            "the checkpoint already holds version {version} with {} rows; --resume goes on there",
            position.rows
        )));
    }
    let (version, position) = stream(args, &provider, &input, &meter, &clock, (version, position))?;

    let tables = stored::tables(&provider, version)?;
    if args.verify {
        let rows = usize::try_from(position.rows).unwrap_or(usize::MAX);
        let expected = oracle::single_pass(input.rows(0).take(rows))?;
        if let Some(differences) = tables.differences(&expected) {
            return Err(Failure::new(format!("the tables are wrong (- expected, + found):\n{differences}")));
        }
    }
    let report = Report {
        version,
        rows: position.rows,
        tables: &tables,
        cost: position.cost,
        memory_limit_mib: args.memory_limit_mib,
        verified: args.verify,
        checkpoint: report::measure(&args.checkpoint)?,
    };
    let text = if args.json { report.json() } else { report.text() };
    print(&text.map_err(|e| Failure::new(e.to_string()))?)
}

fn open(args: &Args) -> Result<RocksDbProvider, Failure> {
    let limit = usize::try_from(args.memory_limit_mib << 20).map_err(|e| Failure::new(e.to_string()))?;
    let options = BackendOptions::default().memory_limit(limit);
    let backend = Backend::open(args.work.join("index"), options)?;
    let checkpoint = LocalCheckpoint::open(&args.checkpoint)?;
    let residency = if args.resident { Residency::Resident } else { Residency::Mapped };
    let id = StateStoreId::new("flights", 0, "state")?;
    Ok(RocksDbProvider::open(&backend, checkpoint, id, StoreOptions::default().residency(residency))?)
}

/// Batch by batch from `start` to the end of the input; gives the last version and its position.
fn stream(
    args: &Args,
    provider: &impl StateStoreProvider,
    input: &Input,
    meter: &Meter,
    clock: &impl Clock,
    start: (Version, Position),
) -> Result<(Version, Position), Failure> {
    let (mut version, mut position) = start;
    let earlier = position.cost;
    let began = clock.elapsed();
    let end = args.rows.min(input.len());
    let done = usize::try_from(position.rows).unwrap_or(usize::MAX);
    let bar = progress_bar(end, done);
    let mut rows = input.rows(done).take(end.saturating_sub(done)).peekable();
    let mut bomb = None;
    let mut batches = 0_u64;
    let mut last_batch = Duration::from_millis(50);
    while rows.peek().is_some() {
        let batch_began = clock.elapsed();
        if args.crash_after == Some(batches) {
            bomb = Some(Bomb::arm(last_batch)?);
        }
        let mut batch = Batch::begin(provider, version)?;
        for flight in rows.by_ref().take(args.batch) {
            batch.apply(&flight?)?;
            position.rows += 1;
        }
        // The process's own counters include what it read in; the clock starts with the first batch.
        position.cost = earlier.with(Cost::of_this_process(meter, clock.elapsed().saturating_sub(began)));
        version = batch.commit(&position)?;
        batches += 1;
        if args.snapshot_every > 0 && version.0 % args.snapshot_every == 0 {
            provider.snapshot()?;
        }
        bar.set_position(position.rows);
        bar.set_message(format!("version {version}, {} MiB", held().anonymous_bytes >> 20));
        last_batch = clock.elapsed().saturating_sub(batch_began);
    }
    bar.finish();
    match (bomb, args.crash_after) {
        (Some(bomb), _) => Err(bomb.wait()),
        (None, Some(after)) => {
            Err(Failure::new(format!("--crash-after {after}: the input ended after {batches} batches")))
        }
        (None, None) => Ok((version, position)),
    }
}

/// A bar on standard error; nothing where that isn't a terminal.
fn progress_bar(end: usize, done: usize) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(end as u64), ProgressDrawTarget::stderr());
    let template = "{wide_bar} {pos}/{len} rows, {per_sec}, {msg}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_position(done as u64);
    bar.reset_eta();
    bar
}
