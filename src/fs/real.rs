//! [`RealDisk`]: the machine's file system.

use std::fs::File;
use std::io::{self, IoSlice, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::buffer::spare_capacity;
use rustix::fs::{AtFlags, CWD, Dir, FallocateFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::{Errno, retry_on_intr};

use super::contract::{Access, DirEntry, Disk, DiskLock, FileKind, ReadFile, Stat, WriteFile};
use super::held::Look;
use super::lock::FileLock;
use super::{exact, held, map};
use crate::bytes::Bytes;
use crate::clock::Clock;
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
        Ok(Box::new(RealWriteFile { file: create(path)?, path: path.to_path_buf() }))
    }

    fn create_held(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        loop {
            let file = create(path)?;
            // A clean-up that came upon it before it was locked has removed it: once more.
            if held::hold(path, &file)? {
                return Ok(Box::new(RealWriteFile { file, path: path.to_path_buf() }));
            }
        }
    }

    fn is_abandoned(&self, path: &Path) -> Result<bool> {
        held::look(path).map(|look| matches!(look, Look::Locked(_)))
    }

    fn is_held(&self, path: &Path) -> Result<bool> {
        held::look(path).map(|look| matches!(look, Look::Busy))
    }

    fn hold(&self, path: &Path) -> Result<Option<DiskLock>> {
        match held::look(path)? {
            Look::Locked(held) => Ok(Some(DiskLock::new(held))),
            Look::Busy => Ok(None),
            Look::NoLocks => Ok(Some(DiskLock::none())),
            Look::Absent => Err(Error::io(path, "hold the file", io::ErrorKind::NotFound.into())),
        }
    }

    fn remove_abandoned(&self, path: &Path) -> Result<bool> {
        let Look::Locked(_kept) = held::look(path)? else { return Ok(false) };
        match self.remove(path) {
            Err(error) if error.is_not_found() => Ok(false), // it was given its name just now
            removed => removed.map(|()| true),
        }
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

    fn remove_dir(&self, path: &Path) -> Result<()> {
        rustix::fs::rmdir(path).map_err(|errno| Error::io(path, "remove the directory", errno.into()))
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
            let kind = match entry.file_type() {
                FileType::Unknown => {
                    // Not every file system says what its entries are.
                    match retry_on_intr(|| rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)) {
                        Ok(stat) => stat_of(&stat).kind,
                        Err(Errno::NOENT) => continue, // removed since the directory was read
                        Err(errno) => return Err(failed(errno)),
                    }
                }
                told => kind_of(told),
            };
            found.push(DirEntry { name: text.to_owned(), kind });
        }
        Ok(found)
    }

    fn stat(&self, path: &Path) -> Result<Option<Stat>> {
        match retry_on_intr(|| rustix::fs::lstat(path)) {
            Ok(stat) => Ok(Some(stat_of(&stat))),
            // Below a file there is nothing either.
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(errno) => Err(Error::io(path, "look at the path", errno.into())),
        }
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let directory = open_directory(path).map_err(|errno| Error::io(path, "open the directory", errno.into()))?;
        File::from(directory).sync_all().map_err(|error| Error::io(path, "sync the directory", error))
    }

    fn overwrite(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty())) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Err(not_a_file(path)),
            Err(errno) => return Err(Error::io(path, "open the file to write over it", errno.into())),
        };
        let metadata = file.metadata().map_err(|error| Error::io(path, "look at the file", error))?;
        if metadata.is_file() {
            Ok(Box::new(RealWriteFile { file, path: path.to_path_buf() }))
        } else {
            Err(not_a_file(path))
        }
    }

    fn lock(&self, path: &Path, clock: &dyn Clock) -> Result<DiskLock> {
        FileLock::acquire(path, clock).map(DiskLock::new)
    }
}

