//! The rules of the house, held against the text of `src/`.
//!
//! - **floors**: `use crate::x` and `crate::x::…` point to a lower floor, or stay in the same folder (`docs/architecture.md`);
//!   so siblings never import each other, and there are no cycles;
//! - **circles**: nor do files of one folder import each other, however far around;
//! - **wings**: the state wing and the input wing never import each other;
//! - **roots**: nobody imports what `lib.rs` re-exports, or climbs to the root with `super`;
//! - **doors**: `mod.rs` and `lib.rs` hold documentation, attributes, `mod` and `use`, and nothing else;
//! - **length**: no file has more than 600 lines;
//! - **unsafe**: only `fs/map.rs` says it;
//! - **engine**: only `backend/rocks/` names `rocksdb`.
//!
//! Tests inside a file may break the first four; they look at what they test. Each rule has a planted violation below.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The order of the modules. A module may import from those before it, and, on a floor with the same number, from none.
///
/// The ground floor is a list rather than a floor: its files build on each other, in this order.
const FLOORS: &[(u32, &[&str])] = &[
    (10, &["version"]),
    (11, &["error"]),
    (12, &["bytes", "checksum", "clock", "metrics"]),
    (13, &["codec"]),
    (14, &["entry"]),
    (15, &["ranges"]),
    (20, &["fs", "budget"]),
    (30, &["run", "catalog", "backend", "checkpoint", "wal"]),
    (40, &["overlay", "blocks"]),
    (50, &["store", "receiver"]),
    (60, &["job", "state", "maintenance", "spark"]),
    (70, &["config"]),
    (80, &["cli", "main", "lib"]),
];
/// Those that keep state, and those that receive input.
const WINGS: [&[&str]; 2] =
    [&["run", "catalog", "backend", "checkpoint", "overlay", "store"], &["wal", "blocks", "receiver"]];
const MAX_LINES: usize = 600;
const UNSAFE_FILE: &str = "fs/map.rs";
const ENGINE_FOLDER: &str = "backend/rocks/";

/// A file of `src/`.
#[derive(Debug)]
struct Source {
    /// Path below `src/`, with `/`.
    path: String,
    /// As it is.
    text: String,
    /// With comments and literals blanked out.
    code: String,
    /// The code without its tests.
    shipped: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let code = blank_comments_and_literals(text);
        Self { path: path.into(), text: text.into(), shipped: without_tests(&code), code }
    }

    /// The module on a floor that the file belongs to.
    fn module(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        first.strip_suffix(".rs").unwrap_or(first)
    }

    fn is_door(&self) -> bool {
        self.path == "lib.rs" || self.path.ends_with("/mod.rs")
    }

    /// How many `super`s stay below the crate's root.
    fn depth(&self) -> usize {
        let folders = self.path.matches('/').count();
        if self.path.ends_with("/mod.rs") { folders.saturating_sub(1) } else { folders }
    }
}

fn floor(module: &str) -> Option<u32> {
    FLOORS.iter().find(|(_, modules)| modules.contains(&module)).map(|(floor, _)| *floor)
}

/// Every broken rule, as sentences.
fn violations(files: &[Source]) -> Vec<String> {
    let tests: Vec<String> = files.iter().flat_map(test_files).collect();
    let is_test = |file: &&Source| tests.iter().any(|start| file.path.starts_with(start.as_str()));
    let mut found = Vec::new();
    for file in files {
        found.extend(length(file));
        found.extend(unsafe_words(file));
        found.extend(engine_words(file));
    }
    for file in files.iter().filter(|file| !is_test(file)) {
        found.extend(imports(file));
        found.extend(climbs(file));
        found.extend(door(file));
    }
    found.extend(circles(files.iter().filter(|file| !is_test(file))));
    found
}

fn length(file: &Source) -> Option<String> {
    let lines = file.text.lines().count();
    (lines > MAX_LINES).then(|| format!("{}: {lines} lines; {MAX_LINES} are too many", file.path))
}

fn unsafe_words(file: &Source) -> Option<String> {
    let says = words(&file.code).any(|(_, word)| word == "unsafe");
    match (says, file.path == UNSAFE_FILE) {
        (true, false) => Some(format!("{}: only {UNSAFE_FILE} may say unsafe", file.path)),
        (false, true) => Some(format!("{}: the one unsafe file says unsafe nowhere; move the exception", file.path)),
        _ => None,
    }
}

