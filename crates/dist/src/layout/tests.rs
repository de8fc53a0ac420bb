//! Tests of layouts: the examples of the documents, and all elements of many small tensors.

use super::*;

fn pe(row: usize, col: usize) -> Pe {
    Pe { row, col }
}

/// All layouts of a mesh for matrices of a shape.
fn layouts(rows: usize, cols: usize, shape: &[usize; 2]) -> Vec<MeshLayout> {
    let mut all = vec![
        MeshLayout::single_pe(),
        MeshLayout::row_partition(rows).unwrap(),
        MeshLayout::col_partition(cols).unwrap(),
        MeshLayout::grid(rows, cols).unwrap(),
        MeshLayout::replicated(rows, cols).unwrap(),
    ];
    let swapped = [Some(MeshAxis::Col), Some(MeshAxis::Row)];
    all.push(MeshLayout::grid(rows, cols).unwrap().with_axes(&swapped).unwrap());
    all.push(
        MeshLayout::grid(rows, cols).unwrap().with_axes(&[None, Some(MeshAxis::Row)]).unwrap(),
    );
    let flat = [None, Some(MeshAxis::Both)];
    all.push(MeshLayout::grid(rows, cols).unwrap().with_axes(&flat).unwrap());
    for (br, bc) in [(1, 1), (2, 1), (2, 3)] {
        all.push(MeshLayout::block_cyclic(rows, cols, br, bc).unwrap());
    }
    // The tiles of a grid, each moved to another row of the mesh.
    let grid = MeshLayout::grid(rows, cols).unwrap();
    let tile = |at: Pe| {
        let moved = pe((at.row + at.col) % rows, at.col);
        let rects = grid.rectangles(moved, shape).unwrap();
        let nothing = (vec![0, 0], vec![0, 0]);
        rects.into_iter().next().map_or(nothing, |rect| (rect.start, rect.extent))
    };
    all.push(MeshLayout::custom(rows, cols, shape, grid.pes().map(tile).collect()).unwrap());
    all
}

#[test]
fn each_element_has_one_place_in_the_tile_of_each_owner() {
    for shape in (0..8).flat_map(|m| (0..8).map(move |n| [m, n])) {
        for (rows, cols) in (1..5).flat_map(|r| (1..5).map(move |c| (r, c))) {
            for layout in layouts(rows, cols, &shape) {
                check(&layout, &shape);
            }
        }
    }
}

/// Checks that rectangles, owners, local indices and tiles agree, and that each tile is filled
/// exactly.
fn check(layout: &MeshLayout, shape: &[usize; 2]) {
    let mut owners = vec![Vec::new(); shape[0] * shape[1]];
    let mut first = vec![0; shape[0] * shape[1]];
    for at in layout.pes() {
        let tile = layout.tile_shape(at, shape).unwrap();
        let mut filled = vec![false; tile.iter().product()];
        for rect in layout.rectangles(at, shape).unwrap() {
            for (i, j) in (0..rect.extent[0]).flat_map(|i| (0..rect.extent[1]).map(move |j| (i, j)))
            {
                let index = [rect.start[0] + i, rect.start[1] + j];
                let local = [rect.local[0] + i, rect.local[1] + j];
                assert_eq!(layout.local_index(&index, shape).unwrap(), local, "{layout} {shape:?}");
                let place = &mut filled[local[0] * tile[1] + local[1]];
                assert!(
                    !std::mem::replace(place, true),
                    "{layout} {shape:?}: {at:?} has two at {local:?}"
                );
                owners[index[0] * shape[1] + index[1]].push(at);
                first[index[0] * shape[1] + index[1]] +=
                    usize::from(layout.is_first_copy(at, shape).unwrap());
            }
        }
        assert!(filled.iter().all(|&filled| filled), "{layout} {shape:?}: {at:?} has gaps");
    }
    if let Some(sharding) = layout.sharding(2).unwrap() {
        let (rows, cols) = (layout.rows(), layout.cols());
        let back = MeshLayout::of_spec(rows, cols, sharding.spec(), 2).unwrap().unwrap();
        assert_eq!(layout.compatible_with(&back, shape), Ok(true), "{layout} and {back}");
        assert_eq!(layout.simplest(2), Ok(back));
        for (at, rect) in layout.pes().zip(crate::rectangles(&sharding, shape).unwrap()) {
            assert_eq!(layout.tile_shape(at, shape).unwrap(), rect.extent.to_vec());
            for tile in layout.rectangles(at, shape).unwrap() {
                assert_eq!(tile.start, rect.start.to_vec(), "{layout} {shape:?} {at:?}");
            }
        }
    }
    for (number, found) in owners.into_iter().enumerate() {
        let index = [number / shape[1], number % shape[1]];
        assert_eq!(layout.owners(&index, shape).unwrap(), found, "{layout} {shape:?} {index:?}");
        assert_eq!(layout.pe_for_element(&index, shape).unwrap(), found[0]);
        assert_eq!(first[number], 1, "{layout} {shape:?}: one copy is the first");
    }
}

