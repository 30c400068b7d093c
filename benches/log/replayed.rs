//! Reading: the whole log against `cat`, single records against `pread`, and what memory it takes.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use alluvium::wal::{Durability, FileLog, LogOptions, NewRecord, RecordHandle, WriteAheadLog};

use crate::report::{Report, median};
use crate::{Args, Failure, Stopwatch, alternate, float, ratio};

pub(crate) fn replay(args: &Args, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    for (bytes, least) in [(64 << 10, 0.6), (1024, 0.25)] {
        let place = dir.join(format!("replay-{bytes}"));
        let total = if args.required { 512 << 20 } else { 16 << 20 };
        fill(&place, bytes, total / bytes, 1 << 30)?;
        let segment = segment(&place)?;
        let size = float(usize::try_from(fs::metadata(&segment)?.len())?);
        let figures = alternate(
            args,
            dir,
            &mut [&mut |_| cat(&segment).map(|seconds| size / seconds), &mut |_| {
                read_all(&place, 1).map(|seconds| size / seconds)
            }],
        )?;
        let [cat, log] = figures.as_slice() else { return Err("two contenders".into()) };
        let case = |what: &str| format!("replay, {bytes} B, {what}");
        report.figure(&case("cat"), median(cat.iter().copied()) / 1e9, "GB/s", None)?;
        report.figure(&case("log"), median(log.iter().copied()) / 1e9, "GB/s", None)?;
        report.figure(&case("log / cat"), ratio(log, cat), "×", args.must(least))?;
        fs::remove_dir_all(&place)?;
    }
    let place = dir.join("replay-many");
    for count in [1_000, if args.required { 10_000_000 } else { 100_000 }] {
        fill(&place, 16, count, 64 << 20)?;
        // Forgets the peak of what was measured before.
        fs::write("/proc/self/clear_refs", "5")?;
        let before = peak_kib()?;
        read_all(&place, 1)?;
        let grown = float(peak_kib()?.saturating_sub(before)) / 1024.0;
        report.figure(&format!("replay, {count} records, peak memory more"), grown, "MiB", None)?;
        fs::remove_dir_all(&place)?;
    }
    Ok(())
}

pub(crate) fn handles(args: &Args, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    for bytes in [1024, 64 << 10] {
        let place = dir.join("handles");
        let handles = fill(&place, bytes, (32 << 20) / bytes, 1 << 30)?;
        let file = File::open(segment(&place)?)?;
        let log = FileLog::open(&place, LogOptions::default())?;
        let rounds = if args.required { (1 << 30) / bytes } else { 100 };
        let figures = alternate(
            args,
            dir,
            &mut [&mut |_| pread(&file, &handles, bytes, rounds), &mut |_| {
                let start = Stopwatch::start();
                for place in scattered(rounds, handles.len()) {
                    std::hint::black_box(log.read(handles.get(place).ok_or("no handle")?)?);
                }
                Ok(float(rounds) / start.seconds())
            }],
        )?;
        let [pread, log_reads] = figures.as_slice() else { return Err("two contenders".into()) };
        let case = |what: &str| format!("one record, {bytes} B, {what}");
        report.figure(&case("pread"), median(pread.iter().copied()), "records/s", None)?;
        report.figure(&case("log"), median(log_reads.iter().copied()), "records/s", None)?;
        report.figure(&case("log / pread"), ratio(log_reads, pread), "×", args.must(1.0 / 1.3))?;
        drop(log);
        fs::remove_dir_all(&place)?;
    }
    Ok(())
}

/// Positions that jump about, the same ones every time.
fn scattered(rounds: usize, count: usize) -> impl Iterator<Item = usize> {
    (0..rounds).map(move |round| round.wrapping_mul(7919) % count)
}

fn pread(file: &File, handles: &[RecordHandle], bytes: usize, rounds: usize) -> Result<f64, Failure> {
    let start = Stopwatch::start();
    for place in scattered(rounds, handles.len()) {
        let handle = handles.get(place).ok_or("no handle")?;
        let mut buffer = vec![0; bytes];
        file.read_exact_at(&mut buffer, handle.offset + 32)?;
        std::hint::black_box(buffer);
    }
    Ok(float(rounds) / start.seconds())
}

fn fill(place: &Path, bytes: usize, count: usize, segment_bytes: u64) -> Result<Vec<RecordHandle>, Failure> {
    let options = LogOptions { durability: Durability::None, segment_bytes, ..LogOptions::default() };
    let log = FileLog::open(place, options)?;
    let payload: Vec<u8> = (0..bytes).map(|n| u8::try_from(n % 251).unwrap_or(0)).collect();
    let batch = vec![NewRecord::new(&payload, 1); 1000.min(count)];
    let mut handles = Vec::new();
    for _ in 0..count / batch.len().max(1) {
        handles.extend(log.write_batch(&batch)?);
        if bytes < 100 {
            handles.clear();
        }
    }
    log.close()?;
    Ok(handles)
}

fn segment(place: &Path) -> Result<std::path::PathBuf, Failure> {
    for entry in fs::read_dir(place)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-")) {
            return Ok(path);
        }
    }
    Err("no segment".into())
}

/// Seconds of `cat segment > /dev/null`.
fn cat(segment: &Path) -> Result<f64, Failure> {
    let start = Stopwatch::start();
    let status = Command::new("cat")
        .arg(segment)
        .stdout(Stdio::from(File::options().write(true).open("/dev/null")?))
        .status()?;
    if status.success() { Ok(start.seconds()) } else { Err("cat failed".into()) }
}

fn read_all(place: &Path, read_threads: usize) -> Result<f64, Failure> {
    let log = FileLog::open(place, LogOptions { read_threads, ..LogOptions::default() })?;
    let start = Stopwatch::start();
    let mut records = log.read_all()?;
    let mut bytes = 0;
    while let Some(record) = records.next_record()? {
        bytes += record.payload.len();
    }
    let seconds = start.seconds();
    std::hint::black_box(bytes);
    Ok(seconds)
}

/// The most anonymous and mapped memory that this process has had, in KiB.
fn peak_kib() -> Result<usize, Failure> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}
