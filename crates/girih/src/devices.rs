//! The devices of the process: the list of devices, the current device of a scope, and memory
//! statistics.

pub(crate) mod cpu;
mod registry;
mod transfer;

pub(crate) use transfer::{Transferred, carried, colocate, mixed, transfer_values};

use crate::executor::Executor;
use crate::place::Place;
use crate::{Context, Error, Result, Tensor};
use girih_runtime::{Backend, DeviceId, MemoryStats, Value};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A device of the process for tensors: `cpu`, the further host devices of `GIRIH_HOST_DEVICES`
/// (`cpu:1`), the mock accelerator (`mock`), and registered devices.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device(u8);

/// Properties of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// The name: `cpu`, `mock`.
    pub name: String,
    /// The instruction set, or other target, that programs are compiled for.
    pub target: String,
    /// The maximum number of submissions, from different streams, that run at once; `None` for no
    /// limit.
    pub concurrency: Option<usize>,
    /// The current memory statistics.
    pub memory: MemoryStats,
}

impl Device {
    /// The host's processor, whose memory is the memory of the process.
    pub const CPU: Device = Device(0);

    /// The device named `name`. The mock accelerator is created by its name, with settings after a
    /// colon: `mock:physical,corrected,concurrent`.
    ///
    /// Errors: [`Error::UnknownDevice`], with the existing names; [`Error::DeviceUnavailable`].
    pub fn named(name: &str) -> Result<Device> {
        registry::default()?;
        registry::named(name)
    }

    /// The default device of programs: the device in the environment variable `GIRIH_DEVICE`, or
    /// `cpu` if the variable is unset. If the value is invalid, the device is `cpu`, and the first
    /// evaluation fails.
    pub fn of_process() -> Device {
        registry::default().unwrap_or(Device::CPU)
    }

    /// The device whose memory holds a value.
    pub fn of(value: &Value) -> Device {
        Device::with_id(value.buffer.handle().device()).unwrap_or(Device::CPU)
    }

    /// The device with the runtime's id `id`, if it has been used.
    pub fn with_id(id: DeviceId) -> Option<Device> {
        if id == DeviceId::HOST {
            return Some(Device::CPU);
        }
        let is_its = |executor: &Executor| executor.runtime().device().id() == id;
        let found = registry::all().find(|(_, entry)| entry.running().is_some_and(is_its));
        found.map(|(device, _)| device)
    }

    /// The device on which the tensors are computed colocate; the current device if there are no
    /// tensors. `what` names the operation in the error.
    ///
    /// Errors: [`Error::MixedDevices`].
    pub fn common(what: &'static str, tensors: &[&Tensor]) -> Result<Device> {
        let mut places = tensors.iter().map(|t| t.node().place());
        let Some(first) = places.next() else { return Ok(Context::current().device()) };
        let all = places.try_fold(first, Place::merge);
        all.map(Place::device).ok_or_else(|| mixed(what, tensors))
    }

    /// The device's name.
    pub fn name(self) -> &'static str {
        &registry::entry(self).name
    }

    /// The device's properties. Sets up the device if it has not been used.
    ///
    /// Errors: if the environment variables do not allow the device to be set up.
    pub fn info(self) -> Result<DeviceInfo> {
        let device = self.executor()?.runtime().device();
        let properties = device.properties();
        Ok(DeviceInfo {
            name: self.name().to_string(),
            target: properties.target.clone(),
            concurrency: Some(properties.concurrency).filter(|&n| n != usize::MAX),
            memory: device.allocator().stats(),
        })
    }

    /// The executor of the device's programs, for contexts without an executor.
    ///
    /// Errors: if the environment variables do not allow the device to be set up.
    pub(crate) fn executor(self) -> Result<&'static Executor> {
        registry::entry(self).executor(self)
    }

    /// The device with number `index`, if there is one.
    pub(crate) fn numbered(index: u8) -> Option<Device> {
        registry::all().map(|(device, _)| device).find(|device| device.index() == index)
    }

    pub(crate) fn from_index(index: u8) -> Device {
        Device(index)
    }

    pub(crate) fn index(self) -> u8 {
        self.0
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Makes a device current until dropped: data is placed on it, and constants and random draws are
/// recorded for it.
#[must_use = "the scope ends when it is dropped"]
pub struct DeviceScope {
    previous: Option<Device>,
    _not_send: PhantomData<*const ()>,
}

impl DeviceScope {
    /// Enters the scope.
    ///
    /// ```
    /// use girih::{Device, DeviceScope, Tensor};
    ///
    /// let mock = Device::named("mock")?;
    /// let scope = DeviceScope::new(mock);
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    /// drop(scope);
    /// assert_eq!(x.device(), mock);
    /// assert_eq!(x.mul(2.0)?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    pub fn new(device: Device) -> DeviceScope {
        let previous = Context::current().swap_device(Some(device));
        DeviceScope { previous, _not_send: PhantomData }
    }
}

