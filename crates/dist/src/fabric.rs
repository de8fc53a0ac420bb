//! The cost of transfers on a fabric: a grid of processing elements (PEs) with wires between
//! neighbours, on which data moves as wavelets of 32 bits, along the row of the source and then along
//! the column of the target. A PE that sends the same elements to several sends them once; the fabric
//! copies them where the routes part.
//!
//! Sources: the router of the Cerebras WSE; congestion and dilation as the bound of a schedule:
//! Leighton, Maggs and Rao 1994.

use crate::layout::Pe;
use crate::rect::Rect;
use std::collections::{BTreeMap, HashMap};
use std::ops::Add;

/// The bytes of a wavelet.
pub const WAVELET_BYTES: usize = 4;

/// The cost of transfers on a fabric. All numbers saturate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FabricCost {
    /// The bytes that PEs get from others.
    pub bytes_moved: usize,
    /// The wavelets that PEs get from others: for each transfer its bytes over 4, rounded up.
    pub wavelets: usize,
    /// The wires that wavelets pass. Elements that go to several PEs pass a common wire once.
    pub wavelet_hops: usize,
    /// The cycles that the transfers take at least, at one wavelet per wire and cycle: the wavelets of
    /// the busiest wire, or of the busiest PE's own link, plus the hops of the longest route. A
    /// schedule within a constant factor exists.
    pub critical_path: usize,
}

impl Add for FabricCost {
    type Output = FabricCost;

    /// One after the other.
    fn add(self, other: FabricCost) -> FabricCost {
        FabricCost {
            bytes_moved: self.bytes_moved.saturating_add(other.bytes_moved),
            wavelets: self.wavelets.saturating_add(other.wavelets),
            wavelet_hops: self.wavelet_hops.saturating_add(other.wavelet_hops),
            critical_path: self.critical_path.saturating_add(other.critical_path),
        }
    }
}

/// The number of wires between two PEs.
fn hops(a: Pe, b: Pe) -> usize {
    a.row.abs_diff(b.row) + a.col.abs_diff(b.col)
}

/// A direction of wavelets along a row or a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Line {
    East(usize),
    West(usize),
    South(usize),
    North(usize),
}

/// The wavelets on each wire, as changes along a line.
#[derive(Default)]
struct Load {
    lines: HashMap<Line, BTreeMap<usize, i128>>,
    hops: usize,
}

impl Load {
    /// Adds wavelets on the wires from place `from` to place `to` of a line.
    fn add(&mut self, line: Line, from: usize, to: usize, wavelets: usize) {
        let (low, high) = (from.min(to), from.max(to));
        if low < high {
            let changes = self.lines.entry(line).or_default();
            *changes.entry(low).or_default() += wavelets as i128;
            *changes.entry(high).or_default() -= wavelets as i128;
            self.hops = self.hops.saturating_add(wavelets.saturating_mul(high - low));
        }
    }

    /// Adds the tree of routes from a PE to others.
    fn tree(&mut self, source: Pe, targets: &[Pe], wavelets: usize) {
        let mut columns: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
        for target in targets {
            let (low, high) = columns.entry(target.col).or_insert((source.row, source.row));
            (*low, *high) = ((*low).min(target.row), (*high).max(target.row));
        }
        let first = columns.keys().next().copied().unwrap_or(source.col);
        let last = columns.keys().next_back().copied().unwrap_or(source.col);
        self.add(Line::East(source.row), source.col, last.max(source.col), wavelets);
        self.add(Line::West(source.row), source.col, first.min(source.col), wavelets);
        for (col, (low, high)) in columns {
            self.add(Line::South(col), source.row, high, wavelets);
            self.add(Line::North(col), source.row, low, wavelets);
        }
    }

    /// The wavelets of the busiest wire.
    fn congestion(&self) -> usize {
        let busiest = |changes: &BTreeMap<usize, i128>| {
            let sums = changes.values().scan(0, |sum, change| {
                *sum += change;
                Some(*sum)
            });
            sums.max().unwrap_or(0)
        };
        let busiest = self.lines.values().map(busiest).max().unwrap_or(0);
        usize::try_from(busiest).unwrap_or(usize::MAX)
    }
}

