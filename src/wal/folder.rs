//! The folder of a log.

use std::path::Path;

use crate::error::{Error, Result};
use crate::fs::{Disk, create_dirs};

/// Makes the folder and what is missing above it, every level durable; also the nearest one that is there already, since whoever made it
/// may have been cut off before its sync.
pub(super) fn make(disk: &dyn Disk, dir: &Path) -> Result<()> {
    for ancestor in dir.ancestors() {
        if !ancestor.as_os_str().is_empty() && disk.stat(ancestor)?.is_none() {
            continue;
        }
        let root = ancestor.parent().unwrap_or(ancestor);
        let relative = dir.strip_prefix(root).map_err(|error| Error::invalid("not a path").with_source(error))?;
        let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
        create_dirs(disk, root, relative)?;
        return Ok(());
    }
    Err(Error::invalid(format!("{} leads nowhere", dir.display())))
}
