//! An open run: what it is, and point gets.

use std::fmt;
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::compress;
use super::filter;
use super::footer::{self, FOOTER_BYTES, Footer, Place, Properties};
use super::header::{Layout, PRELUDE_BYTES, PageCodec, RunHeader};
use super::index::{IndexView, PagePlace, StripePlace};
use super::page::{Page, SINGLE_HEAD_BYTES, tag_of};
use super::source::{Access, Block, Role, Source};
use crate::bytes::Bytes;
use crate::codec::Reader;
use crate::entry::{Change, FAMILY_BYTES, MAX_KEY_BYTES, MAX_METADATA_BYTES, MAX_VALUE_BYTES, Probe};
use crate::error::{Error, Result};
use crate::fs::ReadFile;
use crate::ranges::RangeSet;
use crate::version::RunKind;

/// The longest page that a writer makes: a key and a value of the largest sizes. Nothing is decompressed into more.
pub(super) const MAX_RAW_PAGE_BYTES: usize = SINGLE_HEAD_BYTES + FAMILY_BYTES + MAX_KEY_BYTES + MAX_VALUE_BYTES;

/// An open run. Shared between threads; keeps its file readable after the name is gone.
///
/// Heap: the header and the range tombstones; in a mapping one bit a block and 16 bytes a stripe, in [`Access::Positioned`] the top index, the
/// metadata and the last page index and filter. Nothing per key.
pub(crate) struct Run {
    header: RunHeader,
    pub(super) layout: Layout,
    pub(super) footer: Footer,
    pub(super) source: Source,
    pub(super) top: Bytes,
    /// Where the filter of each stripe lies, for gets from a mapping.
    filters: Box<[Range<usize>]>,
    ranges: Arc<RangeSet>,
    metadata: Bytes,
    properties: Properties,
}

/// A stripe of an open run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stripe {
    pub(super) number: usize,
    pub(super) place: StripePlace,
}

/// A value where it lies.
#[derive(Debug)]
pub(crate) struct Found<'a> {
    block: Block<'a>,
    value: Range<usize>,
}

impl Deref for Found<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.block.get(self.value.clone()).unwrap_or_default() // the span was inside when it was made
    }
}

impl Found<'_> {
    /// The value as a view that outlives the run's borrow; copies nothing.
    pub(crate) fn into_bytes(self) -> Bytes {
        self.block.view(self.value.clone()).unwrap_or_default()
    }
}

impl Run {
    /// Opens the run in `file`; `path` is for errors. Reads the header, the footer and the blocks behind the last stripe,
    /// and no entry.
    ///
    /// # Errors
    /// `Corrupt`, also for a file cut short; `Unsupported` for a format, codec or encryption of another build.
    pub(crate) fn open(file: Arc<dyn ReadFile>, path: PathBuf, access: Access) -> Result<Arc<Self>> {
        Self::open_with(file, path, access, true).map(Arc::new)
    }

    /// As [`Run::open`], but believes pages without looking at their checksums: a planted bug that a crash harness has to
    /// find.
    #[doc(hidden)]
    #[cfg(any(test, feature = "conformance"))]
    pub(crate) fn open_without_page_checksums(
        file: Arc<dyn ReadFile>,
        path: PathBuf,
        access: Access,
    ) -> Result<Arc<Self>> {
        Self::open_with(file, path, access, false).map(Arc::new)
    }

