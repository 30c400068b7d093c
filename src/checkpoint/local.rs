//! [`LocalCheckpoint`]: a directory of the machine.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::contract::{Checkpoint, PendingFile, check_component, check_path};
use crate::error::{Error, ErrorKind, Result};
use crate::fs::{
    DirEntry, Disk, DiskLock, FileKind, NewFile, PublishError, ReadFile, RealDisk, WriteFile, create_dirs,
};

/// A checkpoint in a directory.
///
/// The root is trusted as it is, its ancestors may be symbolic links, but neither it nor anything below it may. Memory: the
/// name of each directory that has been written to.
#[derive(Debug)]
pub struct LocalCheckpoint {
    disk: Arc<dyn Disk>,
    root: PathBuf,
    /// The directories, relative to the root, that this process has made durable with all their ancestors, so that a
    /// commit does not sync every level again. No I/O happens under the lock.
    durable: Mutex<HashSet<String>>,
}

impl LocalCheckpoint {
    /// Opens the checkpoint in the directory `root` of the machine's file system, and makes that directory if it is missing
    /// and its parent is there.
    ///
    /// # Errors
    /// `Foreign` where `root` is a file or a symbolic link, `PermissionDenied` where it may not be listed or made, `NotFound`
    /// where its parent is missing. Nothing was changed then.
    pub fn open(root: impl AsRef<Path>) -> Result<Self> {
        let root = root.as_ref();
        // Absolute, so that a later change of the current directory moves nothing.
        let absolute = std::path::absolute(root).map_err(|e| Error::io(root, "find the checkpoint", e))?;
        Self::on(Arc::new(RealDisk::new()), absolute)
    }

    /// Opens the checkpoint in the directory `root` for reading: makes nothing and syncs nothing, so that the directory may
    /// lie on a medium that can only be read.
    ///
    /// # Errors
    /// `NotFound` where there is no such directory; else as [`LocalCheckpoint::open`].
    pub fn existing(root: impl AsRef<Path>) -> Result<Self> {
        let root = root.as_ref();
        let absolute = std::path::absolute(root).map_err(|e| Error::io(root, "find the checkpoint", e))?;
        Self::existing_on(Arc::new(RealDisk::new()), absolute)
    }

    /// As [`LocalCheckpoint::existing`], on `disk`.
    ///
    /// # Errors
    /// As [`LocalCheckpoint::existing`].
    pub fn existing_on(disk: Arc<dyn Disk>, root: impl Into<PathBuf>) -> Result<Self> {
        let root: PathBuf = root.into().components().collect();
        let context = |error: Error| error.context(format!("the checkpoint {} cannot be read", root.display()));
        match disk.stat(&root).map_err(context)?.map(|stat| stat.kind) {
            Some(FileKind::Directory) => disk.list(&root).map_err(context).map(drop)?,
            Some(kind) => return Err(no_directory(root, kind)),
            None => return Err(context(Error::new(ErrorKind::NotFound { path: root.clone() }, "nothing is there"))),
        }
        Ok(Self { disk, root, durable: Mutex::default() })
    }

