//! What is on the simulated disk: what programs see, what is durable, and the pieces in between.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::bytes::Bytes;
use crate::error::{Error, Result};
use crate::fs::contract::{DirEntry, FileKind, Stat};

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

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileId(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    File(FileId),
    Directory,
}

type Entries = BTreeMap<Arc<str>, Entry>;

/// A file: appended chunks, oldest first.
#[derive(Debug, Default)]
struct File {
    chunks: Vec<Chunk>,
    /// All chunks in one, made when first asked for and shared by all images that share the file.
    joined: OnceLock<Bytes>,
}

#[derive(Debug, Clone)]
struct Chunk {
    bytes: Bytes,
    state: ChunkState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChunkState {
    Durable,
    Unsynced,
    /// A sync of it failed; none will make it durable any more.
    Doomed,
}

#[derive(Debug, Clone, Default)]
struct Directory {
    visible: Arc<Entries>,
    durable: Arc<Entries>,
}

/// A change of names that is not durable yet. It survives as one.
#[derive(Debug, Clone)]
struct NamePiece {
    /// The directory whose sync makes it durable.
    directory: Arc<Path>,
    taken_away: Option<Name>,
    given: Option<Name>,
}

#[derive(Debug, Clone)]
struct Name {
    directory: Arc<Path>,
    name: Arc<str>,
    entry: Entry,
}

/// A disk at one moment. Cloning shares all bytes.
#[derive(Debug, Clone)]
pub(super) struct Image {
    files: BTreeMap<FileId, Arc<File>>,
    directories: BTreeMap<Arc<Path>, Directory>,
    names: Vec<NamePiece>,
    next_file: u64,
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

impl Image {
    pub(super) fn new() -> Self {
        let root: Arc<Path> = Path::new("/").into();
        let directories = BTreeMap::from([(root, Directory::default())]);
        Self { files: BTreeMap::new(), directories, names: Vec::new(), next_file: 0 }
    }

    pub(super) fn create(&mut self, path: &Path) -> Result<FileId> {
        let id = self.new_file(File::default());
        self.add(path, Entry::File(id), "create the file")?;
        Ok(id)
    }

    pub(super) fn create_dir(&mut self, path: &Path) -> Result<bool> {
        let path = absolute(path)?;
        if self.directories.contains_key(path.as_path()) {
            return Ok(false);
        }
        self.add(&path, Entry::Directory, "make the directory")?;
        self.directories.insert(path.into(), Directory::default());
        Ok(true)
    }

    pub(super) fn rename_new(&mut self, from: &Path, to: &Path) -> Result<()> {
        let doing = "rename the file";
        let entry = self.find(from)?.ok_or_else(|| failed(from, doing, io::ErrorKind::NotFound))?;
        if entry == Entry::Directory {
            return Err(failed(from, doing, io::ErrorKind::IsADirectory));
        }
        let given = self.vacant(to, entry, doing)?;
        let taken_away = Name { entry, ..self.name(from)? };
        self.change(NamePiece {
            directory: Arc::clone(&given.directory),
            taken_away: Some(taken_away),
            given: Some(given),
        });
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<()> {
        let doing = "remove the file";
        let entry = match self.find(path)? {
            None => return Err(failed(path, doing, io::ErrorKind::NotFound)),
            Some(Entry::Directory) => return Err(failed(path, doing, io::ErrorKind::IsADirectory)),
            Some(entry @ Entry::File(_)) => entry,
        };
        let name = Name { entry, ..self.name(path)? };
        self.change(NamePiece { directory: Arc::clone(&name.directory), taken_away: Some(name), given: None });
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> Result<()> {
        let path = absolute(path)?;
        self.directory(&path, "sync the directory")?;
        let (synced, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.names).into_iter().partition(|piece| *piece.directory == *path);
        for piece in &synced {
            piece.apply(&mut self.directories, |directory| &mut directory.durable);
        }
        self.names = kept;
        Ok(())
    }

    pub(super) fn append(&mut self, id: FileId, bytes: &[u8]) {
        if !bytes.is_empty() {
            let chunk = Chunk { bytes: Bytes::copy_from(bytes), state: ChunkState::Unsynced };
            self.edit_chunks(id, |chunks| chunks.push(chunk));
        }
    }

    pub(super) fn sync(&mut self, id: FileId) {
        self.move_unsynced(id, ChunkState::Durable);
    }

    /// A failed sync.
    pub(super) fn doom(&mut self, id: FileId) {
        self.move_unsynced(id, ChunkState::Doomed);
    }

    fn move_unsynced(&mut self, id: FileId, to: ChunkState) {
        self.edit_chunks(id, |chunks| {
            for chunk in chunks.iter_mut().filter(|chunk| chunk.state == ChunkState::Unsynced) {
                chunk.state = to;
            }
        });
    }

    pub(super) fn open(&self, path: &Path) -> Result<FileId> {
        match self.find(path)? {
            Some(Entry::File(id)) => Ok(id),
            Some(Entry::Directory) => Err(failed(path, "open the file", io::ErrorKind::IsADirectory)),
            None => Err(failed(path, "open the file", io::ErrorKind::NotFound)),
        }
    }

    pub(super) fn content(&self, id: FileId) -> Bytes {
        self.files.get(&id).map(|file| file.content()).unwrap_or_default()
    }

    pub(super) fn length(&self, id: FileId) -> u64 {
        self.files.get(&id).map_or(0, |file| file.length())
    }

    pub(super) fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let entries = &self.directory(&absolute(path)?, "list the directory")?.visible;
        Ok(entries
            .iter()
            .map(|(name, entry)| DirEntry { name: (**name).to_owned(), stat: self.stat_of(*entry) })
            .collect())
    }

    pub(super) fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        Ok(self.find(path)?.map(|entry| self.stat_of(entry)))
    }

