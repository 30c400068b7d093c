//! What issue "memory is one number" asks for, measured.
//!
//! - **peaks**: anonymous memory in every phase of a store's life, in both residencies, under several limits, with one and with
//!   200 stores open: at most the limit and 48 MiB
//! - **growth**: ten times the keys under the same limit: peaks that differ by less than 10 %; commits of 10,000 changed keys
//!   that take at most 1.5 times as long, working set cached, and write the same bytes
//! - **spill**: a transaction of ten times the limit: at least half the throughput of the same one where it fits
//!
//! ```text
//! make bench NAME=memory                                # an hour or so, and 30 GB of disk
//! make bench NAME=memory ARGS="--only spill"            # a part
//! make bench NAME=memory ARGS="--quick"                 # does it work at all? small sizes, timings without requirements
//! ```
//! One JSON line a figure on standard output, a table on standard error; the exit code is 1 if a requirement is missed.

mod growth;
#[path = "../../examples/measure/mod.rs"]
mod measure;
mod peaks;
mod spill;
mod task;

use std::path::PathBuf;
use std::process::ExitCode;

use alluvium::Residency;

use crate::measure::Failure;
use crate::measure::guardian;
use crate::measure::plan::Plan;
use crate::measure::report::Report;
use crate::measure::run::{self, PHASE};
use crate::task::TASK;

pub(crate) const RESIDENCIES: [Residency; 2] = [Residency::Mapped, Residency::Resident];
const MILLION: u64 = 1_000_000;

/// How large everything is.
#[derive(Debug, Clone)]
pub(crate) struct Sizes {
    /// Limits in MiB, each with the keys that are put under it.
    pub(crate) peaks: Vec<(u64, u64)>,
    pub(crate) stores: Vec<u64>,
    /// Few keys and many, under the same limit.
    pub(crate) growth: [u64; 2],
    pub(crate) growth_limit_mib: u64,
    pub(crate) spill_limit_mib: u64,
    /// Whether times have to be met.
    pub(crate) timed: bool,
}

impl Sizes {
    fn full() -> Self {
        Self {
            peaks: vec![(64, 3 * MILLION), (256, 6 * MILLION), (512, 10 * MILLION)],
            stores: vec![1, 200],
            growth: [3 * MILLION, 30 * MILLION],
            growth_limit_mib: 64,
            spill_limit_mib: 64,
            timed: true,
        }
    }

    fn quick() -> Self {
        Self {
            peaks: vec![(64, 200_000)],
            stores: vec![1, 20],
            growth: [100_000, 400_000],
            growth_limit_mib: 64,
            spill_limit_mib: 16,
            timed: false,
        }
    }
}

#[derive(Debug)]
struct Args {
    sizes: Sizes,
    only: Option<String>,
    dir: PathBuf,
    plan: Plan,
    /// Set in a child: what it does.
    phase: Option<String>,
    task: Option<String>,
}

impl Args {
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let dir = PathBuf::from(concat!(env!("CARGO_TARGET_TMPDIR"), "/memory"));
        let plan = Plan::new(dir.clone());
        let mut args = Self { sizes: Sizes::full(), only: None, dir, plan, phase: None, task: None };
        while let Some(word) = words.next() {
            if args.plan.take(&word, &mut words)? {
                continue;
            }
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--only" => args.only = Some(value()?),
                "--quick" => args.sizes = Sizes::quick(),
                PHASE => args.phase = Some(value()?),
                TASK => args.task = Some(value()?),
                // Cargo's own.
                "--bench" => {}
                _ => return Err(format!("unknown argument {word:?}").into()),
            }
        }
        args.dir.clone_from(&args.plan.dir);
        Ok(args)
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.split(',').any(|name| name == part))
    }
}

/// A job that counts its MiB takes an allocator that gives back what is free (`docs/decisions/0011`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    if let Some(code) = guardian::serve() {
        return code;
    }
    let outcome = Args::parse(std::env::args().skip(1)).and_then(|args| match (&args.phase, &args.task) {
        (Some(phase), _) => run::serve(phase, &args.plan),
        (_, Some(task)) => task::serve(task, &args.plan),
        _ => bench(&args),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("memory: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn bench(args: &Args) -> Result<(), Failure> {
    let mut report = Report::of("memory");
    if args.wants("spill") {
        spill::measure(&args.sizes, &args.dir, &mut report)?;
    }
    if args.wants("peaks") {
        peaks::measure(&args.sizes, &args.dir, &mut report)?;
    }
    if args.wants("growth") {
        growth::measure(&args.sizes, &args.dir, &mut report)?;
    }
    report.finish()
}
