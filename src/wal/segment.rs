//! The segments of a log as its readers see them.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::format::{SEGMENT_HEADER_BYTES, Seal, SegmentHeader};
use super::name::{SegmentName, Side};
use super::planted::Planted;
use super::record::Lsn;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{Disk, ReadFile};

/// Segments whose files are kept open for reading; those opened longest ago are closed first.
const OPEN_FILES: usize = 64;

/// One segment, being written or not.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) name: SegmentName,
    pub(super) path: Arc<Path>,
    pub(super) header: SegmentHeader,
    /// Where its frames end that may be read. Stored after the bytes are with the system (or held to be given to it).
    end: AtomicU64,
    last: AtomicU64,
    records: AtomicU64,
    payload_bytes: AtomicU64,
    min_time_ms: AtomicU64,
    max_time_ms: AtomicU64,
    sealed: AtomicBool,
    /// Guards the open file only. Readers take it for reading and clone.
    file: RwLock<Option<Arc<dyn ReadFile>>>,
}

impl Segment {
    /// A segment without records.
    pub(super) fn new(path: PathBuf, name: SegmentName, header: SegmentHeader) -> Self {
        Self {
            name,
            path: path.into(),
            header,
            end: AtomicU64::new(SEGMENT_HEADER_BYTES as u64),
            last: AtomicU64::new(header.first.previous().0),
            records: AtomicU64::new(0),
            payload_bytes: AtomicU64::new(0),
            min_time_ms: AtomicU64::new(u64::MAX),
            max_time_ms: AtomicU64::new(0),
            sealed: AtomicBool::new(false),
            file: RwLock::default(),
        }
    }

    pub(super) fn number(&self) -> u64 {
        self.header.segment
    }

    /// The LSN of the last record; one below the first where there is none.
    pub(super) fn last(&self) -> Lsn {
        Lsn(self.last.load(Ordering::Acquire))
    }

    pub(super) fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }

    pub(super) fn max_time_ms(&self) -> u64 {
        self.max_time_ms.load(Ordering::Acquire)
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed.load(Ordering::Acquire)
    }

    pub(super) fn set_sealed(&self) {
        self.sealed.store(true, Ordering::Release);
    }

    /// Takes down that a record was written. Only the one writer calls this.
    pub(super) fn count(&self, lsn: Lsn, time_ms: u64, payload_bytes: u64) {
        self.records.fetch_add(1, Ordering::Relaxed);
        self.payload_bytes.fetch_add(payload_bytes, Ordering::Relaxed);
        self.min_time_ms.fetch_min(time_ms, Ordering::Relaxed);
        self.max_time_ms.fetch_max(time_ms, Ordering::Release);
        self.last.store(lsn.0, Ordering::Release);
    }

    pub(super) fn set_end(&self, end: u64) {
        self.end.store(end, Ordering::Release);
    }

    /// What a seal would say now, without the index.
    pub(super) fn summary(&self, durable: Lsn) -> Seal {
        let records = self.records.load(Ordering::Acquire);
        Seal {
            records,
            first: self.header.first,
            last: self.last(),
            min_time_ms: if records == 0 { 0 } else { self.min_time_ms.load(Ordering::Acquire) },
            max_time_ms: self.max_time_ms(),
            durable,
            payload_bytes: self.payload_bytes.load(Ordering::Acquire),
            index: Vec::new(),
        }
    }

    /// Takes over what a seal or a scan says.
    pub(super) fn adopt(&self, seal: &Seal, end: u64, sealed: bool) {
        self.records.store(seal.records, Ordering::Release);
        self.payload_bytes.store(seal.payload_bytes, Ordering::Release);
        self.min_time_ms.store(if seal.records == 0 { u64::MAX } else { seal.min_time_ms }, Ordering::Release);
        self.max_time_ms.store(seal.max_time_ms, Ordering::Release);
        self.last.store(seal.last.0, Ordering::Release);
        self.end.store(end, Ordering::Release);
        self.sealed.store(sealed, Ordering::Release);
    }

    fn opened(&self) -> Option<Arc<dyn ReadFile>> {
        self.file.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, file: Option<Arc<dyn ReadFile>>) {
        *self.file.write().unwrap_or_else(PoisonError::into_inner) = file;
    }
}

