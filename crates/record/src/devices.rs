//! The devices of the process: their list, their properties and their executors.

mod registry;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::executor::{DeviceExecutor, ExecutorConfig};
use girih_runtime::{Backend, DeviceId, MemoryStats, Value};
use std::fmt;
use std::sync::Arc;

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
    #[inline]
    pub fn of_process() -> Device {
        registry::default().unwrap_or(Device::CPU)
    }

    /// The device whose memory holds a value.
    pub fn of(value: &Value) -> Device {
        Device::with_id(value.device()).unwrap_or(Device::CPU)
    }

    /// The device with the runtime's id `id`, if it has been used.
    pub fn with_id(id: DeviceId) -> Option<Device> {
        if id == DeviceId::HOST {
            return Some(Device::CPU);
        }
        let is_its = |executor: &DeviceExecutor| executor.runtime().device().id() == id;
        let found = registry::all().find(|(_, entry)| entry.running().is_some_and(is_its));
        found.map(|(device, _)| device)
    }

    /// The device's name.
    pub fn name(self) -> &'static str {
        &registry::entry(self).name
    }

    /// The device's properties. Sets up the device if it has not been used.
    ///
    /// Errors: if the environment variables do not allow the device to be set up.
    pub fn info(self) -> Result<DeviceInfo> {
        let device = executor(self)?.runtime().device();
        let properties = device.properties();
        Ok(DeviceInfo {
            name: self.name().to_string(),
            target: properties.target.clone(),
            concurrency: Some(properties.concurrency).filter(|&n| n != usize::MAX),
            memory: device.allocator().stats(),
        })
    }

    /// The device with number `index`, if there is one.
    pub fn numbered(index: u8) -> Option<Device> {
        registry::numbered(index)
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

impl Default for ExecutorConfig {
    fn default() -> Self {
        ExecutorConfig::on(Device::of_process().name())
    }
}

impl DeviceExecutor {
    /// An executor with a program cache of its own.
    ///
    /// Errors: [`Error::UnknownDevice`], [`Error::DeviceUnavailable`]; [`Error::InvalidArgument`]
    /// for a time limit that is not positive.
    pub fn new(config: ExecutorConfig) -> Result<DeviceExecutor> {
        let device = Device::named(&config.device)?;
        DeviceExecutor::beside(executor(device)?, config)
    }
}

/// Gives the host's processor at least `number` devices: `cpu`, `cpu:1` and so on. They have memory and
/// queues of their own and share the process' kernel threads, so that programs for several devices
/// run on one machine. The number only grows.
///
/// Errors: [`Error::InvalidArgument`] unless the number is 1 to 64; those of the environment variables.
pub fn set_host_devices(number: usize) -> Result<()> {
    registry::set_host_devices(number)
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

/// The executor of a device's programs, for contexts without an executor.
///
/// Errors: if the environment variables do not allow the device to be set up.
#[inline]
pub fn executor(device: Device) -> Result<&'static DeviceExecutor> {
    registry::entry(device).executor(device)
}

/// The devices of the process, in order of their numbers.
///
/// Errors: those of the first evaluation, if an environment variable is invalid.
pub(crate) fn all() -> Result<Vec<Device>> {
    registry::default()?;
    Ok(registry::all().map(|(device, _)| device).collect())
}

/// The executors of the devices that have been used.
pub(crate) fn running() -> impl Iterator<Item = &'static DeviceExecutor> {
    registry::all().filter_map(|(_, entry)| entry.running())
}
