//! What is on the simulated disk: what programs see, what is durable, and the pieces in between.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::contract::{DirEntry, FileKind, Stat};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileId(u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    File(FileId),
    Directory,
}

pub(super) type Entries = BTreeMap<Arc<str>, Entry>;

pub(super) type Directories = BTreeMap<Arc<Path>, Directory>;

/// A file: what was written to it, oldest first. A later chunk covers an earlier one.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) chunks: Vec<Chunk>,
    /// All chunks in one, made when first asked for and shared by all images that share the file.
    pub(super) joined: OnceLock<Bytes>,
}

#[derive(Debug, Clone)]
pub(super) struct Chunk {
    pub(super) effect: ChunkEffect,
    pub(super) state: ChunkState,
}

#[derive(Debug, Clone)]
pub(super) enum ChunkEffect {
    Bytes {
        offset: usize,
        bytes: Bytes,
    },
    /// The file becomes this long: cut, or filled up with zeros.
    Length(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkState {
    Durable,
    Unsynced,
    /// A sync of it failed; none will make it durable any more.
    Doomed,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    pub(super) visible: Arc<Entries>,
    pub(super) durable: Arc<Entries>,
}

/// A change of names that is not durable yet. It survives as one.
#[derive(Debug, Clone)]
pub(super) struct NamePiece {
    /// The directory whose sync makes it durable.
    pub(super) directory: Arc<Path>,
    pub(super) taken_away: Option<Place>,
    pub(super) given: Option<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) directory: Arc<Path>,
    pub(super) name: Arc<str>,
    pub(super) entry: Entry,
}

/// A disk at one moment. Cloning shares all bytes.
#[derive(Debug, Clone)]
pub(super) struct Image {
    /// Files without a name are kept: a handle may still have them open.
    pub(super) files: Arc<BTreeMap<FileId, Arc<File>>>,
    pub(super) directories: Arc<Directories>,
    pub(super) names: Vec<NamePiece>,
    /// The files with bytes that are not durable.
    pub(super) unsynced: BTreeSet<FileId>,
    pub(super) next_file: u64,
}

impl Image {
    pub(super) fn new() -> Self {
        let root: Arc<Path> = Path::new("/").into();
        Self {
            files: Arc::default(),
            directories: Arc::new(BTreeMap::from([(root, Directory::default())])),
            names: Vec::new(),
            unsynced: BTreeSet::new(),
            next_file: 0,
        }
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
        Arc::make_mut(&mut self.directories).insert(path.into(), Directory::default());
        Ok(true)
    }

    pub(super) fn rename_new(&mut self, from: &Path, to: &Path) -> Result<()> {
        let doing = "rename the file";
        // In the kernel's order: both directories, then the file, then the new name.
        let (from_place, _) = (self.place(from)?, self.place(to)?);
        let entry = self.find(from)?.ok_or_else(|| self.absent(from, doing))?;
        let given = self.vacant(to, entry, doing)?;
        if entry == Entry::Directory {
            return Err(failed(from, doing, io::ErrorKind::IsADirectory));
        }
        let taken_away = Place { entry, ..from_place };
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
            None => return Err(self.absent(path, doing)),
            Some(Entry::Directory) => return Err(failed(path, doing, io::ErrorKind::IsADirectory)),
            Some(entry @ Entry::File(_)) => entry,
        };
        let name = Place { entry, ..self.place(path)? };
        self.change(NamePiece { directory: Arc::clone(&name.directory), taken_away: Some(name), given: None });
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> Result<()> {
        let path = absolute(path)?;
        self.directory(&path, "sync the directory")?;
        // Backwards, because a rename brings along the piece that gave the file the name it takes away.
        let (mut synced, mut kept, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        for piece in std::mem::take(&mut self.names).into_iter().rev() {
            let is_origin = piece.given.as_ref().is_some_and(|place| origins.contains(place));
            if is_origin || *piece.directory == *path {
                origins.extend(piece.taken_away.clone());
                synced.push(piece);
            } else {
                kept.push(piece);
            }
        }
        let directories = Arc::make_mut(&mut self.directories);
        for piece in synced.iter().rev() {
            piece.apply(directories, |directory| &mut directory.durable);
        }
        kept.reverse();
        self.names = kept;
        Ok(())
    }

    pub(super) fn write(&mut self, id: FileId, offset: usize, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.push(id, ChunkEffect::Bytes { offset, bytes: Bytes::copy_from(bytes) });
        }
    }

    pub(super) fn set_length(&mut self, id: FileId, length: usize) {
        self.push(id, ChunkEffect::Length(length));
    }

