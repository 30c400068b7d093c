//! `log ls|read|verify|salvage|clean`: looking at write-ahead logs, and looking after them.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::console::Console;
use super::failure::{Exit, Failure, Outcome};
use super::json::Json;
use super::log_args::{CleanArgs, Folder, LogCommand, ReadArgs, SalvageArgs};
use super::place;
use super::spelling::{escaped, harmless};
use super::table::{Table, bytes_for_people, count};
use crate::fs::{Disk, RealDisk};
use crate::wal::inspect::{self, LogReport};
use crate::wal::{FileLog, LogOptions, Lsn, RecoveryMode, RecoveryObserver, Skipped, Verdict, Wait, WriteAheadLog};

pub(super) fn log(command: &LogCommand, console: &mut Console<'_>) -> Outcome<Exit> {
    match command {
        LogCommand::Ls(folder) => show(&survey(&folder.dir, console)?, folder.json, console),
        LogCommand::Verify(folder) => verify(folder, console),
        LogCommand::Read(args) => read(args, console),
        LogCommand::Salvage(args) => salvage(args, console),
        LogCommand::Clean(args) => clean(args, console),
    }
}

/// What is in the folder `dir`, at first sight; says what it is where it is no log's.
fn survey(dir: &Path, console: &mut Console<'_>) -> Outcome<LogReport> {
    let looked = {
        let mut progress = console.progress(format!("looking at {}", dir.display()), None);
        inspect::inspect_with(&RealDisk::new(), dir, &mut |at| _ = progress.at(at.done_bytes))
    };
    let report = looked.map_err(|error| place::no_directory(dir, "log", error))?;
    if report.segments.is_empty() && report.findings.is_empty() {
        return Err(Failure::NotFound(format!(
            "{} holds no log, or one without a record: no segment is in it",
            dir.display()
        )));
    }
    Ok(report)
}

fn verify(folder: &Folder, console: &mut Console<'_>) -> Outcome<Exit> {
    let disk = RealDisk::new();
    let looked = survey(&folder.dir, console)?;
    let total = looked.segments.iter().map(|segment| segment.file_bytes).sum();
    let report = {
        let mut progress = console.progress(format!("verifying {}", folder.dir.display()), Some(total));
        inspect::verify(&disk, &folder.dir, &mut |at| _ = progress.at(at.done_bytes))?
    };
    show(&report, folder.json, console)
}

fn show(report: &LogReport, json: bool, console: &mut Console<'_>) -> Outcome<Exit> {
    let exit = if report.has_loss() { Exit::Damaged } else { Exit::Done };
    if json {
        console.json(&document(report))?;
        return Ok(exit);
    }
    let mut table = Table::new(&["segment", "first", "last", "records", "bytes", "oldest", "newest", "sealed"]);
    for segment in &report.segments {
        let first = segment.header.map_or_else(|| "?".to_owned(), |header| header.first.to_string());
        let sealed = if segment.is_sealed { "yes" } else { "no" };
        table.row([
            segment.name.segment.to_string(),
            first,
            segment.last.to_string(),
            segment.records.to_string(),
            bytes_for_people(segment.file_bytes),
            segment.min_time_ms.to_string(),
            segment.max_time_ms.to_string(),
            sealed.to_owned(),
        ]);
    }
    for line in table.lines() {
        console.line(line)?;
    }
    for finding in &report.findings {
        console.line(harmless(&format!("{}: {}", finding.verdict.word(), finding.text)))?;
    }
    Ok(exit)
}

fn document(report: &LogReport) -> Json {
    let segments = report.segments.iter().map(|segment| {
        Json::object([
            ("segment", segment.name.segment.into()),
            ("file", segment.path.display().to_string().into()),
            ("first", segment.header.map(|header| header.first.0).into()),
            ("last", segment.last.0.into()),
            ("records", segment.records.into()),
            ("bytes", segment.file_bytes.into()),
            ("oldest_ms", segment.min_time_ms.into()),
            ("newest_ms", segment.max_time_ms.into()),
            ("sealed", segment.is_sealed.into()),
        ])
    });
    let findings = report.findings.iter().map(|finding| {
        Json::object([
            ("verdict", finding.verdict.word().into()),
            ("file", finding.path.display().to_string().into()),
            ("offset", finding.offset.into()),
            ("first", finding.first.0.into()),
            ("text", finding.text.as_str().into()),
        ])
    });
    Json::object([
        ("log", report.log.map(|log| log.to_string()).into()),
        ("durable", report.durable.0.into()),
        ("segments", segments.collect::<Vec<Json>>().into()),
        ("findings", findings.collect::<Vec<Json>>().into()),
    ])
}

