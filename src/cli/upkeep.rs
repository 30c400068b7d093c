//! `verify`, `export`, `import`: looking after stores.

use std::path::PathBuf;

use super::args::{Export, Import, Verify};
use super::console::Console;
use super::failure::{Exit, Failure, Outcome};
use super::json::Json;
use super::maintain::{spans, spans_in_json};
use super::place;
use super::spelling::harmless;
use super::table::{bytes_for_people, count};
use crate::checkpoint::LocalCheckpoint;
use crate::error::ErrorKind;
use crate::fs::{Disk, RealDisk};
use crate::store::ExportedFile;
use crate::version::Version;

/// `alluvium verify`
pub(super) fn verify(args: &Verify, console: &mut Console<'_>) -> Outcome<Exit> {
    let (checkpoint, stores) = place::stores(&args.place)?;
    if stores.is_empty() {
        return Err(place::no_store(&args.place));
    }
    let mut exit = Exit::Done;
    for id in stores {
        let history = place::open(&checkpoint, &args.place, &id)?;
        let total = history.inventory()?.files.iter().map(|file| file.bytes).sum();
        let verified = {
            let mut progress = console.progress(format!("verifying {id}"), Some(total));
            history.verify(|bytes| progress.at(bytes))?
        };
        if !verified.damaged.is_empty() || !verified.lost.is_empty() {
            exit = Exit::Damaged;
        }
        if args.place.json {
            let damaged = verified.damaged.iter().map(|(file, reason)| {
                Json::object([("file", file.display().to_string().into()), ("reason", reason.as_str().into())])
            });
            console.say(Json::object([
                ("store", id.to_string().into()),
                ("runs", verified.runs.into()),
                ("bytes", verified.bytes.into()),
                ("damaged", damaged.collect::<Vec<Json>>().into()),
                ("lost", spans_in_json(&verified.lost)),
            ]))?;
            continue;
        }
        let read = format!("{} with {}", count(verified.runs, "run", "runs"), bytes_for_people(verified.bytes));
        match verified.damaged.as_slice() {
            [] if verified.lost.is_empty() => console.say(format!("{id}: {read}, no damage"))?,
            [] => console.say(format!("{id}: {read}, none of them damaged, but files are missing:"))?,
            damaged => {
                console.say(format!("{id}: {read}, {} damaged:", damaged.len()))?;
                for (file, reason) in damaged {
                    console.say(harmless(&format!("  {}: {reason}", file.display())))?;
                }
            }
        }
        if !verified.lost.is_empty() {
            console.say(format!("  versions that cannot be read: {}", spans(&verified.lost)))?;
        }
    }
    if exit != Exit::Done {
        place::tell_of_repair(&args.place, console)?;
    }
    Ok(exit)
}

/// `alluvium export`
pub(super) fn export(args: &Export, console: &mut Console<'_>) -> Outcome<Exit> {
    let history = place::history(&args.place)?;
    let version = place::version(&history, args.at)?;
    if version == Version::EMPTY && args.at.is_none() {
        return Err(Failure::NotFound(place::no_version(&history)));
    }
    place::check_target(&args.dir)?;
    let exported = {
        let mut progress = console.progress(format!("exporting version {version} of {}", history.id()), None);
        history.export(version, &args.dir, |bytes| progress.at(bytes))?
    };
    place::tell_passed_over(exported.passed_over.iter().map(PathBuf::as_path), &args.place, console)?;
    let file = exported.file.display().to_string();
    if args.place.json {
        console.json(&Json::object([
            ("store", history.id().to_string().into()),
            ("version", exported.version.0.into()),
            ("file", file.into()),
            ("keys", exported.entries.into()),
            ("bytes", exported.bytes.into()),
        ]))?;
        return Ok(Exit::Done);
    }
    let (keys, bytes) = (count(exported.entries, "key", "keys"), bytes_for_people(exported.bytes));
    console.line(harmless(&format!("version {version} of {}: {keys}, {bytes}, in {file}", history.id())))?;
    Ok(Exit::Done)
}

/// `alluvium import`
pub(super) fn import(args: &Import, console: &mut Console<'_>) -> Outcome<Exit> {
    let id = place::store_id(&args.store)?;
    place::check_target(&args.checkpoint)?;
    let shown = args.file.display();
    let file = RealDisk::new().open(&args.file).map_err(|error| match error.kind() {
        ErrorKind::Foreign { .. } => {
            let kind = if args.file.is_symlink() { "a symbolic link, and none is followed here" } else { "no file" };
            Failure::NotFound(format!("{shown} is {kind}: name the file that an export wrote"))
        }
        ErrorKind::NotFound { .. } => Failure::NotFound(format!("there is no file {shown}")),
        _ => error.into(),
    })?;
    // The whole file before the checkpoint, which would be made for nothing.
    let source = {
        let mut progress = console.progress(format!("checking {shown}"), Some(file.len()));
        ExportedFile::check_opened(file, &args.file, |bytes| progress.at(bytes))?
    };
    {
        let mut progress = console.progress(format!("importing {shown}"), Some(source.content_bytes()));
        source.start(LocalCheckpoint::open(&args.checkpoint)?, id.clone(), |bytes| progress.at(bytes))?;
    }
    let version = source.version();
    if args.json {
        console.json(&Json::object([("store", id.to_string().into()), ("version", version.0.into())]))?;
    } else {
        console.line(format!("the store {id} starts at version {version}"))?;
    }
    Ok(Exit::Done)
}
