//! The device registry: each device of the process with the back end that compiles for it.
//! Executors are created at the first use.

use crate::cpu;
use crate::device::Device;
use crate::error::{Error, Result};
use crate::executor::DeviceExecutor;
use girih_runtime::{Backend, Error as Failure, env};
use girih_sync::{Mutex, OnceLock};
use std::sync::{Arc, PoisonError};

/// The environment variable with the default device of the process.
const VARIABLE: &str = "GIRIH_DEVICE";
#[cfg(feature = "mock")]
const EXPECTED: &str = "cpu, cpu:1 and so on, or mock with any of physical, corrected, concurrent, \
                        own_queues, host_control_flow, memory=64M behind a colon, such as mock:physical,corrected";
#[cfg(not(feature = "mock"))]
const EXPECTED: &str = "cpu, cpu:1 and so on";

/// The environment variable with the number of devices of the host's processor.
const HOST_DEVICES: &str = "GIRIH_HOST_DEVICES";

/// The maximum number of devices of the host's processor, which have the first numbers.
const MAX_HOST_DEVICES: usize = 64;

/// Known devices that are unavailable, with the reasons.
const ABSENT: &[(&str, &str)] = &[
    #[cfg(not(feature = "mock"))]
    ("mock", "this build has no mock accelerator; the feature `mock` adds it"),
    ("simulator", "this build has no wafer simulator"),
    ("cs2", "no CS-2 system is attached, and this build has no back end for it"),
    ("cs3", "no CS-3 system is attached, and this build has no back end for it"),
];

/// The memory of a mock with addresses.
#[cfg(feature = "mock")]
const PHYSICAL_BYTES: usize = 96 << 30;

/// The number of submissions that a concurrent mock runs at once.
#[cfg(feature = "mock")]
const CONCURRENT: usize = 4;

/// The kinds of devices, with their settings.
pub(super) enum Kind {
    /// The host's processor, with the number of the host device.
    Cpu(usize),
    /// An accelerator for tests, with the host's kernels.
    #[cfg(feature = "mock")]
    Mock(girih_mock::MockConfig),
    /// A device registered by the user.
    Own(Arc<dyn girih_runtime::Device>, Arc<dyn Backend>),
}

impl Kind {
    fn executor(&self) -> Result<girih_runtime::PlanExecutor, Failure> {
        match self {
            Kind::Cpu(number) => cpu::executor_of(*number),
            #[cfg(feature = "mock")]
            Kind::Mock(config) => {
                cpu::check_environment()?;
                let backend = config.backend(Arc::new(cpu::HostBackend::default()));
                let host = Arc::new(cpu::HostDevice::of_process()?);
                let device = girih_mock::MockAccelerator::new(host, config.clone())?;
                Ok(girih_runtime::PlanExecutor::new(device, backend, None))
            }
            Kind::Own(device, backend) => {
                Ok(girih_runtime::PlanExecutor::new(device.clone(), backend.clone(), None))
            }
        }
    }
}

/// A device of the process.
pub(super) struct Entry {
    pub name: String,
    kind: Kind,
    executor: OnceLock<Result<DeviceExecutor, Failure>>,
}

impl Entry {
    /// The executor of the device's programs.
    ///
    /// Errors: if the environment variables do not allow the device to be set up.
    pub fn executor(&self, device: Device) -> Result<&DeviceExecutor> {
        let make = || {
            // The environment variables must be valid, whichever device is used.
            default()?;
            DeviceExecutor::of_device(device, &self.name, self.kind.executor()?)
        };
        self.executor.get_or_init(make).as_ref().map_err(|error| error.clone().into())
    }

    /// The executor of the device's programs, if the device has been used.
    pub fn running(&self) -> Option<&DeviceExecutor> {
        self.executor.get().and_then(|executor| executor.as_ref().ok())
    }
}

static ENTRIES: [OnceLock<Entry>; Device::MAX] = [const { OnceLock::new() }; Device::MAX];

/// The number of entries after those of the host; locked while an entry is added.
static OTHERS: Mutex<usize> = Mutex::new(0);

pub(super) fn entry(device: Device) -> &'static Entry {
    if device == Device::CPU {
        return ENTRIES[0].get_or_init(|| new("cpu".into(), Kind::Cpu(0)));
    }
    ENTRIES[device.index() as usize].get().expect("only registered devices are handed out")
}

