//! Runs passes to a fixed point and checks them: after each pass the outputs' specs and the
//! arguments must be as before, and in debug builds the whole graph must verify.
//!
//! Passes keep every argument, used or not, in order. The manager drops the unused ones at the end
//! and says which stay, so a caller need not move data that the program does not read.

use crate::{Error, OptOptions, PassFlag, Result, passes};
use girih_ir::{Graph, Op, TensorSpec};

/// Rounds after which the manager stops though passes still change the graph.
pub const MAX_ITERATIONS: usize = 10;

/// A function from program to equal program.
pub trait Pass {
    /// Name, as in [`OptOptions`] and dumps.
    fn name(&self) -> &'static str;

    /// The improved graph, or `None` if there is nothing to improve. Outputs keep their order and
    /// specs, arguments their order, ops and specs. Running the pass on its own result gives
    /// `None`.
    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>>;
}

/// The graph as a pass left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The pass; `"input"` for the graph before the first.
    pub pass: &'static str,
    /// Round of the fixed point, from 0.
    pub iteration: usize,
    /// The graph's text form.
    pub text: String,
}

/// An optimised program.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimized {
    /// The program.
    pub graph: Graph,
    /// Which of the original graph's arguments the program still has, ascending: its argument `i`
    /// is the original argument `kept_arguments[i]`.
    pub kept_arguments: Vec<usize>,
    /// Rounds over the passes, the last of which may have been partial.
    pub iterations: usize,
    /// The graph before and after each pass that changed it, if recording was asked for.
    pub stages: Vec<Stage>,
}

/// An ordered list of passes.
#[derive(Default)]
pub struct PassManager {
    passes: Vec<Box<dyn Pass>>,
    record: bool,
}

/// Optimises a graph with the default pipeline.
///
/// Errors: [`Error::Pass`] or [`Error::InterfaceChanged`], each a defect of a pass.
pub fn optimize(graph: &Graph, options: OptOptions) -> Result<Optimized> {
    PassManager::create_default(options).run(graph)
}

impl PassManager {
    /// Without passes.
    pub fn new() -> Self {
        PassManager::default()
    }

    /// The pipeline that [`PassFlag`] lists, with the passes of the given set.
    pub fn create_default(options: OptOptions) -> Self {
        let flags = PassFlag::ALL.into_iter().filter(|&flag| options.contains(flag));
        PassManager { passes: flags.map(PassFlag::pass).collect(), record: false }
    }

    /// Appends a pass.
    pub fn add_pass(&mut self, pass: impl Pass + 'static) -> &mut Self {
        self.passes.push(Box::new(pass));
        self
    }

    /// Records the graph's text after each pass that changes it, for dumps and explanations.
    pub fn record(&mut self, record: bool) -> &mut Self {
        self.record = record;
        self
    }

    /// Runs the passes in order, again and again, until none of them has anything to change or
    /// [`MAX_ITERATIONS`] rounds are done; then drops unused arguments.
    ///
    /// Errors: as [`optimize`].
    pub fn run(&self, graph: &Graph) -> Result<Optimized> {
        let interface = Interface::of(graph);
        let mut current = graph.clone();
        let mut stages = Vec::new();
        self.stage(&mut stages, "input", 0, &current);
        let mut iterations = 0;
        // Passes in a row that changed nothing: all of them means a fixed point, wherever in the
        // list the last change was.
        let mut quiet = 0;
        while iterations < MAX_ITERATIONS && quiet < self.passes.len() {
            for pass in &self.passes {
                if quiet == self.passes.len() {
                    break;
                }
                quiet += 1;
                let name = pass.name();
                let Some(next) = pass.run(&current).map_err(|e| failed(name, e))? else { continue };
                interface.check(name, &next)?;
                current = next;
                quiet = 0;
                self.stage(&mut stages, name, iterations, &current);
            }
            iterations += 1;
        }
        let (graph, kept_arguments) = passes::drop_unused_arguments(&current);
        Ok(Optimized { graph, kept_arguments, iterations, stages })
    }

    fn stage(&self, stages: &mut Vec<Stage>, pass: &'static str, iteration: usize, graph: &Graph) {
        if self.record {
            stages.push(Stage { pass, iteration, text: graph.to_string() });
        }
    }
}

fn failed(pass: &'static str, source: girih_ir::Error) -> Error {
    Error::Pass { pass, source: Box::new(source) }
}

/// What a program is seen from outside.
struct Interface {
    arguments: Vec<(Op, TensorSpec)>,
    outputs: Vec<TensorSpec>,
}

impl Interface {
    fn of(graph: &Graph) -> Interface {
        let argument = |id| {
            let node = graph.node(id);
            (node.op.clone(), node.spec.clone())
        };
        Interface {
            arguments: graph.arguments().map(argument).collect(),
            outputs: graph.outputs().iter().map(|&o| graph.spec(o).clone()).collect(),
        }
    }

    fn check(&self, pass: &'static str, graph: &Graph) -> Result<()> {
        if cfg!(debug_assertions) {
            graph.verify().map_err(|e| failed(pass, e))?;
        }
        let found = Interface::of(graph);
        // Symbolic sizes that a guard makes equal may come to be written in another way.
        let outputs = || self.outputs.iter().zip(&found.outputs).all(|(a, b)| a.equals(b));
        let count = self.outputs.len() == found.outputs.len();
        if found.arguments == self.arguments && count && outputs() {
            return Ok(());
        }
        let specs = |i: &Interface| {
            let arguments: Vec<String> = i.arguments.iter().map(|(_, s)| s.to_string()).collect();
            let outputs: Vec<String> = i.outputs.iter().map(TensorSpec::to_string).collect();
            format!("({}) -> ({})", arguments.join(", "), outputs.join(", "))
        };
        let reason = format!("it was {} and became {}", specs(self), specs(&found));
        Err(Error::InterfaceChanged { pass, reason })
    }
}
