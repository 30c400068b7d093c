//! [`Budget`]: one limit for everything that holds memory, and a table of who holds how much.
//!
//! ```text
//! resize          takes what is free, or is refused
//! resize_waiting  asks the largest holder that can give some back to do so, and waits until a deadline
//! is_asked        whether somebody waits for this holder: it spills what it has at its next write
//! ```
//! Nobody is made to give: a holder notices the request by itself, in its own thread. Whoever can go on by spilling its own
//! does that first, so only those wait that hold next to nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

/// How many holders the error for a used-up budget names.
const NAMED_HOLDERS: usize = 3;

/// A limit on bytes that any number of holders share. Cheap to clone; all clones are one budget.
///
/// It counts what holders say they hold.
#[derive(Debug, Clone)]
pub(crate) struct Budget {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limit_bytes: u64,
    used_bytes: AtomicU64,
    /// Guards which holders there are. Nothing is taken under it; a lease takes it when it is made and dropped, and counts
    /// through its own pointer in between.
    holders: Mutex<Holders>,
    /// Guards nothing but the wait for `freed`: a waiter looks at the counters under it, who gives back signals under it.
    turn: Mutex<()>,
    freed: Condvar,
    waiting: AtomicU64,
    waits: AtomicU64,
    spills: AtomicU64,
    refusals: AtomicU64,
}

#[derive(Debug, Default)]
struct Holders {
    next: u64,
    by_number: BTreeMap<u64, Arc<Holder>>,
}

/// Who holds a lease.
#[derive(Debug)]
struct Holder {
    kind: &'static str,
    /// Whose it is: the store, where it is one's own.
    owner: Option<Arc<str>>,
    bytes: AtomicU64,
    /// Whether it looks at `is_asked`, and gives back then.
    can_give: bool,
    is_asked: AtomicBool,
}

/// A share in the memory of a [`Backend`](crate::Backend), for what is not a store of it: the queue of a log, say. Clones are one share.
#[derive(Debug, Clone)]
pub struct MemoryShare(Budget);

impl MemoryShare {
    pub(crate) fn of(budget: &Budget) -> Self {
        Self(budget.clone())
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.0
    }
}

/// Bytes taken from a [`Budget`]; dropping it gives them back.
#[derive(Debug)]
pub(crate) struct Lease {
    inner: Arc<Inner>,
    number: u64,
    holder: Arc<Holder>,
    bytes: u64,
}

/// Bytes on the row of a lease, taken and given back by themselves; for what is too short-lived to have a row of its own.
#[derive(Debug)]
pub(crate) struct Part {
    inner: Arc<Inner>,
    holder: Arc<Holder>,
    bytes: u64,
}

/// What a lease is for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Purpose {
    /// Its row in the table.
    pub(crate) kind: &'static str,
    /// Whose it is, where it belongs to one store.
    pub(crate) owner: Option<Arc<str>>,
    /// Whether the holder looks at [`Lease::is_asked`] and gives back then.
    pub(crate) can_give: bool,
}

impl From<&'static str> for Purpose {
    fn from(kind: &'static str) -> Self {
        Self { kind, ..Self::default() }
    }
}

/// One row of the table of holders: all leases of one kind and one owner.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct MemoryHolder {
    /// What holds it.
    pub kind: &'static str,
    /// The store that it belongs to; `None` for what all stores share.
    pub store: Option<Arc<str>>,
    /// How much, in bytes.
    pub bytes: u64,
}

/// How often the budget was short, since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Shortages {
    /// Threads that wait for memory right now.
    pub waiting: u64,
    /// Waits so far, those that are under way included.
    pub waits: u64,
    /// Sorted parts that transactions have written to the work directory because memory was short.
    pub spills: u64,
    /// Requests that ended in [`ErrorKind::MemoryLimit`].
    pub refusals: u64,
}

