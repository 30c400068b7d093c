//! Whose a work directory is: locked, foreign, of another lineage, unreadable.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use alluvium::{Backend, ErrorKind};

use super::check::check;
use super::child::{Event, Running};
use super::games::copy_tree;
use super::model::{Dice, Line};
use super::writer::{Ending, GAVE_UP_CODE, Job, backend_options};

fn job(all: &Path, checkpoint: &str, work: &str, run: u64, plan: &str) -> Job {
    let (checkpoint, work) = (all.join(checkpoint), Some(all.join(work)));
    Job { checkpoint, work, run, plan: plan.to_owned(), ending: Ending::Exit }
}

/// Runs a writer to its end; the line that is there then.
fn run(job: &Job, before: &Line) -> Line {
    let ended = Running::start(job).end();
    assert!(ended.status.success() && ended.failures().is_empty(), "{ended:#?}");
    ended.lines(before).swap_remove(0)
}

/// Names, lengths and contents below a directory.
fn listing(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(listing(&path));
            found.push((path, Vec::new()));
        } else {
            let bytes = fs::read(&path).unwrap();
            found.push((path, bytes));
        }
    }
    found.sort();
    found
}

#[test]
fn a_second_process_is_told_who_has_the_work_directory_until_that_process_is_gone() {
    let all = tempfile::tempdir().unwrap();
    let holder = Job { ending: Ending::Linger, ..job(all.path(), "checkpoint", "work", 1, "ccw") };
    let mut running = Running::start(&holder);
    running.wait_for(&Event::Lingers);
    let open = || Backend::open(all.path().join("work"), backend_options());
    let error = open().unwrap_err();
    let ErrorKind::Locked { holder } = error.kind() else { panic!("{error:?}") };
    assert!(holder.contains(&format!("process {} on host ", running.pid())), "{holder}");
    let other = Running::start(&job(all.path(), "other", "work", 2, "c")).end();
    assert_eq!(other.status.code(), Some(GAVE_UP_CODE));
    assert_eq!(other.failures(), ["Locked"; 3]);
    assert!(!all.path().join("other").exists(), "whoever has no index has not begun");
    running.kill();
    open().unwrap(); // no lock outlives its process
}

#[test]
fn a_store_that_was_dropped_while_it_was_folding_can_be_opened_again_at_once() {
    let mut dice = Dice::of_test("reopen");
    let all = tempfile::tempdir().unwrap();
    let mut line = Line::new();
    for round in 0..10 {
        // Three deltas make folding begin; then everything is closed and opened again in the same process.
        line = run(&job(all.path(), "checkpoint", "work", dice.next(), "lllrcclrcccr"), &line);
        let look = job(all.path(), "checkpoint", "work", 0, "");
        assert_eq!(check(&look, &[line.clone()], &mut dice).unwrap(), line, "round {round}");
    }
}

#[test]
fn a_directory_of_rocksdb_that_carries_no_marker_is_refused_and_left_as_it_is() {
    let all = tempfile::tempdir().unwrap();
    run(&job(all.path(), "checkpoint", "work", 1, "ccwc"), &Line::new());
    copy_tree(&all.path().join("work/rocks"), &all.path().join("foreign"));
    copy_tree(&all.path().join("work/rocks"), &all.path().join("nested/rocks"));
    for name in ["foreign", "nested"] {
        let before = listing(&all.path().join(name));
        let ended = Running::start(&job(all.path(), "checkpoint", name, 2, "c")).end();
        assert_eq!(ended.status.code(), Some(GAVE_UP_CODE));
        assert_eq!(ended.failures(), ["Foreign"; 3]);
        assert_eq!(listing(&all.path().join(name)), before, "{name}");
    }
}

#[test]
fn an_index_of_another_store_of_the_same_name_is_never_read_for_this_one() {
    let mut dice = Dice::of_test("other store");
    let all = tempfile::tempdir().unwrap();
    let mut lines = [Line::new(), Line::new()];
    for round in 0..8 {
        let place = round % 2;
        let checkpoint = ["one", "two"][place];
        lines[place] = run(&job(all.path(), checkpoint, "work", dice.next(), "cclwcdc"), &lines[place]);
        let other = &lines[1 - place];
        let look = job(all.path(), ["two", "one"][place], "work", 0, "");
        assert_eq!(&check(&look, std::slice::from_ref(other), &mut dice).unwrap(), other);
    }
}

#[test]
fn an_index_of_another_branch_of_the_same_store_is_never_read_for_this_one() {
    let mut dice = Dice::of_test("other branch");
    let all = tempfile::tempdir().unwrap();
    let trunk = run(&job(all.path(), "one", "work", dice.next(), "cclwc"), &Line::new());
    copy_tree(&all.path().join("one"), &all.path().join("two"));
    // Same store, same versions, same epochs; only the ids of the runs differ.
    let mut lines = [trunk.clone(), trunk];
    for round in 0..8 {
        let place = round % 2;
        let checkpoint = ["one", "two"][place];
        lines[place] = run(&job(all.path(), checkpoint, "work", dice.next(), "cdwclwc"), &lines[place]);
        let other = &lines[1 - place];
        let look = job(all.path(), ["two", "one"][place], "work", 0, "");
        assert_eq!(&check(&look, std::slice::from_ref(other), &mut dice).unwrap(), other);
    }
}

#[test]
fn a_work_directory_that_may_not_be_written_is_a_typed_error_and_not_wiped() {
    const NOBODY: u32 = 65_534;
    let all = tempfile::tempdir().unwrap();
    let writer = job(all.path(), "checkpoint", "work", 1, "ccwc");
    run(&writer, &Line::new());
    fs::set_permissions(all.path(), Permissions::from_mode(0o755)).unwrap();
    let work = all.path().join("work");
    fs::set_permissions(&work, Permissions::from_mode(0o555)).unwrap();
    let is_root = chown(&work, Some(0), Some(0)).is_ok();
    let mut command = writer.command(&[]);
    if is_root {
        command.uid(NOBODY).gid(NOBODY);
    }
    let before = listing(&work);
    let ended = match command.stdin(Stdio::null()).output() {
        Ok(ended) if ended.status.code() == Some(GAVE_UP_CODE) => ended,
        other => {
            // Where this binary itself lies behind a closed door.
            println!("skipped: nobody cannot run this test: {other:?}");
            return;
        }
    };
    let told = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(told.matches("@ failed PermissionDenied").count(), 3, "{told}");
    assert_eq!(listing(&work), before);
}
