//! Synced writes: one writer against a bare loop, many writers against one.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alluvium::wal::{Durability, FileLog, LogOptions, NewRecord, RecordKind, WriteAheadLog, WriteOptions};
use alluvium::{IdSource, SystemClock};

use crate::report::{Report, median};
use crate::slow::SlowDisk;
use crate::{Args, Failure, Stopwatch, Turn, alternate, bare_group, float, ratio, rival, side_by_side};

const WRITERS: usize = 64;
/// Bytes of a record of 1 KiB with its header.
const FRAME: usize = 32 + 1024;
/// Of a file, as much as a segment has.
const ROOM: u64 = 64 << 20;
/// How much longer the syncs of the slow disk take.
const SLOWER: Duration = Duration::from_millis(1);

/// Records of a contender before the next one has its turn: a disk that others use too changes its mind within seconds.
const CHUNK: usize = 5;

pub(crate) fn one_writer(args: &Args, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    for bytes in [100, 1024] {
        let place = dir.join(format!("one-{bytes}"));
        fs::create_dir_all(&place)?;
        let room = LogOptions::default();
        let plain = LogOptions { preallocates: false, ..LogOptions::default() };
        let recycled = recycled(&place.join("recycled"))?;
        let (loop_, loop_room) = (bare(&place.join("bare"), 0)?, bare(&place.join("room"), ROOM)?);
        let (log, log_room) = (FileLog::open(place.join("log"), plain)?, FileLog::open(place.join("log-room"), room)?);
        let payload = vec![7; bytes];
        let append = |mut file: &File| -> Result<(), Failure> {
            file.write_all(&payload)?;
            Ok(file.sync_data()?)
        };
        let write = |log: &FileLog| -> Result<(), Failure> { Ok(log.write(&payload, 1).map(|_| ())?) };
        let mut turns: [&mut dyn FnMut() -> Result<(), Failure>; 5] = [
            &mut || append(&loop_),
            &mut || write(&log),
            &mut || append(&loop_room),
            &mut || write(&log_room),
            &mut || write(&recycled),
        ];
        let mut seconds: [Vec<f64>; 5] = Default::default();
        for round in 0..=args.pairs * args.syncs / CHUNK {
            for place in 0..turns.len() {
                let place = if round % 2 == 0 { place } else { turns.len() - 1 - place };
                let (Some(turn), Some(found)) = (turns.get_mut(place), seconds.get_mut(place)) else { continue };
                let start = Stopwatch::start();
                (0..CHUNK).try_for_each(|_| turn())?;
                // The first round makes the files.
                if round > 0 {
                    found.push(start.seconds() / float(CHUNK));
                }
            }
        }
        let [loop_, log, loop_room, log_room, recycled] = seconds.map(median);
        let case = |what: &str| format!("1 writer, {bytes} B, synced, {what}");
        for (name, seconds) in [
            ("bare loop", loop_),
            ("log", log_room),
            ("bare loop, preallocated", loop_room),
            ("log, not preallocated", log),
            ("log, recycled segment", recycled),
        ] {
            report.figure(&case(name), 1.0 / seconds, "records/s", None)?;
        }
        report.figure(&case("log / bare loop"), loop_ / log_room, "×", args.must(0.95))?;
        report.figure(&case("both preallocated"), loop_room / log_room, "×", None)?;
        report.figure(&case("recycled segment / preallocated"), log_room / recycled, "×", None)?;
        report.figure(&case("neither preallocated"), loop_ / log, "×", None)?;
        fs::remove_dir_all(&place)?;
    }
    Ok(())
}