impl Budget {
    /// A budget of `limit_bytes`, all of it free.
    pub(crate) fn new(limit_bytes: u64) -> Self {
        let inner = Inner {
            limit_bytes,
            used_bytes: AtomicU64::new(0),
            holders: Mutex::default(),
            turn: Mutex::default(),
            freed: Condvar::new(),
            waiting: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            spills: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes `bytes` for a holder, which gets a row in [`holders`](Self::holders).
    ///
    /// # Errors
    /// `MemoryLimit` where they are not free; nothing is taken then.
    pub(crate) fn lease(&self, bytes: u64, purpose: impl Into<Purpose>) -> Result<Lease> {
        let mut lease = self.nothing(purpose.into());
        lease.resize(bytes)?;
        Ok(lease)
    }

    /// As [`lease`](Self::lease), but waits for others to give back, at most `timeout`.
    ///
    /// # Errors
    /// `MemoryLimit` where they did not.
    pub(crate) fn lease_waiting(&self, bytes: u64, purpose: impl Into<Purpose>, timeout: Duration) -> Result<Lease> {
        let mut lease = self.nothing(purpose.into());
        lease.resize_waiting(bytes, timeout)?;
        Ok(lease)
    }

    fn nothing(&self, purpose: Purpose) -> Lease {
        let Purpose { kind, owner, can_give } = purpose;
        let (bytes, is_asked) = (AtomicU64::new(0), AtomicBool::new(false));
        let holder = Arc::new(Holder { kind, owner, bytes, can_give, is_asked });
        let mut holders = self.inner.holders();
        let number = holders.next;
        holders.next += 1;
        holders.by_number.insert(number, Arc::clone(&holder));
        drop(holders);
        Lease { inner: Arc::clone(&self.inner), number, holder, bytes: 0 }
    }

    /// Bytes taken by all holders together.
    #[cfg(test)]
    pub(crate) fn used(&self) -> u64 {
        self.inner.used_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that may be taken at most.
    pub(crate) fn limit(&self) -> u64 {
        self.inner.limit_bytes
    }

    /// Bytes taken by holders of one kind.
    pub(crate) fn of_kind(&self, kind: &str) -> u64 {
        let holders = self.inner.holders();
        holders.by_number.values().filter(|holder| holder.kind == kind).map(|holder| holder.bytes()).sum()
    }

    /// Who holds how much, a row for each kind and owner, the largest first; holders of nothing are left out. While leases
    /// change, the rows need not add up to [`used`](Self::used).
    pub(crate) fn holders(&self) -> Vec<MemoryHolder> {
        self.inner.table()
    }

    /// How often it was short.
    pub(crate) fn shortages(&self) -> Shortages {
        Shortages {
            waiting: self.inner.waiting.load(Ordering::Relaxed),
            waits: self.inner.waits.load(Ordering::Relaxed),
            spills: self.inner.spills.load(Ordering::Relaxed),
            refusals: self.inner.refusals.load(Ordering::Relaxed),
        }
    }
}

impl Inner {
    fn holders(&self) -> std::sync::MutexGuard<'_, Holders> {
        // Each change of the set is one call, so it is whole whatever happened to a thread that held it.
        self.holders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, holder: &Holder, more: u64) -> bool {
        let within = |used: u64| used.checked_add(more).filter(|sum| *sum <= self.limit_bytes);
        // Ordered with `waiting`: a waiter counts itself before it looks, whoever gives back looks for waiters after it has.
        if self.used_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, within).is_err() {
            return false;
        }
        holder.bytes.fetch_add(more, Ordering::Relaxed);
        true
    }

    fn give_back(&self, holder: &Holder, bytes: u64) {
        if bytes == 0 {
            return;
        }
        holder.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.used_bytes.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            self.freed.notify_all();
        }
    }

    fn table(&self) -> Vec<MemoryHolder> {
        let mut rows: BTreeMap<(&'static str, Option<Arc<str>>), u64> = BTreeMap::new();
        for holder in self.holders().by_number.values() {
            *rows.entry((holder.kind, holder.owner.clone())).or_default() += holder.bytes();
        }
        let rows = rows.into_iter().filter(|(_, bytes)| *bytes > 0);
        let mut rows: Vec<_> = rows.map(|((kind, store), bytes)| MemoryHolder { kind, store, bytes }).collect(); // few a store
        rows.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.cmp(b)));
        rows
    }

    /// Asks the holder of the most that can give to do so; says whether one besides `own` holds more than `least_bytes`.
    fn ask_largest(&self, own: u64, least_bytes: u64) -> bool {
        let holders = self.holders();
        let others = holders.by_number.iter().filter(|(number, holder)| **number != own && holder.can_give);
        let largest = others.map(|(_, holder)| holder).max_by_key(|holder| holder.bytes());
        let largest = largest.filter(|holder| holder.bytes() > least_bytes);
        if let Some(largest) = largest {
            largest.is_asked.store(true, Ordering::Relaxed);
        }
        largest.is_some()
    }

    fn refusal(&self, requested_bytes: u64) -> Error {
        let named: Vec<String> = self.table().iter().take(NAMED_HOLDERS).map(ToString::to_string).collect();
        let kind = ErrorKind::MemoryLimit { requested_bytes, limit_bytes: self.limit_bytes };
        let by = if named.is_empty() { "nobody".to_owned() } else { named.join(", ") };
        Error::new(kind, format!("the memory budget is used up; held by {by}"))
    }
}

