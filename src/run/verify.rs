//! Reads a whole run again and believes nothing: the scrub of one file.

use std::ops::ControlFlow;
use std::sync::Arc;

use super::filter;
use super::footer::{FOOTER_BYTES, Place, Properties};
use super::header::{RunHeader, align_up};
use super::index::{IndexView, PagePlace, StripePlace};
use super::page::{Page, tag_of};
use super::reader::{Run, Stripe, is_whole_page, stored_place};
use super::source::{Block, Role};
use crate::entry::{Change, Cursor, KeyRange, key_hash, split_full_key};
use crate::error::{Error, ErrorKind, Result};
use crate::version::RunKind;

/// What has been seen so far.
struct Walk<'r> {
    run: &'r Run,
    /// Every byte before this one has been checked.
    position: u64,
    pages: u64,
    seen: Properties,
}

impl Run {
    /// Reads the whole file again and checks every byte of it: checksums, order, filters, counts, padding. Calls `observe`
    /// with the bytes done after each page.
    ///
    /// # Errors
    /// `Corrupt` with the first thing that is wrong; `Cancelled` when `observe` breaks.
    pub(crate) fn verify(&self, observe: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<()> {
        let header_bytes = u64::from(self.layout.header_bytes);
        let mut walk = Walk { run: self, position: header_bytes, pages: 0, seen: Properties::default() };
        walk.header_is_unchanged()?;
        let top = walk.block(self.footer.top)?;
        let top = IndexView::<StripePlace>::parse(&top).ok_or_else(|| walk.disorder("a top index"))?;
        for number in 0..top.len() {
            walk.stripe(&self.stripe(&top, number)?, observe)?;
        }
        walk.trailer()
    }

    /// Whether gets and scans find everything, in spite of what [`verify`](Self::verify) may have met.
    ///
    /// # Errors
    /// The first thing that they would stumble over.
    pub(crate) fn can_be_read(self: &Arc<Self>) -> Result<()> {
        if let Some(top) = IndexView::<StripePlace>::parse(self.top()).filter(|top| top.len() > 0) {
            for number in 0..top.len() {
                self.filter(&self.stripe(&top, number)?)?;
            }
        }
        let mut entries = self.cursor(KeyRange::ALL);
        while entries.advance()? {}
        Ok(())
    }
}

impl<'r> Walk<'r> {
    /// The block at `place`, read and checked again.
    fn block(&self, place: Place) -> Result<Block<'r>> {
        let block = self.run.source.raw(place.offset, u64::from(place.length))?;
        self.run.source.check(Role::Guide, place, &block, |_| true)?;
        Ok(block)
    }

    fn disorder(&self, expected: &str) -> Error {
        self.run.source.corrupt(self.position, expected, "something else")
    }

    /// Checks that `place` follows what has been checked, with nothing but zeros for alignment between.
    fn reach(&mut self, place: Place, align: u64) -> Result<()> {
        let expected = align_up(self.position, align).unwrap_or(u64::MAX);
        if place.offset != expected {
            let found = format!("a block at {}", place.offset);
            return Err(self.run.source.corrupt(self.position, format!("a block at {expected}"), found));
        }
        let padding = self.run.source.raw(self.position, expected.saturating_sub(self.position))?;
        if padding.iter().any(|byte| *byte != 0) {
            return Err(self.run.source.corrupt(self.position, "zeros as padding", "other bytes"));
        }
        self.position = place.end();
        Ok(())
    }