    /// Every file that can be seen, in order of the paths.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        let in_directory = |(path, directory): (&Arc<Path>, &Directory)| {
            let files = directory.visible.iter().filter(|(_, entry)| matches!(entry, Entry::File(_)));
            files.map(|(name, _)| path.join(&**name)).collect::<Vec<_>>()
        };
        self.directories.iter().flat_map(in_directory).collect()
    }

    /// Puts a file there with all its directories, everything durable at once, in place of what had the name.
    pub(super) fn put(&mut self, path: &Path, bytes: &[u8]) -> Result<()> {
        let path = absolute(path)?;
        let mut ancestors: Vec<&Path> = path.ancestors().skip(1).collect();
        ancestors.reverse();
        for ancestor in ancestors {
            if self.create_dir(ancestor)? {
                self.sync_dir(ancestor.parent().unwrap_or(ancestor))?;
            }
        }
        let chunk = Chunk { bytes: Bytes::copy_from(bytes), state: ChunkState::Durable };
        let file = File { chunks: vec![chunk], joined: OnceLock::new() };
        if let Some(Entry::File(id)) = self.find(&path)? {
            self.files.insert(id, Arc::new(file));
        } else {
            let id = self.new_file(file);
            self.add(&path, Entry::File(id), "put the file")?;
        }
        self.sync_dir(path.parent().unwrap_or(&path))
    }

    /// Changes a file's bytes in place, durable at once.
    pub(super) fn damage(&mut self, path: &Path, damage: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let id = self.open(path)?;
        let mut bytes = self.content(id).to_vec();
        damage(&mut bytes);
        self.edit_chunks(id, |chunks| *chunks = vec![Chunk { bytes: bytes.into(), state: ChunkState::Durable }]);
        Ok(())
    }

    fn new_file(&mut self, file: File) -> FileId {
        let id = FileId(self.next_file);
        self.next_file += 1;
        self.files.insert(id, Arc::new(file));
        id
    }

    fn edit_chunks(&mut self, id: FileId, edit: impl FnOnce(&mut Vec<Chunk>)) {
        let file = Arc::make_mut(self.files.entry(id).or_default());
        file.joined = OnceLock::new();
        edit(&mut file.chunks);
    }

    fn add(&mut self, path: &Path, entry: Entry, doing: &str) -> Result<()> {
        let given = self.vacant(path, entry, doing)?;
        self.change(NamePiece { directory: Arc::clone(&given.directory), taken_away: None, given: Some(given) });
        Ok(())
    }

    fn change(&mut self, piece: NamePiece) {
        piece.apply(&mut self.directories, |directory| &mut directory.visible);
        self.names.push(piece);
    }

    /// The name at `path` for `entry`, if the directory is there and the name is free.
    fn vacant(&self, path: &Path, entry: Entry, doing: &str) -> Result<Name> {
        let taken = self.find(path)?.is_some() || absolute(path)?.parent().is_none();
        if taken {
            return Err(failed(path, doing, io::ErrorKind::AlreadyExists));
        }
        let name = self.name(path).map_err(|error| error.context(doing))?;
        Ok(Name { entry, ..name })
    }