#[test]
fn the_examples_of_the_documents() {
    let (grid, shape) = (MeshLayout::grid(4, 4).unwrap(), [100, 200]);
    assert_eq!(grid.pe_for_element(&[25, 50], &shape), Ok(pe(1, 1)));
    assert_eq!(grid.pe_for_element(&[99, 199], &shape), Ok(pe(3, 3)));
    assert_eq!(grid.local_index(&[27, 53], &shape), Ok(vec![2, 3]));
    assert_eq!(grid.memory_per_pe(&shape, 4), Ok(5000));
    assert!(matches!(grid.pe_for_element(&[100, 0], &shape), Err(LayoutError::Outside { .. })));
    assert!(matches!(grid.pe_for_element(&[1], &shape), Err(LayoutError::Outside { .. })));
    let rows = MeshLayout::row_partition(4).unwrap();
    let tiles = |layout: &MeshLayout, shape: &[usize]| -> Vec<usize> {
        layout.pes().map(|pe| layout.tile_shape(pe, shape).unwrap()[0]).collect()
    };
    assert_eq!(tiles(&rows, &[10, 3]), [3, 3, 3, 1]);
    assert_eq!(tiles(&rows, &[10]), [3, 3, 3, 1], "vectors too");
    let uneven = MeshLayout::grid(11, 12).unwrap();
    assert_eq!(uneven.tile_shape(pe(0, 0), &[1024, 512]), Ok(vec![94, 43]));
    assert_eq!(uneven.tile_shape(pe(10, 11), &[1024, 512]), Ok(vec![84, 39]));
    assert_eq!(MeshLayout::grid(32, 32).unwrap().memory_per_pe(&[1024, 1024], 4), Ok(4096));
    let cyclic = MeshLayout::block_cyclic(3, 1, 2, 1).unwrap();
    assert_eq!(tiles(&cyclic, &[10, 1]), [4, 4, 2]);
    let size = |layout: MeshLayout| (layout.rows(), layout.cols());
    assert_eq!((size(rows.clone()), size(MeshLayout::single_pe())), ((4, 1), (1, 1)));
    assert_eq!(size(MeshLayout::col_partition(8).unwrap()), (1, 8));
    assert_eq!(MeshLayout::grid(750, 994).unwrap().total_pes(), 745_500);
    let offsets: Vec<_> = MeshLayout::grid(2, 2)
        .and_then(|layout| layout.pes().map(|pe| layout.tile_offset(pe, &[4, 4], 4)).collect())
        .unwrap();
    assert_eq!(offsets, [Some(0), Some(8), Some(32), Some(40)]);
}

