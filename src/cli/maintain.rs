//! `repair`, `compact`, `retire`: what changes the files of stores, but no version that stays.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::args::{Compact, Place, Repair, Retire};
use super::console::{Console, Progress};
use super::failure::{Exit, Failure, Outcome};
use super::json::Json;
use super::place;
use super::spelling::harmless;
use super::table::{bytes_for_people, count};
use crate::entry::StateStoreId;
use crate::maintenance::{Done, Maintenance, MaintenanceOptions, Task, VersionSpan};
use crate::version::{Version, VersionId};

/// Does something to each store that is meant. What one of several fails with is told, and the others have their turn; the exit code is the
/// highest of all.
fn each(
    place: &Place,
    options: &MaintenanceOptions,
    console: &mut Console<'_>,
    mut act: impl FnMut(&StateStoreId, &Maintenance, &mut Console<'_>) -> Outcome<Exit>,
) -> Outcome<Exit> {
    let (checkpoint, stores) = place::existing_stores(place)?;
    let (is_alone, mut worst) = (stores.len() == 1, Exit::Done);
    for id in stores {
        let maintenance = Maintenance::on(Arc::clone(&checkpoint), id.clone(), options.clone());
        let exit = match act(&id, &maintenance, console) {
            Err(Failure::Store(error)) if !is_alone => {
                console.note(&format!("error: {id}: {error}"))?;
                Failure::Store(error).exit()
            }
            outcome => outcome?,
        };
        worst = worst.max(exit);
    }
    Ok(worst)
}

/// An observer that shows progress. Maintenance may report from any thread.
fn shown(progress: Progress<'_>) -> impl Fn(u64) -> ControlFlow<()> + Sync + use<'_> {
    let progress = Mutex::new(progress);
    move |bytes| progress.lock().unwrap_or_else(PoisonError::into_inner).at(bytes)
}

/// `alluvium repair`
pub(super) fn repair(args: &Repair, console: &mut Console<'_>) -> Outcome<Exit> {
    each(&args.place, &MaintenanceOptions::default(), console, |id, maintenance, console| {
        let repaired = maintenance.repair(&shown(console.progress(format!("repairing {id}"), None)))?;
        let is_whole = repaired.irreparable.is_empty() && repaired.lost.is_empty();
        let exit = if is_whole { Exit::Done } else { Exit::Damaged };
        if args.place.json {
            let irreparable = repaired.irreparable.iter().map(|broken| (&broken.file, &broken.damage));
            console.say(Json::object([
                ("store", id.to_string().into()),
                ("runs", repaired.runs.into()),
                ("bytes", repaired.bytes.into()),
                ("remade", files_in_json(repaired.remade.iter().map(|(file, damage)| (file, damage)), "damage")),
                ("irreparable", files_in_json(irreparable, "damage")),
                ("lost", spans_in_json(&repaired.lost)),
                ("readable", spans_in_json(&repaired.readable)),
            ]))?;
            return Ok(exit);
        }
        let read = format!("{} with {}", count(repaired.runs, "run", "runs"), bytes_for_people(repaired.bytes));
        let (remade, broken) = (repaired.remade.len(), repaired.irreparable.len());
        if remade + broken == 0 && repaired.lost.is_empty() {
            console.say(format!("{id}: {read}, no damage"))?;
            return Ok(exit);
        }
        console.say(format!("{id}: {read}, {remade} made anew, {broken} beyond repair"))?;
        for (file, damage) in &repaired.remade {
            console.say(harmless(&format!("  made anew: {}: {damage}", file.display())))?;
        }
        for broken in &repaired.irreparable {
            console.say(harmless(&format!("  beyond repair: {}: {}", broken.file.display(), broken.damage)))?;
        }
        console.say(format!("  versions lost: {}; readable: {}", spans(&repaired.lost), spans(&repaired.readable)))?;
        if broken > 0 && repaired.lost.is_empty() {
            let advice = "no entry is damaged: the next version's snapshot (`compact --snapshot`) takes over all there is, and `retire` lets go of the file";
            console.say(format!("  {advice}"))?;
        }
        Ok(exit)
    })
}

/// `alluvium compact`
pub(super) fn compact(args: &Compact, console: &mut Console<'_>) -> Outcome<Exit> {
    // How many versions the store's job retains is not known here.
    let keep = args.keep.map_or(Ok(usize::MAX), number)?;
    let options = MaintenanceOptions::default().retain_versions(keep)?;
    each(&args.place, &options, console, |id, maintenance, console| {
        let mut done = Vec::new(); // each makes fewer files of many
        if args.snapshot {
            match snapshot_of(&args.place, id, maintenance, console)? {
                Snapshot::Taken(version) => done.push(format!("took a snapshot of version {version}")),
                Snapshot::Found(version) if !args.place.json && version > Version::EMPTY => {
                    console.say(format!("{id}: a snapshot of version {version} was already there"))?;
                    return Ok(Exit::Done);
                }
                Snapshot::Found(_) => {}
            }
        } else if args.dry_run {
            let tasks = maintenance.plan()?.tasks;
            done.extend(tasks.iter().map(|planned| &planned.task).filter(|task| rewrites(task)).map(Task::to_string));
        } else {
            done = compact_one(id, maintenance, console)?;
        }
        if args.place.json {
            let tasks: Vec<Json> = done.into_iter().map(Json::from).collect();
            let members = [("store", id.to_string().into()), ("dry_run", args.dry_run.into()), ("tasks", tasks.into())];
            console.say(Json::object(members))?;
            return Ok(Exit::Done);
        }
        let would = if args.dry_run { "would " } else { "" };
        match done.as_slice() {
            [] => console.say(format!("{id}: nothing is worth doing"))?,
            tasks => tasks.iter().try_for_each(|task| console.say(format!("{id}: {would}{task}")))?,
        }
        Ok(Exit::Done)
    })
}

/// What became of the wish for a snapshot of the newest version.
enum Snapshot {
    Taken(Version),
    /// There was one, or there is no version.
    Found(Version),
}

fn snapshot_of(
    place: &Place,
    id: &StateStoreId,
    maintenance: &Maintenance,
    console: &mut Console<'_>,
) -> Outcome<Snapshot> {
    let history = place::open(&place::checkpoint(&place.checkpoint)?, place, id)?;
    let newest = || history.inventory().map(|inventory| VersionId::new(inventory.newest, inventory.epoch));
    loop {
        let at = newest()?;
        let task = Task::Snapshot { at };
        match maintenance.run(&task, &shown(console.progress(format!("compacting {id}"), None)))? {
            Done::Nothing if newest()? != at => {} // rolled back meanwhile
            Done::Nothing => return Ok(Snapshot::Found(at.version)),
            _ => return Ok(Snapshot::Taken(at.version)),
        }
    }
}

fn rewrites(task: &Task) -> bool {
    matches!(task, Task::Collapse { .. } | Task::Snapshot { .. })
}

/// Plans and acts until nothing is left; says what was done.
fn compact_one(id: &StateStoreId, maintenance: &Maintenance, console: &mut Console<'_>) -> Outcome<Vec<String>> {
    let (mut done, mut idle) = (Vec::new(), Vec::new());
    loop {
        let tasks = maintenance.plan()?.tasks;
        let next = tasks.iter().map(|planned| planned.task).find(|task| rewrites(task) && !idle.contains(task));
        let Some(task) = next else { return Ok(done) };
        match maintenance.run(&task, &shown(console.progress(format!("{id}: {task}"), None)))? {
            Done::Nothing => idle.push(task),
            _ => done.push(task.to_string()),
        }
    }
}

/// `alluvium retire`
pub(super) fn retire(args: &Retire, console: &mut Console<'_>) -> Outcome<Exit> {
    let mut options = MaintenanceOptions::default().retain_versions(number(args.keep)?)?;
    if let Some(changes) = args.keep_changes {
        options = options.retain_changes(changes);
    }
    each(&args.place, &options, console, |id, maintenance, console| {
        let progress = shown(console.progress(format!("reading {id}"), None));
        let retired = if args.dry_run { maintenance.retirable(&progress) } else { maintenance.retire(&progress) }?;
        drop(progress);
        if args.place.json {
            console.say(Json::object([
                ("store", id.to_string().into()),
                ("dry_run", args.dry_run.into()),
                ("oldest", retired.oldest.0.into()),
                ("deleted", files_in_json(retired.deleted.iter().map(|(file, reason)| (file, reason)), "reason")),
            ]))?;
            return Ok(Exit::Done);
        }
        let files = count(retired.deleted.len() as u64, "file", "files");
        let does = if args.dry_run { "would be deleted" } else { "deleted" };
        console.say(format!("{id}: {files} {does}; the oldest version is {}", retired.oldest))?;
        for (file, reason) in &retired.deleted {
            console.say(harmless(&format!("  {}: {reason}", file.display())))?;
        }
        Ok(Exit::Done)
    })
}

fn number(keep: u64) -> Outcome<usize> {
    usize::try_from(keep).map_err(|error| Failure::Usage(format!("--keep is too large for this machine: {error}")))
}

fn files_in_json<'f>(files: impl Iterator<Item = (&'f PathBuf, &'f String)>, why: &'static str) -> Json {
    let files = files
        .map(|(file, text)| Json::object([("file", file.display().to_string().into()), (why, text.as_str().into())]));
    files.collect::<Vec<Json>>().into()
}

pub(super) fn spans_in_json(spans: &[VersionSpan]) -> Json {
    let spans = spans.iter().map(|span| Json::object([("first", span.first.0.into()), ("last", span.last.0.into())]));
    spans.collect::<Vec<Json>>().into()
}

pub(super) fn spans(spans: &[VersionSpan]) -> String {
    match spans {
        [] => "none".into(),
        spans => spans.iter().map(ToString::to_string).collect::<Vec<String>>().join(", "), // a few
    }
}