/// The cost of transfers that run at the same time, for elements of `item` bytes. Those from a PE to
/// itself cost nothing.
pub(crate) fn price<'a>(
    transfers: impl Iterator<Item = (Pe, Pe, &'a Rect)>,
    item: usize,
) -> FabricCost {
    let mut cost = FabricCost::default();
    let mut trees: BTreeMap<(Pe, &Rect), Vec<Pe>> = BTreeMap::new();
    // The wavelets that each PE gets and sends over its own link.
    let (mut received, mut sent): (HashMap<Pe, usize>, HashMap<Pe, usize>) = Default::default();
    let add = |counts: &mut HashMap<Pe, usize>, pe: Pe, wavelets: usize| {
        let count = counts.entry(pe).or_default();
        *count = count.saturating_add(wavelets);
    };
    let wavelets_of = |rect: &Rect| rect.len().saturating_mul(item).div_ceil(WAVELET_BYTES);
    let mut dilation = 0;
    for (source, target, rect) in transfers.filter(|(source, target, _)| source != target) {
        let wavelets = wavelets_of(rect);
        cost.bytes_moved = cost.bytes_moved.saturating_add(rect.len().saturating_mul(item));
        cost.wavelets = cost.wavelets.saturating_add(wavelets);
        add(&mut received, target, wavelets);
        dilation = dilation.max(hops(source, target));
        trees.entry((source, rect)).or_default().push(target);
    }
    let mut load = Load::default();
    for ((source, rect), targets) in trees {
        let wavelets = wavelets_of(rect);
        add(&mut sent, source, wavelets);
        load.tree(source, &targets, wavelets);
    }
    let links = received.values().chain(sent.values()).copied().max().unwrap_or(0);
    cost.wavelet_hops = load.hops;
    cost.critical_path = load.congestion().max(links).saturating_add(dilation);
    cost
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pe(row: usize, col: usize) -> Pe {
        Pe { row, col }
    }

    fn of(transfers: &[(Pe, Pe)], elements: usize) -> (usize, usize, usize, usize) {
        let rect = Rect::whole(&[elements]);
        let cost = price(transfers.iter().map(|&(source, target)| (source, target, &rect)), 4);
        (cost.bytes_moved, cost.wavelets, cost.wavelet_hops, cost.critical_path)
    }

    #[test]
    fn wavelets_go_along_the_row_and_then_along_the_column() {
        assert_eq!(of(&[(pe(1, 1), pe(1, 1))], 8), (0, 0, 0, 0), "a copy");
        assert_eq!(of(&[(pe(0, 0), pe(2, 3))], 8), (32, 8, 40, 13));
        assert_eq!(of(&[(pe(2, 3), pe(0, 0))], 8), (32, 8, 40, 13), "and back");
        // Both routes take the wire from (0, 1) to (0, 2): one pair of routes has it in common.
        let crossing = [(pe(0, 0), pe(0, 2)), (pe(0, 1), pe(1, 2))];
        assert_eq!(of(&crossing, 8), (64, 16, 32, 18));
    }

    #[test]
    fn the_fabric_copies_what_goes_to_several() {
        // A row, and everybody: each wire of the tree once.
        let row: Vec<(Pe, Pe)> = (1..4).map(|col| (pe(0, 0), pe(0, col))).collect();
        assert_eq!(of(&row, 8), (96, 24, 24, 11));
        let all = (0..16).map(|at| (pe(1, 2), pe(at / 4, at % 4)));
        assert_eq!(of(&all.collect::<Vec<_>>(), 8), (15 * 32, 120, 15 * 8, 12));
        // Everybody to one: its own link is as busy as the last wires together.
        let gather = (0..16).map(|at| (pe(at / 4, at % 4), pe(0, 0)));
        assert_eq!(of(&gather.collect::<Vec<_>>(), 8), (480, 120, 48 * 8, 126));
    }

    #[test]
    fn parts_of_a_wavelet_are_wavelets() {
        let rect = Rect::whole(&[3]);
        let cost = price([(pe(0, 0), pe(0, 1), &rect)].into_iter(), 1);
        assert_eq!((cost.bytes_moved, cost.wavelets, cost.wavelet_hops), (3, 1, 1));
    }
}
