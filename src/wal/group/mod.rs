//! Group commit: writers that come at the same time share a write and a sync.
//!
//! ```text
//!   commit      who leads, who waits, and for how long
//!   queue       batches, their LSNs, and what becomes of them when one fails
//!   ticket      what the writers of a batch look at
//!   contract    what it asks of whoever writes the batches, and what its writers ask for
//! ```
//! It knows nothing of files.

mod commit;
mod contract;
mod primitives;
mod queue;
#[cfg(test)]
mod schedules;
mod ticket;

pub(super) use commit::{Group, Written};
pub(super) use contract::{Attempt, Failed, Need, Sink};

// Named here too, since `schedules` builds these files a second time and they name it the same way in both places.
use super::record;
