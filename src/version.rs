//! Numbers that mean something: versions, epochs, run ids, marks.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// A version of the state: 0 is empty, a commit on top of `v` makes `v + 1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Version(pub u64);

impl Version {
    /// The empty state.
    pub const EMPTY: Self = Self(0);

    /// The version that a commit on top of this one makes. Saturates at the largest number.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The version below this one; that of 0 is 0.
    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }
}

/// A writer's fencing number. The first writer of a store claims 1; 0 belongs to nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of version 0, which nobody wrote.
    pub const NONE: Self = Self(0);

    /// The number that the next writer claims.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for Version {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<u64> for Epoch {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// A version together with the epoch that made it: what really names a state, since two attempts can make one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct VersionId {
    /// The version.
    pub version: Version,
    /// The epoch whose commit made it; [`Epoch::NONE`] for version 0.
    pub epoch: Epoch,
}

impl VersionId {
    /// Version 0, the root of every lineage.
    pub const ROOT: Self = Self { version: Version::EMPTY, epoch: Epoch::NONE };

    /// Names the version `version` as made by `epoch`.
    #[must_use]
    pub const fn new(version: Version, epoch: Epoch) -> Self {
        Self { version, epoch }
    }
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.version, self.epoch)
    }
}

/// The two kinds of run: the changes of some versions, or the whole state at one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunKind {
    /// The changes of one commit or of several collapsed ones; may hold tombstones.
    Delta,
    /// The whole state at a version; no tombstones.
    Snapshot,
}

/// 16 random bytes that name one run for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RunId(pub [u8; 16]);

impl RunId {
    /// The parent of what has no parent.
    pub const NONE: Self = Self([0; 16]);
}

/// 16 random bytes that name one store's directory for ever: made with its first fork, carried by every later file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StoreUid(pub [u8; 16]);

/// A state and the run id of the delta that made it: proof that two places mean the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Mark {
    /// Which state.
    pub at: VersionId,
    /// The id of the single delta that made it; [`RunId::NONE`] for version 0.
    pub tip: RunId,
}

impl Mark {
    /// The mark of version 0.
    pub const ROOT: Self = Self { at: VersionId::ROOT, tip: RunId::NONE };
}

macro_rules! hex_text {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}
hex_text!(RunId);
hex_text!(StoreUid);

/// Draws run ids and store uids from a seed, so that a test can repeat them. Not secret: names, not keys.
#[derive(Debug)]
pub struct IdSource {
    state: AtomicU64,
}

impl IdSource {
    /// Draws from `seed`; the same seed gives the same ids in the same order.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    /// Draws from the randomness that the process was started with.
    #[must_use]
    pub fn random() -> Self {
        // `RandomState` is keyed from the operating system, differently for every call.
        Self::seeded(RandomState::new().hash_one(std::process::id()))
    }

    /// The next run id. Never [`RunId::NONE`].
    pub fn run_id(&self) -> RunId {
        RunId(self.bytes())
    }

    /// The next store uid.
    pub fn store_uid(&self) -> StoreUid {
        StoreUid(self.bytes())
    }

    fn bytes(&self) -> [u8; 16] {
        let high = self.next_u64();
        let low = self.next_u64() | 1; // never all zero
        (u128::from(high) << 64 | u128::from(low)).to_le_bytes()
    }

    /// `SplitMix64` (Steele, Lea, Flood 2014): a counter and a mixer, so that threads need no lock.
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_repeat_with_the_seed_and_differ_within_it() {
        let (a, b) = (IdSource::seeded(7), IdSource::seeded(7));
        let first = a.run_id();
        assert_eq!(first, b.run_id());
        assert_ne!(first, a.run_id());
        assert_ne!(first, RunId::NONE);
    }
}
