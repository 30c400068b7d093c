//! Columns and numbers for people.

/// Rows under a heading, with two spaces between columns. Holds all of its rows: for what is bounded by stores, families or
/// files, never by keys.
#[derive(Debug)]
pub(super) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this heading. A column whose title starts with a space is aligned to the right.
    pub(super) fn new(heading: &[&str]) -> Self {
        Self { rows: vec![heading.iter().map(|&title| title.into()).collect()] }
    }

    pub(super) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines, without ends.
    pub(super) fn lines(&self) -> impl Iterator<Item = String> {
        let heading = self.rows.first().map(Vec::as_slice).unwrap_or_default();
        let to_right: Vec<bool> = heading.iter().map(|title| title.starts_with(' ')).collect(); // a few
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(move |row| row.get(column));
            cells.map(|cell| cell.trim_start().chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..heading.len()).map(width).collect(); // a few
        self.rows.iter().map(move |row| {
            let cells = row.iter().zip(widths.iter().zip(&to_right)).map(|(cell, (width, to_right))| {
                let cell = cell.trim_start();
                if *to_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            let cells: Vec<String> = cells.collect(); // a few
            cells.join("  ").trim_end().to_owned()
        })
    }
}

/// `1.5 MiB`.
pub(super) fn bytes_for_people(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // Tenths of the unit, so that no float is needed.
    let mut tenths = u128::from(bytes) * 10 / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS.get(unit).unwrap_or(&""))
}

/// `1 file`, `2 files`.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_told_in_the_largest_unit_that_fits() {
        let told: Vec<String> =
            [0, 1023, 1024, 1536, 1 << 20, (1 << 30) - 1, 5 << 40, u64::MAX].map(bytes_for_people).into();
        assert_eq!(told, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "1023.9 MiB", "5.0 TiB", "15.9 EiB"]);
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", " BYTES"]);
        table.row(["a".into(), "1".into()]);
        table.row(["longer".into(), "12345678".into()]);
        let lines: Vec<String> = table.lines().collect();
        assert_eq!(lines, ["NAME       BYTES", "a              1", "longer  12345678"]);
    }
}
