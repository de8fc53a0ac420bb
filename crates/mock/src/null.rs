//! A device that checks its arguments and runs nothing. It measures the cost of the pipeline alone,
//! and accepts programs too large for the host.

use crate::memory::bases;
use girih_runtime::{
    Allocator, Binary, Buffer, Device, DeviceId, Error, Launch, LoadedProgram, Place, Properties,
    Result,
};
use std::sync::Arc;

/// A device without memory. Reads return zeros. It loads the binaries of any back end.
pub struct NullDevice {
    properties: Properties,
    allocator: Arc<Allocator>,
    /// The base address and size of each region.
    regions: Vec<(u64, usize)>,
}

impl NullDevice {
    /// A device with regions of these sizes, in bytes.
    pub fn new(regions: &[usize]) -> Arc<NullDevice> {
        let allocator = Allocator::new(DeviceId::unique(), "null", regions);
        let bases = bases(regions.len());
        allocator.place_regions(&bases);
        Arc::new(NullDevice {
            properties: Properties {
                name: "null".into(),
                target: "null".into(),
                memory_bytes: regions.iter().sum(),
                concurrency: usize::MAX,
                copy_engines: false,
                own_queues: false,
                host_memory: false,
            },
            allocator,
            regions: bases.into_iter().zip(regions.iter().copied()).collect(),
        })
    }

    fn holds(&self, address: u64) -> bool {
        self.regions.iter().any(|&(base, size)| (base..=base + size as u64).contains(&address))
    }
}

impl Device for NullDevice {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocator(&self) -> &Arc<Allocator> {
        &self.allocator
    }

    fn copy_to_device(&self, _: Option<usize>, source: &[u8], target: Place<'_>) -> Result<()> {
        target.address(source.len(), self).map(drop)
    }

    fn copy_from_device(
        &self,
        _: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        source.address(target.len(), self)?;
        target.fill(0);
        Ok(())
    }

    fn load(&self, binary: &Binary, _: Option<Arc<Buffer>>) -> Result<LoadedProgram> {
        Ok(binary.clone())
    }

    fn launch(&self, _: Option<usize>, launch: Launch<'_>) -> Result<()> {
        if launch.control().stopped() {
            return Err(launch.control().error("launch"));
        }
        // Buffers that no kernel uses have address 0.
        let wrong = launch.addresses().iter().find(|at| **at != 0 && !self.holds(**at));
        wrong.map_or(Ok(()), |address| {
            Err(Error::Launch {
                operation: "launch".into(),
                device: self.properties.name.clone(),
                reason: format!("address {address:#x} is in none of the device's regions"),
            })
        })
    }
}
