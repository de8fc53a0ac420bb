//! Convolutions and sliding windows over the last (spatial) axes. A list with one entry applies to
//! all spatial axes.

use super::PadMode;
use crate::{Error, Result, Tensor, precision};
use girih_ir::ops::PadDim;
use girih_ir::ops::conv::{Conv, ConvDim};
use girih_ir::ops::window::WindowDim;
use girih_ir::{Attrs, Dim, Literal, Op, OpCode, Shape};
use std::sync::Arc;

/// The number of elements added before and after each spatial axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Padding {
    /// No padding.
    Valid,
    /// Pads so that the result has the size `ceil(size / stride)`; the odd element is added at the
    /// end.
    Same,
    /// Pairs of the numbers of elements before and after each axis.
    Explicit(Vec<(usize, usize)>),
}

impl From<usize> for Padding {
    fn from(width: usize) -> Padding {
        Padding::Explicit(vec![(width, width)])
    }
}

/// The geometry of a convolution.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConvOptions {
    /// Distances between windows.
    pub stride: Vec<usize>,
    /// Zeros around the tensor; for a transposed convolution, elements cropped from its result.
    pub padding: Padding,
    /// Distances between the elements of a window.
    pub dilation: Vec<usize>,
    /// The number of groups of channels that are convolved separately.
    pub groups: usize,
    /// Elements added at the end of a transposed convolution's result.
    pub output_padding: Vec<usize>,
    /// The values of the padding; zeros if `None`. Transposed convolutions do not support other
    /// values.
    pub padding_mode: Option<PadMode>,
    /// Distances between the elements of the tensor; there are zeros between them.
    pub input_dilation: Vec<usize>,
    /// Whether the kernel is reversed along its spatial axes, as in the convolutions of signal
    /// processing.
    pub flip: bool,
}

impl Default for ConvOptions {
    fn default() -> Self {
        ConvOptions {
            stride: vec![1],
            padding: Padding::Valid,
            dilation: vec![1],
            groups: 1,
            output_padding: vec![0],
            padding_mode: None,
            input_dilation: vec![1],
            flip: false,
        }
    }
}

/// Numbers of the spatial axes: one for all of them, or an array, slice or vector with one each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerAxis(pub Vec<usize>);

impl From<usize> for PerAxis {
    fn from(number: usize) -> PerAxis {
        PerAxis(vec![number])
    }
}

impl<const N: usize> From<[usize; N]> for PerAxis {
    fn from(numbers: [usize; N]) -> PerAxis {
        PerAxis(numbers.to_vec())
    }
}

impl From<&[usize]> for PerAxis {
    fn from(numbers: &[usize]) -> PerAxis {
        PerAxis(numbers.to_vec())
    }
}

impl From<Vec<usize>> for PerAxis {
    fn from(numbers: Vec<usize>) -> PerAxis {
        PerAxis(numbers)
    }
}

impl<const N: usize> From<[usize; N]> for Padding {
    fn from(widths: [usize; N]) -> Padding {
        Padding::Explicit(widths.map(|width| (width, width)).to_vec())
    }
}

impl ConvOptions {
    /// With these distances between windows: `ConvOptions::default().stride(2).padding(1)`.
    #[must_use]
    pub fn stride(self, stride: impl Into<PerAxis>) -> ConvOptions {
        ConvOptions { stride: stride.into().0, ..self }
    }

    /// With this padding: a [`Padding`], or the elements before and after all axes, or each.
    #[must_use]
    pub fn padding(self, padding: impl Into<Padding>) -> ConvOptions {
        ConvOptions { padding: padding.into(), ..self }
    }

    /// With these distances between the elements of a window.
    #[must_use]
    pub fn dilation(self, dilation: impl Into<PerAxis>) -> ConvOptions {
        ConvOptions { dilation: dilation.into().0, ..self }
    }

    /// With this number of groups of channels that are convolved separately.
    #[must_use]
    pub fn groups(self, groups: usize) -> ConvOptions {
        ConvOptions { groups, ..self }
    }
}

/// Expands a list to one entry per spatial axis.
pub(crate) fn spread<T: Clone>(
    op: &'static str,
    what: &str,
    values: &[T],
    n: usize,
) -> Result<Vec<T>> {
    match values {
        [one] => Ok(vec![one.clone(); n]),
        values if values.len() == n => Ok(values.to_vec()),
        values => Err(Error::InvalidArgument(format!(
            "{op}: {what} has {} entries; give one, or one for each of the {n} spatial axes",
            values.len()
        ))),
    }
}

