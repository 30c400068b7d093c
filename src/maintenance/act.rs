//! One task, done for a store that is open.

use std::sync::atomic::{AtomicBool, Ordering};

use super::options::MaintenanceOptions;
use super::plan::Task;
use super::repair::{Repaired, repair};
use super::standalone::{Done, run};
use crate::error::{ErrorKind, Result};
use crate::store::{Core, Observer, write_snapshot};

/// Does a task: what the store reads through follows at once.
pub(super) fn act(core: &Core, options: &MaintenanceOptions, task: &Task, observe: Observer<'_>) -> Result<Done> {
    match task {
        Task::Snapshot { at } => {
            let head = core.head()?;
            let is_ours = *at == head || (at.epoch == head.epoch && at.version < head.version);
            if !is_ours {
                return Ok(Done::Nothing); // somebody else's: it is theirs to look after
            }
            let is_written = AtomicBool::new(false);
            let at = core.move_base(|directory, chain| {
                let written = write_snapshot(directory, chain, observe)?;
                is_written.fetch_or(written.is_some(), Ordering::Relaxed);
                Ok(written)
            })?;
            Ok(if is_written.into_inner() { Done::Snapshot(at) } else { Done::Nothing })
        }
        Task::Collapse { from, to } => {
            let done = run(&core.directory, options, task, observe)?;
            if matches!(done, Done::Collapsed { .. }) {
                match core.adopt_collapsed(*from, *to) {
                    // Somebody else was faster still, with something wider.
                    Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => {}
                    adopted => adopted?,
                }
            }
            Ok(done)
        }
        Task::Retire => core.retire(options.retained(), observe).map(Done::Retired),
        Task::Repair => repair_and_adopt(core, observe).map(Done::Repaired),
    }
}

/// Repairs, and takes in what was made anew.
pub(super) fn repair_and_adopt(core: &Core, observe: Observer<'_>) -> Result<Repaired> {
    let repaired = repair(&core.directory, observe)?;
    // Also where there was nothing to do: another process may have repaired what is damaged only in what is held open here.
    core.adopt_remade()?;
    Ok(repaired)
}
