//! The pieces that the group commit is made of; its schedule tests put others in their place.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
pub(super) use std::thread::{Thread, current, park, park_timeout};
