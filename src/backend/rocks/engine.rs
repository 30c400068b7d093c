//! [`RocksEngine`]: the verbs of the contract, on RocksDB.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocksdb::{IteratorMode, ReadOptions, WriteBatch};

use super::families::{Db, OpenFailure, Tables};
use super::options::Tuning;
use super::record::version_key;
use super::registry::{Known, Registry, put_generation, put_store};
use super::scan::Scan;
use crate::backend::contract::{
    Coverage, Engine, EngineMemory, GenerationId, GenerationRecord, StoreNumber, VersionRecord, unknown_generation,
};
use crate::backend::options::BackendOptions;
use crate::backend::workdir::WorkDir;
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, KeyRange, StateStoreId, successor};
use crate::error::Result;
use crate::ranges::RangeSet;
use crate::version::{Epoch, Mark, StoreUid, Version, VersionId};

/// The index in RocksDB.
pub(in crate::backend) struct RocksEngine {
    pub(super) db: Arc<Db>,
    /// Guards what generations there are. Small rows are written under it; no delta and no cursor is.
    registry: Mutex<Registry>,
    /// Held by whoever frees disk; the registry may be taken under it.
    pub(super) reclaiming: Mutex<()>,
}

impl RocksEngine {
    /// Opens the index in `dir`. One that is damaged is wiped and begun afresh.
    pub(in crate::backend) fn open(dir: WorkDir, options: &BackendOptions) -> Result<Self> {
        let path = dir.engine_dir();
        if dir.is_condemned() {
            tracing::warn!(path = %path.display(), "the index was found damaged; it begins afresh");
            dir.wipe_engine()?;
        }
        let tuning = Tuning::new(options);
        let attempt = || {
            let tables = Tables::open(&path, &tuning)?;
            let registry = Registry::load(&tables)?;
            Ok((tables, registry))
        };
        let (tables, registry) = match attempt() {
            Err(OpenFailure::Damaged(error)) => {
                tracing::warn!(%error, path = %path.display(), "the index is damaged; it begins afresh");
                dir.wipe_engine()?;
                attempt().map_err(OpenFailure::into_error)?
            }
            other => other.map_err(OpenFailure::into_error)?,
        };
        let db = Arc::new(Db::new(tables, tuning, dir));
        Ok(Self { db, registry: Mutex::new(registry), reclaiming: Mutex::new(()) })
    }

    pub(super) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sum of one of RocksDB's numbers over all column families.
    fn property(&self, name: &str) -> Result<u64> {
        let handles = self.db.handles();
        let mut sum = 0;
        for family in [handles.state, handles.versions, handles.meta] {
            let value = self.db.raw().property_int_value_cf(family, name);
            sum += value.map_err(|error| self.db.failed("ask the index", error))?.unwrap_or(0);
        }
        Ok(sum)
    }
}

impl Engine for RocksEngine {
    fn store(&self, uid: StoreUid, id: &StateStoreId) -> Result<StoreNumber> {
        let mut registry = self.registry();
        let mut batch = WriteBatch::default();
        let mut gone: Vec<Known> = Vec::new();
        match registry.stores.get(id) {
            Some((known, number)) if *known == uid => return Ok(*number),
            Some((_, other)) => {
                let of_other = registry.generations.values().filter(|known| known.record.id.store == *other);
                gone.extend(of_other.cloned());
                let end = successor(&other.0.to_be_bytes()).unwrap_or_else(|| vec![0xff; 21]);
                batch.delete_range_cf(self.db.handles().versions, other.0.to_be_bytes().to_vec(), end);
            }
            None => {}
        }
        let number = registry.next_store();
        registry.put_numbers(&self.db, &mut batch);
        put_store(&self.db, &mut batch, id, uid, number);
        self.forget_all(&mut batch, &gone);
        self.db.write(batch)?;
        registry.stores.insert(id.clone(), (uid, number));
        for known in gone {
            registry.generations.remove(&known.record.id);
            registry.dropped.insert(known.record.id);
        }
        Ok(number)
    }

    fn generations(&self, store: StoreNumber) -> Result<Vec<GenerationRecord>> {
        let registry = self.registry();
        let of_store = registry.generations.values().filter(|known| known.record.id.store == store);
        Ok(of_store.map(|known| known.record.clone()).collect()) // a handful
    }

