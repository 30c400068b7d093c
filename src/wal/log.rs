//! [`FileLog`]: the log in a folder of segment files.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::cleaner;
use super::compress::expand;
use super::contract::{Cleaned, Records, WriteAheadLog};
use super::format::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, MAX_RECORD_BYTES, RecordCodec};
use super::group::{Group, Need, Written};
use super::name::LOCK;
use super::options::{Durability, LogOptions, Wait, WriteOptions};
use super::planted::Planted;
use super::record::{LogId, Lsn, NewRecord, RecordHandle};
use super::recovery::{Recovery, recover};
use super::replay::Replay;
use super::segment::{Segment, Shelf};
use super::sink::{FolderLock, Pending, Placement, Room, SegmentSink};
use crate::budget::{Budget, Lease};
use crate::bytes::Bytes;
use crate::checksum::crc32;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{Disk, RealDisk};
use crate::version::IdSource;

/// How often a writer looks again whether memory has come free elsewhere.
const MEMORY_LOOK: Duration = Duration::from_millis(10);

/// A write-ahead log in a folder. Safe to share between threads; one per folder, held by a lock.
///
/// Dropping it without [`close`](WriteAheadLog::close) is like a crash: what was acknowledged is there.
#[derive(Debug)]
pub struct FileLog {
    inner: Arc<Inner>,
    /// The thread that syncs in intervals.
    syncer: Mutex<Option<JoinHandle<()>>>,
    /// Threads that delete.
    cleaners: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Inner {
    group: Group<SegmentSink>,
    shelf: Arc<Shelf>,
    options: LogOptions,
    log: LogId,
    /// The queue's row of the budget; the records that wait have parts of it.
    queue: Lease,
    /// And of the limit that it shares.
    shared: Option<Lease>,
    clock: Arc<dyn Clock>,
    lock: FolderLock,
    recovery: Recovery,
    closing: AtomicBool,
    /// Wakes the syncing thread to end.
    wake: (Mutex<()>, Condvar),
    /// One clean-up at a time.
    cleaning: Mutex<()>,
}

/// The row of the queue in the table of who holds memory.
const QUEUE: &str = "log queue";

/// What a writer got.
enum Reserved {
    /// Its records are written, without a queue.
    Written(Written<Placement>),
    /// Room for them in the queue.
    Room(Room),
}

impl FileLog {
    /// Opens the log in the folder `dir`, which need not be there: it is made with the first record.
    ///
    /// # Errors
    /// `Locked` where somebody else has it open; `Corrupt` or `Missing` where acknowledged records are lost and the mode is `Strict`;
    /// `Unsupported` for segments of a later build; whatever the disk reports.
    pub fn open(dir: impl Into<PathBuf>, options: LogOptions) -> Result<Self> {
        Self::open_on(Arc::new(RealDisk::new()), dir, options, Arc::new(SystemClock::new()), IdSource::random())
    }

    /// Opens a log on a disk, with a clock and randomness of the caller's.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: impl Into<PathBuf>,
        options: LogOptions,
        clock: Arc<dyn Clock>,
        ids: IdSource,
    ) -> Result<Self> {
        Self::open_planted(disk, dir, options, clock, ids, Planted::Nothing)
    }

    /// As [`open_on`](Self::open_on), with a bug, so that a test can show that it would find it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    #[doc(hidden)]
    pub fn open_planted(
        disk: Arc<dyn Disk>,
        dir: impl Into<PathBuf>,
        options: LogOptions,
        clock: Arc<dyn Clock>,
        ids: IdSource,
        planted: Planted,
    ) -> Result<Self> {
        options.check()?;
        let shelf = Arc::new(Shelf::new(disk, dir.into(), planted));
        let lock: FolderLock = Arc::default();
        if shelf.disk.stat(&shelf.dir)?.is_some() {
            let held = shelf.disk.lock(&shelf.dir.join(LOCK), clock.as_ref())?;
            *lock.lock().unwrap_or_else(PoisonError::into_inner) = Some(held);
        }
        let recovered = recover(&shelf, options.recovery, &mut |progress| options.recovery_observer.call(progress))?;
        let log = recovered.log.unwrap_or_else(|| LogId(ids.run_id().0));
        let sink = SegmentSink {
            shelf: Arc::clone(&shelf),
            options: options.clone(),
            clock: Arc::clone(&clock),
            ids: Arc::new(ids),
            lock: Arc::clone(&lock),
            log,
            next_segment: recovered.next_segment,
            durable: recovered.next_lsn.previous(),
            current: None,
            watermark: None,
            sync_failed: false,
            has_reserve: recovered.has_reserve,
            has_folder: false,
            stage: Vec::new(),
        };
        let group = Group::new(sink, recovered.next_lsn, Arc::clone(&clock), options.longest_gather);
        let interval = if let Durability::Interval(ms) = options.durability { Some(ms) } else { None };
        let inner = Arc::new(Inner {
            group,
            shelf,
            log,
            queue: Budget::new(options.queue_bytes).lease(0, QUEUE)?,
            shared: options.memory.as_ref().map(|share| share.budget().lease(0, QUEUE)).transpose()?,
            options,
            clock,
            lock,
            recovery: recovered.report,
            closing: AtomicBool::new(false),
            wake: Default::default(),
            cleaning: Mutex::default(),
        });
        let syncer = interval.map(|ms| start_syncer(&inner, Duration::from_millis(ms))).transpose()?;
        Ok(Self { inner, syncer: Mutex::new(syncer), cleaners: Mutex::default() })
    }

