//! A small writer of SVG: panels with two logarithmic axes, curves, a line across, a legend. The same input gives the same bytes.

use std::fmt::{self, Write};

/// A logarithmic axis.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub(crate) label: &'static str,
    pub(crate) least: f64,
    pub(crate) most: f64,
    /// Where there is a grid line and a number.
    pub(crate) ticks: Vec<f64>,
}

impl Axis {
    /// An axis over all of `values`, with ticks at 1, 2 and 5 of each decade.
    pub(crate) fn over(label: &'static str, values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = values
            .filter(|value| *value > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        let (least, most) = if least < most { (least, most) } else { (1.0, 10.0) };
        let all: Vec<f64> = (-6..9).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power))).collect(); // 45
        let below = all.iter().rfind(|tick| **tick <= least).copied().unwrap_or(least);
        let above = all.iter().find(|tick| **tick >= most).copied().unwrap_or(most);
        let ticks = all.into_iter().filter(|tick| (below..=above).contains(tick)).collect();
        Self { label, least: below, most: above, ticks }
    }

    /// An axis with a tick at each of `ticks`, which ascend.
    pub(crate) fn at(label: &'static str, ticks: Vec<f64>) -> Self {
        let ends = ticks.first().copied().zip(ticks.last().copied()).filter(|(least, most)| least < most);
        let (least, most) = ends.unwrap_or((1.0, 10.0));
        Self { label, least, most, ticks }
    }

    /// Where a value lies: 0 at the least, 1 at the most.
    fn place(&self, value: f64) -> f64 {
        (value / self.least).ln() / (self.most / self.least).ln()
    }
}

/// How a curve looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pen {
    pub(crate) colour: &'static str,
    /// Lengths of dashes and gaps; empty for a whole line.
    pub(crate) dashes: &'static str,
}

#[derive(Debug, Clone)]
pub(crate) struct Curve {
    pub(crate) pen: Pen,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A rectangle of the picture: its left upper corner, width and height.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

#[derive(Debug, Clone)]
pub(crate) struct Panel {
    pub(crate) title: &'static str,
    pub(crate) place: Place,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) curves: Vec<Curve>,
    /// A value of `y` that matters, with its name.
    pub(crate) line: Option<(f64, String)>,
}

/// The whole picture.
#[derive(Debug, Clone)]
pub(crate) struct Picture {
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) panels: Vec<Panel>,
    /// Names of pens, below the panels.
    pub(crate) legend: Vec<(Pen, &'static str)>,
    /// One line of small print at the bottom.
    pub(crate) footer: String,
}

impl Picture {
    /// As SVG.
    pub(crate) fn svg(&self) -> String {
        let mut out = String::new();
        match self.write(&mut out) {
            Ok(()) => out,
            Err(fmt::Error) => String::new(), // a string takes everything
        }
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let (width, height) = (self.width, self.height);
        writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" width=\"{width:.0}\" \
             height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"12\" fill=\"#222\">"
        )?;
        writeln!(out, "<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>")?;
        for panel in &self.panels {
            panel.write(out)?;
        }
        self.write_legend(out)?;
        let (x, y, footer) = (16.0, height - 12.0, escape(&self.footer));
        writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"10\" fill=\"#666\">{footer}</text>")?;
        writeln!(out, "</svg>")
    }

    fn write_legend(&self, out: &mut String) -> fmt::Result {
        const COLUMN: f64 = 330.0;
        const COLUMNS: usize = 3;
        for (number, (pen, name)) in self.legend.iter().enumerate() {
            let column = (0..number % COLUMNS).fold(24.0, |x, _| x + COLUMN);
            let row = (0..number / COLUMNS).fold(self.height - 62.0, |y, _| y + 20.0);
            line(out, (column, row - 4.0), (column + 34.0, row - 4.0), *pen, 2.0)?;
            text(out, (column + 42.0, row), "start", 12, name)?;
        }
        Ok(())
    }
}

const GRID: Pen = Pen { colour: "#ddd", dashes: "" };
const FRAME: Pen = Pen { colour: "#888", dashes: "" };
/// The line across.
pub(crate) const LINE: Pen = Pen { colour: "#000", dashes: "2 3" };

