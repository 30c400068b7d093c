//! The folder of a log.

use std::path::Path;

use crate::error::{Error, Result};
use crate::fs::{Disk, create_dirs};

/// Makes the folder and what is missing above it, every level durable.
pub(super) fn make(disk: &dyn Disk, dir: &Path) -> Result<()> {
    // The nearest ancestor that is there is the root that the caller chose to trust.
    for root in dir.ancestors() {
        if root.as_os_str().is_empty() || disk.stat(root)?.is_some() {
            let relative = dir.strip_prefix(root).map_err(|error| Error::invalid("not a path").with_source(error))?;
            let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
            create_dirs(disk, root, relative)?;
            return Ok(());
        }
    }
    Err(Error::invalid(format!("{} leads nowhere", dir.display())))
}
