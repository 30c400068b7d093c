//! The end of the run on standard output, as tables or as JSON.

use std::fmt::Write as _;
use std::path::Path;

use alluvium::Version;

use crate::Failure;
use crate::cost::Cost;
use crate::job::{Aircraft, Carrier};
use crate::measure::calendar::calendar;
use crate::measure::disk::directory_size;
use crate::oracle::Tables;

/// How many aircraft are shown.
const TOP: usize = 10;

/// What there is to say at the end.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) version: Version,
    pub(crate) rows: u64,
    pub(crate) tables: &'a Tables,
    pub(crate) cost: Cost,
    pub(crate) memory_limit_mib: u64,
    /// Whether the tables were compared with the single pass, and agreed.
    pub(crate) verified: bool,
    /// Files and bytes of the checkpoint directory.
    pub(crate) checkpoint: (u64, u64),
}

/// Sums over all carriers.
#[derive(Debug, Default)]
struct Missing {
    cancelled: u64,
    lost: u64,
    nameless: u64,
    departed: u64,
}

impl Missing {
    fn of(tables: &Tables) -> Self {
        let sum = |of: fn(&Carrier) -> u32| tables.carrier.values().map(|carrier| u64::from(of(carrier))).sum();
        Self {
            cancelled: sum(|c| c.cancelled),
            lost: sum(|c| c.lost),
            nameless: sum(|c| c.nameless),
            departed: sum(|c| c.departed),
        }
    }
}

/// The aircraft with the longest delay chains, longest first; ties by name.
fn longest_chains(tables: &Tables) -> Vec<(&str, &Aircraft)> {
    let mut all: Vec<_> = tables.aircraft.iter().map(|(tail, aircraft)| (tail.as_str(), aircraft)).collect();
    all.sort_by(|(a, x), (b, y)| (y.longest.legs, y.longest.minutes, *a).cmp(&(x.longest.legs, x.longest.minutes, *b)));
    all.truncate(TOP);
    all
}

/// Measures the checkpoint directory.
pub(crate) fn measure(checkpoint: &Path) -> Result<(u64, u64), Failure> {
    directory_size(checkpoint).map_err(|e| Failure::file(checkpoint, &e))
}

