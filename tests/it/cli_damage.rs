//! What the command line says of damaged stores, and that it says what it did and not more.

use std::fs;
use std::path::{Path, PathBuf};

use alluvium::cli::Exit;
use alluvium::fs::{Disk, RealDisk};
use alluvium::prelude::*;
use alluvium::{FamilyId, StoreOptions, Upkeep, Version};

use crate::cli::{Place, Told, all_files, damage, tell};

/// A store with so many versions, each of which has changed one key.
fn with_versions(versions: u64) -> Place {
    let place = Place::new();
    let store = place.open_with("op/0/state", StoreOptions::default().upkeep(Upkeep::Manual));
    for number in 0..versions {
        let mut batch = store.begin(Version(number)).unwrap();
        batch.put(FamilyId::DEFAULT, b"key", number.to_string().as_bytes()).unwrap();
        batch.commit_with(format!("offset {number}").as_bytes()).unwrap();
    }
    place
}

/// Cuts a file short, so that it cannot be opened.
fn cut(path: &Path) {
    let bytes = fs::read(path).unwrap();
    fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
}

/// The single delta of a version.
fn delta(place: &Place, version: u64) -> PathBuf {
    let of_it = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&format!("{version:020}."));
    place.files(".delta").into_iter().find(of_it).unwrap()
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn versions_show_all_that_can_be_told_and_why_the_others_cannot_be_read() {
    let place = with_versions(6);
    cut(&delta(&place, 3));
    RealDisk::new().remove(&delta(&place, 5)).unwrap();
    let told = place.run("alluvium versions checkpoint --metadata");
    assert_eq!(told.exit, Exit::Damaged);
    assert!(told.err.starts_with("hint: `alluvium repair /") && told.err.lines().count() == 1, "{}", told.err);
    assert!(place.run("alluvium verify checkpoint").err.starts_with("hint: `alluvium repair /"));
    let rows: Vec<Vec<String>> = told.out.lines().map(words).collect();
    assert_eq!(rows[0].join(" "), "VERSION EPOCH CHANGES BYTES METADATA CANNOT BE READ");
    assert_eq!(rows[1][4..].join(" "), "offset 0", "{}", told.out);
    for (row, version) in rows[1..].iter().zip(1..) {
        assert_eq!(row[0], version.to_string(), "{}", told.out);
    }
    let unreadable = |row: usize| told.out.lines().nth(row).unwrap().contains("the file is damaged: ");
    assert_eq!((1..=6).map(unreadable).collect::<Vec<_>>(), [false, false, true, true, true, true], "{}", told.out);
    assert_eq!(rows[3][1..5].join(" "), "1 - - -", "nothing is known of a version whose only file is damaged");
    assert_eq!(rows[4][1..3].join(" "), "1 1", "its own delta is whole");
    assert_eq!(rows[5][1..5].join(" "), "- - - -", "its file is missing");
    let json = place.run("alluvium versions checkpoint --json");
    assert_eq!((json.exit, json.out.lines().count()), (Exit::Damaged, 6));
    let lines: Vec<&str> = json.out.lines().collect();
    assert!(lines[1].ends_with("\"metadata\":null,\"unreadable\":null}"), "{}", lines[1]);
    assert!(lines[2].contains("\"changes\":null,\"bytes\":null,\"metadata_bytes\":null"), "{}", lines[2]);
    assert!(lines[2].contains("\"unreadable\":\"the file is damaged: "), "{}", lines[2]);
    assert!(lines[4].starts_with("{\"version\":5,\"epoch\":null,"), "{}", lines[4]);
}

#[test]
fn a_version_whose_own_delta_is_gone_has_no_changes_of_its_own() {
    let place = with_versions(4);
    let store = place.open_with("op/0/state", StoreOptions::default().upkeep(Upkeep::Manual));
    store.snapshot().unwrap();
    drop(store);
    (1..=4).for_each(|version| RealDisk::new().remove(&delta(&place, version)).unwrap());
    let told = place.run("alluvium versions checkpoint --metadata");
    assert_eq!(
        (told.exit, told.out.as_str()),
        (Exit::Done, "VERSION  EPOCH  CHANGES  BYTES  METADATA\n      4      1        -      -  offset 3\n",)
    );
    let json = place.run("alluvium versions checkpoint --json").out;
    assert!(
        json.starts_with("{\"version\":4,\"epoch\":1,\"changes\":null,\"bytes\":null,\"metadata_bytes\":8,"),
        "{json}"
    );
}

#[test]
fn lost_versions_without_a_file_are_told_together_whatever_their_number() {
    let place = with_versions(2);
    let newest = delta(&place, 2);
    fs::copy(&newest, newest.with_file_name(format!("{:020}.{:020}.delta", u64::MAX - 5, 1))).unwrap();
    let told = place.run("alluvium versions checkpoint --json");
    assert_eq!(told.exit, Exit::Damaged);
    assert!(told.out.lines().count() == 4 && told.out.contains("{\"version\":3,\"last\":"), "{}", told.out);
}

