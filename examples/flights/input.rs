//! The flights, in the order in which they happened.
//!
//! **Event time** is the instant at which an aircraft left the gate: the scheduled departure (`time_hour` is UTC, plus
//! `minute`) and `dep_delay`. A cancelled flight never left; its event is the scheduled departure. Flights of the same
//! minute keep the order of the file, so the order is total and the same in every run: that is what makes a number of
//! rows a position to resume at.
//!
//! The file isn't in that order, so it is sorted, in bounded memory: the rows stay in an unpacked copy on disk (31 MB in
//! the work directory), and only an index of 8 bytes a row (2.7 MB in all) is held and sorted. Rows are then fetched one by
//! one with positioned reads. An input too large for even that index would need an external merge sort.

use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::Failure;

const HEADER: &str = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,\
                      tailnum,origin,dest,air_time,distance,hour,minute,time_hour";
/// The longest row that is believed; real ones are under 120 bytes.
const MAX_ROW_BYTES: usize = 512;
/// The number of columns.
const COLUMNS: usize = 19;

/// Minutes since 1970 in UTC.
pub(crate) type Minute = u32;

/// One flight, as far as the job uses it. `None` is a value that is missing in the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Flight {
    /// When it happened: see the module page.
    pub(crate) at: Minute,
    pub(crate) carrier: String,
    pub(crate) tail: Option<String>,
    pub(crate) origin: String,
    pub(crate) dest: String,
    /// The scheduled local hour of departure.
    pub(crate) hour: u8,
    /// Minutes late at departure, negative when early; `None`: never departed.
    pub(crate) departure_delay: Option<i32>,
    /// Minutes late at arrival; `None`: never departed, diverted, or not recorded.
    pub(crate) arrival_delay: Option<i32>,
    pub(crate) miles: u32,
}

impl Flight {
    /// Reads a row of the file.
    fn parse(row: &str) -> Result<Self, String> {
        let fields: Vec<&str> = row.split(',').take(COLUMNS + 1).collect();
        let Ok(fields) = <[&str; COLUMNS]>::try_from(fields) else {
            return Err(format!("expected {COLUMNS} columns"));
        };
        let [
            _,
            _,
            _,
            _,
            _,
            departure,
            _,
            _,
            arrival,
            carrier,
            _,
            tail,
            origin,
            dest,
            _,
            miles,
            hour,
            minute,
            time_hour,
        ] = fields;
        let departure_delay = optional(departure)?;
        let scheduled = i64::from(utc_minute(time_hour)?) + number::<i64>(minute)?;
        let at = scheduled + i64::from(departure_delay.unwrap_or(0));
        Ok(Self {
            at: Minute::try_from(at).map_err(|e| format!("the departure {at}: {e}"))?,
            carrier: carrier.to_owned(),
            tail: known(tail).map(str::to_owned),
            origin: origin.to_owned(),
            dest: dest.to_owned(),
            hour: number(hour)?,
            departure_delay,
            arrival_delay: optional(arrival)?,
            miles: number(miles)?,
        })
    }
}

/// `None` where the source says that the value is missing.
fn known(field: &str) -> Option<&str> {
    (!matches!(field, "NA" | "")).then_some(field)
}

fn number<T: FromStr<Err: Display>>(field: &str) -> Result<T, String> {
    field.parse().map_err(|e| format!("{field:?}: {e}"))
}

fn optional(field: &str) -> Result<Option<i32>, String> {
    known(field).map(number).transpose()
}

/// Minutes since 1970 of a time such as `2013-01-01T10:00:00Z`.
fn utc_minute(text: &str) -> Result<Minute, String> {
    let bad = || format!("{text:?} is not a time such as 2013-01-01T10:00:00Z");
    let (date, time) = text.strip_suffix(":00Z").and_then(|t| t.split_once('T')).ok_or_else(bad)?;
    let mut date = date.splitn(3, '-').map(number::<u32>);
    let (Some(Ok(year)), Some(Ok(month)), Some(Ok(day))) = (date.next(), date.next(), date.next()) else {
        return Err(bad());
    };
    let (hour, minute) = time.split_once(':').ok_or_else(bad)?;
    let (hour, minute) = (number::<u32>(hour)?, number::<u32>(minute)?);
    if !(1970..3000).contains(&year)
        || !(1..=12).contains(&month)
        || !(1..=31).contains(&day)
        || hour > 23
        || minute > 59
    {
        return Err(bad());
    }
    Ok((days_since_1970(year, month, day) * 24 + hour) * 60 + minute)
}

