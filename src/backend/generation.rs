//! [`Generation`]: what changed in one store since its base, as the store's readers and its folding thread share it.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use super::contract::{
    Coverage, Engine, GenerationId, GenerationRecord, StoreNumber, VersionRecord, unknown_generation,
};
use super::filter::Filter;
use super::handle::{Backend, InUse};
use crate::budget::Lease;
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, KeyRange, Probe, key_hash};
use crate::error::Result;
use crate::ranges::RangeSet;
use crate::version::Mark;

/// A generation with what makes reading it cheap: a filter and its deleted ranges, both in heap.
///
/// Readers go on while another thread applies the next delta. They may see it early, late, or in part, so a reader holds
/// that delta as a run *above* the generation until it has been applied whole, and looks there first.
///
/// Memory: the filter's fixed size, and the deleted ranges, which are kept merged.
pub(crate) struct Generation {
    backend: Backend,
    id: GenerationId,
    from: Mark,
    coverage: Coverage,
    /// Guards the two against being read apart; held for an instant, nothing is called under it.
    state: RwLock<State>,
    filter: OnceLock<ReadyFilter>,
    /// Held by whoever applies, and while a filter begins to be rebuilt: a delta's keys go into the filter, or into
    /// the entries that the rebuild walks over. The engine is called under it; readers never take it.
    apply_turn: Mutex<()>,
    retired: AtomicBool,
    /// Given back when this is dropped, after the generation itself if it was retired.
    _in_use: InUse,
}

#[derive(Clone)]
struct State {
    applied: Mark,
    torn: Option<Mark>,
    ranges: Arc<RangeSet>,
}

/// A filter, and whether all keys of the generation are in it yet.
struct ReadyFilter {
    filter: Filter,
    ready: AtomicBool,
    _lease: Lease,
}

impl Generation {
    /// What a generation of up to a million entries needs for its filter.
    pub(crate) const FILTER_BYTES: usize = 3 << 19;

    /// Makes an empty generation on top of `from`, with a filter of `filter_bytes`; 0 is none. A complete generation gets
    /// none: its keys would fill it.
    pub(crate) fn create(
        backend: &Backend,
        store: StoreNumber,
        from: Mark,
        coverage: Coverage,
        filter_bytes: usize,
    ) -> Result<Arc<Self>> {
        let record = backend.engine().create_generation(store, from, coverage)?;
        let in_use = backend.take(record.id, &[]).ok_or_else(|| unknown_generation(record.id))?;
        let generation = Self::assemble(backend, &record, RangeSet::default(), in_use);
        if let Some(lease) = filter_lease(backend, filter_bytes).filter(|_| !coverage.is_complete()) {
            generation.filter.get_or_init(|| ReadyFilter::new(filter_bytes, true, lease));
        }
        Ok(Arc::new(generation))
    }

    /// Takes up a generation that is already there. It has no filter, so every get asks the engine, until
    /// [`Generation::rebuild_filter`] has been through its keys.
    pub(crate) fn open(backend: &Backend, record: &GenerationRecord, in_use: InUse) -> Result<Arc<Self>> {
        let ranges = backend.engine().ranges(record.id)?;
        Ok(Arc::new(Self::assemble(backend, record, ranges, in_use)))
    }

    fn assemble(backend: &Backend, record: &GenerationRecord, ranges: RangeSet, in_use: InUse) -> Self {
        Self {
            backend: backend.clone(),
            id: record.id,
            from: record.from,
            coverage: record.coverage,
            state: RwLock::new(State { applied: record.applied, torn: record.torn, ranges: Arc::new(ranges) }),
            filter: OnceLock::new(),
            apply_turn: Mutex::new(()),
            retired: AtomicBool::new(false),
            _in_use: in_use,
        }
    }

    /// What the generation says about a key; `None`: look at [`Generation::ranges`], then in what lies below.
    pub(crate) fn get(&self, probe: &Probe<'_>) -> Result<Option<Change<Bytes>>> {
        if self.ready_filter().is_some_and(|filter| !filter.may_contain(probe.hash)) {
            return Ok(None);
        }
        self.engine().get(self.id, probe.full_key)
    }

    /// Walks over the entries in `range` as they are now. While it lives it keeps memtables and files from being given
    /// back, so it should not live long.
    pub(crate) fn cursor(&self, range: &KeyRange) -> Result<Box<dyn Cursor>> {
        self.engine().cursor(self.id, range)
    }

    /// Applies one delta: deletes `ranges`, then takes over `changes`, and ends at the mark `applied`. One caller at a time; others
    /// wait.
    ///
    /// # Errors
    /// What the cursor or the engine reports. The delta may then be there in part: apply the same one again, or drop
    /// the generation.
    pub(crate) fn apply(
        &self,
        ranges: &RangeSet,
        changes: &mut dyn Cursor,
        applied: Mark,
        version: Option<&VersionRecord>,
    ) -> Result<()> {
        let _turn = self.apply_turn.lock().unwrap_or_else(PoisonError::into_inner);
        let done = match self.filter.get() {
            Some(known) => {
                let mut noted = Noted { inner: changes, filter: &known.filter };
                self.engine().apply(self.id, ranges, &mut noted, applied, version)
            }
            None => self.engine().apply(self.id, ranges, changes, applied, version),
        };
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = done {
            // Whether a part of it is there is not known up here, so it counts as if one were.
            state.torn.get_or_insert(applied);
            return Err(error);
        }
        state.torn = None;
        if !ranges.is_empty() && !self.coverage.is_complete() {
            Arc::make_mut(&mut state.ranges).extend(ranges);
        }
        state.applied = applied;
        Ok(())
    }