#[test]
fn tensors_of_a_rank_without_a_layout_are_refused() {
    let grid = MeshLayout::grid(2, 2).unwrap();
    assert!(matches!(grid.tile_shape(pe(0, 0), &[8]), Err(LayoutError::Rank { found: 1, .. })));
    let rows = [Some(MeshAxis::Row)];
    let vector = grid.clone().with_axes(&rows).unwrap();
    assert_eq!(vector.tile_shape(pe(1, 1), &[7]), Ok(vec![3]));
    assert_eq!(vector.owners(&[0], &[7]), Ok(vec![pe(0, 0), pe(0, 1)]), "a copy in each column");
    assert_eq!(MeshLayout::single_pe().tile_shape(pe(0, 0), &[]), Ok(vec![]));
    assert_eq!(
        MeshLayout::replicated(2, 1).unwrap().owners(&[], &[]),
        Ok(vec![pe(0, 0), pe(1, 0)])
    );
    assert!(matches!(
        MeshLayout::row_partition(2).unwrap().tile_shape(pe(0, 0), &[]),
        Err(LayoutError::Rank { .. })
    ));
    let axes = [None, Some(MeshAxis::Row), Some(MeshAxis::Col)];
    let deep = MeshLayout::grid(2, 3).unwrap().with_axes(&axes).unwrap();
    assert_eq!(deep.tile_shape(pe(1, 2), &[5, 4, 7]), Ok(vec![5, 2, 1]));
    assert!(matches!(deep.tile_shape(pe(0, 0), &[4, 4]), Err(LayoutError::Rank { .. })));
    assert!(matches!(grid.clone().with_axes(&[Some(MeshAxis::Row); 2]), Err(LayoutError::Axes(_))));
    let both = [Some(MeshAxis::Both), Some(MeshAxis::Row)];
    assert!(matches!(grid.clone().with_axes(&both), Err(LayoutError::Axes(_))));
    let cyclic = MeshLayout::block_cyclic(2, 2, 1, 1).unwrap();
    assert!(matches!(cyclic.with_axes(&both[..1]), Err(LayoutError::Axes(_))));
    let flat = grid.clone().with_axes(&both[..1]).unwrap();
    assert_eq!(flat.tile_shape(pe(1, 0), &[7]), Ok(vec![2]));
    assert_eq!(flat.to_string().parse(), Ok(flat.clone()));
    assert_eq!(flat.sharding(1).unwrap().unwrap().spec().to_string(), "<(row, col)>");
    assert!(MeshLayout::single_pe().with_axes(&[None]).is_err());
    assert!(matches!(grid.tile_shape(pe(2, 0), &[4, 4]), Err(LayoutError::Outside { .. })));
}

#[test]
fn layouts_are_compatible_if_each_pe_owns_the_same_elements() {
    let same =
        |a: &MeshLayout, b: &MeshLayout, shape: &[usize]| a.compatible_with(b, shape).unwrap();
    let grid = |r, c| MeshLayout::grid(r, c).unwrap();
    let shape = [12, 10];
    assert!(same(&grid(4, 1), &MeshLayout::row_partition(4).unwrap(), &shape));
    assert!(same(&grid(1, 8), &MeshLayout::col_partition(8).unwrap(), &shape));
    assert!(same(&grid(1, 1), &MeshLayout::single_pe(), &shape));
    assert!(!same(&grid(4, 4), &grid(4, 8), &shape));
    assert!(same(&MeshLayout::block_cyclic(3, 4, 4, 3).unwrap(), &grid(3, 4), &shape));
    assert!(!same(&MeshLayout::block_cyclic(3, 4, 2, 3).unwrap(), &grid(3, 4), &shape));
    assert!(!same(&MeshLayout::replicated(2, 2).unwrap(), &grid(2, 2), &shape));
}

