//! Figures: one JSON line each on standard output, a table for people on standard error.

use std::io::{self, Write};

use super::Failure;

/// What a figure has to be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Must {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

impl Must {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
            Self::Below(bound) => value < bound,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(bound) => format!("≥ {bound}"),
            Self::AtMost(bound) => format!("≤ {bound}"),
            Self::Below(bound) => format!("< {bound}"),
        }
    }
}

/// Prints figures, and collects what was missed.
#[derive(Debug)]
pub(crate) struct Report {
    bench: &'static str,
    missed: Vec<String>,
}

impl Report {
    /// The figures of `bench`.
    pub(crate) fn of(bench: &'static str) -> Self {
        Self { bench, missed: Vec::new() }
    }

    /// Prints a figure.
    pub(crate) fn figure(&mut self, case: &str, value: f64, unit: &str, must: Option<Must>) -> Result<(), Failure> {
        let ok = must.is_none_or(|must| must.holds(value));
        let must = must.map(Must::text);
        let field = must.as_ref().map(|must| format!(",\"must\":\"{must}\"")).unwrap_or_default();
        let bench = self.bench;
        let mut out = io::stdout().lock();
        writeln!(
            out,
            "{{\"bench\":\"{bench}\",\"case\":\"{case}\",\"value\":{value:.3},\"unit\":\"{unit}\"{field},\"ok\":{ok}}}"
        )?;
        out.flush()?;
        let verdict = match (&must, ok) {
            (None, _) => String::new(),
            (Some(must), true) => format!("must be {must}: yes"),
            (Some(must), false) => format!("must be {must}: NO"),
        };
        eprintln!("  {case:<68} {value:>12.2} {unit:<18} {verdict}");
        if !ok {
            self.missed.push(case.to_owned());
        }
        Ok(())
    }

    /// An error that names every figure that wasn't what it must be.
    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self.missed.as_slice() {
            [] => Ok(()),
            missed => Err(format!("missed: {}", missed.join(", ")).into()),
        }
    }
}

/// The middle of some figures; the mean of the two in the middle of an even number; 0 of none.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let at = |place: usize| values.get(place).copied().unwrap_or(0.0);
    if values.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.saturating_sub(1)), at(middle)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_figure_is_named_at_the_end() {
        let mut report = Report::of("test");
        report.figure("fine", 2.0, "MiB", Some(Must::AtMost(2.0))).unwrap();
        report.figure("slow", 2.0, "ms", Some(Must::Below(2.0))).unwrap();
        report.figure("free", 2.0, "ms", None).unwrap();
        assert_eq!(report.finish().unwrap_err().to_string(), "missed: slow");
    }

    #[test]
    fn the_median_of_few_figures() {
        assert_eq!((median([]), median([3.0, 1.0, 2.0]), median([4.0, 1.0])), (0.0, 2.0, 2.5));
    }
}
