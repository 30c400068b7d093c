//! The writer of segments: the only one who changes them. One thread at a time has it, handed on by the group.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::format::{
    FRAME_HEADER_BYTES, FrameHeader, FrameKind, INDEX_EVERY_BYTES, RecordCodec, SEGMENT_HEADER_BYTES, SegmentHeader,
    encode_trailer,
};
use super::group::{Attempt, Failed, Sink};
use super::name::{LOCK, RESERVE, SegmentName, Side};
use super::options::LogOptions;
use super::planted::Planted;
use super::record::{LogId, Lsn, NewRecord, RecordHandle, RecordKind};
use super::reserve::{free_reserve, make_reserve};
use super::segment::{Segment, Shelf};
use super::watermark::Watermark;
use crate::budget::Part;
use crate::checksum::crc32;
use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{DiskLock, WriteFile};
use crate::version::IdSource;

/// Payloads up to this are copied behind their header, larger ones are handed to the system where they lie. (1 KiB: one buffer 1.7 µs, two
/// 1.8 µs; 64 KiB: the copy would be a tenth.)
const COPIED_BYTES: usize = 8 << 10;

/// A record whose checksum is taken and whose payload is compressed.
#[derive(Debug)]
pub(super) struct Pending<'a> {
    pub(super) stream: u16,
    pub(super) time_ms: u64,
    pub(super) kind: RecordKind,
    pub(super) codec: RecordCodec,
    pub(super) crc: u32,
    pub(super) payload: Cow<'a, [u8]>,
    /// For the memory that the payload takes while it waits.
    _room: Option<Room>,
}

/// Room in the queue: in the log's own, and in the limit that it shares with others.
#[derive(Debug)]
pub(super) struct Room {
    pub(super) _own: Part,
    pub(super) _shared: Option<Part>,
}

impl<'a> Pending<'a> {
    pub(super) fn new(record: &NewRecord<'a>, codec: RecordCodec) -> Result<Self> {
        let compressed = super::compress::compress(codec, record.payload)?;
        let (codec, payload) = match compressed {
            Some(bytes) => (codec, Cow::Owned(bytes)),
            None => (RecordCodec::None, Cow::Borrowed(record.payload)),
        };
        let (stream, time_ms, kind) = (record.stream, record.time_ms, record.kind);
        Ok(Self { stream, time_ms, kind, codec, crc: crc32(&payload), payload, _room: None })
    }

    /// With a copy of the payload, and what its memory was taken from.
    pub(super) fn into_owned(self, room: Option<Room>) -> Pending<'static> {
        let Self { stream, time_ms, kind, codec, crc, payload, _room: _ } = self;
        Pending { stream, time_ms, kind, codec, crc, payload: Cow::Owned(payload.into_owned()), _room: room }
    }

    pub(super) fn frame_bytes(&self) -> u64 {
        (FRAME_HEADER_BYTES + self.payload.len()) as u64
    }

    fn header(&self, lsn: Lsn) -> FrameHeader {
        FrameHeader {
            length: u32::try_from(self.payload.len()).unwrap_or(u32::MAX),
            payload_crc: self.crc,
            kind: FrameKind::Record(self.kind),
            codec: self.codec,
            stream: self.stream,
            lsn,
            time_ms: self.time_ms,
        }
    }
}

/// Where a batch of records lies.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Placement {
    pub(super) log: LogId,
    pub(super) segment: u64,
    /// Offset of the first record's frame.
    pub(super) start: u64,
}

impl Placement {
    /// The handle of a record that lies `before` bytes behind the start.
    pub(super) fn handle(&self, before: u64, lsn: Lsn, length: usize, crc: u32) -> RecordHandle {
        RecordHandle {
            log: self.log,
            segment: self.segment,
            offset: self.start + before,
            length: u32::try_from(length).unwrap_or(u32::MAX),
            crc,
            lsn,
        }
    }
}

/// The lock on the folder, taken when the folder is first found or made.
pub(super) type FolderLock = Arc<Mutex<Option<DiskLock>>>;

