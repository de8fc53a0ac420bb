//! Compiled functions: a function is traced at its first call, then run as a program without calling
//! the function again.

use crate::bound::BoundProgram;
use crate::dynamic::DynamicDim;
use crate::recent::RecentlyUsed;
use crate::sharding::Sharding;
use crate::tiled::CallPath;
use crate::traced::TracedProgram;
use crate::{Context, Device, DeviceScope, Result, Tensor};
use girih_ir::TensorSpec;
use girih_sync::{Mutex, MutexGuard, Striped};
use smallvec::SmallVec;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// A function that is traced at its first call. It is traced again only for arguments that no
/// existing program serves: other dtypes, ranks or static sizes, or dynamic sizes that violate a
/// guard.
pub struct Compiled<F> {
    f: F,
    dims: Vec<Vec<DynamicDim>>,
    /// The shardings that arguments and results get.
    shardings: [Vec<Option<Sharding>>; 2],
    /// The program of the last call, per thread.
    recent: Striped<Mutex<Option<Arc<Recent>>>>,
    traced: Mutex<Vec<Arc<TracedProgram>>>,
    /// The programs bound to arguments of earlier calls.
    bound: RecentlyUsed<BoundProgram>,
}

/// The program of a thread's last call, with a reference count of its own, so that threads share
/// neither a lock nor a count.
struct Recent(Arc<BoundProgram>);

/// Compiles a function once per signature. A change of a size compiles again, except along the axes
/// that [`Compiled::dynamic`] names. The results are computed when a call returns; see
/// [`TracedProgram::call`]. Captured tensors keep the values that they have at tracing.
///
/// ```
/// use girih::{Tensor, compile};
///
/// let mean = compile(|x| Ok(vec![x[0].mean_all()?])).dynamic(0, (0, "batch"));
/// let of = |data: &[f32]| mean.call(&[&Tensor::from_slice(data, [data.len()])?])?[0].item::<f32>();
/// assert_eq!(of(&[1.0, 2.0])?, 1.5);
/// assert_eq!(of(&[1.0, 2.0, 6.0])?, 3.0);
/// assert_eq!(mean.num_programs(), 1);
/// # Ok::<(), girih::Error>(())
/// ```
pub fn compile<F>(f: F) -> Compiled<F>
where
    F: Fn(&[Tensor]) -> Result<Vec<Tensor>>,
{
    let (dims, shardings, recent) = (Vec::new(), Default::default(), Striped::default());
    let (traced, bound) = (Mutex::default(), RecentlyUsed::default());
    Compiled { f, dims, shardings, recent, traced, bound }
}

/// The tensors under the shardings of the same positions, where there are some.
fn under(tensors: &[Tensor], shardings: &[Option<Sharding>]) -> Result<Vec<Tensor>> {
    let place = |(at, tensor): (usize, &Tensor)| match shardings.get(at) {
        Some(Some(sharding)) => tensor.reshard(sharding),
        _ => Ok(tensor.clone()),
    };
    tensors.iter().enumerate().map(place).collect()
}

impl<F: Fn(&[Tensor]) -> Result<Vec<Tensor>>> Compiled<F> {
    /// Declares that an axis of an argument may have another size at each call: `(0, "batch")` is
    /// axis 0, whose size is called `batch`. See [`DynamicDim`] for a range of sizes.
    pub fn dynamic(mut self, argument: usize, dim: impl Into<DynamicDim>) -> Compiled<F> {
        if self.dims.len() <= argument {
            self.dims.resize_with(argument + 1, Vec::new);
        }
        self.dims[argument].push(dim.into());
        self
    }

    /// Declares that larger tensors run tile by tile along an axis of an argument: the program is
    /// compiled for `size` elements of the axis and is not compiled again for larger tensors. A
    /// last tile that is smaller has a program of its own. Corresponding axes of all arguments must
    /// be declared.
    ///
    /// Axes of elementwise ops, of products and of sums and other reductions that are results can
    /// be tiled; for a function that needs a whole axis (a mean, a sort), the whole program runs
    /// ([`crate::CallPath`] says which). Sums over a tiled axis add the sums of the tiles, so they
    /// are rounded in another order. A tensor on the host, called in the scope of another device,
    /// streams through that device, so that it may be larger than the device's memory; its results
    /// are on the host.
    ///
    /// ```
    /// use girih::{CallPath, DType, Tensor, compile};
    ///
    /// let double = compile(|x| Ok(vec![x[0].mul(2.0)?])).tile(0, 0, 1000);
    /// let y = double.call(&[&Tensor::ones([2500, 3], DType::F32)?])?;
    /// assert_eq!(y[0].sum_all()?.item::<f32>()?, 15000.0);
    /// assert_eq!(double.path(&[&Tensor::ones([9999, 3], DType::F32)?]), CallPath::Tiled(10));
    /// # Ok::<(), girih::Error>(())
    /// ```
    pub fn tile(mut self, argument: usize, axis: i64, size: usize) -> Compiled<F> {
        if self.dims.len() <= argument {
            self.dims.resize_with(argument + 1, Vec::new);
        }
        let dims = &mut self.dims[argument];
        match dims.iter_mut().find(|dim| dim.axis == axis) {
            Some(dim) => dim.tile = Some(size),
            None => {
                let name = format!("tile_{argument}_{}", dims.len());
                dims.push(DynamicDim { tile: Some(size), ..DynamicDim::new(axis, &name) });
            }
        }
        self
    }

