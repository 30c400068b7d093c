//! What a store holds: families, keys, changes, key ranges, and the cursors that walk over them.
//!
//! Inside, every key is a **full key**: the family's number in two big-endian bytes, then the user's key. So one byte-wise
//! comparison sorts by (family, key), and one key range can cover a family.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use xxhash_rust::xxh3::xxh3_64;

use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};

/// The longest user key, in bytes.
pub const MAX_KEY_BYTES: usize = 64 << 10;
/// The longest value, in bytes.
pub const MAX_VALUE_BYTES: usize = 64 << 20;
/// The most user metadata of one commit, in bytes.
pub const MAX_METADATA_BYTES: usize = 1 << 20;
/// The most families of one store, the default one included.
pub const MAX_FAMILIES: usize = 1024;
/// The longest store, operator or family name, in bytes.
pub const MAX_NAME_BYTES: usize = 128;
/// The bytes that a full key has in front of the user's key.
pub(crate) const FAMILY_BYTES: usize = 2;

/// A name that is safe as a file name on every system: 1 to 128 letters, digits, `.`, `_` or `-`, not starting with a dot.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Checks `text` and makes it a name.
    ///
    /// # Errors
    /// `InvalidInput` or `LimitExceeded`; the text says which rule is broken.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        if text.len() > MAX_NAME_BYTES {
            let kind = ErrorKind::LimitExceeded { limit: MAX_NAME_BYTES as u64, found: text.len() as u64 };
            return Err(Error::new(kind, "a name is too long"));
        }
        if text.is_empty() || text.starts_with('.') {
            return Err(Error::invalid(format!("the name {text:?} is empty or starts with a dot")));
        }
        match text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-'))) {
            Some(bad) => Err(Error::invalid(format!(
                "the name {text:?} holds {bad:?}; letters, digits, '.', '_' and '-' are allowed"
            ))),
            None => Ok(Self(text)),
        }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Which store: the operator that owns it, the partition of that operator, and the store's name within it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateStoreId {
    operator: Name,
    partition: u32,
    name: Name,
}

impl StateStoreId {
    /// Names a store. The names become directories and are checked like any [`Name`].
    ///
    /// # Errors
    /// As [`Name::new`].
    pub fn new(operator: impl Into<String>, partition: u32, name: impl Into<String>) -> Result<Self> {
        Ok(Self { operator: Name::new(operator)?, partition, name: Name::new(name)? })
    }

    /// The operator.
    #[must_use]
    pub fn operator(&self) -> &Name {
        &self.operator
    }

    /// The partition of the operator.
    #[must_use]
    pub fn partition(&self) -> u32 {
        self.partition
    }

    /// The store's name within the partition.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }
}

impl fmt::Display for StateStoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.operator, self.partition, self.name)
    }
}

impl FromStr for StateStoreId {
    type Err = Error;

    /// Reads `<operator>/<partition>/<name>`, as it is displayed.
    fn from_str(text: &str) -> Result<Self> {
        let parts = text.split_once('/').and_then(|(operator, rest)| Some((operator, rest.split_once('/')?)));
        // One spelling each: `01` is not partition 1.
        let partition = |text: &str| text.parse().ok().filter(|number: &u32| number.to_string() == text);
        match parts.and_then(|(operator, (number, name))| Some((operator, partition(number)?, name))) {
            Some((operator, partition, name)) => Self::new(operator, partition, name),
            None => Err(Error::invalid(format!("{text:?} is no store; one is <operator>/<partition>/<name>"))),
        }
    }
}

impl fmt::Debug for StateStoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StateStoreId({self})")
    }
}

/// The number of a column family inside its store. Numbers are given out in order and never again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FamilyId(pub(crate) u16);

impl FamilyId {
    /// The family that every store has from the start.
    pub const DEFAULT: Self = Self(0);
}

/// The families of a store by number: entry `i` is the name of family `i`, and entry 0 is `default`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Families(Vec<Name>);

impl Default for Families {
    fn default() -> Self {
        Self(vec![Name("default".into())])
    }
}

