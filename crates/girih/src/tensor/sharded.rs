//! Tensors on a mesh of devices.

use crate::sharding::{P, Sharding, is_fully_replicated, local_shape};
use crate::{Error, Result, Tensor};
use girih_ir::{DType, DeviceMesh, Shape, TensorSpec};
use girih_record::mesh::MeshPlacement;
use girih_record::{Device, eval, recorder};
use girih_runtime::Value;

impl Tensor {
    /// The tensor under a sharding: each device of the mesh has the part that the spec gives it. The
    /// values do not change, and gradients keep the sharding.
    ///
    /// ```
    /// use girih::sharding::{DeviceMesh, P};
    /// use girih::{Tensor, set_host_devices};
    ///
    /// set_host_devices(2)?;
    /// let mesh = DeviceMesh::new(&[2], &["dp"])?;
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?.shard(&mesh, &"<dp>".parse::<P>()?)?;
    /// assert_eq!(x.add(&x)?.sharding().unwrap().spec().to_string(), "<dp>");
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: [`Error::Record`] for a spec that is not valid for the tensor on the mesh;
    /// [`Error::DeviceUnavailable`] if the process does not have the mesh's devices.
    #[track_caller]
    pub fn shard(&self, mesh: &DeviceMesh, spec: &P) -> Result<Tensor> {
        self.reshard(&Sharding::new(mesh.clone(), spec.clone())?)
    }

    /// The tensor under a sharding, as [`Tensor::shard`].
    ///
    /// Errors: as [`Tensor::shard`].
    #[track_caller]
    pub fn reshard(&self, sharding: &Sharding) -> Result<Tensor> {
        recorder::reshard(self.node(), sharding).map(Tensor::from_node)
    }

    /// The tensor under the sharding of another one, if that is on a mesh.
    ///
    /// Errors: as [`Tensor::shard`].
    pub fn placed_like(&self, like: &Tensor) -> Result<Tensor> {
        match like.sharding() {
            Some(sharding) if sharding.spec().partial.is_empty() => self.reshard(sharding),
            _ => Ok(self.clone()),
        }
    }

    /// The tensor's mesh of devices and sharding, if it is on a mesh.
    pub fn placement(&self) -> Option<&'static MeshPlacement> {
        self.node().place().sharding()
    }

    /// The tensor's sharding, if it is on a mesh. Known as soon as the tensor is recorded.
    pub fn sharding(&self) -> Option<&'static Sharding> {
        self.placement().map(MeshPlacement::sharding)
    }

    /// The devices that hold the tensor: one, or those of its mesh in the mesh's order. A ghost mesh has
    /// none.
    pub fn devices(&self) -> Vec<Device> {
        match self.placement() {
            Some(placement) => placement.mesh().devices().to_vec(),
            None => vec![self.device()],
        }
    }

    /// Whether every device of the tensor's mesh has all of it; true for a tensor on one device.
    ///
    /// Errors: those of the sharding on the tensor's shape.
    pub fn is_fully_replicated(&self) -> Result<bool> {
        let Some(sharding) = self.sharding() else { return Ok(true) };
        Ok(is_fully_replicated(sharding, self.shape().hints())?)
    }

    /// The part of each device of the mesh, in the mesh's order, as a tensor on the device. A part may
    /// be empty. For a tensor on one device the list is the tensor.
    ///
    /// Errors: those of the evaluation.
    pub fn shards(&self) -> Result<Vec<Tensor>> {
        let Some(sharding) = self.sharding() else { return Ok(vec![self.clone()]) };
        let (parts, shape) = (eval::parts(self.node())?, self.shape());
        let part = |(at, value): (usize, &Value)| {
            let shape = local_shape(sharding, shape.hints(), at)?;
            let spec = TensorSpec::new(shape.as_slice(), self.dtype());
            Ok(Tensor::available(girih_ir::OpCode::Input, &spec, value.clone()))
        };
        parts.iter().enumerate().map(part).collect()
    }

    /// The tensor whose parts are these tensors, in the mesh's order. Parts that the sharding repeats are
    /// not compared. A part on another device is moved.
    ///
    /// Errors: [`Error::InvalidArgument`] for another number of parts than processors, parts of several
    /// dtypes, and a part without the shape that the sharding gives it; those of the evaluation.
    pub fn from_shards(
        shape: impl Into<Shape>,
        sharding: &Sharding,
        shards: &[Tensor],
    ) -> Result<Tensor> {
        let (shape, mesh) = (shape.into(), sharding.mesh());
        sharding.spec().check(mesh, shape.rank())?;
        let dtype = shards.first().map_or(DType::F32, Tensor::dtype);
        let wrong = |reason: String| Err(Error::InvalidArgument(format!("from_shards: {reason}")));
        if shards.len() != mesh.len() {
            let (given, wanted) = (shards.len(), mesh.len());
            return wrong(format!(
                "{given} parts are given for the {wanted} processors of {mesh}; give one for each"
            ));
        }
        for (at, part) in shards.iter().enumerate() {
            let wanted = local_shape(sharding, shape.hints(), at)?;
            if part.shape().hints() != wanted.as_slice() || part.dtype() != dtype {
                let wanted = TensorSpec::new(wanted.as_slice(), dtype);
                return wrong(format!(
                    "part {at} of a tensor of shape {shape} under {sharding} is {}, expected {wanted}",
                    part.spec()
                ));
            }
        }
        let parts: Vec<_> = shards.iter().map(|part| part.node().clone()).collect();
        let spec = TensorSpec { shape, dtype };
        eval::from_parts(&spec, sharding, &parts).map(Tensor::from_node)
    }
}
