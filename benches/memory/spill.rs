//! One transaction far larger than memory against the same one where it fits.

use std::path::Path;

use crate::measure::disk::Scratch;
use crate::measure::plan::Plan;
use crate::measure::report::{Must, Report, median};
use crate::measure::run::ALLOWANCE_MIB;
use crate::measure::workload::{KEY_BYTES, VALUE_BYTES};
use crate::measure::{Failure, MIB, float, mebibytes};
use crate::task::{self, TRANSACTION};
use crate::{RESIDENCIES, Sizes};

/// How many times the limit the transaction is.
const TIMES: u64 = 10;
/// So many times that limit holds it whole, with its table, in the share that transactions have.
const ROOMY: u64 = 100;
const ROUNDS: u64 = 3;

pub(crate) fn measure(sizes: &Sizes, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    let limit_mib = sizes.spill_limit_mib;
    let keys = TIMES * limit_mib * MIB / (KEY_BYTES + VALUE_BYTES) as u64;
    for residency in RESIDENCIES {
        let tight = Plan { keys, stores: 1, residency, limit_mib, reads: 0, dir: dir.into() };
        let roomy = Plan { limit_mib: limit_mib * ROOMY, ..tight.clone() };
        let case = format!("a transaction of {keys} keys, {limit_mib} MiB, {}", tight.residency_name());
        let (mut ratios, mut speeds, mut peak) = (vec![], vec![], 0.0_f64); // one a round
        for _ in 0..ROUNDS {
            let mut nanos = |plan: &Plan| -> Result<f64, Failure> {
                let scratch = Scratch::new(dir, plan.disk_bytes())?;
                let answer = task::run(TRANSACTION, &plan.clone().within(scratch.path().into()))?;
                if plan.limit_mib == limit_mib {
                    peak = peak.max(mebibytes(answer.get("anonymous_bytes")));
                }
                Ok(float(answer.get("nanos")))
            };
            let (spilling, fitting) = (nanos(&tight)?, nanos(&roomy)?);
            ratios.push(fitting / spilling);
            speeds.push(float(keys) / spilling * 1e9);
        }
        report.figure(&format!("{case}: spilling"), median(speeds), "keys/s", None)?;
        let must = sizes.timed.then_some(Must::AtLeast(0.5));
        report.figure(&format!("{case}: against one that fits"), median(ratios), "×", must)?;
        let must = Must::AtMost(float(limit_mib + ALLOWANCE_MIB));
        report.figure(&format!("{case}: peak anonymous memory"), peak, "MiB", Some(must))?;
    }
    Ok(())
}
