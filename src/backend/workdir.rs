//! [`WorkDir`]: the local directory that the index lives in: whose it is, who has it, what in it may be wiped.
//!
//! ```text
//! <work>/ALLUVIUM        the marker: this directory is ours, and which format it has
//! <work>/LOCK-alluvium   locked by the process that has the directory open, and names it
//! <work>/DAMAGED         put there when RocksDB reports damage: the next open starts afresh
//! <work>/rocks/          RocksDB
//! <work>/restore/        table files being built; emptied at open
//! <work>/spill/          what transactions spill; emptied at open
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind as IoKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::clock::Clock;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::FileLock;

const MARKER: &str = "ALLUVIUM";
const LOCK: &str = "LOCK-alluvium";
#[cfg(any(feature = "rocksdb", test))]
const DAMAGED: &str = "DAMAGED";
#[cfg(any(feature = "rocksdb", test))]
const ENGINE: &str = "rocks";
const RESTORE: &str = "restore";
const SPILL: &str = "spill";

const MARKER_PREFIX: &str = "alluvium work directory, format ";
const FORMAT: u32 = 1;
/// More than any marker or lock file of ours has.
const SMALL_FILE_BYTES: u64 = 4096;

/// A work directory that this process has locked. Dropping it gives the lock back.
#[derive(Debug)]
pub(super) struct WorkDir {
    path: PathBuf,
    _lock: FileLock,
}

impl WorkDir {
    /// Takes the directory at `path`, which is made where it is missing, and empties its temporary parts.
    ///
    /// # Errors
    /// `Foreign` where it is a link, no directory, or holds files without our marker: then nothing was touched.
    /// `Locked` where another process, or another handle of this one, has it. `Unsupported` where a newer format made it.
    pub(super) fn claim(path: &Path, clock: &dyn Clock) -> Result<Self> {
        make_dir_or_refuse(path)?;
        // Looked at before the lock file is made: nothing may be added to somebody else's directory.
        let ours = is_ours(path)?;
        let lock = FileLock::acquire(&path.join(LOCK), clock)?;
        if !ours {
            write_marker(path)?;
        }
        let dir = Self { path: path.to_path_buf(), _lock: lock };
        for part in [RESTORE, SPILL] {
            remove_tree(&dir.path.join(part))?;
            make_dir(&dir.path.join(part))?;
        }
        Ok(dir)
    }

    #[cfg(any(feature = "rocksdb", test))]
    pub(super) fn engine_dir(&self) -> PathBuf {
        self.path.join(ENGINE)
    }

    #[cfg(any(feature = "rocksdb", test))]
    pub(super) fn restore_dir(&self) -> PathBuf {
        self.path.join(RESTORE)
    }

    pub(super) fn spill_dir(&self) -> PathBuf {
        self.path.join(SPILL)
    }

    /// Notes that the index is damaged, so that the next open wipes it. Does what it can.
    #[cfg(any(feature = "rocksdb", test))]
    pub(super) fn condemn(&self) {
        let path = self.path.join(DAMAGED);
        if let Err(error) = OpenOptions::new().create(true).append(true).open(&path) {
            tracing::warn!(%error, path = %path.display(), "could not note that the index is damaged");
        }
    }

    /// Whether an earlier process found the index damaged.
    #[cfg(any(feature = "rocksdb", test))]
    pub(super) fn is_condemned(&self) -> bool {
        self.path.join(DAMAGED).symlink_metadata().is_ok()
    }

    /// Removes the index. Only our own subdirectory of a directory with our marker is touched.
    #[cfg(any(feature = "rocksdb", test))]
    pub(super) fn wipe_engine(&self) -> Result<()> {
        remove_tree(&self.engine_dir())?;
        remove_file(&self.path.join(DAMAGED))
    }
}

fn make_dir_or_refuse(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(found) => {
            let what = if found.is_symlink() { "a symbolic link" } else { "not a directory" };
            Err(foreign(path, &format!("the work directory is {what}")))
        }
        Err(error) if error.kind() == IoKind::NotFound => {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|source| Error::io(path, "make the work directory", source))
        }
        Err(source) => Err(Error::io(path, "look at the work directory", source)),
    }
}

/// Whether the directory carries our marker; `false` where it is (as good as) empty.
fn is_ours(path: &Path) -> Result<bool> {
    let mut others = Vec::new();
    for entry in fs::read_dir(path).map_err(|source| Error::io(path, "list the work directory", source))? {
        let name = entry.map_err(|source| Error::io(path, "list the work directory", source))?.file_name();
        if name != MARKER && name != LOCK {
            others.push(name); // a foreign directory may be large, but one name is enough
            break;
        }
    }
    let marker = path.join(MARKER);
    let text = match marker.symlink_metadata() {
        Err(error) if error.kind() == IoKind::NotFound => String::new(),
        Err(source) => return Err(Error::io(&marker, "look at the marker", source)),
        Ok(found) if !found.is_file() => return Err(foreign(path, "its marker is not a file")),
        Ok(_) => read_small(&marker)?,
    };
    let format = text.strip_prefix(MARKER_PREFIX).and_then(|rest| rest.strip_suffix('\n')).map(str::parse::<u32>);
    match format {
        Some(Ok(FORMAT)) => Ok(true),
        Some(Ok(newer)) => {
            let context = format!("{} has format {newer}; this build knows {FORMAT}", marker.display());
            Err(Error::new(ErrorKind::Unsupported, context))
        }
        // A crash may have cut the marker off, but then nothing else had been made yet.
        _ if others.is_empty() && marker_text().starts_with(&text) => Ok(false),
        _ => Err(foreign(path, "the work directory is not empty and does not carry our marker")),
    }
}

fn marker_text() -> String {
    format!("{MARKER_PREFIX}{FORMAT}\n")
}