fn new(name: String, kind: Kind) -> Entry {
    Entry { name, kind, executor: OnceLock::new() }
}

/// The devices registered so far, in order.
pub(super) fn all() -> impl Iterator<Item = (Device, &'static Entry)> {
    entry(Device::CPU);
    let known = |from: usize, to: usize| {
        let entries = ENTRIES[from..to].iter().map_while(OnceLock::get);
        (from..).zip(entries).map(|(at, entry)| (Device::from_index(at as u8), entry))
    };
    known(0, MAX_HOST_DEVICES).chain(known(MAX_HOST_DEVICES, Device::MAX))
}

/// The device with number `index`, if there is one.
pub(super) fn numbered(index: u8) -> Option<Device> {
    entry(Device::CPU);
    let slot = ENTRIES.get(index as usize)?;
    slot.get().map(|_| Device::from_index(index))
}

/// The device named `name` and whether it is new. It is registered with `make` if it does not
/// exist.
///
/// Errors: [`Error::InvalidArgument`] if the maximum number of devices is reached.
pub(super) fn find_or_add(name: &str, make: impl FnOnce() -> Kind) -> Result<(Device, bool)> {
    let mut others = OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((device, _)) = all().find(|(_, entry)| entry.name == name) {
        return Ok((device, false));
    }
    let at = MAX_HOST_DEVICES + *others;
    let Some(slot) = ENTRIES.get(at) else {
        return Err(Error::InvalidArgument(format!(
            "device '{name}': the process has {} devices beside the host's already, the most that \
             tensors can name",
            *others
        )));
    };
    let _ = slot.set(new(name.to_string(), make()));
    *others += 1;
    Ok((Device::from_index(at as u8), true))
}

/// The host's device with that number, which has the number in this process too.
fn host_device(number: usize) -> Device {
    if number > 0 {
        ENTRIES[number].get_or_init(|| new(format!("cpu:{number}"), Kind::Cpu(number)));
    }
    Device::from_index(number as u8)
}

/// Gives the host's processor at least that many devices.
///
/// Errors: [`Error::InvalidArgument`] unless the number is 1 to 64; those of the environment.
pub(super) fn set_host_devices(number: usize) -> Result<()> {
    if !(1..=MAX_HOST_DEVICES).contains(&number) {
        return Err(Error::InvalidArgument(format!(
            "set_host_devices: expected 1 to {MAX_HOST_DEVICES} devices, got {number}"
        )));
    }
    default()?;
    // In order, since the numbers of the host's devices have no gaps.
    let _turn = OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
    for number in 0..number {
        host_device(number);
    }
    Ok(())
}

/// The device that a name means, registered if the process can create it.
///
/// Errors: [`Error::UnknownDevice`], [`Error::DeviceUnavailable`]; those of the environment.
pub(super) fn named(name: &str) -> Result<Device> {
    let name = name.trim();
    let name = if name == "cpu:0" { "cpu" } else { name };
    if let Some((device, _)) = all().find(|(_, entry)| entry.name == name) {
        return Ok(device);
    }
    match parse(name) {
        Some(Kind::Cpu(_)) => {
            let known = ENTRIES[..MAX_HOST_DEVICES].iter().map_while(OnceLock::get).count();
            let reason = format!(
                "the host has {known} device(s); set_host_devices(n), or the environment variable \
                 {HOST_DEVICES} when the process starts, gives it up to {MAX_HOST_DEVICES}"
            );
            Err(Error::DeviceUnavailable { name: name.to_string(), reason })
        }
        Some(kind) => Ok(find_or_add(name, || kind)?.0),
        None => Err(match ABSENT.iter().find(|(absent, _)| *absent == name) {
            Some((_, reason)) => {
                Error::DeviceUnavailable { name: name.to_string(), reason: reason.to_string() }
            }
            None => Error::UnknownDevice { name: name.to_string(), choices: choices() },
        }),
    }
}

/// The names of the devices that the process has or can create, for error messages.
fn choices() -> String {
    let mut names: Vec<&str> = all().map(|(_, entry)| entry.name.as_str()).collect();
    if cfg!(feature = "mock") && !names.contains(&"mock") {
        names.push("mock");
    }
    names.join(", ")
}

