//! Opening a log that is there: what the survey found is acted upon, so that afterwards everything on the shelf may be believed.
//!
//! Every step is safe to be cut off and done again: bytes are copied aside before they are cut, and names change one at a time, newest first.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::name::{RESERVE, Side};
use super::options::RecoveryMode;
use super::planted::Planted;
use super::progress::Progress;
use super::record::{LogId, Lsn};
use super::reserve::{is_reserve, or_with_reserve};
use super::segment::{Segment, Shelf};
use super::survey::{Depth, Problem, Survey, survey};
use super::verdict::Verdict;
use crate::error::{Error, Result};
use crate::fs::{Disk, NewFile, PublishError, WriteFile};

/// Bytes copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// What opening a log found and did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Segments that are there.
    pub segments: usize,
    /// What the newest segment ended with.
    pub end: Option<Verdict>,
    /// Bytes cut off it, and the file that keeps them.
    pub cut: Option<(u64, PathBuf)>,
    /// Segments taken out of the log, in `PointInTime` mode.
    pub put_aside: Vec<PathBuf>,
    /// The first LSN of each range of records that were never known durable and are lost.
    pub never_durable: Vec<Lsn>,
    /// Damage to acknowledged records that was let pass, in `Salvage` mode, as text.
    pub damage: Vec<String>,
}

/// What a writer goes on with.
pub(super) struct Recovered {
    pub(super) log: Option<LogId>,
    pub(super) next_lsn: Lsn,
    pub(super) next_segment: u64,
    pub(super) has_reserve: bool,
    pub(super) report: Recovery,
}

/// Brings the folder into order and puts its segments on the shelf; `progress` hears of every segment.
///
/// # Errors
/// The first loss of acknowledged records in `Strict` mode; nothing was changed then. Whatever the disk reports: open again.
pub(super) fn recover(shelf: &Shelf, mode: RecoveryMode, progress: &mut dyn FnMut(Progress)) -> Result<Recovered> {
    let depth = if mode == RecoveryMode::PointInTime { Depth::Everything } else { Depth::Seals };
    let disk = shelf.disk.as_ref();
    let Some(mut found) = survey(disk, &shelf.dir, depth, shelf.planted, progress)? else {
        return Ok(Recovered {
            log: None,
            next_lsn: Lsn::FIRST,
            next_segment: 1,
            has_reserve: false,
            report: Recovery::default(),
        });
    };
    found.may_be_written_to(&shelf.dir)?;
    let mut report = Recovery::default();
    if shelf.planted == Planted::CutAcknowledged {
        for problem in &mut found.problems {
            problem.verdict = Verdict::TornTail;
        }
    }
    let loss = found.problems.iter().position(|problem| problem.verdict.is_loss());
    let mut next_lsn = found.next_lsn();
    if let Some(place) = loss {
        match mode {
            RecoveryMode::Strict => return Err(found.problems.swap_remove(place).error),
            RecoveryMode::PointInTime => {
                sweep(shelf, &found); // what an earlier attempt left half-written would be in the way
                next_lsn = end_at(shelf, &mut found, place, &mut report)?;
            }
            RecoveryMode::Salvage => {
                report.damage =
                    found.problems.iter().filter(|problem| problem.verdict.is_loss()).map(describe).collect();
            }
        }
    }
    sweep(shelf, &found);
    end_newest(shelf, &found, &mut report)?;
    let unsynced = found.problems.iter().filter(|problem| problem.verdict == Verdict::NeverDurable);
    report.never_durable = unsynced.map(|problem| problem.first).collect();
    report.segments = fill(shelf, &found, mode == RecoveryMode::Salvage);
    if report.end.is_none() && report.segments > 0 {
        report.end = Some(Verdict::CleanEnd);
    }
    // A full disk may have taken it.
    let has_reserve = found.has_reserve && is_reserve(disk, &shelf.dir.join(RESERVE))?;
    Ok(Recovered { log: found.log, next_lsn, next_segment: found.highest + 1, has_reserve, report })
}

/// Puts the segments on the shelf, as far as they may be read; returns how many.
pub(super) fn fill(shelf: &Shelf, found: &Survey, salvages: bool) -> usize {
    let mut count = 0;
    if salvages {
        shelf.set_lost(found.lost_beyond());
    }
    for found in &found.found {
        let Some(content) = &found.content else { continue };
        let segment = Segment::new(found.path.clone(), found.name, content.header);
        let is_damaged = salvages && content.highest() > content.seal.last;
        let end = if is_damaged { found.file_bytes } else { content.end };
        segment.adopt(&content.seal, end, content.is_sealed);
        shelf.add(Arc::new(segment));
        count += 1;
    }
    count
}

fn describe(problem: &Problem) -> String {
    format!("segment {}: {}", problem.segment, problem.error)
}

