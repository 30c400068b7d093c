//! Where the tool writes, and what it says while it works.

use std::fmt;
use std::io::{ErrorKind, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use super::failure::{Failure, Outcome};
use super::json::Json;
use super::spelling::harmless;
use super::table::bytes_for_people;
use crate::clock::{Clock, SystemClock};

/// How often progress is shown.
const BEAT: Duration = Duration::from_millis(100);

/// Where a run of the tool writes.
pub struct Console<'a> {
    /// Results.
    pub out: &'a mut dyn Write,
    /// Errors, hints and progress.
    pub err: &'a mut (dyn Write + Send),
    /// Whether somebody watches `err`: only then progress is shown.
    pub is_watched: bool,
}

impl fmt::Debug for Console<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("is_watched", &self.is_watched).finish_non_exhaustive()
    }
}

impl Console<'_> {
    /// Writes a line of text.
    pub(super) fn line(&mut self, text: impl fmt::Display) -> Outcome<()> {
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Writes a JSON document in a line.
    pub(super) fn json(&mut self, document: &Json) -> Outcome<()> {
        self.line(document)
    }

    /// As [`line`](Self::line), where the work goes on and its exit code counts even if nobody reads any more (`| head`).
    pub(super) fn say(&mut self, text: impl fmt::Display) -> Outcome<()> {
        match self.line(text) {
            Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            said => said,
        }
    }

    /// Says something about the work.
    pub(super) fn note(&mut self, text: &str) -> Outcome<()> {
        Ok(writeln!(self.err, "{}", harmless(text))?)
    }

    /// Starts to show how many bytes of `total_bytes` (if that is known) are done.
    pub(super) fn progress(&mut self, doing: impl Into<String>, total_bytes: Option<u64>) -> Progress<'_> {
        Progress {
            err: self.is_watched.then_some(&mut *self.err),
            doing: doing.into(),
            total_bytes,
            clock: SystemClock::new(),
            shown_at: None,
        }
    }
}

/// A line on the standard error that says how far the work is; gone when it is dropped.
pub(super) struct Progress<'a> {
    /// `None` where nobody watches.
    err: Option<&'a mut (dyn Write + Send)>,
    doing: String,
    total_bytes: Option<u64>,
    clock: SystemClock,
    shown_at: Option<Duration>,
}

impl Progress<'_> {
    /// Shows that `bytes` are done, now and then. Never ends the work.
    pub(super) fn at(&mut self, bytes: u64) -> ControlFlow<()> {
        let Some(err) = &mut self.err else { return ControlFlow::Continue(()) };
        let now = self.clock.elapsed();
        if self.shown_at.is_none_or(|shown| now.saturating_sub(shown) >= BEAT) {
            self.shown_at = Some(now);
            let done = bytes_for_people(bytes);
            let of = match self.total_bytes {
                Some(total) if total > 0 => {
                    format!(" of {} ({} %)", bytes_for_people(total), bytes.saturating_mul(100) / total)
                }
                _ => String::new(),
            };
            // Back to the start of the line, and what was longer before away. A terminal that cannot be written is no error.
            _ = write!(err, "\r{}: {done}{of}\x1b[K", harmless(&self.doing)).and_then(|()| err.flush());
        }
        ControlFlow::Continue(())
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if let (Some(err), Some(_)) = (&mut self.err, self.shown_at) {
            _ = write!(err, "\r\x1b[K").and_then(|()| err.flush());
        }
    }
}
