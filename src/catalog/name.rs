//! The names of the files in a store's directory: one spelling each, so that a name and its text are the same thing.

use std::fmt;

use crate::error::{Error, Result};
use crate::version::{Epoch, RunId, RunKind, Version, VersionId};

/// The directory inside a store's directory that holds the forks.
pub(crate) const FORKS: &str = "forks";

/// Every number in a name has this many digits, so that a listing sorts by number and every `u64` fits.
const DIGITS: usize = 20;

/// The name of a run: which versions it covers, who made the newest of them, and of what kind it is.
///
/// Sorts by the newest version it covers. Two runs of one name have the same content, whoever wrote them: the epoch of
/// `to` fixes the whole lineage below it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunName {
    to: VersionId,
    from: Version,
    kind: RunKind,
}

impl RunName {
    /// The delta of one commit: what made `to` out of the version below it.
    ///
    /// # Errors
    /// `InvalidInput` where `to` is version 0 or has no epoch.
    pub fn single(to: VersionId) -> Result<Self> {
        Self::delta(to.version.previous(), to)
    }

    /// The changes of the versions `(from, to]`, the newest of each key.
    ///
    /// # Errors
    /// `InvalidInput` where the range is empty or `to` has no epoch.
    pub fn delta(from: Version, to: VersionId) -> Result<Self> {
        if from >= to.version || to.epoch == Epoch::NONE {
            return Err(Error::invalid(format!("no delta covers the versions ({from}, {to}]")));
        }
        Ok(Self { to, from, kind: RunKind::Delta })
    }

    /// The whole state at `to`.
    ///
    /// # Errors
    /// `InvalidInput` where `to` is version 0 or has no epoch.
    pub fn snapshot(to: VersionId) -> Result<Self> {
        Self::delta(Version::EMPTY, to).map(|name| Self { kind: RunKind::Snapshot, ..name })
    }

    /// Sorts before every run that leads to `to`.
    pub(super) fn lowest(to: VersionId) -> Self {
        Self { to, from: Version::EMPTY, kind: RunKind::Delta }
    }

    /// Reads a file name. Only the one spelling that [`RunName`] displays is taken; everything else is foreign.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (stem, kind) = match name.strip_suffix(".delta") {
            Some(stem) => (stem, RunKind::Delta),
            None => (name.strip_suffix(".snapshot")?, RunKind::Snapshot),
        };
        let (versions, epoch) = stem.split_once('.')?;
        let epoch = Epoch(number(epoch)?);
        match (kind, versions.split_once('-')) {
            (RunKind::Snapshot, None) => Self::snapshot(VersionId::new(Version(number(versions)?), epoch)).ok(),
            (RunKind::Delta, None) => Self::single(VersionId::new(Version(number(versions)?), epoch)).ok(),
            (RunKind::Delta, Some((from, to))) => {
                let run = Self::delta(Version(number(from)?), VersionId::new(Version(number(to)?), epoch)).ok()?;
                (!run.is_single()).then_some(run)
            }
            (RunKind::Snapshot, Some(_)) => None,
        }
    }

    /// Delta or snapshot.
    #[must_use]
    pub fn kind(&self) -> RunKind {
        self.kind
    }

    /// The version that the run starts from, which is not in it; 0 for a snapshot.
    #[must_use]
    pub fn from(&self) -> Version {
        self.from
    }

    /// The newest version that the run covers, with the epoch that made it.
    #[must_use]
    pub fn to(&self) -> VersionId {
        self.to
    }

    /// Whether this is the delta of exactly one commit.
    #[must_use]
    pub fn is_single(&self) -> bool {
        self.kind == RunKind::Delta && self.from.next() == self.to.version
    }

    /// Whether this is a snapshot.
    #[must_use]
    pub fn is_snapshot(&self) -> bool {
        self.kind == RunKind::Snapshot
    }
}

