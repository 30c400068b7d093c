//! Writes a run, front to back, in bounded memory.

use std::fmt;
use std::path::{Path, PathBuf};

use super::compress::Compressor;
use super::filter;
use super::footer::{self, Footer, Place, Properties};
use super::header::{Layout, PageCodec, RunHeader, align_up};
use super::index::{IndexBuilder, PagePlace, StripePlace, fence};
use super::page::{MAX_PAGE_BYTES, PageBuilder, SINGLE_HEAD_BYTES, single_head, tag_of};
use crate::checksum::crc32;
use crate::entry::{
    Change, FAMILY_BYTES, FamilyId, MAX_KEY_BYTES, MAX_METADATA_BYTES, MAX_VALUE_BYTES, key_hash, split_full_key,
};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::WriteFile;
use crate::ranges::RangeSet;
use crate::version::RunKind;

/// A stripe is closed when it has reached one of these: together they bound what the writer holds.
const STRIPE_PAGES: usize = 1024;
const STRIPE_ENTRIES: usize = 64 << 10;
const STRIPE_INDEX_BYTES: usize = 256 << 10;
const STRIPE_FILE_BYTES: u64 = 64 << 20;
/// The file sees writes of at least this size, while there is that much.
const APPEND_BYTES: usize = 128 << 10;
const ALIGNED: u64 = 4096;
const PLAIN_PAGE_BYTES: usize = 4096;
const COMPRESSED_PAGE_BYTES: usize = 16 << 10;

/// Whether pages start where memory pages do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Packing {
    /// They do, so that a point get touches one page of memory: for runs that are read by key. Compressed pages never do.
    #[default]
    Aligned,
    /// They follow each other: for small deltas, which are mostly read through once.
    Packed,
}

/// How a run is laid out.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct WriterOptions {
    pub(crate) packing: Packing,
    /// The most bytes of a page (before compression) with more than one entry, up to 32 KiB. `None`: 4 KiB, or 16 KiB
    /// where they are compressed.
    pub(crate) page_bytes: Option<usize>,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunSummary {
    pub(crate) properties: Properties,
    pub(crate) range_tombstones: usize,
    pub(crate) pages: u64,
    pub(crate) file_bytes: u64,
}

/// Writes a run's entries in ascending order of full keys.
///
/// Holds one page, the hashes and page places of one stripe (≤ 64 Ki entries, 256 KiB), 128 KiB to append, and one fence
/// a stripe: about 1 MiB in all, and 40 bytes for every 4 MiB of file. Makes nothing durable: the caller syncs and
/// publishes the file, and throws it away after an error.
pub(crate) struct RunWriter<'f> {
    out: Output<'f>,
    kind: RunKind,
    family_count: usize,
    layout: Layout,
    page_limit: usize,
    compressor: Compressor,
    page: PageBuilder,
    page_fence: Vec<u8>,
    scratch: Vec<u8>,
    stripe: StripeBuilder,
    top: IndexBuilder<StripePlace>,
    last_key: Vec<u8>,
    pages: u64,
    properties: Properties,
    ranges: RangeSet,
    failed: bool,
}

#[derive(Debug)]
struct StripeBuilder {
    /// `None` before the first page.
    offset: Option<u64>,
    first_page: u64,
    fence: Vec<u8>,
    index: IndexBuilder<PagePlace>,
    /// Whether every page so far starts at its number times the alignment and is no longer than that.
    is_regular: bool,
    hashes: Vec<u64>,
}

impl<'f> RunWriter<'f> {
    /// Starts a run in the new file `file`; `path` is for errors.
    ///
    /// # Errors
    /// `InvalidInput` where header or options contradict themselves; whatever the file reports.
    pub(crate) fn new(
        file: &'f mut dyn WriteFile,
        path: &Path,
        header: &RunHeader,
        options: WriterOptions,
    ) -> Result<Self> {
        let (aligned, page_bytes) = match (header.codec, options.packing) {
            (PageCodec::None, Packing::Aligned) => (ALIGNED, PLAIN_PAGE_BYTES),
            (PageCodec::None, Packing::Packed) => (1, PLAIN_PAGE_BYTES),
            _ => (1, COMPRESSED_PAGE_BYTES),
        };
        let page_limit = options.page_bytes.unwrap_or(page_bytes);
        if page_limit > MAX_PAGE_BYTES {
            return Err(Error::invalid(format!("pages of {page_limit} bytes; at most {MAX_PAGE_BYTES} are possible")));
        }
        let (bytes, layout) = header.encode(aligned)?;
        let mut out = Output { file, path: path.to_path_buf(), buffer: Vec::with_capacity(APPEND_BYTES), written: 0 };
        out.append(&bytes)?;
        Ok(Self {
            out,
            kind: header.kind,
            family_count: header.families.names().len(),
            layout,
            page_limit,
            compressor: Compressor::new(header.codec)?,
            page: PageBuilder::default(),
            page_fence: Vec::new(),
            scratch: Vec::new(),
            stripe: StripeBuilder::new(0),
            top: IndexBuilder::new(),
            last_key: Vec::new(),
            pages: 0,
            properties: Properties::default(),
            ranges: RangeSet::default(),
            failed: false,
        })
    }