    fn stripe(&mut self, stripe: &Stripe, observe: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Result<()> {
        let (align, block_align) = (self.run.layout.align, self.run.layout.block_align());
        if stripe.place.first_page != self.pages {
            return Err(self.disorder(&format!("a stripe that starts with page {}", self.pages)));
        }
        let index_block = self.block(stripe.place.page_index())?;
        let index = IndexView::<PagePlace>::parse(&index_block).filter(|index| index.len() > 0 && index.is_sound());
        let index = index.ok_or_else(|| self.run.bad_index(stripe))?;
        let filter = self.block(stripe.place.filter(block_align))?;
        if filter.is_empty() || !filter.len().is_multiple_of(filter::LINE_BYTES) {
            return Err(self.disorder("a filter of whole lines"));
        }
        for number in 0..index.len() {
            let place = index.entry(number).ok_or_else(|| self.run.bad_index(stripe))?;
            let stored = stored_place(stripe, &place);
            self.reach(stored, align)?;
            if !stripe.place.allows(number, &place) {
                return Err(self.run.bad_index(stripe));
            }
            self.page(stripe, &index, number, &filter)?;
            self.pages += 1;
            if observe(self.position).is_break() {
                return Err(Error::new(ErrorKind::Cancelled, "verifying a run"));
            }
        }
        self.reach(stripe.place.page_index(), block_align)?;
        self.reach(stripe.place.filter(block_align), block_align)
    }

    fn page(&mut self, stripe: &Stripe, index: &IndexView<'_, PagePlace>, number: usize, filter: &[u8]) -> Result<()> {
        let place = index.entry(number).ok_or_else(|| self.run.bad_index(stripe))?;
        let bad_page = || self.run.bad_page(stripe, &place);
        let stored = self.block(stored_place(stripe, &place))?;
        let bytes = if place.raw_bytes == place.stored_bytes {
            stored
        } else {
            Block::Own(self.run.decompress(stripe, &place, &stored)?.into())
        };
        let page = Page::parse(&bytes).filter(|_| is_whole_page(&bytes)).ok_or_else(bad_page)?;
        let mut before: Option<&[u8]> = None;
        for entry in 0..page.len() {
            let span = page.span(&bytes, entry).ok_or_else(bad_page)?;
            let key = bytes.get(span.key).ok_or_else(bad_page)?;
            let hash = key_hash(key);
            let tag_fits = page.tag(&bytes, entry).is_none_or(|tag| tag == tag_of(hash));
            if before.is_some_and(|before| before >= key) || !tag_fits || !filter::may_hold(filter, hash) {
                return Err(bad_page());
            }
            let value = span.value.map(|value| value.len());
            if value == Change::Tombstone && self.run.header().kind == RunKind::Snapshot {
                return Err(self.run.tombstone_in_snapshot(stripe));
            }
            self.count(key, value).ok_or_else(bad_page)?;
            before = Some(key);
        }
        let first = page.key(&bytes, 0).unwrap_or_default();
        let last = before.unwrap_or_default();
        if !self.run.fences_hold(stripe, index, number, first, last) {
            return Err(self.run.bad_fences(stripe, &place));
        }
        self.seen.largest = last.to_vec();
        Ok(())
    }

    /// Counts an entry; `None` where its key is of no family of this run.
    fn count(&mut self, key: &[u8], value: Change<usize>) -> Option<()> {
        let (family, _) = split_full_key(key)?;
        self.run.header().families.names().get(usize::from(family.0))?;
        let seen = &mut self.seen;
        if seen.entries == 0 {
            seen.smallest = key.to_vec();
        }
        seen.entries += 1;
        seen.tombstones += u64::from(value == Change::Tombstone);
        seen.key_bytes += key.len() as u64;
        seen.value_bytes += value.into_value().unwrap_or(0) as u64;
        match seen.families.last_mut().filter(|(last, _)| *last == family) {
            Some((_, entries)) => *entries += 1,
            None => seen.families.push((family, 1)),
        }
        Some(())
    }

    /// Checks that the blocks behind the stripes follow them, and that the counts are those of the entries.
    fn trailer(mut self) -> Result<()> {
        let footer = self.run.footer;
        for place in [footer.ranges, footer.metadata, footer.properties, footer.top] {
            self.block(place)?;
            self.reach(place, 1)?;
        }
        if self.pages != footer.pages {
            return Err(self.disorder(&format!("{} pages as in the footer", footer.pages)));
        }
        if self.seen != *self.run.properties() {
            let found = format!("{:?}", self.seen);
            return Err(self.run.source.corrupt(
                footer.properties.offset,
                format!("{:?}", self.run.properties()),
                found,
            ));
        }
        self.footer_is_unchanged()
    }

    /// Reads the header once more: it was believed since the run was opened.
    fn header_is_unchanged(&self) -> Result<()> {
        let run = self.run;
        let bytes = run.source.raw(0, u64::from(run.layout.header_bytes))?;
        let (header, layout) = RunHeader::decode(run.path(), &bytes)?;
        if header == *run.header() && layout.header_crc == run.layout.header_crc {
            return Ok(());
        }
        Err(run.source.corrupt(0, "the header as it was at open", "another"))
    }

    /// Reads the footer once more: it was believed since the run was opened.
    fn footer_is_unchanged(&self) -> Result<()> {
        let run = self.run;
        let bytes = run.source.raw(self.position, FOOTER_BYTES)?;
        let expected = run.footer.encode(&run.layout);
        if *bytes == *expected {
            return Ok(());
        }
        Err(self.disorder("the footer as it was at open"))
    }
}
