//! From arguments to an exit code.

use std::ffi::OsString;

use clap::Parser;
use clap::error::ErrorKind as ParseErrorKind;

use super::args::{Arguments, Command};
use super::console::Console;
use super::failure::{Exit, Failure, Outcome, Subject};
use super::{data, inspect, log, maintain, stats, upkeep};

/// Runs the tool with `arguments`, the program's name first. Reads and writes what they name, and nothing else.
pub fn run(arguments: impl IntoIterator<Item = OsString>, console: &mut Console<'_>) -> Exit {
    let command = match Arguments::try_parse_from(arguments) {
        Ok(arguments) => arguments.command,
        Err(error) => return answer(&error, console),
    };
    let subject = Subject::of(&command);
    let outcome = perform(command, console).and_then(|exit| match console.out.flush() {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(exit),
        flushed => Ok(flushed.map(|()| exit)?),
    });
    outcome.unwrap_or_else(|failure| {
        report(&failure, &subject, console);
        failure.exit()
    })
}

fn perform(command: Command, console: &mut Console<'_>) -> Outcome<Exit> {
    match command {
        Command::Ls(args) => inspect::ls(&args, console),
        Command::Versions(args) => inspect::versions(&args, console),
        Command::Get(args) => data::get(&args, console),
        Command::Scan(args) => data::scan(&args, console),
        Command::Changes(args) => data::changes(&args, console),
        Command::Diff(args) => data::diff(&args, console),
        Command::Stats(args) => stats::stats(&args, console),
        Command::Verify(args) => upkeep::verify(&args, console),
        Command::Repair(args) => maintain::repair(&args, console),
        Command::Compact(args) => maintain::compact(&args, console),
        Command::Retire(args) => maintain::retire(&args, console),
        Command::Export(args) => upkeep::export(&args, console),
        Command::Import(args) => upkeep::import(&args, console),
        Command::Log { command } => log::log(&command, console),
    }
}

/// Help and the version were asked for; everything else is wrong.
fn answer(error: &clap::Error, console: &mut Console<'_>) -> Exit {
    let text = error.render().to_string();
    match error.kind() {
        ParseErrorKind::DisplayHelp | ParseErrorKind::DisplayVersion => {
            let written = write!(console.out, "{text}").and_then(|()| console.out.flush());
            let Err(error) = written else { return Exit::Done };
            let failure = Failure::Output(error);
            if let Some(text) = failure.text() {
                _ = console.note(&format!("error: {text}")); // whoever cannot be told has the exit code
            }
            failure.exit()
        }
        _ => {
            _ = console.note(text.trim_end()); // whoever cannot be told has the exit code
            Exit::Usage
        }
    }
}

fn report(failure: &Failure, subject: &Subject, console: &mut Console<'_>) {
    if let Some(text) = failure.text() {
        _ = console.note(&format!("error: {text}")); // whoever cannot be told has the exit code
    }
    if let Some(hint) = failure.hint(subject) {
        _ = console.note(&format!("hint: {hint}"));
    }
}
