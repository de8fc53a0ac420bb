//! Drawings as SVG documents.

use super::{Table, Tables};
use girih_ir::svg::escape;
use std::fmt::Write;

const CHAR: usize = 7;
const HEIGHT: usize = 32;
const LINE: usize = 18;
const MARGIN: usize = 12;
/// Fill colours of boxes, which alternate.
const FILLS: [&str; 2] = ["#cfe8ff", "#e8f4ff"];

/// A document as it grows downwards.
struct Page {
    body: String,
    width: usize,
    height: usize,
}

impl Page {
    /// Text from a position to the right, or around it.
    fn text(&mut self, x: usize, y: usize, text: &str, anchor: &str) {
        let text = escape(text);
        let _ =
            writeln!(self.body, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>");
    }

    /// A line of text below what is there.
    fn line(&mut self, text: &str) {
        self.width = self.width.max(text.chars().count() * CHAR + 2 * MARGIN);
        let y = self.height + LINE - 5;
        self.text(MARGIN, y, text, "start");
        self.height += LINE;
    }

    fn table(&mut self, table: &Table) {
        let Some(columns) = table.boxes.first().map(Vec::len).filter(|&width| width > 0) else {
            return self.line("no elements");
        };
        let boxes = table.boxes.iter().flatten().chain(&table.columns);
        let width = (boxes.map(|text| text.chars().count()).max().unwrap_or(0) + 2) * CHAR;
        let labels = table.rows.iter().map(|text| text.chars().count()).max();
        let left = MARGIN + labels.map_or(0, |longest| (longest + 1) * CHAR);
        if !table.columns.is_empty() {
            for (at, label) in table.columns.iter().enumerate() {
                let (x, y) = (left + at * width + width / 2, self.height + LINE - 5);
                self.text(x, y, label, "middle");
            }
            self.height += LINE;
        }
        for (row, boxes) in table.boxes.iter().enumerate() {
            let middle = self.height + HEIGHT / 2 + 4;
            if let Some(label) = table.rows.get(row) {
                self.text(MARGIN, middle, label, "start");
            }
            for (column, text) in boxes.iter().enumerate() {
                let (x, fill) = (left + column * width, FILLS[(row + column) % 2]);
                let _ = writeln!(
                    self.body,
                    "<rect x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"{HEIGHT}\" \
                     fill=\"{fill}\" stroke=\"#888\"/>",
                    self.height
                );
                self.text(x + width / 2, middle, text, "middle");
            }
            self.height += HEIGHT;
        }
        self.width = self.width.max(left + columns * width + MARGIN);
    }
}

pub(super) fn written(tables: &Tables) -> String {
    let mut page = Page { body: String::new(), width: 2 * MARGIN, height: MARGIN };
    for table in &tables.tables {
        if !table.title.is_empty() {
            page.line(&table.title);
        }
        page.table(table);
        page.height += MARGIN;
    }
    for note in &tables.notes {
        page.line(note);
    }
    let Page { body, width, height } = page;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{body}</svg>\n"
    )
}