/// Writes batches into segments, and rolls, seals and replaces those.
pub(super) struct SegmentSink {
    pub(super) shelf: Arc<Shelf>,
    pub(super) options: LogOptions,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) ids: Arc<IdSource>,
    pub(super) lock: FolderLock,
    pub(super) log: LogId,
    pub(super) next_segment: u64,
    /// Everything up to here is durable.
    pub(super) durable: Lsn,
    pub(super) current: Option<Current>,
    pub(super) watermark: Option<Watermark>,
    /// Whether the last sync failed. The next failure stops the log.
    pub(super) sync_failed: bool,
    pub(super) has_reserve: bool,
    /// Whether the folder's own name is known to be durable.
    pub(super) has_folder: bool,
    /// Frames that are being put together, or held back.
    pub(super) stage: Vec<u8>,
}

/// The segment that is being written.
pub(super) struct Current {
    segment: Arc<Segment>,
    file: Box<dyn WriteFile>,
    /// Where the next frame goes, what is held back included.
    end: u64,
    /// The durable LSN that the segment says by now.
    marked: Lsn,
    index: Vec<(Lsn, u64)>,
    /// Whether the file may be longer than what is written.
    has_room: bool,
    /// Whether an append may have failed half-way.
    has_part: bool,
}

impl Sink for SegmentSink {
    type Record<'a> = Pending<'a>;
    type Placement = Placement;

    fn bytes(record: &Pending<'_>) -> u64 {
        record.frame_bytes()
    }

