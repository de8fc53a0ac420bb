//! Builds one kernel of a plan: starts from its root's value at a point of the space and follows
//! operands, through composed maps, down to values in memory.

mod access;

use super::buffers::{Buffers, base};
use super::map::{AffineMap, Axis, Dims, NoMap};
use super::memo::{At, Memo};
use super::plan::{self, Group, GroupRole, Plan, scattered};
use super::space::{self, DimRole, LoopNest};
use super::{Refusal, name};
use crate::Target;
use crate::ir::{Access, AccessId, Block, Core, Inst, Kernel, ReduceOp, Store, Val};
use access::Reach;
use girih_ir::ops::ScatterMode;
use girih_ir::{Attrs, Class, Graph, IndexMap, Iteration, Literal, Node, NodeId, OpCode};
use smallvec::{SmallVec, smallvec};

/// The input of the builder.
pub(super) struct Inputs<'a> {
    pub graph: &'a Graph,
    pub target: &'a Target,
    pub plan: &'a mut Plan,
    /// The position of each node among the graph's arguments.
    pub arguments: &'a [u32],
    pub buffers: &'a mut Buffers,
}

/// The reason why a kernel must be built again.
pub(super) enum Rebuild {
    /// A dimension must be split into an outer dimension and a dimension of `inner` points.
    Split { dim: usize, inner: usize },
    /// A value was moved to memory.
    ValueMoved,
}

/// A kernel under construction.
pub(super) struct Builder<'b, 'a> {
    inputs: &'b mut Inputs<'a>,
    graph: &'a Graph,
    memo: &'b mut Memo,
    group: &'b Group,
    /// The reduction or GEMM of the kernel, with the loop nest.
    core: Option<(NodeId, Iteration)>,
    nest: LoopNest,
    /// Distinct maps, by number.
    maps: Vec<AffineMap>,
    /// The map of the core's value.
    core_map: u32,
    accesses: Vec<Access>,
    prologue: Block,
    body: Block,
    /// The loads so far, to avoid duplicates.
    loads: SmallVec<[(bool, AccessId, Val); 8]>,
    /// The ops in order of computation, for the name. `view` is the last view, for kernels without
    /// ops.
    ops: SmallVec<[NodeId; 8]>,
    view: Option<NodeId>,
}

impl<'b, 'a> Builder<'b, 'a> {
    pub fn new(
        inputs: &'b mut Inputs<'a>,
        memo: &'b mut Memo,
        group: &'b Group,
        splits: &[(usize, usize)],
    ) -> Self {
        let graph = inputs.graph;
        // A core that was moved to memory is no longer part of its consumer's kernel.
        let core = group.core.filter(|&c| c == group.root || !inputs.plan.memory[c.index()]);
        let core = core.map(|c| (c, graph.iteration(c).expect("cores have loop nests")));
        let mut space = space::of_kernel(graph, group, core.as_ref());
        splits.iter().for_each(|&(dim, inner)| space.split(dim, inner));
        Builder {
            graph,
            inputs,
            memo,
            group,
            core,
            nest: space.loop_nest(),
            maps: Vec::new(),
            core_map: u32::MAX,
            accesses: Vec::new(),
            prologue: Block::default(),
            body: Block::default(),
            loads: SmallVec::new(),
            ops: SmallVec::new(),
            view: None,
        }
    }

    /// Builds the kernel and returns it with the nodes that it computes, or the reason to build it
    /// again.
    pub fn build(mut self) -> Result<(Kernel, Vec<NodeId>), Rebuild> {
        let (value, map) = self.start()?;
        let core = self.build_core()?;
        let at = At { prologue: false, map };
        let stores = match self.fill_value() {
            Some(literal) => {
                let val = self.body.push(Inst::Literal(literal));
                smallvec![self.store(self.group.root, map, val)]
            }
            None => {
                let val = self.pull(value, at)?;
                self.check_core_used()?;
                let mut stores: SmallVec<[Store; 2]> = smallvec![self.root_store(map, val)];
                self.extra_stores(&mut stores);
                stores
            }
        };
        Ok(self.finish(core, stores))
    }

