//! `ls` and `versions`: what there is.

use std::collections::BTreeMap;

use super::args::{Ls, Versions};
use super::console::Console;
use super::failure::{Exit, Outcome};
use super::json::Json;
use super::place;
use super::spelling::{escaped, harmless, quoted};
use super::table::{Table, bytes_for_people, count};
use crate::entry::StateStoreId;
use crate::store::{FileRole, Inventory, SurveyedVersion};

const ROLES: [FileRole; 8] = [
    FileRole::Snapshot,
    FileRole::Collapsed,
    FileRole::Delta,
    FileRole::Abandoned,
    FileRole::Fork,
    FileRole::Horizon,
    FileRole::Temporary,
    FileRole::Foreign,
];

/// What a newcomer has to know to read the table.
const LEGEND: &str = "
STORE     the keyed state of one partition of one operator: <operator>/<partition>/<name>
VERSIONS  which can be read, and how many. Every commit made the next version; old ones stay readable until they are retired
FILES     all files of the store, and their bytes together
LAG       commits (and their bytes) since the newest snapshot or collapsed delta. Opening the store without its work directory has
          to take them in again; a snapshot or a compaction brings it down
RUNS      files that make the newest version: a read may have to ask each of them";

/// What each sort of file is.
fn about(role: FileRole) -> (&'static str, &'static str) {
    match role {
        FileRole::Snapshot => ("snapshot", "the whole state at a version"),
        FileRole::Collapsed => ("collapsed", "what several commits changed, as one"),
        FileRole::Delta => ("delta", "what one commit changed"),
        FileRole::Abandoned => {
            ("abandoned", "of a version that was rolled back, or a writer that was overtaken; retirement deletes it")
        }
        FileRole::Fork => ("fork", "the claim of a writer, by which earlier ones are fenced"),
        FileRole::Horizon => ("horizon", "the announcement that older versions are given up"),
        FileRole::Temporary => ("temporary", "being written, or left behind by a crash"),
        FileRole::Foreign => ("foreign", "not one of the store's; never touched"),
    }
}

/// `alluvium ls`
pub(super) fn ls(args: &Ls, console: &mut Console<'_>) -> Outcome<Exit> {
    let (checkpoint, ids) = place::stores(&args.place)?;
    let mut stores = Vec::new(); // one a store
    for id in ids {
        let history = place::open(&checkpoint, &args.place, &id)?;
        stores.push((id, history.inventory()?));
    }
    let is_whole = stores.iter().all(|(_, inventory)| inventory.lost.is_empty());
    let exit = if is_whole { Exit::Done } else { Exit::Damaged };
    if args.place.json {
        let shown = args.place.checkpoint.display().to_string();
        let stores: Vec<Json> = stores.iter().map(|(id, inventory)| in_json(id, inventory, args.files)).collect();
        let is_empty = stores.is_empty();
        console.json(&Json::object([("checkpoint", shown.into()), ("stores", stores.into())]))?;
        return if is_empty { Err(place::no_store(&args.place)) } else { Ok(exit) };
    }
    if stores.is_empty() {
        return Err(place::no_store(&args.place));
    }
    table_of_stores(&stores, console)?;
    for (id, inventory) in stores.iter().filter(|(_, inventory)| !inventory.lost.is_empty()) {
        let lost = super::maintain::spans(&inventory.lost);
        let repair = format!("alluvium repair {} --store {id}", quoted(&args.place.checkpoint));
        console.line(format!("{id}: files are missing or damaged: versions {lost} cannot be read; see {repair}"))?;
    }
    if args.files {
        for (id, inventory) in &stores {
            console.line("")?;
            table_of_files(id, inventory, console)?;
        }
    }
    console.line(LEGEND)?;
    table_of_roles(&stores, console)?;
    console.line("")?;
    let shown = quoted(&args.place.checkpoint);
    let store = match stores.as_slice() {
        [(id, _), _, ..] => format!(" --store {id}"),
        _ => String::new(),
    };
    for (command, does) in
        [("versions", "its versions"), ("scan", "what it holds"), ("changes", "what the last commit did")]
    {
        console.line(format!("next: alluvium {command} {shown}{store}   ({does})"))?;
    }
    Ok(exit)
}

fn table_of_stores(stores: &[(StateStoreId, Inventory)], console: &mut Console<'_>) -> Outcome<()> {
    let mut table = Table::new(&["STORE", "VERSIONS", "FILES", "LAG", " RUNS"]);
    for (id, inventory) in stores {
        let versions = match inventory.versions {
            0 if inventory.lost.is_empty() => "none yet".into(),
            0 => "none can be read".into(),
            1 => format!("{}", inventory.oldest),
            many => format!("{} to {} ({many})", inventory.oldest, inventory.newest),
        };
        let bytes: u64 = inventory.files.iter().map(|file| file.bytes).sum();
        let files = inventory.files.len() as u64;
        table.row([
            id.to_string(),
            versions,
            format!("{files} with {}", bytes_for_people(bytes)),
            format!("{}, {}", count(inventory.lag_deltas, "commit", "commits"), bytes_for_people(inventory.lag_bytes)),
            inventory.runs.to_string(),
        ]);
    }
    table.lines().try_for_each(|line| console.line(line))
}

fn table_of_files(id: &StateStoreId, inventory: &Inventory, console: &mut Console<'_>) -> Outcome<()> {
    console.line(format!("{id}:"))?;
    let mut table = Table::new(&["FILE", "WHAT", " BYTES"]);
    for file in &inventory.files {
        // A name that is not ours may hold anything.
        let name = escaped(file.name.as_bytes());
        table.row([name, about(file.role).0.into(), file.bytes.to_string()]);
    }
    table.lines().try_for_each(|line| console.line(line))
}

