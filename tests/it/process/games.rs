//! What happens to a work directory while no process has it.

use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::model::Dice;

/// What is done to a work directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Game {
    Keep,
    Delete,
    /// It is as it was at an earlier time.
    OlderCopy,
    /// It belongs to another store of the same name.
    OtherStore,
    /// One file of RocksDB is cut short.
    Cut,
    /// One file of RocksDB is gone.
    Remove,
    /// Some bytes in the middle of a file of RocksDB are others. Only this one may show as an error, once.
    Scribble,
}

impl Game {
    pub(super) const ALL: [Self; 7] =
        [Self::Keep, Self::Delete, Self::OlderCopy, Self::OtherStore, Self::Cut, Self::Remove, Self::Scribble];

    /// Plays it on `work`. `older` and `other` hold the directories that it may be replaced by. Says what was done.
    pub(super) fn play(self, work: &Path, older: &Path, other: &Path, dice: &mut Dice) -> String {
        let said = match self {
            Self::Keep => String::new(),
            Self::Delete => {
                remove_tree(work);
                String::new()
            }
            Self::OlderCopy => replace(work, older),
            Self::OtherStore => replace(work, other),
            Self::Cut | Self::Remove | Self::Scribble => self.damage(&work.join("rocks"), dice),
        };
        format!("{self:?} {said}")
    }

    fn damage(self, rocks: &Path, dice: &mut Dice) -> String {
        let mut files: Vec<PathBuf> =
            fs::read_dir(rocks).map(|entries| entries.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default();
        // The ones that hold something; the log for people and the lock do not.
        let is_of_use = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            path.is_file() && name != "LOCK" && !name.starts_with("LOG") && fs::metadata(path).unwrap().len() > 0
        };
        files.retain(is_of_use);
        files.sort();
        // Every second time a table, of which there are many less than of the others in a young directory.
        let tables: Vec<PathBuf> =
            files.iter().filter(|path| path.extension().is_some_and(|e| e == "sst")).cloned().collect();
        let among = if dice.roll(2) == 0 && !tables.is_empty() { &tables } else { &files };
        if among.is_empty() {
            return "nothing there".to_owned();
        }
        let path = dice.pick(among);
        let length = fs::metadata(path).unwrap().len();
        let place = dice.roll(length);
        match self {
            Self::Cut => OpenOptions::new().write(true).open(path).unwrap().set_len(place).unwrap(),
            Self::Remove => remove_file(path),
            _ => scribble(path, place),
        }
        format!("{} at {place} of {length}", path.file_name().unwrap().display())
    }
}

/// Changes up to 16 bytes from `place` on.
fn scribble(path: &Path, place: u64) {
    let mut file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(place)).unwrap();
    (&mut file).take(16).read_to_end(&mut bytes).unwrap();
    for byte in &mut bytes {
        *byte = !*byte;
    }
    file.seek(SeekFrom::Start(place)).unwrap();
    file.write_all(&bytes).unwrap();
}

fn replace(work: &Path, by: &Path) -> String {
    if !by.exists() {
        return "by nothing".to_owned();
    }
    remove_tree(work);
    copy_tree(by, work);
    String::new()
}

#[expect(clippy::disallowed_methods, reason = "a test plays the world that removes files")]
fn remove_file(path: &Path) {
    fs::remove_file(path).unwrap();
}

pub(super) fn remove_tree(path: &Path) {
    if path.exists() {
        fs::remove_dir_all(path).unwrap();
    }
}

/// Copies a directory that no process changes.
pub(super) fn copy_tree(from: &Path, to: &Path) {
    remove_tree(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
