//! [`RealDisk`]: the machine's file system.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};

use super::contract::{Access, DirEntry, Disk, FileKind, ReadFile, Stat, WriteFile};
use super::{exact, map};
use crate::bytes::Bytes;
use crate::error::{Error, ErrorKind, Result};

/// The machine's file system. Files are made with mode 0600, directories with 0700.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl RealDisk {
    /// The file system as this process sees it.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl Disk for RealDisk {
    fn create_new(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = retry_on_intr(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))
            .map_err(|errno| Error::io(path, "create the file", errno.into()))?;
        Ok(Box::new(RealWriteFile { file: file.into(), path: path.to_path_buf() }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        // Without NONBLOCK, opening a pipe that somebody put there would wait for its other end; on files it does nothing.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()));
        let file = match opened {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err(not_a_file(path)),
            Err(errno) => return Err(Error::io(path, "open the file", errno.into())),
        };
        let metadata = file.metadata().map_err(|error| Error::io(path, "ask for the file's length", error))?;
        if !metadata.is_file() {
            return Err(not_a_file(path));
        }
        Ok(Arc::new(RealReadFile { file, path: path.to_path_buf(), length: metadata.len() }))
    }

    fn rename_new(&self, from: &Path, to: &Path) -> Result<()> {
        // Not repeated when interrupted: had it been done, the second call would say `AlreadyExists` about our own file.
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            Ok(()) => Ok(()),
            Err(Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => link_new(from, to),
            Err(errno) => Err(rename_error(from, to, errno)),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        rustix::fs::unlink(path).map_err(|errno| Error::io(path, "remove the file", errno.into()))
    }

    fn create_dir(&self, path: &Path) -> Result<bool> {
        match rustix::fs::mkdir(path, Mode::RWXU) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) if self.stat(path)?.is_some_and(|stat| stat.kind == FileKind::Directory) => Ok(false),
            Err(errno) => Err(Error::io(path, "make the directory", errno.into())),
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let failed = |errno: Errno| Error::io(path, "list the directory", errno.into());
        let directory = open_directory(path).map_err(failed)?;
        let mut found = Vec::new();
        for entry in Dir::read_from(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Ok(text) = name.to_str() else { continue };
            if text == "." || text == ".." {
                continue;
            }
            match retry_on_intr(|| rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)) {
                Ok(stat) => found.push(DirEntry { name: text.to_owned(), stat: stat_of(&stat) }),
                // Removed since the directory was read.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Ok(found)
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        match retry_on_intr(|| rustix::fs::lstat(path)) {
            Ok(stat) => Ok(Some(stat_of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io(path, "look at the path", errno.into())),
        }
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let directory = open_directory(path).map_err(|errno| Error::io(path, "open the directory", errno.into()))?;
        File::from(directory).sync_all().map_err(|error| Error::io(path, "sync the directory", error))
    }
}

#[derive(Debug)]
struct RealWriteFile {
    file: File,
    path: PathBuf,
}

impl WriteFile for RealWriteFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        // `write_all` goes on after short and interrupted writes.
        self.file.write_all(bytes).map_err(|error| Error::io(&self.path, "append to the file", error))
    }

    fn sync(&mut self) -> Result<()> {
        // The file is new, so its length and extents must reach the journal in any case and `fdatasync` saves nothing; `fsync` does not
        // leave to the file system which metadata a reader needs. Errors that only closing would show (quota, network) show here.
        self.file.sync_all().map_err(|error| Error::io(&self.path, "sync the file", error))
    }
}

#[derive(Debug)]
struct RealReadFile {
    file: File,
    path: PathBuf,
    length: u64,
}

impl ReadFile for RealReadFile {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        exact::read_exact_at(&self.path, buffer, offset, |part, at| self.file.read_at(part, at))
    }

    fn map(&self) -> Result<Bytes> {
        self.map_for(Access::Normal)
    }

    fn map_for(&self, access: Access) -> Result<Bytes> {
        map::map(&self.file, &self.path, self.length, access)
    }
}

/// The rename of a file system that has no rename without replacing: a second name, made only if it is free, then the first one taken away.
fn link_new(from: &Path, to: &Path) -> Result<()> {
    rustix::fs::linkat(CWD, from, CWD, to, AtFlags::empty()).map_err(|errno| rename_error(from, to, errno))?;
    // The file has its name. Should the old one stay, or come back in a crash, it is one more stale temporary for the clean-up.
    rustix::fs::unlink(from).or(Ok(()))
}

fn rename_error(from: &Path, to: &Path, errno: Errno) -> Error {
    let path = if errno == Errno::NOENT { from } else { to };
    Error::io(path, &format!("rename {} to {}", from.display(), to.display()), errno.into())
}

fn open_directory(path: &Path) -> rustix::io::Result<rustix::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
}

fn not_a_file(path: &Path) -> Error {
    let error = Error::new(ErrorKind::Foreign { path: path.to_path_buf() }, "not a regular file");
    error.with_source(io::Error::from(io::ErrorKind::InvalidInput))
}

fn stat_of(stat: &rustix::fs::Stat) -> Stat {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    };
    let length_bytes = if kind == FileKind::File { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
    Stat { kind, length_bytes }
}