    fn name(&self, path: &Path) -> Result<Name> {
        let path = absolute(path)?;
        let parent = path.parent().unwrap_or(&path);
        let Some((directory, _)) = self.directories.get_key_value(parent) else {
            return Err(self.no_directory(parent, "find the directory"));
        };
        let name = path.file_name().and_then(OsStr::to_str).ok_or_else(|| Error::invalid("the name is not UTF-8"))?;
        Ok(Name { directory: Arc::clone(directory), name: name.into(), entry: Entry::Directory })
    }

    fn find(&self, path: &Path) -> Result<Option<Entry>> {
        let path = absolute(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else {
            return Ok(Some(Entry::Directory));
        };
        Ok(self.directories.get(parent).and_then(|directory| directory.visible.get(name)).copied())
    }

    fn directory(&self, path: &Path, doing: &str) -> Result<&Directory> {
        self.directories.get(path).ok_or_else(|| self.no_directory(path, doing))
    }

    fn no_directory(&self, path: &Path, doing: &str) -> Error {
        let is_file = |ancestor: &Path| matches!(self.find(ancestor), Ok(Some(Entry::File(_))));
        let kind = if path.ancestors().any(is_file) { io::ErrorKind::NotADirectory } else { io::ErrorKind::NotFound };
        failed(path, doing, kind)
    }

    fn stat_of(&self, entry: Entry) -> Stat {
        match entry {
            Entry::File(id) => Stat { kind: FileKind::File, length_bytes: self.length(id) },
            Entry::Directory => Stat { kind: FileKind::Directory, length_bytes: 0 },
        }
    }
}

/// Power loss.
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
            after
                .directories
                .insert(path, Directory { visible: Arc::clone(&directory.durable), durable: directory.durable });
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
    fn content(&self) -> Bytes {
        let join = || match self.chunks.as_slice() {
            [chunk] => chunk.bytes.clone(),
            chunks => chunks.iter().flat_map(|chunk| chunk.bytes.iter().copied()).collect::<Vec<u8>>().into(),
        };
        self.joined.get_or_init(join).clone()
    }

    fn length(&self) -> u64 {
        let lengths = self.chunks.iter().map(|chunk| u64::try_from(chunk.bytes.len()).unwrap_or(u64::MAX));
        lengths.fold(0, u64::saturating_add)
    }

    fn pending(&self) -> usize {
        self.chunks.iter().filter(|chunk| chunk.state != ChunkState::Durable).count()
    }

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

impl Clone for File {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), joined: OnceLock::new() }
    }
}

impl NamePiece {
    fn apply(
        &self,
        directories: &mut BTreeMap<Arc<Path>, Directory>,
        side: impl Fn(&mut Directory) -> &mut Arc<Entries>,
    ) {
        if let Some(name) = &self.taken_away
            && let Some(directory) = directories.get_mut(&name.directory)
        {
            let entries = Arc::make_mut(side(directory));
            // Only this file's name: an earlier piece that gave the name to it may be lost, a later one may have given it away.
            if entries.get(&name.name) == Some(&name.entry) {
                entries.remove(&name.name);
            }
        }
        if let Some(name) = &self.given
            && let Some(directory) = directories.get_mut(&name.directory)
        {
            Arc::make_mut(side(directory)).insert(Arc::clone(&name.name), name.entry);
        }
    }
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
        // At least one byte is touched, so that a torn append is never a kept or a lost one.
        let cut = usize::try_from((number >> 2) % u64::try_from(length).unwrap_or(1).max(1)).unwrap_or(0);
        match number & 3 {
            0 => Fate::Lost,
            1 => Fate::Kept,
            2 => Fate::Front(cut),
            _ => Fate::Back(cut + 1),
        }
    }
}

/// A random number that follows from a seed and a position (SplitMix64), so that any one of them can be asked for alone.
pub(super) fn random(seed: u64, position: usize) -> u64 {
    let position = u64::try_from(position).unwrap_or(u64::MAX);
    let mut number = seed.wrapping_add(position.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// The path from the root; a relative one starts there. Its comparison ignores repeated separators and `.`.
fn absolute(path: &Path) -> Result<PathBuf> {
    if path.components().any(|component| component == Component::ParentDir) {
        return Err(Error::invalid(format!("{} leads upwards", path.display())));
    }
    Ok(Path::new("/").join(path))
}

fn failed(path: &Path, doing: &str, kind: io::ErrorKind) -> Error {
    Error::io(path, doing, kind.into())
}
