//! Checks of transfers between arrays and tiles.

use crate::Random;
use crate::rig::Subject;

use girih_ir::{DType, TensorSpec};
use girih_runtime::{MeshLayout, Strided, TransferManager};

fn layouts() -> Vec<MeshLayout> {
    let layouts = [
        Ok(MeshLayout::single_pe()),
        MeshLayout::row_partition(3),
        MeshLayout::grid(3, 2),
        MeshLayout::block_cyclic(2, 2, 1, 2),
        MeshLayout::replicated(2, 2),
    ];
    layouts.into_iter().map(|layout| layout.expect("the layouts are sound")).collect()
}

fn check_bytes(subject: &Subject, bytes: &[u8], expected: &[u8], what: &str) {
    assert_eq!(bytes.len(), expected.len(), "{what}");
    assert!(!subject.computes() || bytes == expected, "{what}: other bytes");
}

/// With every layout, a transfer to tiles and back returns the same array, also with other
/// transfers in flight. Tiles are also copied to the tiles of another tensor.
pub fn arrays_come_back_from_their_tiles(subject: &Subject) {
    let rig = subject.rig();
    let manager = TransferManager::new(&rig.executor);
    let mut random = Random::new(12);
    for [m, n] in [[7, 5], [1, 9], [4, 4], [3, 0]] {
        let spec = TensorSpec::new([m, n], DType::F32);
        let dense = Strided::dense(&spec);
        let mut under_way = Vec::new();
        for layout in layouts() {
            let bytes = random.bytes(spec.size_bytes());
            let tensor = manager.allocate(&spec, &layout).unwrap();
            let handle = manager.host_to_device_async(&bytes, &dense, &tensor).unwrap();
            under_way.push((layout, bytes, tensor, handle));
        }
        for (layout, bytes, tensor, handle) in under_way {
            let what = format!("{layout} of {m} x {n}");
            handle.wait().unwrap();
            assert!(handle.is_complete());
            check_bytes(subject, &manager.device_to_host(&tensor).unwrap(), &bytes, &what);
            let other = manager.allocate(&spec, &layout).unwrap();
            for pe in layout.pes() {
                let ((from, spec), (to, _)) = (tensor.tile(pe).unwrap(), other.tile(pe).unwrap());
                let whole = Strided::dense(spec);
                let copy = manager.device_to_device_async((from, &whole), (to, &whole));
                copy.unwrap().wait().unwrap();
            }
            drop(tensor);
            check_bytes(subject, &manager.device_to_host(&other).unwrap(), &bytes, &what);
        }
    }
    drop(manager);
    assert_eq!(rig.in_use(), 0, "tiles are freed with their tensors");
}

/// Arrays that are not row-major are gathered in the transfer.
pub fn views_of_arrays_are_gathered(subject: &Subject) {
    let rig = subject.rig();
    let manager = TransferManager::new(&rig.executor);
    let mut random = Random::new(13);
    let bytes = random.bytes(4 * 6 * 8);
    let whole = Strided::dense(&TensorSpec::new([6, 8], DType::F32));
    // Every other column, backwards from the last one, transposed.
    let view = whole.slice(1, 7, 4, -2).unwrap().transpose(&[1, 0]).unwrap();
    let element = |i: usize, j: usize| &bytes[4 * (8 * i + j)..][..4];
    let expected: Vec<u8> =
        (0..4).flat_map(|j| (0..6).flat_map(move |i| element(i, 7 - 2 * j).to_vec())).collect();
    for layout in layouts() {
        let tensor = manager.allocate(&TensorSpec::new([4, 6], DType::F32), &layout).unwrap();
        manager.host_to_device_async(&bytes, &view, &tensor).unwrap().wait().unwrap();
        let found = manager.device_to_host(&tensor).unwrap();
        check_bytes(subject, &found, &expected, &layout.to_string());
    }
}
