//! Bad input from outside: places, names and disks that will not do. Each gives a clear, typed error that names the path, and
//! nothing is changed.
#![expect(clippy::needless_for_each, reason = "reads better after a chain")]

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use alluvium::fs::SimDisk;
use alluvium::fs::sim::{Operation, Persistence};
use alluvium::prelude::*;
use alluvium::{Backend, Checkpoint, Error, ErrorKind, FamilyId, LocalCheckpoint, MemoryProvider, Residency, Result};
use alluvium::{RocksDbProvider, StateStoreId, StoreOptions, Version};

fn id() -> StateStoreId {
    StateStoreId::new("op", 0, "state").unwrap()
}

fn provider(checkpoint: impl Into<Arc<dyn Checkpoint>>) -> Result<RocksDbProvider> {
    RocksDbProvider::open(&Backend::in_memory()?, checkpoint, id(), StoreOptions::default())
}

/// Opens the checkpoint and the store in it.
fn store(root: &Path) -> Result<RocksDbProvider> {
    provider(LocalCheckpoint::open(root)?)
}

fn commit(provider: &impl StateStoreProvider, key: &[u8], value: &[u8]) -> Result<Version> {
    let mut batch = provider.begin(provider.latest()?)?;
    batch.put(FamilyId::DEFAULT, key, value)?;
    batch.commit()
}

/// Everything below a directory, links not followed: what it is, its length, its permissions, when it changed, its bytes.
fn listing(path: &Path) -> Vec<(PathBuf, String)> {
    let stat = path.symlink_metadata().unwrap();
    let bytes = if stat.is_file() { fs::read(path).ok() } else { None };
    let about = format!("{:?} {:?} {:?} {bytes:?}", stat.file_type(), stat.permissions(), stat.modified().unwrap());
    let mut found = vec![(path.to_path_buf(), about)];
    if stat.is_dir()
        && let Ok(entries) = fs::read_dir(path)
    {
        entries.for_each(|entry| found.extend(listing(&entry.unwrap().path())));
    }
    found.sort();
    found
}

/// Checks that the text of an error names the path, for whoever has only the text.
#[track_caller]
fn assert_names(error: &Error, path: &Path) {
    assert!(error.to_string().contains(&*path.to_string_lossy()), "{error} does not name {}", path.display());
}

#[test]
fn a_checkpoint_root_that_is_a_file_or_a_link_is_refused_and_left_alone() {
    let all = tempfile::tempdir().unwrap();
    let real = all.path().join("real");
    commit(&store(&real).unwrap(), b"k", b"1").unwrap();
    fs::write(all.path().join("file"), b"precious").unwrap();
    symlink(&real, all.path().join("link")).unwrap();
    symlink(all.path().join("nowhere"), all.path().join("dangling")).unwrap();
    let before = listing(all.path());
    for name in ["file", "link", "dangling"] {
        let root = all.path().join(name);
        let error = store(&root).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Foreign { path: root.clone() }, "{name}");
        assert_names(&error, &root);
    }
    let below = store(&all.path().join("file/below")).unwrap_err();
    assert!(matches!(below.kind(), ErrorKind::Io { kind: io::ErrorKind::NotADirectory, .. }), "{below:?}");
    assert_names(&below, &all.path().join("file/below"));
    let orphan = store(&all.path().join("no/parent")).unwrap_err();
    assert!(matches!(orphan.kind(), ErrorKind::NotFound { .. }), "{orphan:?}");
    assert_names(&orphan, &all.path().join("no/parent"));
    assert_eq!(listing(all.path()), before);
}

#[test]
fn a_file_or_a_link_where_the_store_has_a_directory_is_refused_and_left_alone() {
    for place in ["state", "state/op", "state/op/0", "state/op/0/state", "state/op/0/state/forks"] {
        for is_link in [false, true] {
            let all = tempfile::tempdir().unwrap();
            let (root, outside) = (all.path().join("root"), all.path().join("outside"));
            let at = root.join(place);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::create_dir(&outside).unwrap();
            if is_link {
                symlink(&outside, &at).unwrap();
            } else {
                fs::write(&at, b"precious").unwrap();
            }
            let before = listing(all.path());
            for open in [store as fn(&Path) -> Result<RocksDbProvider>, |root| {
                let options = StoreOptions::default().residency(Residency::Resident);
                RocksDbProvider::open(&Backend::in_memory()?, LocalCheckpoint::open(root)?, id(), options)
            }] {
                let error = open(&root).unwrap_err();
                let expected = matches!(
                    error.kind(),
                    ErrorKind::Io { .. } | ErrorKind::Foreign { .. } | ErrorKind::AlreadyExists { .. }
                );
                assert!(expected, "{place} link {is_link}: {error:?}");
                assert_names(&error, &root.join("state"));
            }
            MemoryProvider::open(LocalCheckpoint::open(&root).unwrap(), id(), StoreOptions::default()).unwrap_err();
            assert_eq!(listing(all.path()), before, "{place} link {is_link}");
        }
    }
}

