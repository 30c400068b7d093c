//! What is in a log's folder, and what is wrong with it. Changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::behind::{Later, look_behind};
use super::chunk::{Bad, Chunk, ChunkReader, Stop};
use super::format::{
    FRAME_HEADER_BYTES, FrameHeader, FrameKind, INDEX_ENTRY_BYTES, INDEX_EVERY_BYTES, SEAL_BYTES, SEGMENT_HEADER_BYTES,
    Seal, SegmentHeader, TRAILER_BYTES, decode_trailer,
};
use super::name::{SegmentName, Side};
use super::planted::Planted;
use super::progress::Progress;
use super::record::{LogId, Lsn};
use super::verdict::{Verdict, at_the_end, in_between, in_the_middle};
use crate::checksum::crc32;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{Disk, FileKind, ReadFile};

/// How closely sealed segments are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// Their seals are believed.
    Seals,
    /// Every byte is read.
    Everything,
}

/// A log's folder.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// The segments, oldest first.
    pub(super) found: Vec<Found>,
    /// Files of segments that were given up, and of unfinished ones.
    pub(super) leftovers: Vec<PathBuf>,
    /// Segments below this are given up.
    pub(super) horizon: u64,
    /// The announcements of earlier horizons.
    pub(super) old_horizons: Vec<PathBuf>,
    pub(super) has_reserve: bool,
    /// Where the watermark is, if there is one.
    pub(super) watermark: Option<PathBuf>,
    /// No segment number up to this one is used again.
    pub(super) highest: u64,
    pub(super) log: Option<LogId>,
    /// The highest LSN that anything says was durable.
    pub(super) durable: Lsn,
    pub(super) problems: Vec<Problem>,
    /// Whether segments were cleaned away during the look.
    pub(super) was_cleaned: bool,
}

/// A segment's file.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) name: SegmentName,
    pub(super) path: PathBuf,
    pub(super) file_bytes: u64,
    /// What it holds, if its header can be read.
    pub(super) content: Option<Content>,
}

#[derive(Debug)]
pub(super) struct Content {
    pub(super) header: SegmentHeader,
    /// What the seal says, or would say.
    pub(super) seal: Seal,
    pub(super) is_sealed: bool,
    /// Where the good frames end.
    pub(super) end: u64,
    /// What comes there, if it is no clean end.
    bad: Option<Bad>,
    /// What comes even later.
    later: Later,
}

impl Content {
    /// The highest LSN in the segment, damaged or not.
    pub(super) fn highest(&self) -> Lsn {
        self.seal.last.max(self.later.last)
    }
}

/// Something wrong.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) segment: u64,
    pub(super) path: PathBuf,
    pub(super) offset: u64,
    /// The first record that is concerned.
    pub(super) first: Lsn,
    pub(super) verdict: Verdict,
    pub(super) error: Error,
}

/// Looks at a folder; `None` where there is none. `progress` hears of every segment. Beside a writer, what is found may be of different
/// moments: loss is sure only where a second look finds it too.
///
/// # Errors
/// Only what the disk reports, and two segments of one number. All else is among the problems.
pub(super) fn survey(
    disk: &dyn Disk,
    dir: &Path,
    depth: Depth,
    planted: Planted,
    progress: &mut dyn FnMut(Progress),
) -> Result<Option<Survey>> {
    if disk.stat(dir)?.is_none() {
        return Ok(None);
    }
    // Before the listing: what it says is durable lies in segments that are listed, whatever a writer does meanwhile.
    let said = super::watermark::read(disk, dir)?;
    let mut survey = list(disk, dir)?;
    let headers = survey.read_headers(disk)?;
    let watermark = said.of(survey.log);
    let total_bytes = survey.found.iter().map(|found| found.file_bytes).sum();
    let mut done = Progress { total_bytes, ..Progress::default() };
    let mut gone = Vec::new();
    for (place, header) in headers.iter().enumerate() {
        let Some(header) = header else { continue };
        // What a later segment has from its first LSN on is void here.
        let next = headers.get(place + 1..).unwrap_or_default().iter().flatten().next();
        let until = next.map_or(Lsn(u64::MAX), |next| next.first);
        let durable = next.map_or(watermark, |next| next.durable);
        let Some(found) = survey.found.get_mut(place) else { continue };
        let proof = Proof { until, durable, depth, planted };
        let Some(mut content) = look(disk, &found.path, header, &proof)? else {
            gone.push(found.name);
            continue;
        };
        content.seal.index = Vec::new(); // nobody asks for it, and there may be many
        survey.durable = survey.durable.max(header.durable).max(content.seal.durable).max(content.later.durable);
        if content.is_sealed && place + 1 < headers.len() {
            survey.durable = survey.durable.max(content.seal.last.min(until.previous()));
        }
        done.done_bytes += found.file_bytes;
        done.records = done.records.saturating_add(content.seal.records);
        found.content = Some(content);
        progress(done);
    }
    survey.was_cleaned |= !gone.is_empty();
    survey.found.retain(|found| !gone.contains(&found.name));
    survey.durable = survey.durable.max(watermark);
    survey.judge();
    Ok(Some(survey))
}

