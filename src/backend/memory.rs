//! [`MemoryEngine`]: the index as ordered maps in heap, for tests and for builds without RocksDB.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::contract::{
    Coverage, Engine, EngineMemory, GenerationId, GenerationRecord, StoreNumber, VersionRecord, unknown_generation,
};
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, KeyRange, StateStoreId};
use crate::error::{Error, ErrorKind, Result};
use crate::ranges::RangeSet;
use crate::version::{Mark, StoreUid, Version, VersionId};

/// How many bytes of entries pass between two calls of an observer.
const OBSERVED_BYTES: u64 = 4 << 20;

type Entries = BTreeMap<Bytes, Change<Bytes>>;

/// An index in heap. Deterministic, without threads; memory is that of the entries, without a bound.
#[derive(Debug, Default)]
pub(crate) struct MemoryEngine {
    /// Guards everything; nothing of anybody else's is called under it.
    image: Mutex<MemoryImage>,
}

/// All that a [`MemoryEngine`] knows at one moment. A crash test keeps it, brings it back later, or throws it away.
///
/// Cloning is cheap: entries are shared until one side changes them.
#[derive(Debug, Clone, Default)]
pub(crate) struct MemoryImage {
    stores: BTreeMap<StateStoreId, (StoreUid, StoreNumber)>,
    generations: BTreeMap<GenerationId, MemoryGeneration>,
    versions: BTreeMap<(StoreNumber, VersionId), VersionRecord>,
    last_store: u32,
    last_generation: u32,
}

#[derive(Debug, Clone)]
struct MemoryGeneration {
    record: GenerationRecord,
    ranges: RangeSet,
    entries: Arc<Entries>,
}