    /// The function with shardings for its arguments and its results, by position; `None`, or no
    /// entry, leaves a tensor as it is.
    ///
    /// ```
    /// use girih::sharding::{DeviceMesh, P, Sharding};
    /// use girih::{DType, Tensor, compile, set_host_devices};
    ///
    /// set_host_devices(2)?;
    /// let rows = Sharding::new(DeviceMesh::new(&[2], &["dp"])?, "<dp>".parse::<P>()?)?;
    /// let exp = compile(|x| Ok(vec![x[0].exp()?])).with_shardings(&[Some(rows)], &[]);
    /// let y = exp.call(&[&Tensor::zeros([4, 3], DType::F32)?])?;
    /// assert_eq!(y[0].shards()?[1].to_vec::<f32>()?, [1.0; 6]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    pub fn with_shardings(
        mut self,
        arguments: &[Option<Sharding>],
        results: &[Option<Sharding>],
    ) -> Compiled<F> {
        self.shardings = [arguments.to_vec(), results.to_vec()];
        self
    }

    /// How a call with these arguments runs.
    pub fn path(&self, arguments: &[&Tensor]) -> CallPath {
        let given: Vec<Tensor> = arguments.iter().map(|&t| t.clone()).collect();
        if let Some(bound) = self.bound_for(&given) {
            return bound.path(&given);
        }
        let specs: Vec<TensorSpec> = arguments.iter().map(|t| t.spec()).collect();
        let found = self.traced_for(&given, &specs);
        let bound = found.and_then(|program| BoundProgram::new(program, &specs).ok());
        bound.map_or(CallPath::Compiled, |bound| bound.path(&given))
    }

    /// Calls the function, running a compiled program if possible.
    ///
    /// Errors: those of the function; as [`TracedProgram::trace`] and [`TracedProgram::call`].
    #[track_caller]
    pub fn call(&self, arguments: &[&Tensor]) -> Result<Vec<Tensor>> {
        let within = Context::current().has_named_axes();
        if within || arguments.iter().any(|t| t.shape().is_symbolic()) {
            // The call is part of another function that is being compiled, or of one member of a
            // batch.
            let arguments: Vec<Tensor> = arguments.iter().map(|&t| t.clone()).collect();
            let [ins, outs] = &self.shardings;
            return under(&(self.f)(&under(&arguments, ins)?)?, outs);
        }
        let given: SmallVec<[Tensor; 8]> = arguments.iter().map(|&t| t.clone()).collect();
        let recent = lock(self.recent.mine()).clone();
        if let Some(recent) = recent.filter(|recent| recent.0.serves(&given)) {
            return recent.0.call(&given);
        }
        let bound = self.bound_for(&given).map_or_else(|| self.bind(arguments), Ok)?;
        *lock(self.recent.mine()) = Some(Arc::new(Recent(bound.clone())));
        bound.call(&given)
    }

    /// The program that is bound to tensors like these.
    fn bound_for(&self, given: &[Tensor]) -> Option<Arc<BoundProgram>> {
        let serves = |bound: &BoundProgram| bound.serves(given).then_some(());
        self.bound.find(serves).map(|(bound, ())| bound)
    }

    /// The traced program that serves these tensors.
    fn traced_for(&self, given: &[Tensor], specs: &[TensorSpec]) -> Option<Arc<TracedProgram>> {
        let serves = |p: &&Arc<TracedProgram>| {
            p.refuses_context(given).is_none() && p.refuses(specs).is_none()
        };
        self.lock().iter().find(serves).cloned()
    }

    /// Finds a program for these arguments, or traces one, and binds it.
    fn bind(&self, arguments: &[&Tensor]) -> Result<Arc<BoundProgram>> {
        let specs: Vec<TensorSpec> = arguments.iter().map(|t| t.spec()).collect();
        let given: Vec<Tensor> = arguments.iter().map(|&t| t.clone()).collect();
        let program = match self.traced_for(&given, &specs) {
            Some(program) => program,
            None => {
                let _scope = DeviceScope::new(Device::common("compile", arguments)?);
                let shardings: Vec<_> = arguments.iter().map(|t| t.placement()).collect();
                let [ins, outs] = &self.shardings;
                let run = |x: &[Tensor]| under(&(self.f)(&under(x, ins)?)?, outs);
                let program = TracedProgram::trace(&specs, &self.dims, &shardings, &[], run)?.0;
                let program = Arc::new(program);
                self.lock().push(program.clone());
                program
            }
        };
        let bound = Arc::new(BoundProgram::new(program, &specs)?);
        self.bound.insert(bound.clone());
        Ok(bound)
    }

    /// How many times the function has been traced.
    pub fn num_programs(&self) -> usize {
        self.lock().len()
    }

    /// The time of compiling the function's programs; see [`TracedProgram::compile_time`].
    pub fn compile_time(&self) -> Duration {
        self.lock().iter().map(|program| program.compile_time()).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<TracedProgram>>> {
        lock(&self.traced)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