    /// The node whose value the body ends with, and its map.
    fn start(&mut self) -> Result<(NodeId, u32), Rebuild> {
        let value = space::value_of(self.graph, self.group);
        let axes = &self.nest.axes;
        let Some((core, nest)) = &self.core else {
            let map = AffineMap(axes.iter().cloned().collect());
            return Ok((value, self.intern(map)));
        };
        let (core, parallel) = (*core, nest.parallel);
        // The parallel axes in order are the axes of the result, except for axes of one element.
        let kept = AffineMap(axes[..parallel].iter().cloned().collect());
        let shape = &self.graph.spec(core).shape;
        let result = kept.reshape(&nest.extents[..parallel], shape, &self.nest.extents);
        let result = result.expect("axes of one element do not matter to a map");
        let out = result.reshape(shape, &self.graph.spec(value).shape, &self.nest.extents);
        self.core_map = self.intern(result);
        match out {
            Ok(map) => Ok((value, self.intern(map))),
            Err(NoMap::Split { dim, inner }) => Err(Rebuild::Split { dim: dim as usize, inner }),
            Err(NoMap::NotAffine) => {
                self.keep(core, Refusal::Reshape);
                Err(Rebuild::ValueMoved)
            }
        }
    }

    /// The literal that the kernel stores at every point, if the kernel only fills its result.
    fn fill_value(&self) -> Option<Literal> {
        let node = self.graph.node(self.group.root);
        let dtype = node.spec.dtype;
        match (self.group.role, &node.op.attrs) {
            (GroupRole::Fill, Attrs::Pad(pad)) => Some(Literal { dtype, bits: pad.1 }),
            (GroupRole::Scatter, _) if self.graph.spec(scattered(node).updates).numel() == 0 => {
                Some(Literal::from_i64(dtype, 0))
            }
            _ => None,
        }
    }

    fn build_core(&mut self) -> Result<Core, Rebuild> {
        if self.group.role == GroupRole::Scatter && self.fill_value().is_none() {
            return self.scatter();
        }
        let Some((id, nest)) = self.core.take() else { return Ok(Core::Map) };
        let node = self.graph.node(id);
        let axes = AffineMap(self.nest.axes.iter().cloned().collect());
        let core = if node.op.class() == Class::Contraction {
            let mut operand = |i: usize, map: &IndexMap| {
                let input = node.inputs[i];
                let map = axes.through(map, &self.graph.spec(input).shape);
                let (node, offset, strides) = self.address(input, map, Reach::Operand)?;
                Ok(self.make_access(node, offset, strides))
            };
            let (lhs, rhs) = (operand(0, &nest.operands[0])?, operand(1, &nest.operands[1])?);
            Core::Gemm { lhs, rhs, dtype: node.spec.dtype, rows: 1, columns: 1 }
        } else {
            let input = node.inputs[0];
            let map = axes.through(&nest.operands[0], &self.graph.spec(input).shape);
            let at = At { prologue: true, map: self.intern(map) };
            let value = self.pull(input, at)?;
            let op = reduce_op(node.op.code);
            Core::Reduce {
                prologue: std::mem::take(&mut self.prologue),
                value,
                op,
                stores: Vec::new(),
            }
        };
        self.core = Some((id, nest));
        self.ops.push(id);
        Ok(core)
    }

