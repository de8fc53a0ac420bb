//! Tensors from numbers, arrays, slices and vectors of Rust, nested to any depth.

use crate::data::Element;
use crate::{Error, Result, Tensor, shares_host_memory};
use girih_ir::{Shape, TensorSpec};
use girih_runtime::{Buffer, DeviceId, Value};
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::sync::Arc;

/// Data from which [`Tensor::new`] makes a tensor: a number, or an array, slice or vector of such
/// data.
pub trait ArrayData {
    /// The type of the elements.
    type Element: Element;

    /// Appends the sizes of this data, or of data of this type of which there is none.
    fn sizes(data: Option<&Self>, sizes: &mut Vec<usize>);

    /// Appends the elements, row-major, after checking that the sizes are the given ones.
    ///
    /// Errors: the sizes of a part that differs.
    fn append(&self, sizes: &[usize], out: &mut Vec<Self::Element>) -> Result<(), Vec<usize>>;

    /// Appends the elements of a list of such data, as [`ArrayData::append`].
    ///
    /// Errors: as [`ArrayData::append`].
    fn append_all(
        list: &[Self],
        sizes: &[usize],
        out: &mut Vec<Self::Element>,
    ) -> Result<(), Vec<usize>>
    where
        Self: Sized,
    {
        list.iter().try_for_each(|item| item.append(sizes, out))
    }
}

macro_rules! scalars {
    ($($ty:ty)*) => {
        $(impl ArrayData for $ty {
            type Element = $ty;

            fn sizes(_: Option<&$ty>, _: &mut Vec<usize>) {}

            fn append(&self, _: &[usize], out: &mut Vec<$ty>) -> Result<(), Vec<usize>> {
                out.push(*self);
                Ok(())
            }

            fn append_all(
                list: &[$ty],
                _: &[usize],
                out: &mut Vec<$ty>,
            ) -> Result<(), Vec<usize>> {
                out.extend_from_slice(list);
                Ok(())
            }
        })*
    };
}

scalars! { bool u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64 Complex32 Complex64 }

impl<A: ArrayData> ArrayData for [A] {
    type Element = A::Element;

    fn sizes(data: Option<&[A]>, sizes: &mut Vec<usize>) {
        sizes.push(data.map_or(0, <[A]>::len));
        A::sizes(data.and_then(<[A]>::first), sizes);
    }

    fn append(&self, sizes: &[usize], out: &mut Vec<A::Element>) -> Result<(), Vec<usize>> {
        if sizes.first() != Some(&self.len()) {
            let mut own = Vec::new();
            <[A]>::sizes(Some(self), &mut own);
            return Err(own);
        }
        A::append_all(self, &sizes[1..], out)
    }
}

impl<A: ArrayData, const N: usize> ArrayData for [A; N] {
    type Element = A::Element;

    fn sizes(data: Option<&[A; N]>, sizes: &mut Vec<usize>) {
        sizes.push(N);
        A::sizes(data.and_then(|data| data.first()), sizes);
    }

    fn append(&self, sizes: &[usize], out: &mut Vec<A::Element>) -> Result<(), Vec<usize>> {
        self[..].append(sizes, out)
    }
}

impl<A: ArrayData> ArrayData for Vec<A> {
    type Element = A::Element;

    fn sizes(data: Option<&Vec<A>>, sizes: &mut Vec<usize>) {
        <[A]>::sizes(data.map(Vec::as_slice), sizes);
    }

    fn append(&self, sizes: &[usize], out: &mut Vec<A::Element>) -> Result<(), Vec<usize>> {
        self[..].append(sizes, out)
    }
}

impl<A: ArrayData + ?Sized> ArrayData for &A {
    type Element = A::Element;

    fn sizes(data: Option<&&A>, sizes: &mut Vec<usize>) {
        A::sizes(data.copied(), sizes);
    }

    fn append(&self, sizes: &[usize], out: &mut Vec<A::Element>) -> Result<(), Vec<usize>> {
        (**self).append(sizes, out)
    }
}

/// The bytes from which on a vector's memory is shared; a smaller one is copied to a block of the
/// pool, which costs less than a block of its own.
const SHARED: usize = 1 << 16;

/// Elements whose memory a tensor shares.
struct Elements<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        T::bytes(&self.0)
    }
}

impl Tensor {
    /// A tensor of a number, or of an array, slice or vector of numbers, nested to any depth. The
    /// dtype is that of the numbers, the shape that of the nesting. See [`Tensor::from_slice`] for
    /// flat data of another shape.
    ///
    /// ```
    /// use girih::{DType, Tensor};
    ///
    /// let matrix = Tensor::new([[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0]])?;
    /// assert_eq!(matrix.shape(), [2, 3]);
    /// assert_eq!(Tensor::new(vec![1i64, 2])?.dtype(), DType::I64);
    /// assert_eq!(Tensor::new(3.5)?.shape(), []); // f64, of rank 0
    /// assert!(Tensor::new(vec![vec![1.0f32], vec![]]).is_err()); // rows of different lengths
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: [`Error::InvalidArgument`] for vectors of different lengths at one depth;
    /// [`Error::Evaluation`] if there is no memory.
    pub fn new<A: ArrayData>(data: A) -> Result<Tensor> {
        let mut sizes = Vec::new();
        A::sizes(Some(&data), &mut sizes);
        let mut elements = Vec::new();
        if let Err(other) = data.append(&sizes, &mut elements) {
            let (sizes, depth) = (Shape::from(&sizes[..]), sizes.len() - other.len());
            let expected = Shape::from(&sizes[depth..]);
            return Err(Error::InvalidArgument(format!(
                "Tensor::new: the parts of an array have one shape, got {expected} and {} in an \
                 array of shape {sizes}",
                Shape::from(other)
            )));
        }
        Tensor::from_vec(elements, sizes)
    }

    /// A tensor of the elements of a vector, row-major, without a copy if the device computes in
    /// host memory.
    ///
    /// Errors: [`Error::DataLength`] unless the number of elements is the shape's.
    pub fn from_vec<T: Element>(data: Vec<T>, shape: impl Into<Shape>) -> Result<Tensor> {
        let spec = TensorSpec::new(shape, T::DTYPE);
        spec.shape.check("from_vec", spec.dtype)?;
        let size = spec.size_bytes();
        let fits = size == T::bytes(&data).len();
        if !fits || size < SHARED || !shares_host_memory()? {
            return Tensor::from_slice(&data, spec.shape);
        }
        let buffer = Buffer::shared(DeviceId::HOST, Arc::new(Elements(data)), 0..size);
        Tensor::from_value(&spec, Value::new(buffer))
    }
}