/// The table of layouts and shardings in the documents.
#[test]
fn layouts_are_shardings_over_rows_and_columns() {
    let spec = |layout: &str, rank| {
        let sharding = layout.parse::<MeshLayout>().unwrap().sharding(rank).unwrap();
        sharding.map_or("none".into(), |s| format!("{} {:?}", s.spec(), s.mesh().shape()))
    };
    assert_eq!(spec("SinglePE", 2), "<*, *> [1, 1]");
    assert_eq!(spec("RowPartition(4)", 2), "<row, *> [4, 1]");
    assert_eq!(spec("ColPartition(8)", 2), "<*, col> [1, 8]");
    assert_eq!(spec("Grid(4, 8)", 3), "<row, col, *> [4, 8]");
    assert_eq!(spec("Grid(4, 8)[1, -1]", 2), "<col, *> [4, 8]");
    assert_eq!(spec("Replicated(2, 2)", 1), "<*> [2, 2]");
    assert_eq!(spec("BlockCyclic(2, 2, 1, 1)", 2), "none");
    assert!(MeshLayout::grid(2, 2).unwrap().sharding(1).is_err());
    let large = MeshLayout::grid(1 << 13, 1 << 12).unwrap().sharding(2);
    assert!(matches!(large, Err(LayoutError::Size { .. })));
}

#[test]
fn layouts_are_printed_and_read() {
    for text in [
        "SinglePE",
        "RowPartition(4)",
        "ColPartition(8)",
        "Grid(4, 8)",
        "BlockCyclic(2, 3, 4, 5)",
        "Replicated(2, 2)",
    ] {
        assert_eq!(text.parse::<MeshLayout>().unwrap().to_string(), text);
    }
    for text in [
        "Grid(4, 8)[1, 0]",
        "Grid(2, 3)[-1, 0, 1]",
        "RowPartition(4)[-1, 0]",
        "ColPartition(8)[1]",
        "BlockCyclic(2, 3, 4, 5)[1, -1, 0, -1]",
        "Grid(2, 2)[]",
    ] {
        assert_eq!(text.parse::<MeshLayout>().unwrap().to_string(), text);
    }
    let transposed = "Grid(2, 3)[1, 0]".parse::<MeshLayout>().unwrap();
    let axes = [Some(MeshAxis::Col), Some(MeshAxis::Row)];
    assert_eq!(transposed, MeshLayout::grid(2, 3).unwrap().with_axes(&axes).unwrap());
    assert_eq!(transposed.tile_shape(Pe { row: 1, col: 2 }, &[6, 4]).unwrap(), [2, 2]);
    for text in ["Grid(2, 2)[2, 0]", "Grid(2, 2)[0, ]", "Grid(2, 2)[0", "[0]", "Grid(2, 2)0]"] {
        assert!(matches!(text.parse::<MeshLayout>(), Err(LayoutError::Text(_))), "{text}");
    }
    for text in ["Grid(2, 2)[0, 0]", "SinglePE[0]", "Replicated(2, 2)[0, 1]"] {
        assert!(matches!(text.parse::<MeshLayout>(), Err(LayoutError::Axes(_))), "{text}");
    }
    for text in ["", "Grid", "Grid(4)", "Grid(4, 8", "Grid(a, 8)", "Custom(1, 1)", "Grid(-1, 2)"] {
        assert!(matches!(text.parse::<MeshLayout>(), Err(LayoutError::Text(_))), "{text}");
    }
    for text in
        ["Grid(0, 2)", "RowPartition(0)", "BlockCyclic(2, 2, 0, 1)", "BlockCyclic(2, 2, 1, 0)"]
    {
        assert!(
            matches!(text.parse::<MeshLayout>(), Err(LayoutError::Size { found: 0, .. })),
            "{text}"
        );
    }
    assert!(MeshLayout::grid(usize::MAX, 2).is_err());
    let layout = MeshLayout::custom(1, 1, &[2], vec![(vec![0], vec![2])]).unwrap();
    assert_eq!((layout.to_string(), layout.kind()), ("Custom(1, 1)".into(), LayoutKind::Custom));
}

