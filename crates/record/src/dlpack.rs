//! DLPack's structures in C (version 1, and the managed tensor before it) and its codes of dtypes,
//! with which libraries share tensors without a copy. How an object of a host language holds such a
//! structure is the front end's business.

use girih_ir::DType;
use std::ffi::c_void;

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlDevice {
    /// The kind of device: [`DlDevice::CPU`], or that of an accelerator.
    pub device_type: i32,
    /// The number of the device among those of its kind.
    pub device_id: i32,
}

impl DlDevice {
    /// The host.
    pub const CPU: DlDevice = DlDevice { device_type: 1, device_id: 0 };
}

/// `DLDataType`: the kind of number, and its size.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DlDataType {
    /// The kind of number.
    pub code: u8,
    /// The bits of a number.
    pub bits: u8,
    /// The numbers of an element; 1 but for vectors.
    pub lanes: u16,
}

impl From<DType> for DlDataType {
    fn from(dtype: DType) -> DlDataType {
        let code = match dtype {
            DType::U8 | DType::U16 | DType::U32 | DType::U64 => 1,
            DType::F16 | DType::F32 | DType::F64 => 2,
            DType::BF16 => 4,
            DType::C64 | DType::C128 => 5,
            DType::Bool => 6,
            _ => 0,
        };
        DlDataType { code, bits: dtype.size() as u8 * 8, lanes: 1 }
    }
}

impl DlDataType {
    /// The dtype of such elements; `None` if there is none, as for vectors.
    pub fn dtype(self) -> Option<DType> {
        DType::ALL.into_iter().find(|&dtype| DlDataType::from(dtype) == self)
    }
}

/// `DLTensor`: where the elements are. Strides are in elements; a null pointer means row-major.
#[repr(C)]
#[derive(Debug)]
pub struct DlTensor {
    /// The memory, on the device.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: DlDevice,
    /// The number of axes.
    pub ndim: i32,
    /// The kind of the elements.
    pub dtype: DlDataType,
    /// The size of each axis.
    pub shape: *mut i64,
    /// The distance between neighbouring elements of each axis.
    pub strides: *mut i64,
    /// The position of the first element in the memory, in bytes.
    pub byte_offset: u64,
}

/// `DLManagedTensor`, of DLPack before version 1.
#[repr(C)]
#[derive(Debug)]
pub struct Managed {
    /// The tensor.
    pub tensor: DlTensor,
    /// The producer's data for freeing the tensor.
    pub context: *mut c_void,
    /// The function that the consumer calls when it no longer needs the tensor.
    pub deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
#[derive(Debug)]
pub struct ManagedVersioned {
    /// The major version, which says how the structure is laid out from `flags` on.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// The producer's data for freeing the tensor.
    pub context: *mut c_void,
    /// The function that the consumer calls when it no longer needs the tensor.
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    /// [`READ_ONLY`], [`IS_COPIED`].
    pub flags: u64,
    /// The tensor.
    pub tensor: DlTensor,
}

/// The major version that this library reads and writes.
pub const MAJOR: u32 = 1;
/// The flag of memory that the consumer must not write.
pub const READ_ONLY: u64 = 1;
/// The flag of memory that was copied for the consumer.
pub const IS_COPIED: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn every_dtype_has_a_code_of_its_own() {
        for dtype in DType::ALL {
            assert_eq!(DlDataType::from(dtype).dtype(), Some(dtype));
        }
        let float = DlDataType::from(DType::F32);
        assert_eq!((float.code, float.bits, float.lanes), (2, 32, 1));
        assert_eq!(DlDataType { lanes: 4, ..float }.dtype(), None);
        assert_eq!(DlDataType { bits: 8, ..float }.dtype(), None);
    }

    #[test]
    #[cfg(target_pointer_width = "64")]
    fn structures_are_laid_out_as_in_c() {
        assert_eq!(size_of::<DlTensor>(), 48);
        assert_eq!([offset_of!(DlTensor, shape), offset_of!(DlTensor, byte_offset)], [24, 40]);
        assert_eq!([offset_of!(Managed, context), size_of::<Managed>()], [48, 64]);
        let versioned = [offset_of!(ManagedVersioned, flags), offset_of!(ManagedVersioned, tensor)];
        assert_eq!(versioned, [24, 32]);
    }
}
