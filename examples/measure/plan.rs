//! What a run of the scale test does: which key is written when, so that every version's content can be computed and nothing has
//! to be remembered.
//!
//! ```text
//! version   1 … L             load: commits of 100,000 new keys each, in the order of their numbers, so scattered as keys
//!           L+1 … L+R         overwrite: 5 % of the keys, each once, drawn at random, in R commits
//! ```
//! With several stores each holds a part of the numbers, and makes its own versions.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use alluvium::{Residency, Version};

use super::workload::{Key, Value, fingerprint, key, mix, value};
use super::{Failure, MIB};

/// Keys of a commit, where there are enough.
const COMMIT_KEYS: u64 = 100_000;
/// A store of many gets no commits smaller than this.
const LEAST_COMMIT_KEYS: u64 = 2_500;
/// What tells the draws from the keys.
const DRAW: u64 = 0x0005_CA1E;
/// One key in so many is overwritten.
const OVERWRITTEN: u64 = 20;
/// Bytes of an entry in a run: key, value, lengths, filter and index.
const ENTRY_BYTES: u64 = 125;

/// A run: how many keys, where, and under which limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Of all stores together.
    pub(crate) keys: u64,
    pub(crate) stores: u64,
    pub(crate) residency: Residency,
    pub(crate) limit_mib: u64,
    /// Keys that each commit reads before it writes, drawn at random from those that are there: caches are as full then as in a job.
    pub(crate) reads: u64,
    pub(crate) dir: PathBuf,
}

impl Plan {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { keys: 3_000_000, stores: 1, residency: Residency::Mapped, limit_mib: 48, reads: 0, dir }
    }

    /// The same with another number of keys.
    pub(crate) fn with_keys(self, keys: u64) -> Self {
        Self { keys, ..self }
    }

    /// The same in another directory.
    pub(crate) fn within(self, dir: PathBuf) -> Self {
        Self { dir, ..self }
    }

    /// Takes an argument of the command line, if it is one of a plan's.
    pub(crate) fn take(&mut self, word: &str, value: &mut dyn Iterator<Item = String>) -> Result<bool, Failure> {
        let mut value = || value.next().ok_or(format!("{word} needs a value"));
        match word {
            "--keys" => self.keys = value()?.parse()?,
            "--stores" => self.stores = value()?.parse()?,
            "--limit" => self.limit_mib = mebibytes(&value()?)?,
            "--reads" => self.reads = value()?.parse()?,
            "--residency" => self.residency = residency(&value()?)?,
            "--dir" => self.dir = value()?.into(),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses what cannot be run.
    pub(crate) fn checked(self) -> Result<Self, Failure> {
        if self.stores == 0 || self.keys < self.stores {
            return Err("at least one store, and a key for each".into());
        }
        Ok(self)
    }

    /// The command line that [`take`](Self::take) understands.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let words = [
            ("--keys", self.keys.to_string()),
            ("--stores", self.stores.to_string()),
            ("--limit", format!("{}MiB", self.limit_mib)),
            ("--reads", self.reads.to_string()),
            ("--residency", self.residency_name().into()),
        ];
        let words = words.into_iter().flat_map(|(word, value)| [word.into(), value.into()]);
        words.chain(["--dir".into(), self.dir.clone().into()]).collect()
    }

    pub(crate) fn residency_name(&self) -> &'static str {
        match self.residency {
            Residency::Mapped => "mapped",
            Residency::Resident => "resident",
        }
    }

    pub(crate) fn limit_bytes(&self) -> u64 {
        self.limit_mib * MIB
    }

    pub(crate) fn checkpoint(&self) -> PathBuf {
        self.dir.join("checkpoint")
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.dir.join("work")
    }

    /// The disk that a run needs at most, in bytes: runs that were merged and not retired yet, a snapshot beside what it is made
    /// of, and in `Resident` the index, which compacts. Measured: see `docs/measurements/scale.md`.
    pub(crate) fn disk_bytes(&self) -> u64 {
        let copies = match self.residency {
            Residency::Mapped => 4,
            Residency::Resident => 6,
        };
        self.keys * ENTRY_BYTES * copies + 64 * MIB
    }

    /// The keys of each store; a remainder is left out.
    pub(crate) fn store_keys(&self) -> u64 {
        self.keys / self.stores
    }

    pub(crate) fn commit_keys(&self) -> u64 {
        (COMMIT_KEYS / self.stores).max(LEAST_COMMIT_KEYS)
    }

    /// The version of each store at which its keys are all there.
    pub(crate) fn loaded(&self) -> Version {
        Version(self.store_keys().div_ceil(self.commit_keys()))
    }

    /// How many commits overwrite.
    pub(crate) fn overwrites(&self) -> u64 {
        self.store_keys().div_ceil(OVERWRITTEN).div_ceil(self.commit_keys())
    }

    /// The last version of each store.
    pub(crate) fn newest(&self) -> Version {
        Version(self.loaded().0 + self.overwrites())
    }

    /// The full versions, at most so many, evenly spread, the first and the last among them.
    pub(crate) fn some_versions(&self, most: u64) -> Vec<Version> {
        let span = self.overwrites();
        let steps = most.saturating_sub(1).clamp(1, span.max(1));
        let mut versions: Vec<Version> =
            (0..=steps).map(|step| Version(self.loaded().0 + span * step / steps)).collect();
        versions.dedup();
        versions
    }

    /// The key number `number` of a store.
    pub(crate) fn key(&self, store: u64, number: u64) -> Key {
        key(store * self.store_keys() + number)
    }

    /// Which of the overwriting commits writes a key, if any does: a draw of its own for each key.
    fn overwritten_in(&self, store: u64, number: u64) -> Option<u64> {
        let draw = mix(DRAW ^ mix(store * self.store_keys() + number));
        draw.is_multiple_of(OVERWRITTEN).then(|| draw / OVERWRITTEN % self.overwrites().max(1))
    }

    /// The numbers of the keys that the overwriting commit to `version` writes.
    pub(crate) fn overwritten(&self, store: u64, version: Version) -> impl Iterator<Item = u64> {
        let commit = version.0.checked_sub(self.loaded().0 + 1);
        (0..self.store_keys()).filter(move |number| {
            let drawn = self.overwritten_in(store, *number);
            drawn.is_some() && drawn == commit
        })
    }

    /// The value of the key number `number` of a store at a version from the last of the load on.
    pub(crate) fn value(&self, store: u64, number: u64, at: Version) -> Value {
        let overwritten = self.overwritten_in(store, number).map(|commit| self.loaded().0 + 1 + commit);
        let loaded = number / self.commit_keys() + 1;
        value(&self.key(store, number), overwritten.filter(|version| *version <= at.0).unwrap_or(loaded))
    }

    /// The number of entries of a store at a full version, and their checksum.
    pub(crate) fn content(&self, store: u64, at: Version) -> Content {
        (0..self.store_keys()).fold(Content::default(), |content, number| {
            content.with(&self.key(store, number), &self.value(store, number, at))
        })
    }
}

