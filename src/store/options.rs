//! How a store is held and how long its callers wait.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Coverage;
use crate::error::{Error, Result};

use crate::run::{Access, PageCodec};

/// Where the state lives while it is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Residency {
    /// Recent changes in RocksDB over mapped runs that are read in place: the state is stored once.
    #[default]
    Mapped,
    /// The whole state in RocksDB. For machines whose page cache is not theirs; opening from nothing costs O(state).
    Resident,
}

impl Residency {
    pub(super) fn coverage(self) -> Coverage {
        match self {
            Self::Mapped => Coverage::Changes,
            Self::Resident => Coverage::Complete,
        }
    }
}

/// Options of one store.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    pub(super) residency: Residency,
    pub(super) busy_timeout: Duration,
    pub(super) access: Access,
    pub(super) codec: PageCodec,
    pub(super) longest_tail: usize,
    pub(super) collapse_from_bytes: u64,
    pub(super) restore_observer: Observer,
    #[cfg(feature = "conformance")]
    pub(super) planted: Planted,
}

/// How far a long piece of work is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes of entries that are done.
    pub done_bytes: u64,
    /// Bytes of entries in all; some turn out to be overwritten or deleted, so the work may end early.
    pub total_bytes: u64,
}

/// Who hears of progress, if anybody.
#[derive(Clone, Default)]
pub(super) struct Observer(Option<Arc<dyn Fn(Progress) -> ControlFlow<()> + Send + Sync>>);

impl Observer {
    pub(super) fn call(&self, progress: Progress) -> ControlFlow<()> {
        self.0.as_ref().map_or(ControlFlow::Continue(()), |observe| observe(progress))
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observer").field(&self.0.is_some()).finish()
    }
}

/// A bug put in on purpose, so that the crash harness can show that it would find it.
#[doc(hidden)]
#[cfg(feature = "conformance")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Planted {
    /// None: what everybody runs.
    #[default]
    Nothing,
    /// The index follows before the delta is published.
    ApplyBeforePublish,
    /// Pages of runs are believed without a look at their checksums.
    #[cfg(feature = "conformance")]
    SkipPageChecksum,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            residency: Residency::Mapped,
            busy_timeout: Duration::from_secs(10),
            access: Access::Mapped,
            codec: PageCodec::None,
            longest_tail: 16,
            collapse_from_bytes: 1 << 20,
            restore_observer: Observer::default(),
            #[cfg(feature = "conformance")]
            planted: Planted::Nothing,
        }
    }
}

impl StoreOptions {
    /// Where the state lives; [`Residency::Mapped`] unless set.
    #[must_use]
    pub fn residency(mut self, residency: Residency) -> Self {
        self.residency = residency;
        self
    }

    /// How long `begin` waits for the writer slot; 10 seconds unless set.
    #[must_use]
    pub fn busy_timeout(mut self, timeout: Duration) -> Self {
        self.busy_timeout = timeout;
        self
    }

    /// How runs are read; mapped unless set. `Positioned` suits media that others may truncate under us.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// How pages of new runs are compressed; not at all unless set, since reads come first.
    #[must_use]
    pub fn compression(mut self, codec: PageCodec) -> Self {
        self.codec = codec;
        self
    }

    /// How many deltas may wait, readable in place, to be taken into the index or the base before a commit does it itself;
    /// 16 unless set, at least 1. The background takes them in when half as many have come together.
    ///
    /// # Errors
    /// `InvalidInput` for 0.
    pub fn longest_tail(mut self, deltas: usize) -> Result<Self> {
        if deltas == 0 {
            return Err(Error::invalid("the longest tail is at least 1"));
        }
        self.longest_tail = deltas;
        Ok(self)
    }

    /// From how many bytes on the deltas that wait together become a run of the base, to be read in place, instead of
    /// entries of the index; 1 MiB unless set. Only for [`Residency::Mapped`].
    ///
    /// Both costs were measured: the index takes about 2.5 µs a key to insert, flush and compact, a run 0.2 µs a key and
    /// 8 ms to become durable. They meet at 3,000 to 4,000 keys.
    #[must_use]
    pub fn collapse_from(mut self, bytes: u64) -> Self {
        self.collapse_from_bytes = bytes;
        self
    }

    /// Has a restore (only [`Residency::Resident`] has one) tell how far it is, every few MiB. Where `observe` breaks, the
    /// open, or the `begin`, that restores ends with `Cancelled`, and leaves nothing behind.
    #[must_use]
    pub fn observe_restore(mut self, observe: impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        self.restore_observer = Observer(Some(Arc::new(observe)));
        self
    }

    /// Plants a bug.
    #[doc(hidden)]
    #[cfg(feature = "conformance")]
    #[must_use]
    pub fn planted(mut self, planted: Planted) -> Self {
        self.planted = planted;
        self
    }
}
