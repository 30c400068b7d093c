//! The scheduler's locks and threads. Time does not pass in it: a wait with a timeout lets somebody else run, and is over.

use std::time::Duration;

pub(super) use shuttle::sync::atomic::{AtomicBool, Ordering};
pub(super) use shuttle::sync::{Condvar, Mutex, MutexGuard};
pub(super) use shuttle::thread::{Thread, current, park, yield_now};

pub(super) const PATIENCE: u32 = 1;

pub(super) fn park_timeout(_: Duration) {
    shuttle::thread::yield_now();
}