pub(crate) fn many_writers(args: &Args, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    let options = LogOptions::default();
    let plain = LogOptions { preallocates: false, ..LogOptions::default() };
    let rivals = rival::contenders(args);
    let syncs = args.syncs;
    let mut single = |dir: &Path| logged(&open(dir, &options)?, 1024, syncs, 1);
    let mut many = |dir: &Path| logged(&open(dir, &options)?, 1024, syncs, WRITERS);
    let mut bare_many = |dir: &Path| bare_group::run(bare(&dir.join("bare"), ROOM)?, FRAME, syncs, WRITERS);
    let mut slow_single = |dir: &Path| logged(&slow(dir, &options)?, 1024, syncs, 1);
    let mut slow_many = |dir: &Path| logged(&slow(dir, &options)?, 1024, syncs, WRITERS);
    let mut plain_single = |dir: &Path| logged(&open(dir, &plain)?, 1024, syncs, 1);
    let mut plain_many = |dir: &Path| logged(&open(dir, &plain)?, 1024, syncs, WRITERS);
    let mut again_single = |dir: &Path| logged(&recycled(&dir.join("log"))?, 1024, syncs, 1);
    let mut again_many = |dir: &Path| logged(&recycled(&dir.join("log"))?, 1024, syncs, WRITERS);
    let mut bare_again = |dir: &Path| bare_group::run(written(&dir.join("bare"))?, FRAME, syncs, WRITERS);
    let mut rival_runs: Vec<Box<Turn<'_>>> = Vec::new();
    for rival in &rivals {
        rival_runs.push(Box::new(move |dir| rival.run(dir, 1024, syncs, WRITERS)));
    }
    let mut contenders: Vec<&mut Turn<'_>> = vec![
        &mut single,
        &mut many,
        &mut bare_many,
        &mut slow_single,
        &mut slow_many,
        &mut plain_single,
        &mut plain_many,
        &mut again_single,
        &mut again_many,
        &mut bare_again,
    ];
    contenders.extend(rival_runs.iter_mut().map(|run| run.as_mut() as &mut Turn<'_>));
    let figures = alternate(args, dir, &mut contenders)?;
    let (own, others) = figures.split_at(figures.len() - rivals.len());
    report_own(args, own, report)?;
    let many = figures.get(1).ok_or("no turn of many writers")?;
    for (rival, other) in rivals.iter().zip(others) {
        let name = rival.name;
        report.figure(&case(name), median(other.iter().copied()), "records/s", None)?;
        let must = if name == rival::RAFT_ENGINE { args.must(1.0) } else { None };
        report.figure(&case(&format!("log / {name}")), ratio(many, other), "×", must)?;
    }
    Ok(())
}

fn case(what: &str) -> String {
    format!("{WRITERS} writers, 1024 B, synced, {what}")
}

/// The figures of our own contenders, in their order.
fn report_own(args: &Args, own: &[Vec<f64>], report: &mut Report) -> Result<(), Failure> {
    let [
        single,
        many,
        bare_many,
        slow_single,
        slow_many,
        plain_single,
        plain_many,
        again_single,
        again_many,
        bare_again,
    ] = own
    else {
        return Err("ten contenders of our own".into());
    };
    report.figure(&case("log"), median(many.iter().copied()), "records/s", None)?;
    report.figure(&case("log / one writer"), ratio(many, single), "×", args.must(25.0))?;
    // What disk and scheduler leave to any group commit: the same threads and bytes, and nothing else.
    report.figure(&case("bare group / one writer"), ratio(bare_many, single), "×", None)?;
    report.figure(&case("log / bare group"), ratio(many, bare_many), "×", None)?;
    // What the group is for: where a sync takes long, 64 share one. Above, the writers' own work takes longer than it.
    let longer = format!("log / one writer, syncs {} ms longer", SLOWER.as_millis());
    report.figure(&case(&longer), ratio(slow_many, slow_single), "×", args.must(25.0))?;
    // Without reserved room a lone writer's sync has more to write than its record, and 64 share that too.
    report.figure(&case("log, not preallocated"), median(plain_many.iter().copied()), "records/s", None)?;
    report.figure(&case("log / one writer, neither preallocated"), ratio(plain_many, plain_single), "×", None)?;
    report.figure(&case("log / one writer, only the log preallocated"), ratio(many, plain_single), "×", None)?;
    // In a segment that is written over a cleaned one no block is new to the file system.
    report.figure(&case("log, recycled segment"), median(again_many.iter().copied()), "records/s", None)?;
    report.figure(&case("log / one writer, recycled segments"), ratio(again_many, again_single), "×", None)?;
    report.figure(
        &case("bare group in written room / one writer, recycled"),
        ratio(bare_again, again_single),
        "×",
        None,
    )?;
    report.figure(&case("log, recycled / bare group in written room"), ratio(again_many, bare_again), "×", None)?;
    Ok(())
}

/// A log whose segment is written over one that was cleaned.
fn recycled(dir: &Path) -> Result<FileLog, Failure> {
    let log = FileLog::open(dir, LogOptions { recycles: 1, ..LogOptions::default() })?;
    let unsynced = WriteOptions { durability: Some(Durability::None), ..WriteOptions::default() };
    let filler = vec![7; 1 << 20];
    for segment in [2, 3] {
        let record = NewRecord { payload: &filler, time_ms: 1, stream: 0, kind: RecordKind::Plain };
        loop {
            let written = log.write_with(&[record], &unsynced)?;
            let Some(handle) = written.first().filter(|handle| handle.segment >= segment) else { continue };
            log.clean_below(handle.lsn)?;
            break;
        }
    }
    log.sync()?;
    Ok(log)
}

/// A file for a loop that appends and syncs.
fn bare(path: &Path, room: u64) -> Result<File, Failure> {
    let file = File::options().create_new(true).write(true).open(path)?;
    if room > 0 {
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, room)?;
    }
    file.sync_all()?;
    Ok(file)
}

/// The same over room that was written before.
fn written(path: &Path) -> Result<File, Failure> {
    let mut file = File::options().create_new(true).write(true).open(path)?;
    let zeros = vec![0; 1 << 20];
    (0..ROOM >> 20).try_for_each(|_| file.write_all(&zeros))?;
    file.sync_all()?;
    file.rewind()?;
    Ok(file)
}

fn open(dir: &Path, options: &LogOptions) -> Result<FileLog, Failure> {
    Ok(FileLog::open(dir.join("log"), options.clone())?)
}

fn slow(dir: &Path, options: &LogOptions) -> Result<FileLog, Failure> {
    let disk = Arc::new(SlowDisk::new(SLOWER));
    Ok(FileLog::open_on(disk, dir.join("log"), options.clone(), Arc::new(SystemClock::new()), IdSource::random())?)
}

/// Records a second of a log; every writer writes `syncs` of them.
fn logged(log: &FileLog, bytes: usize, syncs: usize, writers: usize) -> Result<f64, Failure> {
    let payload = vec![7; bytes];
    log.write(&payload, 1)?;
    let start = Stopwatch::start();
    if writers == 1 {
        for _ in 0..syncs {
            log.write(&payload, 1)?;
        }
    } else {
        side_by_side(writers, || (0..syncs).try_for_each(|_| log.write(&payload, 1).map(|_| ())))?;
    }
    let seconds = start.seconds();
    log.close()?;
    Ok(float(syncs * writers) / seconds)
}