impl fmt::Display for RunName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VersionId { version, epoch } = self.to;
        match self.kind {
            RunKind::Snapshot => write!(f, "{version:020}.{epoch:020}.snapshot"),
            RunKind::Delta if self.is_single() => write!(f, "{version:020}.{epoch:020}.delta"),
            RunKind::Delta => write!(f, "{:020}-{version:020}.{epoch:020}.delta", self.from),
        }
    }
}

/// A file of a store, displayed as its path within the store's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum FileName {
    /// A run.
    Run(RunName),
    /// The announcement that versions below this one are about to be deleted.
    Horizon(Version),
    /// The claim of an epoch.
    Fork(Epoch),
}

impl FileName {
    /// Reads the name of a file that lies directly in the store's directory.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name.strip_suffix(".horizon") {
            Some(version) => number(version).map(|version| Self::Horizon(Version(version))),
            None => RunName::parse(name).map(Self::Run),
        }
    }

    /// Reads the name of a file that lies in the directory of forks.
    pub(crate) fn parse_fork(name: &str) -> Option<Self> {
        number(name).filter(|epoch| *epoch > 0).map(|epoch| Self::Fork(Epoch(epoch)))
    }

    /// The directory that holds it, within the store's directory: empty for that directory itself.
    pub(crate) fn directory(&self) -> &'static str {
        match self {
            Self::Run(_) | Self::Horizon(_) => "",
            Self::Fork(_) => FORKS,
        }
    }

    /// The name within its directory.
    pub(crate) fn file_name(&self) -> String {
        match self {
            Self::Run(run) => run.to_string(),
            Self::Horizon(version) => format!("{version:020}.horizon"),
            Self::Fork(epoch) => format!("{epoch:020}"),
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_path(f, self.directory(), &self.file_name())
    }
}

/// The name that a file has until it is published: whose writer it belongs to, an id that no other attempt has, and what
/// the file is going to be. Lies in the directory of the file it becomes.
///
/// The writer's epoch is in the name so that a later epoch may sweep it: a writer that has been overtaken can publish
/// nothing that counts, so losing its temporary does no harm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TemporaryName {
    pub(crate) epoch: Epoch,
    /// Keeps rivals for one name (a fork, a snapshot) from writing into one temporary.
    pub(crate) id: RunId,
    pub(crate) target: FileName,
}

impl TemporaryName {
    fn parse_with(name: &str, target: fn(&str) -> Option<FileName>) -> Option<Self> {
        let (epoch, rest) = name.strip_prefix(".tmp-")?.split_once('-')?;
        let (id, rest) = rest.split_once('-')?;
        Some(Self { epoch: Epoch(number(epoch)?), id: RunId(hex16(id)?), target: target(rest)? })
    }

    /// Reads the name of a temporary that lies directly in the store's directory.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::parse_with(name, FileName::parse)
    }

    /// Reads the name of a temporary that lies in the directory of forks.
    pub(crate) fn parse_fork(name: &str) -> Option<Self> {
        Self::parse_with(name, FileName::parse_fork)
    }

    /// The name within its directory.
    pub(crate) fn file_name(&self) -> String {
        format!(".tmp-{:020}-{}-{}", self.epoch, self.id, self.target.file_name())
    }
}

impl fmt::Display for TemporaryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_path(f, self.target.directory(), &self.file_name())
    }
}

fn write_path(f: &mut fmt::Formatter<'_>, directory: &str, name: &str) -> fmt::Result {
    match directory {
        "" => f.write_str(name),
        _ => write!(f, "{directory}/{name}"),
    }
}

fn number(text: &str) -> Option<u64> {
    let canonical = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_digit());
    if canonical { text.parse().ok() } else { None }
}

