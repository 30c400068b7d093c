//! The command line `alluvium`; everything it does is in the library's `cli`, where tests reach it.

use std::io::{IsTerminal, stderr, stdout};
use std::process::ExitCode;

use alluvium::cli::{Console, run};

#[expect(clippy::disallowed_types, reason = "`run` flushes it, and reports what that meets")]
fn main() -> ExitCode {
    let mut out = std::io::BufWriter::new(stdout().lock());
    let mut err = stderr();
    let is_watched = err.is_terminal();
    let exit = run(std::env::args_os(), &mut Console { out: &mut out, err: &mut err, is_watched });
    ExitCode::from(exit.code())
}
