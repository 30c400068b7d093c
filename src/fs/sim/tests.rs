//! What the simulated disk must be able to show: bugs that lose data, and agreement with the real one.

use std::collections::BTreeSet;
use std::io::ErrorKind as Io;
use std::mem::discriminant;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proptest::prelude::*;

use super::{Operation, Persistence, SimDisk, Survivors};
use crate::error::{ErrorKind, Result};
use crate::fs::{Disk, RealDisk};

fn every_subset(sim: &SimDisk) -> impl Iterator<Item = SimDisk> {
    let pieces = u32::try_from(sim.pending()).unwrap();
    assert!(pieces <= 10);
    (0..1 << pieces).map(|mask| sim.survive(Survivors::Subset(mask)))
}

/// What may be found at a path: its contents over all subsets of pieces, `None` where it is not there.
fn found(sim: &SimDisk, path: &str) -> BTreeSet<Option<Vec<u8>>> {
    every_subset(sim).map(|image| image.read_file(path).ok().map(|content| content.to_vec())).collect()
}

fn contents(expected: &[Option<&str>]) -> BTreeSet<Option<Vec<u8>>> {
    expected.iter().map(|content| content.map(|text| text.as_bytes().to_vec())).collect()
}

/// The steps of a publication that a program with a bug leaves out or gets wrong.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    NoSync,
    NoDirectorySync,
    NoSyncOfTheParent,
    RetriedSync,
}

/// Makes /d, publishes /d/f with "ab" in it and acknowledges by returning.
fn publish(sim: &SimDisk, bug: Bug) -> Result<()> {
    let [root, directory, temporary, target] = ["/", "/d", "/d/tmp", "/d/f"].map(Path::new);
    sim.create_dir(directory)?;
    if bug != Bug::NoSyncOfTheParent {
        sim.sync_dir(root)?;
    }
    let mut file = sim.create_new(temporary)?;
    file.append(b"a")?;
    file.append(b"b")?;
    if bug != Bug::NoSync {
        let first = file.sync();
        if bug == Bug::RetriedSync { first.or_else(|_| file.sync())? } else { first? }
    }
    sim.rename_new(temporary, target)?;
    if bug != Bug::NoDirectorySync {
        sim.sync_dir(directory)?;
    }
    Ok(())
}

#[test]
fn every_left_out_step_shows_in_some_survivor() {
    let after = |bug| {
        let sim = SimDisk::new(3);
        if bug == Bug::RetriedSync {
            sim.fail_at(1, &[Operation::Sync], Io::Other, Persistence::Once);
        }
        publish(&sim, bug).unwrap();
        found(&sim, "/d/f")
    };
    assert_eq!(after(Bug::None), contents(&[Some("ab")]));
    let torn = contents(&[Some(""), Some("a"), Some("\0b"), Some("ab")]);
    assert_eq!(after(Bug::NoSync), torn);
    assert_eq!(after(Bug::RetriedSync), torn);
    assert_eq!(after(Bug::NoDirectorySync), contents(&[None, Some("ab")]));
    assert_eq!(after(Bug::NoSyncOfTheParent), contents(&[None, Some("ab")]));
}

#[test]
fn a_rename_is_one_piece_whether_or_not_the_first_name_survived() {
    let sim = SimDisk::new(1);
    sim.create_new(Path::new("/a")).unwrap();
    sim.rename_new(Path::new("/a"), Path::new("/b")).unwrap();
    let names: Vec<_> = every_subset(&sim).map(|image| image.files()).collect();
    let only = |name: &str| vec![PathBuf::from(name)];
    // lost and lost, created only, renamed only, both
    assert_eq!(names, [vec![], only("/a"), only("/b"), only("/b")]);
}

#[test]
fn a_removal_may_come_back_until_the_directory_is_synced() {
    let sim = SimDisk::new(1);
    sim.write_file("/d/f", b"x").unwrap();
    sim.remove(Path::new("/d/f")).unwrap();
    assert_eq!(found(&sim, "/d/f"), contents(&[None, Some("x")]));
    sim.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(found(&sim, "/d/f"), contents(&[None]));
}

#[test]
fn a_name_given_to_a_second_file_leads_to_either_or_neither() {
    let sim = SimDisk::new(1);
    sim.write_file("/f", b"old").unwrap();
    sim.remove(Path::new("/f")).unwrap();
    let mut file = sim.create_new(Path::new("/f")).unwrap();
    file.append(b"new").unwrap();
    file.sync().unwrap();
    assert_eq!(found(&sim, "/f"), contents(&[None, Some("old"), Some("new")]));
}

