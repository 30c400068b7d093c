//! Publishing: a file appears under its name whole and durable, or not at all.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use super::contract::{Disk, WriteFile};
use crate::error::{Error, ErrorKind, Result};

/// A file that is being written under a temporary name and gets its own by [`publish`](Self::publish).
///
/// Dropped without that, it removes its temporary file if it can; a crash leaves it behind under the temporary name.
#[derive(Debug)]
pub(crate) struct NewFile {
    disk: Arc<dyn Disk>,
    directory: PathBuf,
    temporary: PathBuf,
    target: PathBuf,
    file: Option<Box<dyn WriteFile>>,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Writing,
    /// An append or a sync failed: what the file holds is unknown.
    Broken,
    /// The rename was issued and not clearly refused: the temporary name may be the file's only one, or gone.
    Renamed,
}

/// Why a file was not published.
#[derive(Debug)]
pub enum PublishError {
    /// Nothing is to be seen under the name, now and after any crash. `AlreadyExists`: somebody else's file has it.
    NotPublished(Error),
    /// The file may be under its name or not, now or after a crash; if it is, it is whole. Only a reopening tells.
    Unknown(Error),
}

impl NewFile {
    /// Starts the file `name` in `directory` under `temporary_name`, which is in the same directory.
    ///
    /// # Errors
    /// `AlreadyExists` where the temporary name is taken, `NotFound` where the directory is missing.
    pub(crate) fn create(disk: &Arc<dyn Disk>, directory: &Path, name: &str, temporary_name: &str) -> Result<Self> {
        let temporary = directory.join(temporary_name);
        let file = disk.create_held(&temporary)?;
        Ok(Self {
            disk: Arc::clone(disk),
            directory: directory.to_path_buf(),
            temporary,
            target: directory.join(name),
            file: Some(file),
            state: State::Writing,
        })
    }

    /// Makes the bytes durable, then gives the file its name unless that is taken, then makes the name durable.
    ///
    /// # Errors
    /// See [`PublishError`]. The file cannot be published again: write a new one.
    pub(crate) fn publish(mut self) -> std::result::Result<(), PublishError> {
        self.sync().map_err(PublishError::NotPublished)?; // the bytes are durable
        // Open until it has its name: a clean-up in another process would take it for abandoned.
        let _held = self.file.take();
        match self.disk.rename_new(&self.temporary, &self.target) {
            Ok(()) => self.state = State::Renamed, // the file is visible
            Err(error) if refuses(&error) => return Err(PublishError::NotPublished(error)),
            Err(error) => {
                self.state = State::Renamed;
                return Err(PublishError::Unknown(error));
            }
        }
        self.disk.sync_dir(&self.directory).map_err(PublishError::Unknown) // the name is durable
    }

    /// The path under which the file will be published.
    #[cfg(test)]
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    fn attempt(&mut self, act: impl FnOnce(&mut dyn WriteFile) -> Result<()>) -> Result<()> {
        let (State::Writing, Some(file)) = (self.state, self.file.as_deref_mut()) else {
            let context = format!("could not go on writing {}", self.target.display());
            return Err(Error::new(ErrorKind::Poisoned, context));
        };
        let done = act(file);
        if done.is_err() {
            self.state = State::Broken;
        }
        done
    }
}

impl WriteFile for NewFile {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.attempt(|file| file.append(bytes))
    }

    fn sync(&mut self) -> Result<()> {
        self.attempt(|file| file.sync())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.state != State::Renamed
            && let Err(error) = self.disk.remove(&self.temporary)
        {
            tracing::debug!(file = %self.temporary.display(), %error, "a temporary file stays behind");
        }
    }
}

impl PublishError {
    /// The error, whatever it means for the file.
    #[must_use]
    pub fn into_error(self) -> Error {
        match self {
            Self::NotPublished(error) | Self::Unknown(error) => error,
        }
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublished(error) => write!(f, "not published: {error}"),
            Self::Unknown(error) => write!(f, "may or may not be published: {error}"),
        }
    }
}

impl std::error::Error for PublishError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotPublished(error) | Self::Unknown(error) => Some(error),
        }
    }
}

/// Whether a rename that failed so has certainly not happened: the file system looked and said no.
fn refuses(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AlreadyExists { .. }
            | ErrorKind::NotFound { .. }
            | ErrorKind::PermissionDenied { .. }
            | ErrorKind::DiskFull { .. }
            | ErrorKind::InvalidInput
    )
}