/// Removes what is left of unfinished and given-up segments. What cannot be removed waits for the next clean.
fn sweep(shelf: &Shelf, found: &Survey) {
    for path in found.leftovers.iter().chain(&found.old_horizons) {
        if let Err(error) = shelf.disk.remove(path)
            && !error.is_not_found()
        {
            tracing::warn!(%error, file = %path.display(), "a file of the log cannot be removed; the next clean tries again");
            shelf.condemn(path.clone());
        }
    }
}

/// Cuts what was not acknowledged off the newest segment, and makes the rest durable: a process that was killed may have left it unsynced.
fn end_newest(shelf: &Shelf, found: &Survey, report: &mut Recovery) -> Result<()> {
    let Some(newest) = found.found.last() else { return Ok(()) };
    let Some(content) = &newest.content else { return Ok(()) };
    let problem = found.problems.iter().find(|problem| problem.segment == newest.name.segment);
    report.end = problem.map(|problem| problem.verdict);
    match problem.map(|problem| problem.verdict) {
        Some(Verdict::TornTail | Verdict::TornGroup) => {
            report.cut = Some(cut(shelf, &newest.path, newest.name.segment, content.end, newest.file_bytes)?);
        }
        _ => shelf.disk.overwrite(&newest.path)?.sync()?,
    }
    shelf.disk.sync_dir(&shelf.dir)
}

/// Ends the log before the problem at `place`: returns the LSN that comes next.
fn end_at(shelf: &Shelf, found: &mut Survey, place: usize, report: &mut Recovery) -> Result<Lsn> {
    let Some(problem) = found.problems.get(place) else { return Err(Error::invalid("no such problem")) };
    let (segment, verdict, offset) = (problem.segment, problem.verdict, problem.offset);
    let first_out = match verdict {
        Verdict::Unreadable => segment,
        _ => segment + 1,
    };
    // It speaks of records that are about to go.
    if let Some(watermark) = &found.watermark {
        shelf.disk.remove(watermark)?;
        shelf.disk.sync_dir(&shelf.dir)?;
    }
    // Newest first: cut off in between, the log still ends where it did, or earlier.
    for out in found.found.iter().rev().filter(|found| found.name.segment >= first_out) {
        let aside = shelf.dir.join(Side::Void(out.name.segment).to_string());
        shelf.disk.rename_new(&out.path, &aside)?;
        shelf.disk.sync_dir(&shelf.dir)?;
        report.put_aside.push(aside);
    }
    found.found.retain(|found| found.name.segment < first_out);
    if verdict == Verdict::Damaged
        && let Some(newest) = found.found.last()
    {
        report.cut = Some(cut(shelf, &newest.path, segment, offset, newest.file_bytes)?);
    }
    found.problems.truncate(place);
    let last = found.found.last().and_then(|found| found.content.as_ref());
    Ok(last.map_or(Lsn::FIRST, |content| content.seal.last.next()))
}

/// Copies the bytes of a segment from `offset` on into a file of their own, then cuts them off.
fn cut(shelf: &Shelf, path: &Path, segment: u64, offset: u64, file_bytes: u64) -> Result<(u64, PathBuf)> {
    let aside = shelf.dir.join(Side::Cut(segment, offset).to_string());
    if shelf.disk.stat(&aside)?.is_none() {
        or_with_reserve(shelf, || keep(shelf, path, segment, offset, file_bytes))?;
    }
    shelf.disk.sync_dir(&shelf.dir)?; // the copy is durable, also one that an earlier recovery made
    let mut file = shelf.disk.overwrite(path)?;
    file.seek_to(offset)?;
    file.cut_here()?;
    file.sync()?; // the cut is durable, and what is before it
    Ok((file_bytes.saturating_sub(offset), aside))
}

/// Copies the bytes of a segment from `offset` on into a file of their own.
fn keep(shelf: &Shelf, path: &Path, segment: u64, offset: u64, file_bytes: u64) -> Result<()> {
    let disk: &Arc<dyn Disk> = &shelf.disk;
    let (name, temporary) = (Side::Cut(segment, offset).to_string(), Side::Temporary(segment).to_string());
    let mut file = NewFile::create(disk, &shelf.dir, &name, &temporary)?;
    copy(shelf.disk.as_ref(), path, offset, file_bytes, &mut file)?;
    match file.publish() {
        Ok(()) => Ok(()),
        Err(PublishError::NotPublished(error)) if error.is_already_exists() => Ok(()),
        Err(error) => Err(error.into_error()),
    }
}

fn copy(disk: &dyn Disk, path: &Path, from: u64, to: u64, into: &mut dyn WriteFile) -> Result<()> {
    let file = disk.open(path)?;
    let mut at = from;
    let mut buffer = Vec::new();
    while at < to {
        let length = usize::try_from((to - at).min(COPY_BYTES)).unwrap_or(0);
        file.read_new_at(&mut buffer, length, at)?;
        into.append(&buffer)?;
        at += length as u64;
    }
    Ok(())
}