#[test]
fn whoever_gets_around_a_damaged_file_says_so() {
    let place = with_versions(6);
    let store = place.open_with("op/0/state", StoreOptions::default().upkeep(Upkeep::Manual));
    store.snapshot().unwrap();
    drop(store);
    let lines = [
        "get checkpoint key",
        "get checkpoint key --json",
        "scan checkpoint",
        "stats checkpoint",
        "diff checkpoint 5 6",
        "diff checkpoint 6 5 --json",
        "changes checkpoint --from 6 --old",
        "versions checkpoint",
        "export checkpoint backups",
    ];
    let run = |line: &str| {
        if place.path("backups").exists() {
            fs::remove_dir_all(place.path("backups")).unwrap();
        }
        place.run(&format!("alluvium {line}"))
    };
    let before: Vec<Told> = lines.iter().map(|line| run(line)).collect();
    assert!(before.iter().all(|told| told.exit == Exit::Done && told.err.is_empty()), "{before:?}");
    let snapshot = place.files(".snapshot").remove(0);
    cut(&snapshot);
    for (line, before) in lines.iter().zip(before) {
        let told = run(line);
        // The version below the snapshot never needed it.
        let needs_it = !line.starts_with("changes");
        assert_eq!(told.exit, Exit::Done, "{line}: {}", told.err);
        assert_eq!(
            told.err.contains("passed over") && told.err.contains(&*snapshot.to_string_lossy()),
            needs_it,
            "{line}: {}",
            told.err
        );
        assert!(told.err.lines().count() <= 1, "{line}: {}", told.err);
        if !line.starts_with("stats") && !line.starts_with("export") {
            assert_eq!(told.out, before.out, "{line}");
        }
    }
    let words = run("get checkpoint key").err;
    let repair = words.split('`').nth(1).unwrap().replacen("alluvium", "", 1);
    assert_eq!(place.run(&format!("alluvium{repair}")).exit, Exit::Done);
    assert_eq!(run("get checkpoint key").err, "");
}

#[test]
fn nothing_is_announced_where_nothing_is_given_up() {
    let place = with_versions(3);
    let before = all_files(&place.path("checkpoint"));
    for keep in [100, 4, 3] {
        let told = place.run(&format!("alluvium retire checkpoint --keep {keep}"));
        assert_eq!(
            (told.exit, told.out.as_str()),
            (Exit::Done, "op/0/state: 0 files deleted; the oldest version is 1\n")
        );
        assert_eq!(all_files(&place.path("checkpoint")), before);
    }
    assert!(place.run("alluvium retire checkpoint --keep 2").out.contains("the oldest version is 2"));
    assert_eq!(place.files(".horizon").len(), 1);
}

#[test]
fn a_snapshot_that_was_there_is_not_said_to_be_taken() {
    let place = with_versions(3);
    let told = place.run("alluvium compact checkpoint --snapshot");
    assert_eq!(told.out, "op/0/state: took a snapshot of version 3\n");
    let told = place.run("alluvium compact checkpoint --snapshot");
    assert_eq!((told.exit, told.out.as_str()), (Exit::Done, "op/0/state: a snapshot of version 3 was already there\n"));
    let json = place.run("alluvium compact checkpoint --snapshot --json");
    assert_eq!(json.out, "{\"store\":\"op/0/state\",\"dry_run\":false,\"tasks\":[]}\n");
    let _empty = place.open("op/1/state");
    let told = place.run("alluvium compact checkpoint --snapshot --store op/1/state");
    assert_eq!((told.exit, told.out.as_str()), (Exit::Done, "op/1/state: nothing is worth doing\n"));
}

#[test]
fn an_import_shows_how_far_it_is_to_whoever_watches() {
    let place = with_versions(3);
    assert_eq!(place.run("alluvium export checkpoint backups").exit, Exit::Done);
    let import = |target: &str, is_watched| {
        let file = place.path("backups/op.0.state.3.snapshot").into_os_string();
        let target = place.path(target).into_os_string();
        tell(vec!["alluvium".into(), "import".into(), file, target, "--store".into(), "a/0/b".into()], is_watched)
    };
    assert_eq!(import("one", false).err, "");
    let watched = import("two", true);
    assert!(watched.err.contains("\rchecking ") && watched.err.contains("\rimporting "), "{:?}", watched.err);
    assert!(watched.err.ends_with("\r\x1b[K") && !watched.err.contains("101 %"), "{:?}", watched.err);
    assert_eq!(watched.out, "the store a/0/b starts at version 3\n");
    damage(&place.path("backups/op.0.state.3.snapshot"));
    assert_eq!(import("three", false).exit, Exit::Damaged);
}
