//! How a store is held and how long its callers wait.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::backend::Coverage;
use crate::catalog::Wanted;
use crate::error::{Error, Result};
use crate::run::{Access, PageCodec};
use crate::version::Version;

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

/// Who does a store's maintenance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Upkeep {
    /// The backend's background thread, behind the committers' backs.
    #[default]
    Background,
    /// Nobody, unless `maintain`, `snapshot` or `retire` are called, here or in another process.
    Manual,
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
    pub(super) restore_observer: RestoreObserver,
    open_at: Option<Version>,
    retain_versions: usize,
    retain_changes: Option<u64>,
    upkeep: Upkeep,
    pace: Option<NonZeroU64>,
    scrub_every: Option<Duration>,
    #[cfg(feature = "conformance")]
    pub(super) planted: Planted,
}

const SCRUB_EVERY: Duration = Duration::from_hours(24 * 7);

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
pub(super) struct RestoreObserver(Option<Arc<dyn Fn(Progress) -> ControlFlow<()> + Send + Sync>>);

impl RestoreObserver {
    pub(super) fn call(&self, progress: Progress) -> ControlFlow<()> {
        self.0.as_ref().map_or(ControlFlow::Continue(()), |observe| observe(progress))
    }
}

impl fmt::Debug for RestoreObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RestoreObserver").field(&self.0.is_some()).finish()
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
    /// Files are deleted for the sake of runs that nobody has looked at.
    RetireUnseen,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            residency: Residency::Mapped,
            busy_timeout: Duration::from_secs(10),
            access: Access::Mapped,
            codec: PageCodec::None,
            longest_tail: 32,
            collapse_from_bytes: 1 << 20,
            restore_observer: RestoreObserver::default(),
            open_at: None,
            retain_versions: 100,
            retain_changes: None,
            upkeep: Upkeep::Background,
            pace: None,
            scrub_every: Some(SCRUB_EVERY),
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
    /// 32 unless set, at least 1. The background takes them in when a quarter as many have come together; the rest is for when
    /// it is kept waiting, by a snapshot say, so that commits are not.
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
        self.restore_observer = RestoreObserver(Some(Arc::new(observe)));
        self
    }

    /// The version to open at, instead of the newest. What lies above is superseded by the first commit: so a store goes on whose newest
    /// versions are damaged, or should never have been.
    #[must_use]
    pub fn open_at(mut self, version: Version) -> Self {
        self.open_at = Some(version);
        self
    }

    pub(super) fn wanted(&self) -> Wanted {
        self.open_at.map_or(Wanted::Newest, Wanted::At)
    }

    /// How many of the newest versions stay readable when the store is cleaned up; 100 unless set, at least 1.
    ///
    /// The store then has at most so many files, 3 · log₂ of all versions ever, and a constant: 48 collapsed runs whose parts are still
    /// retained (96 where `maintain` is called all the time), 48 single deltas that wait to be collapsed (`versions / 32` where that is more),
    /// and those of the commits since the background last looked.
    ///
    /// # Errors
    /// `InvalidInput` for 0.
    pub fn retain_versions(mut self, versions: usize) -> Result<Self> {
        if versions == 0 {
            return Err(Error::invalid("at least the newest version stays"));
        }
        self.retain_versions = versions;
        Ok(self)
    }

    /// Of how many of the newest versions the exact changes stay, also where the versions themselves are let go; as many as
    /// versions are retained unless set.
    #[must_use]
    pub fn retain_changes(mut self, versions: u64) -> Self {
        self.retain_changes = Some(versions);
        self
    }

    /// Who collapses, takes snapshots and cleans up; the background unless set.
    #[must_use]
    pub fn upkeep(mut self, upkeep: Upkeep) -> Self {
        self.upkeep = upkeep;
        self
    }

    /// The most bytes a second that the background writes to collapse and to take snapshots; unless set, as fast as it can. The stores of a
    /// backend share the thread that does it: while it waits for one, the others wait too, until the reads of one of them, this one
    /// too, suffer from it, or this store has made thousands of commits meanwhile. Then no pace is kept.
    #[must_use]
    pub fn upkeep_pace(mut self, bytes_per_second: NonZeroU64) -> Self {
        self.pace = Some(bytes_per_second);
        self
    }

    /// How often the background reads every byte of the store's files, and makes damaged ones anew, while commits are made; once a week
    /// unless set, `None` for never. It counts from the opening, so where jobs live shorter let `alluvium repair` do it.
    #[must_use]
    pub fn scrub_every(mut self, interval: Option<Duration>) -> Self {
        self.scrub_every = interval;
        self
    }

    pub(crate) fn scrub_interval(&self) -> Option<Duration> {
        self.scrub_every
    }

    pub(crate) fn retained_versions(&self) -> usize {
        self.retain_versions
    }

    pub(crate) fn retained_changes_if_set(&self) -> Option<u64> {
        self.retain_changes
    }

    pub(crate) fn upkeep_by(&self) -> Upkeep {
        self.upkeep
    }

    pub(crate) fn pace(&self) -> Option<NonZeroU64> {
        self.pace
    }

    pub(crate) fn run_access(&self) -> Access {
        self.access
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