impl Padding {
    /// The pairs for each axis, from the axes' sizes and the windows. Sizes are read only where the
    /// pairs depend on them, for a program may serve others.
    pub(super) fn pairs(
        &self,
        op: &'static str,
        size: impl Fn(usize) -> Dim,
        windows: &[WindowDim],
    ) -> Result<Vec<(usize, usize)>> {
        match self {
            Padding::Valid => Ok(vec![(0, 0); windows.len()]),
            Padding::Explicit(pairs) => spread(op, "padding", pairs, windows.len()),
            Padding::Same => {
                let same = |(i, w): (usize, &WindowDim)| {
                    let step = w.step.max(1);
                    if step == 1 && size(i).at_least(1usize) {
                        return ((w.reach() - 1) / 2, w.reach() / 2);
                    }
                    let size = size(i).get();
                    let used = (size.div_ceil(step).max(1) - 1) * step;
                    let total = used.saturating_add(w.reach()).saturating_sub(size);
                    (total / 2, total - total / 2)
                };
                Ok(windows.iter().enumerate().map(same).collect())
            }
        }
    }
}

/// The windows; the extents of their axes are set later.
pub(super) fn windows(
    op: &'static str,
    sizes: &[usize],
    steps: &[usize],
    dilations: &[usize],
) -> Result<Vec<WindowDim>> {
    let n = sizes.len();
    let steps = spread(op, "stride", steps, n)?;
    let dilations = spread(op, "dilation", dilations, n)?;
    for (argument, given) in [("kernel_size", sizes), ("stride", &steps), ("dilation", &dilations)]
    {
        if given.contains(&0) {
            return Err(Error::InvalidArgument(format!(
                "{op}: {argument} must be at least 1, got {given:?}"
            )));
        }
    }
    let dim =
        |i: usize| WindowDim { extent: 0, size: sizes[i], step: steps[i], dilation: dilations[i] };
    Ok((0..n).map(dim).collect())
}

impl Tensor {
    /// Adds a missing batch axis in front of the channels and `n` spatial axes; also returns
    /// whether it was added.
    #[track_caller]
    pub(crate) fn batched(&self, op: &'static str, n: usize) -> Result<(Tensor, bool)> {
        match self.rank() {
            rank if rank == n + 2 => Ok((self.clone(), false)),
            rank if rank == n + 1 => Ok((self.unsqueeze(0)?, true)),
            rank => Err(girih_ir::Error::InvalidShape {
                op,
                shape: self.shape(),
                reason: format!(
                    "expected {} axes, [batch, channels, {n} spatial], or without the batch axis; \
                     got {rank}",
                    n + 2
                ),
            }
            .into()),
        }
    }

    /// Puts zeros between the elements of each spatial axis of `[batch, channels, …]`.
    #[track_caller]
    fn spread_out(&self, op: &'static str, dilation: &[usize]) -> Result<Tensor> {
        let dilation = spread(op, "input_dilation", dilation, self.rank() - 2)?;
        if dilation.contains(&0) {
            return Err(Error::InvalidArgument(format!(
                "{op}: input_dilation must be at least 1, got {dilation:?}"
            )));
        }
        if dilation.iter().all(|&distance| distance == 1) {
            return Ok(self.clone());
        }
        let between = [1, 1].iter().chain(&dilation);
        let dims = between.map(|&distance| PadDim { low: 0, high: 0, interior: distance - 1 });
        self.padded(dims.collect(), Literal::from_f64(self.dtype(), 0.0))
    }