fn engine_words(file: &Source) -> Option<String> {
    let names = words(&file.code).any(|(_, word)| word == "rocksdb");
    (names && !file.path.starts_with(ENGINE_FOLDER))
        .then(|| format!("{}: only {ENGINE_FOLDER} may name rocksdb", file.path))
}

/// Imports that go up or sideways, cross the wings, or take what `lib.rs` re-exports.
fn imports(file: &Source) -> Vec<String> {
    let from = file.module();
    // What assembles the crate sees all of it.
    if from == "lib" || from == "main" {
        return Vec::new();
    }
    let Some(own) = floor(from) else {
        return vec![format!(
            "{}: {from} has no floor; give it one in tests/house.rs and docs/architecture.md",
            file.path
        )];
    };
    let mut found = Vec::new();
    for to in paths_from("crate", &file.shipped) {
        match floor(&to) {
            _ if to == from => {}
            None => {
                found
                    .push(format!("{}: crate::{to} is no module with a floor; import from a module's door", file.path));
            }
            Some(other) if other >= own => {
                found.push(format!("{}: {from} (floor {own}) imports {to} (floor {other})", file.path));
            }
            Some(_) if crosses(from, &to) => found.push(format!("{}: {from} and {to} are of two wings", file.path)),
            Some(_) => {}
        }
    }
    found
}

fn crosses(from: &str, to: &str) -> bool {
    let wing = |module: &str| WINGS.iter().position(|wing| wing.contains(&module));
    wing(from).zip(wing(to)).is_some_and(|(a, b)| a != b)
}

/// Files of a folder that import each other, or lie between such.
fn circles<'a>(files: impl Iterator<Item = &'a Source>) -> Vec<String> {
    let mut left: Vec<_> = files.filter(|file| !file.is_door()).map(|file| (&file.path, siblings(file))).collect();
    loop {
        let imports: Vec<String> = left.iter().flat_map(|(_, imports)| imports.clone()).collect();
        let paths: Vec<&String> = left.iter().map(|(path, _)| *path).collect();
        // Whoever imports none of the others, or is imported by none of them, is in no circle with them.
        let stays =
            |(path, its): &(&String, Vec<String>)| imports.contains(path) && its.iter().any(|to| paths.contains(&to));
        let staying: Vec<_> = left.iter().filter(|file| stays(file)).cloned().collect();
        if staying.len() == left.len() {
            return left.iter().map(|(path, _)| format!("{path}: in a circle of imports")).collect();
        }
        left = staying;
    }
}

/// The files of its folder that a file imports, if they are there.
fn siblings(file: &Source) -> Vec<String> {
    let Some((folder, _)) = file.path.rsplit_once('/') else { return Vec::new() };
    paths_from("super", &file.shipped).into_iter().map(|name| format!("{folder}/{name}.rs")).collect()
}

/// `super::super` that leaves the folder on the floor.
fn climbs(file: &Source) -> Option<String> {
    let path = "super::".repeat(file.depth() + 1);
    let root = file.shipped.contains(&path) && !matches!(file.path.as_str(), "lib.rs" | "main.rs");
    root.then(|| format!("{}: {path} is the crate's root; say crate:: and import from a module's door", file.path))
}

/// What a door says besides `mod` and `use`.
fn door(file: &Source) -> Vec<String> {
    if !file.is_door() {
        return Vec::new();
    }
    let bare = without_attributes(&file.shipped);
    let defines = split_items(&bare).into_iter().filter(|item| !is_door_item(item));
    defines.map(|item| format!("{}: a door defines nothing, but says {:?}", file.path, first_line(item))).collect()
}

/// `mod`, `use`, or a module in place that holds only those, such as a prelude.
fn is_door_item(item: &str) -> bool {
    let item = match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(')').map_or(rest, |(_, rest)| rest),
        Some(rest) => rest,
        None => item,
    };
    let item = item.trim_start();
    if let Some(module) = item.strip_prefix("mod ") {
        let body = module.split_once('{').map(|(_, body)| body.trim_end().trim_end_matches('}'));
        return body.is_none_or(|body| split_items(body).into_iter().all(is_door_item));
    }
    item.starts_with("use ")
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// The items of a file: each ends at a semicolon outside of all braces, or at a brace that no semicolon follows.
fn split_items(code: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let mut rest = code.trim();
    while !rest.is_empty() {
        let mut length = item_length(rest);
        let after = rest.get(length..).unwrap_or_default();
        if after.trim_start().starts_with(';') {
            length = rest.len() - after.len() + after.find(';').unwrap_or(0) + 1;
        }
        let (item, later) = rest.split_at_checked(length).unwrap_or((rest, ""));
        items.push(item);
        rest = later.trim_start();
    }
    items
}

