//! Synced writes: one writer against a bare loop, many writers against one.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use alluvium::wal::{FileLog, LogOptions, WriteAheadLog};

use crate::report::{Report, median};
use crate::{Args, Failure, Stopwatch, Turn, alternate, float, ratio, rival};

const WRITERS: usize = 64;

pub(crate) fn one_writer(args: &Args, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    for bytes in [100, 1024] {
        let room = LogOptions::default();
        let plain = LogOptions { preallocates: false, ..LogOptions::default() };
        let figures = alternate(
            args,
            dir,
            &mut [
                &mut |dir| bare(dir, bytes, args.syncs, 0),
                &mut |dir| logged(dir, bytes, args.syncs, 1, &plain),
                &mut |dir| bare(dir, bytes, args.syncs, 64 << 20),
                &mut |dir| logged(dir, bytes, args.syncs, 1, &room),
            ],
        )?;
        let [loop_, log, loop_room, log_room] = figures.as_slice() else { return Err("four contenders".into()) };
        let case = |what: &str| format!("1 writer, {bytes} B, synced, {what}");
        report.figure(&case("bare loop"), median(loop_.iter().copied()), "records/s", None)?;
        report.figure(&case("log, not preallocated"), median(log.iter().copied()), "records/s", None)?;
        report.figure(&case("neither preallocated"), ratio(log, loop_), "×", None)?;
        report.figure(&case("bare loop, preallocated"), median(loop_room.iter().copied()), "records/s", None)?;
        report.figure(&case("log / bare loop"), ratio(log_room, loop_), "×", args.must(0.95))?;
        report.figure(&case("log"), median(log_room.iter().copied()), "records/s", None)?;
        report.figure(&case("both preallocated"), ratio(log_room, loop_room), "×", None)?;
        report.figure(&case("log / log, not preallocated"), ratio(log_room, log), "×", None)?;
    }
    Ok(())
}

pub(crate) fn many_writers(args: &Args, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    let options = LogOptions::default();
    let rivals = rival::contenders(args);
    let syncs = args.syncs;
    let mut single = |dir: &Path| logged(dir, 1024, syncs, 1, &options);
    let mut many = |dir: &Path| logged(dir, 1024, syncs, WRITERS, &options);
    let mut rival_runs: Vec<Box<Turn<'_>>> = Vec::new();
    for rival in &rivals {
        rival_runs.push(Box::new(move |dir| rival.run(dir, 1024, syncs, WRITERS)));
    }
    let mut contenders: Vec<&mut Turn<'_>> = vec![&mut single, &mut many];
    contenders.extend(rival_runs.iter_mut().map(|run| run.as_mut() as &mut Turn<'_>));
    let figures = alternate(args, dir, &mut contenders)?;
    let [single, many, others @ ..] = figures.as_slice() else { return Err("two contenders".into()) };
    let case = |what: &str| format!("{WRITERS} writers, 1024 B, synced, {what}");
    report.figure(&case("log"), median(many.iter().copied()), "records/s", None)?;
    report.figure(&case("log / one writer"), ratio(many, single), "×", args.must(25.0))?;
    for (rival, other) in rivals.iter().zip(others) {
        let name = rival.name;
        report.figure(&case(name), median(other.iter().copied()), "records/s", None)?;
        let must = if name == rival::RAFT_ENGINE { args.must(1.0) } else { None };
        report.figure(&case(&format!("log / {name}")), ratio(many, other), "×", must)?;
    }
    Ok(())
}

/// Records a second of a loop that appends and syncs.
fn bare(dir: &Path, bytes: usize, syncs: usize, room: u64) -> Result<f64, Failure> {
    let mut file = File::options().create_new(true).write(true).open(dir.join("bare"))?;
    if room > 0 {
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, room)?;
    }
    let payload = vec![7; bytes];
    file.write_all(&payload)?;
    file.sync_all()?;
    let start = Stopwatch::start();
    for _ in 0..syncs {
        file.write_all(&payload)?;
        file.sync_data()?;
    }
    Ok(float(syncs) / start.seconds())
}

/// Records a second of a log; every writer writes `syncs` of them.
fn logged(dir: &Path, bytes: usize, syncs: usize, writers: usize, options: &LogOptions) -> Result<f64, Failure> {
    let log = FileLog::open(dir.join("log"), options.clone())?;
    let payload = vec![7; bytes];
    log.write(&payload, 1)?;
    let start = Stopwatch::start();
    if writers == 1 {
        for _ in 0..syncs {
            log.write(&payload, 1)?;
        }
    } else {
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..writers)
                .map(|_| scope.spawn(|| (0..syncs).try_for_each(|_| log.write(&payload, 1).map(|_| ()))))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(Failure::from)
            })
        })?;
    }
    let seconds = start.seconds();
    log.close()?;
    Ok(float(syncs * writers) / seconds)
}