/// All segments of a log that may be read, and those that wait to be deleted.
#[derive(Debug)]
pub(super) struct Shelf {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) dir: PathBuf,
    pub(super) planted: Planted,
    /// Guards the map only; readers clone out of it. Written when a segment comes or goes.
    segments: RwLock<BTreeMap<u64, Arc<Segment>>>,
    /// Files that belong to no segment of the map any more. Nothing is taken under it.
    condemned: Mutex<Vec<PathBuf>>,
    /// Files of cleaned segments that may be written over: those that this very log has cleaned. One that a crash has left may be, under its
    /// new name too, a segment that counts. Nothing is taken under it.
    spares: Mutex<Vec<PathBuf>>,
    /// The segments whose files are open, in the order of opening. `Segment::file` is taken under it.
    open: Mutex<VecDeque<Arc<Segment>>>,
    /// The first record that was found lost in front of all segments, until segments are cleaned: then nobody misses it any more.
    lost_in_front: AtomicU64,
    /// The last one that was found lost behind them.
    lost_behind: AtomicU64,
}

impl Shelf {
    pub(super) fn new(disk: Arc<dyn Disk>, dir: PathBuf, planted: Planted) -> Self {
        Self {
            disk,
            dir,
            planted,
            segments: RwLock::default(),
            condemned: Mutex::default(),
            spares: Mutex::default(),
            open: Mutex::default(),
            lost_in_front: AtomicU64::new(0),
            lost_behind: AtomicU64::new(0),
        }
    }

    /// Takes down what is lost that no segment shows.
    pub(super) fn set_lost(&self, (front, behind): (Lsn, Lsn)) {
        self.lost_in_front.store(front.0, Ordering::Release);
        self.lost_behind.store(behind.0, Ordering::Release);
    }

    /// What is lost that no segment shows. To be asked for after the segments: a clean in between forgets the front.
    pub(super) fn lost(&self) -> (Lsn, Lsn) {
        (Lsn(self.lost_in_front.load(Ordering::Acquire)), Lsn(self.lost_behind.load(Ordering::Acquire)))
    }

    pub(super) fn add(&self, segment: Arc<Segment>) {
        self.segments.write().unwrap_or_else(PoisonError::into_inner).insert(segment.number(), segment);
    }

    /// Takes out all segments below a number, at once: nobody sees a hole. Whoever reads them goes on. Oldest first.
    pub(super) fn remove_below(&self, number: u64) -> Vec<Arc<Segment>> {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        let kept = segments.split_off(&number);
        self.lost_in_front.store(0, Ordering::Release);
        let removed = std::mem::replace(&mut *segments, kept);
        drop(segments);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).retain(|segment| segment.number() >= number);
        removed.into_values().inspect(|segment| segment.keep(None)).collect()
    }

    pub(super) fn get(&self, number: u64) -> Option<Arc<Segment>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    /// All segments, oldest first. As many as the log keeps.
    pub(super) fn all(&self) -> Vec<Arc<Segment>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(super) fn condemn(&self, path: PathBuf) {
        self.condemned.lock().unwrap_or_else(PoisonError::into_inner).push(path);
    }

    pub(super) fn add_spare(&self, path: PathBuf) {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).push(path);
    }

    pub(super) fn take_spare(&self) -> Option<PathBuf> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    pub(super) fn spares(&self) -> usize {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The files that wait to be deleted; they are the caller's now.
    pub(super) fn take_condemned(&self) -> Vec<PathBuf> {
        std::mem::take(&mut self.condemned.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whether a segment was given up: taken out, or (where the shelf was filled beside a writer) below a horizon in the folder.
    pub(super) fn has_given_up(&self, number: u64) -> Result<bool> {
        if self.get(number).is_none() {
            return Ok(true);
        }
        let entries = self.disk.list(&self.dir)?;
        let mut sides = entries.iter().filter_map(|entry| Side::parse(&entry.name));
        Ok(sides.any(|side| matches!(side, Side::Horizon(horizon) if horizon > number)))
    }

    /// What came of opening a segment's file; `None` where there is no file since the segment was given up.
    ///
    /// # Errors
    /// `Missing` where there is no file, and should be one.
    pub(super) fn unless_given_up<T>(&self, segment: &Segment, opened: Result<T>) -> Result<Option<T>> {
        match opened {
            Err(error) if error.is_not_found() => {
                if self.has_given_up(segment.number())? {
                    return Ok(None);
                }
                let kind = ErrorKind::Missing { file: segment.path.to_path_buf() };
                Err(Error::new(kind, "a segment of the log is gone").with_source(error))
            }
            opened => opened.map(Some),
        }
    }

    /// The segment's file, opened once.
    pub(super) fn open(&self, segment: &Arc<Segment>) -> Result<Arc<dyn ReadFile>> {
        if let Some(file) = segment.opened() {
            return Ok(file);
        }
        let file = self.disk.open(&segment.path)?;
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(other) = segment.opened() {
            return Ok(other);
        }
        segment.keep(Some(Arc::clone(&file)));
        open.push_back(Arc::clone(segment));
        if open.len() > OPEN_FILES
            && let Some(oldest) = open.pop_front()
        {
            oldest.keep(None);
        }
        Ok(file)
    }
}