#[test]
fn strange_files_beside_the_runs_are_neither_believed_nor_touched() {
    let all = tempfile::tempdir().unwrap();
    let first = store(all.path()).unwrap();
    commit(&first, b"k", b"1").unwrap();
    drop(first);
    let dir = all.path().join("state/op/0/state");
    let strange =
        ["notes.txt", "1.delta", "00000000000000000009.delta", ".hidden", "core", "x.snapshot", "~1.delta.swp"];
    strange.iter().for_each(|name| fs::write(dir.join(name), b"strange").unwrap());
    fs::write(dir.join("forks/README"), b"strange").unwrap();
    fs::create_dir(dir.join("lost+found")).unwrap();
    symlink("/etc/passwd", dir.join("link")).unwrap();
    let opened = store(all.path()).unwrap();
    assert_eq!(opened.latest().unwrap(), Version(1));
    assert_eq!(commit(&opened, b"k", b"2").unwrap(), Version(2));
    assert_eq!(opened.snapshot().unwrap(), Version(2));
    strange.iter().for_each(|name| assert_eq!(fs::read(dir.join(name)).unwrap(), b"strange", "{name}"));
    assert!(dir.join("lost+found").is_dir() && dir.join("link").is_symlink());
}

#[test]
fn names_that_could_leave_their_directory_are_refused_with_the_name_in_the_text() {
    let all = tempfile::tempdir().unwrap();
    let provider = store(all.path()).unwrap();
    let before = listing(all.path());
    let long = "x".repeat(129);
    let bad = [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc",
        "a\\b",
        "a\0b",
        "a\nb",
        "a b",
        ".hidden",
        "caf\u{e9}",
        "\u{202e}x",
        "a:b",
        &long,
    ];
    for name in bad {
        let errors = [
            StateStoreId::new(name, 0, "state").unwrap_err(),
            StateStoreId::new("op", 0, name).unwrap_err(),
            provider.begin(Version(0)).unwrap().create_family(name).unwrap_err(),
        ];
        for error in errors {
            if name.len() > 128 {
                assert_eq!(error.kind(), &ErrorKind::LimitExceeded { limit: 128, found: 129 }, "{name:?}");
            } else {
                assert_eq!(error.kind(), &ErrorKind::InvalidInput, "{name:?}");
                assert!(error.to_string().contains(&format!("{name:?}")), "{error} does not name {name:?}");
            }
        }
    }
    assert_eq!(listing(all.path()), before);
}

/// X1 and X2: a disk that is full at any write, then has room again.
#[test]
fn a_full_disk_is_told_with_the_path_loses_nothing_and_needs_no_restart() {
    const WRITES: [Operation; 5] =
        [Operation::Create, Operation::Append, Operation::Sync, Operation::Rename, Operation::CreateDir];
    let base = SimDisk::new(5);
    commit(&on(&base).unwrap(), b"k", b"1").unwrap();
    let mut failed_opens = 0;
    let mut failed_commits = 0;
    for nth in 1.. {
        let disk = base.fork();
        let files = disk.files();
        disk.fail_at(nth, &WRITES, io::ErrorKind::StorageFull, Persistence::ForEver);
        let opened = match on(&disk) {
            Err(error) => {
                assert_full(&error);
                assert_eq!(disk.files(), files, "write {nth}: nothing is left behind");
                disk.clear_faults();
                failed_opens += 1;
                on(&disk).unwrap()
            }
            Ok(opened) => {
                let files = disk.files();
                if let Err(error) = commit(&opened, b"k", b"2") {
                    assert_full(&error);
                    assert_eq!(disk.files(), files, "write {nth}: nothing is left behind");
                    failed_commits += 1;
                } else {
                    assert_eq!(disk.faults_fired(), 0, "write {nth}: what failed is told");
                    break;
                }
                disk.clear_faults();
                opened
            }
        };
        assert_eq!(opened.latest().unwrap(), Version(1), "write {nth}");
        assert_eq!(commit(&opened, b"k", b"3").unwrap(), Version(2), "write {nth}: there is room again");
        drop(opened);
        let view = on(&disk).unwrap().read_at(Version(2)).unwrap();
        assert_eq!(view.get(FamilyId::DEFAULT, b"k").unwrap().unwrap(), b"3", "write {nth}");
    }
    assert!(failed_opens >= 3 && failed_commits >= 3, "{failed_opens} opens and {failed_commits} commits failed");
}

