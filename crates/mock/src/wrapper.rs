//! Wrappers around devices. A wrapper forwards all calls to the wrapped device except for the work
//! that its hooks change.

use girih_runtime::{
    Allocator, Binary, Buffer, Device, Launch, LoadedProgram, Place, Properties, Result, Runs,
};
use std::sync::Arc;
use std::time::Duration;

/// Hooks into the work of a wrapped device. The defaults call the wrapped device.
pub trait Hooks: Send + Sync {
    /// Replaces [`Device::copy_to_device`].
    fn copy_to_device(
        &self,
        inside: &dyn Device,
        queue: Option<usize>,
        source: &[u8],
        target: Place<'_>,
    ) -> Result<()> {
        inside.copy_to_device(queue, source, target)
    }

    /// Replaces [`Device::copy_from_device`].
    fn copy_from_device(
        &self,
        inside: &dyn Device,
        queue: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        inside.copy_from_device(queue, source, target)
    }

    /// Replaces [`Device::copy_on_device`].
    fn copy_on_device(
        &self,
        inside: &dyn Device,
        queue: Option<usize>,
        places: (Place<'_>, Place<'_>),
        runs: &Runs,
    ) -> Result<()> {
        inside.copy_on_device(queue, places, runs)
    }

    /// Replaces [`Device::load`].
    fn load(
        &self,
        inside: &dyn Device,
        binary: &Binary,
        image: Option<Arc<Buffer>>,
    ) -> Result<LoadedProgram> {
        inside.load(binary, image)
    }

    /// Replaces [`Device::launch`].
    fn launch(&self, inside: &dyn Device, queue: Option<usize>, launch: Launch<'_>) -> Result<()> {
        inside.launch(queue, launch)
    }
}

/// A device with hooks.
pub struct Wrapped<H> {
    inside: Arc<dyn Device>,
    hooks: H,
}

impl<H: Hooks> Wrapped<H> {
    /// Wraps a device.
    pub fn with_hooks(inside: Arc<dyn Device>, hooks: H) -> Wrapped<H> {
        Wrapped { inside, hooks }
    }

    /// The hooks.
    pub fn hooks(&self) -> &H {
        &self.hooks
    }
}

impl<H: Hooks> Device for Wrapped<H> {
    fn properties(&self) -> &Properties {
        self.inside.properties()
    }

    fn allocator(&self) -> &Arc<Allocator> {
        self.inside.allocator()
    }

    fn copy_to_device(&self, queue: Option<usize>, source: &[u8], target: Place<'_>) -> Result<()> {
        self.hooks.copy_to_device(&*self.inside, queue, source, target)
    }

    fn copy_from_device(
        &self,
        queue: Option<usize>,
        source: Place<'_>,
        target: &mut [u8],
    ) -> Result<()> {
        self.hooks.copy_from_device(&*self.inside, queue, source, target)
    }

    fn copy_on_device(
        &self,
        queue: Option<usize>,
        places: (Place<'_>, Place<'_>),
        runs: &Runs,
    ) -> Result<()> {
        self.hooks.copy_on_device(&*self.inside, queue, places, runs)
    }

    fn clock(&self, queue: Option<usize>) -> Duration {
        self.inside.clock(queue)
    }

    fn wait_until(&self, queue: usize, at: Duration) {
        self.inside.wait_until(queue, at);
    }

    fn initialize(&self, packet: &[u8]) -> Result<()> {
        self.inside.initialize(packet)
    }

    fn warm_up(&self) -> Result<()> {
        self.inside.warm_up()
    }

    fn image(&self, binary: &Binary) -> Option<Box<[u8]>> {
        self.inside.image(binary)
    }

    fn accessed_bytes<'a>(&self, binary: &'a Binary) -> Option<&'a [usize]> {
        self.inside.accessed_bytes(binary)
    }

    fn load(&self, binary: &Binary, image: Option<Arc<Buffer>>) -> Result<LoadedProgram> {
        self.hooks.load(&*self.inside, binary, image)
    }

    fn program_name<'a>(&self, program: &'a LoadedProgram) -> Option<&'a str> {
        self.inside.program_name(program)
    }

    fn launch(&self, queue: Option<usize>, launch: Launch<'_>) -> Result<()> {
        self.hooks.launch(&*self.inside, queue, launch)
    }
}
