//! [`Budget`]: one limit for everything that holds memory, and a table of who holds how much.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, ErrorKind, Result};

/// A limit on bytes that any number of holders share. Cheap to clone; all clones are one budget.
///
/// It counts what holders say they hold. Nothing waits here: whoever is refused decides what to give back.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Guards the set of kinds only, which stays as small as the code has kinds. Nothing is taken under it; a lease takes it once, when
    /// it is made, and counts through its own pointer afterwards.
    kinds: Mutex<BTreeMap<&'static str, Arc<AtomicU64>>>,
}

/// Bytes taken from a [`Budget`]; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Lease {
    inner: Arc<Inner>,
    of_kind: Arc<AtomicU64>,
    bytes: u64,
}

impl Budget {
    /// A budget of `limit_bytes`, all of it free.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let inner = Inner { limit_bytes, used_bytes: AtomicU64::new(0), kinds: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Takes `bytes` for a holder of the kind `kind`, which is its row in [`holders`](Self::holders).
    ///
    /// # Errors
    /// `MemoryLimit` where they are not free; nothing is taken then.
    pub(crate) fn lease(&self, bytes: u64, kind: &'static str) -> Result<Lease> {
        let of_kind = {
            let mut kinds = self.inner.kinds.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(kinds.entry(kind).or_default())
        };
        let mut lease = Lease { inner: Arc::clone(&self.inner), of_kind, bytes: 0 };
        lease.resize(bytes)?;
        Ok(lease)
    }

    /// Bytes taken by all holders together.
    pub(crate) fn used(&self) -> u64 {
        self.inner.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that may be taken at most.
    pub(crate) fn limit(&self) -> u64 {
        self.inner.limit_bytes
    }

    /// Bytes per kind of holder, in order of the kinds. While leases change, the rows need not add up to [`used`](Self::used).
    pub(crate) fn holders(&self) -> Vec<(&'static str, u64)> {
        let kinds = self.inner.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        kinds.iter().map(|(kind, bytes)| (*kind, bytes.load(Ordering::Relaxed))).collect()
    }
}

impl Lease {
    /// Takes more or gives back, so that the lease is for `bytes`. Giving back never fails.
    ///
    /// # Errors
    /// `MemoryLimit` where the difference is not free; the lease stays as it was.
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<()> {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            self.take(more)?;
        } else {
            self.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Bytes this lease is for.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn take(&self, more: u64) -> Result<()> {
        let limit_bytes = self.inner.limit_bytes;
        let within = |used: u64| used.checked_add(more).filter(|sum| *sum <= limit_bytes);
        // Relaxed: the counters order nothing but themselves.
        let taken = self.inner.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, within);
        if taken.is_err() {
            let kind = ErrorKind::MemoryLimit { requested_bytes: more, limit_bytes };
            return Err(Error::new(kind, "the memory budget is used up"));
        }
        self.of_kind.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: u64) {
        self.of_kind.fetch_sub(bytes, Ordering::Relaxed);
        self.inner.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_does_not_fit_takes_nothing() {
        let budget = Budget::new(100);
        let _first = budget.lease(70, "overlay").unwrap();
        let error = budget.lease(31, "merge").unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::MemoryLimit { requested_bytes: 31, limit_bytes: 100 });
        assert_eq!(budget.used(), 70);
        assert!(budget.lease(u64::MAX, "merge").is_err());
        let last = budget.lease(30, "merge").unwrap();
        assert_eq!((budget.used(), budget.limit(), last.bytes()), (100, 100, 30));
    }

    #[test]
    fn a_refused_resize_leaves_the_lease_as_it_was_and_drop_gives_back_all() {
        let budget = Budget::new(100);
        let mut lease = budget.lease(10, "overlay").unwrap();
        lease.resize(90).unwrap();
        assert!(lease.resize(101).is_err());
        assert_eq!((lease.bytes(), budget.used()), (90, 90));
        lease.resize(20).unwrap();
        let other = budget.clone().lease(5, "merge").unwrap();
        assert_eq!(budget.holders(), [("merge", 5), ("overlay", 20)]);
        drop((lease, other));
        assert_eq!(budget.used(), 0);
        assert_eq!(budget.holders(), [("merge", 0), ("overlay", 0)]);
    }

    #[test]
    fn threads_never_take_more_than_the_limit_together() {
        let budget = Budget::new(1000);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for bytes in 0..2000 {
                        let lease = budget.lease(bytes % 600, "worker");
                        assert!(budget.used() <= 1000);
                        drop(lease);
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
