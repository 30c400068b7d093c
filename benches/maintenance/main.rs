//! What maintenance promises, measured: what commits cost beside it, what it writes, and what opening and reading cost after it.
//!
//! ```text
//! make bench NAME=maintenance                     # 1 and 20 million keys: some 20 GB, an hour
//! make bench NAME=maintenance ARGS="--quick"      # does it work at all? no requirements
//! make bench NAME=maintenance ARGS="--only flat,tiny"
//! make bench NAME=maintenance ARGS="--only flat --keys 5000000 --commits 400"
//! ```
//! One JSON line a figure on standard output, a table on standard error; the exit code is 1 if a requirement is missed.
//!
//! - **flat**: 10,000 changed keys a commit, on few and on many keys: commit time, bytes a commit, background bytes a changed byte;
//!   commits beside a snapshot; then **opening** without a work directory, and **rolling back**
//! - **reads**: gets through a snapshot alone, and through one with eight collapsed deltas above it; and against RocksDB's own
//! - **tiny**: very many commits of 10 keys, and what is left of them after maintenance

mod flat;
#[path = "../../examples/measure/mod.rs"]
mod measure;
mod reads;
mod setup;
mod tiny;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::measure::report::Report;

/// Why it ends early.
pub(crate) type Failure = Box<dyn Error>;

const MILLION: u64 = 1_000_000;

/// How much is done.
#[derive(Debug)]
pub(crate) struct Args {
    /// Few keys and many.
    pub(crate) keys: [u64; 2],
    /// Measured commits on each of them.
    pub(crate) commits: u64,
    /// Keys of the snapshot that gets are measured on.
    pub(crate) read_keys: u64,
    pub(crate) gets: u64,
    pub(crate) tiny_commits: u64,
    pub(crate) dir: PathBuf,
    /// Whether figures have to be met.
    pub(crate) required: bool,
    only: Vec<String>,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let mut args = Self {
            keys: [MILLION, 20 * MILLION],
            commits: 2_400,
            read_keys: 4 * MILLION,
            gets: MILLION,
            tiny_commits: 100_000,
            dir: concat!(env!("CARGO_TARGET_TMPDIR"), "/maintenance").into(),
            required: true,
            only: Vec::new(),
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--keys" => args.keys[1] = value()?.parse()?,
                "--commits" => args.commits = value()?.parse()?,
                "--dir" => args.dir = value()?.into(),
                "--only" => args.only = value()?.split(',').map(str::to_owned).collect(),
                "--quick" => {
                    (args.keys, args.commits, args.read_keys) = ([20_000, 100_000], 60, 50_000);
                    (args.gets, args.tiny_commits, args.required) = (20_000, 2_000, false);
                }
                // Cargo's own.
                "--bench" => {}
                _ => return Err(format!("unknown argument {word:?}").into()),
            }
        }
        Ok(args)
    }

    fn wants(&self, part: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == part)
    }
}

fn main() -> ExitCode {
    match Args::parse(std::env::args().skip(1)).and_then(|args| measure(&args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("maintenance: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure(args: &Args) -> Result<(), Failure> {
    fs::create_dir_all(&args.dir)?;
    let mut report = Report::of("maintenance");
    if args.wants("flat") {
        flat::measure(args, &mut report)?;
    }
    if args.wants("reads") {
        reads::measure(args, &mut report)?;
    }
    if args.wants("tiny") {
        tiny::measure(args, &mut report)?;
    }
    report.finish()
}

/// Only for people and ratios: what is lost beyond 2^53 doesn't show.
#[expect(clippy::cast_precision_loss, reason = "figures are rounded to a few digits")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}
