//! The pass manager runs passes to a fixed point and checks them: each pass must preserve the
//! outputs' specs and the arguments, and in debug builds the whole graph must verify.
//!
//! At the end of each round, the same passes optimise the regions of branches, loops and calls.
//! Regions keep their arguments and results.
//!
//! Passes keep every argument in order, used or not. At the end the manager removes unused
//! arguments and reports which remain, so that a caller need not transfer data that the program
//! does not read.

use crate::{Error, OptOptions, PassFlag, Result, passes};
use girih_ir::ops::control::Control;
use girih_ir::{DecompositionTarget, Graph, Op, TensorSpec};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::sync::Arc;

/// Default limit on the number of rounds, after which the manager stops even if passes still change
/// the graph.
pub const MAX_ITERATIONS: usize = 10;

/// A function from a program to an equivalent program.
pub trait Pass: Send + Sync {
    /// Name, as in [`OptOptions`], dumps and errors.
    fn name(&self) -> &str;

    /// The improved graph, or `None` if nothing changes. Outputs keep their order and specs;
    /// arguments keep their order, ops and specs. The pass must be idempotent: run on its own
    /// result, it returns `None`.
    fn run(&self, graph: &Graph) -> girih_ir::Result<Option<Graph>>;
}

/// The graph after a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The name of the pass; `"input"` for the graph before the first pass.
    pub pass: String,
    /// Number of the round, from 0.
    pub iteration: usize,
    /// The graph's text form.
    pub text: String,
}

/// An optimised program.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimized {
    /// The program.
    pub graph: Graph,
    /// The original arguments that the program still has, ascending: argument `i` of the program is
    /// the original argument `live_arguments[i]`.
    pub live_arguments: Vec<usize>,
    /// Number of rounds over the passes; the last one may be partial.
    pub iterations: usize,
    /// The input graph, and the graph after each pass that changed it; empty unless recording is
    /// on.
    pub stages: Vec<Stage>,
}

/// An ordered list of passes.
pub struct PassManager {
    first: Vec<Arc<dyn Pass>>,
    passes: Vec<Box<dyn Pass>>,
    max_iterations: usize,
    record: bool,
}

impl Default for PassManager {
    fn default() -> Self {
        PassManager { first: vec![], passes: vec![], max_iterations: MAX_ITERATIONS, record: false }
    }
}

/// Optimises a graph with the default pipeline.
///
/// Errors: [`Error::Pass`] or [`Error::InterfaceChanged`], each a defect of a pass.
pub fn optimize(graph: &Graph, options: OptOptions) -> Result<Optimized> {
    PassManager::create_default(options).run(graph)
}

impl PassManager {
    /// A manager without passes.
    pub fn new() -> Self {
        PassManager::default()
    }

    /// The pipeline of [`PassFlag::ALL`], restricted to the given set.
    pub fn create_default(options: OptOptions) -> Self {
        PassManager::for_target(options, DecompositionTarget::CPU)
    }

    /// As [`PassManager::create_default`], but composites are decomposed for the target.
    pub fn for_target(options: OptOptions, target: DecompositionTarget) -> Self {
        let pass = |flag| -> Box<dyn Pass> {
            match flag {
                PassFlag::Decompose => Box::new(passes::Decompose { target }),
                _ => flag.pass(),
            }
        };
        let flags = PassFlag::ALL.into_iter().filter(|&flag| options.contains(flag));
        PassManager { passes: flags.map(pass).collect(), ..PassManager::default() }
    }

    /// Appends a pass.
    pub fn add_pass(&mut self, pass: impl Pass + 'static) -> &mut Self {
        self.passes.push(Box::new(pass));
        self
    }

    /// Sets passes that run once before all others, in order, on the recorded program. They need
    /// not reach a fixed point, and are not applied to regions.
    pub fn first(&mut self, passes: Vec<Arc<dyn Pass>>) -> &mut Self {
        self.first = passes;
        self
    }

    /// Limits the number of rounds (default [`MAX_ITERATIONS`]). With 0, the result is the graph
    /// after the passes that run once.
    pub fn max_iterations(&mut self, rounds: usize) -> &mut Self {
        self.max_iterations = rounds;
        self
    }

    /// Enables recording of the graph's text after each pass that changes it, for dumps and
    /// explanations.
    pub fn record(&mut self, record: bool) -> &mut Self {
        self.record = record;
        self
    }

    /// Runs the passes in order and repeatedly, until no pass changes the graph or
    /// [`PassManager::max_iterations`] rounds are done. Then removes unused arguments.
    ///
    /// Errors: as [`optimize`].
    pub fn run(&self, graph: &Graph) -> Result<Optimized> {
        let mut stages = Vec::new();
        self.stage(&mut stages, "input", 0, graph);
        let mut regions = Regions::default();
        let mut observe = |pass: &str, iteration, graph: &Graph| {
            self.stage(&mut stages, pass, iteration, graph);
        };
        let prepared = self.before(graph, &mut observe)?;
        let (current, iterations) = self.fixed_point(&prepared, &mut regions, &mut observe)?;
        let (graph, live_arguments) = passes::drop_unused_arguments(current);
        Ok(Optimized { graph, live_arguments, iterations, stages })
    }