/// So many segments has no log; a name that says so was made by somebody else, and counting on from it would overflow. Only what is well below
/// is written to, so that whatever is written can be read.
const MOST_SEGMENTS: u64 = 1 << 62;

fn list(disk: &dyn Disk, dir: &Path) -> Result<Survey> {
    let mut survey = Survey::default();
    let mut entries = disk.list(dir)?;
    entries.retain(|entry| entry.kind == FileKind::File);
    entries.sort();
    let mut horizons = Vec::new();
    for entry in &entries {
        let path = dir.join(&entry.name);
        survey.has_reserve |= entry.name == super::name::RESERVE && super::reserve::is_reserve(disk, &path)?;
        if entry.name == super::watermark::WATERMARK {
            survey.watermark = Some(path);
            continue;
        }
        if let Some(name) = SegmentName::parse(&entry.name) {
            survey.highest = survey.highest.max(name.segment);
            let Some(stat) = disk.stat(&path)? else { continue }; // cleaned up meanwhile
            let file_bytes = stat.length_bytes;
            survey.found.push(Found { name, path, file_bytes, content: None });
            continue;
        }
        let Some(side) = Side::parse(&entry.name) else { continue };
        match side {
            Side::Horizon(number) => horizons.push((number, path)),
            Side::Temporary(_) | Side::Spare(_) => survey.leftovers.push(path),
            Side::Cut(..) | Side::Void(_) => {}
        }
        let (Side::Horizon(number) | Side::Cut(number, _) | Side::Void(number) | Side::Temporary(number)) = side else {
            continue;
        };
        survey.highest = survey.highest.max(number);
    }
    if survey.highest >= MOST_SEGMENTS {
        return Err(too_many(dir, survey.highest));
    }
    horizons.sort();
    if let Some((number, _)) = horizons.pop() {
        survey.horizon = number;
    }
    survey.old_horizons = horizons.into_iter().map(|(_, path)| path).collect();
    survey.found.sort_by_key(|found| found.name);
    let (below, kept): (Vec<_>, Vec<_>) =
        std::mem::take(&mut survey.found).into_iter().partition(|found| found.name.segment < survey.horizon);
    survey.leftovers.extend(below.into_iter().map(|found| found.path));
    for pair in kept.windows(2) {
        if let [one, other] = pair
            && one.name.segment == other.name.segment
        {
            let expected = format!("one file for segment {}", one.name.segment);
            return Err(Error::corrupt(&other.path, 0, expected, format!("also {}", one.path.display())));
        }
    }
    survey.found = kept;
    Ok(survey)
}

impl Survey {
    /// Refuses a folder whose segments could come to be as many as no reader believes.
    ///
    /// # Errors
    /// `Foreign`.
    pub(super) fn may_be_written_to(&self, dir: &Path) -> Result<()> {
        if self.highest >= MOST_SEGMENTS / 2 { Err(too_many(dir, self.highest)) } else { Ok(()) }
    }

    /// The LSN that the next record gets: above everything that may be somebody's, but for what recovery cuts off.
    pub(super) fn next_lsn(&self) -> Lsn {
        let mut highest = self.durable;
        for found in &self.found {
            let Some(content) = &found.content else { continue };
            let is_damaged =
                self.problems.iter().any(|problem| problem.segment == found.name.segment && problem.verdict.is_loss());
            highest = highest.max(if is_damaged { content.highest() } else { content.seal.last });
        }
        highest.next()
    }

