//! Meshes of devices or processing elements: a grid of processors with named axes.

use super::{AxisRef, SubAxis, invalid};
use crate::dim::is_name;
use crate::{MAX_RANK, Result};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// The most processors that a mesh may have.
pub const MAX_PROCESSORS: usize = 1 << 24;

/// The cost of sending along an axis of a mesh.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    latency: f64,
    bandwidth: f64,
}

// Neither number is NaN, and a zero is positive.
impl Eq for Link {}

impl Hash for Link {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.latency.to_bits(), self.bandwidth.to_bits()).hash(state);
    }
}

impl Link {
    /// A link with a latency in seconds and a bandwidth in bytes per second.
    ///
    /// Errors: [`Error::InvalidArgument`](crate::Error::InvalidArgument) unless the latency is at least
    /// 0, the bandwidth more than 0, and both are finite.
    pub fn new(latency: f64, bandwidth: f64) -> Result<Link> {
        if !(latency >= 0.0 && latency.is_finite() && bandwidth > 0.0 && bandwidth.is_finite()) {
            return Err(invalid(format!(
                "a link has a latency of {latency} s and a bandwidth of {bandwidth} B/s; expected \
                 finite numbers, the latency at least 0, the bandwidth more than 0"
            )));
        }
        Ok(Link { latency: latency + 0.0, bandwidth })
    }

    /// The latency in seconds.
    pub fn latency(self) -> f64 {
        self.latency
    }

    /// The bandwidth in bytes per second.
    pub fn bandwidth(self) -> f64 {
        self.bandwidth
    }
}

/// A named axis with the number of processors along it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Axis {
    pub(super) name: Arc<str>,
    pub(super) size: usize,
    pub(super) link: Option<Link>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Inner {
    name: Option<Arc<str>>,
    axes: Vec<Axis>,
    /// The number of processors: the product of the sizes.
    len: usize,
    /// The device of each processor; `None` for a ghost mesh.
    devices: Option<Vec<u32>>,
}

/// A grid of processors with named axes. Its processors have positions `0..len`, in row-major order:
/// the last axis varies fastest. A device is a small number whose meaning is the runtime's. A *ghost*
/// mesh has no devices: it serves to plan for processors that are not there.
///
/// Cost: a clone is a counted reference.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DeviceMesh(Arc<Inner>);

impl DeviceMesh {
    /// A mesh of these sizes and axis names, of devices `0..`.
    ///
    /// Errors: [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a size of 0, more than
    /// [`MAX_PROCESSORS`] processors or [`MAX_RANK`] axes, another number of names than of sizes, and
    /// for a name that is repeated or is not an identifier.
    pub fn new(shape: &[usize], axes: &[impl AsRef<str>]) -> Result<DeviceMesh> {
        let ghost = DeviceMesh::ghost_of(shape, axes)?;
        let devices = (0..ghost.len() as u32).collect();
        Ok(ghost.change(|inner| inner.devices = Some(devices)))
    }

    /// A ghost mesh, checked as [`DeviceMesh::new`] does.
    pub(super) fn ghost_of(shape: &[usize], axes: &[impl AsRef<str>]) -> Result<DeviceMesh> {
        let (sizes, names) = (shape.len(), axes.len());
        if sizes != names || sizes > MAX_RANK {
            return Err(invalid(format!(
                "a mesh of {sizes} sizes has {names} names of axes; give each of at most {MAX_RANK} \
                 axes a size and a name"
            )));
        }
        let axes: Vec<&str> = axes.iter().map(AsRef::as_ref).collect();
        for (i, (&name, &size)) in axes.iter().zip(shape).enumerate() {
            let reason = if !is_name(name) {
                "is not a name; use a letter, then letters, digits and underscores"
            } else if axes[..i].contains(&name) {
                "is there twice; give each axis a name of its own"
            } else if size == 0 {
                "has size 0; a mesh has at least one processor along each axis"
            } else {
                continue;
            };
            return Err(invalid(format!(
                "axis {name:?} of a mesh of shape {shape:?} and axes {axes:?} {reason}"
            )));
        }
        let len = shape.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
        let Some(len) = len.filter(|&len| len <= MAX_PROCESSORS) else {
            return Err(invalid(format!(
                "a mesh of shape {shape:?} has too many processors; a mesh has {MAX_PROCESSORS} at \
                 most"
            )));
        };
        let axis = |(&name, &size): (&&str, &usize)| Axis { name: name.into(), size, link: None };
        let axes = axes.iter().zip(shape).map(axis).collect();
        Ok(DeviceMesh(Arc::new(Inner { name: None, axes, len, devices: None })))
    }

    fn change(mut self, change: impl FnOnce(&mut Inner)) -> DeviceMesh {
        change(Arc::make_mut(&mut self.0));
        self
    }

    /// The mesh with a name, for texts and messages.
    ///
    /// Errors: [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a name that is not an
    /// identifier.
    pub fn named(self, name: &str) -> Result<DeviceMesh> {
        if !is_name(name) {
            return Err(invalid(format!(
                "{name:?} is not a name of a mesh; use a letter, then letters, digits and underscores"
            )));
        }
        Ok(self.change(|inner| inner.name = Some(name.into())))
    }

