//! The command line, mostly without a process of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use alluvium::cli::{Console, Exit, run};
use alluvium::fs::{Disk, RealDisk};
use alluvium::prelude::*;
use alluvium::{Backend, LocalCheckpoint, RocksDbProvider, StateStoreId, StoreOptions, Upkeep};

/// A directory with a checkpoint in it.
pub(crate) struct Place(tempfile::TempDir);

/// What a run of the tool gave.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) exit: Exit,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// The place of the README's examples.
    pub(crate) fn with_clicks() -> Self {
        let place = Self::new();
        let store = place.open("clicks/0/state");
        let mut batch = store.begin(store.latest().unwrap()).unwrap();
        let users = batch.create_family("users").unwrap();
        batch.put(users, b"ada", b"2").unwrap();
        batch.put(users, b"ben", b"1").unwrap();
        batch.commit_with(b"offset 3").unwrap();
        let mut batch = store.begin(store.latest().unwrap()).unwrap();
        batch.put(users, b"ada", b"3").unwrap();
        batch.remove(users, b"ben").unwrap();
        batch.commit_with(b"offset 4").unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn open(&self, store: &str) -> RocksDbProvider {
        self.open_with(store, StoreOptions::default())
    }

    pub(crate) fn open_with(&self, store: &str, options: StoreOptions) -> RocksDbProvider {
        let checkpoint = LocalCheckpoint::open(self.path("checkpoint")).unwrap();
        let id: StateStoreId = store.parse().unwrap();
        RocksDbProvider::open(&Backend::in_memory().unwrap(), checkpoint, id, options).unwrap()
    }

    /// Runs a line as it could be typed here: `checkpoint`, `backups` and `elsewhere` are paths of this place.
    pub(crate) fn run(&self, line: &str) -> Told {
        let arguments = words(line).into_iter().map(|word| match word.split('/').next() {
            Some("checkpoint" | "backups" | "elsewhere" | "nowhere") => self.path(&word).into_os_string(),
            _ => OsString::from(word),
        });
        tell(arguments.collect(), false)
    }

    pub(crate) fn files(&self, suffix: &str) -> Vec<PathBuf> {
        let mut files = all_files(&self.path("checkpoint"));
        files.retain(|path| path.to_string_lossy().ends_with(suffix));
        files
    }
}

pub(crate) fn all_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(all_files(&path)) } else { files.push(path) }
    }
    files.sort();
    files
}

pub(crate) fn tell(arguments: Vec<OsString>, is_watched: bool) -> Told {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let exit = run(arguments, &mut Console { out: &mut out, err: &mut err, is_watched });
    Told { exit, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

/// A line as a shell takes it apart: single quotes keep a word together.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (quoted, part) in line.split('\'').enumerate() {
        match quoted % 2 {
            1 => words.push(part.to_owned()),
            _ => words.extend(part.split_whitespace().map(str::to_owned)),
        }
    }
    words
}

#[test]
fn the_commands_of_the_readme_show_what_it_says() {
    let readme = include_str!("../../README.md");
    let section = readme.split("## The command line").nth(1).unwrap().split("\n## ").next().unwrap();
    let block = section.split("```text\n").nth(1).unwrap().split("```").next().unwrap();
    let place = Place::with_clicks();
    let mut compared = 0;
    for example in block.split("$ ").skip(1) {
        let (line, expected) = example.split_once('\n').unwrap();
        let told = place.run(line);
        assert_eq!((told.exit, told.err.as_str()), (Exit::Done, ""), "{line}");
        assert!(!told.out.is_empty(), "{line}");
        if expected.trim() != "…" {
            assert_eq!(told.out, expected, "{line}");
            compared += 1;
        }
    }
    assert!(compared > 5);
}

