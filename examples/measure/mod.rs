//! What the tools that measure have in common: the workload, the phases of a run in processes of their own, what the kernel
//! counts, and figures that must hold. Not a program: `scale`, `memory_plot`, `flights` and the benches include it.

#![allow(dead_code, reason = "each program uses a part of it")]
#![allow(unused_imports, reason = "a bench without a harness drops the tests, but not what they import")]

pub(crate) mod calendar;
pub(crate) mod cgroup;
pub(crate) mod child;
pub(crate) mod disk;
pub(crate) mod guardian;
pub(crate) mod kernel;
pub(crate) mod meter;
pub(crate) mod phases;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod stores;
pub(crate) mod workload;

/// Why a program ends early.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// A mebibyte.
pub(crate) const MIB: u64 = 1 << 20;

/// Only for people and ratios: what is lost beyond 2^53 doesn't show.
#[expect(clippy::cast_precision_loss, reason = "figures are rounded to a few digits")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// Bytes as MiB.
pub(crate) fn mebibytes(bytes: u64) -> f64 {
    float(bytes) / float(MIB)
}