    fn create_generation(&self, store: StoreNumber, from: Mark, coverage: Coverage) -> Result<GenerationRecord> {
        let mut registry = self.registry();
        let id = registry.next_generation(store);
        let record = GenerationRecord { id, from, applied: from, coverage, torn: None };
        let mut batch = WriteBatch::default();
        registry.put_numbers(&self.db, &mut batch);
        put_generation(&self.db, &mut batch, &record);
        self.db.write(batch)?;
        registry.generations.insert(id, Known { record: record.clone(), ranges: Arc::default() });
        Ok(record)
    }

    fn apply(
        &self,
        generation: GenerationId,
        ranges: &RangeSet,
        changes: &mut dyn Cursor,
        applied: Mark,
        version: Option<&VersionRecord>,
    ) -> Result<()> {
        self.apply_delta(generation, ranges, changes, applied, version)
    }

    fn get(&self, generation: GenerationId, full_key: &[u8]) -> Result<Option<Change<Bytes>>> {
        self.db.get(generation, full_key)
    }

    fn cursor(&self, generation: GenerationId, range: &KeyRange) -> Result<Box<dyn Cursor>> {
        Ok(Box::new(Scan::new(Arc::clone(&self.db), generation, range)))
    }

    fn ranges(&self, generation: GenerationId) -> Result<RangeSet> {
        Ok(RangeSet::clone(&self.registry().generation(generation)?.ranges))
    }

    fn ingest(
        &self,
        store: StoreNumber,
        state: &mut dyn Cursor,
        applied: Mark,
        observer: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<GenerationRecord> {
        self.ingest_state(store, state, applied, observer)
    }

    fn drop_generation(&self, generation: GenerationId) -> Result<()> {
        let mut registry = self.registry();
        let known = registry.generations.get(&generation).ok_or_else(|| unknown_generation(generation))?;
        let mut batch = WriteBatch::default();
        self.forget_all(&mut batch, std::slice::from_ref(known));
        self.db.write(batch)?;
        registry.generations.remove(&generation);
        registry.dropped.insert(generation);
        Ok(())
    }

    fn reclaim(&self) -> Result<()> {
        self.free_dropped()
    }

    fn put_version(&self, store: StoreNumber, version: &VersionRecord) -> Result<()> {
        let mut batch = WriteBatch::default();
        self.db.put_version(&mut batch, store, version);
        self.db.write(batch)
    }

    fn versions(&self, store: StoreNumber, see: &mut dyn FnMut(VersionRecord) -> Result<()>) -> Result<()> {
        let mut read = ReadOptions::default();
        read.set_iterate_lower_bound(store.0.to_be_bytes());
        if let Some(end) = successor(&store.0.to_be_bytes()) {
            read.set_iterate_upper_bound(end);
        }
        let mut rows = self.db.raw().iterator_cf_opt(self.db.handles().versions, read, IteratorMode::Start);
        rows.try_for_each(|row| {
            let (_, value) = row.map_err(|error| self.db.failed("read version records", error))?;
            see(VersionRecord::decode(&value)?)
        })
    }

    fn forget_versions(&self, store: StoreNumber, below: Version, over: &dyn Fn(VersionId) -> bool) -> Result<()> {
        let start = version_key(store, VersionId::ROOT);
        let end = version_key(store, VersionId::new(below, Epoch::NONE));
        let mut batch = WriteBatch::default();
        batch.delete_range_cf(self.db.handles().versions, start, end);
        self.versions(store, &mut |record| {
            if record.at.at.version >= below && over(record.at.at) {
                batch.delete_cf(self.db.handles().versions, version_key(store, record.at.at));
            }
            Ok(())
        })?;
        self.db.write(batch)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()
    }

    fn memory(&self) -> EngineMemory {
        EngineMemory {
            block_cache_bytes: self.db.cache.get_usage() as u64,
            pinned_bytes: self.db.cache.get_pinned_usage() as u64,
            memtables_bytes: self.db.memtables.get_usage() as u64,
            table_readers_bytes: self.property("rocksdb.estimate-table-readers-mem").unwrap_or(0),
            forced_flushes: self.db.forced_flushes.load(Ordering::Relaxed),
        }
    }

    fn disk_bytes(&self) -> Result<u64> {
        self.property("rocksdb.total-sst-files-size")
    }
}

impl fmt::Debug for RocksEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksEngine").field("path", &self.db.raw().path()).finish_non_exhaustive()
    }
}