    /// Adds an entry: `full_key` has the value `value`.
    ///
    /// # Errors
    /// `InvalidInput` where the key is not above the one before or of no known family; `LimitExceeded`; whatever the file
    /// reports.
    #[cfg(test)]
    pub(crate) fn put(&mut self, full_key: &[u8], value: &[u8]) -> Result<()> {
        self.add(full_key, Change::Put(value))
    }

    /// Adds an entry: `full_key` is gone.
    ///
    /// # Errors
    /// As [`RunWriter::put`]; `InvalidInput` in a snapshot.
    #[cfg(test)]
    pub(crate) fn tombstone(&mut self, full_key: &[u8]) -> Result<()> {
        self.add(full_key, Change::Tombstone)
    }

    /// Adds an entry of either sort.
    ///
    /// # Errors
    /// As [`RunWriter::put`] and [`RunWriter::tombstone`].
    pub(crate) fn add(&mut self, full_key: &[u8], change: Change<&[u8]>) -> Result<()> {
        self.attempt(|this| this.add_entry(full_key, change))
    }

    /// Adds key ranges that this run deletes in every older one.
    ///
    /// # Errors
    /// `InvalidInput` in a snapshot.
    pub(crate) fn range_tombstones(&mut self, ranges: &RangeSet) -> Result<()> {
        if self.kind == RunKind::Snapshot && !ranges.is_empty() {
            return Err(Error::invalid("a snapshot holds no range tombstones"));
        }
        let too_long = |key: &[u8]| key.len() > MAX_KEY_BYTES + FAMILY_BYTES;
        if ranges.iter().any(|range| too_long(&range.start) || range.end.as_deref().is_some_and(too_long)) {
            return Err(Error::invalid("a range tombstone with a key over the limit"));
        }
        self.ranges.extend(ranges);
        Ok(())
    }

    /// Writes the rest of the file with the user's `metadata`. The bytes are handed to the file, not synced.
    ///
    /// # Errors
    /// `LimitExceeded` for too much metadata; whatever the file reports.
    pub(crate) fn finish(mut self, metadata: &[u8]) -> Result<RunSummary> {
        check_limit(metadata.len(), MAX_METADATA_BYTES, "the metadata is too long")?;
        self.attempt(|this| {
            this.finish_page()?;
            this.finish_stripe()?;
            this.finish_trailer(metadata)
        })
    }

