//! Tests of the choice of layouts: the documented figures, and a search over all meshes.

use super::*;
use crate::TileRect;
use proptest::prelude::*;

fn auto(shape: &[usize], item: usize) -> String {
    MeshLayout::auto(shape, item).unwrap().to_string()
}

/// ML-30, 31, 33, 34, 35, 37, 40.
#[test]
fn the_documented_tensors_have_layouts_that_fit() {
    assert_eq!(auto(&[8192], 4), "SinglePE");
    assert_eq!(auto(&[8193], 4), "RowPartition(2)");
    assert_eq!(auto(&[1024, 1024], 4), "Grid(8, 16)");
    let tile = MeshLayout::auto(&[1024, 1024], 4).unwrap();
    assert_eq!(tile.tile_shape(Pe::default(), &[1024, 1024]).unwrap(), [128, 64]);
    assert_eq!(tile.memory_per_pe(&[1024, 1024], 4), Ok(32_768));
    assert_eq!(MeshLayout::auto(&[1024, 1024], 2).unwrap().total_pes(), 64, "half the bytes");
    assert_eq!(LayoutConstraints::default().min_pes(&[1024, 1024], 4), 128);
    assert_eq!(auto(&[8_388_608], 4), "Grid(2, 512)[0+1]", "more parts than rows or columns");
    assert_eq!(auto(&[], 8), "SinglePE");
    assert_eq!(auto(&[0, usize::MAX, 7], 4), "SinglePE");
    for shape in [&[1024, 4, 4, 4][..], &[512, 4, 4, 4], &[65_536, 4], &[1000, 1000], &[1100, 1000]]
    {
        let layout = MeshLayout::auto(shape, 4).unwrap();
        LayoutConstraints::default().check(&layout, shape, 4).unwrap();
        let least = LayoutConstraints::default().min_pes(shape, 4);
        assert!((least..=least + 2).contains(&layout.total_pes()), "{layout} for {shape:?}");
    }
}

/// ML-27, 28.
#[test]
fn the_documented_layouts_of_a_matrix() {
    let (rows, shape) = (MeshLayout::row_partition(4).unwrap(), [1024, 1024]);
    let starts = rows.pes().map(|pe| match &rows.rectangles(pe, &shape).unwrap()[..] {
        [TileRect { start, extent, .. }] => (start[0], start[0] + extent[0] - 1),
        other => panic!("{other:?}"),
    });
    assert_eq!(starts.collect::<Vec<_>>(), [(0, 255), (256, 511), (512, 767), (768, 1023)]);
    let usage = |layout: &MeshLayout| memory_usage_per_pe(layout, &shape, 4).unwrap();
    assert_eq!((usage(&rows).min, usage(&rows).max), (1 << 20, 1 << 20));
    let limits = LayoutConstraints::default();
    assert!(limits.check(&rows, &shape, 4).is_err(), "still too large");
    let grid = MeshLayout::grid(32, 32).unwrap();
    assert_eq!(grid.tile_shape(Pe { row: 31, col: 31 }, &shape).unwrap(), [32, 32]);
    assert_eq!((usage(&grid).max, usage(&grid).total, grid.total_pes()), (4096, 1 << 22, 1024));
    limits.check(&grid, &shape, 4).unwrap();
}

/// ML-114..116.
#[test]
fn the_weights_of_the_documented_network() {
    let usage = |layout: MeshLayout, shape: &[usize]| {
        let usage = memory_usage_per_pe(&layout, shape, 4).unwrap();
        (usage.min, usage.max, (usage.average * 1e6).round() / 1e6, usage.total)
    };
    let grid = |rows, cols| MeshLayout::grid(rows, cols).unwrap();
    assert_eq!(usage(grid(11, 12), &[1024, 512]), (13_104, 16_168, 15_887.515152, 2_097_152));
    assert_eq!(usage(grid(5, 7), &[512, 256]), (13_600, 15_244, 14_979.657143, 524_288));
    assert_eq!(usage(MeshLayout::single_pe(), &[256, 10]), (10_240, 10_240, 10_240.0, 10_240));
    assert_eq!(usage(grid(3, 3), &[2, 2]), (0, 4, 1.777778, 16), "PEs without elements");
}

