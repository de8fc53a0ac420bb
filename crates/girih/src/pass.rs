//! Passes of users over whole programs.

use crate::{CompileOptions, Program, Result};
use girih_ir::Graph;
pub use girih_opt::Pass;
use girih_record::executor::is_same_pass;
use girih_record::nested;
use std::sync::Arc;

/// A pass made of a function from program to program.
struct ProgramPass<F> {
    name: String,
    run: F,
}

impl<F> Pass for ProgramPass<F>
where
    F: Fn(&Program) -> Result<Option<Program>> + Send + Sync,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>> {
        let program = Program::of_graph(graph.clone());
        let failed = |reason: String| girih_ir::Error::User { reason };
        let outcome = nested::within_pass(|| (self.run)(&program));
        let Some(rewritten) = outcome.map_err(|error| failed(error.to_string()))? else {
            return Ok(None);
        };
        match rewritten.first_held() {
            None => Ok(Some(rewritten.graph().clone())),
            Some(held) => Err(failed(format!(
                "its program holds {held}; a pass works for all values that the program's inputs \
                 may have, so use constants (full, zeros, arange) and the program's own inputs"
            ))),
        }
    }
}

/// A pass made of a function. The function receives the whole program of an evaluation, and returns
/// an equivalent program, or `None` to leave it unchanged. [`Program::rewrite`] derives a program
/// from another. The name is for errors and explanations. Passes are enabled by
/// [`crate::ExecutorConfig::passes`] or temporarily by options [`with`] them.
///
/// The function is called once per program, before all other passes. Its result is cached in memory
/// with the program, not on disk, so the function must return equal programs for equal programs. An
/// error of the function, an ill-formed graph, and a graph with other input or output shapes or
/// dtypes fail the evaluation with the name of the pass.
///
/// ```
/// use girih::{Executor, ExecutorConfig, Context, Tensor, pass};
///
/// let squares = pass::graph_pass("squares", |program| {
///     let rewritten = program.rewrite(|node, x| match (node.op, x) {
///         ("mul", [a, b]) if a.is_same(b) => a.square().map(Some),
///         _ => Ok::<_, girih::Error>(None),
///     });
///     rewritten.map(Some)
/// });
/// let config = ExecutorConfig { passes: vec![squares], ..ExecutorConfig::default() };
/// Context::current().set_executor(&Executor::new(config)?);
/// let x = Tensor::from_slice(&[1.0f32, 3.0], [2])?;
/// assert_eq!(x.mul(&x)?.to_vec::<f32>()?, [1.0, 9.0]);
/// # Ok::<(), girih::Error>(())
/// ```
pub fn graph_pass<F>(name: impl Into<String>, run: F) -> Arc<dyn Pass>
where
    F: Fn(&Program) -> Result<Option<Program>> + Send + Sync + 'static,
{
    Arc::new(ProgramPass { name: name.into(), run })
}

/// The options with these user passes appended.
pub fn with(options: CompileOptions, passes: &[Arc<dyn Pass>]) -> CompileOptions {
    let mut now = others(options, passes);
    now.extend(passes.iter().cloned());
    CompileOptions { user: girih_opt::register(now), ..options }
}

/// The options without these user passes.
pub fn without(options: CompileOptions, passes: &[Arc<dyn Pass>]) -> CompileOptions {
    CompileOptions { user: girih_opt::register(others(options, passes)), ..options }
}

/// The user passes of the options but for these.
fn others(options: CompileOptions, passes: &[Arc<dyn Pass>]) -> Vec<Arc<dyn Pass>> {
    let mut now = girih_opt::registered(options.user);
    now.retain(|known| !passes.iter().any(|pass| is_same_pass(known, pass)));
    now
}
