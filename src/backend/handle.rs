//! [`Backend`]: the one index of a process, which all its stores share.

use std::collections::BTreeMap;
use std::fmt;
#[cfg(feature = "rocksdb")]
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::contract::{Engine, EngineMemory, GenerationId};
use super::memory::MemoryEngine;
use super::options::BackendOptions;
use super::worker::Worker;
use crate::budget::Budget;
use crate::entry::StateStoreId;
use crate::error::{Error, Result};
use crate::version::StoreUid;

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
    /// What the index holds.
    pub index: EngineMemory,
    /// The part of the limit that open transactions share.
    pub leases_limit_bytes: u64,
    /// What they hold of it.
    pub leases_bytes: u64,
    /// The same by kind of holder.
    pub leases: Vec<(&'static str, u64)>,
}

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
        use super::workdir::WorkDir;
        use crate::clock::SystemClock;

        options.validate()?;
        let dir = WorkDir::claim(work_dir.as_ref(), &SystemClock::new())?;
        let engine: Arc<dyn Engine> = Arc::new(RocksEngine::open(dir, &options)?);
        let backend = Self::assemble(engine, Worker::threaded("alluvium-backend")?, options);
        backend.reclaim_later(); // what was dropped but not freed when the last process ended
        Ok(backend)
    }

    /// An index in heap, for tests, for small state, and for builds without RocksDB. Its memory has no bound, and it is
    /// empty at every start.
    ///
    /// # Errors
    /// `Io` where the system gives no thread for the background work.
    pub fn in_memory() -> Result<Self> {
        let engine = Arc::new(MemoryEngine::default());
        Ok(Self::assemble(engine, Worker::threaded("alluvium-backend")?, BackendOptions::default()))
    }

    pub(crate) fn assemble(engine: Arc<dyn Engine>, worker: Worker, options: BackendOptions) -> Self {
        let budget = Budget::new(options.overlay_bytes() as u64);
        let (in_use, admitted) = (Mutex::default(), Mutex::default());
        let upkeep = worker.beside("alluvium-upkeep");
        Self { inner: Arc::new(Inner { worker, upkeep, engine, options, budget, in_use, admitted }) }
    }

    /// Who holds how much memory, against the limit.
    #[must_use]
    pub fn memory(&self) -> MemoryUse {
        MemoryUse {
            limit_bytes: self.inner.options.memory_limit_bytes() as u64,
            index: self.inner.engine.memory(),
            leases_limit_bytes: self.inner.budget.limit(),
            leases_bytes: self.inner.budget.used(),
            leases: self.inner.budget.holders(),
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

    /// The options it was opened with.
    #[must_use]
    pub fn options(&self) -> &BackendOptions {
        &self.inner.options
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.inner.engine
    }

    /// What the transactions of all stores may hold together.
    pub(crate) fn budget(&self) -> &Budget {
        &self.inner.budget
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
