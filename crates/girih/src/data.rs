//! Conversion between host data and tensors.

use crate::{Device, Error, Result, Tensor, eval};
use girih_ir::{DType, Shape, TensorSpec};
use girih_record::context::Context;
use girih_runtime::{Buffer, DeviceId, Value};
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A Rust type that represents elements of a dtype in memory.
pub trait Element: Copy + Send + Sync + 'static {
    /// The dtype.
    const DTYPE: DType;
    /// The memory of the elements.
    fn bytes(slice: &[Self]) -> &[u8];
    /// Reads elements from memory; the length of `bytes` is a multiple of the element size.
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
    /// The elements in `bytes` without a copy; `None` if the memory is not aligned, or contains
    /// invalid values of the type.
    fn view(bytes: &[u8]) -> Option<&[Self]>;
}

/// A tensor's elements as a row-major slice. They are the tensor's memory if that is host memory,
/// else a copy.
pub struct Data<T> {
    value: Value,
    device: Arc<dyn girih_runtime::Device>,
    size_bytes: usize,
    /// The copy, if the memory cannot be read in place.
    copy: Option<Vec<T>>,
}

impl<T: Element> Data<T> {
    fn in_place(&self) -> Option<&[T]> {
        self.device.view(&self.value, self.size_bytes).and_then(T::view)
    }
}

impl<T: Element> Deref for Data<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match &self.copy {
            Some(copy) => copy,
            None => self.in_place().expect("it was seen to be readable in place"),
        }
    }
}

impl<T: Element + fmt::Debug> fmt::Debug for Data<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

macro_rules! element {
    ($($ty:ty = $dtype:ident),*) => {
        $(impl Element for $ty {
            const DTYPE: DType = DType::$dtype;

            fn bytes(slice: &[Self]) -> &[u8] {
                bytemuck::cast_slice(slice)
            }

            fn from_bytes(bytes: &[u8]) -> Vec<Self> {
                bytemuck::allocation::pod_collect_to_vec(bytes)
            }

            fn view(bytes: &[u8]) -> Option<&[Self]> {
                bytemuck::try_cast_slice(bytes).ok()
            }
        })*
    };
}

element!(
    u8 = U8,
    u16 = U16,
    u32 = U32,
    u64 = U64,
    i8 = I8,
    i16 = I16,
    i32 = I32,
    i64 = I64,
    f16 = F16,
    bf16 = BF16,
    f32 = F32,
    f64 = F64,
    Complex32 = C64,
    Complex64 = C128
);

impl Element for bool {
    const DTYPE: DType = DType::Bool;

    fn bytes(slice: &[Self]) -> &[u8] {
        bytemuck::cast_slice(slice)
    }

    fn from_bytes(bytes: &[u8]) -> Vec<Self> {
        bytes.iter().map(|&b| b != 0).collect()
    }

    fn view(bytes: &[u8]) -> Option<&[Self]> {
        bytemuck::checked::try_cast_slice(bytes).ok()
    }
}

impl Tensor {
    /// A tensor with a copy of the elements, row-major.
    ///
    /// Errors: [`Error::DataLength`] unless the number of elements is the shape's.
    pub fn from_slice<T: Element>(data: &[T], shape: impl Into<Shape>) -> Result<Tensor> {
        let spec = TensorSpec::new(shape, T::DTYPE);
        Tensor::from_bytes(&spec, T::bytes(data))
    }

    /// A tensor of the bytes, row-major, in native byte order. A bool is one byte, 0 or 1, per
    /// element.
    ///
    /// Errors: [`Error::DataLength`].
    pub fn from_bytes(spec: &TensorSpec, bytes: impl AsRef<[u8]>) -> Result<Tensor> {
        let bytes = bytes.as_ref();
        spec.shape.check("from_slice", spec.dtype)?;
        if bytes.len() != spec.size_bytes() {
            return Err(Error::DataLength {
                shape: spec.shape.clone(),
                expected: spec.numel(),
                found: bytes.len() / spec.dtype.size(),
            });
        }
        eval::from_bytes(spec, bytes)
    }

    /// Fails if this machine has no memory for `count` objects of `bytes_each` bytes. Front ends
    /// call this function before they create objects from tensors, such as one object per element.
    ///
    /// Errors: [`Error::Evaluation`] if memory is insufficient.
    pub fn check_room(count: usize, bytes_each: usize) -> Result<()> {
        girih_record::eval::room_for(count, bytes_each)
    }

