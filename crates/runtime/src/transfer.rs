//! Transfers: copies of host arrays, strided or not, to the tiles of a tensor with a layout, and
//! back.
//!
//! A transfer to a device gathers the tiles before it returns, so that the source may change or be
//! dropped immediately. A transfer to the host scatters each tile in the queue when the tile has
//! arrived.

use crate::queue::host_bytes;
use crate::stream::Batch;
use crate::{
    Completion, Error, HostBytes, Operands, Operation, PlanExecutor, Result, Stream, Strided, Value,
};
use girih_dist::{MeshLayout, Pe};
use girih_ir::TensorSpec;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// A tensor in device memory, with a row-major tile for each processor of a mesh.
pub struct TiledTensor {
    spec: TensorSpec,
    layout: MeshLayout,
    tiles: Vec<(Value, TensorSpec)>,
}

/// An asynchronous transfer.
#[derive(Clone, Debug)]
pub struct TransferHandle {
    id: u64,
    completion: Arc<Completion>,
}

/// Copies tensors between the host and a device on a stream of its own, and measures the transfers.
pub struct TransferManager {
    executor: Arc<PlanExecutor>,
    stream: Stream,
    totals: Arc<Totals>,
}

#[derive(Default)]
struct Totals {
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
}

/// The next transfer number. Transfer numbers are unique in the process.
static TRANSFERS: AtomicU64 = AtomicU64::new(1);

impl TiledTensor {
    /// Shape and dtype of the whole tensor.
    pub fn spec(&self) -> &TensorSpec {
        &self.spec
    }

    /// The distribution of the tensor over processors.
    pub fn layout(&self) -> &MeshLayout {
        &self.layout
    }

    /// The tile of a processor, and its spec; `None` for a processor outside the mesh.
    pub fn tile(&self, pe: Pe) -> Option<(&Value, &TensorSpec)> {
        let inside = pe.row < self.layout.rows() && pe.col < self.layout.cols();
        let number = inside.then(|| pe.row * self.layout.cols() + pe.col)?;
        self.tiles.get(number).map(|(value, spec)| (value, spec))
    }

    /// For each rectangle of a tile, its region in an array of the whole tensor and its region in
    /// the tile.
    fn parts(&self, number: usize, pe: Pe, whole: &Strided) -> Result<Vec<(Strided, Strided)>> {
        let tile = Strided::dense(&self.tiles[number].1);
        let rects = self.layout.rectangles(pe, &self.spec.shape)?;
        let part = |rect: &girih_dist::TileRect| {
            let outside = whole.region(&rect.start, &rect.extent)?;
            Ok((outside, tile.region(&rect.local, &rect.extent)?))
        };
        rects.iter().map(part).collect()
    }
}

impl TransferHandle {
    /// The transfer's number, unique in the process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Whether the transfer has ended, successfully or not.
    pub fn is_complete(&self) -> bool {
        self.completion.poll().is_some()
    }

    /// Blocks until the transfer has ended. May be called repeatedly.
    ///
    /// Errors: the failure of the transfer.
    pub fn wait(&self) -> Result<()> {
        self.completion.wait_or_interrupt()
    }
}

impl TransferManager {
    /// A manager for the device of an executor.
    pub fn new(executor: &Arc<PlanExecutor>) -> TransferManager {
        let stream = executor.stream().helper();
        TransferManager { executor: executor.clone(), stream, totals: Arc::default() }
    }

    /// Allocates memory for a tensor with that layout; its contents are uninitialised.
    ///
    /// Errors: [`Error::Layout`] for a tensor that the layout does not support;
    /// [`Error::OutOfMemory`].
    pub fn allocate(&self, spec: &TensorSpec, layout: &MeshLayout) -> Result<TiledTensor> {
        let tile = |pe| {
            let tile = TensorSpec::new(layout.tile_shape(pe, &spec.shape)?, spec.dtype);
            let buffer = self.executor.device().allocator().allocate(tile.size_bytes())?;
            Ok((Value::new(buffer), tile))
        };
        let tiles = layout.pes().map(tile).collect::<Result<_>>()?;
        Ok(TiledTensor { spec: spec.clone(), layout: layout.clone(), tiles })
    }

