//! Power loss: which pieces survive, and the disk that this leaves.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::image::{Chunk, ChunkState, Directory, Entry, File, FileId, Image};

/// Which of the unsynced pieces survive a power loss. Pieces are numbered: names first, in the order of their operations, then bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survivors {
    /// Everything survives.
    All,
    /// Nothing survives.
    None,
    /// Piece *i* survives where bit *i* is set, an append as a whole; pieces from the 65th on are lost.
    Subset(u64),
    /// A random subset that follows from the seed; of an append also only its front or its back may survive.
    Seeded(u64),
}

impl Image {
    /// How many pieces may survive or not.
    pub(super) fn pending(&self) -> usize {
        let pieces = self.unsynced_files().map(|(_, file)| file.pending());
        self.names.len() + pieces.sum::<usize>()
    }

    /// The disk after a power loss: everything on it is durable.
    pub(super) fn survive(&self, survivors: Survivors) -> Self {
        let mut directories = self.directories.clone();
        for (number, piece) in self.names.iter().enumerate() {
            if survivors.keep(number) {
                piece.apply(&mut directories, |directory| &mut directory.durable);
            }
        }
        let mut first_piece = self.names.len();
        let mut numbers = BTreeMap::new();
        for (id, file) in self.unsynced_files() {
            numbers.insert(id, first_piece);
            first_piece += file.pending();
        }
        let mut after =
            Self { files: BTreeMap::new(), directories: BTreeMap::new(), names: Vec::new(), next_file: self.next_file };
        // Parents sort before what is below them.
        for (path, directory) in directories {
            if !after.holds_directory(&path) {
                continue;
            }
            for entry in directory.durable.values() {
                let Entry::File(id) = entry else { continue };
                let Some(file) = self.files.get(id) else { continue };
                let file = match numbers.get(id) {
                    Some(first_piece) => Arc::new(file.survive(survivors, *first_piece)),
                    None => Arc::clone(file),
                };
                after.files.insert(*id, file);
            }
            let visible = Arc::clone(&directory.durable);
            after.directories.insert(path, Directory { visible, durable: directory.durable });
        }
        after
    }

    fn holds_directory(&self, path: &Path) -> bool {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else {
            return true;
        };
        let entry = self.directories.get(parent).and_then(|directory| directory.durable.get(name));
        entry == Some(&Entry::Directory)
    }

    /// The files with unsynced bytes that some power loss leaves a name for.
    fn unsynced_files(&self) -> impl Iterator<Item = (FileId, &File)> {
        let unsynced: Vec<_> = self.files.iter().filter(|(_, file)| file.pending() > 0).collect();
        let nameable = if unsynced.is_empty() { BTreeSet::new() } else { self.nameable() };
        unsynced.into_iter().filter(move |(id, _)| nameable.contains(id)).map(|(id, file)| (*id, &**file))
    }

    fn nameable(&self) -> BTreeSet<FileId> {
        let durable = self.directories.values().flat_map(|directory| directory.durable.values());
        let given = self.names.iter().filter_map(|piece| piece.given.as_ref()).map(|name| &name.entry);
        let file = |entry: &Entry| if let Entry::File(id) = entry { Some(*id) } else { None };
        durable.chain(given).filter_map(file).collect()
    }
}

impl File {
    fn survive(&self, survivors: Survivors, first_piece: usize) -> Self {
        let mut bytes: Vec<u8> = Vec::new();
        let (mut start, mut piece) = (0, first_piece);
        for chunk in &self.chunks {
            let length = chunk.bytes.len();
            let fate = if chunk.state == ChunkState::Durable {
                Fate::Kept
            } else {
                piece += 1;
                survivors.fate(piece - 1, length)
            };
            let (zeros, kept) = match fate {
                Fate::Lost => (0, 0..0),
                Fate::Kept => (0, 0..length),
                Fate::Front(count) => (0, 0..count),
                Fate::Back(count) => (count, count..length),
            };
            if zeros > 0 || !kept.is_empty() {
                bytes.resize(start + zeros, 0);
                bytes.extend_from_slice(chunk.bytes.get(kept).unwrap_or_default());
            }
            start += length;
        }
        let chunk = Chunk { bytes: bytes.into(), state: ChunkState::Durable };
        Self { chunks: vec![chunk], joined: OnceLock::new() }
    }
}

/// What becomes of an unsynced append.
enum Fate {
    Lost,
    Kept,
    /// Only the first bytes survive.
    Front(usize),
    /// The first bytes read as zeros.
    Back(usize),
}

impl Survivors {
    fn keep(self, piece: usize) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Subset(mask) => piece < 64 && mask >> piece & 1 == 1,
            Self::Seeded(seed) => random(seed, piece) & 1 == 1,
        }
    }

    fn fate(self, piece: usize, length: usize) -> Fate {
        let Self::Seeded(seed) = self else {
            return if self.keep(piece) { Fate::Kept } else { Fate::Lost };
        };
        let number = random(seed, piece);
        // A front is shorter than the append and a back begins with zeros, maybe all of it: neither is a kept one.
        let cut = usize::try_from((number >> 2) % u64::try_from(length).unwrap_or(1).max(1)).unwrap_or(0);
        match number & 3 {
            0 => Fate::Lost,
            1 => Fate::Kept,
            2 => Fate::Front(cut),
            _ => Fate::Back(cut + 1),
        }
    }
}

/// A random number that follows from a seed and a position (`SplitMix64`), so that any one of them can be asked for alone.
pub(super) fn random(seed: u64, position: usize) -> u64 {
    let position = u64::try_from(position).unwrap_or(u64::MAX);
    let mut number = seed.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}
