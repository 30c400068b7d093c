//! `log ls|read|verify|salvage|clean`: looking at write-ahead logs, and looking after them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;

use clap::{Args, Subcommand};

use super::console::Console;
use super::failure::{Exit, Failure, Outcome};
use super::json::Json;
use super::place;
use super::spelling::{escaped, harmless};
use super::table::{Table, bytes_for_people, count};
use crate::fs::{Disk, RealDisk};
use crate::wal::inspect::{self, LogReport};
use crate::wal::{FileLog, LogOptions, Lsn, RecoveryMode, RecoveryObserver, Skipped, Wait, WriteAheadLog};

#[derive(Debug, Subcommand)]
pub(super) enum LogCommand {
    /// Lists the segments of a log, and what is wrong with them at first sight.
    Ls(Folder),
    /// Shows the records, oldest first.
    Read(ReadArgs),
    /// Reads and checks every byte; exit code 1 where acknowledged records are damaged or missing.
    Verify(Folder),
    /// Copies what can still be read into a new log; exit code 1 where something could not.
    Salvage(SalvageArgs),
    /// Gives up the oldest segments. The log must not be open elsewhere.
    Clean(CleanArgs),
}

#[derive(Debug, Args)]
pub(super) struct Folder {
    /// The log's folder.
    dir: PathBuf,
    /// Writes JSON instead of text.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReadArgs {
    #[command(flatten)]
    folder: Folder,
    /// The first LSN to be shown.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The most records to be shown.
    #[arg(long)]
    limit: Option<u64>,
    /// Skips what is damaged, and says so.
    #[arg(long)]
    salvage: bool,
}

#[derive(Debug, Args)]
pub(super) struct SalvageArgs {
    #[command(flatten)]
    folder: Folder,
    /// The folder of the new log.
    #[arg(long)]
    to: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct CleanArgs {
    #[command(flatten)]
    folder: Folder,
    /// Segments all of whose records are older than this go: milliseconds since 1970.
    #[arg(long, required_unless_present = "below")]
    older_than: Option<u64>,
    /// Segments all of whose records have LSNs below this go.
    #[arg(long, conflicts_with = "older_than")]
    below: Option<u64>,
}

impl LogCommand {
    /// The log's folder.
    pub(super) fn dir(&self) -> &Path {
        match self {
            Self::Ls(folder) | Self::Verify(folder) => &folder.dir,
            Self::Read(args) => &args.folder.dir,
            Self::Salvage(args) => &args.folder.dir,
            Self::Clean(args) => &args.folder.dir,
        }
    }
}

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
    survey(&args.folder.dir, console)?;
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
    told_skipped(records.skipped(), console)
}

fn told_skipped(skipped: &Skipped, console: &mut Console<'_>) -> Outcome<Exit> {
    for (first, last) in &skipped.ranges {
        console.note(&format!("skipped: records {first} to {last}"))?;
    }
    Ok(if skipped.records > skipped.never_durable { Exit::Damaged } else { Exit::Done })
}

fn salvage(args: &SalvageArgs, console: &mut Console<'_>) -> Outcome<Exit> {
    survey(&args.folder.dir, console)?;
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new());
    let skipped = {
        let mut progress = console.progress(format!("salvaging {}", args.folder.dir.display()), None);
        inspect::salvage(disk, &args.folder.dir, &args.to, &mut |at| _ = progress.at(at.done_bytes))?
    };
    if args.folder.json {
        console.json(&Json::object([("lost", skipped.records.into())]))?;
    } else {
        console.line(format!("{} could not be read", count(skipped.records, "record", "records")))?;
    }
    told_skipped(&skipped, console)
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
    let options = LogOptions { recovery_observer, ..LogOptions::default() };
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
