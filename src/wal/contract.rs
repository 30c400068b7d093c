//! What a write-ahead log is, whoever keeps it.

use std::fmt::Debug;
use std::path::PathBuf;

use super::options::{Wait, WriteOptions};
use super::progress::Progress;
use super::record::{Lsn, NewRecord, Record, RecordHandle};
use crate::bytes::Bytes;
use crate::error::{Error, Result};

/// A log that takes in records before anyone processes them. Safe to share between threads.
pub trait WriteAheadLog: Send + Sync + Debug {
    /// Writes records one behind the other and waits until they are as durable as asked for. After a crash those that were not acknowledged
    /// are there from the front, each whole.
    ///
    /// # Errors
    /// `LimitExceeded` for a record over the limit; `Unknown` where the deadline came first; `MemoryLimit` where the queue stayed full;
    /// `DiskFull` where nothing was written, and the next write tries again.
    fn write_with(&self, records: &[NewRecord<'_>], options: &WriteOptions) -> Result<Vec<RecordHandle>>;

    /// Writes one record, as [`write_with`](Self::write_with) does; `time_ms` is the caller's, in milliseconds since 1970.
    ///
    /// # Errors
    /// As [`write_with`](Self::write_with).
    fn write(&self, record: &[u8], time_ms: u64) -> Result<RecordHandle> {
        let written = self.write_with(&[NewRecord::new(record, time_ms)], &WriteOptions::default())?;
        written.into_iter().next().ok_or_else(|| Error::invalid("the log gave no handle for the record"))
    }

    /// Writes records one behind the other, as [`write_with`](Self::write_with) does.
    ///
    /// # Errors
    /// As [`write_with`](Self::write_with).
    fn write_batch(&self, records: &[NewRecord<'_>]) -> Result<Vec<RecordHandle>> {
        self.write_with(records, &WriteOptions::default())
    }

    /// Reads one record by its handle.
    ///
    /// # Errors
    /// `NotFound` where the record was cleaned away or is of another log, `Corrupt` where it is damaged, `Missing` where its segment's file is
    /// gone, `Unsupported` where the log cannot.
    fn read(&self, handle: &RecordHandle) -> Result<Bytes>;

    /// Every record, oldest first.
    ///
    /// # Errors
    /// Whatever reading reports.
    fn read_all(&self) -> Result<Box<dyn Records>> {
        self.read_from(Lsn::NONE)
    }

    /// The records from `lsn` on, oldest first; those that were cleaned away are left out.
    ///
    /// # Errors
    /// Whatever reading reports.
    fn read_from(&self, lsn: Lsn) -> Result<Box<dyn Records>>;

    /// Gives up the oldest segments, as long as all their records are older than `threshold_ms`. Never the newest segment.
    ///
    /// # Errors
    /// Where the log could not announce it, nothing is deleted. Files that could not be deleted are in the answer.
    fn clean(&self, threshold_ms: u64, wait: Wait) -> Result<Cleaned>;

    /// Gives up the oldest segments, as long as all their records are below `lsn`. Never the newest segment.
    ///
    /// # Errors
    /// As [`clean`](Self::clean).
    fn clean_below(&self, lsn: Lsn) -> Result<Cleaned>;

    /// Everything up to this LSN is durable.
    fn durable_lsn(&self) -> Lsn;

    /// Ends the log: makes everything durable, and refuses every later write. Closing again does nothing.
    ///
    /// # Errors
    /// Where the end could not be made durable; `Poisoned` where the log had stopped before.
    fn close(&self) -> Result<()>;
}

/// Records being read, oldest first. A record lives until the next call.
pub trait Records: Send {
    /// The next record; `None` at the end.
    ///
    /// # Errors
    /// `Corrupt` at damage, unless the mode skips it; nothing can be read after an error.
    fn next_record(&mut self) -> Result<Option<Record<'_>>>;

    /// How far it is.
    fn progress(&self) -> Progress;

    /// What was skipped so far.
    fn skipped(&self) -> &Skipped;
}

/// What could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Skipped {
    /// Records that are lost.
    pub records: u64,
    /// Of those, how many were never known durable: a power loss may take them.
    pub never_durable: u64,
    /// The first [`MAX_RANGES`](Skipped::MAX_RANGES) ranges of lost LSNs, both ends included.
    pub ranges: Vec<(Lsn, Lsn)>,
}

impl Skipped {
    /// More ranges are counted and not kept.
    pub const MAX_RANGES: usize = 1000;

    /// Adds the records from `first` up to, not including, `end`.
    pub(super) fn add(&mut self, first: Lsn, end: Lsn, was_durable: bool) {
        let count = end.0.saturating_sub(first.0);
        if count == 0 {
            return;
        }
        // Headers that somebody has made up may claim more than there are numbers.
        self.records = self.records.saturating_add(count);
        if !was_durable {
            self.never_durable = self.never_durable.saturating_add(count);
        }
        if let Some((_, last)) = self.ranges.last_mut()
            && last.next() == first
        {
            *last = end.previous();
        } else if self.ranges.len() < Self::MAX_RANGES {
            self.ranges.push((first, end.previous()));
        }
    }
}

/// What a clean-up did.
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Segments given up by this call; also those that could not be deleted yet.
    pub segments: usize,
    /// Files deleted, or kept to be written over.
    pub deleted: usize,
    /// Files that could not be deleted; the next clean tries again.
    pub failed: Vec<(PathBuf, Error)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_records_are_counted_and_their_ranges_merged_and_bounded() {
        let mut skipped = Skipped::default();
        for first in 1..=5 {
            skipped.add(Lsn(first), Lsn(first + 1), true);
        }
        assert_eq!((skipped.records, skipped.ranges.as_slice()), (5, [(Lsn(1), Lsn(5))].as_slice()));
        for first in 5..5000 {
            skipped.add(Lsn(2 * first), Lsn(2 * first + 1), false);
        }
        assert_eq!((skipped.never_durable, skipped.ranges.len()), (4995, Skipped::MAX_RANGES));
        // What hostile headers claim.
        for _ in 0..2 {
            skipped.add(Lsn(1), Lsn(u64::MAX), false);
        }
        assert_eq!(skipped.records, u64::MAX);
    }
}
