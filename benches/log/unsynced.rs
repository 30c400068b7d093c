//! Appends without syncs, against plain writes of the same bytes.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use alluvium::wal::{Durability, FileLog, LogOptions, NewRecord, WriteAheadLog};

use crate::report::{Report, median};
use crate::{Args, Failure, Stopwatch, alternate, float, ratio};

/// What one core has to take in.
const SMALL_PER_SECOND: f64 = 1e6;
const BATCH: usize = 100;

pub(crate) fn appends(args: &Args, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    let none = LogOptions { durability: Durability::None, ..LogOptions::default() };
    let bare = LogOptions { preallocates: false, ..none.clone() };
    let gathers = LogOptions { gather_bytes: 64 << 10, ..none.clone() };
    let large = 64 << 10;
    let count = args.unsynced_bytes / large;
    let figures = alternate(
        args,
        dir,
        &mut [&mut |dir| plain(dir, large, count), &mut |dir| logged(dir, large, count, &none, 1), &mut |dir| {
            logged(dir, large, count, &bare, 1)
        }],
    )?;
    let [plain_, log, log_bare] = figures.as_slice() else { return Err("three contenders".into()) };
    let case = |what: &str| format!("64 KiB unsynced, {what}");
    report.figure(&case("plain write"), median(plain_.iter().copied()), "records/s", None)?;
    report.figure(&case("log"), median(log.iter().copied()), "records/s", None)?;
    report.figure(&case("log / plain write"), ratio(log, plain_), "×", args.must(0.7))?;
    report.figure(&case("log, not preallocated / plain write"), ratio(log_bare, plain_), "×", None)?;

    let small = 100;
    let count = args.unsynced_bytes / 2 / small;
    let figures = alternate(
        args,
        dir,
        &mut [
            &mut |dir| plain(dir, small, count),
            &mut |dir| logged(dir, small, count, &none, 1),
            &mut |dir| logged(dir, small, count, &gathers, 1),
            &mut |dir| logged(dir, small, count, &none, BATCH),
        ],
    )?;
    let [plain_, single, gathered, batched] = figures.as_slice() else { return Err("four contenders".into()) };
    let case = |what: &str| format!("100 B unsynced, {what}");
    let middle = |figures: &[f64]| median(figures.iter().copied());
    report.figure(&case("plain write, a call each"), middle(plain_), "records/s", None)?;
    report.figure(&case("log, a system call each"), middle(single), "records/s", None)?;
    report.figure(&case("log, a call each, gathered"), middle(gathered), "records/s", args.must(SMALL_PER_SECOND))?;
    report.figure(&case("log, in batches of 100"), middle(batched), "records/s", args.must(SMALL_PER_SECOND))
}

fn plain(dir: &Path, bytes: usize, count: usize) -> Result<f64, Failure> {
    let mut file = File::options().create_new(true).write(true).open(dir.join("plain"))?;
    let payload = vec![7; bytes];
    let start = Stopwatch::start();
    for _ in 0..count {
        file.write_all(&payload)?;
    }
    Ok(float(count) / start.seconds())
}

fn logged(dir: &Path, bytes: usize, count: usize, options: &LogOptions, batch: usize) -> Result<f64, Failure> {
    let log = FileLog::open(dir.join("log"), options.clone())?;
    let payload = vec![7; bytes];
    log.write(&payload, 1)?;
    let start = Stopwatch::start();
    if batch == 1 {
        for _ in 0..count {
            log.write(&payload, 1)?;
        }
    } else {
        let records = vec![NewRecord::new(&payload, 1); batch];
        for _ in 0..count / batch {
            log.write_batch(&records)?;
        }
    }
    Ok(float(count) / start.seconds())
}
