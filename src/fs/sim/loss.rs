//! Power loss: which pieces survive, and the disk that this leaves.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::sync::{Arc, OnceLock};

use super::image::{
    Chunk, ChunkEffect, ChunkState, Directories, Directory, Entry, File, FileId, Image, NamePiece, overlay,
};

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
        let mut first_piece = self.names.len();
        let mut files = Arc::clone(&self.files);
        for (id, file) in self.unsynced_files() {
            let survived = file.survive(survivors, first_piece);
            first_piece += file.pending();
            Arc::make_mut(&mut files).insert(id, Arc::new(survived));
        }
        let directories = self.surviving_directories(survivors);
        Self { files, directories, names: Vec::new(), unsynced: BTreeSet::new(), next_file: self.next_file }
    }

    fn surviving_directories(&self, survivors: Survivors) -> Arc<Directories> {
        if self.names.is_empty() {
            return Arc::clone(&self.directories);
        }
        let mut directories = Directories::clone(&self.directories);
        let survivors = self.names.iter().enumerate().filter(|(number, _)| survivors.keep(*number));
        survivors.for_each(|(_, piece)| piece.apply(&mut directories, |directory| &mut directory.durable));
        for directory in directories.values_mut() {
            directory.visible = Arc::clone(&directory.durable);
        }
        if self.names.iter().any(NamePiece::makes_a_directory) {
            directories = reachable(directories);
        }
        Arc::new(directories)
    }

    /// The files with unsynced bytes that some power loss leaves a name for.
    fn unsynced_files(&self) -> impl Iterator<Item = (FileId, &File)> {
        let nameable = self.unsynced.iter().filter(|id| self.may_have_a_name(Entry::File(**id)));
        nameable.filter_map(|id| self.files.get(id).map(|file| (*id, &**file)))
    }

    fn may_have_a_name(&self, file: Entry) -> bool {
        let given = |piece: &NamePiece| piece.given.as_ref().is_some_and(|place| place.entry == file);
        self.names.iter().any(given)
            || self.directories.values().any(|directory| directory.durable.values().any(|entry| *entry == file))
    }
}

/// Leaves out the directories that no name leads to any more.
fn reachable(directories: Directories) -> Directories {
    let mut reachable = Directories::new();
    // Parents sort before what is below them.
    for (path, directory) in directories {
        let is_named = match (path.parent(), path.file_name().and_then(OsStr::to_str)) {
            (Some(parent), Some(name)) => {
                let entry = reachable.get(parent).and_then(|directory: &Directory| directory.durable.get(name));
                entry == Some(&Entry::Directory)
            }
            _ => true,
        };
        if is_named {
            reachable.insert(path, directory);
        }
    }
    reachable
}

impl File {
    fn survive(&self, survivors: Survivors, first_piece: usize) -> Self {
        let mut content: Vec<u8> = Vec::new();
        let mut piece = first_piece;
        for chunk in &self.chunks {
            let length = if let ChunkEffect::Bytes { bytes, .. } = &chunk.effect { bytes.len() } else { 0 };
            let fate = if chunk.state == ChunkState::Durable {
                Fate::Kept
            } else {
                piece += 1;
                survivors.fate(piece - 1, length)
            };
            match (&chunk.effect, fate) {
                (ChunkEffect::Length(length), Fate::Kept | Fate::Back(_)) => content.resize(*length, 0),
                (ChunkEffect::Bytes { offset, bytes }, Fate::Kept) => overlay(&mut content, *offset, bytes),
                (ChunkEffect::Bytes { offset, bytes }, Fate::Front(count)) if count > 0 => {
                    overlay(&mut content, *offset, bytes.get(..count).unwrap_or_default());
                }
                (_, Fate::Lost | Fate::Front(_)) => {}
                (ChunkEffect::Bytes { offset, bytes }, Fate::Back(count)) => {
                    overlay(&mut content, offset + count, bytes.get(count..).unwrap_or_default());
                }
            }
        }
        Self { chunks: vec![Chunk::durable(content.into())], joined: OnceLock::new() }
    }
}

/// What becomes of an unsynced append.
enum Fate {
    Lost,
    Kept,
    /// Only the first bytes survive.
    Front(usize),
    /// The first bytes are lost: they read as what was there before, or as zeros.
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
