//! Records, their numbers, and the handles by which they are read again.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A record's sequence number in its log: the first is 1, each next one is one higher. The order of a log is the order of its LSNs, whatever
/// the records' times say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before the first record.
    pub const NONE: Self = Self(0);
    /// The first record's.
    pub const FIRST: Self = Self(1);

    /// The one after.
    #[must_use]
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// The one before; [`Lsn::NONE`] stays.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    pub(super) fn plus(self, count: u64) -> Self {
        Self(self.0.saturating_add(count))
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// 16 random bytes that name a log for ever; every segment carries them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LogId(pub [u8; 16]);

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogId({self})")
    }
}

/// What a record's payload is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum RecordKind {
    /// What the caller wrote.
    #[default]
    Plain,
    /// Several records in one, as [`BatchedLog`](super::BatchedLog) writes them.
    Batch,
}

/// A record to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewRecord<'a> {
    /// The caller's bytes, at most [`MAX_RECORD_BYTES`](super::MAX_RECORD_BYTES). None are fine.
    pub payload: &'a [u8],
    /// The caller's time in milliseconds since 1970. Decides when a segment is full and when it may be cleaned, never the order.
    pub time_ms: u64,
    /// Whose record it is; the log only keeps it.
    pub stream: u16,
    /// What the payload is.
    pub kind: RecordKind,
}

impl<'a> NewRecord<'a> {
    /// A plain record of stream 0.
    #[must_use]
    pub fn new(payload: &'a [u8], time_ms: u64) -> Self {
        Self { payload, time_ms, stream: 0, kind: RecordKind::Plain }
    }
}

/// A record that was read. Its payload lives in the reader's buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its number.
    pub lsn: Lsn,
    /// The caller's time, as it was written.
    pub time_ms: u64,
    /// Whose record it is.
    pub stream: u16,
    /// What the payload is.
    pub kind: RecordKind,
    /// By which it can be read again.
    pub handle: RecordHandle,
    /// The caller's bytes.
    pub payload: &'a [u8],
}

/// Where one record lies. Good for as long as its segment is not cleaned, restarts included; a stale one is an error, never other bytes.
///
/// A record that was acknowledged before its sync (`Interval`, `None`) is written to another place if that sync fails. Then its handle is stale, and
/// it is found by its LSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecordHandle {
    /// The log.
    pub log: LogId,
    /// The number of the segment.
    pub segment: u64,
    /// Byte offset in the segment of the record's header.
    pub offset: u64,
    /// Bytes that the payload takes in the file, after compression.
    pub length: u32,
    /// CRC-32 of those bytes.
    pub crc: u32,
    /// The record's number.
    pub lsn: Lsn,
}
