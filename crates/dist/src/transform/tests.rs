//! Tests of transforms: the documented figures, and transfers applied to tiles.

use super::*;
use crate::layout::MeshAxis;
use proptest::prelude::*;
use std::collections::HashMap;

fn layout(text: &str) -> MeshLayout {
    text.parse().unwrap()
}

fn of(from: &str, to: &str, shape: &[usize]) -> Transform {
    transform(&layout(from), &layout(to), shape, 4).unwrap()
}

fn crossing(transform: &Transform) -> usize {
    transform.transfers.iter().filter(|transfer| !transfer.is_local()).count()
}

/// The value of each place of each tile.
type Tiles = HashMap<(Pe, Vec<usize>), usize>;

/// Tiles with the number of each element.
fn tiles(layout: &MeshLayout, shape: &[usize; 2]) -> Tiles {
    let mut tiles = Tiles::new();
    for (i, j) in (0..shape[0]).flat_map(|i| (0..shape[1]).map(move |j| (i, j))) {
        for pe in layout.owners(&[i, j], shape).unwrap() {
            let place = layout.local_index_in(pe, &[i, j], shape).unwrap();
            tiles.insert((pe, place), i * shape[1] + j);
        }
    }
    tiles
}

/// Applies the transfers to the old tiles; they must give the new ones, and write nothing twice.
fn check(from: &MeshLayout, to: &MeshLayout, shape: &[usize; 2]) -> Transform {
    let found = transform(from, to, shape, 4).unwrap();
    let (old, mut new) = (tiles(from, shape), Tiles::new());
    for t in &found.transfers {
        for (i, j) in (0..t.rect.extent[0]).flat_map(|i| (0..t.rect.extent[1]).map(move |j| (i, j)))
        {
            let at = |start: &Extent| vec![start[0] + i, start[1] + j];
            let value = old[&(t.source, at(&t.source_start))];
            let twice = new.insert((t.target, at(&t.target_start)), value);
            assert_eq!(twice, None, "{from} to {to}: {t:?}");
        }
    }
    assert_eq!(new, tiles(to, shape), "{from} to {to} of {shape:?}");
    let missing = tiles(to, shape).into_iter().filter(|((pe, _), value)| {
        let index = [value / shape[1], value % shape[1]];
        !from.owners(&index, shape).unwrap().contains(pe)
    });
    assert_eq!(found.cost.bytes_moved, 4 * missing.count(), "each byte once: {from} to {to}");
    let identity = found.kind == TransformKind::Identity;
    assert!(!identity || crossing(&found) == 0, "{from} to {to}");
    found
}

/// ML-67.
#[test]
fn transforms_have_kinds() {
    let kind = |from: &str, to: &str| of(from, to, &[8, 8]).kind.to_string();
    assert_eq!(kind("Grid(4, 1)", "RowPartition(4)"), "IDENTITY");
    assert_eq!(kind("BlockCyclic(2, 2, 4, 4)", "Grid(2, 2)"), "IDENTITY");
    assert_eq!(kind("RowPartition(4)", "Grid(1, 4)[1, -1]"), "REDISTRIBUTE");
    assert_eq!(kind("SinglePE", "Replicated(2, 2)"), "REPLICATE");
    assert_eq!(kind("Grid(2, 2)", "Replicated(2, 2)"), "REPLICATE");
    assert_eq!(kind("Grid(4, 4)", "SinglePE"), "GATHER");
    assert_eq!(kind("SinglePE", "BlockCyclic(2, 2, 1, 1)"), "SCATTER");
    assert_eq!(kind("Grid(2, 4)", "Grid(2, 4)[1, 0]"), "TRANSPOSE");
    assert_eq!(kind("Grid(2, 4)", "Grid(4, 2)"), "RESHARD");
    assert_eq!(kind("Grid(2, 2)", "BlockCyclic(2, 2, 1, 1)"), "RESHARD");
    assert_eq!(of("Replicated(2, 2)", "Grid(2, 2)", &[8, 8]).cost, FabricCost::default());
    let vector = of("RowPartition(4)", "Grid(2, 2)[0+1]", &[8]);
    assert_eq!((vector.kind, vector.transfers.len()), (TransformKind::Redistribute, 4));
}