    /// The headers of all segments, `None` where one cannot be read; those that were cleaned since the listing are found no more.
    fn read_headers(&mut self, disk: &dyn Disk) -> Result<Vec<Option<SegmentHeader>>> {
        let mut headers = Vec::new();
        for found in std::mem::take(&mut self.found) {
            let file = match disk.open(&found.path) {
                Err(error) if error.is_not_found() => {
                    self.was_cleaned = true;
                    continue;
                }
                opened => opened?,
            };
            headers.push(self.read_header(file.as_ref(), &found)?);
            self.found.push(found);
        }
        Ok(headers)
    }

    fn read_header(&mut self, file: &dyn ReadFile, found: &Found) -> Result<Option<SegmentHeader>> {
        let mut bytes = vec![0; SEGMENT_HEADER_BYTES.min(usize::try_from(file.len()).unwrap_or(usize::MAX))];
        file.read_exact_at(&mut bytes, 0)?;
        let header = SegmentHeader::decode(&found.path, &bytes).and_then(|header| {
            let expected = (found.name.segment, self.log.unwrap_or(header.log));
            if (header.segment, header.log) == expected {
                return Ok(header);
            }
            let found_there = format!("segment {} of log {}", header.segment, header.log);
            Err(Error::corrupt(&found.path, 16, format!("segment {} of log {}", expected.0, expected.1), found_there))
        });
        match header {
            Ok(header) => {
                self.log = Some(header.log);
                Ok(Some(header))
            }
            Err(error) => {
                let (segment, path) = (found.name.segment, found.path.clone());
                let verdict = Verdict::Unreadable;
                self.problems.push(Problem { segment, path, offset: 0, first: Lsn::NONE, verdict, error });
                Ok(None)
            }
        }
    }

    /// Holds every segment against the decision table.
    fn judge(&mut self) {
        let mut problems = std::mem::take(&mut self.problems);
        let contents: Vec<(&Found, &Content)> =
            self.found.iter().filter_map(|found| found.content.as_ref().map(|content| (found, content))).collect();
        for (place, (found, content)) in contents.iter().enumerate() {
            let later = contents.get(place + 1).map(|(_, later)| &later.header);
            let next = later.map(|later| later.first);
            // What was not durable when the next segment was made never was: nobody syncs a segment that has a later one. It may have a
            // lower LSN than what was durable afterwards.
            let durable = later.map_or(self.durable, |later| later.durable);
            let missing = content.seal.last.next();
            let verdict = match (&content.bad, next) {
                (Some(_), Some(next)) if missing >= next => continue, // void anyway
                (Some(_), Some(_)) => in_the_middle(missing, durable),
                (Some(_), None) => at_the_end(missing, durable, content.later.any, content.header.recycled),
                (None, Some(next)) if missing < next => in_between(missing, durable),
                (None, None) if missing <= durable => Verdict::Missing,
                (None, _) => continue,
            };
            let error = if let Some(bad) = &content.bad {
                bad.error(&found.path).context(format!("record {missing} of the log"))
            } else {
                let end = next.map_or(self.durable, Lsn::previous);
                missing_records(
                    &found.path.with_file_name(format!("log-*-{:020}", found.name.segment + 1)),
                    missing,
                    end,
                )
            };
            let (segment, path) = (found.name.segment, found.path.clone());
            problems.push(Problem { segment, path, offset: content.end, first: missing, verdict, error });
        }
        problems.extend(self.front());
        let is_empty = contents.is_empty() && !self.was_cleaned;
        if let (true, Some(path)) = (is_empty && self.durable > Lsn::NONE, &self.watermark) {
            // Where some were given up, nobody knows with which record the others began.
            let first = if self.horizon == 0 { Lsn::FIRST } else { self.durable };
            let (path, verdict) = (path.with_file_name("log-*"), Verdict::Missing);
            let error = missing_records(&path, first, self.durable);
            problems.push(Problem { segment: 0, path, offset: 0, first, verdict, error });
        }
        problems.sort_by_key(|problem| (problem.segment, problem.offset));
        self.problems = problems;
    }

    /// What is missing in front: a log begins with the segment that its horizon names, or with the first record.
    fn front(&self) -> Option<Problem> {
        let found = self.found.first().filter(|found| !self.was_cleaned && found.name.segment != self.horizon)?;
        let header = &found.content.as_ref()?.header;
        let last = header.first.previous();
        // Where the horizon's own segment is gone, nobody knows with which record it began.
        let first = if self.horizon == 0 { Lsn::FIRST } else { last.min(header.durable) };
        if last == Lsn::NONE || first == Lsn::NONE || first > header.durable {
            return None;
        }
        let number = self.horizon.max(1);
        let path = found.path.with_file_name(format!("log-*-{number:020}"));
        let error = missing_records(&path, first, last);
        Some(Problem { segment: number, path, offset: 0, first, verdict: Verdict::Missing, error })
    }