    /// The log's id.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.inner.log
    }

    /// What opening found and did.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    /// Makes everything written so far durable; returns the durable LSN.
    ///
    /// # Errors
    /// Where the sync failed: the records since the last one may be lost.
    pub fn sync(&self) -> Result<Lsn> {
        self.inner.submit_nothing(Need::Durable).map(|()| self.inner.group.durable())
    }

    /// The newest LSN that the log has given to the system.
    #[must_use]
    pub fn written_lsn(&self) -> Lsn {
        self.inner.group.written()
    }

    /// Reads one record into `buffer`, whose memory is used again; the payload is what it holds afterwards.
    ///
    /// # Errors
    /// As [`read`](WriteAheadLog::read).
    pub fn read_into(&self, handle: &RecordHandle, buffer: &mut Vec<u8>) -> Result<()> {
        let payload = self.inner.read(handle)?;
        buffer.clear();
        buffer.extend_from_slice(&payload);
        Ok(())
    }

    fn clean_where(&self, wait: Wait, is_over: impl Fn(&Segment) -> bool + Send + 'static) -> Result<Cleaned> {
        let inner = Arc::clone(&self.inner);
        if wait == Wait::ForIt {
            return inner.clean(is_over);
        }
        let cleaner = std::thread::Builder::new().name("wal-clean".into()).spawn(move || {
            if let Err(error) = inner.clean(is_over) {
                tracing::warn!(%error, "the log could not be cleaned; the next clean tries again");
            }
        });
        let cleaner = cleaner.map_err(|error| Error::io(&self.inner.shelf.dir, "start a thread", error))?;
        let mut cleaners = self.cleaners.lock().unwrap_or_else(PoisonError::into_inner);
        cleaners.retain(|thread| !thread.is_finished());
        cleaners.push(cleaner);
        Ok(Cleaned::default())
    }

    fn join(&self) {
        self.inner.closing.store(true, Ordering::Release);
        drop(self.inner.wake.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.inner.wake.1.notify_all();
        let syncer = self.syncer.lock().unwrap_or_else(PoisonError::into_inner).take();
        let cleaners = std::mem::take(&mut *self.cleaners.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in syncer.into_iter().chain(cleaners) {
            if thread.join().is_err() {
                tracing::error!("a thread of the log has panicked");
            }
        }
    }
}

impl WriteAheadLog for FileLog {
    fn write_with(&self, records: &[NewRecord<'_>], options: &WriteOptions) -> Result<Vec<RecordHandle>> {
        let written = self.inner.write_all(records, options)?;
        Ok(written)
    }

    fn write(&self, record: &[u8], time_ms: u64) -> Result<RecordHandle> {
        let record = NewRecord::new(record, time_ms);
        self.inner.write_one(&record, &WriteOptions::default())
    }

    fn read(&self, handle: &RecordHandle) -> Result<Bytes> {
        self.inner.read(handle)
    }

    fn read_from(&self, lsn: Lsn) -> Result<Box<dyn Records>> {
        let inner = &self.inner;
        let (mode, threads) = (inner.options.recovery, inner.options.read_threads);
        Ok(Box::new(Replay::new(Arc::clone(&inner.shelf), inner.log, mode, lsn, threads, || inner.flush())?))
    }

    fn clean(&self, threshold_ms: u64, wait: Wait) -> Result<Cleaned> {
        self.clean_where(wait, move |segment| segment.max_time_ms() < threshold_ms)
    }

    fn clean_below(&self, lsn: Lsn) -> Result<Cleaned> {
        self.clean_where(Wait::ForIt, move |segment| segment.last() < lsn)
    }

    fn durable_lsn(&self) -> Lsn {
        self.inner.group.durable()
    }

    fn close(&self) -> Result<()> {
        self.join();
        let ended = self.inner.group.close(SegmentSink::end);
        *self.inner.lock.lock().unwrap_or_else(PoisonError::into_inner) = None;
        ended
    }
}

impl Drop for FileLog {
    fn drop(&mut self) {
        self.join();
    }
}

impl Inner {
    fn need(&self, options: &WriteOptions) -> Need {
        match options.durability.unwrap_or(self.options.durability) {
            Durability::Each => Need::OwnSync,
            Durability::Group => Need::Durable,
            Durability::Interval(_) | Durability::None => Need::Written,
        }
    }

    fn write_one(&self, record: &NewRecord<'_>, options: &WriteOptions) -> Result<RecordHandle> {
        check(record)?;
        let pending = [Pending::new(record, self.options.codec)?];
        let [one] = &pending;
        let (length, crc) = (one.payload.len(), one.crc);
        let need = self.need(options);
        let deadline = self.deadline(options.timeout);
        let written = match self.write_or_reserve(&pending, need, deadline)? {
            Reserved::Written(written) => written,
            Reserved::Room(room) => {
                let [one] = pending;
                self.group.enqueue([one.into_owned(Some(room))], need, Some(deadline))?
            }
        };
        Ok(written.placement.handle(written.before, written.first, length, crc))
    }

    fn write_all(&self, records: &[NewRecord<'_>], options: &WriteOptions) -> Result<Vec<RecordHandle>> {
        let mut pending = Vec::with_capacity(records.len());
        for record in records {
            check(record)?;
            pending.push(Pending::new(record, self.options.codec)?);
        }
        if pending.is_empty() {
            return Ok(Vec::new());
        }
        let sizes: Vec<(usize, u32)> = pending.iter().map(|one| (one.payload.len(), one.crc)).collect();
        let need = self.need(options);
        let deadline = self.deadline(options.timeout);
        let written = match self.write_or_reserve(&pending, need, deadline)? {
            Reserved::Written(written) => written,
            Reserved::Room(room) => {
                let mut room = Some(room); // the first one holds it for all
                let owned: Vec<_> = pending.into_iter().map(|one| one.into_owned(room.take())).collect();
                self.group.enqueue(owned, need, Some(deadline))?
            }
        };
        let (mut before, mut lsn) = (written.before, written.first);
        let mut handles = Vec::with_capacity(sizes.len());
        for (length, crc) in sizes {
            handles.push(written.placement.handle(before, lsn, length, crc));
            before += (FRAME_HEADER_BYTES + length) as u64;
            lsn = lsn.next();
        }
        Ok(handles)
    }

    /// A batch without records, for what it does to those before it.
    fn submit_nothing(&self, need: Need) -> Result<()> {
        let deadline = self.deadline(None);
        if let Reserved::Room(_) = self.write_or_reserve(&[], need, deadline)? {
            self.group.enqueue([], need, Some(deadline))?;
        }
        Ok(())
    }

    fn deadline(&self, timeout: Option<Duration>) -> Duration {
        self.clock.elapsed().saturating_add(timeout.unwrap_or(self.options.write_timeout))
    }

    fn room(&self, bytes: u64) -> Result<Room> {
        let own = self.queue.part(bytes)?;
        Ok(Room { _own: own, _shared: self.shared.as_ref().map(|row| row.part(bytes)).transpose()? })
    }

    /// Writes the records where nobody else is writing; else waits until there is memory for them in the queue.
    fn write_or_reserve(&self, pending: &[Pending<'_>], need: Need, deadline: Duration) -> Result<Reserved> {
        let bytes: u64 = pending.iter().map(Pending::frame_bytes).sum();
        let mut hurried = false;
        loop {
            // Written alone, records need no memory: so the largest one gets its turn, once there was none for it.
            if let Some(written) = self.group.try_alone_before(pending, need, hurried) {
                return written.map(Reserved::Written);
            }
            let refused = match self.room(bytes) {
                Ok(room) => return Ok(Reserved::Room(room)),
                Err(refused) => refused,
            };
            if std::mem::replace(&mut hurried, true) {
                let left = deadline.saturating_sub(self.clock.elapsed());
                if left.is_zero() {
                    return Err(refused.context("the log's queue stayed full until the deadline; nothing was written"));
                }
                self.group.wait_for_change(left.min(MEMORY_LOOK));
            }
        }
    }

    fn flush(&self) -> Result<()> {
        if self.options.gather_bytes > 0 && !self.closing.load(Ordering::Acquire) {
            self.submit_nothing(Need::Written)?;
        }
        Ok(())
    }

    fn read(&self, handle: &RecordHandle) -> Result<Bytes> {
        let segment = match self.shelf.get(handle.segment) {
            Some(segment) if handle.log == self.log => segment,
            _ => return Err(self.stale(handle, "its segment was cleaned, or never was in this log")),
        };
        let size = FRAME_HEADER_BYTES + handle.length as usize;
        let end = handle.offset.checked_add(size as u64);
        if end.is_none_or(|end| end > segment.end()) || handle.length as usize > MAX_RECORD_BYTES {
            return Err(self.stale(handle, "its segment ends before it"));
        }
        if self.options.gather_bytes > 0 {
            self.flush()?;
        }
        let opened = self.shelf.open(&segment);
        let Some(file) = self.shelf.unless_given_up(&segment, opened)? else {
            return Err(self.stale(handle, "its segment is being cleaned"));
        };
        let mut bytes = Vec::new();
        file.read_new_at(&mut bytes, size, handle.offset)?;
        let header = bytes.first_chunk().and_then(|header| FrameHeader::decode(header, segment.header.salt));
        let Some(header) = header else {
            return Err(Error::corrupt(&*segment.path, handle.offset, "the header of a record", "something else")
                .context(format!("record {} of the log", handle.lsn)));
        };
        if !matches!(header.kind, FrameKind::Record(_))
            || (header.lsn, header.length, header.payload_crc) != (handle.lsn, handle.length, handle.crc)
        {
            return Err(self.stale(handle, "another record lies there"));
        }
        let payload = bytes.get(FRAME_HEADER_BYTES..).unwrap_or_default();
        let crc = crc32(payload);
        if crc != handle.crc {
            let (expected, found) = (format!("the payload's checksum {:08x}", handle.crc), format!("{crc:08x}"));
            return Err(Error::corrupt(&*segment.path, handle.offset, expected, found)
                .context(format!("record {} of the log", handle.lsn)));
        }
        if header.codec != RecordCodec::None {
            return expand(header.codec, &segment.path, handle.offset, payload).map(Bytes::from);
        }
        Ok(Bytes::from(bytes).without_front(FRAME_HEADER_BYTES))
    }

    fn stale(&self, handle: &RecordHandle, why: &str) -> Error {
        let path = self.shelf.dir.join(format!("log-*-{:020}", handle.segment));
        Error::new(ErrorKind::NotFound { path }, format!("the handle of record {} is stale: {why}", handle.lsn))
    }

    fn clean(&self, is_over: impl Fn(&Segment) -> bool) -> Result<Cleaned> {
        let _one_at_a_time = self.cleaning.lock().unwrap_or_else(PoisonError::into_inner);
        cleaner::clean(&self.shelf, self.options.recycles, is_over)
    }
}

fn check(record: &NewRecord<'_>) -> Result<()> {
    if record.payload.len() <= MAX_RECORD_BYTES {
        return Ok(());
    }
    let (limit, found) = (MAX_RECORD_BYTES as u64, record.payload.len() as u64);
    Err(Error::new(ErrorKind::LimitExceeded { limit, found }, "the record is too large for the log"))
}

fn start_syncer(inner: &Arc<Inner>, interval: Duration) -> Result<JoinHandle<()>> {
    let inner_of_thread = Arc::clone(inner);
    let thread = std::thread::Builder::new().name("wal-sync".into()).spawn(move || {
        let inner = inner_of_thread;
        let mut guard = inner.wake.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !inner.closing.load(Ordering::Acquire) {
            let waited = inner.wake.1.wait_timeout(guard, interval);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
            if inner.group.written() > inner.group.durable()
                && let Err(error) = inner.submit_nothing(Need::Durable)
            {
                tracing::error!(%error, "the log could not be synced");
            }
        }
    });
    thread.map_err(|error| Error::io(&inner.shelf.dir, "start a thread", error))
}

/// Reads a segment's bytes as recovery does, for the fuzzer: nothing may panic or grow beyond what the bytes justify.
#[cfg(any(test, feature = "conformance"))]
#[doc(hidden)]
pub fn read_untrusted(disk: &Arc<dyn Disk>, dir: &std::path::Path) -> u64 {
    let mut records = 0;
    for mode in [super::RecoveryMode::Strict, super::RecoveryMode::PointInTime, super::RecoveryMode::Salvage] {
        let options = LogOptions { recovery: mode, ..LogOptions::default() };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let Ok(log) = FileLog::open_on(Arc::clone(disk), dir, options, clock, IdSource::seeded(1)) else { continue };
        let Ok(mut reader) = log.read_all() else { continue };
        while let Ok(Some(record)) = reader.next_record() {
            records += 1;
            drop(log.read(&record.handle));
        }
    }
    records
}