    /// Gives a reopened generation its filter, by walking over its keys; for a background thread. Does nothing where
    /// there is one already.
    pub(crate) fn rebuild_filter(&self, filter_bytes: usize) -> Result<()> {
        if filter_bytes == 0 || self.coverage.is_complete() {
            return Ok(());
        }
        let turn = self.apply_turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.filter.get().is_some() {
            return Ok(());
        }
        let Some(lease) = filter_lease(&self.backend, filter_bytes) else { return Ok(()) };
        let rebuilt = self.filter.get_or_init(|| ReadyFilter::new(filter_bytes, false, lease));
        // From here on every delta adds its own keys; the cursor sees all keys from before.
        let cursor = self.cursor(&KeyRange::ALL);
        drop(turn);
        let mut cursor = cursor?;
        while cursor.advance()? {
            rebuilt.filter.insert(key_hash(cursor.key()));
        }
        rebuilt.ready.store(true, Ordering::Release);
        Ok(())
    }

    /// The ranges that are deleted from what lies below. An entry of this generation is newer than any of them.
    pub(crate) fn ranges(&self) -> Arc<RangeSet> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).ranges)
    }

    /// Whether the generation deletes this key from what lies below (unless it has an entry of its own for it).
    pub(crate) fn covers(&self, full_key: &[u8]) -> bool {
        self.state.read().unwrap_or_else(PoisonError::into_inner).ranges.contains(full_key)
    }

    /// The state that this generation and what lies below make.
    pub(crate) fn applied(&self) -> Mark {
        self.state.read().unwrap_or_else(PoisonError::into_inner).applied
    }

    /// The delta that may be there in part, after a failed apply or a crash in a large one. Until the same delta has been
    /// applied, only readers that hold it as a run above this generation may read here.
    pub(crate) fn torn(&self) -> Option<Mark> {
        self.state.read().unwrap_or_else(PoisonError::into_inner).torn
    }

    /// Whether nothing was ever applied to it, not even a part.
    pub(crate) fn is_empty(&self) -> bool {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        state.applied == self.from && state.torn.is_none()
    }

    /// The state that it lies over.
    pub(crate) fn from(&self) -> Mark {
        self.from
    }

    /// Whether it holds the whole state, so that nothing lies below.
    #[cfg(test)]
    pub(crate) fn is_complete(&self) -> bool {
        self.coverage.is_complete()
    }

    pub(crate) fn id(&self) -> GenerationId {
        self.id
    }

    /// The heap that its filter takes.
    #[cfg(test)]
    pub(crate) fn filter_bytes(&self) -> usize {
        self.filter.get().map_or(0, |known| known.filter.memory_bytes())
    }

    /// Says that nobody new will use it: when the last holder lets go, it is dropped, and its disk freed behind their back.
    pub(crate) fn retire(&self) {
        self.retired.store(true, Ordering::Release);
    }

    fn engine(&self) -> &Arc<dyn Engine> {
        self.backend.engine()
    }

    fn ready_filter(&self) -> Option<&Filter> {
        self.filter.get().filter(|known| known.ready.load(Ordering::Acquire)).map(|known| &known.filter)
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        if !self.retired.load(Ordering::Acquire) {
            return;
        }
        match self.engine().drop_generation(self.id) {
            Ok(()) => self.backend.reclaim_later(),
            // It stays until its store is opened again and finds that it fits nowhere.
            Err(error) => tracing::warn!(%error, id = ?self.id, "could not drop a retired generation"),
        }
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation")
            .field("id", &self.id)
            .field("from", &self.from.at)
            .field("applied", &self.applied().at)
            .field("coverage", &self.coverage)
            .finish_non_exhaustive()
    }
}

impl ReadyFilter {
    fn new(bytes: usize, ready: bool, lease: Lease) -> Self {
        Self { filter: Filter::with_bytes(bytes), ready: AtomicBool::new(ready), _lease: lease }
    }
}

/// Their row in the table of who holds memory.
const FILTERS: &str = "filters";

/// Room for a filter. Filters only make reads faster, so all of them together leave half of the budget to transactions;
/// with hundreds of stores in one process most have none.
fn filter_lease(backend: &Backend, bytes: usize) -> Option<Lease> {
    let (budget, bytes) = (backend.budget(), bytes as u64);
    let fits = bytes > 0 && budget.of_kind(FILTERS).saturating_add(bytes) <= backend.filters_limit_bytes();
    fits.then(|| budget.lease(bytes, FILTERS).ok()).flatten()
}

/// A cursor that notes every key in a filter before its entry is handed on, so before it can be found.
struct Noted<'a> {
    inner: &'a mut dyn Cursor,
    filter: &'a Filter,
}

impl Cursor for Noted<'_> {
    fn advance(&mut self) -> Result<bool> {
        let there = self.inner.advance()?;
        if there {
            self.filter.insert(key_hash(self.inner.key()));
        }
        Ok(there)
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn change(&self) -> Change<&[u8]> {
        self.inner.change()
    }

    fn key_bytes(&self) -> Bytes {
        self.inner.key_bytes()
    }

    fn change_bytes(&self) -> Change<Bytes> {
        self.inner.change_bytes()
    }
}