impl MemoryEngine {
    /// An engine that knows what `image` knew.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn from_image(image: MemoryImage) -> Self {
        Self { image: Mutex::new(image) }
    }

    /// What the engine knows now.
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn image(&self) -> MemoryImage {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, MemoryImage> {
        self.image.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MemoryImage {
    fn generation(&self, id: GenerationId) -> Result<&MemoryGeneration> {
        self.generations.get(&id).ok_or_else(|| unknown_generation(id))
    }

    fn add_generation(&mut self, store: StoreNumber, from: Mark, coverage: Coverage) -> &mut MemoryGeneration {
        self.last_generation += 1;
        let id = GenerationId { store, number: self.last_generation };
        let record = GenerationRecord { id, from, applied: from, coverage, torn: None };
        let empty = MemoryGeneration { record, ranges: RangeSet::default(), entries: Arc::default() };
        self.generations.entry(id).or_insert(empty)
    }
}

impl MemoryGeneration {
    fn apply(&mut self, ranges: &RangeSet, changes: Vec<(Bytes, Change<Bytes>)>) {
        // Copies the map where a cursor or an image still holds it.
        let entries = Arc::make_mut(&mut self.entries);
        for range in ranges.iter() {
            entries.retain(|key, _| !range.contains(key));
        }
        for (key, change) in changes {
            match (change, self.record.coverage) {
                (Change::Tombstone, Coverage::Complete) => entries.remove(&key),
                (change, _) => entries.insert(key, change),
            };
        }
        if !self.record.coverage.is_complete() {
            self.ranges.extend(ranges);
        }
    }
}

impl Engine for MemoryEngine {
    fn store(&self, uid: StoreUid, id: &StateStoreId) -> Result<StoreNumber> {
        let mut image = self.lock();
        match image.stores.get(id) {
            Some((known, number)) if *known == uid => return Ok(*number),
            Some((_, other)) => {
                let other = *other;
                image.generations.retain(|id, _| id.store != other);
                image.versions.retain(|(store, _), _| *store != other);
            }
            None => {}
        }
        image.last_store += 1;
        let number = StoreNumber(image.last_store);
        image.stores.insert(id.clone(), (uid, number));
        Ok(number)
    }

    fn generations(&self, store: StoreNumber) -> Result<Vec<GenerationRecord>> {
        let image = self.lock();
        let of_store = image.generations.values().filter(|generation| generation.record.id.store == store);
        Ok(of_store.map(|generation| generation.record.clone()).collect()) // a handful
    }

    fn create_generation(&self, store: StoreNumber, from: Mark, coverage: Coverage) -> Result<GenerationRecord> {
        Ok(self.lock().add_generation(store, from, coverage).record.clone())
    }

    fn apply(
        &self,
        generation: GenerationId,
        ranges: &RangeSet,
        changes: &mut dyn Cursor,
        applied: Mark,
        version: Option<&VersionRecord>,
    ) -> Result<()> {
        // Read whole before anything is touched: where the cursor fails, nothing has happened.
        let mut read = Vec::new();
        while changes.advance()? {
            read.push((changes.key_bytes(), changes.change_bytes()));
        }
        let mut image = self.lock();
        let target = image.generations.get_mut(&generation).ok_or_else(|| unknown_generation(generation))?;
        target.apply(ranges, read);
        target.record.applied = applied;
        if let Some(version) = version {
            image.versions.insert((generation.store, version.at.at), version.clone());
        }
        Ok(())
    }

    fn get(&self, generation: GenerationId, full_key: &[u8]) -> Result<Option<Change<Bytes>>> {
        Ok(self.lock().generation(generation)?.entries.get(full_key).cloned())
    }

    fn cursor(&self, generation: GenerationId, range: &KeyRange) -> Result<Box<dyn Cursor>> {
        let entries = Arc::clone(&self.lock().generation(generation)?.entries);
        Ok(Box::new(MemoryCursor { entries, range: range.clone(), place: Place::Start }))
    }

    fn ranges(&self, generation: GenerationId) -> Result<RangeSet> {
        Ok(self.lock().generation(generation)?.ranges.clone())
    }

    fn ingest(
        &self,
        store: StoreNumber,
        state: &mut dyn Cursor,
        applied: Mark,
        observer: &dyn Fn(u64) -> ControlFlow<()>,
    ) -> Result<GenerationRecord> {
        let mut entries = Entries::new();
        let (mut total_bytes, mut told_bytes) = (0, 0);
        while state.advance()? {
            let (key, change) = (state.key_bytes(), state.change_bytes());
            let Change::Put(value) = &change else {
                return Err(Error::invalid("a whole state holds no tombstones"));
            };
            total_bytes += (key.len() + value.len()) as u64;
            entries.insert(key, change);
            if total_bytes - told_bytes >= OBSERVED_BYTES {
                told_bytes = total_bytes;
                go_on(observer, total_bytes)?;
            }
        }
        go_on(observer, total_bytes)?;
        let mut image = self.lock();
        let generation = image.add_generation(store, Mark::ROOT, Coverage::Complete);
        generation.record.applied = applied;
        generation.entries = Arc::new(entries);
        Ok(generation.record.clone())
    }

    fn drop_generation(&self, generation: GenerationId) -> Result<()> {
        let gone = self.lock().generations.remove(&generation);
        gone.map(drop).ok_or_else(|| unknown_generation(generation))
    }

    fn reclaim(&self) -> Result<()> {
        Ok(())
    }

    fn put_version(&self, store: StoreNumber, version: &VersionRecord) -> Result<()> {
        self.lock().versions.insert((store, version.at.at), version.clone());
        Ok(())
    }

    fn versions(&self, store: StoreNumber, see: &mut dyn FnMut(VersionRecord) -> Result<()>) -> Result<()> {
        let image = self.lock();
        let mut of_store = image.versions.iter().filter(|((owner, _), _)| *owner == store);
        of_store.try_for_each(|(_, record)| see(record.clone()))
    }

    fn forget_versions(&self, store: StoreNumber, below: Version, over: &dyn Fn(VersionId) -> bool) -> Result<()> {
        self.lock().versions.retain(|(owner, at), _| *owner != store || (at.version >= below && !over(*at)));
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn memory(&self) -> EngineMemory {
        let size = |entries: &Entries| -> u64 {
            let value_bytes = |change: &Change<Bytes>| match change {
                Change::Put(value) => value.len() as u64,
                Change::Tombstone => 0,
            };
            entries.iter().map(|(key, change)| key.len() as u64 + value_bytes(change)).sum()
        };
        let memtables_bytes = self.lock().generations.values().map(|generation| size(&generation.entries)).sum();
        EngineMemory { memtables_bytes, ..EngineMemory::default() }
    }

    fn disk_bytes(&self) -> Result<u64> {
        Ok(0)
    }
}

/// Tells the observer how far an ingest has come; `Cancelled` where it says stop.
pub(super) fn go_on(observer: &dyn Fn(u64) -> ControlFlow<()>, done_bytes: u64) -> Result<()> {
    match observer(done_bytes) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(Error::new(ErrorKind::Cancelled, "the restore was stopped")),
    }
}

/// A walk over entries that it keeps as they were when it began.
#[derive(Debug)]
struct MemoryCursor {
    entries: Arc<Entries>,
    range: KeyRange,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Start,
    At(Bytes, Change<Bytes>),
    End,
}

impl Cursor for MemoryCursor {
    fn advance(&mut self) -> Result<bool> {
        let from = match &self.place {
            Place::Start => Bound::Included(self.range.start.as_slice()),
            Place::At(key, _) => Bound::Excluded(key.as_slice()),
            Place::End => return Ok(false),
        };
        let next = self.entries.range::<[u8], _>((from, Bound::Unbounded)).next();
        self.place = match next.filter(|(key, _)| self.range.is_before_end(key)) {
            Some((key, change)) => Place::At(key.clone(), change.clone()),
            None => Place::End,
        };
        Ok(matches!(self.place, Place::At(..)))
    }

    fn key(&self) -> &[u8] {
        match &self.place {
            Place::At(key, _) => key,
            Place::Start | Place::End => &[],
        }
    }

    fn change(&self) -> Change<&[u8]> {
        match &self.place {
            Place::At(_, Change::Put(value)) => Change::Put(value),
            Place::At(_, Change::Tombstone) | Place::Start | Place::End => Change::Tombstone,
        }
    }

    fn key_bytes(&self) -> Bytes {
        match &self.place {
            Place::At(key, _) => key.clone(),
            Place::Start | Place::End => Bytes::default(),
        }
    }

    fn change_bytes(&self) -> Change<Bytes> {
        match &self.place {
            Place::At(_, change) => change.clone(),
            Place::Start | Place::End => Change::Tombstone,
        }
    }
}