fn read(args: &ReadArgs, console: &mut Console<'_>) -> Outcome<Exit> {
    let mode = if args.salvage { RecoveryMode::Salvage } else { RecoveryMode::Strict };
    let looked = survey(&args.folder.dir, console)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let dir = &args.folder.dir;
    let mut records = {
        // The records themselves are progress enough.
        let mut progress = console.progress(format!("looking at {}", dir.display()), None);
        inspect::read_with(disk, dir, mode, Lsn(args.from), &mut |at| _ = progress.at(at.done_bytes))?
    };
    let mut left = args.limit.unwrap_or(u64::MAX);
    while left > 0
        && let Some(record) = records.next_record()?
    {
        left -= 1;
        let payload = escaped(record.payload);
        if args.folder.json {
            console.json(&Json::object([
                ("lsn", record.lsn.0.into()),
                ("time_ms", record.time_ms.into()),
                ("stream", u64::from(record.stream).into()),
                ("payload", payload.into()),
            ]))?;
        } else {
            console.line(format!("{}\t{}\t{}\t{payload}", record.lsn, record.time_ms, record.stream))?;
        }
    }
    told_skipped(records.skipped(), &looked, console)
}

fn told_skipped(skipped: &Skipped, looked: &LogReport, console: &mut Console<'_>) -> Outcome<Exit> {
    for (first, last) in &skipped.ranges {
        console.note(&format!("skipped: records {first} to {last}"))?;
    }
    let is_short = skipped.records > skipped.never_durable || misses_segments(looked);
    Ok(if is_short { Exit::Damaged } else { Exit::Done })
}

/// Whether segments are lost: how many records were in them may be more than anyone can count.
fn misses_segments(looked: &LogReport) -> bool {
    looked.findings.iter().any(|finding| matches!(finding.verdict, Verdict::Missing | Verdict::Unreadable))
}

fn salvage(args: &SalvageArgs, console: &mut Console<'_>) -> Outcome<Exit> {
    let looked = survey(&args.folder.dir, console)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let skipped = {
        let mut progress = console.progress(format!("salvaging {}", args.folder.dir.display()), None);
        inspect::salvage(disk, &args.folder.dir, &args.to, &mut |at| _ = progress.at(at.done_bytes))?
    };
    let lost = (skipped.records > 0 || !misses_segments(&looked)).then_some(skipped.records);
    if args.folder.json {
        console.json(&Json::object([("lost", lost.into())]))?;
    } else {
        let lost = lost.map_or_else(|| "an unknown number of records".into(), |lost| count(lost, "record", "records"));
        console.line(format!("{lost} could not be read"))?;
    }
    told_skipped(&skipped, &looked, console)
}

fn clean(args: &CleanArgs, console: &mut Console<'_>) -> Outcome<Exit> {
    survey(&args.folder.dir, console)?; // an open would make a lock there
    let log = opened(&args.folder.dir, console)?;
    let cleaned = match (args.older_than, args.below) {
        (Some(threshold_ms), _) => log.clean(threshold_ms, Wait::ForIt)?,
        (None, below) => log.clean_below(Lsn(below.unwrap_or(0)))?,
    };
    log.close()?;
    let segments = u64::try_from(cleaned.segments).unwrap_or(u64::MAX);
    if args.folder.json {
        console.json(&Json::object([("segments", segments.into())]))?;
    } else {
        console.line(format!("{} given up", count(segments, "segment", "segments")))?;
    }
    for (file, error) in &cleaned.failed {
        console.note(&format!("not deleted yet: {}: {error}", file.display()))?;
    }
    Ok(if cleaned.failed.is_empty() { Exit::Done } else { Exit::Failed })
}

/// Opens a log in a thread of its own, and shows how far it is.
fn opened(dir: &Path, console: &mut Console<'_>) -> Outcome<FileLog> {
    let mut progress = console.progress(format!("opening {}", dir.display()), None);
    let (ended, heard) = channel();
    let told = ended.clone();
    let recovery_observer = RecoveryObserver::new(move |at| _ = told.send(Some(at.done_bytes)));
    // Nobody here goes on writing: what is cleaned is deleted.
    let options = LogOptions { recovery_observer, recycles: 0, ..LogOptions::default() };
    let place = dir.to_path_buf();
    let opening = std::thread::Builder::new().name("log-open".into()).spawn(move || {
        let log = FileLog::open(place, options);
        _ = ended.send(None);
        log
    })?;
    // Also over where that thread is gone.
    while let Ok(Some(done_bytes)) = heard.recv() {
        _ = progress.at(done_bytes);
    }
    match opening.join() {
        Ok(log) => Ok(log?),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
