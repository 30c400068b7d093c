//! The command line `alluvium`: looks at stores, and looks after them, without the process that writes them.
//!
//! ```text
//! arguments ─► args: typed ─► one function a command ─► History, Maintenance ─► output: text for people, or JSON
//! ```
//!
//! It is the first user of the public API: it reads checkpoint directories alone and needs no work directory. Results go to the
//! standard output, everything about them (errors, hints, progress) to the standard error. Keys, values and names are escaped, so
//! that nothing in a store reaches the terminal as a control character. Memory does not grow with what is read.
//!
//! What it does *not* do: write entries. A store's writer is a job.

mod args;
mod console;
mod data;
mod failure;
mod inspect;
mod json;
mod log;
mod log_args;
mod maintain;
mod place;
mod run;
mod spelling;
mod stats;
mod table;
mod upkeep;

pub use console::Console;
pub use failure::Exit;
pub use run::run;
