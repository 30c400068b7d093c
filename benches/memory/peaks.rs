//! Anonymous memory against the limit, in every phase.

use std::path::Path;

use crate::measure::Failure;
use crate::measure::disk::Scratch;
use crate::measure::phases::Phase;
use crate::measure::plan::Plan;
use crate::measure::report::Report;
use crate::measure::run::{memory_figure, phase};
use crate::{RESIDENCIES, Sizes};

pub(crate) fn measure(sizes: &Sizes, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    for (limit_mib, keys) in &sizes.peaks {
        for stores in &sizes.stores {
            for residency in RESIDENCIES {
                let plan =
                    Plan { keys: *keys, stores: *stores, residency, limit_mib: *limit_mib, reads: 0, dir: dir.into() };
                let scratch = Scratch::new(dir, plan.disk_bytes())?;
                let plan = plan.within(scratch.path().into());
                let case = format!("{limit_mib} MiB, {stores} stores, {}, {keys} keys", plan.residency_name());
                for one in Phase::ALL {
                    memory_figure(report, &case, &plan, &phase(&plan, one, None)?)?;
                }
            }
        }
    }
    Ok(())
}
