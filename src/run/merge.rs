//! Many layers as one: the newest entry of each key, with what range tombstones of newer layers delete left out.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::bytes::Bytes;
use crate::entry::{Change, Cursor};
use crate::error::{Error, ErrorKind, Result};
use crate::ranges::RangeSet;

/// One source of a merge: its entries, and the key ranges that it deletes in every older layer (not in its own entries).
pub(crate) struct Layer {
    pub(crate) cursor: Box<dyn Cursor>,
    pub(crate) ranges: Arc<RangeSet>,
}

/// A k-way merge in which the newest layer wins.
///
/// Gives tombstones too, as a collapse needs them; [`Merge::live`] leaves them out. The layers wait in a list sorted by
/// their next key: a step takes the first, and puts it back with one comparison where it stays first, else by bisection.
pub(crate) struct Merge {
    layers: Vec<Slot>,
    /// The layers that have an entry to give, by (key, newest first).
    order: Vec<usize>,
    /// The layers whose ranges delete something, newest first.
    deleting: Vec<usize>,
    state: State,
}

struct Slot {
    cursor: Box<dyn Cursor>,
    ranges: Arc<RangeSet>,
    /// The first bytes of the cursor's key as a number, which decides most comparisons.
    head: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Unplaced,
    /// The entry given last is that of the first layer in `order`.
    Placed,
    Failed {
        layer: usize,
    },
}

impl Merge {
    /// Merges `layers`, newest first, each standing in front of its first entry.
    pub(crate) fn new(layers: Vec<Layer>) -> Self {
        let layers: Vec<Slot> = // as many as there are layers
            layers.into_iter().map(|Layer { cursor, ranges }| Slot { cursor, ranges, head: 0 }).collect();
        let deleting = (0..layers.len()).filter(|i| layers.get(*i).is_some_and(|l| !l.ranges.is_empty())).collect();
        Self { order: Vec::with_capacity(layers.len()), layers, deleting, state: State::Unplaced }
    }

    /// The same without tombstones: what a reader sees.
    pub(crate) fn live(self) -> Live<Self> {
        Live::new(self)
    }

    fn step(&mut self) -> Result<bool> {
        if self.state == State::Unplaced {
            for layer in 0..self.layers.len() {
                if self.pull(layer)? {
                    self.insert(layer, 0);
                }
            }
            self.state = State::Placed;
        } else {
            self.pass()?;
        }
        while let Some(first) = self.order.first().copied() {
            if !self.is_deleted(first) {
                return Ok(true);
            }
            self.pass()?;
        }
        Ok(false)
    }

    /// Steps every layer that stands at the smallest key: the first gave it, the others are older.
    fn pass(&mut self) -> Result<()> {
        let Some(first) = self.order.first().copied() else { return Ok(()) };
        while let Some(older) = self.order.get(1).copied().filter(|older| self.compare(first, *older).is_eq()) {
            let more = self.pull(older)?;
            self.order.remove(1);
            if more {
                self.insert(older, 1);
            }
        }
        let more = self.pull(first)?;
        match self.order.get(1).copied() {
            _ if !more => {
                self.order.remove(0);
            }
            Some(second) if self.goes_behind(first, second) => {
                self.order.remove(0);
                self.insert(first, 1);
            }
            _ => (),
        }
        Ok(())
    }

    /// Puts a layer where it belongs, not before place `from`.
    fn insert(&mut self, layer: usize, from: usize) {
        let behind = self.order.get(from..).unwrap_or_default();
        let place = from + behind.partition_point(|other| self.goes_behind(layer, *other));
        self.order.insert(place.min(self.order.len()), layer);
    }

    fn goes_behind(&self, layer: usize, other: usize) -> bool {
        self.compare(layer, other).then(layer.cmp(&other)).is_gt()
    }

    fn compare(&self, a: usize, b: usize) -> Ordering {
        match (self.layers.get(a), self.layers.get(b)) {
            (Some(a), Some(b)) => a.head.cmp(&b.head).then_with(|| a.cursor.key().cmp(b.cursor.key())),
            _ => Ordering::Equal, // places come from `order`, which knows no others
        }
    }

    fn pull(&mut self, layer: usize) -> Result<bool> {
        let Some(slot) = self.layers.get_mut(layer) else { return Ok(false) };
        let more = slot.cursor.advance().inspect_err(|_| self.state = State::Failed { layer })?;
        if more {
            slot.head = head_of(slot.cursor.key());
        }
        Ok(more)
    }

    fn is_deleted(&self, layer: usize) -> bool {
        let newer = self.deleting.iter().take_while(|newer| **newer < layer).filter_map(|i| self.layers.get(*i));
        let Some(slot) = self.layers.get(layer) else { return false };
        newer.into_iter().any(|newer| newer.ranges.contains(slot.cursor.key()))
    }

    fn current(&self) -> Option<&dyn Cursor> {
        self.order.first().and_then(|first| self.layers.get(*first)).map(|slot| &*slot.cursor)
    }
}

/// The first eight bytes as a big-endian number, short keys filled with zeros: never contradicts the order of the keys.
fn head_of(key: &[u8]) -> u64 {
    if let Some(head) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*head);
    }
    let mut head = [0; 8];
    head.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(head)
}

impl Cursor for Merge {
    fn advance(&mut self) -> Result<bool> {
        if let State::Failed { layer } = self.state {
            // The layer repeats its error, as cursors do.
            let again = self.layers.get_mut(layer).map(|slot| slot.cursor.advance());
            let lost = || Error::new(ErrorKind::Poisoned, "a layer of the merge has failed before");
            return Err(again.and_then(Result::err).unwrap_or_else(lost));
        }
        self.step()
    }

    fn key(&self) -> &[u8] {
        self.current().map_or(&[], Cursor::key)
    }

    fn change(&self) -> Change<&[u8]> {
        self.current().map_or(Change::Tombstone, Cursor::change)
    }

    fn key_bytes(&self) -> Bytes {
        self.current().map_or_else(Bytes::default, Cursor::key_bytes)
    }

    fn change_bytes(&self) -> Change<Bytes> {
        self.current().map_or(Change::Tombstone, Cursor::change_bytes)
    }
}

/// A cursor's entries without its tombstones.
#[derive(Debug)]
pub(crate) struct Live<C>(C);

impl<C: Cursor> Live<C> {
    pub(crate) fn new(cursor: C) -> Self {
        Self(cursor)
    }
}

impl<C: Cursor> Cursor for Live<C> {
    fn advance(&mut self) -> Result<bool> {
        while self.0.advance()? {
            if self.0.change() != Change::Tombstone {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn key(&self) -> &[u8] {
        self.0.key()
    }

    fn change(&self) -> Change<&[u8]> {
        self.0.change()
    }

    fn key_bytes(&self) -> Bytes {
        self.0.key_bytes()
    }

    fn change_bytes(&self) -> Change<Bytes> {
        self.0.change_bytes()
    }
}

impl fmt::Debug for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layer").field("ranges", &self.ranges).finish_non_exhaustive()
    }
}

impl fmt::Debug for Merge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merge").field("order", &self.order).field("state", &self.state).finish_non_exhaustive()
    }
}
