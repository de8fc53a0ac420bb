//! Programs with custom derivative rules; the rules are programs too.

use super::linear::PartialGraph;
use super::{Held, Program};
use crate::{Error, Result};
use girih_ir::ops::control::Control;
use girih_ir::{Graph, GraphBuilder, NodeId, TensorSpec};
use std::collections::BTreeMap;

/// A program that a call runs. The inputs of its region are, in order, the program's inputs and the
/// arguments that it holds.
struct Callee<'a> {
    program: &'a Program,
    /// The arguments that are not inputs, and the index of the call's operand for the first such
    /// argument.
    held: Vec<NodeId>,
    first: usize,
}

impl<'a> Callee<'a> {
    fn new(program: &'a Program, first: usize) -> Callee<'a> {
        let inputs = program.inputs();
        let is_input = |id: &NodeId| inputs.iter().any(|input| input.id == *id);
        let held = program.graph.arguments().filter(|id| !is_input(id)).collect();
        Callee { program, held, first }
    }

    /// The specs of the inputs. A scalar run-time constant has the spec of the tensor that it
    /// fills.
    fn takes(&self) -> Vec<TensorSpec> {
        let graph = &self.program.graph;
        self.program.inputs().iter().map(|input| graph.spec(input.id).clone()).collect()
    }

    fn gives(&self) -> Vec<TensorSpec> {
        let graph = &self.program.graph;
        graph.outputs().iter().map(|&o| graph.spec(o).clone()).collect()
    }

    /// The region of a call with operands of these specs, which takes the values `more` after the
    /// operands. The program's inputs are the first operands and `more`; for a backward part they
    /// are `more` only.
    fn region(
        &self,
        operands: &[TensorSpec],
        more: &[TensorSpec],
        backward: bool,
    ) -> Result<Graph> {
        let mut b = GraphBuilder::default();
        let taken: Vec<NodeId> =
            operands.iter().chain(more).map(|spec| b.input(spec.clone())).collect();
        let further = taken[operands.len()..].iter();
        let count = self.program.inputs().len();
        let own: Vec<NodeId> = match backward {
            true => further.copied().collect(),
            false => taken[..count - more.len()].iter().chain(further).copied().collect(),
        };
        let mut own = own.into_iter();
        let mut held = taken[self.first..].iter().copied();
        let arguments = self.program.graph.arguments().map(|id| match self.held.contains(&id) {
            true => held.next().expect("there is an operand for each"),
            false => own.next().expect("inputs are checked"),
        });
        let arguments: Vec<NodeId> = arguments.collect();
        let outputs = b.inline(&self.program.graph, &arguments)?;
        Ok(b.finish(outputs))
    }
}

fn inexact(specs: &[TensorSpec]) -> Vec<TensorSpec> {
    specs.iter().filter(|spec| spec.dtype.is_inexact()).cloned().collect()
}

fn listed(specs: &[TensorSpec]) -> String {
    specs.iter().map(TensorSpec::to_string).collect::<Vec<_>>().join(", ")
}

/// Fails unless the specs that a rule takes or returns are as expected.
fn check(rule: &str, verb: &str, found: &[TensorSpec], expected: &[TensorSpec]) -> Result<()> {
    let fits = found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| found.equals(expected));
    match fits {
        true => Ok(()),
        false => Err(Error::InvalidArgument(format!(
            "{rule} {verb} ({}); expected ({})",
            listed(found),
            listed(expected)
        ))),
    }
}

impl Program {
    /// The program that is differentiated by the program `rule` instead of through its ops. The
    /// rule takes this program's inputs, then a tangent for each floating-point or complex input.
    /// It returns this program's outputs, then a tangent for each floating-point or complex output,
    /// and must be linear in the tangents. Reverse mode follows from the rule. Derivatives with
    /// respect to parameters that the program holds are refused.
    ///
    /// ```
    /// use girih::{Program, Tensor};
    ///
    /// // A clamp through which tangents pass unchanged.
    /// let (x, t) = (Tensor::from_slice(&[0.5f32, 3.0], [2])?, Tensor::from_slice(&[1.0f32, 1.0], [2])?);
    /// let clamp = Program::capture(&[&x.minimum(1.0)?], &[&x])?;
    /// let rule = Program::capture(&[&x.minimum(1.0)?, &t], &[&x, &t])?;
    /// let jacobian = clamp.custom_jvp(&rule)?.jacfwd(clamp.inputs()[0].id)?;
    /// assert_eq!(jacobian.call(&[&x])?[0].to_vec::<f32>()?, [1.0, 0.0, 0.0, 1.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: [`Error::InvalidArgument`] for a rule that takes or returns values of other specs;
    /// [`Error::Record`] for outputs that a call cannot return.
    pub fn custom_jvp(&self, rule: &Program) -> Result<Program> {
        let mut call = Call::of(self);
        let rule = call.callee(rule);
        let (takes, gives) = (call.body.takes(), call.body.gives());
        let (by, of) = (inexact(&takes), inexact(&gives));
        let wanted = [takes, by.clone()].concat();
        check("custom_jvp: the rule", "takes", &rule.takes(), &wanted)?;
        check("custom_jvp: the rule", "gives", &rule.gives(), &[gives, of].concat())?;
        let region = rule.region(&call.specs, &by, false)?;
        call.finish(vec![region], rule.program.graph.guards())
    }