#[test]
fn syncing_a_directory_makes_a_renamed_name_durable_in_the_new_directory_only() {
    let sim = SimDisk::new(1);
    sim.write_file("/a/f", b"x").unwrap();
    sim.write_file("/b/other", b"y").unwrap();
    sim.rename_new(Path::new("/a/f"), Path::new("/b/f")).unwrap();
    sim.sync_dir(Path::new("/a")).unwrap();
    assert_eq!(sim.pending(), 1);
    assert_eq!(sim.survive(Survivors::None).read_file("/a/f").unwrap(), b"x");
    sim.sync_dir(Path::new("/b")).unwrap();
    let after = sim.survive(Survivors::None);
    assert!(after.read_file("/a/f").is_err() && after.read_file("/b/f").unwrap() == *b"x");
}

#[test]
fn a_rename_into_another_directory_brings_along_how_the_file_got_its_first_name() {
    let sim = SimDisk::new(1);
    sim.write_file("/d/other", b"y").unwrap();
    sim.create_new(Path::new("/f")).unwrap();
    sim.rename_new(Path::new("/f"), Path::new("/d/f")).unwrap();
    sim.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(sim.pending(), 0);
    sim.sync_dir(Path::new("/")).unwrap();
    assert_eq!(sim.survive(Survivors::All).files(), ["/d/f", "/d/other"].map(Path::new));
}

#[test]
fn a_directory_whose_name_is_lost_takes_everything_below_with_it() {
    let sim = SimDisk::new(1);
    for path in ["/a", "/a/b"] {
        sim.create_dir(Path::new(path)).unwrap();
    }
    sim.create_new(Path::new("/a/b/f")).unwrap();
    sim.sync_dir(Path::new("/a")).unwrap();
    sim.sync_dir(Path::new("/a/b")).unwrap();
    let after = sim.survive(Survivors::None);
    assert!(after.files().is_empty() && after.stat(Path::new("/a")).unwrap().is_none());
    assert_eq!(sim.survive(Survivors::All).files(), [Path::new("/a/b/f")]);
}

#[test]
fn torn_appends_keep_a_front_or_a_back_and_nothing_else() {
    let sim = SimDisk::new(1);
    sim.write_file("/keep", b"").unwrap();
    let mut file = sim.create_new(Path::new("/f")).unwrap();
    sim.sync_dir(Path::new("/")).unwrap();
    file.append(b"01234567").unwrap();
    file.append(b"89").unwrap();
    let mut seen = BTreeSet::new();
    for seed in 0..2000 {
        let content = sim.survive(Survivors::Seeded(seed)).read_file("/f").unwrap().to_vec();
        assert!(content.len() <= 10);
        assert!(content.iter().zip(b"0123456789").all(|(byte, written)| byte == written || *byte == 0), "{content:?}");
        seen.insert(content);
    }
    let has = |content: &[u8]| seen.contains(content);
    assert!(
        has(b"") && has(b"0123") && has(b"0123456789") && has(b"0123\0\0\0\x0089") && has(&[0; 8]) && has(&[0; 10])
    );
    let again = sim.survive(Survivors::Seeded(5)).read_file("/f").unwrap();
    assert_eq!(again, sim.survive(Survivors::Seeded(5)).read_file("/f").unwrap());
}

#[test]
fn the_power_goes_at_the_chosen_operation_and_stays_off() {
    let sim = SimDisk::new(1);
    sim.create_dir(Path::new("/d")).unwrap();
    sim.crash_at(2);
    let mut file = sim.create_new(Path::new("/d/f")).unwrap();
    for _ in 0..2 {
        let error = file.append(b"x").unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Io { .. }) && error.to_string().contains("power"), "{error}");
    }
    assert!(
        sim.list(Path::new("/d")).is_err()
            && sim.stat(Path::new("/d")).is_err()
            && sim.open(Path::new("/d/f")).is_err()
    );
    assert_eq!((sim.operations(), sim.faults_fired(), sim.pending()), (3, 1, 2));
    let next = sim.survive(Survivors::All);
    assert_eq!(next.read_file("/d/f").unwrap(), b"");
    next.create_new(Path::new("/d/g")).unwrap();
    assert_eq!((next.operations(), next.faults_fired(), sim.files().len()), (1, 0, 1));
}