    fn scatter(&mut self) -> Result<Core, Rebuild> {
        let node = self.graph.node(self.group.root);
        let (indexed, indices) = (self.indexed(node), scattered(node).indices);
        let axes = &self.nest.axes;
        let map = match node.op.code {
            OpCode::ScatterAdd | OpCode::Scatter => {
                AffineMap(axes[indexed.clone()].iter().cloned().collect())
            }
            _ => AffineMap(axes.iter().cloned().collect()),
        };
        let (mode, zeroed) = match node.op.attrs {
            Attrs::ScatterInto { mode, .. } => (mode, false),
            _ => (ScatterMode::Add, true),
        };
        let (from, offset, strides) = self.address(indices, map, Reach::Views)?;
        let index = self.make_access(from, offset, strides);
        let stride = node.spec.shape.strides()[indexed.start];
        let size = node.spec.shape[indexed.start];
        Ok(Core::Scatter { mode, zeroed, index, stride, size, independent: SmallVec::new() })
    }

    /// The axes of a scatter's updates that its indices address.
    fn indexed(&self, node: &Node) -> std::ops::Range<usize> {
        space::indexed_axes(self.graph, node).expect("scatters carry an axis")
    }

    /// Fails if the epilogue never reached its core, because a value between them is in memory.
    fn check_core_used(&mut self) -> Result<(), Rebuild> {
        let Some((core, _)) = self.core else { return Ok(()) };
        if self.memo.of(core).next().is_some() {
            return Ok(());
        }
        self.inputs.plan.memory[core.index()] = true;
        Err(Rebuild::ValueMoved)
    }

    /// A store of `val`, the value at `map`, to the memory of `node`.
    fn store(&mut self, node: NodeId, map: u32, val: Val) -> Store {
        let strides = self.graph.spec(node).shape.strides();
        let (offset, strides) = self.maps[map as usize].strides(&strides, self.dims(false));
        Store { access: self.make_access(node, offset, strides), value: val }
    }

    /// The store of the kernel's value into its part of the root.
    fn root_store(&mut self, map: u32, val: Val) -> Store {
        let root = self.group.root;
        let node = self.graph.node(root);
        let mut place = self.maps[map as usize].clone();
        match (self.group.role, &node.op.attrs) {
            (GroupRole::Part { start, .. }, &Attrs::Axis(axis)) => {
                place.0[axis as usize].offset += start as isize;
            }
            (GroupRole::Part { .. }, Attrs::Pad(pad)) => {
                for (axis, dim) in place.0.iter_mut().zip(&pad.0) {
                    let step = dim.interior as isize + 1;
                    axis.offset = axis.offset * step + dim.low as isize;
                    axis.terms.iter_mut().for_each(|t| t.1 *= step);
                }
            }
            (GroupRole::Part { operand: 1, .. }, Attrs::Slice(dims)) => {
                for (axis, dim) in place.0.iter_mut().zip(dims.iter()) {
                    let step = dim.step as isize;
                    axis.offset = axis.offset * step + dim.start as isize;
                    axis.terms.iter_mut().for_each(|t| t.1 *= step);
                }
            }
            (GroupRole::Scatter, _) => {
                let indexed = self.indexed(node);
                let axis = indexed.start;
                place.0.drain(indexed);
                place.0.insert(axis, Axis::zero());
            }
            _ => {}
        }
        let place = self.intern(place);
        self.store(root, place, val)
    }

    /// Stores further outputs. An output that the kernel did not compute gets a kernel of its own.
    fn extra_stores(&mut self, stores: &mut SmallVec<[Store; 2]>) {
        for &node in &self.group.stores {
            let met = self.memo.of(node).find(|e| !e.at.prologue).copied();
            match met {
                Some(e) if !self.inputs.plan.memory[node.index()] => {
                    stores.push(self.store(node, e.at.map, e.val));
                }
                _ => self.inputs.plan.memory[node.index()] = true,
            }
        }
    }

    /// The number of dimensions of a block's points.
    fn dims(&self, prologue: bool) -> usize {
        if prologue { self.nest.extents.len() } else { self.nest.parallel }
    }

    /// The number of a map; equal maps have the same number.
    fn intern(&mut self, map: AffineMap) -> u32 {
        let known = self.maps.iter().position(|m| *m == map);
        known.unwrap_or_else(|| {
            self.maps.push(map);
            self.maps.len() - 1
        }) as u32
    }