#[test]
fn every_command_has_help_with_examples_that_can_be_typed() {
    let top = tell(vec!["alluvium".into(), "--help".into()], false);
    assert_eq!(top.exit, Exit::Done);
    for topic in ["Exit codes:", "Keys and values:", "--json"] {
        assert!(top.out.contains(topic), "{topic}");
    }
    let commands = top.out.split("Commands:").nth(1).unwrap().split("\n\n").next().unwrap();
    let commands: Vec<&str> = commands.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 10 && commands.contains(&"ls"), "{commands:?}");
    let place = Place::new();
    for command in commands.iter().filter(|command| **command != "help") {
        let help = tell(vec!["alluvium".into(), (*command).into(), "--help".into()], false);
        assert_eq!(help.exit, Exit::Done);
        let examples = help.out.split("Examples:").nth(1).unwrap_or_else(|| panic!("{command} has examples"));
        let examples: Vec<&str> = examples.lines().filter(|line| line.starts_with("  alluvium ")).collect();
        assert!(!examples.is_empty(), "{command}");
        for example in examples {
            let told = place.run(example.trim());
            assert_eq!(told.exit, Exit::NotFound, "{example}: {}", told.err);
            assert!(!place.path("checkpoint").exists(), "{example} makes nothing where nothing is there");
        }
    }
}

#[test]
fn ls_explains_itself() {
    let place = Place::with_clicks();
    let other = place.open("clicks/1/state");
    drop(place.open("clicks/2/state"));
    let told = place.run("alluvium ls checkpoint");
    for expected in
        ["clicks/0/state  1 to 2 (2)", "clicks/1/state  none yet", "2 commits, 1.0 KiB", "what one commit changed"]
    {
        assert!(told.out.contains(expected), "{expected:?} is not in\n{}", told.out);
    }
    assert!(!told.out.contains("clicks/2/state"), "nobody is there");
    drop(other);
    for column in ["STORE", "VERSIONS", "FILES", "LAG", "RUNS"] {
        assert!(told.out.matches(column).count() >= 2, "{column} has a heading and an explanation");
    }
    let with_files = place.run("alluvium ls checkpoint --files").out;
    assert!(with_files.contains("00000000000000000001.00000000000000000001.delta") && with_files.contains("forks/"));
    let json = place.run("alluvium ls checkpoint --store clicks/0/state --json").out;
    assert!(json.starts_with("{\"checkpoint\":") && json.lines().count() == 1, "{json}");
    let expected = "\"store\":\"clicks/0/state\",\"oldest\":1,\"newest\":2,\"epoch\":1,\"versions\":2,\"files\":3,";
    assert!(json.contains(expected), "{json}");
    assert!(json.contains("\"delta\":{\"files\":2,\"bytes\":1025}"), "{json}");
}

#[test]
fn exit_codes_say_what_was_wrong() {
    let place = Place::with_clicks();
    let _other = place.open("clicks/1/state");
    for (line, exit, says) in [
        ("alluvium ls nowhere", Exit::NotFound, "nowhere"),
        ("alluvium get checkpoint ada", Exit::Usage, "clicks/0/state, clicks/1/state"),
        ("alluvium get checkpoint ada -s clicks/7/state", Exit::NotFound, "clicks/0/state"),
        ("alluvium get checkpoint ada -s clicks", Exit::Usage, "<operator>/<partition>/<name>"),
        ("alluvium get checkpoint ada -s clicks/0/state", Exit::NotFound, "family default"),
        ("alluvium get checkpoint ada -s clicks/0/state -f user", Exit::NotFound, "default, users"),
        ("alluvium get checkpoint ada -s clicks/0/state -f users --at 3", Exit::NotFound, "1 to 2 can be read"),
        ("alluvium get checkpoint ada -s clicks/0/state --keys u64", Exit::Usage, "a number of 64 bits"),
        ("alluvium changes checkpoint -s clicks/0/state --from 2 --to 1", Exit::Usage, "older one"),
        ("alluvium changes checkpoint -s clicks/0/state --to 3", Exit::NotFound, "versions"),
        ("alluvium diff checkpoint 1 9 -s clicks/0/state", Exit::NotFound, "1 to 2"),
        ("alluvium scan", Exit::Usage, "CHECKPOINT"),
        ("alluvium dig", Exit::Usage, "dig"),
        ("alluvium import backups/none checkpoint -s a/0/b", Exit::NotFound, "none"),
    ] {
        let told = place.run(line);
        assert_eq!((told.exit, told.out.as_str()), (exit, ""), "{line}: {}", told.err);
        assert!(told.err.contains(says), "{line}: {}", told.err);
    }
    assert_eq!(place.run("alluvium export checkpoint backups -s clicks/0/state").exit, Exit::Done);
    assert_eq!(place.run("alluvium export checkpoint backups -s clicks/0/state").exit, Exit::Refused);
    let taken = place.run("alluvium import backups/clicks.0.state.2.snapshot checkpoint -s clicks/0/state");
    assert_eq!(taken.exit, Exit::Refused, "{}", taken.err);
    assert_eq!((Exit::Done.code(), Exit::Damaged.code(), Exit::Failed.code()), (0, 1, 5));
}

