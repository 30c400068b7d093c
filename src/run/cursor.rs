//! A walk over the entries of one run.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use super::index::{IndexView, PagePlace, StripePlace};
use super::page::Page;
use super::reader::{Run, Stripe};
use crate::bytes::Bytes;
use crate::entry::{Change, Cursor, KeyRange};
use crate::error::{Error, ErrorKind, Result};
use crate::version::RunKind;

impl Run {
    /// The entries of `range` in ascending order, this run's range tombstones aside.
    pub(crate) fn cursor(self: &Arc<Self>, range: KeyRange) -> RunCursor {
        RunCursor::new(Arc::clone(self), range)
    }
}

/// The entries of a run within a key range, in ascending order.
///
/// Holds the current page (a view, or decompressed) and the views of one page index. Every page is checked as it is
/// reached: its CRC, that its keys ascend, and that they lie between its fence and the next one's.
#[derive(Debug)]
pub(crate) struct RunCursor {
    run: Arc<Run>,
    range: KeyRange,
    state: State,
    /// The page index of the current stripe.
    index: Bytes,
    stripe: usize,
    page_number: usize,
    page_bytes: Bytes,
    page: Page,
    /// The entries of the current page that are still to come.
    ahead: Range<usize>,
    key: Range<usize>,
    value: Change<Range<usize>>,
}

#[derive(Debug)]
enum State {
    Unplaced,
    InPage,
    Done,
    Failed(ErrorKind),
}

impl RunCursor {
    pub(super) fn new(run: Arc<Run>, range: KeyRange) -> Self {
        Self {
            run,
            range,
            state: State::Unplaced,
            index: Bytes::default(),
            stripe: 0,
            page_number: 0,
            page_bytes: Bytes::default(),
            page: Page::default(),
            ahead: 0..0,
            key: 0..0,
            value: Change::Tombstone,
        }
    }

    fn step(&mut self) -> Result<bool> {
        loop {
            if let Some(number) = self.ahead.next() {
                return self.take(number).map(|()| true);
            }
            let found = match self.state {
                State::Unplaced => self.place()?,
                State::InPage => self.next_page()?,
                State::Done | State::Failed(_) => false,
            };
            if !found {
                self.state = State::Done;
                self.page_bytes = Bytes::default();
                return Ok(false);
            }
        }
    }

    fn take(&mut self, number: usize) -> Result<()> {
        let Some(span) = self.page.span(&self.page_bytes, number) else { return Err(self.disorder("an entry")) };
        // The first entry of a page is compared with its fence instead.
        let ascends = number == 0 || self.page_bytes.get(self.key.clone()) < self.page_bytes.get(span.key.clone());
        if !ascends {
            return Err(self.disorder("keys that ascend"));
        }
        self.key = span.key;
        self.value = span.value;
        Ok(())
    }

    /// Goes to the page that holds the start of the range.
    fn place(&mut self) -> Result<bool> {
        self.state = State::InPage;
        let run = Arc::clone(&self.run);
        let Some(top) = IndexView::<StripePlace>::parse(&run.top).filter(|top| top.len() > 0) else {
            return Ok(false);
        };
        if self.range.is_empty() {
            return Ok(false);
        }
        self.stripe = top.find(&self.range.start);
        let stripe = run.stripe(&top, self.stripe)?;
        self.index = run.page_index(&stripe)?.into_bytes();
        let index = IndexView::<PagePlace>::parse(&self.index).ok_or_else(|| run.bad_index(&stripe))?;
        self.page_number = index.find(&self.range.start);
        self.enter(&stripe)?;
        let first = self.page.lower_bound(&self.page_bytes, &self.range.start);
        let first = first.ok_or_else(|| self.disorder("a page"))?;
        self.ahead.start = first.min(self.ahead.end);
        if let Some(before) = self.ahead.start.checked_sub(1) {
            self.key = self.page.span(&self.page_bytes, before).map_or(0..0, |span| span.key);
        }
        Ok(true)
    }

