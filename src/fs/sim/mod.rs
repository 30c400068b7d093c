//! A file system in memory that loses power, for crash tests.
//!
//! ```text
//!   SimDisk ── faults   counts operations; says which one fails, and when the power goes
//!      └────── image    what programs see, what is durable, and the pieces in between
//!                          │ survive(which pieces)
//!                          ▼
//!                       a new SimDisk: what is found after the power comes back
//! ```
//!
//! **Pieces.** Every append since a file's last sync and every change of a name since its directory's last sync is a piece that a power
//! loss keeps or loses on its own, whatever the order they were issued in. A rename is one piece: both names change or none. Of an append a
//! part may survive; what is lost before a surviving part reads as zeros. A name that survives without its file's bytes leads to a
//! shorter or empty file; a file, or a directory with all below it, whose name is lost is gone, however well it was synced. No file
//! system in use is worse than that, and most are better; the code above may not rely on it.
//!
//! **Failed syncs.** What a failed [`WriteFile::sync`](super::WriteFile::sync) should have made durable stays visible, and no later sync makes it
//! durable: the kernel marks such pages clean. Names are not treated so: where a directory's sync fails, a journaling
//! file system stops altogether.
//!
//! **Cost.** All bytes are shared: an image of a small disk takes a few microseconds and copies only files with pieces.
//!
//! **Not here.** Permissions, symbolic links, space that runs out by itself, and hard links; [`SimDisk::fail_at`] reports any error that is asked for.

mod disk;
mod faults;
mod image;
mod loss;
#[cfg(test)]
mod tests;

pub use disk::SimDisk;
pub use faults::{Operation, Persistence};
pub use loss::Survivors;
