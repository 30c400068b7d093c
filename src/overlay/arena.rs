//! Bytes that are appended, never moved, and can be shared once they are frozen.

use crate::bytes::Bytes;

const FIRST_CHUNK_BYTES: usize = 16 << 10;
const LARGEST_CHUNK_BYTES: usize = 1 << 20;

/// Where a piece lies: the chunk, and the offset in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    chunk: u32,
    offset: u32,
}

/// An append-only arena. Frozen chunks are shared by reference; the last one is still being filled.
#[derive(Debug, Default)]
pub(super) struct Arena {
    frozen: Vec<Bytes>,
    filling: Vec<u8>,
    frozen_bytes: usize,
}

impl Arena {
    /// Appends `key` and `value` as one piece. `None` where the arena is out of places (4 Gi chunks).
    pub(super) fn push(&mut self, key: &[u8], value: &[u8]) -> Option<Place> {
        let length = key.len() + value.len();
        if self.filling.capacity() - self.filling.len() < length {
            self.freeze();
            self.filling = Vec::with_capacity(self.next_chunk_bytes(length));
        }
        let place =
            Place { chunk: u32::try_from(self.frozen.len()).ok()?, offset: u32::try_from(self.filling.len()).ok()? };
        self.filling.extend_from_slice(key);
        self.filling.extend_from_slice(value);
        Some(place)
    }

    /// The `length` bytes at `place`.
    pub(super) fn get(&self, place: Place, length: usize) -> &[u8] {
        let start = place.offset as usize;
        let chunk = self.frozen.get(place.chunk as usize).map_or(self.filling.as_slice(), Bytes::as_slice);
        chunk.get(start..start + length).unwrap_or_default()
    }

    /// The `length` bytes at `place` as a view of their own: shared where the chunk is frozen, copied otherwise.
    pub(super) fn view(&self, place: Place, length: usize) -> Bytes {
        let start = place.offset as usize;
        self.frozen
            .get(place.chunk as usize)
            .and_then(|chunk| chunk.slice(start..start + length))
            .unwrap_or_else(|| Bytes::copy_from(self.get(place, length)))
    }

    /// Makes everything written so far shareable.
    pub(super) fn freeze(&mut self) {
        if !self.filling.is_empty() {
            self.frozen_bytes += self.filling.capacity();
            self.frozen.push(Bytes::from(std::mem::take(&mut self.filling)));
        }
    }

    /// The memory held once a piece of `more` bytes is in, in bytes.
    pub(super) fn bytes_with(&self, more: usize) -> usize {
        let fits = self.filling.capacity() - self.filling.len() >= more;
        let next = if fits { 0 } else { self.next_chunk_bytes(more) };
        self.frozen_bytes + self.filling.capacity() + next + (self.frozen.len() + 1) * size_of::<Bytes>()
    }

    fn next_chunk_bytes(&self, piece: usize) -> usize {
        (self.frozen_bytes / 4).clamp(FIRST_CHUNK_BYTES, LARGEST_CHUNK_BYTES).max(piece)
    }
}
