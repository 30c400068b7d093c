//! The crash proof: every crash point of every short history, every subset of what was not synced, and the contract after it.
//!
//! ```text
//!   model     operations, and what the store must hold after each of them
//!   disk      a disk that takes an image before each change; can be told to lie about syncs
//!   harness   histories ─► moments of their last operation ─► surviving images ─► recoveries ─► their moments ─► …
//!   checks    the contract: what a provider shows is one of the states that the model allows, whole
//!   tests     exhaustive · upkeep (clean-up, repair, outsiders) · planted bugs · faults without a crash · damaged files · bytes read at open
//! ```
//!
//! **How it is exhaustive.** A crash inside an operation is a crash of the history that ends with it, so only the last
//! operation's moments are looked at, for every history up to the longest. At each moment the disk has some unsynced pieces;
//! every subset of them (sampled above 2^10) makes one image, and the process may also be killed with all pieces
//! still pending. Images that differ only in the bytes of temporary files are one: no reader opens such a file, which the
//! disk checks. Every image meets the index as it was, an index that is lost, and one as it was earlier.
//!
//! **Repeating a failure.** Nothing depends on time or threads; a violation names base, history, moment and survivors.

mod bytes;
mod checks;
mod damage;
mod disk;
mod exhaustive;
mod faults;
mod harness;
mod model;
mod planted;
mod upkeep;
