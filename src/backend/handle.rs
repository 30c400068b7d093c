//! [`Backend`]: the one index of a process, which all its stores share.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
#[cfg(feature = "metrics")]
use std::sync::MutexGuard;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::contract::{Engine, EngineMemory, GenerationId};
use super::memory::MemoryEngine;
use super::options::BackendOptions;
use super::precedence::Precedence;
use super::workdir::WorkDir;
use super::worker::Worker;
use crate::budget::{Budget, Lease, MemoryHolder, MemoryShare, Purpose, Shortages};
use crate::clock::SystemClock;
use crate::entry::StateStoreId;
use crate::error::{Error, Result};
use crate::fs::{RealDisk, ScratchDir};
use crate::version::StoreUid;

/// What the index takes of the limit, in the table of holders.
const INDEX: &str = "index";
/// What whoever merges or restores holds: the writer of a run, or of a table file, and its cursors.
const BUFFERS_BYTES: u64 = 2 << 20;

/// The index of what has changed recently in all stores of a process. Clones share it; the last one closes it.
///
/// It is disposable: losing it, or any part of its directory, costs a replay of the newest deltas and nothing else.
#[derive(Clone)]
pub struct Backend {
    inner: Arc<Inner>,
}

struct Inner {
    /// Goes first, so that no job is running when the engine closes.
    worker: Worker,
    /// Long work on files, so that no commit waits behind it.
    upkeep: Worker,
    engine: Arc<dyn Engine>,
    options: BackendOptions,
    budget: Budget,
    /// What the index and the background's buffers take of the budget, once.
    fixed: Vec<Lease>,
    /// Between the commits of all stores and what is written behind them.
    precedence: Arc<Precedence>,
    /// Where transactions spill to.
    scratch: Option<ScratchDir>,
    /// The rows of the table of holders that have a gauge. Nothing is called under it.
    #[cfg(feature = "metrics")]
    published: Mutex<Vec<Row>>,
    /// Held for its lock where the index itself does not.
    _work_dir: Option<WorkDir>,
    /// The generations that are in use in this process, and how often. Nothing is called under it.
    in_use: Mutex<BTreeMap<GenerationId, usize>>,
    /// The stores that are open in this process, each with its directory's uid and how often. Nothing is called under it.
    admitted: Mutex<BTreeMap<StateStoreId, (StoreUid, usize)>>,
}

/// Who holds how much of a backend's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryUse {
    /// The limit that the backend was opened with.
    pub limit_bytes: u64,
    /// What all holders have together.
    pub held_bytes: u64,
    /// The holders, the largest first. Those who hold nothing are left out.
    pub holders: Vec<MemoryHolder>,
    /// What the index holds, which is among the holders too.
    pub index: EngineMemory,
    /// The part of the limit that is the index's.
    pub index_limit_bytes: u64,
    /// How often memory was short.
    pub shortages: Shortages,
}

/// What a transaction does where its memory is used up.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// Where it spills; `None`: nowhere.
    pub(crate) scratch: Option<ScratchDir>,
    /// How long it waits for others to spill.
    pub(crate) timeout: Duration,
}

impl Room {
    /// Nowhere to spill, and no waiting.
    pub(crate) const NONE: Self = Self { scratch: None, timeout: Duration::ZERO };
}

/// Where an opened backend keeps its things.
#[derive(Default)]
pub(crate) struct Places {
    pub(crate) scratch: Option<ScratchDir>,
    pub(super) work_dir: Option<WorkDir>,
}