fn on(disk: &SimDisk) -> Result<RocksDbProvider> {
    provider(LocalCheckpoint::on(Arc::new(disk.clone()), "/checkpoint")?)
}

#[track_caller]
fn assert_full(error: &Error) {
    assert!(matches!(error.kind(), ErrorKind::DiskFull { path } if path.starts_with("/checkpoint")), "{error:?}");
    assert_names(error, Path::new("/checkpoint"));
}

/// The same on a file system that really is full. Needs the right to mount.
#[test]
fn a_file_system_that_is_full_is_told_with_the_path_and_can_be_used_again() {
    let all = tempfile::tempdir().unwrap();
    let Some(mounted) = SmallDisk::mount(all.path()) else {
        println!("skipped: no right to mount a small file system here");
        return;
    };
    let root = mounted.0.join("checkpoint");
    let provider = store(&root).unwrap();
    commit(&provider, b"small", b"1").unwrap();
    let runs = listing(&root).len();
    let error = commit(&provider, b"large", &vec![7; 2 << 20]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::DiskFull { .. }), "{error:?}");
    assert_names(&error, &root);
    assert_eq!(listing(&root).len(), runs, "nothing is left behind");
    assert_eq!(commit(&provider, b"small", b"2").unwrap(), Version(2), "small commits find room");
    drop(provider);
    let view = store(&root).unwrap().read_at(Version(2)).unwrap();
    assert_eq!(view.get(FamilyId::DEFAULT, b"small").unwrap().unwrap(), b"2");
    assert_eq!(view.get(FamilyId::DEFAULT, b"large").unwrap(), None);
}

/// A megabyte of file system, unmounted in the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(at: &Path) -> Option<Self> {
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(at).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(at.to_path_buf()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).output());
    }
}

// What the file system forbids cannot be seen as root: these run in a process of their own, as nobody.

const CASE: &str = "ALLUVIUM_BAD_INPUT_CASE";
const NOBODY: u32 = 65_534;

/// Runs `case` of [`as_nobody`] in `dir`, in another process if we are root.
fn run_as_nobody(case: &str, dir: &Path) {
    let myself = std::env::current_exe().unwrap();
    let is_root = fs::metadata("/proc/self").is_ok_and(|stat| std::os::unix::fs::MetadataExt::uid(&stat) == 0);
    if !is_root {
        return child(case, dir);
    }
    let mut command = Command::new("setpriv");
    command.args([&format!("--reuid={NOBODY}"), "--regid=65534", "--clear-groups", "--"]).arg(&myself);
    command.args(["--exact", "bad_input::as_nobody", "--nocapture"]).env(CASE, format!("{case}:{}", dir.display()));
    match command.output() {
        Err(error) => println!("skipped: no setpriv to become nobody with: {error}"),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            if text.contains("Permission denied") && !text.contains("running 1 test") {
                println!("skipped: nobody may not run {}", myself.display());
                return;
            }
            assert!(output.status.success() && text.contains("the case was checked"), "{case}: {text}");
        }
    }
}

#[test]
fn as_nobody() {
    let Ok(wanted) = std::env::var(CASE) else { return };
    let (case, dir) = wanted.split_once(':').unwrap();
    child(case, Path::new(dir));
    println!("the case was checked");
}

