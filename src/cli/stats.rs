//! `stats`: how many keys there are, and how large.

use std::path::PathBuf;

use super::args::StatsArgs;
use super::console::Console;
use super::failure::{Exit, Outcome};
use super::json::Json;
use super::place;
use super::table::{Table, bytes_for_people, count};
use crate::store::{FamilyStats, Histogram, LargeEntry, Stats};

/// The longest bar of a histogram, in characters.
const BAR: u64 = 40;

/// `alluvium stats`
pub(super) fn stats(args: &StatsArgs, console: &mut Console<'_>) -> Outcome<Exit> {
    let history = place::history(&args.place)?;
    let version = place::version(&history, args.at)?;
    let stats = {
        let mut progress = console.progress(format!("counting version {version} of {}", history.id()), None);
        history.stats(version, args.largest.into(), |bytes| progress.at(bytes))?
    };
    place::tell_passed_over(stats.passed_over.iter().map(PathBuf::as_path), &args.place, console)?;
    if args.place.json {
        console.json(&in_json(args, &stats))?;
        return Ok(Exit::Done);
    }
    console.line(format!("{} at version {version}", history.id()))?;
    console.line("")?;
    let mut table = Table::new(&["FAMILY", " KEYS", " KEY BYTES", " VALUE BYTES", " TOMBSTONES", " STORED ENTRIES"]);
    for family in &stats.families {
        table.row([
            family.family.to_string(),
            family.keys.count.to_string(),
            bytes_for_people(family.keys.bytes),
            bytes_for_people(family.values.bytes),
            format!("{} ({})", family.tombstones, share_of_tombstones(family)),
            family.stored.to_string(),
        ]);
    }
    table.lines().try_for_each(|line| console.line(line))?;
    for family in stats.families.iter().filter(|family| family.keys.count > 0) {
        histogram(&format!("{}: bytes of a key", family.family), &family.keys, console)?;
        histogram(&format!("{}: bytes of a value", family.family), &family.values, console)?;
    }
    if !stats.largest.is_empty() {
        console.line("")?;
        let mut table = Table::new(&[" KEY BYTES", " VALUE BYTES", "LARGEST KEYS"]);
        for LargeEntry { family, key, value_bytes, .. } in &stats.largest {
            table.row([key.len().to_string(), value_bytes.to_string(), format!("{family}\t{}", args.keys.show(key))]);
        }
        table.lines().try_for_each(|line| console.line(line))?;
    }
    console.line("")?;
    console.line("TOMBSTONES mark removed keys until a snapshot leaves them out; their share is that of all keys with a mark or a value.")?;
    console.line("STORED ENTRIES lie in the files of this version: older values and tombstones count too.")?;
    Ok(Exit::Done)
}

/// In percent, with one decimal.
fn share_of_tombstones(family: &FamilyStats) -> String {
    let all = family.keys.count.saturating_add(family.tombstones).max(1);
    let tenths = u128::from(family.tombstones) * 1000 / u128::from(all);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn histogram(title: &str, histogram: &Histogram, console: &mut Console<'_>) -> Outcome<()> {
    console.line("")?;
    let mean = histogram.bytes / histogram.count.max(1);
    console.line(format!("{title}: {} to {}, {mean} on average", histogram.smallest, histogram.largest))?;
    let mut table = Table::new(&[" SIZE", " COUNT", ""]);
    let highest = histogram.buckets().map(|(_, _, count)| count).max().unwrap_or(1);
    for (least, most, number) in histogram.buckets() {
        let size = if least == most { least.to_string() } else { format!("{least} to {most}") };
        // At least one mark where there is one.
        let marks = usize::try_from((u128::from(number) * u128::from(BAR)).div_ceil(u128::from(highest))).unwrap_or(0);
        table.row([size, count(number, "", "").trim().to_owned(), "#".repeat(marks)]);
    }
    table.lines().try_for_each(|line| console.line(line))
}

fn in_json(args: &StatsArgs, stats: &Stats) -> Json {
    let families = stats.families.iter().map(|family| {
        Json::object([
            ("family", family.family.as_str().into()),
            ("keys", family.keys.count.into()),
            ("key_sizes", sizes_in_json(&family.keys)),
            ("value_sizes", sizes_in_json(&family.values)),
            ("tombstones", family.tombstones.into()),
            ("stored_entries", family.stored.into()),
        ])
    });
    let largest = stats.largest.iter().map(|entry| {
        Json::object([
            ("family", entry.family.as_str().into()),
            ("key", args.keys.show(&entry.key).into()),
            ("key_bytes", (entry.key.len() as u64).into()),
            ("value_bytes", entry.value_bytes.into()),
        ])
    });
    Json::object([
        ("version", stats.version.0.into()),
        ("families", families.collect::<Vec<Json>>().into()),
        ("largest", largest.collect::<Vec<Json>>().into()),
    ])
}

fn sizes_in_json(histogram: &Histogram) -> Json {
    let buckets = histogram.buckets().map(|(least, most, count)| {
        Json::object([("from", least.into()), ("to", most.into()), ("count", count.into())])
    });
    Json::object([
        ("bytes", histogram.bytes.into()),
        ("smallest", histogram.smallest.into()),
        ("largest", histogram.largest.into()),
        ("buckets", buckets.collect::<Vec<Json>>().into()),
    ])
}