    fn push(&mut self, id: FileId, effect: ChunkEffect) {
        self.edit_chunks(id, |chunks| chunks.push(Chunk { effect, state: ChunkState::Unsynced }));
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
            Some(Entry::Directory) => {
                Err(Error::new(ErrorKind::Foreign { path: path.to_path_buf() }, "not a regular file"))
            }
            None => Err(self.absent(path, "open the file")),
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
            .map(|(name, entry)| DirEntry { name: (**name).to_owned(), kind: self.stat_of(*entry).kind })
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
        let file = File { chunks: vec![Chunk::durable(Bytes::copy_from(bytes))], joined: OnceLock::new() };
        if let Some(Entry::File(id)) = self.find(&path)? {
            self.unsynced.remove(&id);
            Arc::make_mut(&mut self.files).insert(id, Arc::new(file));
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
        self.edit_chunks(id, |chunks| *chunks = vec![Chunk::durable(bytes.into())]);
        Ok(())
    }

    fn new_file(&mut self, file: File) -> FileId {
        let id = FileId(self.next_file);
        self.next_file += 1;
        Arc::make_mut(&mut self.files).insert(id, Arc::new(file));
        id
    }

    fn edit_chunks(&mut self, id: FileId, edit: impl FnOnce(&mut Vec<Chunk>)) {
        let file = Arc::make_mut(Arc::make_mut(&mut self.files).entry(id).or_default());
        file.joined = OnceLock::new();
        edit(&mut file.chunks);
        if file.pending() > 0 {
            self.unsynced.insert(id);
        } else {
            self.unsynced.remove(&id);
        }
    }

    fn add(&mut self, path: &Path, entry: Entry, doing: &str) -> Result<()> {
        let given = self.vacant(path, entry, doing)?;
        self.change(NamePiece { directory: Arc::clone(&given.directory), taken_away: None, given: Some(given) });
        Ok(())
    }

    fn change(&mut self, piece: NamePiece) {
        piece.apply(Arc::make_mut(&mut self.directories), |directory| &mut directory.visible);
        self.names.push(piece);
    }

    /// The name at `path` for `entry`, if the directory is there and the name is free.
    fn vacant(&self, path: &Path, entry: Entry, doing: &str) -> Result<Place> {
        let taken = self.find(path)?.is_some() || absolute(path)?.parent().is_none();
        if taken {
            return Err(failed(path, doing, io::ErrorKind::AlreadyExists));
        }
        let name = self.place(path).map_err(|error| error.context(doing))?;
        Ok(Place { entry, ..name })
    }

    fn place(&self, path: &Path) -> Result<Place> {
        let path = absolute(path)?;
        let parent = path.parent().unwrap_or(&path);
        let Some((directory, _)) = self.directories.get_key_value(parent) else {
            return Err(self.absent(parent, "find the directory"));
        };
        let name = path.file_name().and_then(OsStr::to_str).ok_or_else(|| Error::invalid("the name is not UTF-8"))?;
        Ok(Place { directory: Arc::clone(directory), name: name.into(), entry: Entry::Directory })
    }

    fn find(&self, path: &Path) -> Result<Option<Entry>> {
        let path = absolute(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else {
            return Ok(Some(Entry::Directory));
        };
        Ok(self.directories.get(parent).and_then(|directory| directory.visible.get(name)).copied())
    }

    fn directory(&self, path: &Path, doing: &str) -> Result<&Directory> {
        self.directories.get(path).ok_or_else(|| self.absent(path, doing))
    }

    fn absent(&self, path: &Path, doing: &str) -> Error {
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

impl Chunk {
    /// The whole of a file.
    pub(super) fn durable(bytes: Bytes) -> Self {
        Self { effect: ChunkEffect::Bytes { offset: 0, bytes }, state: ChunkState::Durable }
    }
}

/// Writes over and beyond what is there; a hole reads as zeros.
pub(super) fn overlay(content: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    if content.len() < offset {
        content.resize(offset, 0);
    }
    let (over, beyond) = bytes.split_at(bytes.len().min(content.len() - offset));
    for (to, from) in content.iter_mut().skip(offset).zip(over) {
        *to = *from;
    }
    content.extend_from_slice(beyond);
}

impl File {
    fn content(&self) -> Bytes {
        let join = || {
            if let [Chunk { effect: ChunkEffect::Bytes { offset: 0, bytes }, .. }] = self.chunks.as_slice() {
                return bytes.clone();
            }
            let mut content = Vec::new();
            for chunk in &self.chunks {
                match &chunk.effect {
                    ChunkEffect::Bytes { offset, bytes } => overlay(&mut content, *offset, bytes),
                    ChunkEffect::Length(length) => content.resize(*length, 0),
                }
            }
            content.into()
        };
        self.joined.get_or_init(join).clone()
    }

    fn length(&self) -> u64 {
        let length = self.chunks.iter().fold(0, |length: usize, chunk| match &chunk.effect {
            ChunkEffect::Bytes { offset, bytes } => length.max(offset.saturating_add(bytes.len())),
            ChunkEffect::Length(length) => *length,
        });
        u64::try_from(length).unwrap_or(u64::MAX)
    }

    pub(super) fn pending(&self) -> usize {
        self.chunks.iter().filter(|chunk| chunk.state != ChunkState::Durable).count()
    }
}

impl Clone for File {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), joined: OnceLock::new() }
    }
}

impl NamePiece {
    pub(super) fn makes_a_directory(&self) -> bool {
        self.given.as_ref().is_some_and(|place| place.entry == Entry::Directory)
    }

    pub(super) fn apply(&self, directories: &mut Directories, side: impl Fn(&mut Directory) -> &mut Arc<Entries>) {
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
