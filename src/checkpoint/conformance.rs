//! The suite that every [`Checkpoint`] is held against, yours too.
//!
//! It fails by panicking, as a test does.
#![expect(clippy::expect_used, reason = "a test suite fails by panicking")]

use std::sync::{Arc, Barrier};
use std::thread;

use super::contract::Checkpoint;
use crate::error::ErrorKind;
use crate::fs::{FileKind, PublishError};

/// Makes a new, empty checkpoint for each check.
pub type Make<'a> = &'a dyn Fn() -> Arc<dyn Checkpoint>;

/// Runs every check on a checkpoint of its own.
///
/// # Panics
/// Where a check fails.
pub fn suite(make: Make<'_>) {
    a_published_file_is_there_whole(make);
    an_unpublished_file_is_invisible_and_leaves_nothing(make);
    the_first_to_publish_wins_and_nothing_is_overwritten(make);
    of_many_threads_exactly_one_wins(make);
    a_listing_shows_all_that_was_published(make);
    a_missing_directory_lists_as_empty(make);
    a_deleted_file_is_gone_and_its_name_is_free(make);
    a_reader_outlives_the_name_of_its_file(make);
    any_range_can_be_read_and_none_beyond_the_end(make);
    hostile_paths_are_refused_and_change_nothing(make);
}

fn publish(checkpoint: &dyn Checkpoint, path: &str, temporary: &str, bytes: &[u8]) -> Result<(), PublishError> {
    let mut file = checkpoint.create(path, temporary).expect("a file can be started");
    file.append(bytes).expect("a file can be written");
    file.publish()
}

fn names(checkpoint: &dyn Checkpoint, dir: &str) -> Vec<String> {
    let mut names: Vec<_> = checkpoint.list(dir).expect("a listing").into_iter().map(|entry| entry.name).collect();
    names.sort_unstable();
    names
}

fn content(checkpoint: &dyn Checkpoint, path: &str) -> Vec<u8> {
    let file = checkpoint.open(path).expect("the file is there");
    let mut bytes = vec![0; usize::try_from(file.len()).expect("a small file")];
    file.read_exact_at(&mut bytes, 0).expect("the file can be read");
    assert_eq!(file.map().expect("the file can be mapped").as_slice(), bytes, "map and read agree");
    bytes
}

fn a_published_file_is_there_whole(make: Make<'_>) {
    let checkpoint = make();
    for (path, bytes) in [("top", &b"1"[..]), ("a/b/c/deep", &vec![7; 100_000]), ("a/b/empty", b"")] {
        publish(&*checkpoint, path, ".tmp-1", bytes).expect("nobody else is here");
        assert_eq!(content(&*checkpoint, path), bytes, "{path}");
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        checkpoint.sync(dir).expect("what is there can be made durable");
        let entry = checkpoint.list(dir).expect("a listing").into_iter().find(|entry| entry.name == name);
        assert_eq!(entry.expect("it is listed").kind, FileKind::File, "{path}");
        assert_eq!(checkpoint.length(path).expect("it can be asked"), Some(bytes.len() as u64), "{path}");
    }
    assert_eq!(names(&*checkpoint, ""), ["a", "top"]);
}

fn an_unpublished_file_is_invisible_and_leaves_nothing(make: Make<'_>) {
    let checkpoint = make();
    let mut file = checkpoint.create("d/file", ".tmp-1").expect("a file can be started");
    file.append(b"half").expect("a file can be written");
    file.sync().expect("a file can be synced early");
    assert!(checkpoint.open("d/file").is_err_and(|e| e.is_not_found()), "not there before it is published");
    assert!(!names(&*checkpoint, "d").contains(&"file".to_owned()));
    drop(file);
    assert!(checkpoint.open("d/file").is_err_and(|e| e.is_not_found()), "not there when it was dropped");
    assert_eq!(names(&*checkpoint, "d"), Vec::<String>::new());
}

fn the_first_to_publish_wins_and_nothing_is_overwritten(make: Make<'_>) {
    let checkpoint = make();
    let mut late = checkpoint.create("d/file", ".tmp-late").expect("a file can be started");
    late.append(b"late").expect("a file can be written");
    publish(&*checkpoint, "d/file", ".tmp-first", b"first").expect("the first wins");
    for lost in [late.publish(), publish(&*checkpoint, "d/file", ".tmp-3", b"third")] {
        assert!(matches!(&lost, Err(PublishError::NotPublished(e)) if e.is_already_exists()), "{lost:?}");
    }
    assert_eq!(content(&*checkpoint, "d/file"), b"first");
    assert_eq!(names(&*checkpoint, "d"), ["file"], "losers leave nothing behind");
}

fn of_many_threads_exactly_one_wins(make: Make<'_>) {
    const THREADS: u8 = 8;
    let checkpoint = make();
    for round in 0..20 {
        let path = format!("d/{round}");
        let start = Barrier::new(usize::from(THREADS));
        let winners: Vec<u8> = thread::scope(|scope| {
            let race = |thread: u8| {
                let (checkpoint, path, start) = (&checkpoint, &path, &start);
                scope.spawn(move || {
                    start.wait();
                    publish(&**checkpoint, path, &format!(".tmp-{thread}"), &[thread]).is_ok().then_some(thread)
                })
            };
            let racing: Vec<_> = (0..THREADS).map(race).collect();
            racing.into_iter().filter_map(|thread| thread.join().expect("no thread panics")).collect()
        });
        assert_eq!(winners.len(), 1, "round {round}");
        assert_eq!(content(&*checkpoint, &path), winners, "round {round}: the winner's bytes");
    }
}

