//! The pieces that the group commit is made of; its schedule tests put others in their place.

pub(super) use std::sync::atomic::{AtomicBool, Ordering};
pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
pub(super) use std::thread::{Thread, current, park, park_timeout, yield_now};

/// How often a waiter lets others run before it sleeps. Where syncs are fast its answer is there by then, and neither its sleep nor its
/// waking costs a system call.
pub(super) const PATIENCE: u32 = 50;
