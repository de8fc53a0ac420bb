//! Where a node is computed, in one byte beside the mark of the tape.
//!
//! Data from outside, and results of what is on a device, are *committed* to it: they mix with no data
//! of another device. Constants, ranges and random draws *float*: they were recorded for the device that
//! was current, and are computed wherever they are used with something that is committed.

use crate::devices::Device;

/// The device of a node, whether it is committed to that device, and whether the tape knows the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u8);

const TRACKED: u8 = 1 << 7;
const FLOATING: u8 = 1 << 6;
const DEVICE: u8 = FLOATING - 1;

impl Place {
    /// Most devices that a place can name.
    pub const MOST_DEVICES: usize = DEVICE as usize + 1;

    /// On a device and on no other.
    pub fn committed(device: Device) -> Place {
        Place(device.index())
    }

    /// Anywhere, but on that device if nothing says otherwise.
    pub fn floating(device: Device) -> Place {
        Place(device.index() | FLOATING)
    }

    pub fn from_bits(bits: u8) -> Place {
        Place(bits)
    }

    pub fn bits(self) -> u8 {
        self.0
    }

    /// The device that it is computed on if nothing says otherwise.
    pub fn device(self) -> Device {
        Device::from_index(self.0 & DEVICE)
    }

    /// True unless it is committed to its device.
    pub fn is_floating(self) -> bool {
        self.0 & FLOATING != 0
    }

    pub fn is_tracked(self) -> bool {
        self.0 & TRACKED != 0
    }

    /// The same, known to the tape or not.
    pub fn with_tracked(self, on: bool) -> Place {
        Place(if on { self.0 | TRACKED } else { self.0 & !TRACKED })
    }

    /// Where a result of two operands is; None if they are committed to different devices.
    #[inline]
    pub fn merge(self, other: Place) -> Option<Place> {
        let tracked = (self.0 | other.0) & TRACKED;
        let (a, b) = (self.0 & !TRACKED, other.0 & !TRACKED);
        if a == b || b & FLOATING != 0 {
            return Some(Place(a | tracked));
        }
        (a & FLOATING != 0).then_some(Place(b | tracked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_places_win_over_floating_ones_and_do_not_mix() {
        let (one, two) = (Device::from_index(1), Device::from_index(2));
        let (at_one, at_two) = (Place::committed(one), Place::committed(two));
        let (near_one, near_two) = (Place::floating(one), Place::floating(two));
        assert_eq!(at_one.merge(at_one), Some(at_one));
        assert_eq!(at_one.merge(near_two), Some(at_one));
        assert_eq!(near_two.merge(at_one), Some(at_one));
        assert_eq!(near_one.merge(near_two), Some(near_one));
        assert_eq!(at_one.merge(at_two), None);
        let tracked = at_one.with_tracked(true);
        assert_eq!(near_two.merge(tracked), Some(tracked));
        assert_eq!((tracked.device(), tracked.with_tracked(false)), (one, at_one));
    }
}