    /// The mesh without a name.
    pub fn unnamed(self) -> DeviceMesh {
        self.change(|inner| inner.name = None)
    }

    /// The mesh with these devices, in row-major order.
    ///
    /// Errors: [`Error::InvalidArgument`](crate::Error::InvalidArgument) for another number of devices
    /// than processors, and for a device that is named twice.
    pub fn with_devices(self, devices: &[u32]) -> Result<DeviceMesh> {
        if devices.len() != self.len() {
            let (given, len) = (devices.len(), self.len());
            return Err(invalid(format!(
                "{given} devices are given for the {len} processors of {}; name {len} devices",
                self.summary()
            )));
        }
        let mut sorted = devices.to_vec();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(invalid(format!(
                "device {} is in {} twice; name each device once",
                twice[0],
                self.summary()
            )));
        }
        Ok(self.change(|inner| inner.devices = Some(devices.to_vec())))
    }

    /// The mesh without devices.
    pub fn ghost(self) -> DeviceMesh {
        self.change(|inner| inner.devices = None)
    }

    /// The mesh with what it costs to send along an axis.
    ///
    /// Errors: [`Error::InvalidArgument`](crate::Error::InvalidArgument) for a name that no axis has.
    pub fn with_link(self, axis: &str, link: Link) -> Result<DeviceMesh> {
        let Some(at) = self.axis(axis) else {
            return Err(invalid(format!(
                "{axis:?} is not an axis of {}; name one of its axes",
                self.summary()
            )));
        };
        Ok(self.change(|inner| inner.axes[at].link = Some(link)))
    }

    /// The name, if the mesh has one.
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// The sizes of the axes.
    pub fn shape(&self) -> Vec<usize> {
        self.0.axes.iter().map(|axis| axis.size).collect()
    }

    /// The names of the axes.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        self.0.axes.iter().map(|axis| &*axis.name)
    }

    pub(super) fn sized_axes(&self) -> &[Axis] {
        &self.0.axes
    }

    /// The number of axes.
    pub fn rank(&self) -> usize {
        self.0.axes.len()
    }

    /// The number of processors.
    #[allow(clippy::len_without_is_empty, reason = "a mesh is never empty")]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// The device of each processor, in row-major order; `None` for a ghost mesh.
    pub fn devices(&self) -> Option<&[u32]> {
        self.0.devices.as_deref()
    }

    /// The device of a processor; of a ghost mesh, its position.
    ///
    /// Panics if there is no such processor.
    pub fn device(&self, position: usize) -> u32 {
        assert!(position < self.len(), "the mesh has {} processors, not {position}", self.len());
        self.0.devices.as_ref().map_or(position as u32, |devices| devices[position])
    }

    /// True if the mesh has no devices.
    pub fn is_ghost(&self) -> bool {
        self.0.devices.is_none()
    }

    /// The position of an axis, if the mesh has it.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes().position(|axis| axis == name)
    }

    /// The cost of sending along an axis, if it is known.
    pub fn link(&self, axis: &str) -> Option<Link> {
        self.0.axes[self.axis(axis)?].link
    }

    /// The position of a processor along each axis.
    pub fn coordinates(&self, position: usize) -> Vec<usize> {
        let mut rest = position;
        let mut coordinates = vec![0; self.rank()];
        for (at, axis) in coordinates.iter_mut().zip(&self.0.axes).rev() {
            (*at, rest) = (rest % axis.size, rest / axis.size);
        }
        coordinates
    }

    /// The number of parts into which an axis or sub-axis cuts; `None` if the mesh does not have the
    /// axis.
    pub fn size_of(&self, axis: &AxisRef) -> Option<usize> {
        let size = self.0.axes[self.axis(axis.name())?].size;
        Some(axis.sub().map_or(size, |sub| sub.size))
    }

    /// The part of an axis or sub-axis that a processor has; `None` if the mesh does not have it.
    pub fn index_of(&self, axis: &AxisRef, position: usize) -> Option<usize> {
        let at = self.axis(axis.name())?;
        let stride: usize = self.0.axes[at + 1..].iter().map(|axis| axis.size).product();
        let size = self.0.axes[at].size;
        let coordinate = position / stride % size;
        let SubAxis { pre_size, size: part } = axis.sub().unwrap_or(SubAxis { pre_size: 1, size });
        // Below the sub-axis the rest of the axis varies.
        let minor = size / pre_size.checked_mul(part)?.max(1);
        (minor > 0).then(|| coordinate / minor % part.max(1))
    }

    /// The mesh for a message: its name, and its axes with their sizes.
    pub fn summary(&self) -> String {
        let axes: Vec<String> =
            self.0.axes.iter().map(|axis| format!("{}={}", axis.name, axis.size)).collect();
        format!("mesh @{}({})", self.name().unwrap_or_default(), axes.join(", "))
    }
}