    /// A tensor whose elements are read in parts: `read` fills memory with the bytes that start at
    /// a given offset of the whole. `read` is called in the order of the offsets, and each part
    /// holds whole elements.
    ///
    /// Errors: those of an invalid shape; [`Error::Evaluation`] if there is no memory for the whole
    /// tensor, before anything is read.
    pub fn from_reader(spec: &TensorSpec, read: impl FnMut(usize, &mut [u8])) -> Result<Tensor> {
        spec.shape.check("from_reader", spec.dtype)?;
        eval::from_reader(spec, read)
    }

    /// A tensor that shares a device value without a copy, for front ends that share memory.
    ///
    /// Errors: those of an invalid shape; [`Error::DataLength`] if the value holds fewer elements.
    pub fn from_value(spec: &TensorSpec, value: Value) -> Result<Tensor> {
        spec.shape.check("from_value", spec.dtype)?;
        let found = value.size_bytes();
        if found < spec.size_bytes() {
            return Err(Error::DataLength {
                shape: spec.shape.clone(),
                expected: spec.numel(),
                found: found / spec.dtype.size(),
            });
        }
        Ok(Tensor::available(girih_ir::OpCode::Input, spec, value))
    }

    /// The tensor's value on its device. Evaluates the tensor if needed.
    pub fn value(&self) -> Result<Value> {
        eval::value(self, "reading a tensor")
    }

    /// The address of the tensor's elements in host memory, and the value that keeps the memory
    /// alive. Evaluates the tensor if needed. Elements in device memory are copied.
    pub fn address(&self) -> Result<(u64, Value)> {
        let value = self.value()?;
        let executor = Context::current().executor_for(Device::of(&value))?;
        let (device, size) = (executor.runtime().device().as_ref(), self.spec().size_bytes());
        if device.properties().host_memory {
            return Ok((value.address(size, device)?, value));
        }
        let bytes = executor.runtime().download(&value, size)?;
        let address = bytes.as_ptr() as u64;
        Ok((address, Value::new(Buffer::owned(DeviceId::HOST, bytes))))
    }

    /// All elements, row-major. Evaluates the tensor if needed.
    ///
    /// Errors: [`Error::ElementType`] if the tensor has another dtype.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if T::DTYPE != self.dtype() {
            return Err(Error::ElementType { expected: T::DTYPE, found: self.dtype() });
        }
        Ok(T::from_bytes(&eval::to_bytes(self)?))
    }

    /// All elements as f64, row-major. 64-bit integers beyond 2^53 are rounded.
    pub fn to_f64_vec(&self) -> Result<Vec<f64>> {
        self.astype(DType::F64)?.to_vec()
    }

    /// All elements, row-major, without a copy if the tensor's memory can be read in place.
    /// Evaluates the tensor if needed.
    ///
    /// ```
    /// use girih::Tensor;
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], [3])?;
    /// let doubled = x.mul(2.0)?.data::<f32>()?;
    /// assert_eq!(doubled.iter().sum::<f32>(), 12.0);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: [`Error::ElementType`] if the tensor has another dtype.
    pub fn data<T: Element>(&self) -> Result<Data<T>> {
        if T::DTYPE != self.dtype() {
            return Err(Error::ElementType { expected: T::DTYPE, found: self.dtype() });
        }
        let value = self.value()?;
        let executor = Context::current().executor_for(Device::of(&value))?;
        let (device, size_bytes) = (executor.runtime().device().clone(), self.spec().size_bytes());
        let mut data = Data { value, device, size_bytes, copy: None };
        if data.in_place().is_none() {
            data.copy = Some(self.to_vec()?);
        }
        Ok(data)
    }

    /// The value of the elements of a constant.
    ///
    /// Errors: [`Error::ElementType`] if the constant has another dtype; [`Error::InvalidArgument`]
    /// for a node that is not a constant.
    pub fn constant_data<T: Element>(&self) -> Result<T> {
        let Some(literal) = self.constant_value() else {
            let op = self.op_name();
            return Err(Error::InvalidArgument(format!(
                "constant_data: the node is {op}, which is not a constant"
            )));
        };
        if T::DTYPE != literal.dtype {
            return Err(Error::ElementType { expected: T::DTYPE, found: literal.dtype });
        }
        let bytes = &u128::from(literal.bits).to_le_bytes()[..T::DTYPE.size()];
        Ok(T::from_bytes(bytes)[0])
    }

    /// The value of the only element.
    ///
    /// Errors: [`Error::NotScalar`] unless there is exactly one element; [`Error::ElementType`].
    pub fn item<T: Element>(&self) -> Result<T> {
        self.check()?;
        if self.numel() != 1 {
            return Err(Error::NotScalar { what: "item", shape: self.shape() });
        }
        Ok(self.to_vec()?[0])
    }

    /// The elements' bytes, row-major. Evaluates the tensor if needed.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        eval::to_bytes(self)
    }
}