/// More parts than this go into more than one call; the system takes 1024.
const MAX_PARTS: usize = 1024;

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
        // The file is new, so its length and extents must reach the journal in any case and `fdatasync` saves next to nothing (64 KiB on
        // ext4, median of 200: 3.8 against 3.9 ms); `fsync` does not leave to the file system which metadata a reader needs. What
        // only closing the file would tell (quota, network), which Rust's drop swallows, shows here.
        self.file.sync_all().map_err(|error| Error::io(&self.path, "sync the file", error))
    }

    fn append_parts(&mut self, parts: &[&[u8]]) -> Result<()> {
        for some in parts.chunks(MAX_PARTS) {
            let mut slices: Vec<IoSlice<'_>> = some.iter().map(|part| IoSlice::new(part)).collect();
            let mut rest = slices.as_mut_slice();
            while rest.iter().any(|part| !part.is_empty()) {
                match self.file.write_vectored(rest) {
                    Ok(0) => {
                        let none = io::Error::from(io::ErrorKind::WriteZero);
                        return Err(Error::io(&self.path, "append to the file", none));
                    }
                    Ok(count) => IoSlice::advance_slices(&mut rest, count),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Error::io(&self.path, "append to the file", error)),
                }
            }
        }
        Ok(())
    }

    fn sync_data(&mut self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::io(&self.path, "sync the file", error))
    }

    fn preallocate(&mut self, length_bytes: u64) -> Result<()> {
        let length =
            self.file.metadata().map_err(|error| Error::io(&self.path, "ask for the file's length", error))?.len();
        if length >= length_bytes {
            return Ok(());
        }
        match retry_on_intr(|| rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, length_bytes)) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(Error::io(&self.path, "reserve room for the file", errno.into())),
        }
    }

    fn cut_here(&mut self) -> Result<()> {
        let cut = self.file.stream_position().and_then(|length| self.file.set_len(length));
        cut.map_err(|error| Error::io(&self.path, "cut the file", error))
    }

    fn seek_to(&mut self, offset: u64) -> Result<()> {
        let sought = self.file.seek(SeekFrom::Start(offset));
        sought.map(|_| ()).map_err(|error| Error::io(&self.path, "move in the file", error))
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

    fn read_new_at(&self, buffer: &mut Vec<u8>, length: usize, offset: u64) -> Result<()> {
        buffer.clear();
        buffer.reserve_exact(length);
        while buffer.len() < length {
            let at = offset.saturating_add(buffer.len() as u64);
            // May read a little too much where the allocation is larger than asked for.
            match rustix::io::pread(&self.file, spare_capacity(buffer), at) {
                Ok(0) => {
                    let expected = format!("{} more bytes", length.saturating_sub(buffer.len()));
                    return Err(Error::corrupt(&self.path, at, expected, "the end of the file"));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::io(&self.path, "read the file", errno.into())),
            }
        }
        buffer.truncate(length);
        Ok(())
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

fn create(path: &Path) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))
        .map(File::from)
        .map_err(|errno| Error::io(path, "create the file", errno.into()))
}

fn open_directory(path: &Path) -> rustix::io::Result<rustix::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry_on_intr(|| rustix::fs::open(path, flags, Mode::empty()))
}

fn not_a_file(path: &Path) -> Error {
    let error = Error::new(ErrorKind::Foreign { path: path.to_path_buf() }, "not a regular file");
    error.with_source(io::Error::from(io::ErrorKind::InvalidInput))
}

fn kind_of(file_type: FileType) -> FileKind {
    match file_type {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    }
}