/// ML-26, 10, 38.
#[test]
fn a_layout_that_does_not_fit_is_refused_with_a_cure() {
    let limits = LayoutConstraints::default();
    let error = |limits: &LayoutConstraints, layout: &MeshLayout, shape: &[usize]| {
        limits.check(layout, shape, 4).unwrap_err().to_string()
    };
    assert_eq!(
        error(&limits, &MeshLayout::single_pe(), &[1024, 1024]),
        "SinglePE of a tensor of [1024, 1024] has tiles of 4194304 B, more than the 32768 B of a PE; \
         the first one is [1024, 1024]; use Grid(8, 16)"
    );
    assert_eq!(
        error(&limits, &MeshLayout::grid(800, 2).unwrap(), &[1600, 1024]),
        "Grid(800, 2) has 800 x 2 PEs, the fabric 750 x 994; use Grid(25, 8)"
    );
    assert_eq!(
        error(&limits, &MeshLayout::grid(4, 4).unwrap(), &[4, 4]),
        "Grid(4, 4) of a tensor of [4, 4] has tiles of 1 elements, fewer than 64; use SinglePE"
    );
    let huge = MeshLayout::auto(&[1 << 20, 1 << 20], 4).unwrap_err().to_string();
    assert!(
        huge.contains("no layout fits a tensor of [1048576, 1048576], 4398046511104 B"),
        "{huge}"
    );
    assert!(MeshLayout::auto(&[usize::MAX, usize::MAX], 8).is_err(), "sizes saturate");
}

/// ML-29: each constraint changes a result.
#[test]
fn each_constraint_counts() {
    let default = LayoutConstraints::default();
    let layout = |limits: LayoutConstraints, shape: &[usize]| {
        limits.auto(shape, 4).map(|layout| layout.to_string()).map_err(|_| ())
    };
    let matrix = [1024, 1024];
    assert_eq!(layout(default, &matrix), Ok("Grid(8, 16)".into()));
    let small = LayoutConstraints { max_memory_per_pe: 8192, ..default };
    assert_eq!(layout(small, &matrix), Ok("Grid(16, 32)".into()));
    let flat = LayoutConstraints { max_pe_rows: 4, ..default };
    assert_eq!(layout(flat, &matrix), Ok("Grid(4, 32)".into()));
    let narrow = LayoutConstraints { max_pe_cols: 4, ..default };
    assert_eq!(layout(narrow, &matrix), Ok("Grid(32, 4)".into()));
    let any = LayoutConstraints { prefer_square_tiles: false, ..default };
    assert_eq!(layout(any, &matrix), Ok("Grid(1, 128)".into()));
    let coarse = LayoutConstraints { min_tile_elements: 10_000, ..default };
    assert_eq!(layout(coarse, &matrix), Err(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// ML-32: what is chosen fits, and no other mesh needs fewer PEs or has a lower score.
    #[test]
    fn no_mesh_is_better(
        shape in prop::array::uniform2(1..60usize),
        rows in 1..9usize,
        cols in 1..9usize,
        limit in 4..2000usize,
    ) {
        let limits = LayoutConstraints {
            max_memory_per_pe: limit,
            min_tile_elements: 1,
            max_pe_rows: rows,
            max_pe_cols: cols,
            prefer_square_tiles: true,
        };
        let key = |layout: &MeshLayout| {
            let tile = layout.tile_shape(Pe::default(), &shape).unwrap();
            (layout.total_pes(), limits.score(&tile, 4), layout.rows())
        };
        let all = (1..=rows).flat_map(|r| (1..=cols).map(move |c| MeshLayout::grid(r, c).unwrap()));
        let fitting = all.filter(|layout| limits.check(layout, &shape, 4).is_ok());
        let best = fitting.min_by(|a, b| key(a).partial_cmp(&key(b)).unwrap());
        match limits.auto(&shape, 4) {
            Ok(found) => {
                limits.check(&found, &shape, 4).unwrap();
                if let Some(best) = best {
                    prop_assert!(key(&found) <= key(&best), "{found} and {best}");
                }
            }
            Err(_) => prop_assert_eq!(best, None),
        }
    }
}