#[test]
fn a_function_may_put_a_tensor_on_the_diagonal() {
    let diagonal = |pe: Pe| match pe.row == pe.col {
        true => (vec![2 * pe.row, 0], vec![2, 5]),
        false => (vec![3, 0], vec![0, 5]),
    };
    let layout = MeshLayout::custom_by(3, 3, &[6, 5], diagonal).unwrap();
    for row in 0..6 {
        let pe = layout.pe_for_element(&[row, 4], &[6, 5]).unwrap();
        assert_eq!(pe, Pe { row: row / 2, col: row / 2 });
        assert_eq!(layout.local_index(&[row, 4], &[6, 5]).unwrap(), [row % 2, 4]);
    }
    for pe in layout.pes() {
        let wanted = if pe.row == pe.col { vec![2, 5] } else { vec![0, 5] };
        assert_eq!(layout.tile_shape(pe, &[6, 5]).unwrap(), wanted, "{pe:?}");
    }
    // Rows 4 and 5 belong to nobody, or row 2 to two processors.
    for extent in [1, 3] {
        let tile = |pe: Pe| (vec![2 * pe.row], vec![if pe.row == 1 { extent } else { 2 }]);
        let layout = MeshLayout::custom_by(3, 1, &[6], tile);
        assert!(matches!(layout, Err(LayoutError::Cover(_))), "{layout:?}");
    }
    assert!(MeshLayout::custom_by(0, 1, &[6], |_| (vec![0], vec![6])).is_err());
}

#[test]
fn tile_tables_with_gaps_or_overlaps_are_refused() {
    let of = |tiles: &[([usize; 1], [usize; 1])]| {
        let tiles: Vec<_> = tiles.iter().map(|(s, e)| (s.to_vec(), e.to_vec())).collect();
        MeshLayout::custom(tiles.len(), 1, &[6], tiles)
    };
    assert!(of(&[([4], [2]), ([0], [4])]).is_ok());
    for tiles in [
        &[([0], [4]), ([3], [3])][..],
        &[([0], [4]), ([4], [1])],
        &[([0], [4]), ([4], [3])],
        &[([0], [6]), ([2], [0]), ([7], [0])],
    ] {
        assert!(matches!(of(tiles), Err(LayoutError::Cover(_))), "{tiles:?}");
    }
    let layout = of(&[([0], [6])]).unwrap();
    assert!(matches!(layout.tile_shape(pe(0, 0), &[5]), Err(LayoutError::Cover(_))));
    assert!(matches!(
        MeshLayout::custom(2, 1, &[6], vec![(vec![0], vec![6])]),
        Err(LayoutError::Cover(_))
    ));
}

#[test]
fn axes_of_a_tensor_are_split_over_the_axes_of_the_mesh_that_they_name() {
    use MeshAxis::{Col, Row};
    // [1, 0] of the documents: the rows over the columns of the mesh, the columns over its rows.
    let turned = MeshLayout::grid(2, 3).unwrap().with_axes(&[Some(Col), Some(Row)]).unwrap();
    let plain = MeshLayout::grid(3, 2).unwrap();
    for (row, col) in (0..2).flat_map(|row| (0..3).map(move |col| (row, col))) {
        let found = turned.rectangles(pe(row, col), &[6, 8]).unwrap();
        let expected = plain.rectangles(pe(col, row), &[6, 8]).unwrap();
        let sides = |rects: &[TileRect]| -> Vec<_> {
            rects.iter().map(|rect| (rect.start.clone(), rect.extent.clone())).collect()
        };
        assert_eq!(sides(&found), sides(&expected), "({row}, {col})");
    }
    // [-1, 0, 1]: the first axis is whole on every processor.
    let three = MeshLayout::grid(2, 3).unwrap().with_axes(&[None, Some(Row), Some(Col)]).unwrap();
    for at in three.pes() {
        let rects = three.rectangles(at, &[5, 4, 6]).unwrap();
        let [rect] = rects.as_slice() else { panic!("{rects:?}") };
        assert_eq!(
            (&rect.start[..], &rect.extent[..]),
            (&[0, 2 * at.row, 2 * at.col][..], &[5, 2, 2][..])
        );
    }
    assert!(three.rectangles(pe(0, 0), &[4, 6]).is_err(), "as many axes as the layout names");
}