/// The first name of every path that starts with `start::`, the members of a group there included.
fn paths_from(start: &str, code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (place, word) in words(code) {
        if word != start || code.get(..place).is_some_and(|before| before.ends_with("::")) {
            continue;
        }
        let Some(rest) = code.get(place + word.len()..).and_then(|rest| rest.trim_start().strip_prefix("::")) else {
            continue;
        };
        match rest.trim_start().strip_prefix('{') {
            Some(group) => found.extend(group_members(group)),
            None => found.extend(words(rest).next().map(|(_, word)| word.to_owned())),
        }
    }
    found
}

/// The first name of each member of a `{…}` group, whose text starts behind the brace.
fn group_members(group: &str) -> Vec<String> {
    let mut depth = 1_usize;
    let mut expected = true;
    let mut found = Vec::new();
    for (place, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => expected = true,
            c if expected && is_word(c) => {
                found.extend(words(group.get(place..).unwrap_or_default()).next().map(|(_, word)| word.to_owned()));
                expected = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    found
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Every word with its place.
fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + code.get(rest..)?.find(is_word)?;
        let tail = code.get(start..)?;
        let length = tail.find(|c| !is_word(c)).unwrap_or(tail.len());
        rest = start + length;
        Some((start, tail.get(..length)?))
    })
}

/// Files and folders that a file declares under `#[cfg(test)]`, as starts of paths.
fn test_files(file: &Source) -> Vec<String> {
    let folder = match file.path.rsplit_once('/') {
        Some((folder, "mod.rs")) => format!("{folder}/"),
        _ if file.path == "lib.rs" => String::new(),
        _ => format!("{}/", file.path.trim_end_matches(".rs")),
    };
    let named = file.code.split("#[cfg(test)]").skip(1).filter_map(|rest| {
        let rest = rest.trim_start().strip_prefix("mod ")?;
        let (name, _) = rest.split_once(';').filter(|(name, _)| name.chars().all(is_word))?;
        Some(name.to_owned())
    });
    named.flat_map(|name| [format!("{folder}{name}.rs"), format!("{folder}{name}/")]).collect()
}

/// Drops every item under `#[cfg(test)]`.
fn without_tests(code: &str) -> String {
    let mut parts = code.split("#[cfg(test)]");
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept.push_str(part.get(item_length(part)..).unwrap_or_default());
    }
    kept
}

/// The length of the item that code starts with: to its semicolon, or to the brace that closes it.
fn item_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (place, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return place + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return place + 1,
            _ => {}
        }
    }
    code.len()
}

