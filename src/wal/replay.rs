//! Reading a log, oldest record first, in memory that does not depend on how many there are.

use std::collections::VecDeque;
use std::sync::Arc;

use super::ahead::Ahead;
use super::chunk::{Bad, Chunk, ChunkReader, Frame, Stop};
use super::compress::expand;
use super::contract::{Records, Skipped};
use super::format::{FrameKind, RecordCodec};
use super::options::RecoveryMode;
use super::plan::{Plan, plan};
use super::progress::Progress;
use super::record::{LogId, Lsn, Record, RecordHandle, RecordKind};
use super::segment::Shelf;
use crate::error::{Error, ErrorKind, Result};

/// The records of a log.
pub(super) struct Replay {
    shelf: Arc<Shelf>,
    log: LogId,
    mode: RecoveryMode,
    from: Lsn,
    plans: VecDeque<Plan>,
    /// Read ahead for the plans, in their order.
    ahead: Option<Ahead>,
    /// What is being read.
    now: Option<(Plan, Source)>,
    /// The record that comes next in it.
    expected: Lsn,
    chunk: Chunk,
    place: usize,
    frame: Option<Frame>,
    expanded: Vec<u8>,
    progress: Progress,
    skipped: Skipped,
    /// The last record that is known to be lost behind all segments.
    lost_behind: Lsn,
    broken: bool,
}

enum Source {
    Own(ChunkReader),
    Ahead,
}

impl Replay {
    /// Reads what is on the shelf now, from `from` on. `hand_over` gives what is held back to the system: after it was decided what is read,
    /// since what is written later may be held back again.
    pub(super) fn new(
        shelf: Arc<Shelf>,
        log: LogId,
        mode: RecoveryMode,
        from: Lsn,
        threads: usize,
        hand_over: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let plans = plan(&shelf, from)?;
        let (front, lost_behind) = if mode == RecoveryMode::Salvage { shelf.lost() } else { Default::default() };
        hand_over()?;
        let mut skipped = Skipped::default();
        if let (true, Some(oldest)) = (front > Lsn::NONE, plans.first()) {
            let (front, header) = (front.max(from), &oldest.segment.header);
            let sure = header.durable.next().min(header.first);
            skipped.add(front, sure, true);
            skipped.add(front.max(sure), header.first, false);
        }
        let expected = if plans.is_empty() { front } else { Lsn::NONE };
        let total_bytes = plans.iter().map(|plan| plan.end - plan.start.1.min(plan.end)).sum();
        let ahead = (threads > 1 && plans.len() > 1).then(|| Ahead::start(&shelf, &plans, threads)).transpose()?;
        Ok(Self {
            shelf,
            log,
            mode,
            from,
            plans: plans.into(),
            ahead,
            now: None,
            expected,
            chunk: Chunk::default(),
            place: 0,
            frame: None,
            expanded: Vec::new(),
            progress: Progress { total_bytes, ..Progress::default() },
            skipped,
            lost_behind,
            broken: false,
        })
    }

