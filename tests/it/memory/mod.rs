//! Memory is one number: the cases from the field, each in a process of its own whose anonymous memory is watched.
//!
//! ```text
//!   watch    what the kernel counts as anonymous, its peak between two moments
//!   child    this very binary, started again for one case; it tells its numbers on its standard output
//!   stores   stores of many keys, sized for CI by small limits: the state is 20 times the limit
//!   tests    one a case: M1, M3 … M27, F1
//! ```
mod budget;
#[cfg(feature = "rocksdb")]
mod cases;
#[cfg(feature = "rocksdb")]
mod child;
#[cfg(feature = "rocksdb")]
mod many;
#[cfg(feature = "rocksdb")]
mod stores;
#[cfg(feature = "rocksdb")]
mod watch;
