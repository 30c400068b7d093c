//! What was measured, as a table for people.

use std::fmt::{self, Write};

use crate::measure::plan::Plan;
use crate::measure::run::Done;
use crate::measure::{float, mebibytes};

/// One line a phase, then the checksums. `grouped`: whether there was a control group.
pub(crate) fn text(plan: &Plan, done: &[Done], grouped: bool) -> Result<String, fmt::Error> {
    let mut out = String::new();
    writeln!(
        out,
        "\n  {:<22} {:>8} {:>10} {:>11} {:>11} {:>9} {:>11} {:>9} {:>9}",
        "phase", "s", "keys/s", "anonymous", "backend's", "unknown", "mapped", "group", "disk"
    )?;
    for one in done {
        let size = |name: &str| mebibytes(one.answer.get(name));
        let group = if grouped { format!("{:.1}", mebibytes(one.group.peak_bytes)) } else { "-".into() };
        writeln!(
            out,
            "  {:<22} {:>8.1} {:>10.0} {:>11.1} {:>11.1} {:>9.1} {:>11.1} {:>9} {:>9.0}",
            one.phase.name(),
            one.seconds(),
            float(one.answer.get("keys")) / one.seconds().max(1e-9),
            size("anonymous_bytes"),
            size("accounted_bytes"),
            size("unaccounted_bytes"),
            size("mapped_bytes"),
            group,
            mebibytes(one.disk_bytes),
        )?;
    }
    writeln!(
        out,
        "\n  sizes in MiB, the most that was seen; limit {} MiB; backend's: what backend.memory() accounts for; unknown: anonymous\n  \
         memory above that at the same moment; group: all that the control group was charged with so far, page cache included",
        plan.limit_mib
    )?;
    writeln!(out, "\n  versions that were read whole and are what they should be, each with its checksum:")?;
    for one in done {
        let versions = one.answer.names().filter_map(|name| name.strip_prefix("version-"));
        for version in versions {
            let checksum = one.answer.get(&format!("version-{version}"));
            writeln!(out, "  {version:>10}  {checksum:016x}  {}", one.phase.name())?;
        }
        if one.answer.names().any(|name| name == "checksum") {
            let checksum = one.answer.get("checksum");
            writeln!(out, "  {:>10}  {checksum:016x}  {}", plan.newest().0, one.phase.name())?;
        }
    }
    writeln!(out)?;
    Ok(out)
}