impl Families {
    /// Takes the names of families 0, 1, 2, … as a file has them.
    ///
    /// # Errors
    /// `InvalidInput` where there are none, too many, or two of one name.
    pub(crate) fn from_names(names: Vec<Name>) -> Result<Self> {
        let mut sorted: Vec<&Name> = names.iter().collect(); // at most MAX_FAMILIES
        sorted.sort_unstable();
        if names.is_empty() || names.len() > MAX_FAMILIES || sorted.windows(2).any(|pair| pair.first() == pair.last()) {
            return Err(Error::invalid("the family table is empty, too long, or names a family twice"));
        }
        Ok(Self(names))
    }

    /// The number of the family called `name`.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<FamilyId> {
        let place = self.0.iter().position(|known| known.as_str() == name)?;
        u16::try_from(place).ok().map(FamilyId)
    }

    /// The number of the family called `name`, made if it is not there yet; says whether it was made.
    ///
    /// # Errors
    /// `LimitExceeded` beyond [`MAX_FAMILIES`].
    pub(crate) fn find_or_add(&mut self, name: Name) -> Result<(FamilyId, bool)> {
        if let Some(family) = self.find(name.as_str()) {
            return Ok((family, false));
        }
        let found = self.0.len() as u64 + 1;
        let limit = MAX_FAMILIES as u64;
        let over = || Error::new(ErrorKind::LimitExceeded { limit, found }, "too many families");
        let number = u16::try_from(self.0.len()).ok().filter(|_| found <= limit).ok_or_else(over)?;
        self.0.push(name);
        Ok((FamilyId(number), true))
    }

    /// The name of a family of this store; `None` for the number of another store's.
    #[must_use]
    pub fn name(&self, family: FamilyId) -> Option<&Name> {
        self.0.get(usize::from(family.0))
    }

    /// The families with their names, by number.
    pub fn iter(&self) -> impl Iterator<Item = (FamilyId, &Name)> {
        (0..).map(FamilyId).zip(&self.0)
    }

    /// The names, by number.
    #[must_use]
    pub fn names(&self) -> &[Name] {
        &self.0
    }
}

/// Makes the full key of `key` in `family`.
pub(crate) fn full_key(family: FamilyId, key: &[u8]) -> Vec<u8> {
    let mut full = Vec::with_capacity(FAMILY_BYTES + key.len());
    full.extend_from_slice(&family.0.to_be_bytes());
    full.extend_from_slice(key);
    full
}

/// Takes a full key apart; `None` where it is too short to be one.
pub(crate) fn split_full_key(full: &[u8]) -> Option<(FamilyId, &[u8])> {
    let (family, key) = full.split_first_chunk::<FAMILY_BYTES>()?;
    Some((FamilyId(u16::from_be_bytes(*family)), key))
}

/// A full key to look for, with its hash, which every filter and table on the way down uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe<'a> {
    pub(crate) full_key: &'a [u8],
    pub(crate) hash: u64,
}

impl<'a> Probe<'a> {
    pub(crate) fn new(full_key: &'a [u8]) -> Self {
        Self { full_key, hash: key_hash(full_key) }
    }
}

/// XXH3-64 of a full key, unseeded: part of the run format, since filters on disk are made of it.
pub(crate) fn key_hash(full_key: &[u8]) -> u64 {
    xxh3_64(full_key)
}

/// What a run, a generation or an overlay says about a key: a value, or that it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change<V> {
    /// The key has this value.
    Put(V),
    /// The key was removed: the search ends here.
    Tombstone,
}

impl<V> Change<V> {
    pub(crate) fn map<W>(self, f: impl FnOnce(V) -> W) -> Change<W> {
        match self {
            Self::Put(value) => Change::Put(f(value)),
            Self::Tombstone => Change::Tombstone,
        }
    }

    pub(crate) fn into_value(self) -> Option<V> {
        match self {
            Self::Put(value) => Some(value),
            Self::Tombstone => None,
        }
    }
}

/// A range of full keys: from `start`, which is in it, to `end`, which is not.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct KeyRange {
    pub(crate) start: Vec<u8>,
    /// `None`: to the end.
    pub(crate) end: Option<Vec<u8>>,
}

impl KeyRange {
    pub(crate) const ALL: Self = Self { start: Vec::new(), end: None };

