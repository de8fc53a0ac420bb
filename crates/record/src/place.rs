//! The place of a node in two bytes: the number of its placement, with the marks of the tape and of
//! cuts.
//!
//! A placement is a device or a sharding over a mesh. Its number has 13 bits; the numbers beyond the
//! devices name interned shardings (see [`crate::mesh`]).
//!
//! Data from outside, and results of data on a device, are *committed* to the device: they cannot
//! be combined with data of another device. Constants, ranges and random draws *float*: they are
//! recorded for the current device, and are computed on the device of the committed operands that
//! they are used with. Data on a mesh is committed to the mesh.

use crate::device::Device;
use crate::mesh::{self, MeshPlacement};
use std::sync::atomic::AtomicU16;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The device of a node, whether the node is committed to it, and whether the tape tracks the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(u16);

const TRACKED: u16 = 1 << 15;
const FLOATING: u16 = 1 << 14;
/// A cut contains the node (see [`crate::cut`]). The mark is not part of a place, but shares the
/// node's bytes.
const CUT: u16 = 1 << 13;
const PLACEMENT: u16 = CUT - 1;
/// A number with one of these bits is that of a sharding.
const SHARDED: u16 = PLACEMENT & !(Device::MAX as u16 - 1);

impl Place {
    /// The place of a node that is committed to a device.
    pub fn committed(device: Device) -> Place {
        Place(device.index().into())
    }

    /// The place of a floating node, with its default device.
    pub fn floating(device: Device) -> Place {
        Place(u16::from(device.index()) | FLOATING)
    }

    /// The place of a node on a mesh.
    pub fn sharded(placement: &MeshPlacement) -> Place {
        Place(placement.number())
    }

    /// Whether the node is on a mesh.
    #[inline]
    pub fn is_sharded(self) -> bool {
        self.0 & SHARDED != 0
    }

    /// The mesh and the sharding of a node on a mesh.
    #[inline]
    pub fn sharding(self) -> Option<&'static MeshPlacement> {
        self.is_sharded().then(|| mesh::numbered(self.0 & PLACEMENT))
    }

    fn from_bits(bits: u16) -> Place {
        Place(bits & !CUT)
    }

    /// The device of a committed node, the default device of a floating one, or the first device of
    /// the mesh.
    #[inline]
    pub fn device(self) -> Device {
        match self.sharding() {
            None => Device::from_index((self.0 & PLACEMENT) as u8),
            Some(placement) => placement.mesh().first_device(),
        }
    }

    /// Whether the node is not committed to its device.
    #[inline]
    pub fn is_floating(self) -> bool {
        self.0 & FLOATING != 0
    }

    /// Whether the tape tracks the node.
    #[inline]
    pub fn is_tracked(self) -> bool {
        self.0 & TRACKED != 0
    }

    /// The place with the tape's mark set or cleared.
    #[inline]
    pub fn with_tracked(self, on: bool) -> Place {
        Place(if on { self.0 | TRACKED } else { self.0 & !TRACKED })
    }

    /// The place of a result of two operands; `None` if they are committed to different devices, or
    /// if an operand is on a mesh, where the result's sharding depends on the op.
    #[inline]
    pub fn merge(self, other: Place) -> Option<Place> {
        if (self.0 | other.0) & SHARDED != 0 {
            return None;
        }
        let tracked = (self.0 | other.0) & TRACKED;
        let (a, b) = (self.0 & !TRACKED, other.0 & !TRACKED);
        if a == b || b & FLOATING != 0 {
            return Some(Place(a | tracked));
        }
        (a & FLOATING != 0).then_some(Place(b | tracked))
    }
}

/// A node's place and marks, which threads set and clear atomically.
#[derive(Debug)]
pub(crate) struct PlaceBits(AtomicU16);

impl PlaceBits {
    pub fn new(place: Place) -> PlaceBits {
        PlaceBits(AtomicU16::new(place.0))
    }

    #[inline]
    pub fn get(&self) -> Place {
        Place::from_bits(self.0.load(Relaxed))
    }

    /// The place of a node to which no other thread has access.
    pub fn get_mut(&mut self) -> Place {
        Place::from_bits(*self.0.get_mut())
    }

    /// Replaces the place of a node to which no other thread has access.
    pub fn set(&self, place: Place) {
        self.0.store(place.0, Relaxed);
    }

    pub fn set_tracked(&self, on: bool) {
        match on {
            true => self.0.fetch_or(TRACKED, Relaxed),
            false => self.0.fetch_and(!TRACKED, Relaxed),
        };
    }

    /// Marks the node for a cut; `false` if another cut has marked it. Changes of the node before
    /// its last mark was removed are visible afterwards.
    #[inline]
    pub fn mark_cut(&self) -> bool {
        self.0.fetch_or(CUT, Acquire) & CUT == 0
    }

    #[inline]
    pub fn unmark_cut(&self) {
        self.0.fetch_and(!CUT, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each placement number keeps apart from the marks, and the devices are among the numbers.
    const _: () = assert!(mesh::NUMBERS == PLACEMENT as usize + 1 && Device::MAX <= 1 << 8);

    #[test]
    fn tape_and_cut_marks_do_not_change_the_place() {
        let place = Place::floating(Device::from_index(Device::MAX as u8 - 1));
        let byte = PlaceBits::new(place);
        assert!(byte.mark_cut() && !byte.mark_cut());
        assert_eq!(byte.get(), place);
        byte.set_tracked(true);
        byte.unmark_cut();
        assert_eq!(byte.get(), place.with_tracked(true));
        assert!(byte.mark_cut());
        byte.set_tracked(false);
        assert_eq!((byte.get(), byte.mark_cut()), (place, false));
    }

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