#[test]
fn damage_is_found_named_and_told_by_the_exit_code() {
    let place = Place::with_clicks();
    let newest = place.files(".delta").pop().unwrap();
    let mut bytes = fs::read(&newest).unwrap();
    bytes[200] ^= 1;
    fs::write(&newest, bytes).unwrap();
    let told = place.run("alluvium verify checkpoint");
    assert_eq!(told.exit, Exit::Damaged);
    assert!(told.out.contains("1 damaged") && told.out.contains(&*newest.to_string_lossy()), "{}", told.out);
    let json = place.run("alluvium verify checkpoint --json");
    assert!(json.exit == Exit::Damaged && json.out.contains("\"damaged\":[{\"file\":"), "{}", json.out);
    let told = place.run("alluvium get checkpoint ada -f users");
    assert_eq!(told.exit, Exit::Damaged, "{}", told.err);
    assert!(told.err.contains("hint: `alluvium verify /"), "{}", told.err);
    assert_eq!(place.run("alluvium get checkpoint ada -f users --at 1").out, "2\n");
}

#[test]
fn keys_and_values_are_escaped_and_can_be_spelled_in_every_way() {
    let place = Place::new();
    let store = place.open("op/0/bytes");
    let mut batch = store.begin(store.latest().unwrap()).unwrap();
    let default = alluvium::FamilyId::DEFAULT;
    batch.put(default, b"\x1b[2J\ttab\\", b"\x07\nbell").unwrap();
    batch.put(default, &7_u64.to_be_bytes(), &8_u32.to_be_bytes()).unwrap();
    batch.put(default, &300_u64.to_be_bytes(), "Grüße".as_bytes()).unwrap();
    batch.commit_with(b"\x1b]0;evil\x07").unwrap();
    let mut batch = store.begin(store.latest().unwrap()).unwrap();
    batch.delete_range(default, Some(&[0]), Some(&8_u64.to_be_bytes())).unwrap();
    batch.delete_range(default, Some(b"z"), None).unwrap();
    batch.commit().unwrap();

    let scan = place.run("alluvium scan checkpoint --at 1").out;
    assert_eq!(
        scan,
        "default\t\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07\t\\x00\\x00\\x00\\x08\n\
         default\t\\x00\\x00\\x00\\x00\\x00\\x00\\x01,\tGrüße\n\
         default\t\\x1b[2J\\ttab\\\\\t\\x07\\nbell\n"
    );
    let json = place.run("alluvium scan checkpoint --at 1 --json --limit 1 --prefix '\\x1b'").out;
    assert_eq!(
        json,
        "{\"family\":\"default\",\"key\":\"\\\\x1b[2J\\\\ttab\\\\\\\\\",\"value\":\"\\\\x07\\\\nbell\"}\n"
    );
    assert_eq!(place.run("alluvium get checkpoint '\\x1b[2J\\ttab\\\\' --at 1").out, "\\x07\\nbell\n");
    assert_eq!(place.run("alluvium get checkpoint 7 --keys u64 --values u32 --at 1").out, "8\n");
    assert_eq!(place.run("alluvium get checkpoint 000000000000012c --keys hex --values hex").out, "4772c3bcc39f65\n");
    let range = place.run("alluvium scan checkpoint --keys u64 --start 7 --end 300 --at 1").out;
    assert_eq!(range, "default\t7\t\\x00\\x00\\x00\\x08\n");
    let changes = place.run("alluvium changes checkpoint --keys u64").out;
    assert_eq!(changes, "2\tdelete-range\tdefault\t0x00\t8\n2\tdelete-range\tdefault\t0x7a\t\n");
    let changes = place.run("alluvium changes checkpoint --keys u64 --json --limit 1").out;
    let expected = "{\"version\":2,\"epoch\":1,\"change\":\"delete-range\",\"family\":\"default\",\"start\":\"0x00\",\"end\":\"8\"}\n";
    assert_eq!(changes, expected);
    let diff = place.run("alluvium diff checkpoint 1 2 --keys hex --values hex").out;
    assert_eq!(diff, "-\tdefault\t0000000000000007\t00000008\n");
    for line in
        ["versions checkpoint --metadata", "ls checkpoint --files", "stats checkpoint --at 1", "verify checkpoint"]
    {
        let told = place.run(&format!("alluvium {line}"));
        assert!(!told.out.chars().any(|c| c.is_control() && c != '\n' && c != '\t'), "{line}: {:?}", told.out);
    }
    let evil = place.run("alluvium get checkpoint key --family '\x1b[2J'").err;
    assert!(!evil.contains('\x1b'), "{evil:?}");
}