fn a_listing_shows_all_that_was_published(make: Make<'_>) {
    let checkpoint = make();
    let mut expected = Vec::new();
    for number in 0..300 {
        let name = format!("{number:05}.file");
        publish(&*checkpoint, &format!("x/y/{name}"), ".tmp-1", b"").expect("nobody else is here");
        expected.push(name);
        if number % 50 == 0 {
            assert_eq!(names(&*checkpoint, "x/y"), expected, "at once");
        }
    }
    assert_eq!(names(&*checkpoint, "x/y"), expected);
    assert_eq!(names(&*checkpoint, "x"), ["y"]);
}

fn a_missing_directory_lists_as_empty(make: Make<'_>) {
    let checkpoint = make();
    assert_eq!(names(&*checkpoint, "no/such/place"), Vec::<String>::new());
    checkpoint.sync("no/such/place").expect("nothing is easily made durable");
    assert_eq!(names(&*checkpoint, ""), Vec::<String>::new(), "looking makes no directories");
}

fn a_deleted_file_is_gone_and_its_name_is_free(make: Make<'_>) {
    let checkpoint = make();
    publish(&*checkpoint, "d/file", ".tmp-1", b"old").expect("nobody else is here");
    checkpoint.delete("d/file").expect("it is there");
    assert!(checkpoint.open("d/file").is_err_and(|e| e.is_not_found()));
    assert!(checkpoint.delete("d/file").is_err_and(|e| e.is_not_found()), "twice is an error");
    assert_eq!(names(&*checkpoint, "d"), Vec::<String>::new());
    publish(&*checkpoint, "d/file", ".tmp-1", b"new").expect("the name is free");
    assert_eq!(content(&*checkpoint, "d/file"), b"new");
}

fn a_reader_outlives_the_name_of_its_file(make: Make<'_>) {
    let checkpoint = make();
    publish(&*checkpoint, "d/file", ".tmp-1", b"kept").expect("nobody else is here");
    let file = checkpoint.open("d/file").expect("it is there");
    let mapped = file.map().expect("it can be mapped");
    checkpoint.delete("d/file").expect("it is there");
    let mut bytes = [0; 4];
    file.read_exact_at(&mut bytes, 0).expect("an open file can be read");
    assert_eq!((&bytes, mapped.as_slice()), (b"kept", &b"kept"[..]));
}

fn any_range_can_be_read_and_none_beyond_the_end(make: Make<'_>) {
    let checkpoint = make();
    let whole: Vec<u8> = (0..=255).collect();
    publish(&*checkpoint, "d/file", ".tmp-1", &whole).expect("nobody else is here");
    let file = checkpoint.open("d/file").expect("it is there");
    for (offset, length) in [(0, 1), (17, 100), (255, 1), (0, 256), (256, 0)] {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, offset).expect("the range is there");
        let expected = whole.iter().skip(usize::try_from(offset).expect("small")).take(length);
        assert!(bytes.iter().eq(expected), "{offset}+{length}");
    }
    for (offset, length) in [(0, 257), (256, 1), (1000, 1), (u64::MAX, 1)] {
        assert!(file.read_exact_at(&mut vec![0; length], offset).is_err(), "{offset}+{length}");
    }
}

fn hostile_paths_are_refused_and_change_nothing(make: Make<'_>) {
    let checkpoint = make();
    let long = "x".repeat(256);
    let deep = "x/".repeat(600) + "x";
    let hostile = [
        "..",
        ".",
        "../x",
        "a/../b",
        "a/./b",
        "/etc/passwd",
        "a//b",
        "a/",
        "/",
        "a\\b",
        "a\0b",
        "a b",
        "ü",
        &long,
        &deep,
    ];
    for path in hostile {
        let refused = |kind: &ErrorKind| matches!(kind, ErrorKind::InvalidInput | ErrorKind::LimitExceeded { .. });
        assert!(checkpoint.create(path, ".tmp-1").is_err_and(|e| refused(e.kind())), "create {path:?}");
        assert!(checkpoint.create("file", path).is_err_and(|e| refused(e.kind())), "create as {path:?}");
        assert!(checkpoint.open(path).is_err_and(|e| refused(e.kind())), "open {path:?}");
        assert!(checkpoint.list(path).is_err_and(|e| refused(e.kind())), "list {path:?}");
        assert!(checkpoint.delete(path).is_err_and(|e| refused(e.kind())), "delete {path:?}");
        assert!(checkpoint.sync(path).is_err_and(|e| refused(e.kind())), "sync {path:?}");
    }
    assert!(checkpoint.create("", ".tmp-1").is_err(), "the root is no file");
    assert!(checkpoint.create("file", "a/b").is_err(), "a temporary lies beside its file");
    assert_eq!(names(&*checkpoint, ""), Vec::<String>::new());
}