/// Days from 1970-01-01 to a day of the Gregorian calendar: years run from March, so that the leap day comes last.
fn days_since_1970(year: u32, month: u32, day: u32) -> u32 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    (year * 365 + leap_days + (month * 153 + 2) / 5 + day - 1) - 719_468
}

/// Where a row lies in the unpacked file, and when it happened. Sorts by time, then by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    at: Minute,
    offset_bytes: u32,
}

/// The input in event order, readable from any position.
#[derive(Debug)]
pub(crate) struct Input {
    rows: File,
    path: PathBuf,
    order: Vec<Place>,
}

impl Input {
    /// Unpacks `packed` into `work` (once; a later run finds the copy and checks it), and sorts its rows.
    pub(crate) fn open(packed: &Path, work: &Path) -> Result<Self, Failure> {
        let path = work.join("flights.csv");
        fs::create_dir_all(work).map_err(|e| Failure::file(work, &e))?;
        unpack(packed, &path)?;
        let rows = File::open(&path).map_err(|e| Failure::file(&path, &e))?;
        let order = index(&rows, &path)?;
        Ok(Self { rows, path, order })
    }

    /// The number of rows.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// The rows from number `from` in event order.
    pub(crate) fn rows(&self, from: usize) -> impl Iterator<Item = Result<Flight, Failure>> {
        self.order.get(from..).unwrap_or_default().iter().map(|place| self.read(*place))
    }

    fn read(&self, place: Place) -> Result<Flight, Failure> {
        let mut buffer = [0; MAX_ROW_BYTES];
        let mut filled = 0;
        let row = loop {
            let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) else {
                return Err(Failure::input(&self.path, place.offset_bytes.into(), "the row is too long"));
            };
            let read = self
                .rows
                .read_at(rest, u64::from(place.offset_bytes) + filled as u64)
                .map_err(|e| Failure::file(&self.path, &e))?;
            filled += read;
            let so_far = buffer.get(..filled).unwrap_or_default();
            if let Some(end) = so_far.iter().position(|byte| *byte == b'\n') {
                break so_far.get(..end).unwrap_or_default();
            }
            if read == 0 {
                break so_far;
            }
        };
        parse(row, &self.path, place.offset_bytes.into())
    }
}

fn parse(row: &[u8], path: &Path, offset_bytes: u64) -> Result<Flight, Failure> {
    let text = std::str::from_utf8(row).map_err(|e| Failure::input(path, offset_bytes, &e.to_string()))?;
    Flight::parse(text.trim_end()).map_err(|reason| Failure::input(path, offset_bytes, &reason))
}

/// Unpacks into a temporary that gets its name when it is whole, so that a crash leaves no half file behind.
fn unpack(packed: &Path, to: &Path) -> Result<(), Failure> {
    if to.exists() {
        return Ok(());
    }
    let source = File::open(packed).map_err(|e| Failure::file(packed, &e))?;
    let mut source = zstd::Decoder::new(source).map_err(|e| Failure::file(packed, &e))?;
    let temporary = to.with_extension("csv.tmp");
    let mut copy = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&temporary)
        .map_err(|e| Failure::file(&temporary, &e))?;
    io::copy(&mut source, &mut copy).map_err(|e| Failure::file(&temporary, &e))?;
    publish(&temporary, to).map_err(|e| Failure::file(to, &e))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the copy is scratch of this program, and replacing an equal one is harmless"
)]
fn publish(temporary: &Path, to: &Path) -> io::Result<()> {
    fs::rename(temporary, to)
}