    /// Opens the checkpoint in the directory `root` of `disk`.
    ///
    /// # Errors
    /// As [`LocalCheckpoint::open`].
    pub fn on(disk: Arc<dyn Disk>, root: impl Into<PathBuf>) -> Result<Self> {
        // Without trailing separators, which would make the system follow a symbolic link.
        let root: PathBuf = root.into().components().collect();
        let context = |error: Error| error.context(format!("the checkpoint {} cannot be used", root.display()));
        match disk.stat(&root).map_err(context)?.map(|stat| stat.kind) {
            Some(FileKind::Directory) => {
                disk.list(&root).map_err(context)?;
                match disk.sync_dir(parent_of(&root)) {
                    // Whoever may not even read the parent has not made the root, nor has anyone like it.
                    Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied { .. }) => {}
                    // Whoever made the root may have died before it had synced its name.
                    synced => synced.map_err(context)?,
                }
            }
            Some(kind) => return Err(no_directory(root, kind)),
            None => {
                disk.create_dir(&root).map_err(context)?;
                disk.sync_dir(parent_of(&root)).map_err(context)?; // the root's name is durable
            }
        }
        Ok(Self { disk, root, durable: Mutex::default() })
    }

    /// The root directory.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Makes `dir` and its ancestors below the root, and makes them durable, unless this process has done so before.
    fn make_durable(&self, dir: &str) -> Result<()> {
        if !self.remembered(dir) {
            create_dirs(&*self.disk, &self.root, Path::new(dir))?;
            self.durable.lock().unwrap_or_else(PoisonError::into_inner).insert(dir.to_owned());
        }
        Ok(())
    }

    fn remembered(&self, dir: &str) -> bool {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner).contains(dir)
    }

    fn forget(&self, dir: &str) {
        self.durable.lock().unwrap_or_else(PoisonError::into_inner).remove(dir);
    }

    fn start(&self, dir: &str, name: &str, temporary: &str) -> Result<NewFile> {
        self.make_durable(dir)?;
        NewFile::create(&self.disk, &self.root.join(dir), name, temporary)
    }

    /// The directory at `dir`, which may be the root.
    fn directory(&self, dir: &str) -> Result<PathBuf> {
        if dir.is_empty() {
            return Ok(self.root.clone());
        }
        check_path(dir).map(|()| self.root.join(dir))
    }
}

impl From<LocalCheckpoint> for Arc<dyn Checkpoint> {
    fn from(local: LocalCheckpoint) -> Self {
        Arc::new(local) as Self
    }
}

impl Checkpoint for LocalCheckpoint {
    fn create(&self, path: &str, temporary: &str) -> Result<Box<dyn PendingFile>> {
        check_path(path)?;
        check_component(temporary)?;
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let remembered = self.remembered(dir);
        let started = match self.start(dir, name, temporary) {
            // Somebody has removed the directory since we made it.
            Err(error) if error.is_not_found() && remembered => {
                self.forget(dir);
                self.start(dir, name, temporary)
            }
            other => other,
        };
        Ok(Box::new(LocalFile(started?)))
    }

    fn open(&self, path: &str) -> Result<Arc<dyn ReadFile>> {
        check_path(path)?;
        self.disk.open(&self.root.join(path))
    }

    fn list(&self, dir: &str) -> Result<Vec<DirEntry>> {
        let path = self.directory(dir)?;
        match self.disk.list(&path) {
            Err(error) if error.is_not_found() && !dir.is_empty() => {
                // A root that is gone (not mounted, say) must not look like an empty one.
                self.disk.list(&self.root).map(|_| Vec::new())
            }
            other => other,
        }
    }

    fn length(&self, path: &str) -> Result<Option<u64>> {
        check_path(path)?;
        let stat = self.disk.stat(&self.root.join(path))?;
        Ok(stat.filter(|stat| stat.kind == FileKind::File).map(|stat| stat.length_bytes))
    }

    fn delete(&self, path: &str) -> Result<()> {
        check_path(path)?;
        self.disk.remove(&self.root.join(path))
    }

    fn is_abandoned(&self, path: &str) -> Result<bool> {
        check_path(path)?;
        self.disk.is_abandoned(&self.root.join(path))
    }

    fn is_held(&self, path: &str) -> Result<bool> {
        check_path(path)?;
        self.disk.is_held(&self.root.join(path))
    }

    fn hold(&self, path: &str) -> Result<Option<DiskLock>> {
        check_path(path)?;
        self.disk.hold(&self.root.join(path))
    }

    fn delete_abandoned(&self, path: &str) -> Result<bool> {
        check_path(path)?;
        self.disk.remove_abandoned(&self.root.join(path))
    }

