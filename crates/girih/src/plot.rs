//! Line plots as SVG, for loss curves and measurements. The module does not depend on tensors.

use girih_ir::svg::escape;
use std::fmt::Write;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;
/// The palette of Okabe and Ito, which is distinguishable for colour-blind readers; used
/// cyclically.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Named lines over shared axes, as an SVG document. Points that are not finite interrupt their
/// line. Dense lines are thinned to a few points per pixel, including the extremes.
///
/// ```
/// let train = ("train".to_string(), vec![(1.0, 2.0), (2.0, 1.0)]);
/// let svg = girih::plot::line_plot("Loss", "step", "loss", &[train]);
/// assert!(svg.starts_with("<svg") && svg.contains("train"));
/// ```
pub fn line_plot(
    title: &str,
    x_label: &str,
    y_label: &str,
    series: &[(String, Vec<(f64, f64)>)],
) -> String {
    let finite = |p: &&(f64, f64)| p.0.is_finite() && p.1.is_finite();
    let points = || series.iter().flat_map(|s| &s.1).filter(finite);
    let x = Axis::new(points().map(|p| p.0), LEFT, WIDTH - RIGHT);
    let y = Axis::new(points().map(|p| p.1), HEIGHT - BOTTOM, TOP);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for tick in x.ticks() {
        let at = x.at(tick);
        line(&mut out, (at, TOP), (at, HEIGHT - BOTTOM));
        text(&mut out, (at, HEIGHT - BOTTOM + 18.0), "middle", &number(tick));
    }
    for tick in y.ticks() {
        let at = y.at(tick);
        line(&mut out, (LEFT, at), (WIDTH - RIGHT, at));
        text(&mut out, (LEFT - 8.0, at + 4.0), "end", &number(tick));
    }
    text(&mut out, (WIDTH / 2.0, 22.0), "middle", title);
    text(&mut out, ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 14.0), "middle", x_label);
    // A long label of the y axis extends to the right, where there is room.
    text(&mut out, (8.0, TOP - 12.0), "start", y_label);
    for (i, (_, values)) in series.iter().enumerate() {
        let colour = COLOURS[i % COLOURS.len()];
        let path = path(&thin(values), &x, &y);
        if !path.is_empty() {
            let _ = writeln!(
                out,
                "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" \
                 stroke-linecap=\"round\"/>"
            );
        }
    }
    legend(&mut out, series);
    out.push_str("</svg>\n");
    out
}

/// The names of the lines, over a background through which lines behind it are faint.
fn legend(out: &mut String, series: &[(String, Vec<(f64, f64)>)]) {
    let left = WIDTH - RIGHT - 120.0;
    let _ = writeln!(
        out,
        "<rect x=\"{}\" y=\"{TOP}\" width=\"126\" height=\"{}\" fill=\"#fff\" \
         fill-opacity=\"0.8\"/>",
        left - 6.0,
        18.0 * series.len() as f64 + 4.0
    );
    for (i, (name, _)) in series.iter().enumerate() {
        let at = TOP + 14.0 + 18.0 * i as f64;
        let colour = COLOURS[i % COLOURS.len()];
        let _ = writeln!(
            out,
            "<rect x=\"{left}\" y=\"{}\" width=\"12\" height=\"4\" fill=\"{colour}\"/>",
            at - 6.0
        );
        text(out, (left + 18.0, at), "start", name);
    }
}

/// One axis: the range of values and the range of pixels.
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Axis {
        let (low, high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
        let (low, high) = match (low <= high, low < high) {
            (false, _) => (0.0, 1.0),
            // A single value gets a margin proportional to its size.
            (_, false) => (low - low.abs().max(1.0) * 0.5, high + high.abs().max(1.0) * 0.5),
            _ => (low, high),
        };
        // Clamp values near the ends of f64, since the range would overflow.
        let (low, high) = (low.max(f64::MIN / 4.0), high.min(f64::MAX / 4.0));
        Axis { low, high, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        self.from + (value - self.low) / (self.high - self.low) * (self.to - self.from)
    }

    /// Round numbers inside the range, four to nine if the range contains that many.
    fn ticks(&self) -> Vec<f64> {
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * power).into_iter().find(|s| *s >= rough);
        let step = step.unwrap_or(rough);
        let first = (self.low / step).ceil();
        (0..12)
            .map(|i| (first + i as f64) * step)
            .take_while(|t| *t <= self.high + step * 1e-9)
            .filter(|t| t.is_finite())
            .map(|t| if t.abs() < step * 1e-9 { 0.0 } else { t })
            .collect()
    }
}

