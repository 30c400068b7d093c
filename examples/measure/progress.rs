//! How far a phase is: a bar where standard error is a terminal, plain lines elsewhere.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::MIB;
use super::kernel::held;

/// So many plain lines a phase.
const LINES: u64 = 4;

/// The progress of one phase.
#[derive(Debug)]
pub(crate) struct Progress {
    label: String,
    total: u64,
    done: u64,
    bar: Option<ProgressBar>,
}

impl Progress {
    pub(crate) fn start(label: impl Into<String>, total: u64) -> Self {
        let label = label.into();
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
            let template = "  {prefix:<28} {wide_bar} {human_pos}/{human_len} {per_sec} {eta} {msg}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            bar.set_prefix(label.clone());
            bar
        });
        Self { label, total, done: 0, bar }
    }

    /// So many more are done.
    pub(crate) fn advance(&mut self, by: u64) {
        let before = self.part();
        self.done += by;
        let anonymous_mib = held().anonymous_bytes / MIB;
        if let Some(bar) = &self.bar {
            bar.set_position(self.done);
            bar.set_message(format!("{anonymous_mib} MiB"));
        } else if self.part() > before {
            let (label, done, total) = (&self.label, self.done, self.total);
            eprintln!("  {label:<28} {done:>12} of {total}, {anonymous_mib} MiB of anonymous memory");
        }
    }

    fn part(&self) -> u64 {
        (self.done * LINES).checked_div(self.total).unwrap_or(LINES)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