    /// The program that is differentiated in reverse mode by two programs instead of through its
    /// ops. `forward` takes this program's inputs and returns its outputs, then residuals.
    /// `backward` takes the residuals, then a cotangent for each floating-point or complex output,
    /// and returns a cotangent for each such input. Forward mode is refused, and so are derivatives
    /// with respect to parameters that the program holds.
    ///
    /// ```
    /// use girih::{Program, Tensor};
    ///
    /// // The gradient is halved.
    /// let x = Tensor::from_slice(&[0.5f32], [])?;
    /// let square = Program::capture(&[&x.square()?], &[&x])?;
    /// let forward = Program::capture(&[&x.square()?, &x], &[&x])?;
    /// let ct = Tensor::from_slice(&[1.0f32], [])?;
    /// let backward = Program::capture(&[&x.mul(&ct)?], &[&x, &ct])?;
    /// let gradient = square.custom_vjp(&forward, &backward)?.grad(&[square.inputs()[0].id])?;
    /// assert_eq!(gradient.call(&[&x])?[0].item::<f32>()?, 0.5);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: as [`Program::custom_jvp`].
    pub fn custom_vjp(&self, forward: &Program, backward: &Program) -> Result<Program> {
        let mut call = Call::of(self);
        let (forward, backward) = (call.callee(forward), call.callee(backward));
        let (takes, gives) = (call.body.takes(), call.body.gives());
        let (by, of) = (inexact(&takes), inexact(&gives));
        check("custom_vjp: the forward part", "takes", &forward.takes(), &takes)?;
        let found = forward.gives();
        let (results, residuals) = found.split_at(gives.len().min(found.len()));
        check("custom_vjp: the forward part", "gives first", results, &gives)?;
        let wanted = [residuals, &of[..]].concat();
        check("custom_vjp: the backward part", "takes", &backward.takes(), &wanted)?;
        check("custom_vjp: the backward part", "gives", &backward.gives(), &by)?;
        let regions = vec![
            forward.region(&call.specs, &[], false)?,
            backward.region(&call.specs, &wanted, true)?,
        ];
        let guards = [forward.program.graph.guards(), backward.program.graph.guards()].concat();
        call.finish(regions, &guards)
    }
}

/// A program under construction that consists of a call of another program, with rules.
struct Call<'a> {
    body: Callee<'a>,
    whole: PartialGraph<'a>,
    /// The operands: the inputs of the body, then the values that the body and the rules hold.
    operands: Vec<NodeId>,
    specs: Vec<TensorSpec>,
    /// The values that the rules hold, by their nodes in the new program.
    values: BTreeMap<NodeId, Held>,
}

impl<'a> Call<'a> {
    fn of(program: &'a Program) -> Call<'a> {
        let inputs = program.inputs();
        let body = Callee::new(program, inputs.len());
        let mut whole = PartialGraph::of(&program.graph);
        program.graph.arguments().for_each(|id| whole.copy(id));
        let order: Vec<NodeId> =
            inputs.iter().map(|input| input.id).chain(body.held.iter().copied()).collect();
        let operands = order.iter().map(|&id| whole.at(id)).collect();
        let specs = order.iter().map(|&id| program.graph.spec(id).clone()).collect();
        Call { body, whole, operands, specs, values: BTreeMap::new() }
    }

    /// Adds a rule; the arguments that it holds become operands of the call.
    fn callee<'r>(&mut self, rule: &'r Program) -> Callee<'r> {
        let callee = Callee::new(rule, self.operands.len());
        for &id in &callee.held {
            let node = rule.graph.node(id);
            let leaf = self.whole.b.leaf(node.op.clone(), node.spec.clone());
            if let Some(held) = rule.values.get(&id) {
                self.values.insert(leaf, held.clone());
            }
            self.operands.push(leaf);
            self.specs.push(node.spec.clone());
        }
        callee
    }

    fn finish(self, rules: Vec<Graph>, guards: &[girih_ir::dim::Guard]) -> Result<Program> {
        let Call { body, whole, operands, specs, values } = self;
        let program = body.program;
        if operands.is_empty() || program.graph.outputs().is_empty() {
            return Ok(program.clone());
        }
        let mut regions = rules;
        regions.push(body.region(&specs, &[], false)?);
        let carries = program.inputs().len() as u32;
        let control = Control { carries, ..Control::default() }.with_regions(regions);
        let mut new = whole.call(program, control, &operands)?;
        new.values.extend(values);
        let more = guards.iter().filter(|guard| !program.graph.guards().contains(guard));
        let guards = program.graph.guards().iter().chain(more).cloned().collect();
        new.graph.set_guards(guards);
        Ok(new)
    }
}
