//! Placements over several devices: a mesh with a sharding, interned under the number by which the
//! nodes on the mesh name it.

use crate::device::Device;
use crate::error::{Error, Result};
use girih_ir::{DeviceMesh, Sharding};
use girih_runtime::{DeviceId, Value};
use girih_sync::{Mutex, OnceLock};
use rustc_hash::FxHashMap;
use std::fmt;
use std::sync::PoisonError;

/// The number of placements that a node can name, devices included: 13 bits.
pub(crate) const NUMBERS: usize = 1 << 13;

/// A mesh of devices of this process.
#[derive(Debug)]
pub struct PlacedMesh {
    mesh: DeviceMesh,
    /// The device of each processor; none for a ghost mesh.
    devices: Vec<Device>,
}

impl PlacedMesh {
    /// The mesh.
    pub fn mesh(&self) -> &DeviceMesh {
        &self.mesh
    }

    /// The device of each processor, in the mesh's order; empty for a ghost mesh.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    pub(crate) fn first_device(&self) -> Device {
        self.devices.first().copied().unwrap_or(Device::CPU)
    }
}

/// Where a graph is computed.
#[derive(Clone, Copy, Debug)]
pub enum Home {
    /// On one device.
    Device(DeviceId),
    /// On all devices of a mesh.
    Mesh(&'static PlacedMesh),
}

impl Home {
    /// Whether a value on one device may be an argument. A mesh copies it to its devices.
    #[inline]
    pub(crate) fn takes(self, value: &Value) -> bool {
        match self {
            Home::Device(device) => value.device() == device,
            Home::Mesh(_) => true,
        }
    }

    /// Whether nodes under this placement are computed here.
    #[inline]
    pub(crate) fn has(self, placement: Option<&MeshPlacement>) -> bool {
        match (self, placement) {
            (Home::Mesh(mesh), Some(placement)) => std::ptr::eq(mesh, placement.mesh),
            _ => false,
        }
    }
}

/// A mesh of devices with a sharding.
#[derive(Debug)]
pub struct MeshPlacement {
    number: u16,
    mesh: &'static PlacedMesh,
    sharding: Sharding,
}

impl MeshPlacement {
    /// The number by which nodes name the placement.
    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// The mesh with its devices.
    pub fn mesh(&self) -> &'static PlacedMesh {
        self.mesh
    }

    /// The sharding.
    pub fn sharding(&self) -> &Sharding {
        &self.sharding
    }
}

impl fmt::Display for MeshPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sharding.fmt(f)
    }
}

/// The interned placements by number, from [`Device::MAX`] on. They stay for the life of the
/// process; a program has few.
static PLACEMENTS: [OnceLock<MeshPlacement>; NUMBERS - Device::MAX] =
    [const { OnceLock::new() }; NUMBERS - Device::MAX];

#[derive(Default)]
struct Known {
    numbers: FxHashMap<Sharding, usize>,
    meshes: Vec<&'static PlacedMesh>,
}

static KNOWN: OnceLock<Mutex<Known>> = OnceLock::new();

/// Whether any tensor of the process has been on a mesh.
#[inline]
pub fn any() -> bool {
    PLACEMENTS[0].get().is_some()
}

pub(crate) fn numbered(number: u16) -> &'static MeshPlacement {
    let at = number as usize - Device::MAX;
    PLACEMENTS[at].get().expect("only interned placements are handed out")
}

/// The placement of a sharding.
///
/// Errors: [`Error::DeviceUnavailable`] if the process does not have the mesh's devices;
/// [`Error::InvalidArgument`] if the process has too many shardings.
pub fn placed(sharding: &Sharding) -> Result<&'static MeshPlacement> {
    let known = KNOWN.get_or_init(Mutex::default);
    let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(&at) = known.numbers.get(sharding) {
        return Ok(numbered((at + Device::MAX) as u16));
    }
    let mesh = known.mesh(sharding.mesh())?;
    let at = known.numbers.len();
    let Some(slot) = PLACEMENTS.get(at) else {
        return Err(Error::InvalidArgument(format!(
            "{sharding}: the process has used {at} shardings already, the most that tensors can name"
        )));
    };
    let number = (at + Device::MAX) as u16;
    known.numbers.insert(sharding.clone(), at);
    Ok(slot.get_or_init(|| MeshPlacement { number, mesh, sharding: sharding.clone() }))
}

impl Known {
    /// The mesh with its devices. Names of meshes do not count.
    fn mesh(&mut self, mesh: &DeviceMesh) -> Result<&'static PlacedMesh> {
        let mesh = mesh.clone().unnamed();
        if let Some(known) = self.meshes.iter().find(|known| known.mesh == mesh) {
            return Ok(known);
        }
        let device = |&number: &u32| {
            let device = u8::try_from(number).ok().and_then(Device::numbered);
            device.ok_or_else(|| Error::DeviceUnavailable {
                name: format!("number {number}"),
                reason: format!(
                    "the mesh {mesh} has {} processors, and this process has no such device; the \
                     environment variable GIRIH_HOST_DEVICES={} gives it as many, and a ghost mesh \
                     needs none",
                    mesh.len(),
                    mesh.len()
                ),
            })
        };
        let devices = mesh.devices().unwrap_or(&[]).iter().map(device).collect::<Result<_>>()?;
        let placed: &'static PlacedMesh = Box::leak(Box::new(PlacedMesh { mesh, devices }));
        self.meshes.push(placed);
        Ok(placed)
    }
}