impl std::fmt::Display for MemoryHolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(store) = &self.store {
            write!(f, " of {store}")?;
        }
        write!(f, " ({} bytes)", self.bytes)
    }
}

impl Holder {
    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Lease {
    /// Takes more or gives back, so that the lease is for `bytes`. Giving back never fails.
    ///
    /// # Errors
    /// `MemoryLimit` where the difference is not free; the lease stays as it was.
    pub(crate) fn resize(&mut self, bytes: u64) -> Result<()> {
        if self.try_resize(bytes) {
            return Ok(());
        }
        self.inner.refusals.fetch_add(1, Ordering::Relaxed);
        Err(self.inner.refusal(bytes - self.bytes))
    }

    /// As [`resize`](Self::resize), without the error.
    pub(crate) fn try_resize(&mut self, bytes: u64) -> bool {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            if !self.take(more) {
                return false;
            }
        } else {
            self.give_back(self.bytes - bytes);
        }
        self.bytes = bytes;
        true
    }

    /// As [`resize`](Self::resize), but where the bytes are not free, asks the largest holder for some and waits, at most
    /// `timeout`. Where nobody could give anything, it does not wait.
    ///
    /// # Errors
    /// `MemoryLimit`, naming the largest holders.
    pub(crate) fn resize_waiting(&mut self, bytes: u64, timeout: Duration) -> Result<()> {
        if self.try_resize(bytes) {
            return Ok(());
        }
        let inner = Arc::clone(&self.inner);
        inner.waits.fetch_add(1, Ordering::Relaxed);
        inner.waiting.fetch_add(1, Ordering::SeqCst);
        let is_taken = self.wait_for(bytes - self.bytes, timeout);
        inner.waiting.fetch_sub(1, Ordering::SeqCst);
        if !is_taken {
            inner.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(inner.refusal(bytes - self.bytes));
        }
        self.bytes = bytes;
        Ok(())
    }

    fn wait_for(&self, more: u64, timeout: Duration) -> bool {
        let inner = &self.inner;
        let mut is_taken = false;
        let mut goes_on_waiting = |(): &mut ()| {
            is_taken = self.take(more); // which never signals, so it may run under `turn`
            let is_possible = more <= inner.limit_bytes - self.bytes;
            !is_taken && is_possible && inner.ask_largest(self.number, 0)
        };
        let turn = inner.turn.lock().unwrap_or_else(PoisonError::into_inner);
        drop(inner.freed.wait_timeout_while(turn, timeout, &mut goes_on_waiting));
        is_taken
    }

    /// Whether somebody waits for bytes and this lease is the largest. The holder should give back what it can, and calls
    /// [`answered`](Self::answered).
    pub(crate) fn is_asked(&self) -> bool {
        self.holder.is_asked.load(Ordering::Relaxed)
    }

    /// Asks whoever holds most, if it is more than this, to give some back, without waiting for it.
    pub(crate) fn ask_larger(&self) {
        self.inner.ask_largest(self.number, self.bytes);
    }

    /// Notes that the holder has given back what it could.
    pub(crate) fn answered(&self) {
        self.holder.is_asked.store(false, Ordering::Relaxed);
    }