/// A store with one version in `<dir>/root`, all of it nobody's.
fn given_away() -> tempfile::TempDir {
    let all = tempfile::tempdir().unwrap();
    commit(&store(&all.path().join("root")).unwrap(), b"k", b"1").unwrap();
    let mut paths = vec![all.path().to_path_buf()];
    while let Some(path) = paths.pop() {
        // Fails where we are nobody special: then it is ours, which is as good.
        drop(chown(&path, Some(NOBODY), Some(NOBODY)));
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    all
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn child(case: &str, dir: &Path) {
    let root = dir.join("root");
    let outcome = match case {
        "open" => store(&root).map(drop),
        "open new" => store(&dir.join("new")).map(drop),
        "commit" => {
            let provider = store(&root).unwrap();
            let store_dir = root.join("state/op/0/state");
            set_mode(&store_dir, 0o555);
            let before = listing(&root);
            let outcome = commit(&provider, b"k", b"2").map(drop);
            assert_eq!(listing(&root), before);
            set_mode(&store_dir, 0o755);
            assert_eq!(commit(&provider, b"k", b"3").unwrap(), Version(2), "it goes on when it may write again");
            outcome
        }
        other => panic!("no case {other}"),
    };
    let error = outcome.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::PermissionDenied { path } if path.starts_with(dir)), "{case}: {error:?}");
    assert_names(&error, dir);
}

#[test]
fn a_read_only_checkpoint_is_refused_for_writing_and_left_alone() {
    let all = given_away();
    let root = all.path().join("root");
    let dirs = ["", "state", "state/op", "state/op/0", "state/op/0/state", "state/op/0/state/forks"];
    dirs.iter().for_each(|dir| set_mode(&root.join(dir), 0o555));
    let before = listing(all.path());
    run_as_nobody("open", all.path());
    assert_eq!(listing(all.path()), before);
    dirs.iter().for_each(|dir| set_mode(&root.join(dir), 0o755)); // so that it can be cleaned up
}

#[test]
fn a_checkpoint_without_permission_is_refused_and_left_alone() {
    for (place, mode) in [("root", 0o000), ("root/state", 0o000), ("root/state/op/0/state", 0o000), ("root", 0o444)] {
        let all = given_away();
        let at = all.path().join(place);
        set_mode(&at, mode);
        let before = listing(all.path());
        run_as_nobody("open", all.path());
        assert_eq!(listing(all.path()), before, "{place}");
        set_mode(&at, 0o755);
    }
}

#[test]
fn a_run_or_fork_that_may_not_be_read_is_told_and_not_passed_over() {
    let suffixes = ["delta", "forks"];
    for suffix in suffixes {
        let all = given_away();
        let dir = all.path().join("root/state/op/0/state");
        let dir = if suffix == "forks" { dir.join("forks") } else { dir };
        let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        let file = files.last().unwrap();
        set_mode(&file, 0o000);
        let before = listing(all.path());
        run_as_nobody("open", all.path());
        assert_eq!(listing(all.path()), before, "{suffix}");
    }
}

#[test]
fn a_checkpoint_that_may_not_be_made_is_told() {
    let all = given_away();
    set_mode(all.path(), 0o555);
    let before = listing(all.path());
    run_as_nobody("open new", all.path());
    assert_eq!(listing(all.path()), before);
    set_mode(all.path(), 0o755);
}

#[test]
fn a_store_that_becomes_read_only_fails_the_commit_and_goes_on_when_it_may_write_again() {
    let all = given_away();
    run_as_nobody("commit", all.path());
}

/// What a work directory must not be. Compiled where RocksDB is.
#[cfg(feature = "rocksdb")]
mod work_dir {
    use super::*;
    use alluvium::BackendOptions;

    fn open(path: &Path) -> Result<Backend> {
        Backend::open(path, BackendOptions::default())
    }

    #[test]
    fn a_work_directory_that_is_not_ours_is_refused_and_left_alone() {
        let all = tempfile::tempdir().unwrap();
        let (foreign, file, link) = (all.path().join("foreign"), all.path().join("file"), all.path().join("link"));
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("thesis.tex"), b"precious").unwrap();
        fs::write(&file, b"precious").unwrap();
        symlink(&foreign, &link).unwrap();
        let before = listing(all.path());
        for path in [&foreign, &file, &link] {
            let error = open(path).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Foreign { .. }), "{}: {error:?}", path.display());
            assert_names(&error, path);
        }
        assert_eq!(listing(all.path()), before);
    }

    #[test]
    fn a_work_directory_in_use_is_refused_and_names_its_holder() {
        let all = tempfile::tempdir().unwrap();
        let path = all.path().join("work");
        let first = open(&path).unwrap();
        let error = open(&path).unwrap_err();
        let ErrorKind::Locked { holder } = error.kind() else { panic!("{error:?}") };
        assert!(holder.contains(&std::process::id().to_string()), "{holder}");
        drop(first);
        open(&path).unwrap();
    }
}