/// Drops `#[…]` and `#![…]`.
fn without_attributes(code: &str) -> String {
    let mut kept = String::new();
    let mut rest = code;
    while let Some((before, after)) = rest.split_once('#') {
        kept.push_str(before);
        let mut depth = 0_usize;
        let end = after.char_indices().find_map(|(place, c)| {
            match c {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            (c == ']' && depth == 0).then_some(place + 1)
        });
        rest = end.and_then(|end| after.get(end..)).unwrap_or_default();
    }
    kept + rest
}

/// Replaces comments and the inside of string and character literals by spaces; lines stay where they are.
fn blank_comments_and_literals(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = comment(rest).or_else(|| literal(rest));
        // A word is taken whole, so that the `r` at its end starts no raw string.
        let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (taken, blank) = match length {
            Some(length) => (length, true),
            None if word > 0 => (word, false),
            None => (first.len_utf8(), false),
        };
        let (now, later) = rest.split_at_checked(taken).unwrap_or((rest, ""));
        if blank {
            out.extend(now.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        } else {
            out.push_str(now);
        }
        rest = later;
    }
    out
}

/// The length of the comment that the text starts with.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    text.strip_prefix("/*")?;
    let mut depth = 0_usize;
    let mut place = 0;
    while let Some(rest) = text.get(place..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            place += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            place += 2;
        } else {
            place += rest.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    Some(place)
}

/// The length of the string or character literal that the text starts with.
fn literal(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r", "b", "c"].into_iter().find(|prefix| text.starts_with(prefix)).unwrap_or("");
    let body = text.get(prefix.len()..)?;
    if prefix.ends_with('r') {
        let hashes = body.find(|c| c != '#')?;
        body.get(hashes..)?.strip_prefix('"')?;
        let end = format!("\"{}", "#".repeat(hashes));
        let inside = body.get(hashes + 1..)?;
        let length = inside.find(&end).map_or(inside.len(), |place| place + end.len());
        return Some(prefix.len() + hashes + 1 + length);
    }
    let quote = body.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    // A quote that no second one follows after one character, or an escape, is a lifetime.
    let mut inside = body.char_indices().skip(1);
    let second = inside.next()?.1;
    if quote == '\'' && second != '\\' && body.chars().nth(2) != Some('\'') {
        return None;
    }
    let mut escaped = false;
    for (place, c) in body.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(prefix.len() + place + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// All Rust files below a directory.
fn rust_files(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(rust_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn sources() -> io::Result<Vec<Source>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    for path in rust_files(&root)? {
        let name = path.strip_prefix(&root).map_err(io::Error::other)?.to_string_lossy().replace('\\', "/");
        sources.push(Source::new(&name, &fs::read_to_string(&path)?));
    }
    Ok(sources)
}

#[test]
fn the_sources_keep_the_rules() {
    let files = sources().unwrap();
    assert!(files.len() > 10, "only {} files were found", files.len());
    let found = violations(&files);
    assert!(found.is_empty(), "{} broken rules:\n{}", found.len(), found.join("\n"));
}

#[cfg(test)]
mod planted {
    use super::*;

    /// What is found in one file.
    fn found(path: &str, text: &str) -> Vec<String> {
        violations(&[Source::new(path, text)])
    }

    #[track_caller]
    fn clean(path: &str, text: &str) {
        assert_eq!(found(path, text), [""; 0]);
    }

    #[track_caller]
    fn caught(path: &str, text: &str, saying: &str) {
        let found = found(path, text);
        assert!(found.len() == 1 && found[0].contains(saying), "{found:?}");
    }

    #[test]
    fn an_import_upwards_is_caught_and_one_downwards_is_not() {
        clean(
            "store/load.rs",
            "use crate::run::Reader;\nuse crate::{fs::Disk, entry::{Name, FamilyId}};\nuse crate::store::scan;",
        );
        caught("run/reader.rs", "use crate::store::View;", "run (floor 30) imports store (floor 50)");
        caught("run/reader.rs", "fn f(x: &crate::overlay::Table) {}", "imports overlay");
        caught("error.rs", "use crate::entry::Name;", "error (floor 11) imports entry (floor 14)");
        caught("fs/real.rs", "use crate::{error::Result, run::{self, Reader}};", "fs (floor 20) imports run");
    }

    #[test]
    fn siblings_that_import_each_other_are_caught() {
        for (from, to) in [("run", "catalog"), ("checkpoint", "backend"), ("catalog", "wal"), ("overlay", "blocks")] {
            caught(&format!("{from}/x.rs"), &format!("use crate::{to}::X;"), to);
            caught(&format!("{to}/x.rs"), &format!("use crate::{from}::X;"), from);
        }
    }

    #[test]
    fn files_of_a_folder_that_import_each_other_are_caught() {
        let files = |texts: [&str; 4]| -> Vec<Source> {
            let paths = ["run/page.rs", "run/reader.rs", "run/verify.rs", "run/writer.rs"];
            paths.iter().zip(texts).map(|(path, text)| Source::new(path, text)).collect()
        };
        let straight = ["", "use super::page::Page;", "use super::{page, reader::Run};", "use super::reader::Run;"];
        assert_eq!(violations(&files(straight)), [""; 0]);
        let round = ["fn f(x: super::verify::Walk) {}", straight[1], "use super::reader::Run;", straight[3]];
        let found = violations(&files(round));
        assert_eq!(found, ["page", "reader", "verify"].map(|name| format!("run/{name}.rs: in a circle of imports")));
        // In their tests they may, and a folder further up is another matter.
        let tests = [
            "#[cfg(test)]\nmod tests { use super::super::verify::x; use super::verify; }",
            straight[1],
            straight[2],
            "",
        ];
        assert_eq!(violations(&files(tests)), [""; 0]);
    }

    #[test]
    fn an_import_across_the_wings_is_caught_and_a_meeting_in_the_job_is_not() {
        caught("store/x.rs", "use crate::wal::Log;", "two wings");
        caught("receiver/x.rs", "use crate::overlay::Table;", "two wings");
        clean("job/run.rs", "use crate::store::Provider;\nuse crate::receiver::Handler;");
    }

    #[test]
    fn an_import_of_what_the_root_exports_is_caught() {
        caught("store/x.rs", "use crate::Error;", "crate::Error is no module");
        caught("store/x.rs", "use crate::{error::Result, Version};", "crate::Version is no module");
        caught("store/load/x.rs", "use super::super::super::Error;", "the crate's root");
        caught("codec.rs", "use super::Error;", "the crate's root");
        clean("backend/rocks/x.rs", "use super::super::contract::Index;");
        caught("attic/x.rs", "", "attic has no floor");
    }

    #[test]
    fn a_door_that_defines_something_is_caught() {
        clean(
            "run/mod.rs",
            "//! Runs.\n#![expect(dead_code, reason = \"]\")]\nmod page;\n#[cfg(test)]\nmod tests { fn f() {} }\n\
             pub(crate) mod merge;\npub mod prelude {\n    pub use crate::run::{Page, PageError};\n    pub use crate::run::X;\n}\npub use page::{Page, PageError};\npub(crate) use merge::Merge;\n",
        );
        caught("run/mod.rs", "mod page;\npub struct Run { pages: u64 }\n", "pub struct Run");
        caught("run/mod.rs", "mod page;\nmod inner { fn f() {} }\nuse page::{A, B};\n", "mod inner");
        caught("run/mod.rs", "use page::{A, B};\npub mod prelude { pub use x::Y; struct Z; }\n", "mod prelude");
        caught("lib.rs", "mod run;\nconst X: u8 = 1;\n", "const X");
        clean("run/page.rs", "pub struct Page { x: u8 }");
    }

    #[test]
    fn a_long_file_is_caught() {
        caught("run/page.rs", &"//\n".repeat(MAX_LINES + 1), "601 lines");
        clean("run/page.rs", &"//\n".repeat(MAX_LINES));
    }

    #[test]
    fn a_second_unsafe_file_is_caught_in_tests_too() {
        clean("fs/map.rs", "#![expect(unsafe_code)]\nunsafe { x() }");
        caught("run/page.rs", "#[cfg(test)]\nmod tests { fn f() { unsafe { x() } } }", "only fs/map.rs");
        caught("fs/map.rs", "fn f() {}", "move the exception");
        clean("run/page.rs", "// unsafe\nconst X: &str = \"unsafe\"; fn unsafe_code() {}");
    }

    #[test]
    fn a_name_of_the_engine_outside_its_folder_is_caught() {
        clean("backend/rocks/engine.rs", "use rocksdb::DB;");
        caught("backend/memory.rs", "use rocksdb::DB;", "may name rocksdb");
        caught("store/x.rs", "fn f(db: &rocksdb::DB) {}", "may name rocksdb");
        clean("backend/mod.rs", "#[cfg(feature = \"rocksdb\")]\nmod rocks;");
    }

    #[test]
    fn tests_may_look_upwards_in_place_and_in_files_of_their_own() {
        clean("run/page.rs", "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::store::X;\n    fn f() { { } }\n}\n");
        caught("run/page.rs", "#[cfg(test)]\nmod tests { use crate::store::X; }\nuse crate::overlay::Y;", "overlay");
        let door = Source::new("run/mod.rs", "mod page;\n#[cfg(test)]\nmod golden;\n");
        let golden = Source::new("run/golden.rs", "use crate::store::X;");
        assert_eq!(violations(&[door, golden]), [""; 0]);
    }

    #[test]
    fn comments_and_literals_hide_nothing_and_reveal_nothing() {
        clean(
            "run/page.rs",
            "/* use crate::store::X; /* nested */ */\n// crate::store::X\nconst X: &str = r#\"crate::store::X \"\"#;",
        );
        caught("run/page.rs", "fn f<'a>(x: &'a str, y: char) { y == '\"' || y == '\\''; crate::store::x() }", "store");
        caught("run/page.rs", "const B: &[u8] = b\"\\\"\"; use crate::store::X;", "store");
        caught("run/page.rs", "let for_r = 1; let x = \"\"; use crate::store::X;", "store");
    }
}