fn parse(text: &str) -> Option<Kind> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    match name.trim() {
        "cpu" if settings.is_empty() => Some(Kind::Cpu(0)),
        "cpu" => settings.parse().ok().map(Kind::Cpu),
        #[cfg(feature = "mock")]
        "mock" => mock(text, settings).map(Kind::Mock),
        _ => None,
    }
}

/// The mock accelerator of that name with the given settings; `None` for an unknown setting.
#[cfg(feature = "mock")]
fn mock(name: &str, settings: &str) -> Option<girih_mock::MockConfig> {
    use girih_mock::{MemoryMode, MockConfig};
    let mut config = MockConfig { name: name.to_string(), ..MockConfig::default() };
    let (mut memory, mut physical) = (None, false);
    for setting in settings.split(',').map(str::trim).filter(|s| !s.is_empty()) {
        match setting {
            "physical" if !physical => physical = true,
            "corrected" => config.corrections = true,
            "host_control_flow" => config.host_control_flow = true,
            "own_queues" => config.own_queues = true,
            "concurrent" => config.concurrency = CONCURRENT,
            _ => memory = Some(env::parse_bytes(setting.strip_prefix("memory=")?)?),
        }
    }
    match (physical, memory) {
        (true, _) => config.memory = MemoryMode::Physical(memory.unwrap_or(PHYSICAL_BYTES)),
        (false, Some(bytes)) => config.memory = MemoryMode::Regions(vec![bytes]),
        (false, None) => {}
    }
    Some(config)
}

/// The number of devices of the host's processor when the process starts.
///
/// Errors: [`girih_runtime::Error::Configuration`].
fn host_devices() -> Result<usize, Failure> {
    static NUMBER: OnceLock<Result<usize, Failure>> = OnceLock::new();
    let read = || {
        let number = env::parsed(
            HOST_DEVICES,
            |text| text.trim().parse().ok().filter(|n| (1..=MAX_HOST_DEVICES).contains(n)),
            "a whole number of devices from 1 to 64",
        )?;
        Ok(number.unwrap_or(1))
    };
    NUMBER.get_or_init(read).clone()
}

/// The default device of the process, chosen at the first call.
///
/// Errors: [`girih_runtime::Error::Configuration`] for invalid environment variables.
pub(super) fn default() -> Result<Device, Failure> {
    static DEFAULT: OnceLock<Result<Device, Failure>> = OnceLock::new();
    let choose = || {
        for number in 0..host_devices()? {
            host_device(number);
        }
        let device = env::parsed(VARIABLE, |text| named(text).ok(), EXPECTED)?;
        Ok(device.unwrap_or(Device::CPU))
    };
    DEFAULT.get_or_init(choose).clone()
}

#[cfg(all(test, feature = "mock"))]
mod tests {
    use super::*;
    use girih_mock::{MemoryMode, MockConfig};

    #[test]
    fn names_of_devices_are_parsed() {
        let mock = |text: &str| match parse(text) {
            Some(Kind::Mock(config)) => config,
            _ => panic!("{text} is a mock"),
        };
        assert!(matches!(parse("cpu"), Some(Kind::Cpu(0))));
        assert!(matches!(parse("cpu:3"), Some(Kind::Cpu(3))));
        let plain = MockConfig { name: "mock".into(), ..MockConfig::default() };
        assert_eq!(mock("mock"), plain);
        assert!(mock("mock:host_control_flow").host_control_flow);
        assert!(mock("mock:own_queues").own_queues);
        let config = mock("mock: physical, corrected,concurrent");
        assert_eq!(config.memory, MemoryMode::Physical(96 << 30));
        assert!(config.corrections && config.concurrency == CONCURRENT);
        assert_eq!(mock("mock:memory=64M").memory, MemoryMode::Regions(vec![64 << 20]));
        assert_eq!(mock("mock:memory=1k,physical").memory, MemoryMode::Physical(1 << 10));
        for bad in ["mock:memory=", "mock:memory=0", "mock:memory=x", "mock:memory"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
        for bad in ["", "gpu", "cpu:physical", "cpu:-1", "mock:fast", "mock:physical,physical"] {
            assert!(parse(bad).is_none(), "{bad}");
        }
    }
}