    /// What is known to be lost and no segment shows: the first record of it in front of the segments, and the last one behind them.
    pub(super) fn lost_beyond(&self) -> (Lsn, Lsn) {
        let headers = || self.found.iter().filter_map(|found| found.content.as_ref().map(|content| &content.header));
        let losses = || self.problems.iter().filter(|problem| problem.verdict.is_loss());
        let (oldest, newest) = (headers().next(), headers().next_back());
        let is_in_front = |problem: &&Problem| {
            oldest.is_none_or(|oldest| (problem.segment, problem.first) < (oldest.segment, oldest.first))
        };
        let is_behind = |problem: &Problem| newest.is_none_or(|newest| problem.segment >= newest.segment);
        let first = |problem: &Problem| if self.horizon == 0 { Lsn::FIRST } else { problem.first };
        let front = losses().filter(is_in_front).map(first).max().filter(|_| !self.was_cleaned);
        let behind = losses().any(is_behind).then_some(self.durable);
        (front.unwrap_or(Lsn::NONE), behind.unwrap_or(Lsn::NONE))
    }
}

fn too_many(dir: &Path, number: u64) -> Error {
    let kind = ErrorKind::Foreign { path: dir.to_path_buf() };
    Error::new(kind, format!("a file there has the number {number}, which no log of ours reaches"))
}

fn missing_records(file: &Path, first: Lsn, last: Lsn) -> Error {
    let kind = ErrorKind::Missing { file: file.to_path_buf() };
    Error::new(kind, format!("the records from {first} to {last} of the log are in no segment"))
}

/// The seal that a segment's last bytes lead to, with its offset.
pub(super) fn read_seal(file: &dyn ReadFile, path: &Path, header: &SegmentHeader) -> Result<Option<(Seal, u64)>> {
    let length = file.len();
    let Some(trailer_at) = length.checked_sub(TRAILER_BYTES as u64).filter(|at| *at >= SEGMENT_HEADER_BYTES as u64)
    else {
        return Ok(None);
    };
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, trailer_at)?;
    let Some(offset) = decode_trailer(trailer, header.salt) else { return Ok(None) };
    let size = trailer_at.checked_sub(offset).and_then(|bytes| usize::try_from(bytes).ok());
    // As large as the index of so many bytes can be, and no larger: the trailer is not believed any further.
    let most = (offset / INDEX_EVERY_BYTES).saturating_add(2).saturating_mul(INDEX_ENTRY_BYTES as u64);
    let most = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(FRAME_HEADER_BYTES + SEAL_BYTES);
    let Some(size) = size.filter(|size| (FRAME_HEADER_BYTES..=most).contains(size)) else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_new_at(&mut bytes, size, offset)?;
    let Some((frame, payload)) = bytes.split_first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
    let is_seal = FrameHeader::decode(frame, header.salt).is_some_and(|frame| {
        frame.kind == FrameKind::Seal && frame.length as usize == payload.len() && frame.payload_crc == crc32(payload)
    });
    if !is_seal {
        return Ok(None);
    }
    Ok(Seal::decode(path, offset, payload).ok().filter(|seal| seal.first == header.first).map(|seal| (seal, offset)))
}

/// What is known of a segment from elsewhere.
struct Proof {
    /// The next segment's first LSN.
    until: Lsn,
    /// What was durable for sure. A seal above that may have reached the disk before its records.
    durable: Lsn,
    depth: Depth,
    planted: Planted,
}

/// What is in a segment; `None` where it was cleaned since the listing. Opens it: one at a time, since there may be more segments than a
/// process may have files.
fn look(disk: &dyn Disk, path: &Path, header: &SegmentHeader, proof: &Proof) -> Result<Option<Content>> {
    loop {
        let file = match disk.open(path) {
            Err(error) if error.is_not_found() => return Ok(None),
            opened => opened?,
        };
        match look_into(&file, path, header, proof) {
            // Its writer has sealed it meanwhile and given back the room that it had reserved; so it cannot happen again.
            Err(error) if error.is_corrupt() && is_shorter(disk, path, file.len())? => {}
            found => return found.map(Some),
        }
    }
}