#[test]
fn a_crash_just_after_an_operation_leaves_its_effect_as_one_more_piece() {
    let sim = SimDisk::new(1);
    sim.crash_after(1);
    assert!(sim.create_new(Path::new("/f")).is_err());
    assert_eq!(found(&sim, "/f"), contents(&[None, Some("")]));
    let sim = SimDisk::new(1);
    let mut file = sim.create_new(Path::new("/f")).unwrap();
    sim.sync_dir(Path::new("/")).unwrap();
    sim.crash_after(1);
    assert!(file.append(b"x").is_err());
    assert_eq!(found(&sim, "/f"), contents(&[Some(""), Some("x")]));
}

#[test]
fn chosen_operations_fail_once_or_for_ever_with_the_chosen_error() {
    let sim = SimDisk::new(1);
    let mut file = sim.create_new(Path::new("/f")).unwrap();
    sim.fail_at(2, &[Operation::Append], Io::StorageFull, Persistence::Once);
    sim.fail_at(1, &[Operation::Open, Operation::List], Io::PermissionDenied, Persistence::ForEver);
    file.append(b"0123456789").unwrap();
    let error = file.append(b"0123456789").unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::DiskFull { path: "/f".into() });
    let after_failure = sim.read_file("/f").unwrap().len();
    assert!((10..20).contains(&after_failure), "a failed append leaves a part at most");
    file.append(b"x").unwrap();
    for _ in 0..3 {
        assert!(matches!(sim.open(Path::new("/f")).unwrap_err().kind(), ErrorKind::PermissionDenied { .. }));
    }
    sim.create_new(Path::new("/g")).unwrap();
    assert_eq!(sim.faults_fired(), 4);
    sim.clear_faults();
    sim.open(Path::new("/f")).unwrap();
}

#[test]
fn short_reads_are_made_whole_and_really_happen() {
    let sim = SimDisk::new(1);
    let content: Vec<u8> = (0..=255).collect();
    sim.write_file("/f", &content).unwrap();
    sim.short_reads(true);
    let file = sim.open(Path::new("/f")).unwrap();
    // The fourth part of one read fails: there are that many.
    sim.fail_at(4, &[Operation::Read], Io::Other, Persistence::Once);
    let mut buffer = [0; 256];
    assert!(file.read_exact_at(&mut buffer, 0).is_err());
    file.read_exact_at(&mut buffer, 0).unwrap();
    assert_eq!(buffer, content[..]);
    assert!(file.read_exact_at(&mut buffer, 1).unwrap_err().is_corrupt());
}

#[test]
fn a_killed_process_loses_nothing_but_has_made_nothing_durable_either() {
    let sim = SimDisk::new(1);
    let mut file = sim.create_new(Path::new("/f")).unwrap();
    file.append(b"x").unwrap();
    sim.power_off();
    let next = sim.fork();
    assert_eq!(next.read_file("/f").unwrap(), b"x");
    assert_eq!(next.pending(), 2);
    assert!(next.survive(Survivors::None).files().is_empty());
    next.remove(Path::new("/f")).unwrap();
    assert_eq!(sim.files().len(), 1);
}

#[test]
fn bytes_that_no_name_can_lead_to_are_no_pieces() {
    let sim = SimDisk::new(1);
    let mut file = sim.create_new(Path::new("/f")).unwrap();
    file.append(b"x").unwrap();
    sim.remove(Path::new("/f")).unwrap();
    assert_eq!(sim.pending(), 3);
    sim.sync_dir(Path::new("/")).unwrap();
    assert_eq!(sim.pending(), 0);
}

#[test]
fn damage_is_seen_by_open_readers_and_a_changed_length_is_corrupt() {
    let sim = SimDisk::new(1);
    sim.write_file("/d/f", &[0; 4]).unwrap();
    let file = sim.open(Path::new("/d/f")).unwrap();
    sim.flip_bit("/d/f", 9).unwrap();
    assert_eq!(file.map().unwrap(), [0, 2, 0, 0]);
    assert!(sim.flip_bit("/d/f", 32).is_err());
    sim.truncate("/d/f", 2).unwrap();
    assert!(file.map().unwrap_err().is_corrupt());
    assert_eq!(sim.survive(Survivors::None).read_file("/d/f").unwrap(), [0, 2]);
    sim.write_file("/d/f", b"other").unwrap();
    assert_eq!(sim.read_file("/d/f").unwrap(), b"other");
}