    /// Moves a value to memory.
    fn keep(&mut self, node: NodeId, reason: Refusal) -> NodeId {
        let base = base(self.graph, node);
        if !self.inputs.plan.memory[base.index()] {
            self.inputs.plan.memory[base.index()] = true;
            self.inputs.plan.refuse(base, reason);
        }
        base
    }

    /// Whether the kernel loads a node's value.
    fn in_memory(&self, node: NodeId) -> bool {
        let (root, plan) = (self.group.root, &self.inputs.plan);
        let own = node == root && self.group.role == GroupRole::Value;
        let stored = plan.stored[node.index()].is_some_and(|by| by < root);
        (plan.memory[node.index()] || stored) && !own
    }

    /// The value of a node at a point: follows views, then computes or loads.
    fn pull(&mut self, mut node: NodeId, mut at: At) -> Result<Val, Rebuild> {
        loop {
            if let Some(val) = self.memo.get(node, at) {
                return Ok(val);
            }
            // Consecutive reshapes are followed in one step.
            let (n, bottom) = (self.graph.node(node), base(self.graph, node));
            if self.in_memory(bottom) {
                return Ok(self.load(node, at));
            }
            let (map, input) = match n.op.class() {
                Class::View => (self.through_view(node, &self.maps[at.map as usize]), n.inputs[0]),
                Class::Reshape => match self.through_reshape(n, bottom, at)? {
                    Some(map) => (map, bottom),
                    None => continue,
                },
                _ => break,
            };
            self.view = Some(node);
            node = input;
            at.map = self.intern(map);
        }
        let val = self.compute(node, at)?;
        self.memo.put(node, at, val);
        Ok(val)
    }

    /// The map of a view's operand.
    fn through_view(&self, view: NodeId, map: &AffineMap) -> AffineMap {
        let nest = self.graph.iteration(view).expect("views have index maps");
        map.through(&nest.operands[0], &self.graph.spec(self.graph.node(view).inputs[0]).shape)
    }

    /// The map of a reshape's operand; `None` if the operand was moved to memory instead.
    fn through_reshape(
        &mut self,
        node: &Node,
        input: NodeId,
        at: At,
    ) -> Result<Option<AffineMap>, Rebuild> {
        let (from, to) = (&node.spec.shape, &self.graph.spec(input).shape);
        match self.maps[at.map as usize].reshape(from, to, &self.nest.extents) {
            Ok(map) => Ok(Some(map)),
            Err(NoMap::Split { dim, inner }) => Err(Rebuild::Split { dim: dim as usize, inner }),
            Err(NoMap::NotAffine) => {
                self.keep(input, Refusal::Reshape);
                Ok(None)
            }
        }
    }

    /// Computes a node that is neither a view nor in memory.
    fn compute(&mut self, node: NodeId, at: At) -> Result<Val, Rebuild> {
        let n = self.graph.node(node);
        let expensive = self.inputs.target.is_expensive(n.op.code);
        if expensive && node != self.group.root && self.memo.of(node).next().is_some() {
            self.keep(node, Refusal::TwoViews);
            return Err(Rebuild::ValueMoved);
        }
        let inst = match n.op.class() {
            Class::Leaf => self.leaf(node, n, at),
            Class::Elementwise => self.elementwise(node, n, at)?,
            Class::Index if n.inputs.len() == 1 => self.wrap(n, at)?,
            Class::Index => self.gather(n, at)?,
            Class::Reduction | Class::Contraction => match self.core_value(node, n, at) {
                Some(inst) => inst,
                None => return Ok(self.load(node, at)),
            },
            class => unreachable!("{class:?} is a view, in memory, or no primitive"),
        };
        let named = matches!(n.op.class(), Class::Elementwise | Class::Index) || n.op.is_random();
        if named {
            self.ops.push(node);
        }
        Ok(self.block(at.prologue).push(inst))
    }

    fn block(&mut self, prologue: bool) -> &mut Block {
        if prologue { &mut self.prologue } else { &mut self.body }
    }

