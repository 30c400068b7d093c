//! What was measured, as CSV: the file from which the picture is drawn.

use std::fmt::Write;

use crate::measure::{Failure, MIB, float, mebibytes};
use crate::point::Provider;

const HEADER: &str = "provider,keys,anonymous_mib,mapped_mib,cached_mib,commit_p50_ms,restart_ms";
const LIMIT: &str = "# memory limit of RocksDbProvider, MiB: ";
const ABOUT: &str = "# measured ";
const MEANING: &str = "\
# anonymous_mib: peak of heap and stacks; mapped_mib: peak of file pages in the process's map; cached_mib: peak of page cache charged to
# its control group, mapped or not (0: no control group); commit_p50_ms: of 20 commits of 10,000 random updates; restart_ms: from opening
# without a work directory to the first get
";

/// All points, with when and where they were measured.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Table {
    pub(crate) about: String,
    pub(crate) limit_mib: u64,
    pub(crate) rows: Vec<Row>,
}

/// One point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) provider: Provider,
    pub(crate) keys: u64,
    pub(crate) anonymous_bytes: u64,
    pub(crate) mapped_bytes: u64,
    /// 0 where it could not be counted.
    pub(crate) cached_bytes: u64,
    pub(crate) commit_nanos: u64,
    pub(crate) restart_nanos: u64,
}

impl Row {
    /// For people who wait.
    pub(crate) fn text(&self) -> String {
        format!(
            "{:>8} keys, {:<15} {:>7.1} MiB anonymous, {:>7.1} mapped, {:>7.1} cached; {:>8.2} ms a commit, {:>8.1} to restart",
            self.keys,
            self.provider.name(),
            mebibytes(self.anonymous_bytes),
            mebibytes(self.mapped_bytes),
            mebibytes(self.cached_bytes),
            millis(self.commit_nanos),
            millis(self.restart_nanos)
        )
    }

    fn csv(&self) -> String {
        format!(
            "{},{},{:.3},{:.3},{:.3},{:.3},{:.3}",
            self.provider.name(),
            self.keys,
            mebibytes(self.anonymous_bytes),
            mebibytes(self.mapped_bytes),
            mebibytes(self.cached_bytes),
            millis(self.commit_nanos),
            millis(self.restart_nanos)
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let mut cells = line.split(',');
        let provider = Provider::parse(cells.next()?)?;
        let keys = cells.next()?.parse().ok()?;
        let mut scaled = |unit: u64| cells.next().and_then(thousandths).map(|count| count * unit / 1000);
        let row = Self {
            provider,
            keys,
            anonymous_bytes: scaled(MIB)?,
            mapped_bytes: scaled(MIB)?,
            cached_bytes: scaled(MIB)?,
            commit_nanos: scaled(1_000_000)?,
            restart_nanos: scaled(1_000_000)?,
        };
        cells.next().is_none().then_some(row)
    }
}

/// A number with three digits after the point, in thousandths.
fn thousandths(cell: &str) -> Option<u64> {
    let (whole, rest) = cell.split_once('.')?;
    (rest.len() == 3).then(|| format!("{whole}{rest}").parse().ok())?
}

fn millis(nanos: u64) -> f64 {
    float(nanos) / 1e6
}

impl Table {
    pub(crate) fn csv(&self) -> String {
        let mut out = format!("{ABOUT}{}\n{LIMIT}{}\n{MEANING}{HEADER}\n", self.about, self.limit_mib);
        for row in &self.rows {
            if writeln!(out, "{}", row.csv()).is_err() {
                break; // a string takes everything
            }
        }
        out
    }

    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let comment = |start: &str| text.lines().find_map(|line| line.strip_prefix(start));
        let about = comment(ABOUT).ok_or("memory.csv does not say when it was measured")?.to_owned();
        let limit_mib = comment(LIMIT).ok_or("memory.csv does not say the limit")?.parse()?;
        let mut lines = text.lines().filter(|line| !line.starts_with('#'));
        if lines.next() != Some(HEADER) {
            return Err(format!("memory.csv has other columns than {HEADER}").into());
        }
        let row = |line: &str| Row::parse(line).ok_or_else(|| format!("memory.csv: {line:?} is no row").into());
        Ok(Self { about, limit_mib, rows: lines.map(row).collect::<Result<_, Failure>>()? })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A small table.
    pub(crate) fn sample() -> Table {
        let row = |provider, keys, mib: u64| Row {
            provider,
            keys,
            anonymous_bytes: mib * MIB,
            mapped_bytes: mib * MIB / 2,
            cached_bytes: mib * MIB / 4,
            commit_nanos: mib * 1_000_000,
            restart_nanos: mib * 5_000_000,
        };
        let rows = vec![
            row(Provider::Memory, 250_000, 100),
            row(Provider::RocksDb, 250_000, 40),
            row(Provider::Memory, 8_000_000, 3000),
            row(Provider::RocksDb, 8_000_000, 60),
        ];
        Table { about: "2000-01-01 00:00 UTC; a machine".into(), limit_mib: 64, rows }
    }

    #[test]
    fn a_table_comes_back_from_its_csv() {
        let table = sample();
        assert_eq!(Table::parse(&table.csv()).unwrap(), table);
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let csv = sample().csv();
        for bad in [
            String::new(),
            csv.replace("# measured", "#"),
            csv.replace(",keys,", ",count,"),
            csv.replace("MemoryProvider", "Another"),
            csv.replace("100.000", "100"),
            format!("{csv}MemoryProvider,1,1.000\n"),
        ] {
            assert!(Table::parse(&bad).is_err(), "{bad}");
        }
    }
}