    /// Counts a spill.
    pub(crate) fn count_spill(&self) {
        self.inner.spills.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes this lease is for.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` more on the row of this lease, which are not the lease's own.
    ///
    /// # Errors
    /// `MemoryLimit` where they are not free.
    pub(crate) fn part(&self, bytes: u64) -> Result<Part> {
        if self.take(bytes) {
            return Ok(Part { inner: Arc::clone(&self.inner), holder: Arc::clone(&self.holder), bytes });
        }
        self.inner.refusals.fetch_add(1, Ordering::Relaxed);
        Err(self.inner.refusal(bytes))
    }

    fn take(&self, more: u64) -> bool {
        self.inner.take(&self.holder, more)
    }

    fn give_back(&self, bytes: u64) {
        self.inner.give_back(&self.holder, bytes);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.inner.give_back(&self.holder, self.bytes);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.inner.holders().by_number.remove(&self.number);
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_mins(1);

    fn row(kind: &'static str, bytes: u64) -> MemoryHolder {
        MemoryHolder { kind, store: None, bytes }
    }

    fn giving(kind: &'static str, owner: &str) -> Purpose {
        Purpose { kind, owner: Some(Arc::from(owner)), can_give: true }
    }

    #[test]
    fn a_lease_that_does_not_fit_takes_nothing() {
        let budget = Budget::new(100);
        let _first = budget.lease(70, "overlay").unwrap();
        let error = budget.lease(31, "merge").unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::MemoryLimit { requested_bytes: 31, limit_bytes: 100 });
        assert!(error.to_string().contains("overlay (70 bytes)"), "{error}");
        assert_eq!(budget.used(), 70);
        assert!(budget.lease(u64::MAX, "merge").is_err());
        let last = budget.lease(30, "merge").unwrap();
        assert_eq!((budget.used(), budget.limit(), last.bytes()), (100, 100, 30));
        assert_eq!(budget.shortages(), Shortages { refusals: 2, ..Shortages::default() });
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
        assert_eq!(budget.holders(), [row("overlay", 20), row("merge", 5)]);
        assert_eq!((budget.of_kind("merge"), budget.of_kind("nothing")), (5, 0));
        drop((lease, other));
        assert_eq!(budget.used(), 0);
        assert_eq!(budget.holders(), []);
    }

    #[test]
    fn a_part_is_on_the_row_of_its_lease_and_may_outlive_it() {
        let budget = Budget::new(100);
        let row_lease = budget.lease(10, "queue").unwrap();
        let (one, two) = (row_lease.part(30).unwrap(), row_lease.part(40).unwrap());
        assert_eq!((budget.used(), budget.holders()), (80, vec![row("queue", 80)]));
        let refused = row_lease.part(21).unwrap_err();
        assert_eq!(refused.kind(), &ErrorKind::MemoryLimit { requested_bytes: 21, limit_bytes: 100 });
        drop(one);
        assert_eq!((budget.used(), row_lease.bytes()), (50, 10));
        drop(row_lease);
        assert_eq!((budget.used(), budget.holders()), (40, vec![]));
        drop(two);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_largest_that_can_give_is_asked_and_who_waits_goes_on_when_it_has_given() {
        let budget = Budget::new(100);
        let _fixed = budget.lease(40, "index").unwrap();
        let _small = budget.lease(10, giving("overlay", "a")).unwrap();
        let mut large = budget.lease(30, giving("overlay", "b")).unwrap();
        std::thread::scope(|scope| {
            let waiter =
                scope.spawn(|| budget.lease_waiting(40, giving("overlay", "c"), WAIT).map(|lease| lease.bytes()));
            while !large.is_asked() {
                std::thread::yield_now();
            }
            assert_eq!(budget.shortages().waiting, 1);
            large.resize(5).unwrap();
            large.answered();
            assert_eq!(waiter.join().unwrap().unwrap(), 40);
        });
        let after = Shortages { waits: 1, ..Shortages::default() };
        assert_eq!(budget.shortages(), after);
    }

    #[test]
    fn who_waits_in_vain_learns_who_holds_the_most() {
        let budget = Budget::new(100);
        let _others =
            [5, 20, 50].map(|bytes| budget.lease(bytes, giving("overlay", &format!("op/0/{bytes}"))).unwrap());
        let error = budget.lease_waiting(40, "restore", Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("overlay of op/0/50 (50 bytes), overlay of op/0/20 (20 bytes)"), "{error}");
        assert_eq!(budget.used(), 75);
    }

    #[test]
    fn where_nobody_can_give_nobody_waits() {
        let budget = Budget::new(100);
        let _fixed = budget.lease(90, "index").unwrap();
        assert!(budget.lease_waiting(20, "restore", Duration::MAX).is_err());
        assert!(budget.lease_waiting(101, "restore", Duration::MAX).is_err());
        assert_eq!(budget.shortages().waiting, 0);
    }

    #[test]
    fn threads_never_take_more_than_the_limit_together_and_none_waits_for_ever() {
        let budget = Budget::new(1000);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let budget = &budget;
                scope.spawn(move || {
                    for bytes in 0..2000 {
                        let purpose = giving("worker", "a");
                        let lease = if (bytes + thread) % 3 == 0 {
                            budget.lease_waiting(bytes % 600, purpose, WAIT)
                        } else {
                            budget.lease(bytes % 600, purpose)
                        };
                        assert!(budget.used() <= 1000);
                        drop(lease);
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }
}
