//! The same tables by another way: one plain pass that collects the flights, then arithmetic over the collected.
//!
//! It shares no state logic with [`job`](crate::job): each aircraft's legs are laid out as a list and its chains found
//! by cutting that list, instead of being carried along row by row.

use std::collections::BTreeMap;
use std::fmt::Debug;

use serde::de::DeserializeOwned;

use crate::Failure;
use crate::input::Flight;
use crate::job::{Aircraft, Carrier, Chain, LATE, ROTATION, Route, Table, decode, route_key};

/// All tables, whole, in memory.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tables {
    pub(crate) aircraft: BTreeMap<String, Aircraft>,
    pub(crate) route: BTreeMap<String, Route>,
    pub(crate) carrier: BTreeMap<String, Carrier>,
}

impl Tables {
    /// Takes in one entry of a stored table.
    pub(crate) fn insert(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        match table {
            Table::Aircraft => insert(&mut self.aircraft, key, value),
            Table::Route => insert(&mut self.route, key, value),
            Table::Carrier => insert(&mut self.carrier, key, value),
        }
    }

    /// Where these tables differ from the `expected` ones: nothing, or a text that names the first differences.
    pub(crate) fn differences(&self, expected: &Self) -> Option<String> {
        let tables = [
            compare(Table::Aircraft, &self.aircraft, &expected.aircraft),
            compare(Table::Route, &self.route, &expected.route),
            compare(Table::Carrier, &self.carrier, &expected.carrier),
        ];
        tables.into_iter().flatten().reduce(|text, more| text + &more)
    }
}

fn insert<T: DeserializeOwned>(map: &mut BTreeMap<String, T>, key: &[u8], value: &[u8]) -> Result<(), Failure> {
    let key = String::from_utf8(key.to_vec()).map_err(|e| Failure::new(format!("a key is not text: {e}")))?;
    let value = decode(value).map_err(|e| Failure::new(format!("{key}: {e}")))?;
    match map.insert(key.clone(), value) {
        None => Ok(()),
        Some(_) => Err(Failure::new(format!("the key {key} came twice in one scan"))),
    }
}

fn compare<T: Debug + PartialEq>(
    table: Table,
    found: &BTreeMap<String, T>,
    expected: &BTreeMap<String, T>,
) -> Option<String> {
    const SHOWN: usize = 10;
    let missing = expected.keys().filter(|key| !found.contains_key(*key));
    let differing = found.iter().filter(|(key, value)| expected.get(*key) != Some(value)).map(|(key, _)| key);
    let keys: Vec<&String> = differing.chain(missing).collect();
    let first = keys.first()?;
    let shown = keys.iter().take(SHOWN);
    let shown = shown.map(|key| format!("  {key}\n  - {:?}\n  + {:?}\n", expected.get(*key), found.get(*key)));
    let title = format!("{}: {} entries differ, from {first} on\n", table.name(), keys.len());
    Some(title + &shown.collect::<String>())
}

/// Computes all tables in one pass over the flights.
pub(crate) fn single_pass(flights: impl Iterator<Item = Result<Flight, Failure>>) -> Result<Tables, Failure> {
    let mut fleet: BTreeMap<String, Vec<Flight>> = BTreeMap::new();
    let mut tables = Tables::default();
    for flight in flights {
        let flight = flight?;
        let departed = u32::from(flight.departure_delay.is_some());
        let departure_delay = i64::from(flight.departure_delay.unwrap_or(0));

        let route = tables.route.entry(route_key(&flight)).or_default();
        route.departed += departed;
        route.cancelled += 1 - departed;
        route.departure_delay_minutes += departure_delay;

        let carrier = tables.carrier.entry(flight.carrier.clone()).or_default();
        carrier.departed += departed;
        carrier.cancelled += 1 - departed;
        carrier.lost += u32::from(flight.departure_delay.is_some() && flight.arrival_delay.is_none());
        carrier.nameless += u32::from(flight.tail.is_none());
        carrier.departure_delay_minutes += departure_delay;
        carrier.arrival_delay_minutes += i64::from(flight.arrival_delay.unwrap_or(0));
        carrier.miles += u64::from(flight.miles) * u64::from(departed);

        if let Some(tail) = flight.tail.clone() {
            fleet.entry(tail).or_default().push(flight);
        }
    }
    tables.aircraft = fleet.into_iter().map(|(tail, flights)| (tail, summary(&flights))).collect();
    Ok(tables)
}

/// Whether the delay of the first flight is handed on to the second.
fn hands_on(first: &Flight, second: &Flight) -> bool {
    first.departure_delay.is_some()
        && first.arrival_delay.is_some_and(|delay| delay >= LATE)
        && second.departure_delay.is_some_and(|delay| delay >= LATE)
        && second.at - first.at <= ROTATION
}

