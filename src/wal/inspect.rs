//! Looking at a log without being its writer: nothing is locked and nothing is changed, so it may be done beside one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::contract::{Records, Skipped, WriteAheadLog};
use super::format::SegmentHeader;
use super::log::FileLog;
use super::name::SegmentName;
use super::options::{LogOptions, RecoveryMode};
use super::planted::Planted;
use super::progress::Progress;
use super::record::{LogId, Lsn, NewRecord};
use super::recovery::fill;
use super::replay::Replay;
use super::segment::Shelf;
use super::survey::{Depth, Problem, Survey, survey};
use super::verdict::Verdict;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::Disk;

/// Bytes that salvage writes at once.
const SALVAGE_BYTES: usize = 1 << 20;
/// Bytes that a held record takes besides its payload, all told (with what is made of it while it is written).
const HELD_RECORD_BYTES: usize = 256;
/// As often a folder is looked at, until two looks running find the same loss. What a writer changes is elsewhere each time.
const MOST_LOOKS: u32 = 10;

/// A log as it lies in its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogReport {
    /// The folder.
    pub dir: PathBuf,
    /// The log's id, if any segment says it.
    pub log: Option<LogId>,
    /// The highest LSN that anything in the folder says was durable.
    pub durable: Lsn,
    /// Segments below this number are given up.
    pub horizon: u64,
    /// The segments, oldest first.
    pub segments: Vec<SegmentReport>,
    /// Everything that is wrong, in order of the segments.
    pub findings: Vec<Finding>,
}

impl LogReport {
    /// Whether acknowledged records are lost.
    #[must_use]
    pub fn has_loss(&self) -> bool {
        self.findings.iter().any(|finding| finding.verdict.is_loss())
    }
}

/// A segment as it lies in its folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentReport {
    /// Its name.
    pub name: SegmentName,
    /// Its file.
    pub path: PathBuf,
    /// The file's length.
    pub file_bytes: u64,
    /// What its header says; `None` where that cannot be read.
    pub header: Option<SegmentHeader>,
    /// Whether it is sealed.
    pub is_sealed: bool,
    /// How many good records it holds.
    pub records: u64,
    /// The last of them; one below the header's first where there is none.
    pub last: Lsn,
    /// The oldest of their times.
    pub min_time_ms: u64,
    /// The newest of their times.
    pub max_time_ms: u64,
    /// Bytes of their payloads, as stored.
    pub payload_bytes: u64,
}

/// Something that is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The segment's number; 0 where it is the whole log.
    pub segment: u64,
    /// The file.
    pub path: PathBuf,
    /// Byte offset in it.
    pub offset: u64,
    /// The first record that is concerned; [`Lsn::NONE`] where that is not known.
    pub first: Lsn,
    /// What it means.
    pub verdict: Verdict,
    /// In words.
    pub text: String,
}

/// What is in the folder `dir`. Seals are believed.
///
/// # Errors
/// `NotFound` where there is no folder; whatever the disk reports. What is wrong with the log is in the report.
pub fn inspect(disk: &dyn Disk, dir: &Path) -> Result<LogReport> {
    inspect_with(disk, dir, &mut |_| ())
}