/// The marker is durable before anything is made that only a marker allows us to wipe.
fn write_marker(path: &Path) -> Result<()> {
    let marker = path.join(MARKER);
    let write = || -> std::io::Result<()> {
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&marker)?;
        file.write_all(marker_text().as_bytes())?;
        file.sync_all()?;
        File::open(path)?.sync_all()
    };
    write().map_err(|source| Error::io(&marker, "write the marker", source))
}

fn read_small(path: &Path) -> Result<String> {
    let mut text = Vec::new();
    let read = File::open(path).and_then(|file| file.take(SMALL_FILE_BYTES).read_to_end(&mut text));
    read.map_err(|source| Error::io(path, "read", source))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn make_dir(path: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o700).create(path);
    made.map_err(|source| Error::io(path, "make a directory", source))
}

/// Removes a directory of ours with all it holds; links are removed, never followed.
fn remove_tree(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Err(error) if error.kind() == IoKind::NotFound => Ok(()),
        Err(source) => Err(Error::io(path, "look at a directory", source)),
        Ok(found) if found.is_dir() => {
            fs::remove_dir_all(path).map_err(|source| Error::io(path, "empty a directory", source))
        }
        Ok(_) => remove_file(path),
    }
}

/// Removes a file of ours, if it is there.
#[expect(clippy::disallowed_methods, reason = "the index is not part of the simulated disk")]
pub(super) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != IoKind::NotFound => Err(Error::io(path, "remove a file", source)),
        _ => Ok(()),
    }
}

fn foreign(path: &Path, context: &str) -> Error {
    Error::new(ErrorKind::Foreign { path: path.to_path_buf() }, context)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::tempdir;

    use super::*;
    use crate::clock::SystemClock;

    fn claim(path: &Path) -> Result<WorkDir> {
        WorkDir::claim(path, &SystemClock::new())
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_missing_or_empty_directory_becomes_ours() {
        let root = tempdir().unwrap();
        let path = root.path().join("a/b");
        for _ in 0..2 {
            let dir = claim(&path).unwrap();
            assert_eq!(names(&path), ["ALLUVIUM", "LOCK-alluvium", "restore", "spill"]);
            fs::write(dir.spill_dir().join("left over"), b"x").unwrap();
            fs::create_dir_all(dir.restore_dir().join("deep/down")).unwrap();
            drop(dir);
        }
        let dir = claim(&path).unwrap();
        assert!(names(&dir.spill_dir()).is_empty() && names(&dir.restore_dir()).is_empty());
    }

    #[test]
    fn a_second_holder_is_told_who_is_the_first() {
        let root = tempdir().unwrap();
        let first = claim(root.path()).unwrap();
        let error = claim(root.path()).unwrap_err();
        let ErrorKind::Locked { holder } = error.kind() else { panic!("{error}") };
        assert!(holder.starts_with(&format!("process {} on host ", std::process::id())), "{holder}");
        drop(first);
        claim(root.path()).unwrap();
    }

    #[test]
    fn what_is_not_ours_is_not_touched() {
        let root = tempdir().unwrap();
        for foreign_name in ["notes.txt", "rocks", "ALLUVIUM", "LOCK"] {
            let path = root.path().join(format!("with-{foreign_name}"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join(foreign_name), b"mine").unwrap();
            let error = claim(&path).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{foreign_name}: {error}");
            assert_eq!(names(&path), [foreign_name]);
            assert_eq!(fs::read(path.join(foreign_name)).unwrap(), b"mine");
        }
    }

    #[test]
    fn links_and_files_are_refused() {
        let root = tempdir().unwrap();
        let (real, link, file) = (root.path().join("real"), root.path().join("link"), root.path().join("file"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        fs::write(&file, b"x").unwrap();
        for path in [&link, &file] {
            let error = claim(path).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{error}");
        }
        assert!(names(&real).is_empty());
        symlink(&file, real.join(LOCK)).unwrap();
        assert!(matches!(claim(&real).unwrap_err().kind(), ErrorKind::Foreign { .. }));
        assert_eq!(fs::read(&file).unwrap(), b"x");
    }

    #[test]
    fn a_marker_that_a_crash_cut_off_is_written_again() {
        for cut in 0..marker_text().len() {
            let root = tempdir().unwrap();
            fs::write(root.path().join(MARKER), &marker_text()[..cut]).unwrap();
            drop(claim(root.path()).unwrap());
            assert_eq!(fs::read_to_string(root.path().join(MARKER)).unwrap(), marker_text());
        }
        let root = tempdir().unwrap();
        fs::write(root.path().join(MARKER), &marker_text()[..5]).unwrap();
        fs::create_dir(root.path().join(ENGINE)).unwrap();
        assert!(matches!(claim(root.path()).unwrap_err().kind(), ErrorKind::Foreign { .. }));
    }

    #[test]
    fn the_directory_of_a_newer_format_is_left_alone() {
        let root = tempdir().unwrap();
        fs::write(root.path().join(MARKER), format!("{MARKER_PREFIX}2\n")).unwrap();
        assert_eq!(*claim(root.path()).unwrap_err().kind(), ErrorKind::Unsupported);
        assert_eq!(names(root.path()), [MARKER]);
    }

    #[test]
    fn wiping_follows_no_link() {
        let root = tempdir().unwrap();
        let outside = root.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), b"x").unwrap();
        let dir = claim(&root.path().join("work")).unwrap();
        symlink(&outside, dir.engine_dir()).unwrap();
        dir.condemn();
        assert!(dir.is_condemned());
        dir.wipe_engine().unwrap();
        assert!(!dir.is_condemned() && dir.engine_dir().symlink_metadata().is_err());
        assert_eq!(names(&outside), ["kept"]);
    }
}