impl Report<'_> {
    /// As tables for people.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::new();
        self.chains(&mut out)?;
        self.carriers(&mut out)?;
        self.totals(&mut out)?;
        Ok(out)
    }

    fn chains(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\nThe {TOP} aircraft with the longest chains of delays handed from leg to leg\n")?;
        writeln!(
            out,
            "  {:<8} {:>5} {:>12} {:>17} {:>6} {:>12} {:>9}",
            "aircraft", "chain", "minutes", "began (UTC)", "legs", "minutes late", "last seen"
        )?;
        for (tail, aircraft) in longest_chains(self.tables) {
            writeln!(
                out,
                "  {tail:<8} {:>5} {:>12} {:>17} {:>6} {:>12} {:>9}",
                aircraft.longest.legs,
                aircraft.longest.minutes,
                calendar(aircraft.longest.since),
                aircraft.legs,
                aircraft.late_minutes,
                aircraft.position.as_deref().unwrap_or("unknown"),
            )?;
        }
        Ok(())
    }

    fn carriers(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n  {:<8} {:>8} {:>10} {:>11} {:>12}",
            "carrier", "departed", "cancelled", "mean delay", "miles"
        )?;
        for (name, carrier) in &self.tables.carrier {
            let mean = mean_tenths(carrier.departure_delay_minutes, carrier.departed);
            writeln!(
                out,
                "  {name:<8} {:>8} {:>10} {mean:>11} {:>12}",
                carrier.departed, carrier.cancelled, carrier.miles
            )?;
        }
        Ok(())
    }

    fn totals(&self, out: &mut String) -> std::fmt::Result {
        let missing = Missing::of(self.tables);
        let tables = self.tables;
        let unseen: u64 = tables.aircraft.values().map(|aircraft| u64::from(aircraft.unseen_returns)).sum();
        writeln!(out, "\nMissing values, handled")?;
        writeln!(out, "  {:>9} flights never departed (cancelled)", missing.cancelled)?;
        writeln!(out, "  {:>9} departed without a known arrival (diverted, or not recorded)", missing.lost)?;
        writeln!(out, "  {:>9} have no tail number: counted for route and carrier only", missing.nameless)?;
        writeln!(
            out,
            "  {unseen:>9} legs began elsewhere than the one before ended: flights back are not in the data"
        )?;
        writeln!(out, "\nState at version {}", self.version)?;
        writeln!(
            out,
            "  {:>9} rows, {} of them departed; {} aircraft, {} routes by hour, {} carriers",
            self.rows,
            missing.departed,
            tables.aircraft.len(),
            tables.route.len(),
            tables.carrier.len()
        )?;
        let verdict = if self.verified { "equal to a plain single pass in memory" } else { "not compared (--verify)" };
        writeln!(out, "  {:>9} tables: {verdict}", 3)?;
        writeln!(out, "\nCost")?;
        let cost = &self.cost;
        writeln!(out, "  {:>9} processes (what a killed one lost of its last batch is not counted)", cost.processes)?;
        writeln!(out, "  {:>9} s of wall time", tenths(cost.wall_ms / 100))?;
        writeln!(
            out,
            "  {:>9} MiB of anonymous memory at the peak; the limit of the store was {} MiB",
            mebibytes(cost.peak_anonymous_bytes),
            self.memory_limit_mib
        )?;
        writeln!(out, "  {:>9} MiB written to disk, as the kernel counts", mebibytes(cost.written_bytes))?;
        let (files, bytes) = self.checkpoint;
        writeln!(out, "  {:>9} MiB in {files} files of the checkpoint directory", mebibytes(bytes))
    }

    /// As one line of JSON.
    pub(crate) fn json(&self) -> Result<String, std::fmt::Error> {
        let missing = Missing::of(self.tables);
        let mut chains = String::new();
        for (tail, aircraft) in longest_chains(self.tables) {
            let comma = if chains.is_empty() { "" } else { "," };
            let tail: String = tail.chars().filter(char::is_ascii_alphanumeric).collect();
            let chain = aircraft.longest;
            write!(chains, "{comma}{{\"aircraft\":\"{tail}\",\"legs\":{},\"minutes\":{}}}", chain.legs, chain.minutes)?;
        }
        let mut out = String::new();
        write!(out, "{{\"version\":{},\"rows\":{},\"verified\":{}", self.version, self.rows, self.verified)?;
        write!(
            out,
            ",\"missing\":{{\"cancelled\":{},\"no_arrival\":{},\"no_tail\":{}}}",
            missing.cancelled, missing.lost, missing.nameless
        )?;
        write!(
            out,
            ",\"cost\":{{\"processes\":{},\"wall_ms\":{},\"peak_anonymous_bytes\":{},\"written_bytes\":{},\"checkpoint_files\":{},\"checkpoint_bytes\":{}}}",
            self.cost.processes,
            self.cost.wall_ms,
            self.cost.peak_anonymous_bytes,
            self.cost.written_bytes,
            self.checkpoint.0,
            self.checkpoint.1
        )?;
        write!(out, ",\"longest_chains\":[{chains}]}}")?;
        Ok(out)
    }
}

/// A number of tenths as text: 123 is `12.3`.
fn tenths(count: u64) -> String {
    format!("{}.{}", count / 10, count % 10)
}

fn mebibytes(bytes: u64) -> String {
    tenths(bytes.saturating_mul(10) >> 20)
}

/// A mean with one digit, rounded towards zero; integers all the way, so that it is the same everywhere.
fn mean_tenths(sum: i64, count: u32) -> String {
    let mean = sum.saturating_mul(10).checked_div(count.into()).unwrap_or(0);
    let sign = if mean < 0 { "-" } else { "" };
    format!("{sign}{}", tenths(mean.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Chain;

    #[test]
    fn means_keep_their_sign_and_survive_an_empty_carrier() {
        assert_eq!(
            (mean_tenths(-5, 10), mean_tenths(25, 2), mean_tenths(0, 0)),
            ("-0.5".into(), "12.5".into(), "0.0".into())
        );
    }

    #[test]
    fn the_longest_chains_come_first_and_ties_by_name() {
        let chain = |legs, minutes| Aircraft { longest: Chain { legs, minutes, since: 0 }, ..Aircraft::default() };
        let mut tables = Tables::default();
        for (tail, legs, minutes) in [("C", 2, 9), ("B", 3, 1), ("A", 2, 9), ("D", 3, 2)] {
            tables.aircraft.insert(tail.into(), chain(legs, minutes));
        }
        let tails: String = longest_chains(&tables).into_iter().map(|(tail, _)| tail).collect();
        assert_eq!(tails, "DBAC");
    }
}
