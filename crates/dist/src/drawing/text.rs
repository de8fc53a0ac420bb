//! Drawings as text.

use super::{Table, Tables};

pub(super) fn written(tables: &Tables) -> String {
    let mut lines = Vec::new();
    for table in &tables.tables {
        if !table.title.is_empty() {
            lines.push(table.title.clone());
        }
        draw(table, &mut lines);
    }
    lines.extend(tables.notes.iter().cloned());
    lines.join("\n")
}

/// The widest of some texts.
fn widest<'a>(texts: impl Iterator<Item = &'a String>) -> usize {
    texts.map(|text| text.chars().count()).max().unwrap_or(0)
}

fn draw(table: &Table, lines: &mut Vec<String>) {
    let Some(width) = table.boxes.first().map(Vec::len).filter(|&width| width > 0) else {
        return lines.push("no elements".into());
    };
    let column = |at: usize| {
        let boxes = table.boxes.iter().map(|row| &row[at]);
        widest(boxes.chain(table.columns.get(at))) + 2
    };
    let widths: Vec<usize> = (0..width).map(column).collect();
    let left = widest(table.rows.iter());
    let indent = if left > 0 { left + 1 } else { 0 };
    let rule = |open: &str, cross: &str, close: &str| {
        let bars: Vec<String> = widths.iter().map(|&width| "─".repeat(width)).collect();
        format!("{:indent$}{open}{}{close}", "", bars.join(cross))
    };
    if !table.columns.is_empty() {
        let labels = table.columns.iter().zip(&widths);
        let labels: String =
            labels.map(|(label, &width)| format!("{label:^0$}", width + 1)).collect();
        lines.push(format!("{:indent$} {labels}", "").trim_end().to_string());
    }
    lines.push(rule("┌", "┬", "┐"));
    for (at, row) in table.boxes.iter().enumerate() {
        if at > 0 {
            lines.push(rule("├", "┼", "┤"));
        }
        let boxes: Vec<String> =
            row.iter().zip(&widths).map(|(text, &width)| format!("{text:^width$}")).collect();
        let label = table.rows.get(at).map(|label| format!("{label:>left$} ")).unwrap_or_default();
        lines.push(format!("{label}│{}│", boxes.join("│")));
    }
    lines.push(rule("└", "┴", "┘"));
}
