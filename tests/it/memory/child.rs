//! A process for one case, which tells its numbers.

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process::Command;

use super::cases;

const CASE: &str = "ALLUVIUM_MEMORY_CASE";
const PLACE: &str = "ALLUVIUM_MEMORY_PLACE";
const MARK: &str = "number: ";

/// What a case has told: names and numbers.
pub(super) type Numbers = BTreeMap<String, u64>;

/// Tells a number to the parent.
pub(super) fn tell(name: &str, number: u64) {
    println!("{MARK}{name} {number}");
}

/// Runs a case in a process of its own, with `place` as its directory.
pub(super) fn run(case: &str, place: &Path) -> Numbers {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", "memory::child::child_main", "--nocapture", "--test-threads=1"]);
    let output = command.env(CASE, case).env(PLACE, place).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{case}: {text}\n{}", String::from_utf8_lossy(&output.stderr));
    // The test runner writes its own words before the first one.
    let told = text.lines().filter_map(|line| line.split_once(MARK)?.1.rsplit_once(' '));
    let numbers: Numbers = told.map(|(name, number)| (name.to_owned(), number.parse().unwrap())).collect();
    println!("{case}: {numbers:?}");
    numbers
}

/// The child's side; nothing where it is not asked for a case.
#[test]
fn child_main() {
    let (Ok(case), Ok(place)) = (env::var(CASE), env::var(PLACE)) else { return };
    println!();
    cases::run(&case, Path::new(&place));
}