    fn open_with(file: Arc<dyn ReadFile>, path: PathBuf, access: Access, checks_pages: bool) -> Result<Self> {
        let file_bytes = file.len();
        let least = FOOTER_BYTES.saturating_add(PRELUDE_BYTES as u64);
        if file_bytes < least {
            return Err(Error::corrupt(path, file_bytes, format!("a run of at least {least} bytes"), "the end"));
        }
        let mut source = Source::new(file, path, access, checks_pages)?;
        let (header, layout) = read_header(&source)?;
        let footer = read_footer(&source, &layout)?;
        let ranges = {
            let block = trailer(&source, "range tombstones", footer.ranges)?;
            Arc::new(footer::decode_ranges(Reader::new(source.path(), footer.ranges.offset, &block))?)
        };
        let properties = {
            let block = trailer(&source, "properties", footer.properties)?;
            Properties::decode(Reader::new(source.path(), footer.properties.offset, &block))?
        };
        if footer.metadata.length as usize > MAX_METADATA_BYTES {
            let found = footer.metadata.length.to_string();
            return Err(source.corrupt(footer.metadata.offset, "at most 1 MiB of metadata", found));
        }
        if header.kind == RunKind::Snapshot && (properties.tombstones > 0 || !ranges.is_empty()) {
            return Err(source.corrupt(footer.ranges.offset, "a snapshot without tombstones", "tombstones"));
        }
        let metadata = trailer(&source, "metadata", footer.metadata)?.into_bytes();
        let top = trailer(&source, "top index", footer.top)?.into_bytes();
        let Some(index) = IndexView::<StripePlace>::parse(&top).filter(IndexView::is_sound) else {
            return Err(source.corrupt(footer.top.offset, "a top index", "something else"));
        };
        let stripes = index.len();
        let pages = usize::try_from(footer.pages).unwrap_or(usize::MAX);
        source.expect_blocks(pages.saturating_add(stripes.saturating_mul(2)));
        let filters = filter_ranges(&index, &layout).take(if source.is_mapped() { usize::MAX } else { 0 }).collect();
        Ok(Self { header, layout, footer, source, top, filters, ranges, metadata, properties })
    }

    pub(crate) fn header(&self) -> &RunHeader {
        &self.header
    }

    /// The user metadata of the commit that made `to`.
    pub(crate) fn metadata(&self) -> &Bytes {
        &self.metadata
    }