impl Panel {
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let place = self.place;
        (place.x + self.x.place(x) * place.width, place.y + (1.0 - self.y.place(y)) * place.height)
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let Place { x, y, width, height } = self.place;
        text(out, (x, y - 12.0), "start", 14, self.title)?;
        for tick in &self.x.ticks {
            let (at, bottom) = self.at(*tick, self.y.least);
            line(out, (at, y), (at, bottom), GRID, 1.0)?;
            text(out, (at, bottom + 16.0), "middle", 12, &short(*tick))?;
        }
        for tick in &self.y.ticks {
            let (left, at) = self.at(self.x.least, *tick);
            line(out, (left, at), (x + width, at), GRID, 1.0)?;
            text(out, (left - 6.0, at + 4.0), "end", 12, &short(*tick))?;
        }
        line(out, (x, y), (x, y + height), FRAME, 1.0)?;
        line(out, (x, y + height), (x + width, y + height), FRAME, 1.0)?;
        text(out, (x + width / 2.0, y + height + 34.0), "middle", 12, self.x.label)?;
        let (label_x, label_y) = (x - 46.0, y + height / 2.0);
        writeln!(
            out,
            "<text transform=\"translate({label_x:.1} {label_y:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            escape(self.y.label)
        )?;
        if let Some((value, name)) = &self.line {
            let (left, at) = self.at(self.x.least, *value);
            line(out, (left, at), (x + width, at), LINE, 1.5)?;
            text(out, (left + 6.0, at - 5.0), "start", 12, name)?;
        }
        self.curves.iter().try_for_each(|curve| self.write_curve(out, curve))
    }

    fn write_curve(&self, out: &mut String, curve: &Curve) -> fmt::Result {
        let places: Vec<(f64, f64)> = curve.points.iter().map(|(x, y)| self.at(*x, *y)).collect(); // a handful
        let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let Pen { colour, dashes } = curve.pen;
        writeln!(
            out,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dashes}\"/>",
            points.join(" ")
        )?;
        for (x, y) in places {
            writeln!(out, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>")?;
        }
        Ok(())
    }
}

fn line(out: &mut String, from: (f64, f64), to: (f64, f64), pen: Pen, width: f64) -> fmt::Result {
    let ((x1, y1), (x2, y2)) = (from, to);
    writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{}\" stroke-width=\"{width:.1}\" \
         stroke-dasharray=\"{}\"/>",
        pen.colour, pen.dashes
    )
}

fn text(out: &mut String, at: (f64, f64), anchor: &str, size: u32, words: &str) -> fmt::Result {
    let ((x, y), words) = (at, escape(words));
    writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{words}</text>")
}

/// A tick's number, without zeros that say nothing.
fn short(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    match text.strip_suffix("000") {
        Some(thousands) if !text.contains('.') => format!("{thousands},000"),
        _ => text.to_owned(),
    }
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_reaches_over_all_values_and_places_them_by_their_logarithm() {
        let axis = Axis::over("MiB", [30.0, 700.0].into_iter());
        assert_eq!((axis.least, axis.most), (20.0, 1000.0));
        assert_eq!(axis.ticks, [20.0, 50.0, 100.0, 200.0, 500.0, 1000.0]);
        assert!((axis.place(20.0)).abs() < 1e-9 && (axis.place(1000.0) - 1.0).abs() < 1e-9);
        let middle = axis.place((20.0_f64 * 1000.0).sqrt());
        assert!((middle - 0.5).abs() < 1e-9, "{middle}");
    }

    #[test]
    fn an_axis_over_nothing_is_still_one() {
        let axis = Axis::over("MiB", [0.0].into_iter());
        assert!(axis.least < axis.most && axis.place(3.0).is_finite());
        assert!(Axis::at("keys", vec![]).place(3.0).is_finite());
    }

    #[test]
    fn ticks_are_short_and_words_are_escaped() {
        assert_eq!([0.25, 0.5, 8.0, 1000.0, 20_000.0].map(short), ["0.25", "0.5", "8", "1,000", "20,000"]);
        assert_eq!(escape("a < b & c"), "a &lt; b &amp; c");
    }
}
