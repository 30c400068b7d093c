//! The contract: the store holds one of the lines that it may hold, whole, at its newest version and at older ones.

use alluvium::prelude::*;
use alluvium::{IdSource, Result, RocksDbProvider, Scan, Version};

use super::child::ends_with;
use super::model::{Content, Dice, FAMILIES, Line, content};
use super::writer::{Job, open, store_options};

/// Opens what the job works on, and checks that it holds one of `lines`. Gives that.
///
/// # Errors
/// What opening or reading met; that nothing wrong is shown for right is asserted.
pub(super) fn check(job: &Job, lines: &[Line], dice: &mut Dice) -> Result<Line> {
    let (provider, _backend) = open(job, store_options(), IdSource::random())?;
    let head = provider.latest()?;
    let version = usize::try_from(head.0).unwrap();
    let metadata = String::from_utf8(provider.metadata(head)?.to_vec()).unwrap();
    let line = lines.iter().find(|line| ends_with(line, version, &metadata));
    let line = line.unwrap_or_else(|| {
        let allowed: Vec<_> = lines.iter().map(|line| (line.len(), line.last())).collect();
        panic!("version {version} [{metadata}] is none of {allowed:?}");
    });
    let expected = content(line);
    let batch = provider.begin(head)?;
    assert_same("the transaction", &read_all(&batch)?, &expected);
    for _ in 0..30 {
        let place = usize::try_from(dice.roll(2)).unwrap();
        let key = format!("key {:04}", dice.roll(3_000)).into_bytes();
        let Some(family) = batch.family(FAMILIES[place]) else { continue };
        let found = batch.get(family, &key)?.map(|value| value.to_vec());
        assert_eq!(found.as_ref(), expected[place].get(&key), "{}", key.escape_ascii());
    }
    batch.abort();
    check_versions(&provider, line, dice)?;
    Ok(line.clone())
}

fn check_versions(provider: &RocksDbProvider, line: &Line, dice: &mut Dice) -> Result<()> {
    let newest = line.len() as u64;
    let older = (0..2).map(|_| dice.roll(newest + 1));
    for number in older.chain([newest, newest.saturating_sub(1)]) {
        let part = &line[..usize::try_from(number).unwrap()];
        let view = provider.read_at(Version(number))?;
        assert_same(&format!("version {number}"), &read_all(&view)?, &content(part));
        let metadata = part.last().map_or(String::new(), super::model::Batch::metadata);
        assert_eq!(provider.metadata(Version(number))?, metadata.as_bytes());
    }
    let listed: Vec<u64> = provider.versions()?.iter().map(|info| info.version.0).collect();
    assert_eq!(listed, (1..=newest).collect::<Vec<_>>());
    Ok(())
}

fn read_all(store: &impl ReadStore) -> Result<Content> {
    let mut content = Content::default();
    for (name, map) in FAMILIES.iter().zip(&mut content) {
        let scan = store.family(name).map(|family| store.scan(family)).transpose()?;
        for entry in scan.into_iter().flat_map(Scan::into_iter) {
            let entry = entry?;
            map.insert(entry.key.to_vec(), entry.value.to_vec());
        }
    }
    Ok(content)
}

/// Compares, and tells the differences rather than everything.
#[track_caller]
fn assert_same(what: &str, found: &Content, expected: &Content) {
    for ((found, expected), name) in found.iter().zip(expected).zip(FAMILIES) {
        let keys = found.keys().chain(expected.keys());
        let wrong: Vec<_> = keys.filter(|key| found.get(*key) != expected.get(*key)).collect();
        let text = |value: Option<&Vec<u8>>| value.map(|value| value[..value.len().min(60)].escape_ascii().to_string());
        let first =
            wrong.first().map(|key| (key.escape_ascii().to_string(), text(found.get(*key)), text(expected.get(*key))));
        assert!(
            wrong.is_empty(),
            "{what}, {name}: {} keys differ, such as (key, found, expected) {first:?}",
            wrong.len()
        );
    }
}