#[derive(Debug, Clone)]
enum Step {
    Create(&'static str, u8),
    Rename(&'static str, &'static str),
    Remove(&'static str),
    CreateDir(&'static str),
    List(&'static str),
    Stat(&'static str),
    SyncDir(&'static str),
    Read(&'static str),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let path = || prop::sample::select(vec!["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "a/x"]);
    let file = || prop::sample::select(vec!["a", "b", "d/a", "d/b", "d/e/a"]);
    prop::collection::vec(
        prop_oneof![
            4 => (file(), any::<u8>()).prop_map(|(path, length)| Step::Create(path, length)),
            3 => (file(), path()).prop_map(|(from, to)| Step::Rename(from, to)),
            2 => path().prop_map(Step::Remove),
            2 => prop::sample::select(vec!["a", "d", "d/e", "a/x"]).prop_map(Step::CreateDir),
            1 => path().prop_map(Step::List),
            1 => path().prop_map(Step::Stat),
            1 => path().prop_map(Step::SyncDir),
            1 => path().prop_map(Step::Read),
        ],
        1..60,
    )
}

/// What a step shows of a disk, in words.
fn act(disk: &dyn Disk, root: &Path, step: &Step) -> Result<String> {
    let at = |path: &str| root.join(path);
    Ok(match step {
        Step::Create(path, length) => {
            let mut file = disk.create_new(&at(path))?;
            (0..*length).try_for_each(|byte| file.append(&[byte]))?;
            String::new()
        }
        Step::Rename(from, to) => format!("{:?}", disk.rename_new(&at(from), &at(to))?),
        Step::Remove(path) => format!("{:?}", disk.remove(&at(path))?),
        Step::CreateDir(path) => format!("{:?}", disk.create_dir(&at(path))?),
        Step::SyncDir(path) => format!("{:?}", disk.sync_dir(&at(path))?),
        Step::Stat(path) => format!("{:?}", disk.stat(&at(path))?),
        Step::List(path) => {
            let mut entries = disk.list(&at(path))?;
            entries.sort();
            format!("{entries:?}")
        }
        Step::Read(path) => {
            let file = disk.open(&at(path))?;
            let mut buffer = vec![0; usize::try_from(file.len()).unwrap()];
            file.read_exact_at(&mut buffer, 0)?;
            assert_eq!(file.map()?.as_slice(), buffer);
            format!("{buffer:?}")
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn the_simulated_disk_answers_like_the_real_one(steps in steps(), seed in any::<u64>()) {
        let directory = tempfile::tempdir().unwrap();
        let sim: Arc<dyn Disk> = Arc::new(SimDisk::new(seed));
        for step in &steps {
            // The contract is silent about renaming directories.
            if let Step::Rename(from, _) = step && directory.path().join(from).is_dir() {
                continue;
            }
            let real = act(&RealDisk, directory.path(), step);
            let simulated = act(&*sim, Path::new("/"), step);
            match (&real, &simulated) {
                (Ok(real), Ok(simulated)) => prop_assert_eq!(real, simulated, "{:?}", step),
                (Err(real), Err(simulated)) => {
                    let io = |kind: &ErrorKind| if let ErrorKind::Io { kind, .. } = kind { Some(*kind) } else { None };
                    prop_assert_eq!(discriminant(real.kind()), discriminant(simulated.kind()), "{:?} {} {}", step, real, simulated);
                    prop_assert_eq!(io(real.kind()), io(simulated.kind()), "{:?}", step);
                }
                _ => prop_assert!(false, "{:?}: {:?} but {:?}", step, real, simulated),
            }
        }
    }

    #[test]
    fn any_survivor_is_between_nothing_and_all_and_is_durable_itself(steps in steps(), seed in any::<u64>()) {
        let sim = SimDisk::new(seed);
        for step in &steps {
            // Refused steps change nothing; the other test looks at their answers.
            drop(act(&sim, Path::new("/"), step));
        }
        prop_assert_eq!(sim.survive(Survivors::All).files(), sim.files());
        let after = sim.survive(Survivors::Seeded(seed));
        prop_assert_eq!(after.pending(), 0);
        prop_assert_eq!(after.survive(Survivors::None).files(), after.files());
        for file in after.files() {
            prop_assert!(after.read_file(&file).unwrap() == after.survive(Survivors::None).read_file(&file).unwrap());
        }
        for path in ["/d/e", "/d", "/a", "/a/x", "/"].map(Path::new) {
            drop(sim.sync_dir(path));
        }
        let names_only: Vec<_> = sim.survive(Survivors::None).files();
        prop_assert_eq!(names_only, sim.files());
    }
}