/// As [`inspect`]; `progress` hears of every segment.
///
/// # Errors
/// As [`inspect`].
pub fn inspect_with(disk: &dyn Disk, dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<LogReport> {
    found(disk, dir, Depth::Seals, progress).map(|survey| report(dir, survey))
}

/// As [`inspect`], but every byte is read and checked; `progress` hears of every segment.
///
/// # Errors
/// As [`inspect`].
pub fn verify(disk: &dyn Disk, dir: &Path, progress: &mut dyn FnMut(Progress)) -> Result<LogReport> {
    found(disk, dir, Depth::Everything, progress).map(|survey| report(dir, survey))
}

/// The records from `from` on, oldest first, as they lie there now.
///
/// # Errors
/// `NotFound` where there is no folder; `Corrupt` or `Missing` for lost records in `Strict` mode, also while reading.
pub fn read(disk: Arc<dyn Disk>, dir: &Path, mode: RecoveryMode, from: Lsn) -> Result<Box<dyn Records>> {
    read_with(disk, dir, mode, from, &mut |_| ())
}

/// As [`read`]; `progress` hears of every segment that is looked at before the first record.
///
/// # Errors
/// As [`read`].
pub fn read_with(
    disk: Arc<dyn Disk>,
    dir: &Path,
    mode: RecoveryMode,
    from: Lsn,
    progress: &mut dyn FnMut(Progress),
) -> Result<Box<dyn Records>> {
    let mut survey = found(disk.as_ref(), dir, Depth::Seals, progress)?;
    let loss = survey.problems.iter().position(|problem| problem.verdict.is_loss());
    if let (RecoveryMode::Strict, Some(place)) = (mode, loss) {
        return Err(survey.problems.swap_remove(place).error);
    }
    let shelf = Arc::new(Shelf::new(disk, dir.to_path_buf(), Planted::Nothing));
    fill(&shelf, &survey, mode == RecoveryMode::Salvage);
    Ok(Box::new(Replay::new(shelf, survey.log.unwrap_or_default(), mode, from, 1, || Ok(()))?))
}

/// Copies every record that can still be read into a new log in the folder `to`, which must not hold one; says what could not. The
/// copies have LSNs of their own, from 1 on; `told` hears how far it is.
///
/// # Errors
/// `AlreadyExists` where `to` holds a log; whatever the disk reports.
pub fn salvage(disk: Arc<dyn Disk>, dir: &Path, to: &Path, told: &mut dyn FnMut(Progress)) -> Result<Skipped> {
    if let Some(there) = survey(disk.as_ref(), to, Depth::Seals, Planted::Nothing, &mut |_| ())?
        && !there.found.is_empty()
    {
        let kind = ErrorKind::AlreadyExists { path: to.to_path_buf() };
        return Err(Error::new(kind, "there is a log already; salvage into an empty folder"));
    }
    let mut records = read(Arc::clone(&disk), dir, RecoveryMode::Salvage, Lsn::NONE)?;
    let clock = Arc::new(crate::clock::SystemClock::new());
    let log = FileLog::open_on(disk, to, LogOptions::default(), clock, crate::version::IdSource::random())?;
    let mut held: Vec<(Vec<u8>, NewRecord<'static>)> = Vec::new();
    let mut held_bytes = 0;
    while let Some(record) = records.next_record()? {
        held_bytes += record.payload.len() + HELD_RECORD_BYTES;
        let (time_ms, stream, kind) = (record.time_ms, record.stream, record.kind);
        held.push((record.payload.to_vec(), NewRecord { payload: &[], time_ms, stream, kind }));
        if held_bytes >= SALVAGE_BYTES {
            write_all(&log, &held)?;
            held.clear();
            held_bytes = 0;
            told(records.progress());
        }
    }
    write_all(&log, &held)?;
    told(records.progress());
    log.close()?;
    Ok(records.skipped().clone())
}

fn write_all(log: &FileLog, held: &[(Vec<u8>, NewRecord<'static>)]) -> Result<()> {
    let records: Vec<NewRecord<'_>> = held.iter().map(|(payload, record)| NewRecord { payload, ..*record }).collect();
    log.write_batch(&records).map(|_| ())
}

/// Looks at a folder beside whoever writes to it. What a writer does between two steps of a look (it writes, rolls, cleans) may look like
/// loss, but not twice in one place: so loss counts where two looks running find it.
fn found(disk: &dyn Disk, dir: &Path, depth: Depth, progress: &mut dyn FnMut(Progress)) -> Result<Survey> {
    let mut before: Option<Vec<Place>> = None;
    let mut looks = 0;
    loop {
        looks += 1;
        let mut found = survey(disk, dir, depth, Planted::Nothing, progress)?.ok_or_else(|| {
            let kind = ErrorKind::NotFound { path: dir.to_path_buf() };
            Error::new(kind, "there is no log")
        })?;
        let losses: Vec<Place> = found.problems.iter().filter_map(loss).collect();
        let is_sure = |place: &Place| before.as_ref().is_some_and(|before| before.contains(place));
        let is_overtaken = found.was_cleaned && found.found.is_empty();
        if losses.iter().all(is_sure) && !is_overtaken {
            return Ok(found);
        }
        if looks == MOST_LOOKS {
            found.problems.retain(|problem| loss(problem).is_none_or(|place| is_sure(&place)));
            return Ok(found);
        }
        before = Some(losses);
    }
}

/// Where something is lost: segment, offset, first record.
type Place = (u64, u64, Lsn);

fn loss(problem: &Problem) -> Option<Place> {
    problem.verdict.is_loss().then_some((problem.segment, problem.offset, problem.first))
}

fn report(dir: &Path, survey: Survey) -> LogReport {
    let segments = survey.found.iter().map(|found| {
        let content = found.content.as_ref();
        let seal = content.map(|content| &content.seal);
        SegmentReport {
            name: found.name,
            path: found.path.clone(),
            file_bytes: found.file_bytes,
            header: content.map(|content| content.header),
            is_sealed: content.is_some_and(|content| content.is_sealed),
            records: seal.map_or(0, |seal| seal.records),
            last: seal.map_or(Lsn::NONE, |seal| seal.last),
            min_time_ms: seal.map_or(0, |seal| seal.min_time_ms),
            max_time_ms: seal.map_or(0, |seal| seal.max_time_ms),
            payload_bytes: seal.map_or(0, |seal| seal.payload_bytes),
        }
    });
    let segments = segments.collect();
    let findings = survey.problems.into_iter().map(|problem| Finding {
        segment: problem.segment,
        path: problem.path,
        offset: problem.offset,
        first: problem.first,
        verdict: problem.verdict,
        text: problem.error.to_string(),
    });
    let findings = findings.collect();
    LogReport {
        dir: dir.to_path_buf(),
        log: survey.log,
        durable: survey.durable,
        horizon: survey.horizon,
        segments,
        findings,
    }
}