    /// The key ranges that this run deletes in every older run.
    pub(crate) fn ranges(&self) -> &Arc<RangeSet> {
        &self.ranges
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(crate) fn path(&self) -> &Path {
        self.source.path()
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.source.file_bytes()
    }

    /// Blocks that were read or, in a mapping, checked for the first time.
    #[cfg(test)]
    pub(crate) fn blocks_read(&self) -> u64 {
        self.source.read().0
    }

    /// Pages that point gets have looked into, each time they did.
    #[cfg(test)]
    pub(crate) fn pages_touched(&self) -> u64 {
        self.source.pages_touched()
    }

    /// The bytes of those blocks.
    #[cfg(test)]
    pub(crate) fn bytes_read(&self) -> u64 {
        self.source.read().1
    }

    /// Heap that this run holds while it is open.
    #[cfg(test)]
    pub(crate) fn heap_bytes(&self) -> usize {
        let key = |bytes: &Vec<u8>| bytes.len() + size_of::<Vec<u8>>();
        let ranges: usize = self.ranges.iter().map(|r| key(&r.start) + r.end.as_ref().map_or(24, key)).sum();
        let names: usize = self.header.families.names().iter().map(|name| name.as_str().len() + 24).sum();
        let keys = self.properties.smallest.len() + self.properties.largest.len();
        let owned = if self.source.is_mapped() { 0 } else { self.top.len() + self.metadata.len() };
        size_of::<Self>()
            + self.source.heap_bytes()
            + size_of_val(&*self.filters)
            + ranges
            + names
            + keys
            + owned
            + self.properties.families.len() * 16
    }

    /// Whether a range tombstone of this run deletes `full_key` in older runs.
    pub(crate) fn covers(&self, full_key: &[u8]) -> bool {
        self.ranges.contains(full_key)
    }

    /// What this run's entries say about a key, its range tombstones aside; the value is a view of the file where the page
    /// is not compressed.
    ///
    /// # Errors
    /// `Corrupt` where a block on the way to the entry is damaged.
    pub(crate) fn get(&self, probe: &Probe<'_>) -> Result<Option<Change<Bytes>>> {
        Ok(self.get_ref(probe)?.map(|change| change.map(Found::into_bytes)))
    }

    /// Whether a get has to look into this run. Only a filter that this mapping has checked is asked: what is wrong with another, the get meets.
    #[inline]
    pub(crate) fn may_hold(&self, probe: &Probe<'_>) -> bool {
        let number = match &*self.filters {
            [] => return true,
            [_] => 0,
            _ => IndexView::<StripePlace>::parse(&self.top).map_or(0, |top| top.find(probe.full_key)),
        };
        let filter = self.filters.get(number).and_then(|range| self.source.seen(self.filter_bit(number), range));
        filter.is_none_or(|filter| filter::may_hold(filter, probe.hash))
    }

    /// As [`Run::get`], for a look at the value: leaves out the reference count.
    ///
    /// # Errors
    /// As [`Run::get`].
    #[inline]
    pub(crate) fn get_ref(&self, probe: &Probe<'_>) -> Result<Option<Change<Found<'_>>>> {
        let Some(top) = IndexView::<StripePlace>::parse(&self.top).filter(|top| top.len() > 0) else {
            return Ok(None);
        };
        let stripe = self.stripe(&top, top.find(probe.full_key))?;
        if !filter::may_hold(&self.filter(&stripe)?, probe.hash) {
            return Ok(None);
        }
        let block = self.page_index(&stripe)?;
        let Some(index) = IndexView::<PagePlace>::parse(&block) else { return Err(self.bad_index(&stripe)) };
        let number = index.find(probe.full_key);
        #[cfg(test)]
        self.source.touch_page();
        let bytes = if let Some(bytes) = self.checked_page(&stripe, number) {
            bytes
        } else {
            let Some(place) = index.entry(number) else { return Err(self.bad_index(&stripe)) };
            self.page(&stripe, number, &place)?
        };
        let Some(page) = Page::parse(&bytes) else { return Err(self.bad_index(&stripe)) };
        match page.find(&bytes, probe.full_key, tag_of(probe.hash)) {
            None => Ok(None),
            Some(span) => match span.value {
                Change::Put(value) => Ok(Some(Change::Put(Found { block: bytes, value }))),
                Change::Tombstone if self.header.kind == RunKind::Snapshot => Err(self.tombstone_in_snapshot(&stripe)),
                Change::Tombstone => Ok(Some(Change::Tombstone)),
            },
        }
    }

    pub(super) fn top(&self) -> &[u8] {
        &self.top
    }

    #[inline]
    pub(super) fn stripe(&self, top: &IndexView<'_, StripePlace>, number: usize) -> Result<Stripe> {
        match top.entry(number) {
            Some(place) => Ok(Stripe { number, place }),
            None => Err(self.source.corrupt(self.footer.top.offset, format!("stripe {number}"), "fewer stripes")),
        }
    }

    /// The bits behind those of the pages are for page indexes and filters, in turn.
    #[inline]
    fn index_bit(&self, stripe: usize) -> usize {
        let pages = usize::try_from(self.footer.pages).unwrap_or(usize::MAX);
        pages.saturating_add(stripe.saturating_mul(2))
    }

    #[inline]
    fn filter_bit(&self, stripe: usize) -> usize {
        self.index_bit(stripe).saturating_add(1)
    }

    #[inline]
    pub(super) fn page_index(&self, stripe: &Stripe) -> Result<Block<'_>> {
        self.source.block(Role::Guide, self.index_bit(stripe.number), stripe.place.page_index(), |bytes| {
            IndexView::<PagePlace>::parse(bytes).is_some_and(|index| index.len() > 0 && index.is_sound())
        })
    }

    #[inline]
    pub(super) fn filter(&self, stripe: &Stripe) -> Result<Block<'_>> {
        let place = stripe.place.filter(self.layout.block_align());
        self.source.block(Role::Guide, self.filter_bit(stripe.number), place, |bytes| {
            !bytes.is_empty() && bytes.len().is_multiple_of(filter::LINE_BYTES)
        })
    }

    fn page_bit(stripe: &Stripe, number: usize) -> Option<usize> {
        usize::try_from(stripe.place.first_page).ok()?.checked_add(number)
    }