    /// Runs `step`, and nothing ever again once one has failed half-way.
    fn attempt<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.failed {
            return Err(Error::new(
                ErrorKind::Poisoned,
                format!("writing {} has failed before", self.out.path.display()),
            ));
        }
        step(self).inspect_err(|_| self.failed = true)
    }

    fn add_entry(&mut self, key: &[u8], change: Change<&[u8]>) -> Result<()> {
        let value_bytes = change.into_value().map_or(0, <[u8]>::len);
        self.check_entry(key, change, value_bytes)?;
        let hash = key_hash(key);
        if !self.page.is_empty() && self.page.bytes_with(key.len(), value_bytes) > self.page_limit {
            self.finish_page()?;
        }
        if self.page.is_empty() {
            self.begin_page(key);
        }
        if self.page.bytes_with(key.len(), value_bytes) > self.page_limit {
            self.write_single(key, change, hash)?;
        } else {
            self.page.push(key, change, tag_of(hash));
            self.stripe.hashes.push(hash);
        }
        self.count(key, change, value_bytes);
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    fn check_entry(&self, key: &[u8], change: Change<&[u8]>, value_bytes: usize) -> Result<()> {
        check_limit(key.len(), MAX_KEY_BYTES + FAMILY_BYTES, "a key is too long")?;
        check_limit(value_bytes, MAX_VALUE_BYTES, "a value is too long")?;
        let known = split_full_key(key).is_some_and(|(family, _)| usize::from(family.0) < self.family_count);
        if !known {
            return Err(Error::invalid(format!("the key {} is of no family of this run", key.escape_ascii())));
        }
        if self.properties.entries > 0 && self.last_key.as_slice() >= key {
            let (last, key) = (self.last_key.escape_ascii(), key.escape_ascii());
            return Err(Error::invalid(format!("keys have to ascend: {last} came before {key}")));
        }
        if self.kind == RunKind::Snapshot && change == Change::Tombstone {
            return Err(Error::invalid("a snapshot holds no tombstones"));
        }
        Ok(())
    }

    fn count(&mut self, key: &[u8], change: Change<&[u8]>, value_bytes: usize) {
        let properties = &mut self.properties;
        if properties.entries == 0 {
            properties.smallest = key.to_vec();
        }
        properties.entries += 1;
        properties.tombstones += u64::from(change == Change::Tombstone);
        properties.key_bytes += key.len() as u64;
        properties.value_bytes += value_bytes as u64;
        // Keys ascend, so the entries of a family follow each other.
        let family = split_full_key(key).map_or(FamilyId::DEFAULT, |(family, _)| family);
        match properties.families.last_mut().filter(|(last, _)| *last == family) {
            Some((_, entries)) => *entries += 1,
            None => properties.families.push((family, 1)),
        }
    }

    fn begin_page(&mut self, first_key: &[u8]) {
        self.page_fence.clear();
        self.page_fence.extend_from_slice(fence(&self.last_key, first_key));
        if self.stripe.index.is_empty() {
            self.stripe.fence.clone_from(&self.page_fence);
        }
    }

    fn finish_page(&mut self) -> Result<()> {
        if self.page.is_empty() {
            return Ok(());
        }
        let mut raw = std::mem::take(&mut self.scratch);
        raw.clear();
        self.page.encode_into(&mut raw);
        self.write_page(&raw)?;
        self.scratch = raw;
        self.finish_stripe_if_full()
    }

    fn write_page(&mut self, raw: &[u8]) -> Result<()> {
        let offset = self.out.align(self.layout.align)?;
        let compressed = self.compressor.compress(raw)?;
        let stored = compressed.unwrap_or(raw);
        let (stored_bytes, crc) = (stored.len(), crc32(stored));
        self.out.append(stored)?;
        self.place_page(offset, stored_bytes, raw.len(), crc)
    }

    /// An entry that does not fit a page gets one to itself; uncompressed, its value goes to the file without a copy.
    fn write_single(&mut self, key: &[u8], change: Change<&[u8]>, hash: u64) -> Result<()> {
        let head = single_head(key, change);
        let value = change.into_value().unwrap_or_default();
        self.stripe.hashes.push(hash);
        if self.compressor.is_active() {
            let raw = [head.as_slice(), key, value].concat();
            self.write_page(&raw)?;
        } else {
            let offset = self.out.align(self.layout.align)?;
            let mut crc = crc32fast::Hasher::new();
            for part in [head.as_slice(), key, value] {
                crc.update(part);
                self.out.append(part)?;
            }
            let length = SINGLE_HEAD_BYTES + key.len() + value.len();
            self.place_page(offset, length, length, crc.finalize())?;
        }
        self.finish_stripe_if_full()
    }

    fn place_page(&mut self, offset: u64, stored_bytes: usize, raw_bytes: usize, crc: u32) -> Result<()> {
        let start = *self.stripe.offset.get_or_insert(offset);
        let place = PagePlace {
            offset: narrow(offset - start)?,
            stored_bytes: narrow(stored_bytes as u64)?,
            raw_bytes: narrow(raw_bytes as u64)?,
            crc,
        };
        let expected = (self.stripe.index.len() as u64).checked_mul(self.layout.align);
        let regular = expected == Some(u64::from(place.offset)) && u64::from(place.stored_bytes) <= self.layout.align;
        self.stripe.is_regular &= regular;
        self.stripe.index.push(&self.page_fence, place);
        self.pages += 1;
        Ok(())
    }

    fn finish_stripe_if_full(&mut self) -> Result<()> {
        let stripe = &self.stripe;
        let file_bytes = stripe.offset.map_or(0, |offset| self.out.position() - offset);
        let full = stripe.index.len() >= STRIPE_PAGES
            || stripe.hashes.len() >= STRIPE_ENTRIES
            || stripe.index.held_bytes() >= STRIPE_INDEX_BYTES
            || file_bytes >= STRIPE_FILE_BYTES;
        if full { self.finish_stripe() } else { Ok(()) }
    }

    fn finish_stripe(&mut self) -> Result<()> {
        let Some(offset) = self.stripe.offset else { return Ok(()) };
        let index = self.stripe.index.encode()?;
        let index_at = self.out.align(self.layout.block_align())?;
        self.out.append(&index)?;
        let filter = filter::build(&self.stripe.hashes);
        self.out.align(self.layout.block_align())?;
        self.out.append(&filter)?;
        let place = StripePlace {
            offset,
            first_page: self.stripe.first_page,
            index_offset: narrow(index_at - offset)?,
            index_bytes: narrow(index.len() as u64)?,
            index_crc: crc32(&index),
            stride: if self.stripe.is_regular { narrow(self.layout.align)? } else { 0 },
            filter_bytes: narrow(filter.len() as u64)?,
            filter_crc: crc32(&filter),
        };
        self.top.push(&self.stripe.fence, place);
        self.stripe.reset(self.pages);
        Ok(())
    }

    fn finish_trailer(&mut self, metadata: &[u8]) -> Result<RunSummary> {
        self.properties.largest.clone_from(&self.last_key);
        let ranges = self.out.block(&footer::encode_ranges(&self.ranges)?)?;
        let metadata = self.out.block(metadata)?;
        let properties = self.out.block(&self.properties.encode())?;
        let top = self.top.encode()?;
        let top = self.out.block(&top)?;
        let footer = Footer { pages: self.pages, ranges, metadata, properties, top };
        self.out.append(&footer.encode(&self.layout))?;
        self.out.flush()?;
        Ok(RunSummary {
            properties: std::mem::take(&mut self.properties),
            range_tombstones: self.ranges.len(),
            pages: self.pages,
            file_bytes: self.out.position(),
        })
    }
}

