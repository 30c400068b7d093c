//! The file layer: what everything above may ask of a file system, and what a crash may then leave.
//!
//! ```text
//!   publish   write → sync → rename that never replaces → sync the directory
//!   lock      one holder of a work directory
//!   scratch   temporary files, which nobody needs after the process
//!      │
//!    Disk ──── RealDisk   the machine's file system; maps files (`map`, the only unsafe code)
//!         └─── SimDisk    in memory; loses power, fails and tears on demand (tests only)
//! ```
//!
//! **Order.** Nothing is durable by itself. [`WriteFile::sync`] makes a file's bytes durable, [`Disk::sync_dir`] the names in a
//! directory; between them everything may survive a crash on its own, in any order. `NewFile::publish` puts the steps into the only
//! order in which a name never leads to half a file, and tells apart what is certainly not published from what may be.
//!
//! **Durability.** After a failed sync the file is thrown away; the sync is never repeated, since the kernel may have dropped the
//! bytes and would report success. A reader that finds a name which an earlier process published must sync the directory
//! before it builds on it: that process may have died between the rename and its own sync.
//!
//! **Memory.** Nothing here buffers: an append is a write, a read goes into the caller's buffer. A mapping is the kernel's page cache,
//! not heap, and lives until the last view of it is dropped.
//!
//! **Not here.** No overwriting and no truncating, except for the log, which says when; no renaming over a file, no following of symbolic links in the last component of a path.
//! Ancestors are the caller's: it decides which root to trust. Linux only; on network file systems the answer to a rename may be
//! lost after it was done, which this layer does not repair.

mod contract;
mod exact;
mod held;
mod lock;
mod map;
mod publish;
mod real;
mod scratch;
#[cfg(any(test, feature = "conformance"))]
pub mod sim;

pub use contract::{Access, DirEntry, Disk, DiskLock, FileKind, ReadFile, Stat, WriteFile};
pub(crate) use lock::FileLock;
pub use publish::PublishError;
pub(crate) use publish::{NewFile, create_dirs};
pub use real::RealDisk;
pub(crate) use scratch::{ScratchDir, ScratchFile};
#[cfg(any(test, feature = "conformance"))]
pub use sim::SimDisk;