/// What a version of a store holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) keys: u64,
    pub(crate) checksum: u64,
}

impl Content {
    pub(crate) fn with(self, key: &[u8], value: &[u8]) -> Self {
        Self { keys: self.keys + 1, checksum: self.checksum.wrapping_add(fingerprint(key, value)) }
    }

    /// Of several stores together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { keys: self.keys + other.keys, checksum: self.checksum.wrapping_add(other.checksum) }
    }
}

/// A size: `512MiB`, `2GiB`, or a plain number of MiB.
pub(crate) fn mebibytes(text: &str) -> Result<u64, Failure> {
    let (number, unit) = match (text.strip_suffix("MiB"), text.strip_suffix("GiB")) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 1024),
        _ => (text, 1),
    };
    let count: u64 = number.trim().parse().map_err(|e| format!("{text:?} is no size such as 512MiB: {e}"))?;
    count.checked_mul(unit).filter(|count| *count <= u64::MAX / MIB).ok_or_else(|| format!("{text} is too much").into())
}

fn residency(text: &str) -> Result<Residency, Failure> {
    match text {
        "mapped" => Ok(Residency::Mapped),
        "resident" => Ok(Residency::Resident),
        _ => Err(format!("--residency: {text:?} is neither mapped nor resident").into()),
    }
}

/// The directory that a program works in unless it is told otherwise.
pub(crate) fn default_dir(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/measure").join(name)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn plan(keys: u64, stores: u64) -> Plan {
        Plan { keys, stores, ..Plan::new("d".into()) }
    }

    #[test]
    fn a_plan_comes_back_from_its_arguments() {
        let plan = Plan { residency: Residency::Resident, limit_mib: 77, ..plan(12_345, 3) };
        let mut words = plan.arguments().into_iter().map(|word| word.into_string().unwrap());
        let mut read = Plan::new("elsewhere".into());
        while let Some(word) = words.next() {
            assert!(read.take(&word, &mut words).unwrap(), "{word}");
        }
        assert_eq!(read, plan);
        assert!(!read.take("--other", &mut words).unwrap());
        assert!(read.take("--keys", &mut words).is_err());
    }

    #[test]
    fn every_overwritten_key_is_written_by_one_commit_and_they_are_one_in_twenty() {
        let plan = plan(2_500_000, 1);
        assert_eq!((plan.loaded(), plan.overwrites()), (Version(25), 2));
        let of = |version| plan.overwritten(0, Version(version)).collect::<Vec<_>>();
        let (first, second) = (of(26), of(27));
        let all: HashSet<u64> = first.iter().chain(&second).copied().collect();
        assert_eq!(all.len(), first.len() + second.len());
        let share = (first.len() + second.len()) * 20;
        assert!((2_400_000..2_600_000).contains(&share), "{share}");
        assert!(of(25).is_empty() && of(28).is_empty());
    }

    #[test]
    fn the_content_differs_from_version_to_version_by_the_keys_that_were_overwritten() {
        let plan = plan(40_000, 4);
        assert_eq!((plan.store_keys(), plan.commit_keys(), plan.newest()), (10_000, 25_000, Version(2)));
        let (before, after) = (plan.content(1, Version(1)), plan.content(1, Version(2)));
        let change = plan.overwritten(1, Version(2)).fold(before, |content, number| {
            let key = plan.key(1, number);
            let old = fingerprint(&key, &plan.value(1, number, Version(1)));
            let new = fingerprint(&key, &plan.value(1, number, Version(2)));
            assert_ne!(old, new);
            Content { checksum: content.checksum.wrapping_sub(old).wrapping_add(new), ..content }
        });
        assert_eq!(change, after);
        assert_eq!(after.keys, 10_000);
    }

    #[test]
    fn versions_are_spread_with_both_ends() {
        let versions = |keys, most| plan(keys, 1).some_versions(most).iter().map(|v| v.0).collect::<Vec<_>>();
        assert_eq!(versions(3_000_000, 4), [30, 31, 32]);
        assert_eq!(versions(100_000_000, 4), [1000, 1016, 1033, 1050]);
        assert_eq!(versions(10, 4), [1, 2]);
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!((mebibytes("48MiB").unwrap(), mebibytes("2GiB").unwrap(), mebibytes("7").unwrap()), (48, 2048, 7));
        for bad in ["", "MiB", "48MB", "-1", "18446744073709551615GiB"] {
            assert!(mebibytes(bad).is_err(), "{bad}");
        }
    }
}
