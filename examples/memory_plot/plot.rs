//! The picture of the table: memory on the left, times on the right.

use crate::chart::{Axis, Curve, LINE, Panel, Pen, Picture, Place};
use crate::measure::{float, mebibytes};
use crate::point::Provider;
use crate::table::{Row, Table};

/// Colours that people who see few colours can tell apart.
const MEMORY: Pen = Pen { colour: "#d55e00", dashes: "" };
const ROCKSDB: Pen = Pen { colour: "#0072b2", dashes: "" };
const MAPPED: Pen = Pen { colour: "#009e73", dashes: "6 3" };
const CACHED: Pen = Pen { colour: "#cc79a7", dashes: "2 2" };

/// The picture as SVG.
pub(crate) fn svg(table: &Table) -> String {
    let legend = vec![
        (MEMORY, "MemoryProvider: two versions as whole maps"),
        (ROCKSDB, "RocksDbProvider, mapped"),
        (LINE, "its memory limit"),
        (MAPPED, "its mapped file pages (not heap)"),
        (CACHED, "its cached file pages, mapped or not (not heap)"),
    ];
    Picture {
        width: 980.0,
        height: 590.0,
        panels: vec![memory(table), commit(table), restart(table)],
        legend,
        footer: format!("16-byte keys, 100-byte values. Measured {}. Both axes are logarithmic.", table.about),
    }
    .svg()
}

fn memory(table: &Table) -> Panel {
    let anonymous = |row: &Row| mebibytes(row.anonymous_bytes);
    let curves = vec![
        curve(table, Provider::RocksDb, CACHED, |row| mebibytes(row.cached_bytes)),
        curve(table, Provider::RocksDb, MAPPED, |row| mebibytes(row.mapped_bytes)),
        curve(table, Provider::Memory, MEMORY, anonymous),
        curve(table, Provider::RocksDb, ROCKSDB, anonymous),
    ];
    let limit = float(table.limit_mib);
    let values = curves.iter().flat_map(|curve| curve.points.iter().map(|(_, y)| *y)).chain([limit]);
    Panel {
        title: "Peak memory of the process",
        place: Place { x: 76.0, y: 46.0, width: 460.0, height: 400.0 },
        x: keys(table),
        y: Axis::over("MiB", values),
        curves,
        line: Some((limit, format!("limit: {limit} MiB"))),
    }
}

fn commit(table: &Table) -> Panel {
    let place = Place { x: 640.0, y: 46.0, width: 310.0, height: 150.0 };
    times(table, "Commit of 10,000 updates, p50", place, |row| float(row.commit_nanos) / 1e6)
}

fn restart(table: &Table) -> Panel {
    let place = Place { x: 640.0, y: 296.0, width: 310.0, height: 150.0 };
    times(table, "Restart, to the first get", place, |row| float(row.restart_nanos) / 1e6)
}

fn times(table: &Table, title: &'static str, place: Place, millis: fn(&Row) -> f64) -> Panel {
    let curves = vec![curve(table, Provider::Memory, MEMORY, millis), curve(table, Provider::RocksDb, ROCKSDB, millis)];
    let y = Axis::over("ms", table.rows.iter().map(millis));
    Panel { title, place, x: keys(table), y, curves, line: None }
}

fn keys(table: &Table) -> Axis {
    let mut keys: Vec<u64> = table.rows.iter().map(|row| row.keys).collect(); // a handful
    keys.sort_unstable();
    keys.dedup();
    Axis::at("keys, in millions", keys.into_iter().map(millions).collect())
}

/// What could not be measured is 0, and not drawn.
fn curve(table: &Table, provider: Provider, pen: Pen, value: impl Fn(&Row) -> f64) -> Curve {
    let rows = table.rows.iter().filter(|row| row.provider == provider);
    let points = rows.map(|row| (millions(row.keys), value(row))).filter(|(_, y)| *y > 0.0);
    Curve { pen, points: points.collect() } // a handful
}

fn millions(keys: u64) -> f64 {
    float(keys) / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::sample;

    #[test]
    fn the_picture_follows_the_table_and_nothing_else() {
        let table = sample();
        let drawn = svg(&table);
        assert_eq!(drawn, svg(&table));
        assert_eq!(drawn.matches("<polyline").count(), 8);
        for word in
            ["MiB", "ms", "keys, in millions", "limit: 64 MiB", "a machine", "MemoryProvider", "RocksDbProvider"]
        {
            assert!(drawn.contains(word), "{word}");
        }
        let mut other = table;
        other.rows[0].anonymous_bytes += 10 << 20;
        assert_ne!(drawn, svg(&other));
    }

    #[test]
    fn what_was_not_measured_is_not_drawn() {
        let mut table = sample();
        table.rows.iter_mut().for_each(|row| row.cached_bytes = 0);
        assert_eq!(svg(&table).matches("<circle").count(), 7 * 2);
    }
}
