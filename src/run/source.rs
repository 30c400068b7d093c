//! Where the blocks of an open run come from, and the memory of which ones have been checked.

use std::fmt;
use std::ops::{Deref, Range};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::footer::Place;
use crate::bytes::Bytes;
use crate::checksum::crc32;
use crate::error::{Error, Result};
use crate::fs::ReadFile;

/// How the bytes of a run are reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Access {
    /// Mapped into memory and read in place; each block is checked before its first use. For directories that nobody else
    /// truncates files in.
    #[default]
    Mapped,
    /// Read block by block into memory, and checked every time: for media that are not ours alone. Slower: a point get
    /// reads its page, and a stripe's index and filter unless they were the last ones used.
    Positioned,
}

/// The bytes of a block: in the mapping, or read into memory.
pub(crate) enum Block<'a> {
    Shared { whole: &'a Bytes, part: &'a [u8] },
    Own(Bytes),
}

impl Deref for Block<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Shared { part, .. } => part,
            Self::Own(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Block<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} bytes)", self.len())
    }
}

impl Block<'_> {
    /// The part at `range` as a view that outlives the run's borrow.
    pub(super) fn view(&self, range: Range<usize>) -> Option<Bytes> {
        match self {
            Self::Shared { whole, part } => whole.view_of(part.get(range)?),
            Self::Own(bytes) => bytes.slice(range),
        }
    }

    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Self::Shared { whole, part } => whole.view_of(part).unwrap_or_default(), // `part` is of `whole`
            Self::Own(bytes) => bytes,
        }
    }
}

/// Which check a block has to pass besides its CRC.
pub(super) type Soundness = fn(&[u8]) -> bool;

/// Whose block it is: the number of its bit, and whether it is worth keeping when it had to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Page,
    /// A page index or a filter.
    Guide,
}

#[derive(Debug)]
enum Medium {
    /// The whole file, and one bit for each block that has been checked in this mapping.
    Mapped { map: Bytes, checked: Bitmap },
    /// The last page index and the last filter that were read, by offset. The lock is held for a look or a swap only.
    Positioned { file: Arc<dyn ReadFile>, recent: Mutex<[Option<(u64, Bytes)>; 2]> },
}

/// The blocks of one open run.
#[derive(Debug)]
pub(super) struct Source {
    path: PathBuf,
    medium: Medium,
    file_bytes: u64,
    /// Off only for the crash harness, which must notice.
    checks_pages: bool,
    blocks_read: AtomicU64,
    bytes_read: AtomicU64,
    #[cfg(test)]
    pages_touched: AtomicU64,
}

