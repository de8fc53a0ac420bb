//! The number by which nodes name a device of the process.

/// A device of the process for tensors: `cpu`, the further host devices of `GIRIH_HOST_DEVICES`
/// (`cpu:1`), the mock accelerator (`mock`), and registered devices.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device(u8);

impl Device {
    /// The host's processor, whose memory is the memory of the process.
    pub const CPU: Device = Device(0);

    /// The maximum number of devices: placements with smaller numbers are devices.
    pub const MAX: usize = 128;

    pub(crate) fn from_index(index: u8) -> Device {
        Device(index)
    }

    /// The number of the device in this process.
    #[inline]
    pub fn index(self) -> u8 {
        self.0
    }
}