    fn leaf(&self, node: NodeId, n: &Node, at: At) -> Inst {
        let dtype = n.spec.dtype;
        let argument = self.inputs.arguments[node.index()] as usize;
        let map = &self.maps[at.map as usize];
        match (n.op.code, &n.op.attrs) {
            (OpCode::Constant, &Attrs::Value(bits)) => Inst::Literal(Literal { dtype, bits }),
            (OpCode::Constant, _) => Inst::Scalar { argument, dtype },
            (OpCode::Iota, &Attrs::Axis(axis)) => {
                let mut along: SmallVec<[isize; 4]> = smallvec![0; n.spec.shape.rank()];
                along[axis as usize] = 1;
                let (offset, strides) = map.strides(&along, self.dims(at.prologue));
                Inst::Iota { offset, strides, dtype }
            }
            (code, _) => {
                let strides = n.spec.shape.strides();
                let (offset, strides) = map.strides(&strides, self.dims(at.prologue));
                Inst::Random { code, argument, offset, strides, dtype }
            }
        }
    }

    fn elementwise(&mut self, node: NodeId, n: &Node, at: At) -> Result<Inst, Rebuild> {
        let mut args = SmallVec::new();
        let mut nest = None;
        for (i, &input) in n.inputs.iter().enumerate() {
            let shape = &self.graph.spec(input).shape;
            let mut inner = at;
            if shape.is_empty() && !n.spec.shape.is_empty() {
                // A scalar has no axes.
                inner.map = self.intern(AffineMap(SmallVec::new()));
            } else if *shape != n.spec.shape {
                let nest = nest.get_or_insert_with(|| {
                    self.graph.iteration(node).expect("elementwise ops have index maps")
                });
                let map = self.maps[at.map as usize].through(&nest.operands[i], shape);
                inner.map = self.intern(map);
            }
            args.push(self.pull(input, inner)?);
        }
        Ok(Inst::Op { code: n.op.code, args, dtype: n.spec.dtype })
    }

    fn wrap(&mut self, n: &Node, at: At) -> Result<Inst, Rebuild> {
        let Attrs::Size(size) = n.op.attrs else { unreachable!("wrap_index carries a size") };
        let label = n.op.code == OpCode::CheckLabel;
        Ok(Inst::Wrap { index: self.pull(n.inputs[0], at)?, size, label })
    }

    fn gather(&mut self, n: &Node, at: At) -> Result<Inst, Rebuild> {
        let Attrs::Axis(axis) = n.op.attrs else { unreachable!("gathers carry an axis") };
        let (axis, data, indices) = (axis as usize, n.inputs[0], n.inputs[1]);
        let size = self.graph.spec(data).shape[axis];
        let mut place = self.maps[at.map as usize].clone();
        let mut index = at;
        if n.op.code == OpCode::Take {
            let rank = self.graph.spec(indices).shape.rank();
            let map = AffineMap(place.0.drain(axis..axis + rank).collect());
            place.0.insert(axis, Axis::zero());
            index.map = self.intern(map);
        }
        let index = self.pull(indices, index)?;
        // The index is an additional dimension of the address; its stride is the distance between
        // slices.
        place.0[axis] = if size == 1 { Axis::zero() } else { Axis::dim(self.nest.extents.len()) };
        let (from, offset, mut strides) = self.address(data, place, Reach::Indexed(size))?;
        let stride = strides.pop().expect("the index has a dimension");
        strides.truncate(self.dims(at.prologue));
        let access = self.make_access(from, offset, strides);
        Ok(Inst::Gather { access: self.add_access(access), index, stride, size })
    }

