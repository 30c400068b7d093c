//! [`Bytes`]: a view of bytes that is cheap to clone, wherever the bytes live.

use std::borrow::Borrow;
use std::fmt;
use std::ops::{Deref, Range};

use bytes::Buf;

/// A view of bytes that keeps its memory alive: a mapped file, an arena, or a vector. Cloning and slicing copy nothing.
///
/// Values are handed out as `Bytes`, so that reading from a mapped run costs no copy. Holding one keeps the whole
/// mapping (not its pages in memory) alive.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(bytes::Bytes);

impl Bytes {
    /// A view of bytes that some owner (a mapping, an arena) keeps in place until its last view is gone.
    pub(crate) fn from_owner(owner: impl AsRef<[u8]> + Send + 'static) -> Self {
        Self(bytes::Bytes::from_owner(owner))
    }

    /// A copy of `source`.
    #[must_use]
    pub fn copy_from(source: &[u8]) -> Self {
        Self(bytes::Bytes::copy_from_slice(source))
    }

    /// The part of this view at `range`, or `None` where the view is shorter than that.
    #[must_use]
    pub fn slice(&self, range: Range<usize>) -> Option<Self> {
        (range.start <= range.end && range.end <= self.0.len()).then(|| Self(self.0.slice(range)))
    }

    /// A view of `part`, which must lie inside this view; `None` otherwise.
    #[must_use]
    pub(crate) fn view_of(&self, part: &[u8]) -> Option<Self> {
        let start = (part.as_ptr() as usize).checked_sub(self.0.as_ptr() as usize)?;
        self.slice(start..start.checked_add(part.len())?)
    }

    /// This view without its first `count` bytes.
    #[must_use]
    pub(crate) fn without_front(mut self, count: usize) -> Self {
        self.0.advance(count.min(self.0.len()));
        self
    }

    /// The bytes.
    #[must_use]
    pub fn as_slice(&self) -> &[u8] {
        &self.0
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Borrow<[u8]> for Bytes {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl PartialEq<[u8]> for Bytes {
    fn eq(&self, other: &[u8]) -> bool {
        self.as_slice() == other
    }
}

impl<const N: usize> PartialEq<[u8; N]> for Bytes {
    fn eq(&self, other: &[u8; N]) -> bool {
        self.as_slice() == other
    }
}

impl<const N: usize> PartialEq<&[u8; N]> for Bytes {
    fn eq(&self, other: &&[u8; N]) -> bool {
        self.as_slice() == *other
    }
}

impl PartialEq<&[u8]> for Bytes {
    fn eq(&self, other: &&[u8]) -> bool {
        self.as_slice() == *other
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "b\"{}\"", self.0.escape_ascii())
    }
}