/// Makes the directory `relative` below `root`, level by level, and makes every level durable before the next.
///
/// Levels that are already there are synced too: whoever made them may have been killed before its sync.
///
/// # Errors
/// `InvalidInput` where `relative` is not a plain path downwards; `NotFound` where `root` is missing; `AlreadyExists` where a level is a
/// file or a symbolic link.
pub(crate) fn create_dirs(disk: &dyn Disk, root: &Path, relative: &Path) -> Result<PathBuf> {
    if !relative.components().all(|component| matches!(component, Component::Normal(_))) {
        return Err(Error::invalid(format!("{} does not lead downwards", relative.display())));
    }
    let mut path = root.to_path_buf();
    for level in relative.components() {
        let parent = path.clone();
        path.push(level);
        disk.create_dir(&path)?;
        disk.sync_dir(&parent)?;
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind::{Interrupted, Other, StorageFull};

    use super::*;
    use crate::fs::SimDisk;
    use crate::fs::sim::{Operation, Persistence, Survivors};

    const OLD: &[u8] = b"the old file";
    const PARTS: [&[u8]; 3] = [b"first page, ", b"second page, ", b"footer"];
    const WHOLE: &[u8] = b"first page, second page, footer";

    fn disk_with_an_old_file() -> SimDisk {
        let sim = SimDisk::new(7);
        sim.write_file("/d/old", OLD).unwrap();
        sim
    }

    fn write(sim: &SimDisk) -> Result<NewFile> {
        let disk: Arc<dyn Disk> = Arc::new(sim.clone());
        let mut file = NewFile::create(&disk, Path::new("/d"), "new", ".new.tmp")?;
        PARTS.iter().try_for_each(|part| file.append(part))?;
        Ok(file)
    }

    fn publish(sim: &SimDisk) -> std::result::Result<(), PublishError> {
        write(sim).map_err(PublishError::NotPublished)?.publish()
    }

    /// Every image that a power loss may leave, as far as whole pieces go, and some with torn ones.
    fn images(sim: &SimDisk) -> impl Iterator<Item = SimDisk> {
        let pieces = u32::try_from(sim.pending()).unwrap();
        assert!(pieces <= 10);
        (0..1 << pieces).map(Survivors::Subset).chain((0..50).map(Survivors::Seeded)).map(|which| sim.survive(which))
    }

    fn names(sim: &SimDisk) -> Vec<String> {
        sim.list(Path::new("/d")).unwrap().into_iter().map(|entry| entry.name).collect()
    }

    #[test]
    fn a_crash_at_any_step_leaves_the_whole_file_or_none_under_the_name() {
        let counting = disk_with_an_old_file();
        publish(&counting).unwrap();
        let (mut absent, mut present, mut failed) = (0, 0, 0);
        for nth in 1..=counting.operations() {
            for late in [false, true] {
                let sim = disk_with_an_old_file();
                if late {
                    sim.crash_after(nth);
                } else {
                    sim.crash_at(nth);
                }
                let outcome = publish(&sim).unwrap_err();
                assert_eq!(sim.faults_fired(), 1);
                failed += 1;
                for image in images(&sim) {
                    assert_eq!(image.read_file("/d/old").unwrap(), OLD);
                    match image.read_file("/d/new") {
                        Ok(content) => {
                            assert_eq!(content, WHOLE, "operation {nth}");
                            assert!(matches!(outcome, PublishError::Unknown(_)), "operation {nth}: {outcome}");
                            present += 1;
                        }
                        Err(error) => {
                            assert!(error.is_not_found());
                            absent += 1;
                        }
                    }
                }
            }
        }
        // create, three appends, sync, rename, sync of the directory
        assert_eq!(failed, 14);
        assert!(absent > 100 && present > 10, "{absent} {present}");
    }

    #[test]
    fn what_was_published_is_durable_and_leaves_no_temporary() {
        let sim = disk_with_an_old_file();
        publish(&sim).unwrap();
        assert_eq!(sim.pending(), 0);
        let image = sim.survive(Survivors::None);
        assert_eq!(image.read_file("/d/new").unwrap(), WHOLE);
        assert_eq!(names(&image), ["new", "old"]);
    }

    #[test]
    fn a_taken_name_refuses_and_the_temporary_goes() {
        let sim = disk_with_an_old_file();
        let file = write(&sim).unwrap();
        sim.write_file("/d/new", b"the winner").unwrap();
        let refused = file.publish().unwrap_err();
        assert!(matches!(&refused, PublishError::NotPublished(error) if error.is_already_exists()), "{refused}");
        assert_eq!(sim.read_file("/d/new").unwrap(), b"the winner");
        assert_eq!(names(&sim), ["new", "old"]);
    }

    #[test]
    fn a_failure_up_to_the_rename_publishes_nothing_and_removes_the_temporary() {
        for (operation, error) in
            [(Operation::Append, StorageFull), (Operation::Sync, Other), (Operation::Rename, StorageFull)]
        {
            let sim = disk_with_an_old_file();
            sim.fail_at(1, &[operation], error, Persistence::Once);
            assert!(matches!(publish(&sim), Err(PublishError::NotPublished(_))), "{operation:?}");
            assert_eq!((sim.faults_fired(), names(&sim)), (1, vec!["old".to_owned()]), "{operation:?}");
        }
    }

    #[test]
    fn a_failure_from_the_rename_on_is_unknown_whether_it_took_effect_or_not() {
        for operation in [Operation::Rename, Operation::SyncDir] {
            for done in [false, true] {
                let sim = disk_with_an_old_file();
                let plan = if done { SimDisk::fail_after } else { SimDisk::fail_at };
                plan(&sim, 1, &[operation], Interrupted, Persistence::Once);
                assert!(matches!(publish(&sim), Err(PublishError::Unknown(_))));
                assert_eq!(sim.faults_fired(), 1);
                let visible = sim.read_file("/d/new").is_ok();
                assert_eq!(visible, done || operation == Operation::SyncDir);
            }
        }
    }

    #[test]
    fn a_file_that_failed_once_cannot_be_written_or_published() {
        let sim = disk_with_an_old_file();
        let mut file = write(&sim).unwrap();
        sim.fail_at(1, &[Operation::Sync], Other, Persistence::Once);
        assert!(file.sync().is_err());
        assert_eq!(file.append(b"more").unwrap_err().kind(), &ErrorKind::Poisoned);
        let refused = file.publish().unwrap_err();
        assert!(matches!(&refused, PublishError::NotPublished(error) if error.kind() == &ErrorKind::Poisoned));
        assert_eq!(names(&sim), ["old"]);
    }

    #[test]
    fn dropping_removes_the_temporary_and_a_taken_temporary_is_left_alone() {
        let sim = disk_with_an_old_file();
        let file = write(&sim).unwrap();
        assert_eq!(file.target(), Path::new("/d/new"));
        assert!(write(&sim).unwrap_err().is_already_exists());
        assert_eq!(names(&sim), [".new.tmp", "old"]);
        drop(file);
        assert_eq!(names(&sim), ["old"]);
    }

    #[test]
    fn directories_are_durable_whenever_they_are_returned() {
        let counting = SimDisk::new(1);
        create_dirs(&counting, Path::new("/"), Path::new("a/b/c")).unwrap();
        assert_eq!((counting.operations(), counting.pending()), (6, 0));
        for nth in 1..=6 {
            let sim = SimDisk::new(1);
            sim.crash_after(nth);
            assert!(create_dirs(&sim, Path::new("/"), Path::new("a/b/c")).is_err());
            // Killed only: the next process finds directories whose names nobody has made durable.
            let next = sim.fork();
            let path = create_dirs(&next, Path::new("/"), Path::new("a/b/c")).unwrap();
            let after = next.survive(Survivors::None);
            assert!(after.stat(&path).unwrap().is_some(), "killed after operation {nth}");
        }
    }

    #[test]
    fn directories_are_only_made_downwards_and_not_over_files() {
        let sim = disk_with_an_old_file();
        let make = |relative: &str| create_dirs(&sim, Path::new("/d"), Path::new(relative));
        for bad in ["../e", "a/../../e", "/e"] {
            assert_eq!(make(bad).unwrap_err().kind(), &ErrorKind::InvalidInput, "{bad}");
        }
        assert!(make("old/e").unwrap_err().is_already_exists());
        assert_eq!(names(&sim), ["old"]);
        assert!(create_dirs(&sim, Path::new("/missing"), Path::new("e")).unwrap_err().is_not_found());
        assert_eq!(make("").unwrap(), Path::new("/d"));
    }
}
