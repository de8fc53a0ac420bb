//! The interface of a back end, which compiles closed graphs to plans for one device.

use crate::report::{CompileReport, Listing};
use crate::symbolic::OptimizedGraph;
use crate::{Error, ExecutionPlan, Result};
use girih_ir::Graph;

/// Options of compilation. Part of the program cache's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CompileOptions {
    /// Graph passes, as the back end's pass manager encodes them; all bits set: all passes are on.
    pub passes: u32,
    /// Kinds of fusion, as the back end encodes them; all bits set: all kinds are on.
    pub fusion: u32,
    /// The user's passes, as the back end numbers lists of passes; 0 for none. The numbers are only
    /// valid in this process, so programs compiled with user passes are not stored on disk.
    pub user: u32,
}

impl Default for CompileOptions {
    fn default() -> Self {
        CompileOptions { passes: u32::MAX, fusion: u32::MAX, user: 0 }
    }
}

/// Compiles closed graphs to plans for one device.
pub trait Backend: Send + Sync {
    /// Optimises, lowers and compiles a graph. The plan takes the graph's arguments in the same
    /// order.
    ///
    /// Errors: [`Error::Compile`] or [`Error::Graph`].
    fn compile(&self, graph: &Graph, options: CompileOptions) -> Result<ExecutionPlan>;

    /// As [`Backend::compile`], with the optimised graph and the kernels for users to read. Programs
    /// of the two are equal.
    ///
    /// Errors: as [`Backend::compile`].
    fn compile_listed(
        &self,
        graph: &Graph,
        options: CompileOptions,
    ) -> Result<(ExecutionPlan, Listing)> {
        let plan = self.compile(graph, options)?;
        let listing = Listing::of_plan(graph, &plan);
        Ok((plan, listing))
    }

    /// Compiles a graph and reports every stage of the compilation. `addresses` has the host
    /// address of each argument's memory where it is known.
    ///
    /// A back end that keeps the default reports its plan, and neither passes nor refused fusions.
    ///
    /// Errors: as [`Backend::compile`].
    fn explain(
        &self,
        graph: &Graph,
        options: CompileOptions,
        addresses: &[Option<usize>],
    ) -> Result<CompileReport> {
        let _ = addresses;
        let (plan, listing) = self.compile_listed(graph, options)?;
        Ok(CompileReport::of_plan(graph, plan, listing))
    }

    /// The first half of [`Backend::compile`]: the passes. The graph may have symbolic sizes.
    ///
    /// Errors: [`Error::Compile`] or [`Error::Graph`].
    fn optimize(&self, graph: &Graph, options: CompileOptions) -> Result<OptimizedGraph> {
        let _ = options;
        let live_arguments = (0..graph.arguments().count()).collect();
        Ok(OptimizedGraph { graph: graph.clone(), live_arguments })
    }

    /// The second half of [`Backend::compile`]: lowers `optimized`, the result of the passes on
    /// `original`. `original` has no symbolic sizes. `live_arguments` has, for each argument of
    /// `optimized`, its index in `original`.
    ///
    /// Errors: [`Error::Compile`] or [`Error::Graph`].
    fn lower(
        &self,
        original: &Graph,
        optimized: &Graph,
        live_arguments: &[usize],
        options: CompileOptions,
    ) -> Result<ExecutionPlan> {
        let _ = (optimized, live_arguments);
        self.compile(original, options)
    }

    /// Restores a plan from the bytes of its artefact. The bytes are intact, but may come from a
    /// back end with another [`Backend::fingerprint`].
    ///
    /// Errors: [`Error::Compile`] for bytes that do not decode to a plan.
    fn restore(&self, bytes: &[u8]) -> Result<ExecutionPlan> {
        let _ = bytes;
        Err(Error::Compile("the back end keeps nothing on disk".into()))
    }

    /// Drops state that is kept between compilations to speed them up.
    fn forget(&self) {}

    /// A text that identifies this version of the back end: plans of other versions are compiled
    /// again.
    fn fingerprint(&self) -> String {
        String::new()
    }
}
