//! [`BatchedLog`]: makes one record of what several threads write at once, for logs that know no group commit.
//!
//! As in the field, the records of a batch are sorted by time, the batch has the time of its newest record (so that cleaning takes no newer one
//! with it), all its writers get the same handle, and none can be read by it. A [`FileLog`](super::FileLog) needs no such help; over it,
//! batching saves the frame of each small record.

use std::borrow::Cow;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::contract::{Cleaned, Records, Skipped, WriteAheadLog};
use super::format::MAX_RECORD_BYTES;
use super::group::{Attempt, Failed, Group, Need, Sink};
use super::options::{Wait, WriteOptions};
use super::progress::Progress;
use super::record::{Lsn, NewRecord, Record, RecordHandle, RecordKind};
use crate::bytes::Bytes;
use crate::clock::{Clock, SystemClock};
use crate::codec::{Put, Reader};
use crate::error::{Error, ErrorKind, Result};

/// Bytes in front of each record of a batch.
const ITEM_BYTES: usize = 14;
/// Bytes in front of all of them.
const COUNT_BYTES: usize = 4;

/// A log that gathers what is written at once into one record of another log.
pub struct BatchedLog {
    group: Group<Gathered>,
    inner: Arc<dyn WriteAheadLog>,
    clock: Arc<dyn Clock>,
    timeout: Duration,
}

impl BatchedLog {
    /// Batches in front of `inner`; a write waits for at most `timeout`.
    #[must_use]
    pub fn new(inner: Arc<dyn WriteAheadLog>, timeout: Duration) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let sink = Gathered { inner: Arc::clone(&inner) };
        Self { group: Group::new(sink, Lsn::FIRST, Arc::clone(&clock), Duration::ZERO), inner, clock, timeout }
    }
}

/// A record that waits for its batch.
struct Item<'a> {
    time_ms: u64,
    stream: u16,
    payload: Cow<'a, [u8]>,
}

struct Gathered {
    inner: Arc<dyn WriteAheadLog>,
}

impl Sink for Gathered {
    type Record<'a> = Item<'a>;
    type Placement = Option<RecordHandle>;

    fn bytes(record: &Item<'_>) -> u64 {
        (ITEM_BYTES + record.payload.len()) as u64
    }

