//! What goes wrong when: the count of operations, and the faults that wait for theirs.

use std::io;

/// The kinds of operations that can be told to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// [`Disk::create_new`](crate::fs::Disk::create_new).
    Create,
    /// [`WriteFile::append`](crate::fs::WriteFile::append).
    Append,
    /// [`WriteFile::sync`](crate::fs::WriteFile::sync).
    Sync,
    /// [`Disk::rename_new`](crate::fs::Disk::rename_new).
    Rename,
    /// [`Disk::remove`](crate::fs::Disk::remove).
    Remove,
    /// [`Disk::create_dir`](crate::fs::Disk::create_dir).
    CreateDir,
    /// [`Disk::sync_dir`](crate::fs::Disk::sync_dir).
    SyncDir,
    /// [`Disk::open`](crate::fs::Disk::open). From here on operations change nothing and are no crash points.
    Open,
    /// [`ReadFile::read_exact_at`](crate::fs::ReadFile::read_exact_at), each part of it, and mapping.
    Read,
    /// [`Disk::list`](crate::fs::Disk::list).
    List,
    /// [`Disk::stat`](crate::fs::Disk::stat).
    Stat,
}

impl Operation {
    /// Whether it changes the disk or makes something durable. Those operations are counted, and are the crash points.
    #[must_use]
    pub fn is_crash_point(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::List | Self::Stat)
    }
}

/// How long a fault lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// The operation fails once; the same call succeeds afterwards.
    Once,
    /// From then on every such operation fails.
    ForEver,
}

/// Whether a failing operation takes effect before it fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Undone,
    Done,
}

/// What an operation shall do.
#[derive(Debug)]
pub(super) enum Verdict {
    Succeed,
    /// Fail without effect, or with as little of it as the operation has (an append may have written a part).
    Fail(io::Error),
    /// Take effect, then fail.
    FailLate(io::Error),
    /// The power is off: nothing happens any more.
    Dead(io::Error),
}

/// The schedule of faults, and the counters that prove that they fired.
#[derive(Debug, Default)]
pub(super) struct Faults {
    pub(super) operations: u64,
    pub(super) fired: u64,
    pub(super) power_is_off: bool,
    pub(super) short_reads: bool,
    crash: Option<Crash>,
    failures: Vec<Failure>,
}

#[derive(Debug)]
struct Crash {
    operations_left: u64,
    effect: Effect,
}

#[derive(Debug)]
struct Failure {
    operations: Vec<Operation>,
    operations_left: u64,
    error: io::ErrorKind,
    persistence: Persistence,
    effect: Effect,
}

impl Faults {
    pub(super) fn crash_at(&mut self, nth: u64, effect: Effect) {
        self.crash = Some(Crash { operations_left: nth, effect });
    }

    pub(super) fn fail_at(
        &mut self,
        nth: u64,
        operations: &[Operation],
        error: io::ErrorKind,
        persistence: Persistence,
        effect: Effect,
    ) {
        let operations = operations.to_vec();
        self.failures.push(Failure { operations, operations_left: nth.max(1), error, persistence, effect });
    }

    pub(super) fn clear(&mut self) {
        self.failures.clear();
        self.crash = None;
    }

    /// Counts one operation and decides about it.
    pub(super) fn judge(&mut self, operation: Operation) -> Verdict {
        if self.power_is_off {
            return Verdict::Dead(power_is_off());
        }
        if operation.is_crash_point() {
            self.operations += 1;
            if let Some(verdict) = self.crash_now() {
                return verdict;
            }
        }
        self.fail_now(operation)
    }

    fn crash_now(&mut self) -> Option<Verdict> {
        let crash = self.crash.as_mut()?;
        crash.operations_left = crash.operations_left.saturating_sub(1);
        if crash.operations_left > 0 {
            return None;
        }
        self.fired += 1;
        self.power_is_off = true;
        Some(match crash.effect {
            Effect::Undone => Verdict::Dead(power_is_off()),
            Effect::Done => Verdict::FailLate(power_is_off()),
        })
    }

    fn fail_now(&mut self, operation: Operation) -> Verdict {
        let mut verdict = Verdict::Succeed;
        for failure in &mut self.failures {
            if !failure.covers(operation) || !failure.is_due() {
                continue;
            }
            if matches!(verdict, Verdict::Succeed) {
                self.fired += 1;
                verdict = failure.verdict();
            }
        }
        self.failures.retain(|failure| failure.operations_left > 0 || failure.persistence == Persistence::ForEver);
        verdict
    }
}

impl Failure {
    fn covers(&self, operation: Operation) -> bool {
        if self.operations.is_empty() { operation.is_crash_point() } else { self.operations.contains(&operation) }
    }

    fn is_due(&mut self) -> bool {
        self.operations_left = self.operations_left.saturating_sub(1);
        self.operations_left == 0
    }

    fn verdict(&self) -> Verdict {
        let error = io::Error::new(self.error, "simulated");
        match self.effect {
            Effect::Undone => Verdict::Fail(error),
            Effect::Done => Verdict::FailLate(error),
        }
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("the power is off")
}