#[test]
fn stats_count_keys_sizes_and_tombstones_by_family() {
    let place = Place::new();
    let store = place.open("op/0/sizes");
    for version in 0..2_u64 {
        let mut batch = store.begin(alluvium::Version(version)).unwrap();
        let other = batch.create_family("other").unwrap();
        for number in 0..100_u32 {
            if version == 0 {
                let length = usize::try_from(number).unwrap();
                batch.put(alluvium::FamilyId::DEFAULT, &number.to_be_bytes(), &vec![b'x'; length]).unwrap();
                batch.put(other, format!("{number}").as_bytes(), b"").unwrap();
            } else if number < 25 {
                batch.remove(alluvium::FamilyId::DEFAULT, &number.to_be_bytes()).unwrap();
            }
        }
        batch.commit().unwrap();
    }
    let told = place.run("alluvium stats checkpoint --largest 2 --keys u32").out;
    let told: Vec<String> = told.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    for expected in [
        "FAMILY KEYS KEY BYTES VALUE BYTES TOMBSTONES STORED ENTRIES",
        "default 75 300 B 4.5 KiB 25 (25.0 %) 125",
        "other 100 190 B 0 B 0 (0.0 %) 100",
        "default: bytes of a value: 25 to 99, 62 on average",
        "16 to 31 7 ########",
        "4 99 default 99",
        "4 98 default 98",
    ] {
        assert!(told.iter().any(|line| line == expected), "{expected:?} is not in\n{}", told.join("\n"));
    }
    let json = place.run("alluvium stats checkpoint --json --at 1 --largest 0").out;
    assert!(json.starts_with("{\"version\":1,\"families\":[{\"family\":\"default\",\"keys\":100,"), "{json}");
    assert!(json.ends_with("\"largest\":[]}\n") && json.contains("{\"from\":64,\"to\":127,\"count\":36}"), "{json}");
}

#[test]
fn where_commits_were_collapsed_the_hint_leads_to_what_is_known() {
    let place = Place::with_clicks();
    let store = place.open("clicks/0/state");
    store.collapse().unwrap();
    store.snapshot().unwrap();
    for path in place.files(".delta").iter().filter(|path| !path.to_string_lossy().contains("0-0")) {
        RealDisk::new().remove(path).unwrap();
    }
    let told = place.run("alluvium changes checkpoint --from 1 --to 2");
    assert_eq!(told.exit, Exit::NotFound, "{}", told.err);
    let hint = told.err.split("hint: `").nth(1).and_then(|rest| rest.split('`').next()).unwrap();
    assert!(hint.ends_with("checkpoint 0 2"), "{}", told.err);
    assert_eq!(place.run(hint).out, "+\tusers\tada\t3\n", "it can be copied");
}