    /// Page `number` of a stripe with a stride, if this mapping has seen that it is sound. Reaches beyond the page's end to
    /// the next one's start.
    #[inline]
    fn checked_page(&self, stripe: &Stripe, number: usize) -> Option<Block<'_>> {
        let step = u64::from(stripe.place.stride);
        if step == 0 || !self.source.has_checked(Self::page_bit(stripe, number)?) {
            return None;
        }
        let offset = stripe.place.offset.checked_add(step.checked_mul(number as u64)?)?;
        self.source.raw(offset, step.min(self.file_bytes().checked_sub(offset)?)).ok()
    }

    /// Page `number` of a stripe, as it was before compression.
    #[inline]
    pub(super) fn page(&self, stripe: &Stripe, number: usize, place: &PagePlace) -> Result<Block<'_>> {
        let bit = Self::page_bit(stripe, number).filter(|bit| (*bit as u64) < self.footer.pages);
        let Some(bit) = bit.filter(|_| stripe.place.allows(number, place)) else {
            return Err(self.bad_index(stripe));
        };
        let stored = stored_place(stripe, place);
        if place.raw_bytes == place.stored_bytes {
            return self.source.block(Role::Page, bit, stored, is_whole_page);
        }
        let block = self.source.block(Role::Page, bit, stored, |_| true)?;
        self.decompress(stripe, place, &block).map(|raw| Block::Own(raw.into()))
    }

    pub(super) fn decompress(&self, stripe: &Stripe, place: &PagePlace, stored: &[u8]) -> Result<Vec<u8>> {
        let raw_bytes = usize::try_from(place.raw_bytes).unwrap_or(usize::MAX);
        // LZ4 cannot say more than 255 bytes with one; zstd can, so that only the longest page bounds it.
        let justified = match self.header.codec {
            PageCodec::None => 0,
            PageCodec::Lz4 => stored.len().saturating_mul(255).min(MAX_RAW_PAGE_BYTES),
            PageCodec::Zstd => MAX_RAW_PAGE_BYTES,
        };
        let fits = (raw_bytes <= justified).then_some(raw_bytes);
        let raw = fits.and_then(|raw_bytes| compress::decompress(self.header.codec, stored, raw_bytes));
        raw.filter(|raw| is_whole_page(raw)).ok_or_else(|| {
            let expected = format!("a {:?} page of {raw_bytes} bytes", self.header.codec);
            self.source.corrupt(stored_place(stripe, place).offset, expected, "something else")
        })
    }

    #[cold]
    pub(super) fn bad_index(&self, stripe: &Stripe) -> Error {
        self.source.corrupt(stripe.place.page_index().offset, "a page index", "something else")
    }

    #[cold]
    pub(super) fn bad_page(&self, stripe: &Stripe, place: &PagePlace) -> Error {
        self.source.corrupt(stored_place(stripe, place).offset, "a page", "something else")
    }

    #[cold]
    pub(super) fn tombstone_in_snapshot(&self, stripe: &Stripe) -> Error {
        self.source.corrupt(stripe.place.offset, "a snapshot without tombstones", "a tombstone")
    }
}

/// Where the filters of all stripes lie, by the top index; empty where that cannot be.
fn filter_ranges(top: &IndexView<'_, StripePlace>, layout: &Layout) -> impl Iterator<Item = Range<usize>> {
    (0..top.len()).map(|number| {
        let place = top.entry(number).map(|stripe| stripe.filter(layout.block_align()));
        let start = place.and_then(|place| usize::try_from(place.offset).ok());
        let end = place.and_then(|place| usize::try_from(place.end()).ok());
        start.zip(end).map_or(0..0, |(start, end)| start..end)
    })
}

#[inline]
pub(super) fn stored_place(stripe: &Stripe, place: &PagePlace) -> Place {
    let offset = stripe.place.offset.saturating_add(u64::from(place.offset));
    Place { offset, length: place.stored_bytes, crc: place.crc }
}

pub(super) fn is_whole_page(bytes: &[u8]) -> bool {
    Page::parse(bytes).is_some_and(|page| page.is_whole(bytes))
}

fn read_header(source: &Source) -> Result<(RunHeader, Layout)> {
    let prelude = source.raw(0, PRELUDE_BYTES as u64)?;
    let length = RunHeader::length(source.path(), &prelude)?;
    let bytes = source.raw(0, length as u64)?;
    RunHeader::decode(source.path(), &bytes)
}

fn read_footer(source: &Source, layout: &Layout) -> Result<Footer> {
    let bytes = source.raw(source.file_bytes().saturating_sub(FOOTER_BYTES), FOOTER_BYTES)?;
    let Some(bytes) = bytes.first_chunk() else { return Err(source.corrupt(0, "a footer", "the end")) };
    Footer::decode(source.path(), source.file_bytes(), layout, bytes)
}

fn trailer<'a>(source: &'a Source, what: &str, place: Place) -> Result<Block<'a>> {
    let block = source.raw(place.offset, u64::from(place.length))?;
    source.check(Role::Guide, place, &block, |_| true).map_err(|e| e.context(what))?;
    Ok(block)
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("path", &self.path()).field("header", &self.header).finish_non_exhaustive()
    }
}