impl Source {
    pub(super) fn new(file: Arc<dyn ReadFile>, path: PathBuf, access: Access, checks_pages: bool) -> Result<Self> {
        let file_bytes = file.len();
        let medium = match access {
            Access::Mapped => Medium::Mapped { map: file.map()?, checked: Bitmap::default() },
            Access::Positioned => Medium::Positioned { file, recent: Mutex::default() },
        };
        let (blocks_read, bytes_read) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Self {
            path,
            medium,
            file_bytes,
            checks_pages,
            blocks_read,
            bytes_read,
            #[cfg(test)]
            pages_touched: AtomicU64::new(0),
        })
    }

    /// Makes room for the memory of `blocks` checked blocks.
    pub(super) fn expect_blocks(&mut self, blocks: usize) {
        if let Medium::Mapped { checked, .. } = &mut self.medium {
            *checked = Bitmap::new(blocks);
        }
    }

    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Blocks and bytes that were read or, in a mapping, checked for the first time.
    #[cfg(test)]
    pub(super) fn read(&self) -> (u64, u64) {
        (self.blocks_read.load(Ordering::Relaxed), self.bytes_read.load(Ordering::Relaxed))
    }

    /// Notes that a point get looks into a page.
    #[cfg(test)]
    pub(super) fn touch_page(&self) {
        self.pages_touched.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(test)]
    pub(super) fn pages_touched(&self) -> u64 {
        self.pages_touched.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn is_mapped(&self) -> bool {
        matches!(self.medium, Medium::Mapped { .. })
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        match &self.medium {
            Medium::Mapped { checked, .. } => checked.0.len() * 8,
            Medium::Positioned { recent, .. } => {
                let recent = recent.lock().unwrap_or_else(PoisonError::into_inner);
                recent.iter().flatten().map(|(_, bytes)| bytes.len()).sum()
            }
        }
    }

    /// The bytes at `offset`, unchecked.
    #[inline]
    pub(super) fn raw(&self, offset: u64, length: u64) -> Result<Block<'_>> {
        let end = offset.checked_add(length).filter(|end| *end <= self.file_bytes);
        let range = end.and_then(|end| Some(usize::try_from(offset).ok()?..usize::try_from(end).ok()?));
        let Some(range) = range else { return Err(self.beyond_the_end(offset, length)) };
        match &self.medium {
            Medium::Mapped { map, .. } => match map.as_slice().get(range) {
                Some(part) => Ok(Block::Shared { whole: map, part }),
                None => Err(self.beyond_the_end(offset, length)),
            },
            Medium::Positioned { file, .. } => {
                let mut buffer = vec![0; range.len()]; // no more than the file holds
                file.read_exact_at(&mut buffer, offset)?;
                Ok(Block::Own(buffer.into()))
            }
        }
    }

    /// Whether this mapping has checked the block whose bit is `bit`.
    #[inline]
    pub(super) fn has_checked(&self, bit: usize) -> bool {
        match &self.medium {
            Medium::Mapped { checked, .. } => checked.has(bit),
            Medium::Positioned { .. } => false,
        }
    }

    /// The bytes at `range` of a block whose bit is `bit`, if this mapping has checked it.
    #[inline]
    pub(super) fn seen(&self, bit: usize, range: &Range<usize>) -> Option<&[u8]> {
        match &self.medium {
            Medium::Mapped { map, checked } if checked.has(bit) => map.as_slice().get(range.clone()),
            Medium::Mapped { .. } | Medium::Positioned { .. } => None,
        }
    }

    /// The block at `place` whose bit is `bit`, checked unless this mapping has already seen it.
    #[inline]
    pub(super) fn block(&self, role: Role, bit: usize, place: Place, sound: Soundness) -> Result<Block<'_>> {
        match &self.medium {
            Medium::Mapped { checked, .. } => {
                let block = self.raw(place.offset, u64::from(place.length))?;
                if !checked.has(bit) {
                    self.check(role, place, &block, sound)?;
                    checked.set(bit);
                }
                Ok(block)
            }
            Medium::Positioned { recent, .. } => self.read_block(recent, role, bit, place, sound),
        }
    }

    #[cold]
    fn read_block(
        &self,
        recent: &Mutex<[Option<(u64, Bytes)>; 2]>,
        role: Role,
        bit: usize,
        place: Place,
        sound: Soundness,
    ) -> Result<Block<'_>> {
        let lock = || recent.lock().unwrap_or_else(PoisonError::into_inner);
        if role == Role::Guide
            && let Some((_, bytes)) = lock().iter().flatten().find(|(offset, _)| *offset == place.offset)
        {
            return Ok(Block::Own(bytes.clone()));
        }
        let bytes = self.raw(place.offset, u64::from(place.length))?.into_bytes();
        self.check(role, place, &bytes, sound)?;
        if role == Role::Guide
            && let Some(slot) = lock().get_mut(bit % 2)
        {
            *slot = Some((place.offset, bytes.clone()));
        }
        Ok(Block::Own(bytes))
    }

    #[cold]
    pub(super) fn check(&self, role: Role, place: Place, bytes: &[u8], sound: Soundness) -> Result<()> {
        self.blocks_read.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(u64::from(place.length), Ordering::Relaxed);
        if role != Role::Page || self.checks_pages {
            let found = crc32(bytes);
            if found != place.crc {
                return Err(self.corrupt(place.offset, format!("CRC {:08x}", place.crc), format!("{found:08x}")));
            }
        }
        if sound(bytes) {
            return Ok(());
        }
        Err(self.corrupt(place.offset, "a block whose lengths fit it", "another"))
    }

    pub(super) fn corrupt(&self, offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::corrupt(&self.path, offset, expected, found)
    }

    #[cold]
    fn beyond_the_end(&self, offset: u64, length: u64) -> Error {
        self.corrupt(offset, format!("{length} bytes"), format!("a file of {} bytes", self.file_bytes))
    }
}

/// One bit a block, set once and for all. Relaxed is enough: the bytes that a bit speaks about never change, so a thread
/// that misses a fresh bit only checks again.
#[derive(Debug, Default)]
struct Bitmap(Box<[AtomicU64]>);

impl Bitmap {
    fn new(bits: usize) -> Self {
        Self((0..bits.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    fn has(&self, bit: usize) -> bool {
        self.0.get(bit / 64).is_some_and(|word| word.load(Ordering::Relaxed) & (1 << (bit % 64)) != 0)
    }

    fn set(&self, bit: usize) {
        if let Some(word) = self.0.get(bit / 64) {
            word.fetch_or(1 << (bit % 64), Ordering::Relaxed);
        }
    }
}