fn chain(flights: &[Flight]) -> Chain {
    let handed = flights.windows(2).map(|pair| match pair {
        [first, second] => first.arrival_delay.min(second.departure_delay).unwrap_or(0).unsigned_abs(),
        _ => 0,
    });
    Chain {
        legs: u32::try_from(flights.len()).unwrap_or(u32::MAX),
        minutes: handed.sum(),
        since: flights.first().map_or(0, |first| first.at),
    }
}

/// What the flights of one aircraft, in event order, amount to.
fn summary(flights: &[Flight]) -> Aircraft {
    let legs: Vec<&Flight> = flights.iter().filter(|flight| flight.departure_delay.is_some()).collect();
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let last = flights.last().filter(|flight| flight.departure_delay.is_some());
    let chains = flights.chunk_by(hands_on);
    let longest = chains
        .clone()
        .map(chain)
        .filter(|chain| chain.legs > 1)
        .fold(Chain::default(), |best, chain| if chain.is_longer_than(&best) { chain } else { best });
    let ends_late = last.is_some_and(|flight| flight.arrival_delay.is_some_and(|delay| delay >= LATE));
    Aircraft {
        position: legs.last().filter(|leg| leg.arrival_delay.is_some()).map(|leg| leg.dest.clone()),
        last_departure: last.map(|flight| flight.at),
        last_arrival_delay: last.and_then(|flight| flight.arrival_delay),
        legs: count(legs.len()),
        cancelled: count(flights.len() - legs.len()),
        lost: count(legs.iter().filter(|leg| leg.arrival_delay.is_none()).count()),
        unseen_returns: count(
            legs.windows(2)
                .filter(|pair| match pair {
                    [first, second] => first.arrival_delay.is_some() && first.dest != second.origin,
                    _ => false,
                })
                .count(),
        ),
        late_minutes: legs.iter().filter_map(|leg| u64::try_from(leg.arrival_delay?).ok()).sum(),
        current: chains.last().filter(|_| ends_late).map(chain).unwrap_or_default(),
        longest,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::job;
    use crate::job::tests::{Maps, flight};

    fn stored(maps: &Maps) -> Tables {
        let mut tables = Tables::default();
        maps.0.iter().for_each(|((table, key), value)| tables.insert(*table, key, value).unwrap());
        tables
    }

    fn delay() -> impl Strategy<Value = Option<i32>> {
        prop_oneof![Just(None), (-30..60).prop_map(Some)]
    }

    fn any_flight() -> impl Strategy<Value = Flight> {
        let names = (0..2_usize, 0..3_usize, 0..3_usize, 0..3_usize);
        (names, 0..1500_u32, delay(), delay()).prop_map(|((carrier, tail, origin, dest), after, departure, arrival)| {
            Flight {
                carrier: ["UA", "B6"][carrier].into(),
                tail: [None, Some("N1"), Some("N2")][tail].map(str::to_owned),
                origin: ["EWR", "JFK", "LGA"][origin].into(),
                dest: ["IAH", "EWR", "JFK"][dest].into(),
                // A flight that never departed can't have arrived.
                ..flight(after, departure, departure.and(arrival))
            }
        })
    }

    proptest! {
        #[test]
        fn the_job_row_by_row_agrees_with_the_single_pass(mut flights in prop::collection::vec(any_flight(), 0..60)) {
            let mut now = 0;
            for flight in &mut flights {
                now += flight.at;
                flight.at = now;
            }
            let mut maps = Maps::default();
            for flight in &flights {
                job::apply(flight, &mut maps).unwrap();
            }
            let expected = single_pass(flights.into_iter().map(Ok)).unwrap();
            prop_assert_eq!(stored(&maps).differences(&expected), None);
        }
    }

    #[test]
    fn a_wrong_a_missing_and_an_extra_entry_are_each_reported() {
        let expected = single_pass([Ok(flight(0, Some(30), Some(30)))].into_iter()).unwrap();
        let copy = || single_pass([Ok(flight(0, Some(30), Some(30)))].into_iter()).unwrap();
        assert_eq!(copy().differences(&expected), None);
        let mut wrong = copy();
        wrong.carrier.get_mut("UA").unwrap().miles += 1;
        let mut missing = copy();
        missing.aircraft.clear();
        let mut extra = copy();
        extra.route.insert("A-B-00".into(), Route::default());
        for (tables, name) in [(wrong, "carrier"), (missing, "aircraft"), (extra, "route")] {
            let text = tables.differences(&expected).unwrap();
            assert!(text.starts_with(name), "{text}");
        }
    }
}
