//! [`SimIndex`]: an index in heap whose every earlier moment a crash test can bring back.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contract::{Coverage, Engine, EngineMemory, GenerationId, GenerationRecord, StoreNumber, VersionRecord};
use super::handle::{Backend, Places};
use super::memory::{MemoryEngine, MemoryImage};
use super::options::BackendOptions;
use super::worker::Worker;
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, KeyRange, StateStoreId};
use crate::error::Result;
use crate::ranges::RangeSet;
use crate::version::{Mark, StoreUid, Version, VersionId};

/// A deterministic index that remembers what it knew after each change. Clones are handles of one index.
///
/// RocksDB without a log comes back from a crash as it was at some earlier moment, all families at the same one; the
/// journal is the list of these moments.
#[derive(Debug, Clone)]
pub struct SimIndex {
    backend: Backend,
    engine: Arc<Journaled>,
}

/// All that an index knew at one moment.
#[derive(Debug, Clone, Default)]
pub struct IndexImage(MemoryImage);

impl SimIndex {
    /// An index that knows what `image` knew; its journal begins with that.
    #[must_use]
    pub fn from_image(image: &IndexImage) -> Self {
        let inner = MemoryEngine::from_image(image.0.clone());
        let engine = Arc::new(Journaled { inner, journal: Mutex::new(vec![image.0.clone()]) });
        let shared: Arc<dyn Engine> = Arc::<Journaled>::clone(&engine);
        let backend = Backend::assemble(shared, Worker::inline(), BackendOptions::default(), Places::default());
        Self { backend, engine }
    }

    /// The backend to open providers with.
    #[must_use]
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    /// What the index knows now.
    #[must_use]
    pub fn image(&self) -> IndexImage {
        IndexImage(self.engine.inner.image())
    }

    /// How many moments the journal holds: at least 1.
    #[must_use]
    pub fn moments(&self) -> usize {
        self.engine.lock().len()
    }

    /// What the index knew at the `number`th moment of the journal, counted from 0.
    #[must_use]
    pub fn moment(&self, number: usize) -> Option<IndexImage> {
        self.engine.lock().get(number).cloned().map(IndexImage)
    }

    /// Runs the background jobs that are queued.
    pub fn run_pending(&self) {
        self.backend.worker().run_pending();
        self.backend.upkeep().run_pending();
        self.backend.worker().run_pending(); // what maintenance has asked for
    }
}

/// Passes everything on and keeps an image after each change.
#[derive(Debug)]
struct Journaled {
    inner: MemoryEngine,
    /// Guards the list; the engine's own lock is taken under it, never the other way round.
    journal: Mutex<Vec<MemoryImage>>,
}

impl Journaled {
    fn lock(&self) -> MutexGuard<'_, Vec<MemoryImage>> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn noted<T>(&self, outcome: Result<T>) -> Result<T> {
        let mut journal = self.lock();
        journal.push(self.inner.image());
        outcome
    }
}

impl Engine for Journaled {
    fn store(&self, uid: StoreUid, id: &StateStoreId) -> Result<StoreNumber> {
        self.noted(self.inner.store(uid, id))
    }

    fn generations(&self, store: StoreNumber) -> Result<Vec<GenerationRecord>> {
        self.inner.generations(store)
    }

    fn create_generation(&self, store: StoreNumber, from: Mark, coverage: Coverage) -> Result<GenerationRecord> {
        self.noted(self.inner.create_generation(store, from, coverage))
    }

    fn apply(
        &self,
        generation: GenerationId,
        ranges: &RangeSet,
        changes: &mut dyn Cursor,
        applied: Mark,
        version: Option<&VersionRecord>,
    ) -> Result<()> {
        self.noted(self.inner.apply(generation, ranges, changes, applied, version))
    }

    fn get(&self, generation: GenerationId, full_key: &[u8]) -> Result<Option<Change<Bytes>>> {
        self.inner.get(generation, full_key)
    }

    fn cursor(&self, generation: GenerationId, range: &KeyRange) -> Result<Box<dyn Cursor>> {
        self.inner.cursor(generation, range)
    }

    fn ranges(&self, generation: GenerationId) -> Result<RangeSet> {
        self.inner.ranges(generation)
    }

    fn ingest(
        &self,
        store: StoreNumber,
        state: &mut dyn Cursor,
        applied: Mark,
        observer: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<GenerationRecord> {
        self.noted(self.inner.ingest(store, state, applied, observer))
    }

    fn drop_generation(&self, generation: GenerationId) -> Result<()> {
        self.noted(self.inner.drop_generation(generation))
    }

    fn reclaim(&self) -> Result<()> {
        self.inner.reclaim()
    }

    fn put_version(&self, store: StoreNumber, version: &VersionRecord) -> Result<()> {
        self.noted(self.inner.put_version(store, version))
    }

    fn versions(&self, store: StoreNumber, see: &mut dyn FnMut(VersionRecord) -> Result<()>) -> Result<()> {
        self.inner.versions(store, see)
    }

    fn forget_versions(&self, store: StoreNumber, below: Version, over: &dyn Fn(VersionId) -> bool) -> Result<()> {
        self.noted(self.inner.forget_versions(store, below, over))
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn memory(&self) -> EngineMemory {
        self.inner.memory()
    }

    fn disk_bytes(&self) -> Result<u64> {
        self.inner.disk_bytes()
    }
}