    /// Scatters a row-major array to the tiles of a tensor, and waits.
    ///
    /// Errors: as [`TransferManager::host_to_device_async`]; the failure of a copy.
    pub fn host_to_device(&self, source: &[u8], target: &TiledTensor) -> Result<()> {
        self.check_size(source.len(), &target.spec)?;
        self.host_to_device_async(source, &Strided::dense(&target.spec), target)?.wait()
    }

    /// Starts to scatter an array to the tiles of a tensor. `view` is the layout of the array in
    /// `source`. The source may be changed or dropped once this returns.
    ///
    /// Errors: [`Error::Region`] for an array with another shape or element size than the tensor,
    /// or that exceeds the source; [`Error::HostMemory`].
    pub fn host_to_device_async(
        &self,
        source: &[u8],
        view: &Strided,
        target: &TiledTensor,
    ) -> Result<TransferHandle> {
        self.check_view(view, &target.spec)?;
        view.check(source.len())?;
        let (mut batch, mut bytes) = (self.stream.batch(), 0);
        for (number, pe) in target.layout.pes().enumerate() {
            let (value, tile) = &target.tiles[number];
            let size = tile.size_bytes();
            let gathered = host_bytes(size)?;
            {
                let mut gathered = gathered.lock().unwrap_or_else(PoisonError::into_inner);
                for (from, to) in target.parts(number, pe, view)? {
                    from.copy_on_host(source, &to, &mut gathered)?;
                }
            }
            let gathered =
                std::mem::take(&mut *gathered.lock().unwrap_or_else(PoisonError::into_inner));
            let operands = Operands::Tensors(slice::from_ref(value), &[]);
            batch.add(Operation::copy_to_device(gathered), operands)?;
            bytes += size;
        }
        Ok(self.submit(batch, bytes))
    }

    /// Gathers the tiles of a tensor into a row-major array.
    ///
    /// Errors: [`Error::HostMemory`]; the failure of a copy.
    pub fn device_to_host(&self, source: &TiledTensor) -> Result<Box<[u8]>> {
        let (bytes, handle) = self.device_to_host_async(source)?;
        handle.wait()?;
        let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(std::mem::take(&mut *bytes))
    }

    /// Starts to gather the tiles of a tensor into a row-major array, which is complete when the
    /// transfer has ended. Of several tiles with the same elements, only one is read. The tensor
    /// may be dropped once this returns.
    ///
    /// Errors: [`Error::HostMemory`].
    pub fn device_to_host_async(
        &self,
        source: &TiledTensor,
    ) -> Result<(HostBytes, TransferHandle)> {
        let whole = host_bytes(source.spec.size_bytes())?;
        let (mut batch, mut bytes) = (self.stream.batch(), 0);
        let view = Strided::dense(&source.spec);
        for (number, pe) in source.layout.pes().enumerate() {
            if !source.layout.is_first_copy(pe, &source.spec.shape)? {
                continue;
            }
            let (value, tile) = &source.tiles[number];
            let slot = host_bytes(tile.size_bytes())?;
            let parts = source.parts(number, pe, &view)?;
            let operands = Operands::Tensors(slice::from_ref(value), slice::from_ref(&slot));
            batch.add(Operation::copy_from_device(), operands)?;
            let array = whole.clone();
            batch.host("scatter a tile", move || {
                let tile = slot.lock().unwrap_or_else(PoisonError::into_inner);
                let mut array = array.lock().unwrap_or_else(PoisonError::into_inner);
                parts.iter().try_for_each(|(to, from)| from.copy_on_host(&tile, to, &mut array))
            })?;
            bytes += tile.size_bytes();
        }
        Ok((whole, self.submit(batch, bytes)))
    }

    /// Starts to copy the elements of one array in device memory to another one of the same shape.
    ///
    /// Errors: [`Error::Region`] for arrays whose shapes or element sizes differ, or that exceed
    /// their values; [`Error::InvalidHandle`] for values of another device.
    pub fn device_to_device_async(
        &self,
        source: (&Value, &Strided),
        target: (&Value, &Strided),
    ) -> Result<TransferHandle> {
        let device = self.executor.device().as_ref();
        for (value, array) in [source, target] {
            array.check(value.size_bytes())?;
            value.address(value.size_bytes(), device)?;
        }
        let copies = source.1.copies(target.1)?;
        let bytes = source.1.numel() * source.1.item();
        let operands = [source.0.clone(), target.0.clone()];
        let mut batch = self.stream.batch();
        for (from, to, runs) in copies {
            let copy = Operation::copy_on_device(from, to, runs);
            batch.add(copy, Operands::Tensors(&operands, &[]))?;
        }
        Ok(self.submit(batch, bytes))
    }