/// ML-65: a matrix product of a row and a column partition; ML-68: bytes follow the dtype.
#[test]
fn the_documented_matrix_product_replicates_the_smaller_operand() {
    let bytes = |from: &str, to: &str, shape: &[usize]| of(from, to, shape).cost.bytes_moved;
    let (a, b) = ([1024, 512], [512, 256]);
    assert_eq!(bytes("Grid(4, 1)[-1, 0]", "Replicated(4, 1)", &b), 1_572_864, "on the same PEs");
    assert_eq!(
        bytes("ColPartition(4)", "Replicated(4, 1)", &b),
        1_966_080,
        "only (0, 0) is common"
    );
    assert_eq!(bytes("Grid(1, 4)[1, -1]", "Replicated(1, 4)", &a), 6_291_456);
    assert_eq!(bytes("RowPartition(4)", "Replicated(1, 4)", &a), 7_864_320);
    let halves = transform(&layout("ColPartition(4)"), &layout("Replicated(4, 1)"), &b, 2).unwrap();
    assert_eq!(halves.cost.bytes_moved, 983_040);
}

/// ML-71: the mean of all pairs of 4 x 4 PEs is 2.5 hops, not 4.
#[test]
fn the_hops_of_a_redistribution_are_those_of_its_transfers() {
    let (grid, shape) = (layout("Grid(4, 4)"), [4, 4]);
    let mut wavelet_hops = 0;
    for (down, right) in (0..4).flat_map(|down| (0..4).map(move |right| (down, right))) {
        let moved = MeshLayout::custom_by(4, 4, &shape, |pe| {
            (vec![(pe.row + down) % 4, (pe.col + right) % 4], vec![1, 1])
        });
        let found = transform(&grid, &moved.unwrap(), &shape, 4).unwrap();
        let still = (down, right) == (0, 0);
        let kind = if still { TransformKind::Identity } else { TransformKind::Redistribute };
        assert_eq!(found.kind, kind);
        wavelet_hops += found.cost.wavelet_hops;
    }
    assert_eq!(wavelet_hops as f64 / 256.0, 2.5);
}

/// ML-70, 72, 73, 74.
#[test]
fn the_documented_costs() {
    let shape = [1024, 1024];
    assert_eq!(of("Grid(4, 4)", "Grid(4, 4)", &shape).cost, FabricCost::default());
    let gather = of("Grid(4, 4)", "SinglePE", &shape).cost;
    assert_eq!((gather.wavelet_hops, gather.bytes_moved), (3_145_728, 15 << 18));
    assert_eq!(gather.critical_path, (15 << 16) + 6, "all pass the link of PE (0, 0)");
    assert_eq!(of("SinglePE", "Grid(4, 4)", &shape).cost, gather, "and back");
    let copies = of("SinglePE", "Replicated(4, 4)", &shape).cost;
    assert_eq!(copies.wavelet_hops, (1 << 20) * 15, "each wire of the tree once");
    let all = of("Grid(4, 4)", "Replicated(4, 4)", &shape).cost;
    assert_eq!((all.wavelet_hops, all.bytes_moved), ((1 << 20) * 15, 15 << 22));
}

/// ML-77, 78: a gather of uneven tiles, and a scatter in row-major order.
#[test]
fn the_documented_gather_and_scatter() {
    let found = check(&layout("RowPartition(4)"), &layout("SinglePE"), &[10, 3]);
    let pieces = found.transfers.iter().map(|t| (t.source.row, t.rect.to_string()));
    let rows = ["[0..3, 0..3]", "[3..6, 0..3]", "[6..9, 0..3]", "[9..10, 0..3]"];
    assert_eq!(
        pieces.collect::<Vec<_>>(),
        rows.map(String::from).into_iter().enumerate().collect::<Vec<_>>()
    );
    let found = check(&layout("SinglePE"), &layout("Grid(2, 2)"), &[4, 4]);
    let pieces = found
        .transfers
        .iter()
        .map(|t| (t.target.row, t.target.col, t.source_start.to_vec(), t.target_start.to_vec()));
    let zero = || vec![0, 0];
    assert_eq!(
        pieces.collect::<Vec<_>>(),
        [
            (0, 0, zero(), zero()),
            (0, 1, vec![0, 2], zero()),
            (1, 0, vec![2, 0], zero()),
            (1, 1, vec![2, 2], zero())
        ]
    );
}

