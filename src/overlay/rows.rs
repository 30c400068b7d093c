//! Sorted views of an overlay, which scans hold while writing goes on.

use std::sync::Arc;

use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, KeyRange};
use crate::error::Result;

/// One entry: its key and value side by side.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) bytes: Bytes,
    pub(super) key_length: usize,
    pub(super) is_tombstone: bool,
}

impl Row {
    pub(super) fn key(&self) -> &[u8] {
        self.bytes.get(..self.key_length).unwrap_or_default()
    }

    fn value(&self) -> &[u8] {
        self.bytes.get(self.key_length..).unwrap_or_default()
    }
}

/// Rows in key order, one a key.
pub(super) type SortedRows = Arc<Vec<Row>>;

/// Merges two sorted lists; where both have a key, the newer one's row stays.
pub(super) fn merge(older: &[Row], newer: &[Row]) -> Vec<Row> {
    let mut merged = Vec::with_capacity(older.len() + newer.len());
    let mut older = older.iter().peekable();
    for row in newer {
        while let Some(old) = older.next_if(|old| old.key() < row.key()) {
            merged.push(old.clone());
        }
        older.next_if(|old| old.key() == row.key());
        merged.push(row.clone());
    }
    merged.extend(older.cloned());
    merged
}

/// Walks over one sorted list.
#[derive(Debug)]
pub(super) struct RowCursor {
    rows: SortedRows,
    range: KeyRange,
    /// The place of the row *after* the current one; 0 in front of the first.
    next: usize,
}

impl RowCursor {
    pub(super) fn new(rows: SortedRows, range: KeyRange) -> Self {
        let next = rows.partition_point(|row| row.key() < range.start.as_slice());
        Self { rows, range, next }
    }

    fn row(&self) -> Option<&Row> {
        self.rows.get(self.next.checked_sub(1)?)
    }
}

impl Cursor for RowCursor {
    fn advance(&mut self) -> Result<bool> {
        let more = self.rows.get(self.next).is_some_and(|row| self.range.is_before_end(row.key()));
        self.next += usize::from(more);
        Ok(more)
    }

    fn key(&self) -> &[u8] {
        self.row().map(Row::key).unwrap_or_default()
    }

    fn change(&self) -> Change<&[u8]> {
        match self.row() {
            Some(row) if !row.is_tombstone => Change::Put(row.value()),
            _ => Change::Tombstone,
        }
    }

    fn key_bytes(&self) -> Bytes {
        self.row().and_then(|row| row.bytes.slice(0..row.key_length)).unwrap_or_default()
    }

    fn change_bytes(&self) -> Change<Bytes> {
        match self.row() {
            Some(row) if !row.is_tombstone => {
                Change::Put(row.bytes.slice(row.key_length..row.bytes.len()).unwrap_or_default())
            }
            _ => Change::Tombstone,
        }
    }
}