fn is_shorter(disk: &dyn Disk, path: &Path, length_bytes: u64) -> Result<bool> {
    Ok(disk.stat(path)?.is_none_or(|stat| stat.length_bytes < length_bytes))
}

fn look_into(file: &Arc<dyn ReadFile>, path: &Path, header: &SegmentHeader, proof: &Proof) -> Result<Content> {
    if proof.depth == Depth::Seals
        && let Some((seal, end)) = read_seal(file.as_ref(), path, header)?
        && seal.last <= seal.durable.max(proof.durable)
    {
        return Ok(Content { header: *header, seal, is_sealed: true, end, bad: None, later: Later::default() });
    }
    let from = SEGMENT_HEADER_BYTES as u64;
    let mut reader = ChunkReader::new(Arc::clone(file), path.into(), header.salt, from, file.len());
    if proof.planted == Planted::SkipPayloadChecksum {
        reader = reader.without_payload_checks();
    }
    scan(reader, header, proof.until)
}

/// Reads a segment up to the first record that is void, or to where its frames end.
fn scan(mut reader: ChunkReader, header: &SegmentHeader, until: Lsn) -> Result<Content> {
    let mut content = Content {
        header: *header,
        seal: Seal { first: header.first, last: header.first.previous(), durable: header.durable, ..Seal::default() },
        is_sealed: false,
        end: SEGMENT_HEADER_BYTES as u64,
        bad: None,
        later: Later::default(),
    };
    let mut chunk = Chunk::default();
    loop {
        reader.next(&mut chunk)?;
        for frame in &chunk.frames {
            match frame.header.kind {
                FrameKind::Mark => content.seal.durable = content.seal.durable.max(frame.header.lsn),
                FrameKind::Seal => {
                    content.close(reader.path(), &chunk, frame);
                    break;
                }
                FrameKind::Record(_) if frame.header.lsn >= until => return Ok(content),
                FrameKind::Record(_) if frame.header.lsn == content.seal.last.next() => {
                    content.add(frame.offset, &frame.header);
                }
                FrameKind::Record(_) => {
                    let expected = format!("the record with LSN {}", content.seal.last.next());
                    let found = format!("LSN {}", frame.header.lsn);
                    content.bad = Some(Bad { offset: frame.offset, expected, found, resume: Some(frame.end()) });
                    break;
                }
            }
            content.end = frame.end();
        }
        if content.is_sealed {
            return Ok(content);
        }
        if content.bad.is_none() {
            match chunk.stop.take() {
                None => continue,
                Some(Stop::End(_) | Stop::Zeros(_)) => return Ok(content),
                Some(Stop::Bad(bad)) => content.bad = Some(bad),
            }
        }
        if let Some(bad) = &content.bad {
            let from = bad.resume.unwrap_or(bad.offset + 1);
            content.later = look_behind(&reader, from, content.seal.last.next())?;
        }
        return Ok(content);
    }
}

impl Content {
    fn add(&mut self, offset: u64, header: &FrameHeader) {
        let seal = &mut self.seal;
        seal.min_time_ms = if seal.records == 0 { header.time_ms } else { seal.min_time_ms.min(header.time_ms) };
        seal.max_time_ms = seal.max_time_ms.max(header.time_ms);
        seal.records += 1;
        seal.last = header.lsn;
        seal.payload_bytes += u64::from(header.length);
        if seal.index.last().is_none_or(|(_, at)| offset - at >= INDEX_EVERY_BYTES) {
            seal.index.push((header.lsn, offset));
        }
    }

    /// A seal: it has to say what was found before it.
    fn close(&mut self, path: &Path, chunk: &Chunk, frame: &super::chunk::Frame) {
        match Seal::decode(path, frame.offset, chunk.payload(frame)) {
            Ok(seal) if (seal.records, seal.last) == (self.seal.records, self.seal.last) => {
                self.is_sealed = true;
                self.end = frame.offset;
                self.seal.durable = self.seal.durable.max(seal.durable);
            }
            sealed => {
                let found = sealed.map_or_else(|error| error.to_string(), |seal| format!("one for {}", seal.records));
                let expected = format!("a seal for {} records", self.seal.records);
                self.bad = Some(Bad { offset: frame.offset, expected, found, resume: Some(frame.end()) });
            }
        }
    }
}
