//! What the command line says where there is nothing to be had, and what it leaves alone then.

use std::fs;
use std::os::unix::fs::symlink;

use alluvium::cli::Exit;
use alluvium::fs::{Disk, RealDisk};
use alluvium::prelude::*;
use alluvium::{FamilyId, Version};

use crate::cli::{Place, Told, all_files, damage, tell};

/// Runs the words as they are.
fn run(words: &[&str]) -> Told {
    tell(std::iter::once("alluvium").chain(words.iter().copied()).map(Into::into).collect(), false)
}

#[test]
fn what_is_no_checkpoint_is_told_by_its_kind() {
    let place = Place::with_clicks();
    fs::write(place.path("nowhere"), b"a file").unwrap();
    fs::create_dir(place.path("backups")).unwrap();
    symlink(place.path("nothing"), place.path("dangling")).unwrap();
    symlink(place.path("checkpoint"), place.path("link")).unwrap();
    for (name, says) in [
        ("missing", "nothing is there"),
        ("nowhere", "it is a file, not a directory"),
        ("nowhere/below", "nothing is there"),
        ("dangling", "a symbolic link that leads to nothing"),
        ("link", "name /"),
        ("link/", "name /"),
        ("backups", "holds no store"),
    ] {
        let path = place.path(name).to_string_lossy().into_owned();
        for line in ["ls", "versions", "get k", "scan", "changes", "diff 1 2", "stats", "verify", "repair", "compact"] {
            let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
            let words: Vec<&str> = [command, &path].into_iter().chain(rest.split_whitespace()).collect();
            let told = run(&words);
            assert_eq!((told.exit, told.out.as_str()), (Exit::NotFound, ""), "{line} {name}: {}", told.err);
            assert!(told.err.contains(says) && told.err.contains(name), "{line} {name}: {}", told.err);
        }
    }
    let json = run(&["ls", &place.path("backups").to_string_lossy(), "--json"]);
    assert!(json.exit == Exit::NotFound && json.out.ends_with("\"stores\":[]}\n"), "{json:?}");
}

#[test]
fn what_comes_right_after_the_newest_version_is_empty_and_what_lies_further_up_is_not_there() {
    let place = Place::with_clicks();
    for line in ["--from 3", "--from 3 --to 2", "--from 3 --json", "--from 3 --old"] {
        let told = place.run(&format!("alluvium changes checkpoint {line}"));
        assert_eq!((told.exit, told.out.as_str(), told.err.as_str()), (Exit::Done, "", ""), "{line}");
    }
    for line in ["--from 4", "--from 3 --to 3", "--from 1 --to 3", "--from 18446744073709551615"] {
        let told = place.run(&format!("alluvium changes checkpoint {line}"));
        assert_eq!(told.exit, Exit::NotFound, "{line}: {}", told.err);
        assert!(told.err.contains("1 to 2 can be read"), "{line}: {}", told.err);
    }
    let _empty = place.open("clicks/1/state");
    for line in ["", "--from 1"] {
        let told = place.run(&format!("alluvium changes checkpoint -s clicks/1/state {line}"));
        assert_eq!((told.exit, told.out.as_str(), told.err.as_str()), (Exit::Done, "", ""), "{line}");
    }
}

#[test]
fn a_get_without_a_family_says_which_ones_there_are() {
    let place = Place::with_clicks();
    let told = place.run("alluvium get checkpoint ada");
    assert_eq!(told.exit, Exit::NotFound);
    assert!(told.err.contains("--family: there are default, users"), "{}", told.err);
    let told = place.run("alluvium get checkpoint eve --family users");
    assert!(!told.err.contains("--family"), "whoever has named one knows: {}", told.err);
    let alone = Place::new();
    let mut batch = alone.open("op/0/one").begin(Version(0)).unwrap();
    batch.put(FamilyId::DEFAULT, b"k", b"v").unwrap();
    batch.commit().unwrap();
    let told = alone.run("alluvium get checkpoint ada");
    assert!(told.exit == Exit::NotFound && !told.err.contains("--family"), "{}", told.err);
}

#[test]
fn a_store_without_a_version_is_told_as_such() {
    let place = Place::new();
    let _open = place.open("op/0/empty");
    for (line, exit) in [
        ("get checkpoint k", Exit::NotFound),
        ("get checkpoint k --at 1", Exit::NotFound),
        ("scan checkpoint --at 1", Exit::NotFound),
        ("diff checkpoint 0 1", Exit::NotFound),
        ("export checkpoint backups", Exit::NotFound),
        ("versions checkpoint", Exit::Done),
        ("versions checkpoint --json", Exit::Done),
    ] {
        let told = place.run(&format!("alluvium {line}"));
        assert!(told.exit == exit && told.err.contains("no version yet"), "{line}: {told:?}");
    }
    for line in ["scan checkpoint", "changes checkpoint", "stats checkpoint", "verify checkpoint", "ls checkpoint"] {
        let told = place.run(&format!("alluvium {line}"));
        assert_eq!((told.exit, told.err.as_str()), (Exit::Done, ""), "{line}");
    }
    assert!(!place.path("backups").exists());
}