    fn write(&mut self, _: Lsn, records: &[Item<'_>]) -> Attempt<Option<RecordHandle>> {
        let mut sorted: Vec<&Item<'_>> = records.iter().collect();
        sorted.sort_by_key(|item| item.time_ms);
        let Some(newest) = sorted.last() else { return Ok(None) };
        let packed;
        let (payload, kind) = match sorted.as_slice() {
            // Too large to be packed, but not for the log.
            [alone] if packed_bytes(1, alone.payload.len()) > MAX_RECORD_BYTES => (&*alone.payload, RecordKind::Plain),
            _ => {
                packed = encode(&sorted);
                (packed.as_slice(), RecordKind::Batch)
            }
        };
        let batch = NewRecord { payload, time_ms: newest.time_ms, stream: newest.stream, kind };
        let written = self.inner.write_with(&[batch], &WriteOptions::default()).map_err(Failed::once)?;
        Ok(written.into_iter().next())
    }

    fn sync(&mut self, _: Lsn, _: &[Item<'_>]) -> Attempt<Option<Option<RecordHandle>>> {
        Ok(None)
    }
}

/// Bytes of a batch of so many records.
fn packed_bytes(records: usize, payload_bytes: usize) -> usize {
    COUNT_BYTES.saturating_add(records.saturating_mul(ITEM_BYTES)).saturating_add(payload_bytes)
}

fn encode(items: &[&Item<'_>]) -> Vec<u8> {
    let payload_bytes = items.iter().map(|item| item.payload.len()).sum();
    let mut out = Vec::with_capacity(packed_bytes(items.len(), payload_bytes));
    out.put_u32(u32::try_from(items.len()).unwrap_or(u32::MAX));
    for item in items {
        out.put_u64(item.time_ms);
        out.put_u16(item.stream);
        out.put_u32(u32::try_from(item.payload.len()).unwrap_or(u32::MAX));
        out.extend_from_slice(&item.payload);
    }
    out
}

impl WriteAheadLog for BatchedLog {
    /// How durable the batch is, the other log decides. All handles are the batch's. A record may have as many bytes as in the other log;
    /// several that are written at once become one record of it, with 4 bytes and 14 for each added.
    fn write_with(&self, records: &[NewRecord<'_>], options: &WriteOptions) -> Result<Vec<RecordHandle>> {
        if records.is_empty() {
            return Ok(Vec::new());
        }
        check(records)?;
        let item = |record: &NewRecord<'_>, payload: Cow<'static, [u8]>| Item {
            time_ms: record.time_ms,
            stream: record.stream,
            payload,
        };
        let borrowed: Vec<Item<'_>> = records
            .iter()
            .map(|record| Item {
                time_ms: record.time_ms,
                stream: record.stream,
                payload: Cow::Borrowed(record.payload),
            })
            .collect();
        let written = if let Some(written) = self.group.try_alone(&borrowed, Need::Written) {
            written?
        } else {
            let owned: Vec<_> =
                records.iter().map(|record| item(record, Cow::Owned(record.payload.to_vec()))).collect();
            let deadline = self.clock.elapsed().saturating_add(options.timeout.unwrap_or(self.timeout));
            self.group.enqueue(owned, Need::Written, Some(deadline)).map_err(|error| self.not_yet(error))?
        };
        let handle = written.placement.ok_or_else(|| Error::invalid("the log gave no handle for the batch"))?;
        Ok(vec![handle; records.len()])
    }

    /// Always `Unsupported`: the handle is the whole batch's.
    fn read(&self, _: &RecordHandle) -> Result<Bytes> {
        Err(Error::new(ErrorKind::Unsupported, "a record of a batched log cannot be read by its handle"))
    }

    /// The records of the batches, each with its batch's LSN and handle; records that were written without batching as they are.
    fn read_from(&self, lsn: Lsn) -> Result<Box<dyn Records>> {
        Ok(Box::new(Unpacked { inner: self.inner.read_from(lsn)?, batch: None, record: None, records: 0 }))
    }

    fn clean(&self, threshold_ms: u64, wait: Wait) -> Result<Cleaned> {
        self.inner.clean(threshold_ms, wait)
    }

    fn clean_below(&self, lsn: Lsn) -> Result<Cleaned> {
        self.inner.clean_below(lsn)
    }

    fn durable_lsn(&self) -> Lsn {
        self.inner.durable_lsn()
    }

    fn close(&self) -> Result<()> {
        self.group.close(|sink| sink.inner.close())
    }
}

impl BatchedLog {
    /// The LSN of a batch is not known before it is written; it is at least the one after what is durable.
    fn not_yet(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Unknown { .. } => {
                let lsn = self.inner.durable_lsn().next().0;
                Error::new(
                    ErrorKind::Unknown { lsn },
                    "the deadline came before the batch was written; its LSN is at least this",
                )
            }
            _ => error,
        }
    }
}

/// Refuses what the other log would not take.
fn check(records: &[NewRecord<'_>]) -> Result<()> {
    let payload_bytes = records.iter().fold(0_usize, |sum, record| sum.saturating_add(record.payload.len()));
    let found = if records.len() == 1 { payload_bytes } else { packed_bytes(records.len(), payload_bytes) };
    if found <= MAX_RECORD_BYTES {
        return Ok(());
    }
    let kind = ErrorKind::LimitExceeded { limit: MAX_RECORD_BYTES as u64, found: found as u64 };
    Err(Error::new(kind, "the records are too large for one record of the log"))
}

/// The records inside the batches of another log.
struct Unpacked {
    inner: Box<dyn Records>,
    batch: Option<Batch>,
    /// The record that is being shown.
    record: Option<(Head, Vec<u8>)>,
    records: u64,
}

struct Batch {
    head: Head,
    payload: Vec<u8>,
    /// Where the next record starts.
    at: usize,
    left: u32,
}

#[derive(Clone, Copy)]
struct Head {
    lsn: Lsn,
    time_ms: u64,
    stream: u16,
    handle: RecordHandle,
}

impl Unpacked {
    fn advance(&mut self) -> Result<bool> {
        loop {
            if let Some(batch) = self.batch.as_mut().filter(|batch| batch.left > 0) {
                self.record = Some(batch.take()?);
                return Ok(true);
            }
            let Some(record) = self.inner.next_record()? else { return Ok(false) };
            let (lsn, time_ms, stream, handle) = (record.lsn, record.time_ms, record.stream, record.handle);
            let head = Head { lsn, time_ms, stream, handle };
            let payload = record.payload.to_vec();
            if record.kind == RecordKind::Plain {
                self.record = Some((head, payload));
                return Ok(true);
            }
            let mut reader = Reader::new(Path::new("batch"), 0, &payload);
            let left = reader.u32("record count")?;
            self.batch = Some(Batch { head, payload, at: COUNT_BYTES, left });
        }
    }
}

impl Batch {
    fn take(&mut self) -> Result<(Head, Vec<u8>)> {
        let rest = self.payload.get(self.at..).unwrap_or_default();
        let mut reader = Reader::new(Path::new("batch"), self.at as u64, rest);
        let (time_ms, stream) = (reader.u64("time")?, reader.u16("stream")?);
        let length = reader.u32("length")? as usize;
        let payload = reader.take(length, "a record of a batch")?.to_vec();
        self.at += ITEM_BYTES + length;
        self.left -= 1;
        Ok((Head { time_ms, stream, ..self.head }, payload))
    }
}

impl Records for Unpacked {
    fn next_record(&mut self) -> Result<Option<Record<'_>>> {
        if !self.advance()? {
            return Ok(None);
        }
        self.records += 1;
        Ok(self.record.as_ref().map(|(head, payload)| Record {
            lsn: head.lsn,
            time_ms: head.time_ms,
            stream: head.stream,
            kind: RecordKind::Plain,
            handle: head.handle,
            payload,
        }))
    }

    fn progress(&self) -> Progress {
        Progress { records: self.records, ..self.inner.progress() }
    }

    fn skipped(&self) -> &Skipped {
        self.inner.skipped()
    }
}

impl fmt::Debug for BatchedLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchedLog").field("inner", &self.inner).finish_non_exhaustive()
    }
}