    /// The total number of bytes of all successful transfers.
    pub fn total_bytes_transferred(&self) -> u64 {
        self.totals.bytes.load(Relaxed)
    }

    /// The mean number of bytes per second of the successful transfers, each measured from its
    /// submission to its end; 0 before the first one.
    pub fn average_transfer_bandwidth(&self) -> f64 {
        match self.totals.nanoseconds.load(Relaxed) {
            0 => 0.0,
            time => {
                self.total_bytes_transferred() as f64 / Duration::from_nanos(time).as_secs_f64()
            }
        }
    }

    fn check_size(&self, found: usize, spec: &TensorSpec) -> Result<()> {
        match found == spec.size_bytes() {
            true => Ok(()),
            false => Err(Error::Region(format!(
                "the source has {found} bytes, a tensor of {spec} has {}",
                spec.size_bytes()
            ))),
        }
    }

    fn check_view(&self, view: &Strided, spec: &TensorSpec) -> Result<()> {
        match view.shape().eq(spec.shape.iter().copied()) && view.item() == spec.dtype.size() {
            true => Ok(()),
            false => Err(Error::Region(format!(
                "an array of shape {:?} with elements of {} bytes is no tensor of {spec}",
                view.shape().collect::<Vec<_>>(),
                view.item()
            ))),
        }
    }

