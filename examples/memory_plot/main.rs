//! Memory by the number of keys: whole maps in the heap against the product under a limit.
//!
//! ```text
//! for each number of keys, for each provider:
//!   a process loads, snapshots, and commits 20 × 10,000 random updates ─► peaks of memory, time per commit
//!   another opens what is there                                        ─► time to the first get
//! all of it ─► memory.csv ─► memory.svg
//! ```
//! ```text
//! make memory-plot                                  # measures, then draws
//! make memory-plot ARGS="--draw"                    # draws what was measured
//! ```

mod args;
mod chart;
#[path = "../measure/mod.rs"]
mod measure;
mod plot;
mod point;
mod table;

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use alluvium::{Clock, SystemClock};

use crate::args::{Args, HELP};
use crate::measure::calendar::calendar;
use crate::measure::disk::Scratch;
use crate::measure::{Failure, guardian, kernel, run};
use crate::point::Provider;
use crate::table::{Row, Table};

/// A job that counts its MiB takes an allocator that gives back what is free (`docs/decisions/0011`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    if let Some(code) = guardian::serve() {
        return code;
    }
    let outcome = Args::parse(std::env::args().skip(1)).and_then(|args| match &args.task {
        Some(task) => point::serve(task, &args),
        None if args.help => Ok(write!(std::io::stdout().lock(), "{HELP}")?),
        None if args.draw => draw(&args.out),
        None => measure(args),
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("memory_plot: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn measure(mut args: Args) -> Result<(), Failure> {
    let most = args.counts.iter().copied().max().unwrap_or(0);
    let scratch = Scratch::new(&args.plan.dir, args.plan.clone().with_keys(most).disk_bytes())?;
    // Without a limit: it only counts, which nothing else does for pages that are cached but not mapped.
    let group = run::group(None);
    let mut table = Table { about: about(), limit_mib: args.plan.limit_mib, rows: Vec::new() };
    for keys in std::mem::take(&mut args.counts) {
        for provider in Provider::ALL {
            let plan = args.plan.clone().with_keys(keys).within(scratch.path().join("point"));
            let row: Row = point::measure(&plan, provider, group.as_ref())?;
            eprintln!("{}", row.text());
            table.rows.push(row);
            fs::remove_dir_all(&plan.dir)?;
        }
        // After each number of keys: the last one takes longer than all the others.
        fs::create_dir_all(&args.out)?;
        fs::write(args.out.join("memory.csv"), table.csv())?;
        draw(&args.out)?;
    }
    Ok(())
}

/// When and where.
fn about() -> String {
    let minute = u32::try_from(SystemClock::new().wall_ms() / 60_000).unwrap_or(u32::MAX);
    format!("{} UTC; {}", calendar(minute), kernel::machine())
}

fn draw(out: &Path) -> Result<(), Failure> {
    let csv = out.join("memory.csv");
    let text = fs::read_to_string(&csv).map_err(|e| format!("{}: {e}", csv.display()))?;
    let svg = out.join("memory.svg");
    fs::write(&svg, plot::svg(&Table::parse(&text)?))?;
    eprintln!("{} is drawn from {}", svg.display(), csv.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_in_the_repository_is_made_from_the_table_beside_it() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/measurements");
        let table = Table::parse(&fs::read_to_string(dir.join("memory.csv")).unwrap()).unwrap();
        let drawn = plot::svg(&table);
        let kept = fs::read_to_string(dir.join("memory.svg")).unwrap();
        assert!(drawn == kept, "docs/measurements/memory.svg is of another table: make memory-plot ARGS=--draw");
    }
}