/// One pass over the file: where each row starts and when it happened, sorted.
fn index(rows: &File, path: &Path) -> Result<Vec<Place>, Failure> {
    let mut reader = BufReader::new(rows);
    let mut line = Vec::with_capacity(MAX_ROW_BYTES);
    let mut order = Vec::new();
    let mut offset_bytes = 0_u64;
    loop {
        line.clear();
        let limit = u64::try_from(MAX_ROW_BYTES).unwrap_or(u64::MAX);
        let length = reader.by_ref().take(limit).read_until(b'\n', &mut line).map_err(|e| Failure::file(path, &e))?;
        if length == 0 {
            break;
        }
        if offset_bytes == 0 {
            if line.trim_ascii_end() != HEADER.as_bytes() {
                return Err(Failure::input(path, 0, "the first line doesn't name the expected columns"));
            }
        } else {
            let at = parse(&line, path, offset_bytes)?.at;
            let place = u32::try_from(offset_bytes)
                .map_err(|e| Failure::input(path, offset_bytes, &format!("over 4 GiB: {e}")))?;
            order.push(Place { at, offset_bytes: place });
        }
        offset_bytes += length as u64;
    }
    order.sort_unstable();
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: &str = "2013,1,1,2359,1730,389,830,819,NA,UA,1545,NA,EWR,IAH,227,1400,17,30,2013-01-01T22:00:00Z";

    #[test]
    fn a_day_is_counted_as_the_calendar_does() {
        assert_eq!(days_since_1970(1970, 1, 1), 0);
        assert_eq!(days_since_1970(2000, 2, 29), 11_016);
        assert_eq!(days_since_1970(2000, 3, 1), 11_017);
        assert_eq!(days_since_1970(2013, 1, 1), 15_706);
    }

    #[test]
    fn a_row_is_read_with_its_missing_values_and_its_departure_over_midnight() {
        let flight = Flight::parse(ROW).unwrap();
        assert_eq!(flight.at, (15_706 * 24 + 22) * 60 + 30 + 389);
        assert_eq!((flight.tail, flight.arrival_delay, flight.departure_delay), (None, None, Some(389)));
        assert_eq!((flight.carrier.as_str(), flight.hour, flight.miles), ("UA", 17, 1400));
    }

    #[test]
    fn a_row_with_a_bad_field_or_a_missing_column_is_refused() {
        assert!(Flight::parse(&ROW.replace("389", "late")).is_err());
        assert!(Flight::parse(&ROW.replace("22:00:00Z", "22h")).is_err());
        assert!(Flight::parse(&ROW.replace(",1400", "")).is_err());
        assert!(Flight::parse(&format!("{ROW},1")).is_err());
        assert!(Flight::parse("").is_err());
    }

    #[test]
    fn rows_come_in_event_order_from_any_position() {
        let dir = tempfile::tempdir().unwrap();
        let row = |dep: &str, hour: &str, carrier: &str| {
            format!("2013,1,1,1,1,{dep},1,1,NA,{carrier},1,N1,EWR,IAH,1,1,5,0,2013-01-01T{hour}:00:00Z")
        };
        // b departs first although it stands last; c is cancelled at the minute at which a departs, and comes later in the file.
        let text = [HEADER, &row("60", "09", "a"), &row("NA", "10", "c"), &row("-5", "09", "b"), ""].join("\n");
        fs::write(dir.path().join("flights.csv"), text).unwrap();
        let input = Input::open(Path::new("none"), dir.path()).unwrap();
        let carriers = |from| input.rows(from).map(|row| row.unwrap().carrier).collect::<String>();
        assert_eq!((carriers(0), carriers(2), carriers(3)), ("bac".into(), "c".into(), String::new()));
    }

    #[test]
    fn a_file_with_other_columns_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("flights.csv"), "a,b\n1,2\n").unwrap();
        let refusal = Input::open(Path::new("none"), dir.path()).unwrap_err();
        assert!(refusal.to_string().contains("columns"), "{refusal}");
    }
}
