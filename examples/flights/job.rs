//! What the job keeps, and what one flight changes in it.
//!
//! Three tables, one column family each:
//!
//! | family | key | value |
//! |---|---|---|
//! | `aircraft` | tail number | [`Aircraft`]: where it is, what it flew, its delay chains |
//! | `route` | `origin-dest-hour` | [`Route`]: flights and their mean delay at departure, by scheduled local hour |
//! | `carrier` | two-letter code | [`Carrier`]: totals, and how many values were missing |
//!
//! # Delay chains
//! A delay is **handed on** from one leg of an aircraft to its next when the first arrived at least [`LATE`] minutes late,
//! the next departed at least [`LATE`] minutes late, and at most [`ROTATION`] minutes lie between the two departures (an
//! aircraft that stood longer had a night to recover). What is handed on is the smaller of both delays. A **chain** is a run of
//! legs each of which hands its delay to the next; it has a number of legs and a sum of minutes. The longest chain has the most
//! legs, then the most minutes, then comes first.
//!
//! The data knows only departures from New York. The flight back is not in it, so "next leg" means the next one that is:
//! a delay passes through the flights between them unseen. How many legs start elsewhere than the last one ended is counted.
//!
//! # Missing values
//! - No tail number: the flight counts for its route and carrier, and for no aircraft.
//! - No departure: cancelled. It counts as such everywhere, moves no aircraft, and ends its chain: nobody waits for it any more.
//! - Departure but no arrival delay: diverted or not recorded. It is a leg; where the aircraft is now is unknown, and the
//!   chain ends, because it can't be known whether it arrived late.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Failure;
use crate::input::{Flight, Minute};

/// From how many minutes on a departure or an arrival is late.
pub(crate) const LATE: i32 = 15;
/// The most minutes between two departures of an aircraft that can hand a delay on: a trip to the west coast and back.
pub(crate) const ROTATION: Minute = 16 * 60;

/// The tables of the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Aircraft,
    Route,
    Carrier,
}

impl Table {
    pub(crate) const ALL: [Self; 3] = [Self::Aircraft, Self::Route, Self::Carrier];

    /// The name of its column family.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Aircraft => "aircraft",
            Self::Route => "route",
            Self::Carrier => "carrier",
        }
    }
}

/// Where the job reads and writes its tables: a transaction, or a plain map in tests.
pub(crate) trait State {
    fn get(&self, table: Table, key: &[u8]) -> Result<Option<impl AsRef<[u8]>>, Failure>;
    fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Failure>;
}

/// A run of legs that hand a delay on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Chain {
    pub(crate) legs: u32,
    /// The sum of what was handed on.
    pub(crate) minutes: u32,
    /// When its first leg departed.
    pub(crate) since: Minute,
}

impl Chain {
    /// Whether this chain beats `other`; equal ones don't, so that the first stays.
    pub(crate) fn is_longer_than(&self, other: &Self) -> bool {
        (self.legs, self.minutes) > (other.legs, other.minutes)
    }
}

/// What is known of one aircraft.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Aircraft {
    /// The airport where its last leg ended; `None` after a leg that isn't known to have arrived.
    pub(crate) position: Option<String>,
    /// When its last leg departed; `None` before the first and after a cancelled one.
    pub(crate) last_departure: Option<Minute>,
    /// How late its last leg arrived, if that is known.
    pub(crate) last_arrival_delay: Option<i32>,
    pub(crate) legs: u32,
    pub(crate) cancelled: u32,
    /// Legs without a known arrival.
    pub(crate) lost: u32,
    /// Legs that started elsewhere than where the one before ended: what flew between them isn't in the data.
    pub(crate) unseen_returns: u32,
    /// The sum of all late arrivals.
    pub(crate) late_minutes: u64,
    /// The chain that its last leg belongs to; no legs if that one didn't arrive late.
    pub(crate) current: Chain,
    /// Its longest chain of at least two legs.
    pub(crate) longest: Chain,
}

impl Aircraft {
    fn record(&mut self, flight: &Flight) {
        let Some(departure_delay) = flight.departure_delay else {
            self.cancelled += 1;
            self.last_departure = None;
            self.last_arrival_delay = None;
            self.current = Chain::default();
            return;
        };
        self.extend_chain(flight, departure_delay);
        self.legs += 1;
        if self.position.as_ref().is_some_and(|position| *position != flight.origin) {
            self.unseen_returns += 1;
        }
        self.position = flight.arrival_delay.map(|_| flight.dest.clone());
        self.lost += u32::from(flight.arrival_delay.is_none());
        self.late_minutes += u64::from(minutes(flight.arrival_delay.unwrap_or(0)));
        self.last_departure = Some(flight.at);
        self.last_arrival_delay = flight.arrival_delay;
    }