impl Drop for DeviceScope {
    fn drop(&mut self) {
        Context::current().swap_device(self.previous.take());
    }
}

/// Adds a device to the process, with the back end that compiles for it. [`Device::named`] takes
/// its name.
///
/// Errors: [`Error::InvalidArgument`] for a name that is invalid, exists already or means another
/// kind of device; and if the maximum number of devices is reached.
pub fn register_device(
    name: &str,
    device: Arc<dyn girih_runtime::Device>,
    backend: Arc<dyn Backend>,
) -> Result<Device> {
    registry::default()?;
    let taken = |reason: &str| {
        Err(Error::InvalidArgument(format!(
            "register_device: '{name}' {reason}; give another name"
        )))
    };
    if name.trim() != name || name.is_empty() || name.contains([':', ',']) {
        return taken("is no name of a device (no colons, commas or spaces around it)");
    }
    if !matches!(registry::named(name), Err(Error::UnknownDevice { .. })) {
        return taken("is another device's name");
    }
    match registry::find_or_add(name, || registry::Kind::Own(device, backend))? {
        (device, true) => Ok(device),
        (_, false) => taken("is another device's name"),
    }
}

/// The devices of the process, with the current context's device first.
///
/// Errors: those of the first evaluation, if an environment variable is invalid.
pub fn devices() -> Result<Vec<Device>> {
    registry::default()?;
    let current = Context::current().device();
    let mut devices: Vec<Device> = registry::all().map(|(device, _)| device).collect();
    devices.sort_by_key(|&device| (device != current, device.index()));
    Ok(devices)
}

/// The memory statistics of a device; `None` means the current device.
///
/// Errors: if the environment variables do not allow the device to be set up.
pub fn memory_stats(device: Option<Device>) -> Result<MemoryStats> {
    let device = device.unwrap_or_else(|| Context::current().device());
    Ok(device.executor()?.runtime().device().allocator().stats())
}

/// Prepares a device (the current device for `None`), so that the first programs do not wait for
/// the preparation: starts the threads of kernels, measures the machine unless the measurements are
/// on file, and touches the pages of memory that programs use first. Programs are compiled by
/// [`crate::compile_only`].
///
/// ```
/// girih::warm_up(None)?;
/// # Ok::<(), girih::Error>(())
/// ```
///
/// Errors: if the environment variables do not allow the device to be set up; those of the device.
pub fn warm_up(device: Option<Device>) -> Result<()> {
    let device = device.unwrap_or_else(|| Context::current().device());
    Ok(device.executor()?.runtime().device().warm_up()?)
}

/// Whether the current device is the host, whose memory arrays can share.
///
/// Errors: those of the first evaluation, if an environment variable is invalid.
pub fn shares_host_memory() -> Result<bool> {
    let executor = Context::current().executor()?;
    Ok(executor.runtime().device().id() == DeviceId::HOST)
}

/// The executors of the devices that have been used.
pub(crate) fn running() -> impl Iterator<Item = &'static Executor> {
    registry::all().filter_map(|(_, entry)| entry.running())
}