    /// Goes to the page after the current one, unless the range ends before it.
    fn next_page(&mut self) -> Result<bool> {
        let run = Arc::clone(&self.run);
        let Some(top) = IndexView::<StripePlace>::parse(&run.top) else { return Ok(false) };
        self.page_number += 1;
        let pages = IndexView::<PagePlace>::parse(&self.index).map_or(0, |index| index.len());
        if self.page_number >= pages {
            self.stripe += 1;
            self.page_number = 0;
            if self.stripe >= top.len() || top.starts_beyond(&self.range, self.stripe) {
                return Ok(false);
            }
            let stripe = run.stripe(&top, self.stripe)?;
            self.index = run.page_index(&stripe)?.into_bytes();
            return self.enter(&stripe).map(|()| true);
        }
        let stripe = run.stripe(&top, self.stripe)?;
        let index = IndexView::<PagePlace>::parse(&self.index).ok_or_else(|| run.bad_index(&stripe))?;
        if index.starts_beyond(&self.range, self.page_number) {
            return Ok(false);
        }
        self.enter(&stripe).map(|()| true)
    }

    /// Reads page `self.page_number` of `stripe` and looks where the range ends in it.
    fn enter(&mut self, stripe: &Stripe) -> Result<()> {
        let run = Arc::clone(&self.run);
        let index = IndexView::<PagePlace>::parse(&self.index).ok_or_else(|| run.bad_index(stripe))?;
        let place = index.entry(self.page_number).ok_or_else(|| run.bad_index(stripe))?;
        let bytes = run.page(stripe, self.page_number, &place)?.into_bytes();
        let page = Page::parse(&bytes).ok_or_else(|| run.bad_page(stripe, &place))?;
        let first = page.key(&bytes, 0);
        let last = page.len().checked_sub(1).and_then(|last| page.key(&bytes, last));
        let (Some(first), Some(last)) = (first, last) else { return Err(run.bad_page(stripe, &place)) };
        if !run.fences_hold(stripe, &index, self.page_number, first, last) {
            return Err(run.bad_fences(stripe, &place));
        }
        let until = match &self.range.end {
            Some(end) if last >= end.as_slice() => page.lower_bound(&bytes, end),
            _ => Some(page.len()),
        };
        self.ahead = 0..until.ok_or_else(|| run.bad_page(stripe, &place))?;
        self.page = page;
        self.page_bytes = bytes;
        Ok(())
    }

    fn disorder(&self, expected: &str) -> Error {
        let (stripe, page) = (self.stripe, self.page_number);
        Error::corrupt(self.run.path(), 0, expected, format!("another thing in page {page} of stripe {stripe}"))
    }
}

impl Run {
    /// Whether a page whose keys go from `first` to `last` keeps between its own fence and that of the page after it.
    pub(super) fn fences_hold(
        &self,
        stripe: &Stripe,
        index: &IndexView<'_, PagePlace>,
        page: usize,
        first: &[u8],
        last: &[u8],
    ) -> bool {
        let Some(top) = IndexView::<StripePlace>::parse(&self.top) else { return false };
        let own = match page {
            0 => top.compare(first, stripe.number),
            _ => index.compare(first, page),
        };
        let next = match page + 1 < index.len() {
            true => index.compare(last, page + 1),
            false if stripe.number + 1 < top.len() => top.compare(last, stripe.number + 1),
            false => None,
        };
        own.is_none_or(Ordering::is_ge) && next.is_none_or(Ordering::is_lt)
    }

    #[cold]
    pub(super) fn bad_fences(&self, stripe: &Stripe, place: &PagePlace) -> Error {
        let offset = super::reader::stored_place(stripe, place).offset;
        self.source.corrupt(offset, "keys between the page's fence and the next one's", "others")
    }
}

impl Cursor for RunCursor {
    fn advance(&mut self) -> Result<bool> {
        if let State::Failed(kind) = &self.state {
            return Err(Error::new(kind.clone(), "the cursor has failed before"));
        }
        let stepped = self.step();
        let stepped = match stepped {
            Ok(true) if self.value == Change::Tombstone && self.run.header().kind == RunKind::Snapshot => {
                Err(self.disorder("a snapshot without tombstones"))
            }
            other => other,
        };
        stepped.inspect_err(|e| self.state = State::Failed(e.kind().clone()))
    }

    fn key(&self) -> &[u8] {
        self.page_bytes.get(self.key.clone()).unwrap_or_default()
    }

    fn change(&self) -> Change<&[u8]> {
        self.value.clone().map(|range| self.page_bytes.get(range).unwrap_or_default())
    }

    fn key_bytes(&self) -> Bytes {
        self.page_bytes.slice(self.key.clone()).unwrap_or_default()
    }

    fn change_bytes(&self) -> Change<Bytes> {
        self.value.clone().map(|range| self.page_bytes.slice(range).unwrap_or_default())
    }
}