    fn extend_chain(&mut self, flight: &Flight, departure_delay: i32) {
        let in_time = self.last_departure.is_some_and(|last| flight.at.saturating_sub(last) <= ROTATION);
        let handed = self.last_arrival_delay.filter(|late| *late >= LATE && departure_delay >= LATE && in_time);
        self.current = match handed {
            Some(arrival_delay) => Chain {
                legs: self.current.legs + 1,
                minutes: self.current.minutes + minutes(arrival_delay.min(departure_delay)),
                since: self.current.since,
            },
            None => Chain { legs: 1, minutes: 0, since: flight.at },
        };
        if self.current.legs > 1 && self.current.is_longer_than(&self.longest) {
            self.longest = self.current;
        }
        // A leg that isn't late hands nothing on, and one that follows starts anew.
        if flight.arrival_delay.is_none_or(|delay| delay < LATE) {
            self.current = Chain::default();
        }
    }
}

/// Minutes late; nothing for those that are early.
fn minutes(delay: i32) -> u32 {
    u32::try_from(delay).unwrap_or(0)
}

/// The flights of one route in one scheduled local hour of the day.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Route {
    pub(crate) departed: u32,
    pub(crate) cancelled: u32,
    /// The sum of all delays at departure, early ones negative. The mean is exact, because only sums are kept.
    pub(crate) departure_delay_minutes: i64,
}

impl Route {
    fn record(&mut self, flight: &Flight) {
        match flight.departure_delay {
            Some(delay) => {
                self.departed += 1;
                self.departure_delay_minutes += i64::from(delay);
            }
            None => self.cancelled += 1,
        }
    }
}

/// The totals of one carrier.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Carrier {
    pub(crate) departed: u32,
    pub(crate) cancelled: u32,
    /// Departed, but without a known arrival delay.
    pub(crate) lost: u32,
    /// Flights without a tail number.
    pub(crate) nameless: u32,
    pub(crate) departure_delay_minutes: i64,
    pub(crate) arrival_delay_minutes: i64,
    /// Miles of the flights that departed.
    pub(crate) miles: u64,
}

impl Carrier {
    fn record(&mut self, flight: &Flight) {
        self.nameless += u32::from(flight.tail.is_none());
        let Some(departure_delay) = flight.departure_delay else {
            self.cancelled += 1;
            return;
        };
        self.departed += 1;
        self.departure_delay_minutes += i64::from(departure_delay);
        self.miles += u64::from(flight.miles);
        match flight.arrival_delay {
            Some(delay) => self.arrival_delay_minutes += i64::from(delay),
            None => self.lost += 1,
        }
    }
}

/// The key of a route in its table.
pub(crate) fn route_key(flight: &Flight) -> String {
    format!("{}-{}-{:02}", flight.origin, flight.dest, flight.hour)
}

/// Takes one flight into all three tables.
pub(crate) fn apply(flight: &Flight, state: &mut impl State) -> Result<(), Failure> {
    if let Some(tail) = &flight.tail {
        update(state, Table::Aircraft, tail, |aircraft: &mut Aircraft| aircraft.record(flight))?;
    }
    update(state, Table::Route, &route_key(flight), |route: &mut Route| route.record(flight))?;
    update(state, Table::Carrier, &flight.carrier, |carrier: &mut Carrier| carrier.record(flight))
}

fn update<T: Default + Serialize + DeserializeOwned>(
    state: &mut impl State,
    table: Table,
    key: &str,
    change: impl FnOnce(&mut T),
) -> Result<(), Failure> {
    let mut value = match state.get(table, key.as_bytes())? {
        Some(bytes) => decode(bytes.as_ref())?,
        None => T::default(),
    };
    change(&mut value);
    state.put(table, key.as_bytes(), &encode(&value)?)
}

/// The value as it lies in the store.
pub(crate) fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Failure> {
    bincode::serde::encode_to_vec(value, bincode::config::standard()).map_err(|e| Failure::new(e.to_string()))
}