fn stat_of(stat: &rustix::fs::Stat) -> Stat {
    let kind = kind_of(FileType::from_raw_mode(stat.st_mode));
    let length_bytes = if kind == FileKind::File { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 };
    Stat { kind, length_bytes }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn write(path: &Path, bytes: &[u8]) {
        let mut file = RealDisk.create_new(path).unwrap();
        file.append(bytes).unwrap();
        file.sync().unwrap();
    }

    fn temporary() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn files_and_directories_are_their_owners_alone() {
        let root = temporary();
        let directory = root.path().join("d");
        assert!(RealDisk.create_dir(&directory).unwrap());
        assert!(!RealDisk.create_dir(&directory).unwrap());
        write(&directory.join("f"), b"x");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&directory), mode(&directory.join("f"))), (0o700, 0o600));
    }

    #[test]
    fn only_an_empty_directory_is_removed() {
        let all = temporary();
        let (disk, dir) = (RealDisk::new(), all.path().join("dir"));
        disk.create_dir(&dir).unwrap();
        write(&dir.join("file"), b"precious");
        disk.remove_dir(&dir).unwrap_err();
        disk.remove(&dir.join("file")).unwrap();
        disk.remove_dir(&dir).unwrap();
        assert!(disk.stat(&dir).unwrap().is_none());
    }

    #[test]
    fn a_taken_name_is_not_created_again_even_if_it_is_a_dangling_link() {
        let root = temporary();
        let (file, link) = (root.path().join("f"), root.path().join("l"));
        write(&file, b"first");
        symlink(root.path().join("nowhere"), &link).unwrap();
        for path in [&file, &link] {
            assert!(RealDisk.create_new(path).unwrap_err().is_already_exists());
            assert!(RealDisk.create_dir(path).unwrap_err().is_already_exists());
        }
        assert!(!root.path().join("nowhere").exists());
        assert_eq!(std::fs::read(file).unwrap(), b"first");
    }

    #[test]
    fn a_file_that_is_being_written_is_not_abandoned_and_one_whose_writer_has_gone_is() {
        let root = temporary();
        let path = root.path().join("f");
        assert!(!RealDisk.is_abandoned(&path).unwrap());
        let file = RealDisk.create_held(&path).unwrap();
        assert!(!RealDisk.is_abandoned(&path).unwrap() && !RealDisk.remove_abandoned(&path).unwrap());
        let renamed = root.path().join("g");
        RealDisk.rename_new(&path, &renamed).unwrap();
        assert!(!RealDisk.remove_abandoned(&renamed).unwrap() && renamed.exists());
        drop(file);
        assert!(RealDisk.is_abandoned(&renamed).unwrap());
        assert!(RealDisk.remove_abandoned(&renamed).unwrap() && !renamed.exists());
        symlink(root.path().join("nowhere"), &path).unwrap();
        assert!(!RealDisk.remove_abandoned(&path).unwrap());
    }

    #[test]
    fn a_writer_and_a_clean_up_at_the_same_moment_leave_the_writer_its_file() {
        let root = temporary();
        let path = root.path().join("f");
        std::thread::scope(|scope| {
            let sweeping = scope.spawn(|| (0..20_000).filter(|_| RealDisk.remove_abandoned(&path).unwrap()).count());
            for _ in 0..500 {
                let mut file = RealDisk.create_held(&path).unwrap();
                file.append(b"x").unwrap();
                assert!(path.exists());
                RealDisk.rename_new(&path, &root.path().join("g")).unwrap();
                drop(file);
                RealDisk.remove(&root.path().join("g")).unwrap();
            }
            sweeping.join().unwrap();
        });
    }

    #[test]
    fn only_regular_files_are_opened_and_a_pipe_does_not_hang() {
        let root = temporary();
        let path = |name: &str| root.path().join(name);
        write(&path("f"), b"x");
        symlink(path("f"), path("l")).unwrap();
        rustix::fs::mknodat(CWD, path("p"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        for name in ["l", "p", "."] {
            let error = RealDisk.open(&path(name)).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{name}: {error}");
        }
        assert!(RealDisk.open(&path("missing")).unwrap_err().is_not_found());
        assert_eq!(RealDisk.open(&path("f")).unwrap().len(), 1);
    }

    #[test]
    fn of_many_renames_to_one_name_exactly_one_wins() {
        for rename in [|from: &Path, to: &Path| RealDisk.rename_new(from, to), link_new] {
            let root = temporary();
            let path = |name: usize| root.path().join(name.to_string());
            (0..8).for_each(|name| write(&path(name), name.to_string().as_bytes()));
            let target = root.path().join("target");
            let outcomes: Vec<_> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..8)
                    .map(|name| {
                        scope.spawn({
                            let (path, target) = (&path, &target);
                            move || rename(&path(name), target)
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let winners: Vec<_> = (0..8).filter(|name| outcomes[*name].is_ok()).collect();
            let [winner] = winners[..] else { panic!("{winners:?}") };
            assert_eq!(std::fs::read(&target).unwrap(), winner.to_string().as_bytes());
            for (name, outcome) in outcomes.iter().enumerate().filter(|(name, _)| *name != winner) {
                assert!(outcome.as_ref().unwrap_err().is_already_exists());
                assert!(path(name).exists());
            }
            assert!(!path(winner).exists());
        }
    }

    #[test]
    fn a_listing_tells_kinds_apart_and_leaves_out_what_is_not_text() {
        let root = temporary();
        write(&root.path().join("f"), b"12345");
        std::fs::create_dir(root.path().join("d")).unwrap();
        symlink("d", root.path().join("l")).unwrap();
        std::fs::write(root.path().join(std::ffi::OsStr::from_bytes(b"\xff")), b"").unwrap();
        let mut found = RealDisk.list(root.path()).unwrap();
        found.sort();
        let found: Vec<_> = found.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
        assert_eq!(found, [("d", FileKind::Directory), ("f", FileKind::File), ("l", FileKind::Link)]);
        for (name, kind) in found {
            let stat = RealDisk.stat(&root.path().join(name)).unwrap().unwrap();
            assert_eq!(stat, Stat { kind, length_bytes: if kind == FileKind::File { 5 } else { 0 } });
        }
        for not_a_directory in ["f", "l"] {
            assert!(RealDisk.list(&root.path().join(not_a_directory)).is_err());
            assert!(RealDisk.sync_dir(&root.path().join(not_a_directory)).is_err());
        }
        RealDisk.sync_dir(root.path()).unwrap();
    }

    #[test]
    fn a_mapping_shows_the_whole_file_and_outlives_its_removal() {
        let root = temporary();
        let path = root.path().join("f");
        let content: Vec<u8> = (0..20_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        write(&path, &content);
        let file = RealDisk.open(&path).unwrap();
        for access in [Access::Normal, Access::Random, Access::Sequential, Access::WillNeed] {
            assert_eq!(file.map_for(access).unwrap().as_slice(), content);
        }
        let mapped = file.map().unwrap();
        RealDisk.remove(&path).unwrap();
        drop(file);
        assert_eq!(mapped.as_slice(), content);
        write(&root.path().join("empty"), b"");
        let empty = RealDisk.open(&root.path().join("empty")).unwrap();
        assert!(empty.is_empty() && empty.map().unwrap().is_empty());
    }

    #[test]
    fn a_file_that_was_cut_short_is_corrupt_and_kills_nobody() {
        let root = temporary();
        let path = root.path().join("f");
        write(&path, &[7; 10_000]);
        let file = RealDisk.open(&path).unwrap();
        std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(5_000).unwrap();
        assert!(file.map().unwrap_err().is_corrupt());
        let error = file.read_exact_at(&mut [0; 100], 4_990).unwrap_err();
        assert!(error.is_corrupt() && error.to_string().contains("byte 5000"), "{error}");
        let mut buffer = [0; 10];
        file.read_exact_at(&mut buffer, 4_990).unwrap();
        assert_eq!(buffer, [7; 10]);
    }

    #[test]
    fn a_full_disk_is_told_as_one() {
        let file = File::options().write(true).open("/dev/full").unwrap();
        let mut file = RealWriteFile { file, path: "/dev/full".into() };
        assert!(matches!(file.append(b"x").unwrap_err().kind(), ErrorKind::DiskFull { .. }));
    }
}
