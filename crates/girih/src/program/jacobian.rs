//! Jacobians and second derivatives of programs. Each method builds a new graph and runs nothing.

use super::Program;
use super::linear::PartialGraph;
use crate::{Error, Result};
use girih_ir::{DType, Dim, GraphBuilder, Literal, NodeId, OpCode, Shape, TensorSpec};

/// The axes of a Jacobian that the batch axis of a derivative program becomes.
#[derive(Clone, Copy, PartialEq)]
enum Batch {
    /// The trailing axes: each member of the batch is a unit tangent of the node `wrt`.
    Columns,
    /// The leading axes: each member of the batch is a unit cotangent of an output.
    Rows,
}

impl Program {
    /// The program that computes the Jacobian of each output with respect to the node `wrt` in
    /// forward mode. The shape of a Jacobian is the output's shape followed by the shape of `wrt`.
    /// The inputs are those of this program. Forward mode is efficient if `wrt` has fewer elements
    /// than the outputs.
    ///
    /// ```
    /// use girih::{Program, Tensor};
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    /// let program = Program::capture(&[&x.mul(&x)?], &[&x])?;
    /// let jacobian = program.jacfwd(program.inputs()[0].id)?;
    /// assert_eq!(jacobian.call(&[&x])?[0].to_vec::<f32>()?, [2.0, 0.0, 0.0, 4.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: as [`Program::jvp`]; [`Error::InvalidArgument`] for a program that draws random numbers
    /// at each call.
    pub fn jacfwd(&self, wrt: NodeId) -> Result<Program> {
        let taken = self.inputs().len();
        let mut columns = self.jvp(&[wrt])?;
        let tangents = columns.graph.outputs()[self.graph.outputs().len()..].to_vec();
        columns.graph.set_outputs(tangents);
        columns.at_basis("jacfwd", taken, 0, Batch::Columns)
    }

    /// As [`Program::jacfwd`], in reverse mode, which is efficient if the outputs have fewer
    /// elements than `wrt`.
    ///
    /// Errors: as [`Program::vjp`]; as [`Program::jacfwd`].
    pub fn jacrev(&self, wrt: NodeId) -> Result<Program> {
        let taken = self.inputs().len();
        let count = self.graph.outputs().len();
        let mut rows = self.vjp(&[wrt])?;
        let cotangent = rows.graph.outputs()[count];
        rows.graph.set_outputs([cotangent]);
        let of_output = |i| rows.at_basis("jacrev", taken, i, Batch::Rows);
        let parts = (0..count).map(of_output).collect::<Result<Vec<Program>>>()?;
        self.beside(&parts)
    }

    /// The program that computes the Hessian of the first output, a scalar, with respect to the
    /// node `wrt`. The shape of the Hessian is the shape of `wrt` twice. The Hessian is computed in
    /// forward-over-reverse mode.
    ///
    /// ```
    /// use girih::{Program, Tensor};
    ///
    /// let x = Tensor::from_slice(&[1.0f32, 2.0], [2])?;
    /// let y = x.mul(&x)?.mul(&x)?.sum_all()?;
    /// let program = Program::capture(&[&y], &[&x])?;
    /// let hessian = program.hessian(program.inputs()[0].id)?;
    /// assert_eq!(hessian.call(&[&x])?[0].to_vec::<f32>()?, [6.0, 0.0, 0.0, 12.0]);
    /// # Ok::<(), girih::Error>(())
    /// ```
    ///
    /// Errors: as [`Program::grad`] and [`Program::jacfwd`].
    pub fn hessian(&self, wrt: NodeId) -> Result<Program> {
        // The gradient's graph begins with the nodes of this program's graph.
        self.grad(&[wrt])?.jacfwd(wrt)
    }

    /// The program that computes Hessian-vector products of the first output without forming the
    /// Hessian. It takes this program's inputs, then the vector, a tensor of the shape and dtype of
    /// `wrt`.
    ///
    /// Errors: as [`Program::grad`].
    pub fn hvp(&self, wrt: NodeId) -> Result<Program> {
        let mut product = self.grad(&[wrt])?.jvp(&[wrt])?;
        let tangent = product.graph.outputs()[1];
        product.graph.set_outputs([tangent]);
        Ok(product)
    }

