//! The write-ahead log through its public face.

mod behaviours;
mod beside;
mod crash;
mod crash_modes;
mod damage;
mod disk;
mod failures;
mod field;
mod format;
mod hostile;
mod model;
mod processes;
mod support;
#[cfg(feature = "cli")]
mod tool;
mod untrusted;
