//! The device of the process: which one runs its programs, what it is, and its memory.

use crate::{Error, Result, eval};
use girih_cpu::{HostBackend, HostDevice};
use girih_mock::{MemoryMode, MockAccelerator, MockBackend, MockConfig};
use girih_runtime::{DeviceId, Executor, MemoryStats, env};
use girih_sync::OnceLock;
use std::sync::Arc;

/// The environment variable that says which device runs the process' programs.
const VARIABLE: &str = "GIRIH_DEVICE";
const EXPECTED: &str = "cpu, or mock with any of physical, corrected, concurrent behind a colon, such \
                        as mock:physical,corrected";

/// Devices that Girih knows of, and why they are not here.
const KNOWN: [(&str, Option<&str>); 5] = [
    ("cpu", None),
    ("mock", None),
    ("simulator", Some("this build has no wafer simulator")),
    ("cs2", Some("no CS-2 system is attached, and this build has no back end for it")),
    ("cs3", Some("no CS-3 system is attached, and this build has no back end for it")),
];

/// Submissions that a concurrent mock runs at once.
const CONCURRENT: usize = 4;

/// A device that programs run on.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceInfo {
    /// Its name: `cpu`, `mock`.
    pub name: String,
    /// The instruction set, or other target, that programs are compiled for.
    pub target: String,
    /// Most submissions, each of its own stream, that it runs at once; None for no limit.
    pub concurrency: Option<usize>,
    /// Its memory now.
    pub memory: MemoryStats,
}

/// The device that `GIRIH_DEVICE` names, with its settings.
#[derive(Clone, Debug, PartialEq)]
enum Choice {
    Cpu,
    Mock(MockConfig),
}

fn parse(text: &str) -> Option<Choice> {
    let (name, settings) = text.split_once(':').unwrap_or((text, ""));
    match name.trim() {
        "cpu" if settings.is_empty() => Some(Choice::Cpu),
        "mock" => {
            let mut config = MockConfig::default();
            for setting in settings.split(',').map(str::trim).filter(|s| !s.is_empty()) {
                match setting {
                    "physical" => {
                        let MemoryMode::Regions(regions) = &config.memory else { return None };
                        config.memory = MemoryMode::Physical(regions.iter().sum());
                    }
                    "corrected" => config.corrections = true,
                    "concurrent" => config.concurrency = CONCURRENT,
                    _ => return None,
                }
            }
            Some(Choice::Mock(config))
        }
        _ => None,
    }
}

/// The choice of the process, which the first call makes.
fn choice() -> Result<&'static Choice, girih_runtime::Error> {
    static CHOICE: OnceLock<Result<Choice, girih_runtime::Error>> = OnceLock::new();
    let make = || {
        let Some(text) = env::variable(VARIABLE)? else { return Ok(Choice::Cpu) };
        parse(&text).ok_or(girih_runtime::Error::Configuration {
            variable: VARIABLE,
            value: text,
            expected: EXPECTED,
        })
    };
    CHOICE.get_or_init(make).as_ref().map_err(Clone::clone)
}

/// The executor of the process' device.
///
/// Errors: [`girih_runtime::Error::Configuration`] for environment variables that say nothing usable.
pub(crate) fn executor() -> Result<Executor, girih_runtime::Error> {
    match choice()? {
        Choice::Cpu => girih_cpu::executor(),
        Choice::Mock(config) => {
            girih_cpu::check_environment()?;
            let backend = MockBackend::new(Arc::new(HostBackend), config.corrections);
            let device = MockAccelerator::new(Arc::new(HostDevice::of_process()?), config.clone())?;
            Ok(Executor::new(device, Arc::new(backend), None))
        }
    }
}

/// The name of the device that programs run on; `cpu` if the environment says nothing usable, for which
/// the first evaluation fails.
pub fn device_name() -> &'static str {
    match choice() {
        Ok(Choice::Mock(config)) => &config.name,
        Ok(Choice::Cpu) | Err(_) => "cpu",
    }
}

/// True if the device's memory is the process' own, so that arrays can be shared with it.
///
/// Errors: those of the first evaluation, if the environment says nothing usable.
pub fn shares_host_memory() -> Result<bool> {
    Ok(is_host(&*eval::executor()?))
}

/// True if the executor's device has the process' own memory.
pub(crate) fn is_host(executor: &Executor) -> bool {
    executor.device().id() == DeviceId::HOST
}

/// The devices that programs may run on: those of the process.
///
/// Errors: those of the first evaluation, if the environment says nothing usable.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let executor = eval::executor()?;
    let device = executor.device();
    let properties = device.properties();
    Ok(vec![DeviceInfo {
        name: properties.name.clone(),
        target: properties.target.clone(),
        concurrency: Some(properties.concurrency).filter(|&n| n != usize::MAX),
        memory: device.allocator().stats(),
    }])
}

/// Memory of the device of that name; of the process' device for None.
///
/// Errors: [`Error::UnknownDevice`], [`Error::DeviceUnavailable`].
pub fn memory_stats(device: Option<&str>) -> Result<MemoryStats> {
    device.map_or(Ok(()), check_device)?;
    Ok(eval::executor()?.device().allocator().stats())
}

/// Fails unless programs may run on the device of that name.
///
/// Errors: [`Error::UnknownDevice`], with the names that there are; [`Error::DeviceUnavailable`].
pub fn check_device(name: &str) -> Result<()> {
    if name == device_name() {
        return Ok(());
    }
    match KNOWN.iter().find(|(known, _)| *known == name) {
        Some((name, Some(reason))) => Err(Error::DeviceUnavailable { name, reason }),
        Some((name, None)) => {
            let reason = "the process runs on another device, which the environment variable \
                          GIRIH_DEVICE says when it starts";
            Err(Error::DeviceUnavailable { name, reason })
        }
        None => Err(Error::UnknownDevice {
            name: name.to_string(),
            choices: KNOWN.map(|(known, _)| known).join(", "),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_of_devices_are_parsed() {
        assert_eq!(parse("cpu"), Some(Choice::Cpu));
        assert_eq!(parse("mock"), Some(Choice::Mock(MockConfig::default())));
        let Some(Choice::Mock(config)) = parse("mock: physical, corrected,concurrent") else {
            panic!("it is a mock")
        };
        assert_eq!(config.memory, MemoryMode::Physical(96 << 30));
        assert!(config.corrections && config.concurrency == CONCURRENT);
        for bad in ["", "gpu", "cpu:physical", "mock:fast", "mock:physical,physical"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