    /// Evaluates this program at all unit vectors of its derivative input `at`, and at zeros for
    /// the other derivative inputs. The derivative inputs follow the first `taken` inputs.
    fn at_basis(&self, what: &str, taken: usize, at: usize, batch: Batch) -> Result<Program> {
        let inputs = self.inputs();
        let given = &inputs[taken..];
        let of = given[at].spec.clone();
        let count = of.shape.count();
        let outputs: Vec<Shape> =
            self.graph.outputs().iter().map(|&o| self.graph.spec(o).shape.clone()).collect();
        let ins: Vec<Option<usize>> =
            (0..inputs.len()).map(|i| (i == taken + at).then_some(0)).collect();
        let outs: Vec<usize> = outputs
            .iter()
            .map(|shape| if batch == Batch::Columns { shape.rank() } else { 0 })
            .collect();
        let all = self.vmap(count, &ins, &outs).map_err(|error| match error {
            Error::InvalidArgument(reason) => {
                Error::InvalidArgument(reason.replacen("vmap", what, 1))
            }
            error => error,
        })?;
        let batched: Vec<NodeId> = all.inputs()[taken..].iter().map(|input| input.id).collect();
        all.guarded(|| {
            let mut part = PartialGraph::of(&all.graph);
            for id in all.graph.ids() {
                let Some(i) = batched.iter().position(|&given| given == id) else {
                    part.copy(id);
                    continue;
                };
                let made = match i == at {
                    true => basis(&mut part.b, count, &of)?,
                    false => {
                        let spec = all.graph.spec(id);
                        let zero = Literal::from_i64(spec.dtype, 0);
                        part.b.constant(zero, spec.shape.clone())
                    }
                };
                part.map[id.index()] = Some(made);
            }
            let results: Vec<NodeId> = all.graph.outputs().iter().map(|&o| part.at(o)).collect();
            let mut shaped = Vec::with_capacity(results.len());
            for (id, own) in results.into_iter().zip(&outputs) {
                let shape: Shape = match batch {
                    Batch::Columns => own.dims().chain(of.shape.dims()).collect(),
                    Batch::Rows => of.shape.dims().chain(own.dims()).collect(),
                };
                shaped.push(part.b.reshape(id, shape)?);
            }
            let PartialGraph { b, map, .. } = part;
            let kept = |id: NodeId| map[id.index()].filter(|_| !batched.contains(&id));
            Ok(all.moved(b.finish(shaped), kept))
        })
    }

    /// One program with the outputs of all `parts`, whose arguments are those of this program.
    fn beside(&self, parts: &[Program]) -> Result<Program> {
        let mut b = GraphBuilder::default();
        let mut guards = self.graph.guards().to_vec();
        let leaves: Vec<NodeId> = self
            .graph
            .arguments()
            .map(|id| b.leaf(self.graph.node(id).op.clone(), self.graph.spec(id).clone()))
            .collect();
        let mut outputs = Vec::new();
        for part in parts {
            let new = part.graph.guards().iter().filter(|guard| !guards.contains(guard));
            let new: Vec<_> = new.cloned().collect();
            guards.extend(new);
            outputs.extend(b.inline(&part.graph, &leaves)?);
        }
        let old: Vec<NodeId> = self.graph.arguments().collect();
        let new = |id: NodeId| old.binary_search(&id).ok().map(|at| leaves[at]);
        let mut program = self.moved(b.finish(outputs), new);
        program.graph.set_guards(guards);
        Ok(program)
    }
}

/// All unit vectors of a spec, stacked along a leading axis.
fn basis(b: &mut GraphBuilder, count: Dim, of: &TensorSpec) -> Result<NodeId> {
    let square = Shape::of_dims([count, count]);
    let rows = b.iota(square.clone(), DType::I64, 0);
    let columns = b.iota(square, DType::I64, 1);
    let equal = b.op(OpCode::Eq, &[rows, columns])?;
    let eye = b.cast(equal, of.dtype)?;
    Ok(b.reshape(eye, std::iter::once(count).chain(of.shape.dims()).collect::<Shape>())?)
}