    fn submit(&self, batch: Batch<'_>, bytes: usize) -> TransferHandle {
        let (completion, totals) = (Completion::pending(), self.totals.clone());
        let start = Instant::now();
        completion.then(move |outcome| {
            if outcome.is_ok() {
                totals.bytes.fetch_add(bytes as u64, Relaxed);
                let time = (start.elapsed().as_nanos() as u64).max(1);
                totals.nanoseconds.fetch_add(time, Relaxed);
            }
        });
        // The owner of the handle receives a failure, and later transfers run after it.
        batch.awaited().submit_as(&self.stream, [], completion.clone());
        TransferHandle { id: TRANSFERS.fetch_add(1, Relaxed), completion }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{MockDevice, NoBackend};
    use girih_dist::MeshAxis;
    use girih_ir::DType;
    use std::collections::HashSet;

    fn manager() -> TransferManager {
        let device = MockDevice::concurrent(Duration::ZERO, 1);
        let executor = PlanExecutor::new(device, Arc::new(NoBackend), None);
        TransferManager::new(&Arc::new(executor))
    }

    fn range(count: usize) -> Vec<u8> {
        (0..count as i32).flat_map(i32::to_le_bytes).collect()
    }

    fn numbers(bytes: &[u8]) -> Vec<i32> {
        bytes.chunks(4).map(|b| i32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    fn tile(manager: &TransferManager, tensor: &TiledTensor, row: usize, col: usize) -> Vec<i32> {
        let (value, spec) = tensor.tile(Pe { row, col }).unwrap();
        numbers(&manager.executor.download(value, spec.size_bytes()).unwrap())
    }

    #[test]
    fn tiles_of_a_grid_are_rectangles_of_the_array() {
        let manager = manager();
        let spec = TensorSpec::new([4, 4], DType::I32);
        let tensor = manager.allocate(&spec, &MeshLayout::grid(2, 2).unwrap()).unwrap();
        manager.host_to_device(&range(16), &tensor).unwrap();
        assert_eq!(tile(&manager, &tensor, 0, 0), [0, 1, 4, 5]);
        assert_eq!(tile(&manager, &tensor, 0, 1), [2, 3, 6, 7]);
        assert_eq!(tile(&manager, &tensor, 1, 0), [8, 9, 12, 13]);
        assert_eq!(tile(&manager, &tensor, 1, 1), [10, 11, 14, 15]);
        assert_eq!(numbers(&manager.device_to_host(&tensor).unwrap()), numbers(&range(16)));
        assert!(tensor.tile(Pe { row: 0, col: 2 }).is_none());
    }

    #[test]
    fn transfers_round_trip_in_every_layout() {
        let manager = manager();
        let custom = |m: usize, n: usize| {
            let top = (vec![0, 0], vec![m / 2, n]);
            let bottom = (vec![m / 2, 0], vec![m - m / 2, n]);
            MeshLayout::custom(2, 1, &[m, n], vec![bottom, top]).unwrap()
        };
        for [m, n] in [[4, 4], [7, 5], [1, 9], [3, 0], [2, 2]] {
            let swapped = [Some(MeshAxis::Col), Some(MeshAxis::Row)];
            let spec = TensorSpec::new([m, n], DType::I32);
            for layout in [
                MeshLayout::single_pe(),
                MeshLayout::row_partition(3).unwrap(),
                MeshLayout::col_partition(4).unwrap(),
                MeshLayout::grid(3, 2).unwrap(),
                MeshLayout::grid(3, 2).unwrap().with_axes(&swapped).unwrap(),
                MeshLayout::block_cyclic(2, 2, 1, 2).unwrap(),
                MeshLayout::replicated(2, 2).unwrap(),
                custom(m, n),
            ] {
                let tensor = manager.allocate(&spec, &layout).unwrap();
                manager.host_to_device(&range(m * n), &tensor).unwrap();
                let back = manager.device_to_host(&tensor).unwrap();
                assert_eq!(numbers(&back), numbers(&range(m * n)), "{layout} {m} x {n}");
                for pe in layout.pes() {
                    let rects = layout.rectangles(pe, &[m, n]).unwrap();
                    let elements: usize = rects.iter().map(|r| r.extent[0] * r.extent[1]).sum();
                    assert_eq!(tile(&manager, &tensor, pe.row, pe.col).len(), elements);
                }
            }
        }
        let scalar = TensorSpec::new([], DType::I32);
        let tensor = manager.allocate(&scalar, &MeshLayout::single_pe()).unwrap();
        manager.host_to_device(&range(1), &tensor).unwrap();
        assert_eq!(tile(&manager, &tensor, 0, 0), [0]);
    }

    #[test]
    fn arrays_of_any_strides_are_gathered() {
        let manager = manager();
        let spec = TensorSpec::new([4, 6], DType::I32);
        let layout = MeshLayout::grid(2, 3).unwrap();
        let dense = Strided::dense(&TensorSpec::new([6, 4], DType::I32));
        let memory = range(24);
        let transposed = dense.transpose(&[1, 0]).unwrap();
        let backwards = transposed.slice(0, 3, 4, -1).unwrap().slice(1, 5, 6, -1).unwrap();
        for (view, at) in [
            (transposed, &(|i, j| j * 4 + i) as &dyn Fn(i32, i32) -> i32),
            (backwards, &|i, j| (5 - j) * 4 + 3 - i),
        ] {
            let tensor = manager.allocate(&spec, &layout).unwrap();
            manager.host_to_device_async(&memory, &view, &tensor).unwrap().wait().unwrap();
            let found = numbers(&manager.device_to_host(&tensor).unwrap());
            let expected: Vec<i32> = (0..4).flat_map(|i| (0..6).map(move |j| at(i, j))).collect();
            assert_eq!(found, expected);
        }
        // Every other column of a wider array.
        let wide = Strided::dense(&TensorSpec::new([4, 12], DType::I32));
        let view = wide.slice(1, 1, 6, 2).unwrap();
        let tensor = manager.allocate(&spec, &layout).unwrap();
        manager.host_to_device_async(&range(48), &view, &tensor).unwrap().wait().unwrap();
        let found = numbers(&manager.device_to_host(&tensor).unwrap());
        let expected: Vec<i32> = (0..24).map(|k| k / 6 * 12 + k % 6 * 2 + 1).collect();
        assert_eq!(found, expected);
        let error = manager.host_to_device_async(&memory, &wide, &tensor).unwrap_err();
        assert!(matches!(error, Error::Region(_)), "{error}");
        let error = manager.host_to_device_async(&memory, &view, &tensor).unwrap_err();
        assert!(matches!(error, Error::Region(_)), "beyond the source: {error}");
    }

    #[test]
    fn regions_are_copied_within_the_device() {
        let manager = manager();
        let spec = TensorSpec::new([4, 6], DType::I32);
        let source = manager.executor.upload(&range(24)).unwrap();
        let target = manager.executor.upload(&[0; 96]).unwrap();
        let dense = Strided::dense(&spec);
        // Copies the middle, with the rows reversed, to the last columns.
        let from = dense.region(&[1, 1], &[2, 3]).unwrap().slice(0, 1, 2, -1).unwrap();
        let to = dense.region(&[0, 3], &[2, 3]).unwrap();
        let handle = manager.device_to_device_async((&source, &from), (&target, &to)).unwrap();
        handle.wait().unwrap();
        let found = numbers(&manager.executor.download(&target, 96).unwrap());
        let mut expected = [0; 24];
        expected[3..6].copy_from_slice(&[13, 14, 15]);
        expected[9..12].copy_from_slice(&[7, 8, 9]);
        assert_eq!(found, expected);
        // A view has the buffer's handle and an offset.
        let view = source.skip(48);
        let half = Strided::dense(&TensorSpec::new([2, 6], DType::I32));
        let handle = manager.device_to_device_async((&view, &half), (&target, &half)).unwrap();
        handle.wait().unwrap();
        let found = numbers(&manager.executor.download(&target, 48).unwrap());
        assert_eq!(found, numbers(&range(24))[12..]);
        let error = manager.device_to_device_async((&view, &dense), (&target, &dense));
        assert!(matches!(error, Err(Error::Region(_))));
    }

    #[test]
    fn transfers_have_numbers_are_counted_and_outlive_their_source() {
        let manager = manager();
        assert_eq!(manager.total_bytes_transferred(), 0);
        assert_eq!(manager.average_transfer_bandwidth(), 0.0);
        let spec = TensorSpec::new([8], DType::I32);
        let tensor = manager.allocate(&spec, &MeshLayout::row_partition(3).unwrap()).unwrap();
        let mut source = range(8);
        let view = Strided::dense(&spec);
        let handles: Vec<TransferHandle> = (0..10)
            .map(|_| manager.host_to_device_async(&source, &view, &tensor).unwrap())
            .collect();
        source.fill(0);
        drop(source);
        let (bytes, reading) = manager.device_to_host_async(&tensor).unwrap();
        drop(tensor);
        for handle in handles.iter().chain([&reading, &reading]) {
            handle.wait().unwrap();
            handle.wait().unwrap();
            assert!(handle.is_complete());
        }
        assert_eq!(numbers(&bytes.lock().unwrap()), numbers(&range(8)));
        let ids: HashSet<u64> =
            handles.iter().chain([&reading]).map(|handle| handle.id()).collect();
        assert_eq!(ids.len(), 11);
        assert_eq!(manager.total_bytes_transferred(), 11 * 32);
        assert!(manager.average_transfer_bandwidth() > 0.0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let tensor = manager.allocate(&spec, &MeshLayout::single_pe()).unwrap();
                    (0..50).for_each(|_| manager.host_to_device(&range(8), &tensor).unwrap());
                });
            }
        });
        assert_eq!(manager.total_bytes_transferred(), (11 + 200) * 32);
    }

    #[test]
    fn sizes_and_layouts_that_do_not_fit_are_refused() {
        let manager = manager();
        let spec = TensorSpec::new([4, 4], DType::I32);
        let tensor = manager.allocate(&spec, &MeshLayout::grid(2, 2).unwrap()).unwrap();
        for bytes in [0, 63, 65] {
            let error = manager.host_to_device(&vec![0; bytes], &tensor).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(&bytes.to_string()) && text.contains("64"), "{text}");
        }
        let vector = TensorSpec::new([4], DType::I32);
        let error = manager.allocate(&vector, &MeshLayout::grid(2, 2).unwrap()).err();
        assert!(matches!(error, Some(Error::Layout(_))));
        let large = TensorSpec::new([1 << 20], DType::I32);
        let error = manager.allocate(&large, &MeshLayout::single_pe()).err();
        assert!(matches!(error, Some(Error::OutOfMemory { .. })));
        assert_eq!(manager.total_bytes_transferred(), 0);
    }
}