fn hex16(text: &str) -> Option<[u8; 16]> {
    let canonical = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if canonical { u128::from_str_radix(text, 16).ok().map(u128::to_be_bytes) } else { None }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn id(version: u64, epoch: u64) -> VersionId {
        VersionId::new(Version(version), Epoch(epoch))
    }

    #[test]
    fn names_are_spelled_as_the_format_page_says() {
        assert_eq!(RunName::single(id(7, 2)).unwrap().to_string(), "00000000000000000007.00000000000000000002.delta");
        assert_eq!(
            RunName::delta(Version(4), id(7, 2)).unwrap().to_string(),
            "00000000000000000004-00000000000000000007.00000000000000000002.delta"
        );
        assert_eq!(
            RunName::snapshot(id(7, 2)).unwrap().to_string(),
            "00000000000000000007.00000000000000000002.snapshot"
        );
        assert_eq!(FileName::Fork(Epoch(3)).to_string(), "forks/00000000000000000003");
        assert_eq!(FileName::Horizon(Version(3)).to_string(), "00000000000000000003.horizon");
        let temporary = TemporaryName { epoch: Epoch(9), id: RunId([0xab; 16]), target: FileName::Fork(Epoch(9)) };
        assert_eq!(
            temporary.to_string(),
            "forks/.tmp-00000000000000000009-abababababababababababababababab-00000000000000000009"
        );
    }

    #[test]
    fn every_other_spelling_is_foreign() {
        for bad in [
            "",
            "7.2.delta",
            "00000000000000000000.00000000000000000002.delta",
            "00000000000000000007.00000000000000000000.delta",
            "00000000000000000007.00000000000000000002.Delta",
            "00000000000000000007.00000000000000000002.delta ",
            "+0000000000000000007.00000000000000000002.delta",
            "00000000000000000007-00000000000000000007.00000000000000000002.delta",
            // The delta of one commit has no `from` in its name, and a snapshot never has.
            "00000000000000000006-00000000000000000007.00000000000000000002.delta",
            "00000000000000000000-00000000000000000007.00000000000000000002.snapshot",
            "00000000000000000009-00000000000000000007.00000000000000000002.delta",
            "99999999999999999999.00000000000000000002.delta",
            "00000000000000000007.00000000000000000002.delta.delta",
            "forks",
        ] {
            assert_eq!(FileName::parse(bad), None, "{bad:?}");
        }
        assert_eq!(FileName::parse_fork("00000000000000000000"), None);
        assert_eq!(FileName::parse_fork("1"), None);
    }

    fn file_names() -> impl Strategy<Value = FileName> {
        let edge = prop_oneof![0u64..20, any::<u64>(), u64::MAX - 3..=u64::MAX];
        (0..5u8, edge.clone(), edge.clone(), edge).prop_filter_map("not a file", |(kind, from, to, epoch)| match kind {
            0 => RunName::single(id(to, epoch)).ok().map(FileName::Run),
            1 => RunName::delta(Version(from), id(to, epoch)).ok().map(FileName::Run),
            2 => RunName::snapshot(id(to, epoch)).ok().map(FileName::Run),
            3 => Some(FileName::Horizon(Version(to))),
            _ => (epoch > 0).then_some(FileName::Fork(Epoch(epoch))),
        })
    }

    proptest! {
        #[test]
        fn a_name_and_its_text_are_the_same_thing(file in file_names(), epoch: u64, bytes: [u8; 16]) {
            let temporary = TemporaryName { epoch: Epoch(epoch), id: RunId(bytes), target: file };
            if file.directory().is_empty() {
                prop_assert_eq!(FileName::parse(&file.file_name()), Some(file));
                prop_assert_eq!(TemporaryName::parse(&temporary.file_name()), Some(temporary));
            } else {
                prop_assert_eq!(FileName::parse_fork(&file.file_name()), Some(file));
                prop_assert_eq!(TemporaryName::parse_fork(&temporary.file_name()), Some(temporary));
            }
        }

        #[test]
        fn what_parses_displays_as_it_was(text in "[0-9]{20}([-.][0-9]{20}){0,2}(\\.delta|\\.snapshot|\\.horizon)?") {
            if let Some(file) = FileName::parse(&text) {
                prop_assert_eq!(file.file_name(), text);
            }
        }

        #[test]
        fn names_sort_by_the_newest_version_they_cover(a in file_names(), b in file_names()) {
            if let (FileName::Run(a), FileName::Run(b)) = (a, b) {
                prop_assert!(a.to().version >= b.to().version || a < b);
            }
        }
    }
}
