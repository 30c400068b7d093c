//! A memory control group of our own, below the one that we are in: version 1 or 2, whichever the machine has.
//!
//! Only processes that join are in it: this one stays outside, so that it can report an OOM kill and remove the group.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::guardian::Guardian;
use super::kernel::number;

/// How the kernel names things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    V1,
    V2,
}

/// A group. It is removed at the end, however the process ends.
#[derive(Debug)]
pub(crate) struct Cgroup {
    dir: PathBuf,
    layout: Layout,
    guardian: Guardian,
}

/// What a group has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The most that was charged at a time, page cache included.
    pub(crate) peak_bytes: u64,
    /// Page cache that is charged now, mapped or not.
    pub(crate) cache_bytes: u64,
    /// How often somebody was killed.
    pub(crate) oom_kills: u64,
}

impl Cgroup {
    /// Makes a group with a limit, or one that only counts.
    ///
    /// # Errors
    /// A sentence that says why this machine doesn't allow it.
    pub(crate) fn new(limit_bytes: Option<u64>) -> Result<Self, String> {
        let read = |file: &str| fs::read_to_string(file).map_err(|e| format!("{file}: {e}"));
        let (own, layout) = own_group(&read("/proc/self/cgroup")?, &read("/proc/self/mountinfo")?)?;
        let dir = parent(&own, layout)?.join(format!("alluvium-{}", std::process::id()));
        fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let guardian = Guardian::over(&dir).map_err(|e| e.to_string())?;
        let group = Self { dir, layout, guardian };
        if let Some(limit_bytes) = limit_bytes {
            group.limit(limit_bytes)?;
        }
        Ok(group)
    }

    fn limit(&self, bytes: u64) -> Result<(), String> {
        let (memory, swap) = match self.layout {
            Layout::V1 => ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
            Layout::V2 => ("memory.max", "memory.swap.max"),
        };
        self.write(memory, bytes)?;
        let swap_bytes = if self.layout == Layout::V1 { bytes } else { 0 };
        if self.dir.join(swap).exists() {
            self.write(swap, swap_bytes)?;
        }
        Ok(())
    }

    fn write(&self, file: &str, value: u64) -> Result<(), String> {
        let file = self.dir.join(file);
        fs::write(&file, value.to_string()).map_err(|e| format!("{}: {e}", file.display()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.dir
    }

    /// What it has seen so far.
    pub(crate) fn seen(&self) -> Seen {
        let read = |file: &str| fs::read_to_string(self.dir.join(file)).unwrap_or_default();
        let value = |file: &str| read(file).trim().parse().unwrap_or(0);
        match self.layout {
            Layout::V1 => Seen {
                peak_bytes: value("memory.max_usage_in_bytes"),
                cache_bytes: number(&read("memory.stat"), "cache "),
                oom_kills: number(&read("memory.oom_control"), "oom_kill "),
            },
            Layout::V2 => Seen {
                peak_bytes: value("memory.peak"),
                cache_bytes: number(&read("memory.stat"), "file "),
                oom_kills: number(&read("memory.events"), "oom_kill "),
            },
        }
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        self.guardian.release();
    }
}

/// Puts this process into a group.
pub(crate) fn join(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), "0")
}

/// The directory of the group that this process is in, from `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn own_group(groups: &str, mounts: &str) -> Result<(PathBuf, Layout), String> {
    let none = || "no memory controller is mounted".to_owned();
    let of = |wanted: &dyn Fn(&str, &str) -> bool| {
        let line = groups.lines().find(|line| {
            let mut fields = line.splitn(3, ':');
            wanted(fields.next().unwrap_or_default(), fields.next().unwrap_or_default())
        })?;
        line.splitn(3, ':').nth(2).map(str::to_owned)
    };
    let v1 = of(&|_, controllers| controllers.split(',').any(|name| name == "memory"));
    let (path, layout) = match v1 {
        Some(path) => (path, Layout::V1),
        None => (of(&|number, controllers| number == "0" && controllers.is_empty()).ok_or_else(none)?, Layout::V2),
    };
    let mount = mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut kind = kind.split(' ');
        let is_wanted = match layout {
            Layout::V1 => kind.next() == Some("cgroup") && kind.nth(1)?.split(',').any(|option| option == "memory"),
            Layout::V2 => kind.next() == Some("cgroup2"),
        };
        let mut place = place.split(' ').skip(3);
        is_wanted.then(|| Some((place.next()?, place.next()?))).flatten()
    });
    let (root, mount) = mount.ok_or_else(none)?;
    // In a container the mount shows only a part of the tree.
    let below = Path::new(&path).strip_prefix(root).unwrap_or_else(|_| Path::new(""));
    Ok((Path::new(mount).join(below), layout))
}

/// Where a group of ours can be made. In version 2 a group with processes has no children that are limited, so it is a
/// sibling, unless we are in the root.
fn parent(own: &Path, layout: Layout) -> Result<PathBuf, String> {
    if layout == Layout::V1 {
        return Ok(own.into());
    }
    let hands_down = |dir: &Path| {
        let text = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
        text.split_whitespace().any(|name| name == "memory")
    };
    let candidates = [Some(own), own.parent()];
    let found = candidates.into_iter().flatten().find(|dir| hands_down(dir));
    found.map(Path::to_owned).ok_or_else(|| format!("{} hands no memory controller down", own.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_version_1_is_found() {
        let groups = "5:devices:/\n4:memory:/job/7\n1:name=systemd:/\n0::/\n";
        let mounts = "30 25 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
        assert_eq!(own_group(groups, mounts), Ok(("/sys/fs/cgroup/memory/job/7".into(), Layout::V1)));
        let inside = mounts.replace(" / /sys/fs/cgroup/memory", " /job /sys/fs/cgroup/memory");
        assert_eq!(own_group(groups, &inside), Ok(("/sys/fs/cgroup/memory/7".into(), Layout::V1)));
    }

    #[test]
    fn the_group_of_version_2_is_found() {
        let mounts = "31 25 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = own_group("0::/user.slice/run\n", mounts);
        assert_eq!(found, Ok(("/sys/fs/cgroup/user.slice/run".into(), Layout::V2)));
    }

    #[test]
    fn a_machine_without_groups_says_so() {
        assert!(own_group("", "").is_err());
        assert!(own_group("4:memory:/\n", "1 1 0:1 / /proc rw - proc proc rw\n").is_err());
    }
}