    fn sync(&self, dir: &str) -> Result<()> {
        let path = self.directory(dir)?;
        if self.disk.stat(&path)?.is_none() {
            return Ok(()); // nothing was shown
        }
        // The names on the way down too: whoever made the directories may have died before it had synced them.
        let mut level = self.root.clone();
        self.disk.sync_dir(&level)?;
        for name in dir.split('/').filter(|name| !name.is_empty()) {
            level.push(name);
            self.disk.sync_dir(&level)?;
        }
        Ok(())
    }

    fn display_path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

fn no_directory(root: PathBuf, kind: FileKind) -> Error {
    let what = if kind == FileKind::Link { "a symbolic link" } else { "not a directory" };
    Error::new(ErrorKind::Foreign { path: root }, format!("the checkpoint's root is {what}"))
}

/// The directory that holds the name of `root`.
fn parent_of(root: &Path) -> &Path {
    root.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[derive(Debug)]
struct LocalFile(NewFile);

impl WriteFile for LocalFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.append(bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.0.sync()
    }
}

impl PendingFile for LocalFile {
    fn publish(self: Box<Self>) -> std::result::Result<(), PublishError> {
        self.0.publish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::conformance;
    use crate::fs::SimDisk;
    use crate::fs::sim::Survivors;

    #[test]
    fn a_local_directory_passes_the_suite() {
        let all = tempfile::tempdir().unwrap();
        let number = std::cell::Cell::new(0);
        conformance::suite(&|| {
            number.set(number.get() + 1);
            Arc::new(LocalCheckpoint::open(all.path().join(number.get().to_string())).unwrap())
        });
    }

    /// Everything below `path`, with the times of last change.
    fn snapshot_of(path: &Path) -> Vec<(PathBuf, std::time::SystemTime)> {
        let mut found = vec![(path.to_path_buf(), path.symlink_metadata().unwrap().modified().unwrap())];
        if path.symlink_metadata().unwrap().is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                found.extend(snapshot_of(&entry.unwrap().path()));
            }
        }
        found.sort();
        found
    }

    #[test]
    fn a_root_that_is_not_a_directory_is_refused_and_left_alone() {
        let all = tempfile::tempdir().unwrap();
        let (file, link, dangling) = (all.path().join("file"), all.path().join("link"), all.path().join("dangling"));
        std::fs::write(&file, b"precious").unwrap();
        std::fs::create_dir(all.path().join("real")).unwrap();
        std::os::unix::fs::symlink(all.path().join("real"), &link).unwrap();
        std::os::unix::fs::symlink(all.path().join("nowhere"), &dangling).unwrap();
        let before = snapshot_of(all.path());
        let trailing = all.path().join("link/");
        for root in [&file, &link, &dangling, &trailing] {
            let error = LocalCheckpoint::open(root).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{root:?}: {error}");
        }
        let below = LocalCheckpoint::open(file.join("sub")).unwrap_err();
        assert!(matches!(below.kind(), ErrorKind::Io { kind: std::io::ErrorKind::NotADirectory, .. }), "{below:?}");
        let orphan = LocalCheckpoint::open(all.path().join("no/parent")).unwrap_err();
        assert!(orphan.is_not_found(), "{orphan}");
        assert_eq!(snapshot_of(all.path()), before);
    }

    #[test]
    fn a_link_below_the_root_is_not_followed() {
        let all = tempfile::tempdir().unwrap();
        let root = all.path().join("root");
        let checkpoint = LocalCheckpoint::open(&root).unwrap();
        std::fs::create_dir(all.path().join("outside")).unwrap();
        std::os::unix::fs::symlink(all.path().join("outside"), root.join("store")).unwrap();
        std::fs::write(all.path().join("outside/secret"), b"x").unwrap();
        std::os::unix::fs::symlink(all.path().join("outside/secret"), root.join("file")).unwrap();
        checkpoint.create("store/file", ".tmp-1").unwrap_err();
        checkpoint.create("store/sub/file", ".tmp-1").unwrap_err();
        checkpoint.list("store").unwrap_err();
        checkpoint.open("file").unwrap_err();
        assert_eq!(std::fs::read_dir(all.path().join("outside")).unwrap().count(), 1);
    }