    /// The core's value, or the constant of a reduction over no elements; `None` if the node is the
    /// core of another kernel and was moved to memory.
    fn core_value(&mut self, node: NodeId, n: &Node, at: At) -> Option<Inst> {
        let dtype = n.spec.dtype;
        if plan::is_empty_reduction(self.graph, n) {
            let one = matches!(n.op.code, OpCode::ReduceProd | OpCode::ReduceAll);
            return Some(Inst::Literal(Literal::from_i64(dtype, one as i64)));
        }
        let mine = self.core.as_ref().is_some_and(|(core, _)| *core == node);
        if mine && !at.prologue && at.map == self.core_map {
            return Some(Inst::Core { dtype });
        }
        self.keep(node, Refusal::Space);
        None
    }

    /// Merges dimensions and names the kernel.
    fn finish(mut self, mut core: Core, stores: SmallVec<[Store; 2]>) -> (Kernel, Vec<NodeId>) {
        let mut stores = stores.into_vec();
        let mut strides: Vec<&mut Dims<isize>> = Vec::new();
        strides.extend(self.accesses.iter_mut().map(|a| &mut a.strides));
        strides.extend(stores.iter_mut().map(|s| &mut s.access.strides));
        let mut blocks: SmallVec<[&mut Block; 2]> = smallvec![&mut self.body];
        let mut right = None;
        match &mut core {
            Core::Map => {}
            Core::Reduce { prologue, .. } => blocks.push(prologue),
            Core::Gemm { lhs, rhs, .. } => {
                strides.extend([&mut lhs.strides, &mut rhs.strides]);
                right = Some(strides.len() - 1);
            }
            Core::Scatter { index, .. } => strides.push(&mut index.strides),
            Core::Library(_) | Core::Control(_) | Core::Rows(_) => {
                unreachable!("routines and control are not built from loops")
            }
        }
        for inst in blocks.into_iter().flat_map(|b| &mut b.insts) {
            if let Inst::Iota { strides: s, .. } | Inst::Random { strides: s, .. } = inst {
                strides.push(s);
            }
        }
        space::collapse(&mut self.nest, &mut strides, right);
        let of = |role: DimRole| self.nest.roles.iter().filter(move |r| **r == role).count();
        match &mut core {
            Core::Scatter { independent, .. } => {
                let roles = self.nest.roles.iter().enumerate();
                *independent = roles.filter(|r| *r.1 == DimRole::Parallel).map(|r| r.0).collect();
            }
            Core::Gemm { rows, columns, .. } => {
                (*rows, *columns) = (of(DimRole::Rows), of(DimRole::Columns));
            }
            _ => {}
        }
        let name = self.name();
        let kernel = Kernel {
            name,
            extents: self.nest.extents,
            parallel: self.nest.parallel,
            accesses: self.accesses,
            core,
            body: self.body,
            stores,
        };
        (kernel, self.ops.into_vec())
    }

    /// The name, from the fused ops; for a kernel without ops, from the view that it copies.
    /// Completes the list of ops.
    fn name(&mut self) -> String {
        match self.group.role {
            GroupRole::Fill => {
                self.ops.push(self.group.root);
                return "pad_fill".into();
            }
            GroupRole::Value | GroupRole::Library => {}
            GroupRole::Part { .. } | GroupRole::Scatter => self.ops.push(self.group.root),
        }
        let copied = self.view.unwrap_or(space::value_of(self.graph, self.group));
        let name = name::of(self.graph, &self.ops, self.graph.node(copied).op.name());
        if self.ops.is_empty() {
            self.ops.push(copied);
        }
        name
    }
}

pub(super) fn reduce_op(code: OpCode) -> ReduceOp {
    match code {
        OpCode::ReduceSum => ReduceOp::Sum,
        OpCode::ReduceProd => ReduceOp::Prod,
        OpCode::ReduceMax => ReduceOp::Max,
        OpCode::ReduceMin => ReduceOp::Min,
        OpCode::ReduceAny => ReduceOp::Any,
        OpCode::ReduceAll => ReduceOp::All,
        OpCode::Argmax => ReduceOp::ArgMax,
        OpCode::Argmin => ReduceOp::ArgMin,
        code => unreachable!("{} is no reduction", code.def().name),
    }
}
