//! [`Backend`]: the one index of a process, which all its stores share.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::contract::{Engine, EngineMemory, GenerationId};
use super::memory::{MemoryEngine, MemoryImage};
use super::options::BackendOptions;
use super::worker::Worker;
use crate::budget::Budget;
use crate::error::Result;

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
    engine: Arc<dyn Engine>,
    options: BackendOptions,
    spill_dir: Option<PathBuf>,
    budget: Budget,
    /// The generations that are in use in this process, and how often. Nothing is called under it.
    in_use: Mutex<BTreeMap<GenerationId, usize>>,
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
        let spill_dir = Some(dir.spill_dir());
        let engine: Arc<dyn Engine> = Arc::new(RocksEngine::open(dir, &options)?);
        let backend = Self::assemble(engine, Worker::threaded("alluvium-backend")?, options, spill_dir);
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
        Ok(Self::assemble(engine, Worker::threaded("alluvium-backend")?, BackendOptions::default(), None))
    }

    /// A deterministic index in heap that knows what `image` knew: background jobs run only in
    /// [`Worker::run_pending`]. The engine comes beside it, so that a crash test can take its image at any moment.
    pub(crate) fn deterministic(image: MemoryImage) -> (Self, Arc<MemoryEngine>) {
        let engine = Arc::new(MemoryEngine::from_image(image));
        let shared: Arc<dyn Engine> = Arc::<MemoryEngine>::clone(&engine);
        (Self::assemble(shared, Worker::inline(), BackendOptions::default(), None), engine)
    }

    pub(crate) fn assemble(
        engine: Arc<dyn Engine>,
        worker: Worker,
        options: BackendOptions,
        spill_dir: Option<PathBuf>,
    ) -> Self {
        let budget = Budget::new(options.overlay_bytes() as u64);
        let in_use = Mutex::default();
        Self { inner: Arc::new(Inner { worker, engine, options, spill_dir, budget, in_use }) }
    }

    /// Who holds how much of the index's memory.
    #[must_use]
    pub fn memory(&self) -> EngineMemory {
        self.inner.engine.memory()
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

    /// Where transactions may spill; none for an index in heap. Emptied at every open.
    pub(crate) fn spill_dir(&self) -> Option<&Path> {
        self.inner.spill_dir.as_deref()
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

    /// The backend's background thread. A job that holds a `Backend` must be short or rare: it keeps the index open.
    pub(crate) fn worker(&self) -> &Worker {
        &self.inner.worker
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
