//! The group commit under many schedules: the same file as in the crate, over locks and threads whose order a test decides.

#[allow(dead_code, clippy::duplicate_mod, reason = "the second copy is the point: it is built over other primitives")]
#[path = "../commit.rs"]
mod commit;
#[allow(dead_code, clippy::duplicate_mod, reason = "as above")]
#[path = "../contract.rs"]
mod contract;
mod primitives;
#[allow(dead_code, clippy::duplicate_mod, reason = "as above")]
#[path = "../queue.rs"]
mod queue;
mod tests;
#[allow(dead_code, clippy::duplicate_mod, reason = "as above")]
#[path = "../ticket.rs"]
mod ticket;

use super::record;