    #[test]
    fn a_root_that_has_gone_is_an_error_and_not_an_empty_store() {
        let all = tempfile::tempdir().unwrap();
        let root = all.path().join("root");
        let checkpoint = LocalCheckpoint::open(&root).unwrap();
        assert_eq!(checkpoint.list("store").unwrap(), []);
        std::fs::remove_dir(&root).unwrap();
        assert!(checkpoint.list("store").is_err_and(|e| e.is_not_found()));
        assert!(checkpoint.list("").is_err_and(|e| e.is_not_found()));
        assert!(checkpoint.create("store/file", ".tmp-1").is_err_and(|e| e.is_not_found()));
        assert!(!root.exists(), "the root is made by opening alone");
    }

    #[test]
    fn a_directory_that_somebody_removed_is_made_again() {
        let all = tempfile::tempdir().unwrap();
        let checkpoint = LocalCheckpoint::open(all.path()).unwrap();
        checkpoint.create("a/b/one", ".tmp-1").unwrap().publish().unwrap();
        std::fs::remove_dir_all(all.path().join("a")).unwrap();
        checkpoint.create("a/b/two", ".tmp-1").unwrap().publish().unwrap();
        assert_eq!(checkpoint.list("a/b").unwrap().len(), 1);
    }

    /// A disk that only lets one read, whoever one is (tests often run as root, who may do everything).
    #[derive(Debug)]
    struct ReadOnly(RealDisk);

    fn denied<T>(path: &Path) -> Result<T> {
        Err(Error::io(path, "change anything", std::io::ErrorKind::ReadOnlyFilesystem.into()))
    }