/// Reduces each run of points that are too dense to distinguish to the first, the extremes and the
/// last.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let chunk = points.len() / WIDTH as usize;
    if chunk < 4 {
        return points.to_vec();
    }
    let mut kept = Vec::new();
    for run in points.chunks(chunk) {
        let by = |a: &usize, b: &usize| run[*a].1.total_cmp(&run[*b].1);
        let mut ends: Vec<usize> = [0, run.len() - 1]
            .into_iter()
            .chain((0..run.len()).min_by(by))
            .chain((0..run.len()).max_by(by))
            .collect();
        ends.sort_unstable();
        ends.dedup();
        kept.extend(ends.into_iter().map(|i| run[i]));
    }
    kept
}

fn path(points: &[(f64, f64)], x: &Axis, y: &Axis) -> String {
    let mut d = String::new();
    let mut pen_up = true;
    for &(px, py) in points {
        if !px.is_finite() || !py.is_finite() {
            pen_up = true;
            continue;
        }
        let (px, py) = (x.at(px), y.at(py));
        // A move and a line to the same position draw an isolated point as a dot.
        let _ = match pen_up {
            true => write!(d, "M{px:.1} {py:.1}L{px:.1} {py:.1}"),
            false => write!(d, "L{px:.1} {py:.1}"),
        };
        pen_up = false;
    }
    d
}

fn line(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(
        out,
        "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>"
    );
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, text: &str) {
    let text = escape(text);
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"#333\">{text}</text>"
    );
}

/// A short label of a tick.
fn number(value: f64) -> String {
    if value != 0.0 && !(1e-4..1e6).contains(&value.abs()) {
        return format!("{value:.1e}");
    }
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well_formed(svg: &str) {
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for tag in svg.split('<').skip(1) {
            let (tag, text) = tag.split_once('>').expect("a tag ends");
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            assert!(!tag.contains("NaN") && !tag.contains("inf"), "{tag}");
            assert!(!text.contains('>'), "{text}");
        }
        for name in ["svg", "text"] {
            let open = svg.matches(&format!("<{name} ")).count();
            assert_eq!(open, svg.matches(&format!("</{name}>")).count(), "{name}");
        }
    }

    #[test]
    fn plots_of_nothing_one_point_and_extreme_values_are_well_formed() {
        let cases: [&[(f64, f64)]; 7] = [
            &[],
            &[(1.0, 2.0)],
            &[(1.0, 0.0), (2.0, 0.0)],
            &[(f64::NAN, 1.0), (1.0, f64::INFINITY)],
            &[(f64::MIN, f64::MAX), (f64::MAX, f64::MIN)],
            &[(1e-300, 1e-300), (2e-300, 3e-300)],
            &[(1e9, -1e-9), (1e9 + 1.0, 1e-9)],
        ];
        for points in cases {
            well_formed(&line_plot("t", "x", "y", &[("s".to_string(), points.to_vec())]));
        }
        well_formed(&line_plot("t", "x", "y", &[]));
    }

    #[test]
    fn text_is_escaped() {
        let svg = line_plot(
            "a < b & c",
            "<x>",
            "\"y\"",
            &[("<s>".to_string(), vec![(0.0, 1.0), (1.0, 2.0)])],
        );
        well_formed(&svg);
        assert!(svg.contains("a &lt; b &amp; c") && svg.contains("&lt;s&gt;"));
    }

    #[test]
    fn dense_lines_are_thinned_but_keep_their_extremes() {
        let mut points: Vec<(f64, f64)> = (0..1_000_000).map(|i| (i as f64, 1.0)).collect();
        points[777_777].1 = 9.0;
        let thinned = thin(&points);
        assert!(thinned.len() < 4000 && thinned.contains(&(777_777.0, 9.0)));
        assert_eq!((thinned[0], thinned[thinned.len() - 1]), (points[0], points[999_999]));
    }

    #[test]
    fn points_that_are_not_finite_interrupt_their_line() {
        let points = [(0.0, 0.0), (1.0, f64::NAN), (2.0, 1.0)];
        let (x, y) = (
            Axis::new([0.0, 2.0].into_iter(), 0.0, 1.0),
            Axis::new([0.0, 1.0].into_iter(), 0.0, 1.0),
        );
        assert_eq!(path(&points, &x, &y).matches('M').count(), 2);
    }
}
