//! What the tests of this folder share: cursors over slices, marks, and engines that can be closed and opened again.

use std::sync::Arc;

use super::contract::Engine;
use super::handle::{Backend, Places};
use super::memory::MemoryEngine;
use super::worker::Worker;
use crate::backend::BackendOptions;
use crate::entry::{Change, Cursor, StateStoreId};
use crate::error::{Error, Result};
use crate::version::{Epoch, Mark, RunId, StoreUid, Version, VersionId};

pub(super) const UID: StoreUid = StoreUid([7; 16]);

pub(super) fn id(name: &str) -> StateStoreId {
    StateStoreId::new("operator", 3, name).unwrap()
}

pub(super) fn mark(version: u64) -> Mark {
    let tip = RunId([u8::try_from(version % 251).unwrap() + 1; 16]);
    Mark { at: VersionId::new(Version(version), Epoch(1)), tip }
}

pub(super) type Row = (Vec<u8>, Option<Vec<u8>>);

pub(super) fn put(key: &[u8], value: &[u8]) -> Row {
    (key.to_vec(), Some(value.to_vec()))
}

pub(super) fn gone(key: &[u8]) -> Row {
    (key.to_vec(), None)
}

/// A cursor over sorted rows, which can be made to fail at the end.
pub(super) struct Rows {
    all: Vec<Row>,
    next: usize,
    fails: bool,
}

impl Rows {
    pub(super) fn new(rows: impl IntoIterator<Item = Row>) -> Self {
        let rows: Vec<Row> = rows.into_iter().collect();
        assert!(rows.is_sorted_by(|a, b| a.0 < b.0), "a cursor is sorted");
        Self { all: rows, next: 0, fails: false }
    }

    pub(super) fn failing_at_the_end(rows: impl IntoIterator<Item = Row>) -> Self {
        Self { fails: true, ..Self::new(rows) }
    }
}

impl Cursor for Rows {
    fn advance(&mut self) -> Result<bool> {
        if self.next == self.all.len() && self.fails {
            return Err(Error::corrupt("planted", 0, "more", "nothing"));
        }
        self.next = (self.next + 1).min(self.all.len() + 1);
        Ok(self.next <= self.all.len())
    }

    fn key(&self) -> &[u8] {
        &self.all[self.next - 1].0
    }

    fn change(&self) -> Change<&[u8]> {
        match &self.all[self.next - 1].1 {
            Some(value) => Change::Put(value),
            None => Change::Tombstone,
        }
    }
}

pub(super) fn rows_of(mut cursor: Box<dyn Cursor>) -> Vec<Row> {
    let mut rows = Vec::new();
    while cursor.advance().unwrap() {
        rows.push((cursor.key().to_vec(), cursor.change().map(<[u8]>::to_vec).into_value()));
        let owned = (cursor.key_bytes().to_vec(), cursor.change_bytes().map(|value| value.to_vec()).into_value());
        assert_eq!(rows.last(), Some(&owned));
    }
    assert!(!cursor.advance().unwrap(), "the end stays the end");
    rows
}

/// An engine of some kind that can be closed and opened again.
pub(super) trait Rig: Sized {
    fn new() -> Self;
    fn engine(&self) -> Arc<dyn Engine>;
    /// Closes the engine properly and opens it again.
    fn reopened(self) -> Self;

    /// A backend over the engine whose background jobs run when they are told to.
    fn backend(&self) -> Backend {
        Backend::assemble(self.engine(), Worker::inline(), BackendOptions::default(), Places::default())
    }
}

pub(super) struct InMemory(Arc<MemoryEngine>);

impl Rig for InMemory {
    fn new() -> Self {
        Self(Arc::default())
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::<MemoryEngine>::clone(&self.0)
    }

    fn reopened(self) -> Self {
        Self(Arc::new(MemoryEngine::from_image(self.0.image())))
    }
}

#[cfg(feature = "rocksdb")]
pub(super) struct InRocks {
    pub(super) engine: Arc<super::rocks::RocksEngine>,
    pub(super) dir: tempfile::TempDir,
}

#[cfg(feature = "rocksdb")]
impl InRocks {
    pub(super) fn open(dir: tempfile::TempDir) -> Self {
        let claimed = super::workdir::WorkDir::claim(dir.path(), &crate::clock::SystemClock::new()).unwrap();
        let options = BackendOptions::default().memory_limit(8 << 20);
        Self { engine: Arc::new(super::rocks::RocksEngine::open(claimed, &options).unwrap()), dir }
    }
}

#[cfg(feature = "rocksdb")]
impl Rig for InRocks {
    fn new() -> Self {
        Self::open(tempfile::tempdir().unwrap())
    }

    fn engine(&self) -> Arc<dyn Engine> {
        Arc::<super::rocks::RocksEngine>::clone(&self.engine)
    }

    fn reopened(self) -> Self {
        let Self { engine, dir } = self;
        assert_eq!(Arc::strong_count(&engine), 1, "somebody still holds the engine");
        drop(engine);
        Self::open(dir)
    }
}