impl StripeBuilder {
    fn new(first_page: u64) -> Self {
        Self {
            offset: None,
            first_page,
            fence: Vec::new(),
            index: IndexBuilder::new(),
            is_regular: true,
            hashes: Vec::new(),
        }
    }

    fn reset(&mut self, first_page: u64) {
        self.offset = None;
        self.first_page = first_page;
        self.is_regular = true;
        self.hashes.clear(); // keeps its room for the next stripe
    }
}

fn check_limit(found: usize, limit: usize, what: &str) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    Err(Error::new(ErrorKind::LimitExceeded { limit: limit as u64, found: found as u64 }, what))
}

/// Lengths within a stripe, which is closed at 64 MiB and a page.
fn narrow(length: u64) -> Result<u32> {
    u32::try_from(length).map_err(|e| Error::invalid("a stripe of 4 GiB or more").with_source(e))
}

/// Collects appends until there is enough for the file.
struct Output<'f> {
    file: &'f mut dyn WriteFile,
    path: PathBuf,
    buffer: Vec<u8>,
    /// Bytes already handed to the file.
    written: u64,
}

impl Output<'_> {
    fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        if self.buffer.len() + bytes.len() > APPEND_BYTES {
            self.flush()?;
        }
        if bytes.len() < APPEND_BYTES {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        self.file.append(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Fills up with zeros to the next multiple of `align`; says where that is.
    fn align(&mut self, align: u64) -> Result<u64> {
        let position = self.position();
        let aligned = align_up(position, align).unwrap_or(position);
        let gap = usize::try_from(aligned - position).unwrap_or(0);
        if self.buffer.len() + gap > APPEND_BYTES {
            self.flush()?;
        }
        self.buffer.resize(self.buffer.len() + gap, 0);
        Ok(aligned)
    }

    /// Appends a block of the trailer; says where it lies.
    fn block(&mut self, bytes: &[u8]) -> Result<Place> {
        let place = Place::of(self.position(), bytes)?;
        self.append(bytes)?;
        Ok(place)
    }

    fn flush(&mut self) -> Result<()> {
        if !self.buffer.is_empty() {
            self.file.append(&self.buffer)?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }
}

impl fmt::Debug for RunWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunWriter").field("path", &self.out.path).field("pages", &self.pages).finish_non_exhaustive()
    }
}
