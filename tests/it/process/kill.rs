//! `kill -9` at random moments, again and again, with the work directory tampered with in between.

use std::hint::spin_loop;
use std::path::PathBuf;

use alluvium::ErrorKind;

use super::check::check;
use super::child::{Ended, Running};
use super::games::{Game, copy_tree};
use super::model::{Dice, Line, Op};
use super::writer::{Ending, Job};

/// At least 50 kills; `ALLUVIUM_KILLS` makes a campaign of it.
const ROUNDS: usize = 56;

/// What was seen, so that the test can tell that it tested something.
#[derive(Debug, Default)]
struct Tally {
    kills: usize,
    while_opening: usize,
    in_a_step: usize,
    /// Commits that nobody was told of, and that were there.
    indeterminate: usize,
    /// Damage of the index that showed as an error before it was mended.
    showed: usize,
}

#[test]
fn a_writer_killed_at_random_moments_loses_nothing_and_mixes_nothing_whatever_becomes_of_its_index() {
    let mut dice = Dice::of_test("kill");
    let rounds = std::env::var("ALLUVIUM_KILLS").map_or(ROUNDS, |text| text.parse().unwrap());
    let all = tempfile::tempdir().unwrap();
    let place = |name: &str| all.path().join(name);
    let mut tally = Tally::default();
    let other = Job { checkpoint: place("other"), work: Some(place("other work")), ..job(&mut dice, "clcwdksclcc") };
    let ended = Running::start(&other).end();
    assert!(ended.status.success(), "{ended:#?}");
    let mut line = Line::new();
    // Scribbled bits may lie where only a later compaction reads: the writer then meets them in its upkeep.
    let mut is_scribbled = false;
    for round in 0..rounds {
        let plan = Op::plan(&mut dice, 400);
        let job = Job { checkpoint: place("checkpoint"), work: Some(place("work")), ..job(&mut dice, &plan) };
        let ended = kill_somewhere(&job, &mut dice);
        tally.note(&ended, is_scribbled);
        let lines = ended.lines(&line);
        // A writer that was killed at once may not have made its directory.
        if dice.roll(4) == 0 && place("work").exists() {
            copy_tree(&place("work"), &place("older"));
        }
        let game = Game::ALL[round % Game::ALL.len()];
        is_scribbled |= game == Game::Scribble;
        let played = game.play(&place("work"), &place("older"), &place("other work"), &mut dice);
        println!("round {round}: {} events, then {played}; {} or {}", ended.events.len(), lines[0].len(), lines.len());
        // Half of the time the next writer meets the work directory as the killed one has left it.
        let looked_at = if dice.roll(2) == 0 { place("work") } else { place("looked at") };
        if place("work").exists() && looked_at != place("work") {
            copy_tree(&place("work"), &looked_at);
        }
        let look = Job { work: Some(looked_at), ..job };
        let found = check(&look, &lines, &mut dice).or_else(|error| {
            assert!(is_scribbled, "{game:?}: {error:?}");
            assert!(matches!(error.kind(), ErrorKind::Engine | ErrorKind::Corrupt { .. }), "{error:?}");
            tally.showed += 1;
            check(&look, &lines, &mut dice) // found damaged, so begun afresh
        });
        let found = found.unwrap_or_else(|error| panic!("{played}: {error:?}"));
        tally.indeterminate += usize::from(found != lines[0]);
        line = found;
        if game == Game::Scribble && place("work") != *look.work.as_ref().unwrap() {
            // The writer itself is not to meet what this test has seen already.
            copy_tree(&look.work.unwrap(), &place("work"));
        }
    }
    println!("{} versions after {tally:?}", line.len());
    assert_eq!(tally.kills, rounds);
    assert!(tally.in_a_step > rounds / 8 && tally.while_opening > 0, "{tally:?}");
}

impl Tally {
    fn note(&mut self, ended: &Ended, is_scribbled: bool) {
        use std::os::unix::process::ExitStatusExt;
        ended.assert_no_panic();
        assert_eq!(ended.status.signal(), Some(9), "{ended:#?}");
        let failures = ended.failures();
        assert!(failures.is_empty() || (is_scribbled && failures.iter().all(|kind| *kind == "Engine")), "{ended:#?}");
        self.showed += usize::from(!failures.is_empty());
        self.kills += 1;
        self.in_a_step += usize::from(ended.died_in_a_step());
        self.while_opening += usize::from(matches!(ended.events.last(), Some(super::child::Event::Open)));
    }
}

fn job(dice: &mut Dice, plan: &str) -> Job {
    Job { checkpoint: PathBuf::new(), work: None, run: dice.next(), plan: plan.to_owned(), ending: Ending::Exit }
}

/// Waits for one of the first things that a writer tells, then a moment, then kills it.
fn kill_somewhere(job: &Job, dice: &mut Dice) -> Ended {
    let mut running = Running::start(job);
    let told = if dice.roll(4) == 0 { dice.roll(4) } else { dice.roll(40) };
    for _ in 0..told {
        assert!(running.next().is_some(), "{running:#?}");
    }
    (0..dice.roll(200_000)).for_each(|_| spin_loop());
    running.kill()
}