    impl Disk for ReadOnly {
        fn create_new(&self, path: &Path) -> Result<Box<dyn WriteFile>> {
            denied(path)
        }
        fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
            self.0.open(path)
        }
        fn rename_new(&self, from: &Path, _: &Path) -> Result<()> {
            denied(from)
        }
        fn remove(&self, path: &Path) -> Result<()> {
            denied(path)
        }
        fn create_dir(&self, path: &Path) -> Result<bool> {
            if path.is_dir() { Ok(false) } else { denied(path) }
        }
        fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
            self.0.list(path)
        }
        fn stat(&self, path: &Path) -> Result<Option<crate::fs::Stat>> {
            self.0.stat(path)
        }
        fn sync_dir(&self, path: &Path) -> Result<()> {
            self.0.sync_dir(path)
        }
    }

    #[test]
    fn a_read_only_checkpoint_can_be_read_and_refuses_writing_with_a_typed_error() {
        let all = tempfile::tempdir().unwrap();
        let written = LocalCheckpoint::open(all.path()).unwrap();
        written.create("a/file", ".tmp-1").unwrap().publish().unwrap();
        let before = snapshot_of(all.path());
        let disk: Arc<dyn Disk> = Arc::new(ReadOnly(RealDisk::new()));
        let checkpoint = LocalCheckpoint::on(Arc::clone(&disk), all.path()).unwrap();
        assert_eq!(checkpoint.list("a").unwrap().len(), 1);
        checkpoint.open("a/file").unwrap();
        let refused = [
            checkpoint.create("a/new", ".tmp-1").map(drop).unwrap_err(),
            checkpoint.create("b/new", ".tmp-1").map(drop).unwrap_err(),
            checkpoint.delete("a/file").unwrap_err(),
            LocalCheckpoint::on(disk, all.path().join("new")).map(drop).unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error.kind(), ErrorKind::PermissionDenied { .. }), "{error:?}");
        }
        assert_eq!(snapshot_of(all.path()), before);
    }

    fn simulated(disk: &SimDisk) -> Arc<dyn Disk> {
        Arc::new(disk.clone())
    }

    #[test]
    fn a_simulated_disk_passes_the_suite() {
        conformance::suite(&|| Arc::new(LocalCheckpoint::on(simulated(&SimDisk::new(1)), "/checkpoint").unwrap()));
    }

    /// Every image that a power failure can leave, or a sample where there are too many.
    fn images(disk: &SimDisk) -> Vec<SimDisk> {
        let pending = disk.pending();
        let subsets = if pending <= 8 { 1u64 << pending } else { 0 };
        let sampled = (0..64).map(|seed| disk.survive(Survivors::Seeded(seed)));
        (0..subsets).map(|subset| disk.survive(Survivors::Subset(subset))).chain(sampled).collect()
    }

    #[test]
    fn a_crash_anywhere_leaves_a_file_whole_or_absent_and_a_published_one_whole() {
        let (mut crashed, mut present, mut absent) = (0, 0, 0);
        for nth in 1..100 {
            let disk = SimDisk::new(nth);
            disk.create_dir(Path::new("/checkpoint")).unwrap();
            disk.sync_dir(Path::new("/")).unwrap();
            let checkpoint = LocalCheckpoint::on(simulated(&disk), "/checkpoint").unwrap();
            disk.crash_at(nth);
            let publish = || -> Result<()> {
                let mut file = checkpoint.create("a/b/file", ".tmp-1")?;
                file.append(b"whole")?;
                file.publish().map_err(PublishError::into_error)
            };
            let published = publish().is_ok();
            for image in images(&disk) {
                let after = LocalCheckpoint::on(simulated(&image), "/checkpoint").unwrap();
                match after.open("a/b/file") {
                    Ok(file) => {
                        assert_eq!(file.map().unwrap().as_slice(), b"whole", "crash at {nth}");
                        present += 1;
                    }
                    Err(error) => {
                        assert!(error.is_not_found() && !published, "crash at {nth}: {error}");
                        absent += 1;
                    }
                }
            }
            crashed += u64::from(!published);
            if published {
                break;
            }
        }
        assert!(crashed >= 7 && present > 0 && absent > 0, "{crashed} {present} {absent}");
    }

    #[test]
    fn what_a_listing_showed_is_durable_after_a_sync_though_its_publisher_was_killed() {
        let disk = SimDisk::new(3);
        LocalCheckpoint::on(simulated(&disk), "/checkpoint").unwrap();
        // A publisher that was killed after its rename: nothing but the file's bytes has been synced.
        disk.create_dir(Path::new("/checkpoint/a")).unwrap();
        disk.create_dir(Path::new("/checkpoint/a/b")).unwrap();
        let mut file = disk.create_new(Path::new("/checkpoint/a/b/.tmp-1")).unwrap();
        file.append(b"whole").unwrap();
        file.sync().unwrap();
        disk.rename_new(Path::new("/checkpoint/a/b/.tmp-1"), Path::new("/checkpoint/a/b/file")).unwrap();
        assert_eq!(
            LocalCheckpoint::on(simulated(&disk.survive(Survivors::None)), "/checkpoint").unwrap().list("a").unwrap(),
            []
        );

        let checkpoint = LocalCheckpoint::on(simulated(&disk), "/checkpoint").unwrap();
        assert_eq!(checkpoint.list("a/b").unwrap().len(), 1);
        checkpoint.sync("a/b").unwrap();
        let after = LocalCheckpoint::on(simulated(&disk.survive(Survivors::None)), "/checkpoint").unwrap();
        assert_eq!(after.open("a/b/file").unwrap().map().unwrap().as_slice(), b"whole");
    }

    #[test]
    fn only_the_first_file_of_a_directory_syncs_the_way_down() {
        let disk = SimDisk::new(4);
        let checkpoint = LocalCheckpoint::on(simulated(&disk), "/checkpoint").unwrap();
        let publish = |path| {
            let before = disk.operations();
            checkpoint.create(path, ".tmp-1").unwrap().publish().unwrap();
            disk.operations() - before
        };
        publish("a/b/one");
        // Create, sync, rename, sync the directory.
        assert_eq!(publish("a/b/two"), 4);
    }
}
