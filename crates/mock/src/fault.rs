//! Wrappers for fault injection, and a wrapper that detects corrupted copies.

use crate::{Hooks, Wrapped};
use girih_ir::testing::Rng;
use girih_runtime::{Binary, Buffer, Device, Error, Launch, LoadedProgram, Place, Result, Runs};
use girih_sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// The interval at which a hanging launch checks its run's control.
const HANG_POLL: Duration = Duration::from_micros(200);

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A copy to the device fails; nothing is copied.
    CopyToDevice,
    /// A copy from the device fails; nothing is copied.
    CopyFromDevice,
    /// A copy within the device's memory fails; nothing is copied.
    CopyOnDevice,
    /// Loading a binary fails.
    Load,
    /// A launch fails; nothing is computed.
    Launch,
    /// A launch hangs until the control of its run stops it.
    Hang,
    /// A copy to the device flips a bit without an error.
    CorruptToDevice,
    /// A copy from the device flips a bit without an error.
    CorruptFromDevice,
    /// A copy within the device's memory flips a bit without an error.
    CorruptOnDevice,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Fault; 9] = [
        Fault::CopyToDevice,
        Fault::CopyFromDevice,
        Fault::CopyOnDevice,
        Fault::Load,
        Fault::Launch,
        Fault::Hang,
        Fault::CorruptToDevice,
        Fault::CorruptFromDevice,
        Fault::CorruptOnDevice,
    ];
}

/// A device with fault injection: [`Faulty::inject`] plans one fault, [`Faulty::at_random`] random
/// faults.
pub type Faulty = Wrapped<Faults>;

/// The planned faults.
#[derive(Default)]
pub struct Faults {
    plan: Mutex<FaultPlan>,
    injected: AtomicU64,
}

#[derive(Default)]
struct FaultPlan {
    /// Each planned fault, with the number of matching operations before it.
    next: Vec<(Fault, usize)>,
    /// The random generator, and the probability of a fault times 2^32.
    random: Option<(Rng, u32)>,
}

impl Faulty {
    /// Wraps a device; no faults are planned.
    pub fn new(inside: Arc<dyn Device>) -> Arc<Faulty> {
        Arc::new(Wrapped::with_hooks(inside, Faults::default()))
    }

    /// Plans a fault in the matching operation that follows the next `after` matching operations.
    pub fn inject(&self, fault: Fault, after: usize) {
        self.hooks().plan().next.push((fault, after));
    }

    /// Makes each copy, load and launch fail with that probability, 0 to 1, by a generator with
    /// that seed.
    pub fn at_random(&self, seed: u64, chance: f64) {
        let chance = (chance.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32;
        self.hooks().plan().random = Some((Rng(seed), chance));
    }

    /// Removes all planned and random faults.
    pub fn heal(&self) {
        *self.hooks().plan() = FaultPlan::default();
    }

    /// The number of faults so far.
    pub fn injected(&self) -> u64 {
        self.hooks().injected.load(Relaxed)
    }
}

impl Faults {
    fn plan(&self) -> MutexGuard<'_, FaultPlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault for an operation that faults of these kinds can affect.
    fn draw(&self, kinds: &[Fault]) -> Option<Fault> {
        let mut plan = self.plan();
        let fault = plan.due(kinds).or_else(|| plan.draw(kinds));
        if fault.is_some() {
            self.injected.fetch_add(1, Relaxed);
        }
        fault
    }
}

impl FaultPlan {
    fn due(&mut self, kinds: &[Fault]) -> Option<Fault> {
        let at = self.next.iter().position(|(fault, _)| kinds.contains(fault))?;
        let (fault, spared) = self.next[at];
        match spared.checked_sub(1) {
            Some(left) => {
                self.next[at].1 = left;
                None
            }
            None => {
                self.next.remove(at);
                Some(fault)
            }
        }
    }

    fn draw(&mut self, kinds: &[Fault]) -> Option<Fault> {
        let (generator, chance) = self.random.as_mut()?;
        let drawn = generator.bits();
        let befalls = (drawn >> 32) < u64::from(*chance);
        befalls.then(|| kinds[drawn as u32 as usize % kinds.len()])
    }
}

fn injected(device: &dyn Device, operation: &str) -> Error {
    let (operation, device) = (operation.to_string(), device.properties().name.clone());
    Error::Launch { operation, device, reason: "an injected fault".into() }
}

fn flip_a_bit(bytes: &mut [u8]) {
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 0x10;
    }
}

impl Hooks for Faults {
    fn copy_to_device(
        &self,
        inside: &dyn Device,
        queue: Option<usize>,
        source: &[u8],
        target: Place<'_>,
    ) -> Result<()> {
        match self.draw(&[Fault::CopyToDevice, Fault::CorruptToDevice]) {
            Some(Fault::CorruptToDevice) => {
                let mut source = source.to_vec();
                flip_a_bit(&mut source);
                inside.copy_to_device(queue, &source, target)
            }
            Some(_) => Err(injected(inside, "copy_to_device")),
            None => inside.copy_to_device(queue, source, target),
        }
    }

