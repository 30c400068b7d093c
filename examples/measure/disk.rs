//! Room on disk: how much there is, how much is used, and a directory that is cleaned up.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::guardian::Guardian;
use super::{Failure, mebibytes};

/// A directory of one run. It is removed at the end, however the process ends.
#[derive(Debug)]
pub(crate) struct Scratch {
    dir: PathBuf,
    guardian: Guardian,
}

impl Scratch {
    /// Makes a new directory below `parent`, after a look whether `needed_bytes` are free there.
    pub(crate) fn new(parent: &Path, needed_bytes: u64) -> Result<Self, Failure> {
        fs::create_dir_all(parent)?;
        let free_bytes = free_bytes(parent)?;
        let (needed, free) = (mebibytes(needed_bytes), mebibytes(free_bytes));
        eprintln!("needs up to {needed:.0} MiB of disk below {}; {free:.0} MiB are free", parent.display());
        if free_bytes < needed_bytes {
            return Err(
                format!("{free:.0} MiB of disk are free, {needed:.0} MiB are needed: fewer keys, or --dir").into()
            );
        }
        let dir = parent.join(format!("run-{}", std::process::id()));
        fs::create_dir(&dir)?;
        let guardian = Guardian::over(&dir)?;
        Ok(Self { dir, guardian })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.guardian.release();
    }
}

/// Number and bytes of all files below a directory; what disappears meanwhile is not counted.
pub(crate) fn directory_size(dir: &Path) -> io::Result<(u64, u64)> {
    let mut total = (0, 0);
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(total),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let (files, bytes) = match entry.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            meta if meta.as_ref().is_ok_and(fs::Metadata::is_dir) => directory_size(&entry.path())?,
            meta => (1, meta?.len()),
        };
        total = (total.0 + files, total.1 + bytes);
    }
    Ok(total)
}

fn free_bytes(dir: &Path) -> Result<u64, Failure> {
    let stat = rustix::fs::statvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_below_folders_count_too() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("inner")).unwrap();
        fs::write(dir.path().join("a"), [0; 10]).unwrap();
        fs::write(dir.path().join("inner/b"), [0; 5]).unwrap();
        assert_eq!(directory_size(dir.path()).unwrap(), (2, 15));
        assert_eq!(directory_size(&dir.path().join("none")).unwrap(), (0, 0));
    }

    #[test]
    fn too_little_disk_is_refused_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Scratch::new(dir.path(), u64::MAX).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