#[test]
fn a_wrong_argument_is_told_without_words_of_the_machine() {
    let place = Place::with_clicks();
    for (line, says) in [
        ("ls checkpoint -s a/b", "<operator>/<partition>/<name>"),
        ("retire checkpoint --keep 0", "at least the newest version is kept"),
        ("compact checkpoint --keep 0", "at least the newest version is kept"),
        ("export checkpoint backups --at 0", "nothing to export"),
        ("import checkpoint backups -s a/0/b", "is no file"),
        ("import nowhere backups -s a/0/b", "there is no file"),
    ] {
        let told = place.run(&format!("alluvium {line}"));
        assert!(matches!(told.exit, Exit::Usage | Exit::NotFound) && told.err.contains(says), "{line}: {}", told.err);
        for word in ["invalid input", "18446744073709551615", "os error"] {
            assert!(!told.err.contains(word), "{line}: {}", told.err);
        }
    }
}

/// Every command that is shown to be copied.
fn suggested(told: &Told) -> Vec<String> {
    let quoted = told.err.split('`').skip(1).step_by(2).map(str::to_owned);
    let next = told.out.lines().filter_map(|line| line.strip_prefix("next: ")?.split("   (").next());
    quoted.chain(next.map(str::to_owned)).filter(|line| line.starts_with("alluvium ") && !line.contains('…')).collect()
}

#[test]
fn what_is_suggested_can_be_copied_into_a_shell() {
    for name in ["plain", "my data", "it's $HOME; `ls`", "line\nend\x1b[2J", "back\\slash", "ünï"] {
        let place = Place::with_clicks();
        let _other = place.open("clicks/1/state");
        let moved = place.path(name);
        RealDisk::new().rename_new(&place.path("checkpoint"), &moved).unwrap();
        let path = moved.to_string_lossy().into_owned();
        let mut lines = Vec::new();
        for words in [&["ls"][..], &["get", "ada", "--at", "9", "--store", "clicks/0/state"]] {
            let words: Vec<&str> = words[..1].iter().chain([&&*path]).chain(&words[1..]).copied().collect();
            let told = run(&words);
            let shown = format!("{}{}", told.out, told.err);
            assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
            lines.extend(suggested(&told));
        }
        if name.contains('`') {
            continue; // what `suggested` cannot take apart
        }
        assert!(lines.len() >= 4, "{lines:?}");
        for line in lines {
            let script = line.replacen("alluvium", env!("CARGO_BIN_EXE_alluvium"), 1);
            let output = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
            assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        }
    }
}

#[test]
fn nothing_is_left_behind_where_a_command_refuses() {
    let place = Place::with_clicks();
    let before = all_files(&place.path("checkpoint"));
    assert_eq!(place.run("alluvium export checkpoint elsewhere").exit, Exit::Done);
    let exported = all_files(&place.path("elsewhere")).remove(0);
    fs::write(place.path("elsewhere/cut"), &fs::read(&exported).unwrap()[..300]).unwrap();
    fs::copy(&exported, place.path("elsewhere/damaged")).unwrap();
    damage(&place.path("elsewhere/damaged"));
    fs::copy(&place.files(".delta")[0], place.path("elsewhere/changes")).unwrap();
    for (line, exit) in [
        ("export checkpoint backups --at 0", Exit::Usage),
        ("export checkpoint backups --at 9", Exit::NotFound),
        ("export checkpoint backups --store no/0/such", Exit::NotFound),
        ("export nowhere backups", Exit::NotFound),
        ("export checkpoint backups/below", Exit::NotFound),
        ("export checkpoint elsewhere/cut", Exit::Refused),
        ("export checkpoint elsewhere", Exit::Refused),
        ("import nowhere backups -s a/0/b", Exit::NotFound),
        ("import checkpoint backups -s a/0/b", Exit::NotFound),
        ("import elsewhere/cut backups -s a/0/b", Exit::Damaged),
        ("import elsewhere/damaged backups -s a/0/b", Exit::Damaged),
        ("import elsewhere/changes backups -s a/0/b", Exit::Usage),
        ("import elsewhere/clicks.0.state.2.snapshot backups -s a/b", Exit::Usage),
        ("import elsewhere/clicks.0.state.2.snapshot backups/below -s a/0/b", Exit::NotFound),
        ("import elsewhere/clicks.0.state.2.snapshot elsewhere/cut -s a/0/b", Exit::Refused),
        ("import elsewhere/clicks.0.state.2.snapshot checkpoint -s clicks/0/state", Exit::Refused),
    ] {
        let told = place.run(&format!("alluvium {line}"));
        assert_eq!((told.exit, told.out.as_str()), (exit, ""), "{line}: {}", told.err);
        assert!(!place.path("backups").exists() && !place.path("nowhere").exists(), "{line}");
        assert_eq!(all_files(&place.path("checkpoint")), before, "{line}");
        assert_eq!(all_files(&place.path("elsewhere")).len(), 4, "{line}");
    }
    // Damage that only shows while the file is being written.
    let newest = place.files(".delta").pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    bytes[200] ^= 1; // in its one page
    fs::write(&newest, bytes).unwrap();
    let told = place.run("alluvium export checkpoint backups");
    assert!(told.exit == Exit::Damaged && !place.path("backups").exists(), "{}", told.err);
    fs::create_dir(place.path("backups")).unwrap();
    assert_eq!(place.run("alluvium export checkpoint backups").exit, Exit::Damaged);
    assert!(all_files(&place.path("backups")).is_empty() && place.path("backups").exists(), "it was there before");
}