    fn copy_from_device(
        &self,
        inside: &dyn Device,
        queue: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        let fault = self.draw(&[Fault::CopyFromDevice, Fault::CorruptFromDevice]);
        if fault == Some(Fault::CopyFromDevice) {
            return Err(injected(inside, "copy_from_device"));
        }
        inside.copy_from_device(queue, source, target)?;
        if fault.is_some() {
            flip_a_bit(target);
        }
        Ok(())
    }

    fn copy_on_device(
        &self,
        inside: &dyn Device,
        queue: Option<usize>,
        places: (Place<'_>, Place<'_>),
        runs: &Runs,
    ) -> Result<()> {
        let fault = self.draw(&[Fault::CopyOnDevice, Fault::CorruptOnDevice]);
        if fault == Some(Fault::CopyOnDevice) {
            return Err(injected(inside, "copy_on_device"));
        }
        inside.copy_on_device(queue, places, runs)?;
        if fault.is_some() && runs.bytes() > 0 {
            let (mut byte, target) = ([0], places.1);
            inside.copy_from_device(queue, target, &mut byte)?;
            flip_a_bit(&mut byte);
            inside.copy_to_device(queue, &byte, target)?;
        }
        Ok(())
    }

    fn load(
        &self,
        inside: &dyn Device,
        binary: &Binary,
        image: Option<Arc<Buffer>>,
    ) -> Result<LoadedProgram> {
        match self.draw(&[Fault::Load]) {
            Some(_) => Err(injected(inside, "load")),
            None => inside.load(binary, image),
        }
    }

    fn launch(&self, inside: &dyn Device, queue: Option<usize>, launch: Launch<'_>) -> Result<()> {
        let name = || inside.program_name(launch.program()).unwrap_or("launch").to_string();
        match self.draw(&[Fault::Launch, Fault::Hang]) {
            Some(Fault::Hang) => {
                while !launch.control().check() {
                    std::thread::sleep(HANG_POLL);
                }
                Err(launch.control().error(&name()))
            }
            Some(_) => Err(injected(inside, &name())),
            None => inside.launch(queue, launch),
        }
    }
}

/// A device with checked copies: a copy to the device is read back, a copy from the device is read
/// twice, and after a copy within the device, source and target are read. A difference is an error
/// of the copy.
pub type Checksummed = Wrapped<Checksums>;

/// The hooks that detect corrupted copies.
pub struct Checksums(());

impl Checksummed {
    /// Wraps a device to check its copies.
    pub fn new(inside: Arc<dyn Device>) -> Arc<Checksummed> {
        Arc::new(Wrapped::with_hooks(inside, Checksums(())))
    }
}

impl Checksums {
    /// Reads the bytes again and compares them.
    fn verify(
        inside: &dyn Device,
        queue: Option<usize>,
        (operation, at): (&str, Place<'_>),
        expected: &[u8],
    ) -> Result<()> {
        let mut found = vec![0; expected.len()];
        inside.copy_from_device(queue, at, &mut found)?;
        let Some(wrong) = found.iter().zip(expected).position(|(f, e)| f != e) else {
            return Ok(());
        };
        let (operation, device) = (operation.to_string(), inside.properties().name.clone());
        let size = expected.len();
        let reason = format!(
            "byte {wrong} of {size} is {:#04x} on one side and {:#04x} on the other: the bytes were \
             corrupted on their way; copy them again, and if this repeats, look at the link",
            found[wrong], expected[wrong]
        );
        Err(Error::Launch { operation, device, reason })
    }
}

impl Hooks for Checksums {
    fn copy_to_device(
        &self,
        inside: &dyn Device,
        queue: Option<usize>,
        source: &[u8],
        target: Place<'_>,
    ) -> Result<()> {
        inside.copy_to_device(queue, source, target)?;
        Checksums::verify(inside, queue, ("copy_to_device", target), source)
    }

    fn copy_from_device(
        &self,
        inside: &dyn Device,
        queue: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        inside.copy_from_device(queue, source, target)?;
        Checksums::verify(inside, queue, ("copy_from_device", source), target)
    }

    fn copy_on_device(
        &self,
        inside: &dyn Device,
        queue: Option<usize>,
        (source, target): (Place<'_>, Place<'_>),
        runs: &Runs,
    ) -> Result<()> {
        inside.copy_on_device(queue, (source, target), runs)?;
        let mut run = vec![0; runs.run];
        let of_copy = "the device copied these bytes";
        runs.for_each(|from, to| {
            let from = source.part(from, runs.run).expect(of_copy);
            inside.copy_from_device(queue, from, &mut run)?;
            let to = target.part(to, runs.run).expect(of_copy);
            Checksums::verify(inside, queue, ("copy_on_device", to), &run)
        })
    }
}
