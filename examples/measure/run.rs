//! The phases of a plan, one after the other, each in a child.

use std::ffi::OsString;

use super::cgroup::{Cgroup, Seen};
use super::child::{self, Answer};
use super::disk::directory_size;
use super::phases::{self, Phase};
use super::plan::Plan;
use super::report::{Must, Report};
use super::{Failure, MIB, float, mebibytes};

/// The argument that makes a process the child of a phase.
pub(crate) const PHASE: &str = "--phase";
/// The promise: this much above the limit, for what no budget can count.
pub(crate) const ALLOWANCE_MIB: u64 = 48;

/// A phase that is done.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    pub(crate) phase: Phase,
    pub(crate) answer: Answer,
    /// The most that the directories of the run took, seen a few times a second.
    pub(crate) disk_bytes: u64,
    /// What the control group had seen by the end.
    pub(crate) group: Seen,
}

impl Done {
    pub(crate) fn seconds(&self) -> f64 {
        float(self.answer.get("nanos")) / 1e9
    }
}

/// In a child: runs the phase.
pub(crate) fn serve(phase: &str, plan: &Plan) -> Result<(), Failure> {
    child::begin()?;
    let phase = Phase::parse(phase).ok_or_else(|| format!("no phase {phase:?}"))?;
    child::answer(&phases::run(phase, plan)?)
}

/// In the parent: has the phase run.
pub(crate) fn phase(plan: &Plan, phase: Phase, group: Option<&Cgroup>) -> Result<Done, Failure> {
    let mut arguments: Vec<OsString> = vec![PHASE.into(), phase.name().into()];
    arguments.extend(plan.arguments());
    let (mut disk_bytes, mut cache_bytes) = (0, 0);
    let answer = child::run(&arguments, group, &mut || {
        disk_bytes = directory_size(&plan.dir)?.1.max(disk_bytes);
        cache_bytes = group.map_or(0, |group| group.seen().cache_bytes).max(cache_bytes);
        Ok(())
    });
    let answer = answer.map_err(|failure| format!("{}: {failure}", phase.name()))?;
    let group = group.map(Cgroup::seen).unwrap_or_default();
    Ok(Done { phase, answer, disk_bytes, group: Seen { cache_bytes, ..group } })
}

/// The figure of the promise: the phase's anonymous memory against the limit.
pub(crate) fn memory_figure(report: &mut Report, case: &str, plan: &Plan, done: &Done) -> Result<(), Failure> {
    let must = Must::AtMost(float(plan.limit_mib + ALLOWANCE_MIB));
    let case = format!("{case}, {}: peak anonymous memory", done.phase.name());
    report.figure(&case, mebibytes(done.answer.get("anonymous_bytes")), "MiB", Some(must))
}

/// Checks that a limit in bytes can be one of a group.
pub(crate) fn group(limit_mib: Option<u64>) -> Option<Cgroup> {
    match Cgroup::new(limit_mib.map(|mib| mib * MIB)) {
        Ok(group) => {
            eprintln!("the phases run in the control group {}", group.path().display());
            Some(group)
        }
        Err(why) => {
            eprintln!("no control group of our own on this machine: {why}");
            None
        }
    }
}