    /// All keys of `family` from `start` (or its first) up to but not including `end` (or to its last).
    pub(crate) fn within(family: FamilyId, start: Option<&[u8]>, end: Option<&[u8]>) -> Self {
        let end = end.map_or_else(|| successor(&family.0.to_be_bytes()), |key| Some(full_key(family, key)));
        Self { start: full_key(family, start.unwrap_or_default()), end }
    }

    /// All keys of `family` that start with `prefix`.
    pub(crate) fn prefix(family: FamilyId, prefix: &[u8]) -> Self {
        let start = full_key(family, prefix);
        Self { end: successor(&start), start }
    }

    pub(crate) fn contains(&self, full_key: &[u8]) -> bool {
        self.start.as_slice() <= full_key && self.is_before_end(full_key)
    }

    pub(crate) fn is_before_end(&self, full_key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| full_key < end)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_deref().is_some_and(|end| end <= self.start.as_slice())
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = self.end.as_deref().map_or(Cow::Borrowed("end"), |end| end.escape_ascii().to_string().into());
        write!(f, "[{}..{end})", self.start.escape_ascii())
    }
}

/// The smallest key that is greater than every key with this prefix; `None` for `ff ff …`, which has none.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut next = prefix.get(..=last)?.to_vec();
    if let Some(byte) = next.last_mut() {
        *byte = byte.wrapping_add(1); // not ff, so it does not wrap
    }
    Some(next)
}

/// A walk over entries in ascending order of full keys. It starts in front of the first entry.
///
/// After an error a cursor stays at that error: every further `advance` fails too, so nothing is skipped silently.
pub(crate) trait Cursor: Send {
    /// Steps to the next entry; `false` at the end.
    fn advance(&mut self) -> Result<bool>;

    /// The full key of the entry stepped to. Only after `advance` gave `true`.
    fn key(&self) -> &[u8];

    /// What the entry says. Only after `advance` gave `true`.
    fn change(&self) -> Change<&[u8]>;

    /// The full key as a view that outlives the step; copies unless the source can share.
    fn key_bytes(&self) -> Bytes {
        Bytes::copy_from(self.key())
    }

    /// What the entry says, as a view that outlives the step; copies unless the source can share.
    fn change_bytes(&self) -> Change<Bytes> {
        self.change().map(Bytes::copy_from)
    }
}

impl<C: Cursor + ?Sized> Cursor for Box<C> {
    fn advance(&mut self) -> Result<bool> {
        (**self).advance()
    }

    fn key(&self) -> &[u8] {
        (**self).key()
    }

    fn change(&self) -> Change<&[u8]> {
        (**self).change()
    }

    fn key_bytes(&self) -> Bytes {
        (**self).key_bytes()
    }

    fn change_bytes(&self) -> Change<Bytes> {
        (**self).change_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_ff_bytes_is_bounded_by_the_next_family() {
        let range = KeyRange::prefix(FamilyId(3), &[0xff, 0xff]);
        assert_eq!(range.end.as_deref(), Some(&[0, 4][..]));
        assert!(range.contains(&[0, 3, 0xff, 0xff, 0xff, 9]));
        assert!(!range.contains(&[0, 3, 0xff, 0xfe]));
        assert_eq!(successor(&[0xff, 0xff]), None);
    }

    #[test]
    fn a_store_is_read_from_the_text_that_it_is_displayed_as() {
        let id = StateStoreId::new("op", 12, "left.state").unwrap();
        assert_eq!(id.to_string().parse::<StateStoreId>().unwrap(), id);
        for bad in ["", "op", "op/1", "op/01/x", "op/-1/x", "op/1/", "/1/x", "op/1/x/y", "op/4294967296/x"] {
            assert!(bad.parse::<StateStoreId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_that_could_leave_their_directory_are_refused() {
        for bad in ["", ".", "..", "a/b", "a\\b", ".hidden", "a b", "ü", "a\0b", "a\nb", &"x".repeat(129)] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
        for good in ["a", "left-keyToNumValues", "x_1.y", &"x".repeat(128)] {
            assert!(Name::new(good).is_ok(), "{good:?}");
        }
    }
}
