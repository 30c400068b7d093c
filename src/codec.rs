//! Fixed-width little-endian integers and bounded reads: the only way bytes from disk become numbers.

use std::path::Path;

use crate::error::{Error, Result};

/// Appends fixed-width little-endian fields to a vector.
pub(crate) trait Put {
    fn put_u8(&mut self, value: u8);
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
    /// A length in two bytes, then the bytes; longer text is cut, so check the limit before.
    fn put_short(&mut self, bytes: &[u8]);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, value: u8) {
        self.push(value);
    }

    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn put_short(&mut self, bytes: &[u8]) {
        let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.put_u16(length);
        self.extend_from_slice(bytes.get(..usize::from(length)).unwrap_or(bytes));
    }
}

/// Reads fields out of untrusted bytes. Every read is checked against what is left; running out is `Corrupt` with the
/// file and the offset.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    file: &'a Path,
    /// Where `rest` starts in the file.
    offset: u64,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `bytes`, which start at `offset` of `file`.
    pub(crate) fn new(file: &'a Path, offset: u64, bytes: &'a [u8]) -> Self {
        Self { file, offset, rest: bytes }
    }

    pub(crate) fn take(&mut self, length: usize, what: &str) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(length) else {
            return Err(self.corrupt(format!("{length} bytes of {what}"), format!("{} bytes", self.rest.len())));
        };
        self.rest = rest;
        self.offset = self.offset.saturating_add(length as u64);
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self, what: &str) -> Result<u16> {
        self.array(what).map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Bytes with their length in the two bytes before them.
    pub(crate) fn short(&mut self, what: &str) -> Result<&'a [u8]> {
        let length = self.u16(what)?;
        self.take(usize::from(length), what)
    }

    /// As [`Reader::short`], as UTF-8 text.
    pub(crate) fn short_text(&mut self, what: &str) -> Result<&'a str> {
        let bytes = self.short(what)?;
        std::str::from_utf8(bytes).map_err(|e| self.corrupt(format!("{what} in UTF-8"), e.to_string()))
    }

    #[cfg(feature = "rocksdb")]
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// An error at the place that the reader has reached.
    pub(crate) fn corrupt(&self, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::corrupt(self.file, self.offset, expected, found)
    }

    /// Checks that nothing is left.
    pub(crate) fn finish(self) -> Result<()> {
        match self.rest.len() {
            0 => Ok(()),
            more => Err(self.corrupt("the end", format!("{more} more bytes"))),
        }
    }
}