#[test]
fn compacting_retiring_and_repairing_say_what_they_do_and_do_it() {
    let place = Place::new();
    let store = place.open_with("op/0/many", StoreOptions::default().upkeep(Upkeep::Manual));
    for number in 0..200_u64 {
        let mut batch = store.begin(alluvium::Version(number)).unwrap();
        batch.put(alluvium::FamilyId::DEFAULT, &number.to_be_bytes(), &[b'x'; 100]).unwrap();
        batch.commit().unwrap();
    }
    drop(store);
    let before = all_files(&place.path("checkpoint"));
    let planned = place.run("alluvium compact checkpoint --keep 10 --dry-run").out;
    assert!(planned.starts_with("op/0/many: would collapse the versions ("), "{planned}");
    assert_eq!(all_files(&place.path("checkpoint")), before);
    let done = place.run("alluvium compact checkpoint --keep 10");
    assert!(done.exit == Exit::Done && done.out.starts_with("op/0/many: collapse the versions ("), "{done:?}");
    let again = place.run("alluvium compact checkpoint --keep 10 --json").out;
    assert_eq!(again, "{\"store\":\"op/0/many\",\"dry_run\":false,\"tasks\":[]}\n");
    let whole = place.run("alluvium compact checkpoint --snapshot").out;
    assert_eq!(whole, "op/0/many: took a snapshot of version 200\n");

    let full = all_files(&place.path("checkpoint"));
    let would = place.run("alluvium retire checkpoint --keep 10 --keep-changes 20 --dry-run");
    assert!(would.out.contains("files would be deleted; the oldest version is 191"), "{}", would.out);
    assert_eq!(all_files(&place.path("checkpoint")), full);
    let did = place.run("alluvium retire checkpoint --keep 10 --keep-changes 20");
    let files = |told: &Told| told.out.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(files(&would), files(&did), "the dry run said what would go");
    let gone = full.len() - all_files(&place.path("checkpoint")).len();
    assert!(gone > 50, "{gone} files are gone: {planned}{}", did.out);
    assert_eq!(place.run("alluvium retire checkpoint --keep 0").exit, Exit::Usage);
    assert_eq!(place.run("alluvium retire checkpoint").exit, Exit::Usage);
    let known = place.run("alluvium changes checkpoint --from 182 --to 200 --keys u64 --limit 1").out;
    assert!(known.starts_with("182\tput\tdefault\t181\t"), "{known}");

    assert_eq!(place.run("alluvium repair checkpoint").exit, Exit::Done);
    let snapshot = place.files(".snapshot").pop().unwrap();
    damage(&snapshot);
    let mended = place.run("alluvium repair checkpoint");
    assert!(mended.exit == Exit::Done && mended.out.contains("1 made anew, 0 beyond repair"), "{mended:?}");
    assert_eq!(place.run("alluvium verify checkpoint").exit, Exit::Done);
    let newest = place.files(".delta").pop().unwrap();
    damage(&newest);
    damage(&snapshot);
    let lost = place.run("alluvium repair checkpoint --json");
    assert!(lost.exit == Exit::Damaged && lost.out.contains("\"irreparable\":[{\"file\":"), "{lost:?}");
}

pub(crate) fn damage(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(path, bytes).unwrap();
}

#[test]
fn progress_is_shown_to_whoever_watches_and_wiped_afterwards() {
    let place = Place::with_clicks();
    let line = |watched| {
        let checkpoint = place.path("checkpoint").into_os_string();
        tell(vec!["alluvium".into(), "verify".into(), checkpoint], watched)
    };
    assert_eq!(line(false).err, "");
    let watched = line(true);
    assert!(
        watched.err.starts_with("\rverifying clicks/0/state: ") && watched.err.ends_with("\r\x1b[K"),
        "{:?}",
        watched.err
    );
    assert_eq!(watched.out, line(false).out);
}

#[test]
fn the_program_itself_ends_with_the_exit_code_and_quietly_when_nobody_reads_on() {
    let place = Place::with_clicks();
    let store = place.open("big/0/state");
    let mut batch = store.begin(alluvium::Version(0)).unwrap();
    for number in 0..20_000_u32 {
        batch.put(alluvium::FamilyId::DEFAULT, &number.to_be_bytes(), b"a value that fills the pipe").unwrap();
    }
    batch.commit().unwrap();
    let program = || Command::new(env!("CARGO_BIN_EXE_alluvium"));
    let checkpoint = place.path("checkpoint");
    let output = program().arg("ls").arg(&checkpoint).output().unwrap();
    assert!(output.status.success() && String::from_utf8(output.stdout).unwrap().contains("clicks/0/state"));
    let output = program().arg("get").arg(&checkpoint).args(["key", "-s", "big/0/state"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(3), &b""[..]));
    let mut scan = program();
    scan.arg("scan").arg(&checkpoint).args(["-s", "big/0/state"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = scan.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}
