//! The device of a tensor.

use crate::{Device, Result, Tensor};
use girih_record::{recorder, trace};

impl Tensor {
    /// The device on which the tensor is computed. A constant or a random draw that is not
    /// committed to a device is computed on the device of the data it is used with; this method
    /// then returns the device on which it is computed alone.
    ///
    /// ```
    /// use girih::{Device, DeviceScope, Tensor};
    ///
    /// let mock = Device::named("mock")?;
    /// let scope = DeviceScope::new(mock);
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    /// drop(scope);
    /// assert_eq!(x.device(), mock);
    /// assert_eq!(x.mul(2.0)?.to_vec::<f32>()?, [2.0, 4.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    pub fn device(&self) -> Device {
        trace::device_of(self.node())
    }

    /// The tensor on a device: the tensor itself if it is committed to the device, else a copy that
    /// is computed when it is needed. The ops before the copy run on the tensor's own device
    /// ([`Tensor::device`]); only constants and random draws are made on the new device, where they
    /// have the same values. Gradients are moved back.
    ///
    /// Errors: [`crate::Error::InvalidArgument`] in a function being compiled, which runs on one device.
    ///
    /// ```
    /// use girih::{Device, Tensor};
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    /// let y = x.to_device(Device::named("mock")?)?.exp()?;
    /// assert_eq!(y.device().name(), "mock");
    /// let back = y.to_device(Device::CPU)?.add(&x)?;
    /// assert_eq!(back.to_vec::<f32>()?, [1.0f32.exp() + 1.0, 2.0f32.exp() + 2.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    #[track_caller]
    pub fn to_device(&self, device: Device) -> Result<Tensor> {
        recorder::to_device(self.node(), device).map(Tensor::from_node)
    }
}