/// ML-79.
#[test]
fn the_documented_reshards() {
    let found = check(&layout("Grid(2, 2)"), &layout("Grid(1, 4)"), &[4, 4]);
    assert_eq!((found.transfers.len(), crossing(&found)), (8, 7));
    let cost = found.cost;
    assert_eq!((cost.bytes_moved, cost.wavelets, cost.wavelet_hops), (56, 14, 96 / 4));
    let found = of("Grid(4, 4)", "Grid(2, 8)", &[1024, 1024]);
    assert_eq!((found.transfers.len(), crossing(&found)), (32, 31));
    let cost = found.cost;
    assert_eq!((cost.bytes_moved, cost.wavelet_hops), (4_063_232, 12_582_912 / 4));
}

/// ML-90: a sum of all elements on 4 x 4 PEs combines one number of each.
#[test]
fn a_sum_over_a_grid_moves_one_number_of_each_pe() {
    let partial: P = "<; partial={row: add, col: add}>".parse().unwrap();
    let cost = |to: &str| combine_cost((4, 4), &partial, &layout(to), &[], 4).unwrap().unwrap();
    assert_eq!(cost("SinglePE").bytes_moved, 15 * 4);
    assert_eq!(cost("Replicated(4, 4)").bytes_moved, 2 * 15 * 4);
    let cyclic = combine_cost((4, 4), &partial, &layout("BlockCyclic(1, 1, 2, 2)"), &[4, 4], 4);
    assert_eq!(cyclic, Ok(None));
}

#[test]
fn layouts_that_do_not_fit_the_tensor_are_refused() {
    let of = |from: &str, shape: &[usize]| transform(&layout(from), &layout("SinglePE"), shape, 4);
    assert!(matches!(of("Grid(2, 2)", &[4]), Err(LayoutError::Rank { .. })));
    let table = MeshLayout::custom(1, 1, &[4], vec![(vec![0], vec![4])]).unwrap();
    let wrong = transform(&table, &layout("SinglePE"), &[5], 4);
    assert!(matches!(wrong, Err(LayoutError::Cover(_))));
    let partial: P = "<x>".parse().unwrap();
    let wrong = combine_cost((2, 2), &partial, &layout("SinglePE"), &[4], 4);
    assert!(matches!(wrong, Err(LayoutError::Spec(_))));
}

/// A layout of matrices of a shape.
fn any_layout(which: usize, rows: usize, cols: usize, shape: &[usize; 2]) -> MeshLayout {
    let grid = MeshLayout::grid(rows, cols).unwrap();
    match which {
        0 => MeshLayout::single_pe(),
        1 => MeshLayout::row_partition(rows).unwrap(),
        2 => MeshLayout::col_partition(cols).unwrap(),
        3 => MeshLayout::replicated(rows, cols).unwrap(),
        4 => grid,
        5 => grid.with_axes(&[Some(MeshAxis::Col), Some(MeshAxis::Row)]).unwrap(),
        6 => grid.with_axes(&[None, Some(MeshAxis::Row)]).unwrap(),
        7 => grid.with_axes(&[Some(MeshAxis::Both), None]).unwrap(),
        8 => MeshLayout::block_cyclic(rows, cols, 1, 2).unwrap(),
        9 => MeshLayout::block_cyclic(rows, cols, 3, 1).unwrap(),
        _ => {
            // The tiles of a grid, each on another column.
            let tile = |at: Pe| {
                let from = Pe { row: at.row, col: (at.col + at.row + 1) % cols };
                let rects = grid.rectangles(from, shape).unwrap();
                let nothing = (vec![0, 0], vec![0, 0]);
                rects.into_iter().next().map_or(nothing, |rect| (rect.start, rect.extent))
            };
            MeshLayout::custom_by(rows, cols, shape, tile).unwrap()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// ML-76, 80.
    #[test]
    fn transfers_give_the_new_tiles(
        shape in prop::array::uniform2(0..8usize),
        meshes in prop::array::uniform4(1..4usize),
        which in prop::array::uniform2(0..11usize),
    ) {
        let from = any_layout(which[0], meshes[0], meshes[1], &shape);
        let to = any_layout(which[1], meshes[2], meshes[3], &shape);
        check(&from, &to, &shape);
        let back = check(&to, &from, &shape);
        prop_assert_eq!(transform(&to, &from, &shape, 4), Ok(back));
    }
}