/// Reads a value back; bytes left over are an error.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    match bincode::serde::decode_from_slice(bytes, bincode::config::standard()) {
        Ok((value, used)) if used == bytes.len() => Ok(value),
        Ok(_) => Err(Failure::new("a value has bytes left over")),
        Err(e) => Err(Failure::new(format!("a value can't be decoded: {e}"))),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// The store's stand-in.
    #[derive(Default)]
    pub(crate) struct Maps(pub(crate) BTreeMap<(Table, Vec<u8>), Vec<u8>>);

    impl State for Maps {
        fn get(&self, table: Table, key: &[u8]) -> Result<Option<impl AsRef<[u8]>>, Failure> {
            Ok(self.0.get(&(table, key.to_vec())))
        }

        fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<(), Failure> {
            self.0.insert((table, key.to_vec()), value.to_vec());
            Ok(())
        }
    }

    pub(crate) fn flight(at: Minute, departure: Option<i32>, arrival: Option<i32>) -> Flight {
        Flight {
            at,
            carrier: "UA".into(),
            tail: Some("N1".into()),
            origin: "EWR".into(),
            dest: "IAH".into(),
            hour: 5,
            departure_delay: departure,
            arrival_delay: arrival,
            miles: 1400,
        }
    }

    fn aircraft(flights: &[Flight]) -> Aircraft {
        let mut aircraft = Aircraft::default();
        for flight in flights {
            aircraft.record(flight);
        }
        aircraft
    }

    #[test]
    fn a_delay_is_handed_from_leg_to_leg_and_the_longest_chain_stays() {
        let late = |at| flight(at, Some(30), Some(20));
        let found = aircraft(&[late(0), late(100), flight(200, Some(15), Some(14)), late(300), late(400)]);
        assert_eq!(found.longest, Chain { legs: 3, minutes: 20 + 15, since: 0 });
        assert_eq!(found.current, Chain { legs: 2, minutes: 20, since: 300 });
    }

    #[test]
    fn a_chain_ends_with_punctuality_a_long_stop_a_cancellation_or_an_unknown_arrival() {
        let late = |at| flight(at, Some(30), Some(30));
        let breaks: [&[Flight]; 5] = [
            &[late(0), flight(9, Some(14), Some(30))],
            &[late(0), flight(9, Some(-3), Some(14)), late(19)],
            &[late(0), late(ROTATION + 1)],
            &[late(0), flight(9, None, None), late(19)],
            &[flight(0, Some(30), None), late(9)],
        ];
        for flights in breaks {
            assert_eq!(aircraft(flights).longest, Chain::default(), "{flights:?}");
        }
        assert_eq!(aircraft(&[late(0), late(ROTATION)]).longest.legs, 2);
    }

    #[test]
    fn a_flight_without_tail_number_counts_for_its_route_and_carrier_only() {
        let mut maps = Maps::default();
        apply(&Flight { tail: None, ..flight(0, Some(-4), None) }, &mut maps).unwrap();
        let keys: Vec<_> = maps.0.keys().map(|(table, key)| (*table, key.as_slice())).collect();
        assert_eq!(keys, [(Table::Route, b"EWR-IAH-05".as_slice()), (Table::Carrier, b"UA".as_slice())]);
        let carrier: Carrier = decode(&maps.0[&(Table::Carrier, b"UA".to_vec())]).unwrap();
        assert_eq!((carrier.nameless, carrier.lost, carrier.departure_delay_minutes), (1, 1, -4));
    }

    #[test]
    fn an_aircraft_is_where_it_arrived_or_nowhere_known() {
        assert_eq!(aircraft(&[flight(0, Some(0), Some(0))]).position.as_deref(), Some("IAH"));
        assert_eq!(aircraft(&[flight(0, Some(0), Some(0)), flight(9, None, None)]).position.as_deref(), Some("IAH"));
        let diverted = aircraft(&[flight(0, Some(0), Some(0)), flight(9, Some(0), None)]);
        assert_eq!((diverted.position, diverted.lost, diverted.unseen_returns), (None, 1, 1));
    }

    #[test]
    fn damaged_values_are_refused() {
        let bytes = encode(&Aircraft::default()).unwrap();
        assert!(decode::<Aircraft>(&bytes[1..]).is_err());
        assert!(decode::<Aircraft>(&[bytes, vec![0]].concat()).is_err());
    }
}