    /// The graph after the passes that run once.
    fn before<'a>(
        &self,
        graph: &'a Graph,
        observe: &mut dyn FnMut(&str, usize, &Graph),
    ) -> Result<Cow<'a, Graph>> {
        let interface = Interface::of(graph);
        let mut current = Cow::Borrowed(graph);
        for pass in &self.first {
            let name = pass.name();
            let Some(next) = pass.run(&current).map_err(|e| failed(name, e))? else { continue };
            // This may be a user's pass, so its graph is verified in release builds too.
            next.verify().map_err(|e| failed(name, e))?;
            interface.check(name, &next)?;
            observe(name, 0, &next);
            current = Cow::Owned(next);
        }
        Ok(current)
    }

    /// The fixed point of the passes, and the number of rounds.
    fn fixed_point(
        &self,
        graph: &Graph,
        regions: &mut Regions,
        observe: &mut dyn FnMut(&str, usize, &Graph),
    ) -> Result<(Graph, usize)> {
        let interface = Interface::of(graph);
        let mut current = Cow::Borrowed(graph);
        let mut iterations = 0;
        // Number of consecutive passes without a change. At `steps` the graph is a fixed point,
        // wherever in the list the last change was. The regions count as the last pass.
        let (mut quiet, steps) = (0, self.passes.len() + 1);
        while iterations < self.max_iterations && quiet < steps && !self.passes.is_empty() {
            for step in 0..steps {
                if quiet == steps {
                    break;
                }
                quiet += 1;
                let (name, next) = match self.passes.get(step) {
                    Some(pass) => {
                        (pass.name(), pass.run(&current).map_err(|e| failed(pass.name(), e))?)
                    }
                    None => (REGIONS, self.regions(&current, regions)?),
                };
                let Some(next) = next else { continue };
                interface.check(name, &next)?;
                current = Cow::Owned(next);
                quiet = 0;
                observe(name, iterations, &current);
            }
            iterations += 1;
        }
        Ok((current.into_owned(), iterations))
    }

    /// Optimises the regions of control ops; `None` if nothing changes.
    fn regions(&self, graph: &Graph, known: &mut Regions) -> Result<Option<Graph>> {
        if self.passes.is_empty() || graph.nodes().all(|(_, n)| n.op.as_control().is_none()) {
            return Ok(None);
        }
        let mut outcome = Ok(());
        let rewritten = graph.rewrite(|b, node| {
            let Some((result, control)) = node.op.as_control() else { return Ok(None) };
            let better = match self.better(control, known) {
                Ok(better) => better,
                Err(error) => {
                    outcome = Err(error);
                    return Ok(None);
                }
            };
            if Arc::ptr_eq(&better, control) {
                return Ok(None);
            }
            let op = Op::control(node.op.code, better, result);
            b.emit(op, &node.inputs).map(Some)
        });
        outcome?;
        rewritten.map_err(|e| failed(REGIONS, e))
    }

    /// The control with its regions at their fixed point; the same `Arc` if they do not change.
    fn better(&self, control: &Arc<Control>, known: &mut Regions) -> Result<Arc<Control>> {
        if let Some((_, better)) = known.0.get(&Arc::as_ptr(control)) {
            return Ok(better.clone());
        }
        let mut graphs = Vec::with_capacity(control.regions.len());
        for region in control.regions.iter() {
            graphs.push(self.fixed_point(region, known, &mut |_, _, _| {})?.0);
        }
        let same = graphs.iter().eq(control.regions.iter());
        let better = match same {
            true => control.clone(),
            false => Arc::new(control.with_regions(graphs)),
        };
        for key in [control, &better] {
            known.0.insert(Arc::as_ptr(key), (key.clone(), better.clone()));
        }
        Ok(better)
    }

    fn stage(&self, stages: &mut Vec<Stage>, pass: &str, iteration: usize, graph: &Graph) {
        if self.record {
            let (pass, text) = (pass.to_string(), graph.to_string());
            stages.push(Stage { pass, iteration, text });
        }
    }
}

/// Name of the region optimisation in stages and errors.
const REGIONS: &str = "regions";

/// The optimised version of each control, by the address of the original. The original is kept
/// alive so that no other control gets its address.
#[derive(Default)]
struct Regions(FxHashMap<*const Control, (Arc<Control>, Arc<Control>)>);

fn failed(pass: &str, source: girih_ir::Error) -> Error {
    Error::Pass { pass: pass.to_string(), source: Box::new(source) }
}

/// The interface of a program: the facts that its callers depend on.
struct Interface<'a> {
    arguments: Vec<(&'a Op, &'a TensorSpec)>,
    outputs: Vec<&'a TensorSpec>,
}

impl<'a> Interface<'a> {
    fn of(graph: &'a Graph) -> Interface<'a> {
        let argument = |id| {
            let node = graph.node(id);
            (&node.op, &node.spec)
        };
        Interface {
            arguments: graph.arguments().map(argument).collect(),
            outputs: graph.outputs().iter().map(|&o| graph.spec(o)).collect(),
        }
    }

    fn check(&self, pass: &str, graph: &Graph) -> Result<()> {
        if cfg!(debug_assertions) {
            graph.verify().map_err(|e| failed(pass, e))?;
        }
        let found = Interface::of(graph);
        // Under a guard, equal symbolic sizes may have different expressions.
        let outputs = || self.outputs.iter().zip(&found.outputs).all(|(a, b)| a.equals(b));
        let count = self.outputs.len() == found.outputs.len();
        if found.arguments == self.arguments && count && outputs() {
            return Ok(());
        }
        let specs = |i: &Interface<'_>| {
            let arguments: Vec<String> = i.arguments.iter().map(|(_, s)| s.to_string()).collect();
            let outputs: Vec<String> = i.outputs.iter().map(|s| s.to_string()).collect();
            format!("({}) -> ({})", arguments.join(", "), outputs.join(", "))
        };
        let reason = format!("it was {} and became {}", specs(self), specs(&found));
        Err(Error::InterfaceChanged { pass: pass.to_string(), reason })
    }
}