    #[track_caller]
    fn convolved(
        &self,
        code: OpCode,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvOptions,
    ) -> Result<Tensor> {
        let op = code.def().name;
        let n = weight.rank().saturating_sub(2);
        if n == 0 {
            let reason = "a kernel has at least three axes: channels, channels, spatial".into();
            return Err(girih_ir::Error::InvalidShape { op, shape: weight.shape(), reason }.into());
        }
        let dtype = precision::computed_in(code, self.dtype().promote(weight.dtype())?);
        let (x, added) = self.astype(dtype)?.batched(op, n)?;
        let kernel = &weight.shape()[2..];
        let windows = windows(op, kernel, &options.stride, &options.dilation)?;
        let mut x = x.spread_out(op, &options.input_dilation)?;
        let mut padding = options.padding.pairs(op, |i| x.shape().dim(2 + i), &windows)?;
        if let (Some(mode), true) = (options.padding_mode, padding.iter().any(|p| *p != (0, 0))) {
            x = x.pad_with(&[&[(0, 0); 2], &padding[..]].concat(), mode)?;
            padding.fill((0, 0));
        }
        let extra = spread(op, "output_padding", &options.output_padding, n)?;
        if let Some((e, w)) =
            extra.iter().zip(&windows).find(|(e, w)| **e != 0 && **e >= w.step.max(w.dilation))
        {
            return Err(Error::InvalidArgument(format!(
                "{op}: output_padding {e} must be less than the stride {} or the dilation {}",
                w.step, w.dilation
            )));
        }
        let dim = |i: usize| ConvDim {
            stride: windows[i].step,
            dilation: windows[i].dilation,
            low: padding[i].0,
            high: padding[i].1,
            extra: extra[i],
        };
        let conv = Conv { dims: (0..n).map(dim).collect(), groups: options.groups };
        let op = Op::new(code, Attrs::Conv(Arc::new(conv)));
        let mut weight = weight.astype(dtype)?;
        if options.flip {
            weight = weight.flip((2..weight.rank() as i64).collect::<Vec<_>>())?;
        }
        let out = match bias {
            None => Tensor::record(op, &[&x, &weight])?,
            Some(bias) => Tensor::record(op, &[&x, &weight, &bias.astype(dtype)?])?,
        };
        if added { out.squeeze(0) } else { Ok(out) }
    }

    /// Cross-correlates `[batch, channels, …]` with kernels `[out, channels / groups, …]` of the
    /// same number of spatial axes, and adds a bias per output channel. The batch axis may be
    /// missing.
    ///
    /// Errors: a shape error for channels that do not fit, or for a kernel larger than the padded
    /// tensor.
    #[track_caller]
    pub fn conv(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvOptions,
    ) -> Result<Tensor> {
        self.convolved(OpCode::Conv, weight, bias, options)
    }

    /// The transpose of [`Tensor::conv`] as a linear map of its operand (the op of its gradient),
    /// for `[batch, in, …]` with kernels `[in, out / groups, …]`.
    ///
    /// Errors: a shape error for channels that do not fit; [`Error::InvalidArgument`] for an output
    /// padding of at least the stride and the dilation, [`Padding::Same`], or a padding mode.
    #[track_caller]
    pub fn conv_transpose(
        &self,
        weight: &Tensor,
        bias: Option<&Tensor>,
        options: &ConvOptions,
    ) -> Result<Tensor> {
        if options.padding == Padding::Same {
            return Err(Error::InvalidArgument(
                "conv_transpose: padding is given in numbers, how many elements of the result are \
                 cut off"
                    .into(),
            ));
        }
        if options.padding_mode.is_some() {
            return Err(Error::InvalidArgument(
                "conv_transpose: padding cuts elements off the result, so that no mode fits".into(),
            ));
        }
        self.convolved(OpCode::ConvTranspose, weight, bias, options)
    }

    /// Sliding windows over the last axes, as new axes after the axes of window positions:
    /// `[…, extents…] -> […, counts…, sizes…]`. The result is a view.
    ///
    /// Errors: [`Error::InvalidArgument`] for a window larger than its axis.
    #[track_caller]
    pub fn windows(&self, sizes: &[usize], steps: &[usize], dilations: &[usize]) -> Result<Tensor> {
        let (shape, n) = (self.shape(), sizes.len());
        let Some(lead) = shape.rank().checked_sub(n) else {
            let (op, reason) = ("windows", format!("{n} axes have windows"));
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        };
        let mut dims = windows("windows", sizes, steps, dilations)?;
        dims.iter_mut().zip(&shape[lead..]).for_each(|(d, &size)| d.extent = size);
        Tensor::record(Op::new(OpCode::Windows, Attrs::Windows(Arc::new(dims))), &[self])
    }

    /// The transpose of [`Tensor::windows`] over axes of the given extents: adds overlapping
    /// windows, `[…, counts…, sizes…] -> […, extents…]`. Elements outside all windows are 0.
    ///
    /// Errors: a shape error unless the last axes are the windows' counts and sizes.
    #[track_caller]
    pub fn fold_windows(
        &self,
        extents: &[usize],
        sizes: &[usize],
        steps: &[usize],
        dilations: &[usize],
    ) -> Result<Tensor> {
        let extents = spread("fold_windows", "extents", extents, sizes.len())?;
        let mut dims = windows("fold_windows", sizes, steps, dilations)?;
        dims.iter_mut().zip(extents).for_each(|(d, extent)| d.extent = extent);
        Tensor::record(Op::new(OpCode::FoldWindows, Attrs::Windows(Arc::new(dims))), &[self])
    }

