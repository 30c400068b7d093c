//! `alluvium log`.

use std::path::Path;

use alluvium::cli::{Console, Exit, run};
use alluvium::fs::{Disk, RealDisk};
use alluvium::wal::{FileLog, LogOptions, Lsn, WriteAheadLog};

fn tool(words: &[&str]) -> (Exit, String, String) {
    tool_before(false, words)
}

fn tool_before(is_watched: bool, words: &[&str]) -> (Exit, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let words = ["alluvium", "log"].iter().chain(words).map(Into::into);
    let exit = run(words, &mut Console { out: &mut out, err: &mut err, is_watched });
    (exit, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn segments(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.filter(|path| super::support::named(path, "log-")).collect();
    found.sort();
    found
}

#[test]
fn a_log_is_listed_read_verified_salvaged_and_cleaned() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("log");
    let at = dir.to_str().unwrap();
    assert_eq!(tool(&["ls", at]).0, Exit::NotFound);
    let log = FileLog::open(&dir, LogOptions { close_after_write: true, ..LogOptions::default() }).unwrap();
    for time in 0..4 {
        log.write(format!("record {time}\n").as_bytes(), time).unwrap();
    }
    // Beside the writer, except for cleaning.
    let (exit, out, _) = tool(&["ls", at]);
    assert!(exit == Exit::Done && out.lines().count() == 5, "{out}");
    let (exit, out, _) = tool(&["read", at, "--from", "2", "--limit", "2"]);
    assert_eq!((exit, out.as_str()), (Exit::Done, "2\t1\t0\trecord 1\\n\n3\t2\t0\trecord 2\\n\n"));
    assert_eq!(tool(&["verify", at, "--json"]).0, Exit::Done);
    assert_eq!(tool(&["clean", at, "--below", "3"]).0, Exit::Refused);
    log.close().unwrap();
    let (exit, out, _) = tool(&["clean", at, "--below", "3"]);
    assert!(exit == Exit::Done && segments(&dir).len() == 2, "{out}");
    // The payload of record 3.
    let path = segments(&dir).remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[113] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (exit, out, _) = tool(&["verify", at]);
    assert!(exit == Exit::Damaged && out.contains("damaged: "), "{out}");
    let to = root.path().join("saved");
    let (exit, out, err) = tool(&["salvage", at, "--to", to.to_str().unwrap()]);
    assert!(exit == Exit::Damaged && out.starts_with("1 record could") && err.contains("records 3 to 3"), "{out}{err}");
    let (exit, out, _) = tool(&["read", to.to_str().unwrap()]);
    assert_eq!((exit, out.as_str()), (Exit::Done, "1\t3\t0\trecord 3\\n\n"));
}

/// What is done to the segments of a log.
type Harm<'a> = &'a dyn Fn(&[std::path::PathBuf]);

#[test]
fn what_no_segment_shows_is_counted_or_said_to_be_lost() {
    let root = tempfile::tempdir().unwrap();
    let dir = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    let made = |name: &str, horizon: bool| {
        let log =
            FileLog::open(dir(name), LogOptions { close_after_write: true, recycles: 0, ..LogOptions::default() })
                .unwrap();
        for time in 0..6 {
            log.write(format!("record {time}").as_bytes(), time).unwrap();
        }
        if horizon {
            log.clean_below(Lsn(3)).unwrap();
        }
        log.close().unwrap();
        segments(Path::new(&dir(name)))
    };
    let delete = |path: &Path| RealDisk::new().remove(path).unwrap();
    let no_header = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[20] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    let cut = |path: &Path| std::fs::File::options().write(true).open(path).unwrap().set_len(90).unwrap();
    // What is done to six segments of one record each (from the third on with a horizon), and what is said to be lost.
    let cases: [(&str, bool, Harm<'_>, &[&str]); 12] = [
        ("newest deleted", false, &|all| delete(&all[5]), &["6 to 6"]),
        ("newest two deleted", false, &|all| all[4..].iter().for_each(|path| delete(path)), &["5 to 6"]),
        ("newest cut", false, &|all| cut(&all[5]), &["6 to 6"]),
        ("newest header", false, &|all| no_header(&all[5]), &["6 to 6"]),
        ("first header", false, &|all| no_header(&all[0]), &["1 to 1"]),
        ("first deleted", false, &|all| delete(&all[0]), &["1 to 1"]),
        (
            "both ends deleted",
            false,
            &|all| [0, 1, 5].into_iter().for_each(|at| delete(&all[at])),
            &["1 to 2", "6 to 6"],
        ),
        ("all deleted", false, &|all| all.iter().for_each(|path| delete(path)), &["1 to 6"]),
        ("all headers", false, &|all| all.iter().for_each(|path| no_header(path)), &["1 to 6"]),
        ("first kept deleted", true, &|all| delete(&all[0]), &["3 to 3"]),
        ("first kept header", true, &|all| no_header(&all[0]), &[]),
        ("all kept deleted", true, &|all| all.iter().for_each(|path| delete(path)), &["6 to 6"]),
    ];
    for (name, horizon, harm, lost) in cases {
        harm(&made(name, horizon));
        let saved = dir(&format!("{name} saved"));
        for words in [&["salvage", &dir(name), "--to", &saved][..], &["read", &dir(name), "--salvage"]] {
            let (exit, out, err) = tool(words);
            let said: Vec<&str> =
                err.lines().filter_map(|line| line.split_once("skipped: records ")).map(|at| at.1).collect();
            assert_eq!((exit, said.as_slice()), (Exit::Damaged, lost), "{name}: {out}{err}");
            assert!(!out.starts_with("0 records"), "{name}: {out}");
            assert!(!lost.is_empty() || words[0] == "read" || out.starts_with("an unknown number"), "{name}: {out}");
        }
        let (exit, out, _) = tool(&["verify", &dir(name)]);
        assert!(exit == Exit::Damaged && !out.contains("durable\""), "{name}: {out}");
    }
}

#[test]
fn what_is_no_log_is_told_by_its_kind_and_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("file"), b"a file").unwrap();
    std::fs::create_dir(path("empty")).unwrap();
    std::os::unix::fs::symlink(path("nowhere"), path("dangling")).unwrap();
    std::os::unix::fs::symlink(path("empty"), path("link")).unwrap();
    for (name, says) in [
        ("missing", "nothing is there"),
        ("file", "it is a file"),
        ("file/below", "nothing is there"),
        ("dangling", "leads to nothing"),
        ("link", "itself"),
        ("empty", "no segment"),
    ] {
        for rest in
            [&["ls"][..], &["read"], &["verify"], &["clean", "--below", "3"], &["salvage", "--to", &path("saved")]]
        {
            let at = path(name);
            let mut words = rest.to_vec();
            words.insert(1, &at);
            let (exit, out, err) = tool(&words);
            assert_eq!((exit, out.as_str()), (Exit::NotFound, ""), "{words:?}: {err}");
            assert!(err.contains(says), "{words:?}: {err}");
        }
    }
    assert!(std::fs::read_dir(path("empty")).unwrap().next().is_none() && !Path::new(&path("saved")).exists());
}

#[test]
fn every_command_says_how_far_it_is_if_somebody_watches() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("log");
    let (at, to) = (dir.to_str().unwrap(), root.path().join("saved"));
    let log = FileLog::open(&dir, LogOptions { close_after_write: true, ..LogOptions::default() }).unwrap();
    for time in 0..4 {
        log.write(b"record", time).unwrap();
    }
    log.close().unwrap();
    let commands: [&[&str]; 5] = [
        &["ls", at],
        &["read", at],
        &["verify", at],
        &["salvage", at, "--to", to.to_str().unwrap()],
        &["clean", at, "--below", "2"],
    ];
    for words in commands {
        let (exit, _, err) = tool_before(true, words);
        assert!(exit == Exit::Done && err.contains(at) && err.ends_with("\r\x1b[K"), "{words:?}: {err:?}");
    }
    for words in &commands[..3] {
        let (_, _, err) = tool(words);
        assert_eq!(err, "", "{words:?}");
    }
}
