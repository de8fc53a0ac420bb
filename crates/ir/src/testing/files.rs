//! Random PFGB files.

use super::{Rng, random_graph};
use crate::pfgb::{File, LAYOUT, StoredLayout, data_size};

/// A random PFGB file, with data for some of its arguments and layouts for some of its nodes.
pub fn random_file(seed: u64) -> File {
    let mut rng = Rng(seed ^ 0xf11e);
    let mut file = File { graph: random_graph(seed, 14), ..File::default() };
    for (id, node) in file.graph.nodes() {
        if let Some(size) = data_size(node).filter(|_| rng.below(3) == 0) {
            let data: Vec<u8> = (0..size).map(|_| rng.bits() as u8).collect();
            file.data.insert(id, data);
        }
    }
    for id in file.graph.ids() {
        let shape = file.graph.spec(id).shape.clone();
        let axes = (0..shape.rank() as i32).map(|axis| 1 - axis).map(|axis| axis.max(-1));
        let layout = match rng.below(12) {
            0 => StoredLayout::RowPartition(3),
            1 => StoredLayout::ColPartition(1),
            2 => StoredLayout::Grid([2, 3]),
            3 => StoredLayout::BlockCyclic([2, 3, 4, 5]),
            4 => StoredLayout::Custom([4, 4], axes.collect()),
            _ => continue,
        };
        if layout.check(&shape).is_ok() {
            file.graph.set_hint(id, LAYOUT, layout.to_string());
        }
    }
    file
}