    /// The patches of a convolution as columns (im2col):
    /// `[batch, channels, …] -> [batch, channels * kernel, positions]`.
    ///
    /// Errors: a shape error unless there are as many spatial axes as kernel sizes.
    #[track_caller]
    pub fn unfold(&self, size: &[usize], options: &ConvOptions) -> Result<Tensor> {
        let (op, n) = ("unfold", size.len());
        let (x, added) = self.batched(op, n)?;
        let mut dims = windows(op, size, &options.stride, &options.dilation)?;
        let padding = options.padding.pairs(op, |i| x.shape().dim(2 + i), &dims)?;
        let widths: Vec<(usize, usize)> = [(0, 0); 2].into_iter().chain(padding).collect();
        let x = if widths.iter().any(|w| *w != (0, 0)) { x.pad(&widths, 0)? } else { x };
        dims.iter_mut().zip(&x.shape()[2..]).for_each(|(d, &extent)| d.extent = extent);
        let op = Op::new(OpCode::Windows, Attrs::Windows(Arc::new(dims)));
        let windows = Tensor::record(op, &[&x])?;
        let n = n as i64;
        let order: Vec<i64> = (0..2).chain(2 + n..2 + 2 * n).chain(2..2 + n).collect();
        let shape = windows.shape();
        let (n, kernel) = (n as usize, size.iter().product::<usize>());
        let positions = shape[2..2 + n].iter().product::<usize>();
        let columns = [shape.dim(0), (shape[1] * kernel).into(), positions.into()];
        let out = windows.permute(&order)?.reshape(Shape::of_dims(columns))?;
        if added { out.squeeze(0) } else { Ok(out) }
    }

    /// The transpose of [`Tensor::unfold`] (col2im): adds overlapping patches, to spatial axes of
    /// the given sizes.
    ///
    /// Errors: a shape error unless the number of columns is the number of kernel positions, and
    /// the number of rows is a multiple of the kernel's elements.
    #[track_caller]
    pub fn fold(&self, output: &[usize], size: &[usize], options: &ConvOptions) -> Result<Tensor> {
        let (op, n) = ("fold", size.len());
        let (x, added) = self.batched(op, 1)?;
        let output = spread(op, "output_size", output, n)?;
        let mut dims = windows(op, size, &options.stride, &options.dilation)?;
        let padding = options.padding.pairs(op, |i| output[i].into(), &dims)?;
        for (d, (&size, pad)) in dims.iter_mut().zip(output.iter().zip(&padding)) {
            d.extent = size.saturating_add(pad.0).saturating_add(pad.1);
        }
        let steps = dims.iter().all(|d| d.size > 0 && d.step > 0 && d.dilation > 0);
        let counts: Vec<usize> = dims.iter().map(|d| if steps { d.count() } else { 0 }).collect();
        let (shape, kernel) = (x.shape(), size.iter().product::<usize>());
        let positions = counts.iter().product::<usize>();
        if kernel == 0 || !shape[1].is_multiple_of(kernel) || shape[2] != positions {
            let reason = format!(
                "expected [batch, a multiple of {kernel} elements of the kernel, {positions} \
                 positions of it on the output]"
            );
            return Err(girih_ir::Error::InvalidShape { op, shape, reason }.into());
        }
        let unmerged = [shape.dim(0), (shape[1] / kernel).into()].into_iter();
        let sizes = size.iter().copied().chain(counts).map(girih_ir::Dim::from);
        let unmerged: Shape = unmerged.chain(sizes).collect();
        let n = n as i64;
        let order: Vec<i64> = (0..2).chain(2 + n..2 + 2 * n).chain(2..2 + n).collect();
        let windows = x.reshape(unmerged)?.permute(&order)?;
        let op = Op::new(OpCode::FoldWindows, Attrs::Windows(Arc::new(dims)));
        let mut out = Tensor::record(op, &[&windows])?;
        for (i, (pad, &size)) in padding.iter().zip(&output).enumerate() {
            if *pad != (0, 0) {
                out = out.narrow(2 + i as i64, pad.0, size)?;
            }
        }
        if added { out.squeeze(0) } else { Ok(out) }
    }
}
