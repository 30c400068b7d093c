//! The scale test: more keys than memory, in every phase of a store's life, under a limit that is watched.
//!
//! ```text
//! load ─► overwrite 5 % ─► snapshot ─► scan ─► load another version ─► read an old version ─► gets at old versions
//!      ─► restart without the work directory ─► verify a checksum per version
//! ```
//! Each phase is a process of its own, so that its peak is its own; one control group, if the machine allows one, holds all.
//! Keys and values are functions of their numbers, so that everything that is read can be checked and nothing is remembered.
//!
//! ```text
//! make scale KEYS=3000000 LIMIT=48MiB
//! make scale KEYS=100000000 LIMIT=512MiB CGROUP=768MiB RESIDENCY=resident
//! ```
//! A table at the end, on standard error; a JSON line for each figure, on standard output; the exit code is 1 if one is missed.

mod args;
#[path = "../measure/mod.rs"]
mod measure;
mod table;

use std::io::Write;
use std::process::ExitCode;

use crate::args::{Args, HELP};
use crate::measure::cgroup::Cgroup;
use crate::measure::disk::Scratch;
use crate::measure::phases::Phase;
use crate::measure::report::{Must, Report};
use crate::measure::run::{self, Done, memory_figure};
use crate::measure::{Failure, float, guardian, kernel, mebibytes};

/// A job that counts its MiB takes an allocator that gives back what is free (`docs/decisions/0011`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    if let Some(code) = guardian::serve() {
        return code;
    }
    let outcome = Args::parse(std::env::args().skip(1)).and_then(|args| match (&args.phase, args.help) {
        (_, true) => Ok(write!(std::io::stdout().lock(), "{HELP}")?),
        (Some(phase), _) => run::serve(phase, &args.plan),
        (None, _) => scale(args),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("scale: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn scale(mut args: Args) -> Result<(), Failure> {
    let plan = &args.plan;
    eprintln!(
        "{} keys in {} store(s), {}, limit {} MiB; {}",
        plan.keys,
        plan.stores,
        plan.residency_name(),
        plan.limit_mib,
        kernel::machine()
    );
    let scratch = Scratch::new(&plan.dir, plan.disk_bytes())?;
    args.plan.dir = scratch.path().into();
    if args.group_mib.is_none() {
        eprintln!("not in a control group: none was asked for (CGROUP=768MiB)");
    }
    let group = args.group_mib.and_then(|limit_mib| run::group(Some(limit_mib)));
    let mut done = Vec::new(); // one a phase
    let mut failure = None;
    for phase in Phase::ALL {
        match run::phase(&args.plan, phase, group.as_ref()) {
            Ok(one) => done.push(one),
            Err(error) => {
                failure = Some(error);
                break;
            }
        }
    }
    eprint!("{}", table::text(&args.plan, &done, group.is_some())?);
    let missed = figures(&args, &done, group.as_ref());
    failure.map_or(missed, Err)
}

fn figures(args: &Args, done: &[Done], group: Option<&Cgroup>) -> Result<(), Failure> {
    let plan = &args.plan;
    let mut report = Report::of("scale");
    let case = format!("{} keys, {} MiB, {}", plan.keys, plan.limit_mib, plan.residency_name());
    for one in done {
        memory_figure(&mut report, &case, plan, one)?;
    }
    let unknown = done.iter().map(|one| one.answer.get("unaccounted_bytes")).max().unwrap_or(0);
    report.figure(&format!("{case}: anonymous memory above backend.memory()"), mebibytes(unknown), "MiB", None)?;
    let disk = done.iter().map(|one| one.disk_bytes).max().unwrap_or(0);
    let must = Must::AtMost(mebibytes(plan.disk_bytes()).ceil());
    report.figure(&format!("{case}: disk"), mebibytes(disk), "MiB", Some(must))?;
    if let Some(open) = done.iter().find(|one| one.phase == Phase::Restart) {
        let millis = float(open.answer.get("open_nanos")) / 1e6;
        report.figure(&format!("{case}: restart to the first get"), millis, "ms", None)?;
    }
    if let Some(group) = group {
        let seen = group.seen();
        report.figure(&format!("{case}: OOM kills"), float(seen.oom_kills), "kills", Some(Must::AtMost(0.0)))?;
    }
    report.finish()
}
