//! Few keys and many, under the same limit: what must not grow with them.

use std::path::Path;

use crate::measure::child::Answer;
use crate::measure::disk::Scratch;
use crate::measure::phases::Phase;
use crate::measure::plan::Plan;
use crate::measure::report::{Must, Report, median};
use crate::measure::run::{memory_figure, phase};
use crate::measure::{Failure, float, mebibytes};
use crate::task::{self, COMMITS};
use crate::{RESIDENCIES, Sizes};

/// What a commit reads before it writes. Without reads, the block cache (which the limit bounds, not the keys) is as empty after few keys as
/// these keys' indexes and filters are small, and a comparison would be of that.
const READS: u64 = 10_000;
/// Few and many take turns so often, so that what else the machine does meets both.
const ROUNDS: u64 = 5;

pub(crate) fn measure(sizes: &Sizes, dir: &Path, report: &mut Report) -> Result<(), Failure> {
    for residency in RESIDENCIES {
        let limit_mib = sizes.growth_limit_mib;
        let plan = |keys| Plan { keys, stores: 1, residency, limit_mib, reads: READS, dir: dir.into() };
        let plans = sizes.growth.map(plan);
        let scratch = Scratch::new(dir, plans.iter().map(Plan::disk_bytes).sum())?;
        let [few, many] = plans.map(|plan| {
            let dir = scratch.path().join(plan.keys.to_string());
            plan.within(dir)
        });
        let peaks = [peaks(&few, report)?, peaks(&many, report)?];
        let case = format!("{} against {} keys, {}", many.keys, few.keys, few.residency_name());
        // In any one phase: the highest peak of all would hide a phase that grows below it.
        for (one, (few, many)) in Phase::ALL.into_iter().zip(peaks[0].iter().zip(&peaks[1])) {
            report.figure(&format!("{case}, {}: peak anonymous memory", one.name()), many / few, "×", None)?;
        }
        let highest = peaks.map(|peaks| peaks.into_iter().fold(0.0, f64::max));
        let must = sizes.timed.then_some(Must::Below(1.1));
        report.figure(&format!("{case}: highest peak"), highest[1] / highest[0], "×", must)?;
        commits(sizes, &few, &many, &case, report)?;
    }
    Ok(())
}

/// The peak of each phase, in MiB.
fn peaks(plan: &Plan, report: &mut Report) -> Result<Vec<f64>, Failure> {
    let case = format!("{} keys, {} MiB, {}", plan.keys, plan.limit_mib, plan.residency_name());
    let mut peaks = Vec::new(); // one a phase
    for one in Phase::ALL {
        let done = phase(plan, one, None)?;
        memory_figure(report, &case, plan, &done)?;
        peaks.push(mebibytes(done.answer.get("anonymous_bytes")));
    }
    Ok(peaks)
}

fn commits(sizes: &Sizes, few: &Plan, many: &Plan, case: &str, report: &mut Report) -> Result<(), Failure> {
    let mut answers = Vec::new(); // a pair a round
    for _ in 0..ROUNDS {
        answers.push((task::run(COMMITS, few)?, task::run(COMMITS, many)?));
    }
    let millis = |answer: &Answer| float(answer.get("commit_nanos")) / 1e6;
    let of_few = median(answers.iter().map(|(few, _)| millis(few)));
    report.figure(&format!("{case}: commit p50, few"), of_few, "ms", None)?;
    let of_many = median(answers.iter().map(|(_, many)| millis(many)));
    report.figure(&format!("{case}: commit p50, many"), of_many, "ms", None)?;
    let ratio = |of: &dyn Fn(&Answer) -> f64| median(answers.iter().map(|(few, many)| of(many) / of(few)));
    let must = sizes.timed.then_some(Must::AtMost(1.5));
    report.figure(&format!("{case}: commit p50"), ratio(&millis), "×", must)?;
    let difference = (ratio(&|answer| float(answer.get("delta_bytes"))) - 1.0).abs();
    report.figure(&format!("{case}: bytes of a commit, difference"), difference, "of 1", Some(Must::AtMost(0.01)))
}