/// How many files of each sort there are in all stores, with their bytes.
fn by_role<'i>(inventories: impl Iterator<Item = &'i Inventory>) -> BTreeMap<FileRole, (u64, u64)> {
    let mut sums: BTreeMap<FileRole, (u64, u64)> = BTreeMap::new();
    for file in inventories.flat_map(|inventory| &inventory.files) {
        let (files, bytes) = sums.entry(file.role).or_default();
        *files += 1;
        *bytes = bytes.saturating_add(file.bytes);
    }
    sums
}

fn table_of_roles(stores: &[(StateStoreId, Inventory)], console: &mut Console<'_>) -> Outcome<()> {
    let sums = by_role(stores.iter().map(|(_, inventory)| inventory));
    console.line("")?;
    let mut table = Table::new(&["FILES", " COUNT", " BYTES", "WHAT THEY ARE"]);
    for role in ROLES {
        if let Some((files, bytes)) = sums.get(&role) {
            let (name, meaning) = about(role);
            table.row([name.into(), files.to_string(), bytes_for_people(*bytes), meaning.into()]);
        }
    }
    table.lines().try_for_each(|line| console.line(line))
}

fn in_json(id: &StateStoreId, inventory: &Inventory, with_files: bool) -> Json {
    let sums = by_role(std::iter::once(inventory));
    let roles = ROLES.iter().filter_map(|role| {
        let (files, bytes) = sums.get(role)?;
        Some((about(*role).0, Json::object([("files", (*files).into()), ("bytes", (*bytes).into())])))
    });
    let mut members = vec![
        ("store", id.to_string().into()),
        ("oldest", inventory.oldest.0.into()),
        ("newest", inventory.newest.0.into()),
        ("epoch", inventory.epoch.0.into()),
        ("versions", inventory.versions.into()),
        ("files", (inventory.files.len() as u64).into()),
        ("bytes", inventory.files.iter().map(|file| file.bytes).sum::<u64>().into()),
        ("by_role", Json::Object(roles.collect())),
        ("lag_commits", inventory.lag_deltas.into()),
        ("lag_bytes", inventory.lag_bytes.into()),
        ("runs", inventory.runs.into()),
        ("lost", super::maintain::spans_in_json(&inventory.lost)),
    ];
    if with_files {
        let files = inventory.files.iter().map(|file| {
            let name = escaped(file.name.as_bytes());
            Json::object([("name", name.into()), ("role", about(file.role).0.into()), ("bytes", file.bytes.into())])
        });
        members.push(("file_list", files.collect::<Vec<Json>>().into()));
    }
    Json::Object(members)
}

/// `alluvium versions`
pub(super) fn versions(args: &Versions, console: &mut Console<'_>) -> Outcome<Exit> {
    let history = place::history(&args.place)?;
    let survey = if args.metadata { history.survey_with_metadata() } else { history.survey() }?;
    let is_whole = survey.versions.iter().all(|version| version.unreadable.is_none());
    let costs_a_version = |why: &String| survey.versions.iter().any(|version| version.unreadable.as_ref() == Some(why));
    let passed_over = survey.damaged.iter().filter(|(_, why)| !costs_a_version(why)).map(|(file, _)| file.as_path());
    place::tell_passed_over(passed_over, &args.place, console)?;
    if survey.versions.is_empty() {
        console.note(&format!("note: {}", place::no_version(&history)))?;
    }
    if args.place.json {
        survey.versions.iter().try_for_each(|version| console.json(&version_in_json(args, version)))?;
    } else {
        table_of_versions(args, &survey.versions, is_whole, console)?;
    }
    if is_whole {
        return Ok(Exit::Done);
    }
    place::tell_of_repair(&args.place, console)?;
    Ok(Exit::Damaged)
}

fn table_of_versions(
    args: &Versions,
    versions: &[SurveyedVersion],
    is_whole: bool,
    console: &mut Console<'_>,
) -> Outcome<()> {
    let mut heading = vec![" VERSION", " EPOCH", " CHANGES", " BYTES", " METADATA"];
    heading.extend((!is_whole).then_some("CANNOT BE READ"));
    let mut table = Table::new(&heading);
    for version in versions {
        let known = |number: Option<u64>| number.map_or_else(|| "-".into(), |number| number.to_string());
        let metadata = match (&version.metadata, version.metadata_bytes) {
            (Some(metadata), _) => args.values.show(metadata),
            (None, Some(bytes)) => format!("{bytes} B"),
            (None, None) => "-".into(),
        };
        let why = version.unreadable.as_ref().map_or_else(String::new, |why| harmless(why));
        table.row([
            version.versions.to_string(),
            known(version.epoch.map(|epoch| epoch.0)),
            known(version.changes),
            known(version.file_bytes),
            metadata,
            why,
        ]);
    }
    table.lines().try_for_each(|line| console.line(line))
}

fn version_in_json(args: &Versions, version: &SurveyedVersion) -> Json {
    let mut members = vec![("version", version.versions.first.0.into())];
    // Lost versions that no file leads to may be any number.
    if version.versions.first < version.versions.last {
        members.push(("last", version.versions.last.0.into()));
    }
    members.extend([
        ("epoch", version.epoch.map(|epoch| epoch.0).into()),
        ("changes", version.changes.into()),
        ("bytes", version.file_bytes.into()),
        ("metadata_bytes", version.metadata_bytes.into()),
        ("metadata", version.metadata.as_ref().map(|metadata| args.values.show(metadata)).into()),
        ("unreadable", version.unreadable.as_deref().into()),
    ]);
    Json::Object(members)
}