    fn write(&mut self, first: Lsn, records: &[Pending<'_>]) -> Attempt<Placement> {
        if records.is_empty() {
            return self.flush().map(|()| Placement::default()).map_err(Failed::for_good);
        }
        let mut attempts = self.options.max_failures;
        loop {
            let failed = match self.try_write(first, records) {
                // Who asked for no sync gets one too: for a store without a flush, ending the file is what hands the records over.
                Ok(placement) if self.options.close_after_write => {
                    return self.sync(first, records).map(|moved| moved.unwrap_or(placement));
                }
                Ok(placement) => return Ok(placement),
                Err(failed) => failed,
            };
            attempts -= 1;
            if failed.stops {
                // Records that were held back are lost: nothing may be sealed as if they were there.
                self.stage.clear();
                self.current = None;
                return Err(failed);
            }
            let is_full = matches!(failed.error.kind(), ErrorKind::DiskFull { .. });
            self.abandon(is_full)?;
            if attempts == 0 || is_full {
                return Err(failed);
            }
            tracing::warn!(error = %failed.error, "the log tries a batch in another segment");
        }
    }

    fn sync(&mut self, first: Lsn, records: &[Pending<'_>]) -> Attempt<Option<Placement>> {
        if self.shelf.planted == Planted::AcknowledgeBeforeSync {
            return Ok(None);
        }
        let Some(error) = self.sync_current().err() else { return Ok(None) };
        if self.shelf.planted == Planted::RetryFailedSync {
            return self.sync_current().map(|()| None).map_err(Failed::once);
        }
        self.current = None; // suspect: nothing is written to it any more, and no sync of it is believed
        let only_these = self.durable.next() >= first;
        let again = std::mem::replace(&mut self.sync_failed, true);
        if again || !only_these {
            // A second failure; or earlier records were acknowledged unsynced, and may be gone.
            return Err(Failed::for_good(error));
        }
        if !self.options.rewrites_after_failed_sync || records.is_empty() {
            return Err(Failed::once(error));
        }
        tracing::warn!(%error, "a sync of the log failed; its records are written to a new segment");
        let placement = self.try_write(first, records).map_err(|failed| Failed::for_good(failed.error))?;
        self.sync_current().map_err(Failed::for_good)?;
        Ok(Some(placement))
    }
}

impl SegmentSink {
    /// Seals the current segment, if there is one.
    pub(super) fn end(&mut self) -> Result<()> {
        self.seal().map_err(|failed| failed.error)
    }

    fn try_write(&mut self, first: Lsn, records: &[Pending<'_>]) -> Attempt<Placement> {
        let bytes: u64 = records.iter().map(Pending::frame_bytes).sum();
        let time_ms = records.first().map_or(0, |record| record.time_ms);
        if self.is_due(bytes, time_ms) {
            self.seal()?;
        }
        if self.current.is_none() {
            self.create(first, time_ms).map_err(Failed::once)?;
        }
        let held = self.stage.len();
        let large = self.put_together(first, records, bytes);
        let Some(current) = &mut self.current else { return Err(Failed::once(Error::invalid("no segment"))) };
        let mark = if self.durable > current.marked { FRAME_HEADER_BYTES as u64 } else { 0 };
        current.marked = self.durable;
        let is_held = large.is_empty() && self.stage.len() < self.options.gather_bytes;
        if is_held && !self.options.close_after_write {
            // held back until a sync, a read, or enough of them
        } else {
            let appended = if large.is_empty() {
                current.file.append(&self.stage)
            } else {
                append_both(current.file.as_mut(), &self.stage, &large, records)
            };
            self.stage.clear();
            if let Err(error) = appended {
                current.has_part = true;
                // Held records were acknowledged and are gone.
                return Err(if held > 0 { Failed::for_good(error) } else { Failed::once(error) });
            }
        }
        let start = current.end + mark;
        current.take_down(first, records, start);
        Ok(Placement { log: self.log, segment: current.segment.number(), start })
    }

    /// Puts the frames into the stage, but not the large payloads: of those it returns where in the stage they belong.
    fn put_together(&mut self, first: Lsn, records: &[Pending<'_>], bytes: u64) -> Vec<(usize, usize)> {
        let mut large = Vec::new();
        let Some(current) = &self.current else { return large };
        let salt = current.segment.header.salt;
        if self.durable > current.marked {
            let mark = FrameHeader {
                length: u32::try_from(bytes).unwrap_or(u32::MAX),
                payload_crc: u32::try_from(records.len()).unwrap_or(u32::MAX),
                kind: FrameKind::Mark,
                codec: RecordCodec::None,
                stream: 0,
                lsn: self.durable,
                time_ms: first.0,
            };
            self.stage.extend_from_slice(&mark.encode(salt));
        }
        let mut lsn = first;
        for (place, record) in records.iter().enumerate() {
            self.stage.extend_from_slice(&record.header(lsn).encode(salt));
            if record.payload.len() <= COPIED_BYTES {
                self.stage.extend_from_slice(&record.payload);
            } else {
                large.push((self.stage.len(), place));
            }
            lsn = lsn.next();
        }
        large
    }

    fn is_due(&self, bytes: u64, time_ms: u64) -> bool {
        let Some(current) = &self.current else { return false };
        let has_records = current.segment.last() >= current.segment.header.first;
        has_records
            && (self.options.close_after_write
                || current.end + bytes > self.options.segment_bytes
                || time_ms > current.segment.name.stop_ms)
    }

    /// Gives what is held back to the system.
    fn flush(&mut self) -> Result<()> {
        let Some(current) = self.current.as_mut().filter(|_| !self.stage.is_empty()) else { return Ok(()) };
        let appended = current.file.append(&self.stage);
        self.stage.clear();
        appended
    }

    fn sync_current(&mut self) -> Result<()> {
        self.flush()?;
        if self.options.close_after_write {
            return self.end_current();
        }
        let Some(current) = &mut self.current else { return Ok(()) };
        current.file.sync_data()?; // everything in the segment is durable
        let last = current.segment.last();
        self.is_durable(last);
        Ok(())
    }

    /// Takes down that a sync has succeeded.
    fn is_durable(&mut self, last: Lsn) {
        self.sync_failed = false;
        if last <= self.durable {
            return;
        }
        self.durable = last;
        if let Some(watermark) = &mut self.watermark
            && let Err(error) = watermark.say(self.log, last)
        {
            tracing::debug!(%error, "the log goes on without its watermark");
            self.watermark = None;
        }
    }

    /// Syncs the current segment and its seal at once. A seal that does not fit is left out: the next segment will say what was durable.
    fn end_current(&mut self) -> Result<()> {
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let last = current.segment.last();
        let mut sealed = current.append_seal(self.durable);
        if let Err(error) = &sealed
            && matches!(error.kind(), ErrorKind::DiskFull { .. })
        {
            self.give_up_reserve();
            sealed = current.append_seal(self.durable);
        }
        current.file.sync()?; // the records are durable, and the seal
        match sealed {
            Ok(()) => current.segment.set_sealed(),
            Err(error) => {
                tracing::warn!(%error, segment = current.segment.number(), "a segment of the log has no seal");
            }
        }
        self.is_durable(last);
        Ok(())
    }

    /// Ends the current segment for good: all its records are durable, and it says so.
    fn seal(&mut self) -> Attempt<()> {
        let held = !self.stage.is_empty();
        self.flush().map_err(|error| if held { Failed::for_good(error) } else { Failed::once(error) })?;
        let Some(current) = &self.current else { return Ok(()) };
        let last = current.segment.last();
        match self.end_current() {
            Ok(()) => Ok(()),
            Err(error) if self.durable < last => Err(Failed::for_good(error)),
            Err(error) => {
                // Its records are durable all the same, and the next segment will say so.
                tracing::warn!(%error, "a segment of the log could not be sealed");
                Ok(())
            }
        }
    }

    /// Leaves a segment that could not be written to. What is in it stays.
    fn abandon(&mut self, is_full: bool) -> Attempt<()> {
        self.stage.clear();
        if is_full {
            // With the reserve's room the segment can still end as it should.
            self.give_up_reserve();
            return self.seal();
        }
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let last = current.segment.last();
        if self.durable < last {
            current.file.sync_data().map_err(Failed::for_good)?;
            self.is_durable(last);
        }
        Ok(())
    }

    /// Makes the segment whose first record will be `first`: header, sync, name, sync of the folder. From then on the name leads to a
    /// whole header, so that a broken one is damage and never a crash.
    fn create(&mut self, first: Lsn, time_ms: u64) -> Result<()> {
        self.enter_folder()?;
        let number = self.next_segment;
        self.next_segment += 1; // never used again, whatever comes of it
        let stop_ms = time_ms.saturating_add(self.options.rolling_ms());
        let name = SegmentName { segment: number, start_ms: time_ms, stop_ms };
        let path = self.shelf.dir.join(name.to_string());
        let (temporary, recycled) = self.take_spare(number);
        let mut header = SegmentHeader {
            log: self.log,
            segment: number,
            first,
            durable: self.durable.min(first.previous()),
            salt: self.salt(),
            created_ms: self.clock.wall_ms(),
            recycled,
        };
        let mut left = &temporary;
        let file = self.begin(&temporary, &mut header).and_then(|file| {
            self.shelf.disk.rename_new(&temporary, &path)?; // visible
            left = &path;
            if self.shelf.planted != Planted::SkipDirectorySync {
                self.shelf.disk.sync_dir(&self.shelf.dir)?; // its name is durable
            }
            Ok(file)
        });
        let file = match file {
            Ok(file) => file,
            Err(error) => {
                // No record is in it. Where it stays behind, the next clean tries again.
                if let Err(error) = self.shelf.disk.remove(left)
                    && !error.is_not_found()
                {
                    tracing::debug!(%error, "an unfinished segment stays behind");
                    self.shelf.condemn(left.clone());
                }
                return Err(error.context("could not begin a segment of the log"));
            }
        };
        let segment = Arc::new(Segment::new(path, name, header));
        self.shelf.add(Arc::clone(&segment));
        let has_room = self.reserves_room() || header.recycled;
        let end = SEGMENT_HEADER_BYTES as u64;
        self.current =
            Some(Current { segment, file, end, marked: header.durable, index: Vec::new(), has_room, has_part: false });
        Ok(())
    }

    fn begin(&self, temporary: &std::path::Path, header: &mut SegmentHeader) -> Result<Box<dyn WriteFile>> {
        let disk = &self.shelf.disk;
        let mut file = if header.recycled { disk.overwrite(temporary)? } else { disk.create_new(temporary)? };
        file.append(&header.encode())?;
        if self.reserves_room() {
            file.preallocate(self.options.segment_bytes)?;
        }
        file.sync()?; // the header is durable, and the room is ours
        Ok(file)
    }

    /// The file that the segment is begun in: a cleaned one, or a name for a new one.
    fn take_spare(&self, number: u64) -> (PathBuf, bool) {
        let temporary = self.shelf.dir.join(Side::Temporary(number).to_string());
        if let Some(spare) = self.shelf.take_spare()
            && self.shelf.disk.rename_new(&spare, &temporary).is_ok()
        {
            return (temporary, true);
        }
        (temporary, false)
    }

    /// Not for segments of a single group.
    fn reserves_room(&self) -> bool {
        self.options.preallocates && !self.options.close_after_write
    }

    fn salt(&self) -> u64 {
        self.ids.run_id().0.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// Makes the folder, its lock and the reserve, where they are missing.
    fn enter_folder(&mut self) -> Result<()> {
        if !self.has_folder {
            super::folder::make(self.shelf.disk.as_ref(), &self.shelf.dir)?;
            self.has_folder = true;
        }
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            *lock = Some(self.shelf.disk.lock(&self.shelf.dir.join(LOCK), self.clock.as_ref())?);
            let entries = self.shelf.disk.list(&self.shelf.dir)?;
            if entries.iter().any(|entry| SegmentName::parse(&entry.name).is_some()) {
                *lock = None;
                let kind = ErrorKind::AlreadyExists { path: self.shelf.dir.clone() };
                return Err(Error::new(kind, "somebody else has made a log there meanwhile; open it again"));
            }
        }
        drop(lock);
        if self.watermark.is_none() {
            self.watermark = Watermark::open(self.shelf.disk.as_ref(), &self.shelf.dir).ok();
        }
        if !self.has_reserve {
            self.has_reserve = make_reserve(self.shelf.disk.as_ref(), &self.shelf.dir.join(RESERVE));
        }
        Ok(())
    }

    fn give_up_reserve(&mut self) {
        if std::mem::take(&mut self.has_reserve) {
            free_reserve(&self.shelf);
        }
    }
}

/// Appends the stage with the large payloads in their places.
fn append_both(
    file: &mut dyn WriteFile,
    stage: &[u8],
    large: &[(usize, usize)],
    records: &[Pending<'_>],
) -> Result<()> {
    let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * large.len() + 1);
    let mut from = 0;
    for (place, record) in large {
        parts.push(stage.get(from..*place).unwrap_or_default());
        parts.push(records.get(*record).map(|record| record.payload.as_ref()).unwrap_or_default());
        from = *place;
    }
    parts.push(stage.get(from..).unwrap_or_default());
    file.append_parts(&parts)
}

impl Current {
    /// What readers and the seal need to know of records that were written from `start` on.
    fn take_down(&mut self, first: Lsn, records: &[Pending<'_>], start: u64) {
        let (mut at, mut lsn) = (start, first);
        // Before their LSNs: whoever reads meanwhile takes the LSNs first, and the bytes for at least these.
        self.segment.set_end(start + records.iter().map(Pending::frame_bytes).sum::<u64>());
        for record in records {
            if self.index.last().is_none_or(|(_, offset)| at - offset >= INDEX_EVERY_BYTES) {
                self.index.push((lsn, at));
            }
            self.segment.count(lsn, record.time_ms, record.payload.len() as u64);
            at += record.frame_bytes();
            lsn = lsn.next();
        }
        self.end = at;
    }

    /// Appends the seal, in place of what an append may have left that has failed before.
    fn append_seal(&mut self, durable: Lsn) -> Result<()> {
        if std::mem::replace(&mut self.has_part, true) {
            self.file.seek_to(self.end)?;
            self.has_room = true;
        }
        let mut seal = self.segment.summary(durable);
        seal.index.clone_from(&self.index);
        let payload = seal.encode();
        let header = FrameHeader {
            length: u32::try_from(payload.len()).unwrap_or(u32::MAX),
            payload_crc: crc32(&payload),
            kind: FrameKind::Seal,
            codec: RecordCodec::None,
            stream: 0,
            lsn: seal.last,
            time_ms: seal.max_time_ms,
        };
        let salt = self.segment.header.salt;
        let mut bytes = header.encode(salt).to_vec();
        bytes.extend_from_slice(&payload);
        bytes.extend_from_slice(&encode_trailer(self.end, salt));
        self.file.append(&bytes)?;
        if self.has_room {
            self.file.cut_here()?;
        }
        Ok(())
    }
}