    /// Moves to the next record that is to be delivered.
    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(frame) = self.chunk.frames.get(self.place).cloned() {
                self.place += 1;
                if self.take(frame)? {
                    return Ok(true);
                }
                continue;
            }
            match self.chunk.stop.take() {
                Some(Stop::End(_) | Stop::Zeros(_)) => self.end_segment()?,
                Some(Stop::Bad(bad)) => self.meet(&bad)?,
                None if self.now.is_some() => self.load()?,
                None => {
                    if !self.begin_segment()? {
                        self.end_log();
                        return Ok(false);
                    }
                }
            }
        }
    }

    fn begin_segment(&mut self) -> Result<bool> {
        let (plan, source) = loop {
            let Some(plan) = self.plans.pop_front() else { return Ok(false) };
            if let Some(ahead) = &mut self.ahead {
                ahead.begin();
                break (plan, Source::Ahead);
            }
            if let Some(reader) = plan.open(&self.shelf)? {
                break (plan, Source::Own(reader));
            }
            self.forget_behind(&plan);
        };
        self.expected = plan.start.0;
        self.clear();
        self.now = Some((plan, source));
        Ok(true)
    }

    fn clear(&mut self) {
        self.chunk.frames.clear();
        self.chunk.stop = None;
        self.place = 0;
    }

    fn load(&mut self) -> Result<()> {
        self.place = 0;
        match &mut self.now {
            Some((_, Source::Own(reader))) => reader.next(&mut self.chunk)?,
            Some((_, Source::Ahead)) => {
                let next = self.ahead.as_mut().and_then(Ahead::next);
                let next = next.unwrap_or_else(|| Err(Error::new(ErrorKind::Cancelled, "a reading thread is gone")))?;
                let Some(chunk) = next else {
                    self.leave();
                    return Ok(());
                };
                self.chunk = chunk;
            }
            None => {}
        }
        let read: u64 = self.chunk.frames.iter().map(|frame| frame.end() - frame.offset).sum();
        self.progress.done_bytes = self.progress.done_bytes.saturating_add(read);
        Ok(())
    }

    /// Whether the frame is a record to be delivered.
    fn take(&mut self, frame: Frame) -> Result<bool> {
        let Some((plan, _)) = &self.now else { return Ok(false) };
        match frame.header.kind {
            FrameKind::Mark => return Ok(false),
            FrameKind::Seal => {
                self.end_segment()?;
                return Ok(false);
            }
            FrameKind::Record(_) => {}
        }
        let lsn = frame.header.lsn;
        if lsn >= plan.until {
            self.end_segment()?;
            return Ok(false);
        }
        if lsn != self.expected {
            if self.mode != RecoveryMode::Salvage {
                let (expected, found) = (format!("the record with LSN {}", self.expected), format!("LSN {lsn}"));
                let bad = Bad { offset: frame.offset, expected, found, resume: Some(frame.end()) };
                self.meet(&bad)?;
                return Ok(false);
            }
            if lsn < self.expected {
                return Ok(false);
            }
            self.skipped.add(self.expected.max(self.from), lsn, true);
        }
        self.expected = lsn.next();
        if lsn < self.from {
            return Ok(false);
        }
        if frame.header.codec != RecordCodec::None {
            let payload = self.chunk.payload(&frame);
            match expand(frame.header.codec, &plan.segment.path, frame.offset, payload) {
                Ok(raw) => self.expanded = raw,
                Err(_) if self.mode == RecoveryMode::Salvage => {
                    self.skipped.add(lsn, lsn.next(), true);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        }
        self.frame = Some(frame);
        self.progress.records += 1;
        Ok(true)
    }

    /// A segment ended well. Records that the next one does not begin with are missing.
    fn end_segment(&mut self) -> Result<()> {
        self.clear();
        let Some((plan, _)) = self.now.take() else { return Ok(()) };
        let until = if plan.is_newest { plan.last.next() } else { plan.until };
        let missing = self.expected;
        if missing >= until {
            return Ok(());
        }
        let was_durable = plan.is_newest || plan.segment.is_sealed() && missing <= plan.last || missing <= plan.durable;
        if !was_durable || self.mode == RecoveryMode::Salvage {
            self.skipped.add(missing.max(self.from), until, was_durable);
            self.expected = until;
            return Ok(());
        }
        if self.mode == RecoveryMode::PointInTime {
            self.stop();
            return Ok(());
        }
        let kind = ErrorKind::Missing { file: plan.segment.path.to_path_buf() };
        Err(Error::new(
            kind,
            format!("the records from {missing} to {} are in no segment of the log", until.previous()),
        ))
    }

    /// Damage where the expected record should be.
    fn meet(&mut self, bad: &Bad) -> Result<()> {
        let Some((plan, source)) = &mut self.now else { return Ok(()) };
        if self.expected >= plan.until {
            return self.end_segment();
        }
        let was_durable = plan.is_newest || plan.segment.is_sealed() || self.expected <= plan.durable;
        if !was_durable {
            // Whatever comes behind in this segment was never durable either.
            return self.end_segment();
        }
        match self.mode {
            // Its file may have become another segment's since.
            RecoveryMode::Strict if self.shelf.has_given_up(plan.segment.number())? => {
                self.leave();
                Ok(())
            }
            RecoveryMode::Strict => {
                let error = bad.error(&plan.segment.path);
                Err(error.context(format!("record {} of the log", self.expected)))
            }
            RecoveryMode::PointInTime => {
                self.stop();
                Ok(())
            }
            RecoveryMode::Salvage => {
                let mut reader = match std::mem::replace(source, Source::Ahead) {
                    Source::Own(reader) => reader,
                    Source::Ahead => {
                        let Some(reader) = plan.open(&self.shelf)? else {
                            self.leave();
                            return Ok(());
                        };
                        reader
                    }
                };
                let from = bad.resume.unwrap_or(bad.offset + 1);
                let Some(offset) = reader.find_frame(from, self.expected)? else { return self.end_segment() };
                reader.seek(offset);
                *source = Source::Own(reader);
                self.clear();
                Ok(())
            }
        }
    }

    /// Goes to the next segment; this one was given up.
    fn leave(&mut self) {
        self.clear();
        if let Some((plan, _)) = self.now.take() {
            self.forget_behind(&plan);
        }
    }

    /// Where the newest segment was given up, others have come behind it: nobody knows any more what is lost there.
    fn forget_behind(&mut self, given_up: &Plan) {
        if given_up.is_newest {
            self.lost_behind = Lsn::NONE;
        }
    }

    /// Nothing comes any more. What is known to have been behind is lost.
    fn end_log(&mut self) {
        let last = std::mem::take(&mut self.lost_behind);
        if self.expected > Lsn::NONE {
            self.skipped.add(self.expected.max(self.from), last.next(), true);
        }
    }

    /// Nothing more is read.
    fn stop(&mut self) {
        self.clear();
        self.plans.clear();
        self.now = None;
    }
}

impl Records for Replay {
    fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        if self.broken {
            return Err(Error::new(ErrorKind::Poisoned, "reading the log has failed before"));
        }
        self.broken = true;
        let found = self.advance()?;
        self.broken = false;
        let (true, Some(frame), Some((plan, _))) = (found, &self.frame, &self.now) else { return Ok(None) };
        let stored = self.chunk.payload(frame);
        let payload = if frame.header.codec == RecordCodec::None { stored } else { &self.expanded };
        let kind = if let FrameKind::Record(kind) = frame.header.kind { kind } else { RecordKind::Plain };
        let handle = RecordHandle {
            log: self.log,
            segment: plan.segment.number(),
            offset: frame.offset,
            length: frame.header.length,
            crc: frame.header.payload_crc,
            lsn: frame.header.lsn,
        };
        let (lsn, time_ms, stream) = (frame.header.lsn, frame.header.time_ms, frame.header.stream);
        Ok(Some(Record { lsn, time_ms, stream, kind, handle, payload }))
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn skipped(&self) -> &Skipped {
        &self.skipped
    }
}