/// Kind and owner of a row of the table of holders.
#[cfg(feature = "metrics")]
type Row = (&'static str, Option<Arc<str>>);

/// Says that a store is open, until it is dropped.
pub(crate) struct Admission {
    backend: Backend,
    id: StateStoreId,
}

/// Says that a generation is in use, until it is dropped.
pub(crate) struct InUse {
    backend: Backend,
    id: GenerationId,
}

impl Backend {
    /// Opens the index in `work_dir`, which is made where it is missing. One process at a time, and one backend in it.
    ///
    /// An index that turns out to be damaged is wiped and begun afresh, with a warning.
    ///
    /// # Errors
    /// `InvalidInput` for options that cannot work. `Foreign` where the directory is a link, or holds anything without
    /// our marker: nothing is touched then. `Locked { holder }` where it is in use. `Unsupported` where a newer
    /// version made it. `DiskFull`, `PermissionDenied`, `Io` or `Engine` where it cannot be made.
    #[cfg(feature = "rocksdb")]
    pub fn open(work_dir: impl AsRef<Path>, options: BackendOptions) -> Result<Self> {
        use super::rocks::RocksEngine;

        options.validate()?;
        let dir = WorkDir::claim(work_dir.as_ref(), &SystemClock::new())?;
        let places = Places { scratch: Some(scratch_in(&dir)), work_dir: None };
        let engine: Arc<dyn Engine> = Arc::new(RocksEngine::open(dir, &options)?);
        let backend = Self::assemble(engine, Worker::threaded("alluvium-backend")?, options, places);
        backend.reclaim_later(); // what was dropped but not freed when the last process ended
        Ok(backend)
    }

    /// An index in heap, for tests, for small state, and for builds without RocksDB. Its memory has no bound, it is
    /// empty at every start, and transactions larger than their part of the default limit are refused.
    ///
    /// # Errors
    /// `Io` where the system gives no thread for the background work.
    pub fn in_memory() -> Result<Self> {
        let engine = Arc::new(MemoryEngine::default());
        Ok(Self::assemble(engine, Worker::threaded("alluvium-backend")?, BackendOptions::default(), Places::default()))
    }

    /// As [`in_memory`](Self::in_memory), with a work directory that large transactions spill to.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn in_memory_with(work_dir: impl AsRef<Path>, options: BackendOptions) -> Result<Self> {
        options.validate()?;
        let dir = WorkDir::claim(work_dir.as_ref(), &SystemClock::new())?;
        let places = Places { scratch: Some(scratch_in(&dir)), work_dir: Some(dir) };
        let engine = Arc::new(MemoryEngine::default());
        Ok(Self::assemble(engine, Worker::threaded("alluvium-backend")?, options, places))
    }

    pub(crate) fn assemble(engine: Arc<dyn Engine>, worker: Worker, options: BackendOptions, places: Places) -> Self {
        let limit_bytes = options.memory_limit_bytes() as u64;
        let budget = Budget::new(limit_bytes);
        let fixed = [(options.cache_bytes() as u64, INDEX), (buffers_bytes(limit_bytes), "background merges")];
        let fixed = fixed.into_iter().filter_map(|(bytes, kind)| budget.lease(bytes, kind).ok()).collect(); // two
        let (in_use, admitted) = (Mutex::default(), Mutex::default());
        let Places { scratch, work_dir } = places;
        let upkeep = worker.beside("alluvium-upkeep");
        let inner = Inner {
            worker,
            upkeep,
            engine,
            options,
            budget,
            fixed,
            precedence: Arc::default(),
            scratch,
            #[cfg(feature = "metrics")]
            published: Mutex::default(),
            _work_dir: work_dir,
            in_use,
            admitted,
        };
        Self { inner: Arc::new(inner) }
    }

    /// A share in this backend's limit, for what is not a store of it.
    #[must_use]
    pub fn share_memory(&self) -> MemoryShare {
        MemoryShare::of(&self.inner.budget)
    }

    /// Who holds how much memory, against the limit.
    ///
    /// The sum is what this crate knows of. The anonymous memory of the process is larger by a constant, which the page on
    /// memory states: the program itself, thread stacks, and what the allocator keeps for later.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        let (index, budget) = (self.inner.engine.memory(), &self.inner.budget);
        let of_index = [
            ("block cache", index.block_cache_bytes.saturating_sub(index.memtables_bytes)),
            ("memtables", index.memtables_bytes),
            ("table readers", index.table_readers_bytes),
        ];
        let of_index = of_index.map(|(kind, bytes)| MemoryHolder { kind, store: None, bytes });
        let leased = budget.holders().into_iter().filter(|holder| holder.kind != INDEX);
        let mut holders: Vec<MemoryHolder> = of_index.into_iter().chain(leased).filter(|one| one.bytes > 0).collect(); // a few a store
        holders.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.cmp(b)));
        MemoryUse {
            limit_bytes: self.inner.options.memory_limit_bytes() as u64,
            held_bytes: holders.iter().map(|holder| holder.bytes).sum(),
            holders,
            index,
            index_limit_bytes: self.inner.options.cache_bytes() as u64,
            shortages: budget.shortages(),
        }
    }

    /// The bytes of the index's files.
    ///
    /// # Errors
    /// `Engine` where RocksDB cannot say.
    pub fn disk_bytes(&self) -> Result<u64> {
        self.inner.engine.disk_bytes()
    }

    /// Writes what is in memory to the index's files, so that a process that is killed afterwards has less to replay.
    /// Nothing depends on it.
    ///
    /// # Errors
    /// `DiskFull` or `Engine`; what is durable in the checkpoint is safe.
    pub fn flush(&self) -> Result<()> {
        self.inner.engine.flush()
    }

    #[cfg(feature = "metrics")]
    pub(super) fn published(&self) -> MutexGuard<'_, Vec<Row>> {
        self.inner.published.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The options it was opened with.
    #[must_use]
    pub fn options(&self) -> &BackendOptions {
        &self.inner.options
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.inner.engine
    }

    /// What a transaction does where its memory is used up.
    pub(crate) fn room(&self) -> Room {
        Room { scratch: self.inner.scratch.clone(), timeout: self.inner.options.longest_wait() }
    }

    /// What all stores' filters may hold together: they only make reads faster, so half of what is not fixed is left to
    /// transactions.
    pub(crate) fn filters_limit_bytes(&self) -> u64 {
        let fixed = self.inner.fixed.iter().map(Lease::bytes).sum::<u64>();
        self.inner.budget.limit().saturating_sub(fixed) / 2
    }

    /// Room for the buffers of so many `writers` of a merge or a restore; waits for it.
    ///
    /// # Errors
    /// `MemoryLimit` where nobody gave some back in time.
    pub(crate) fn lease_buffers(&self, purpose: Purpose, writers: u64) -> Result<Lease> {
        let bytes = writers.saturating_mul(buffers_bytes(self.inner.budget.limit()));
        self.inner.budget.lease_waiting(bytes, purpose, self.inner.options.longest_wait())
    }

    /// What all holders of memory share.
    pub(crate) fn budget(&self) -> &Budget {
        &self.inner.budget
    }

    /// Which writing goes first, of all stores.
    pub(crate) fn precedence(&self) -> &Arc<Precedence> {
        &self.inner.precedence
    }

    /// Takes a generation into use, unless somebody uses it already who is not among `mine`.
    ///
    /// Two providers of one store can be open in one process, the older one fenced but not knowing it. What one of them
    /// applies to a generation must not show to the other, nor may one drop what the other reads.
    pub(crate) fn take(&self, id: GenerationId, mine: &[GenerationId]) -> Option<InUse> {
        let mut in_use = self.inner.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        let count = in_use.entry(id).or_default();
        if *count > 0 && !mine.contains(&id) {
            return None;
        }
        *count += 1;
        drop(in_use);
        Some(InUse { backend: self.clone(), id })
    }

    /// Lets a store in. Stores of one name may be open several times, but all in one checkpoint: the index keeps them by name.
    ///
    /// # Errors
    /// `InvalidInput` where a store of this name, but of another checkpoint, is open.
    pub(crate) fn admit(&self, uid: StoreUid, id: &StateStoreId) -> Result<Admission> {
        let mut admitted = self.inner.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, count) = admitted.entry(id.clone()).or_insert((uid, 0));
        if *known != uid {
            let text =
                format!("{id} of another checkpoint is open on this backend; give one of them another backend or name");
            return Err(Error::invalid(text));
        }
        *count += 1;
        drop(admitted);
        Ok(Admission { backend: self.clone(), id: id.clone() })
    }

    /// The backend's background thread. A job that holds a `Backend` must be short or rare: it keeps the index open.
    pub(crate) fn worker(&self) -> &Worker {
        &self.inner.worker
    }

    /// The thread that does the maintenance of all stores. Its jobs may take minutes.
    pub(crate) fn upkeep(&self) -> &Worker {
        &self.inner.upkeep
    }

    /// Frees the disk of dropped generations behind the callers' backs.
    pub(crate) fn reclaim_later(&self) {
        let engine = Arc::clone(&self.inner.engine);
        self.inner.worker.submit(Box::new(move || {
            if let Err(error) = engine.reclaim() {
                tracing::warn!(%error, "could not free the disk of dropped generations");
            }
        }));
    }
}

fn buffers_bytes(limit_bytes: u64) -> u64 {
    BUFFERS_BYTES.min(limit_bytes / 16) // the writers hold less where the files are small
}

fn scratch_in(dir: &WorkDir) -> ScratchDir {
    ScratchDir::new(Arc::new(RealDisk), &dir.spill_dir())
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut in_use = self.backend.inner.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = in_use.get_mut(&self.id) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                in_use.remove(&self.id);
            }
        }
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut admitted = self.backend.inner.admitted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = admitted.get_mut(&self.id) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                admitted.remove(&self.id);
            }
        }
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admission").field(&self.id).finish()
    }
}

impl fmt::Debug for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("InUse").field(&self.id).finish()
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("engine", &self.inner.engine).field("worker", &self.inner.worker).finish()
    }
}
