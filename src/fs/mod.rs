//! The file layer: a small `Disk` trait and what stands behind it.

mod contract;

pub use contract::{DirEntry, Disk, FileKind, ReadFile, Stat, WriteFile};
