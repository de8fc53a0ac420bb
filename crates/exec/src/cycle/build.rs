//! Finds the cycle of a control kernel: its programs as values of one step.

mod memory;

use super::{
    CycleCarry, CycleChain, CycleDef, CycleStore, FusedCycle, Held, Kind, Origin, PACE_PS, Place,
};
use crate::cast::is_half;
use crate::chain::{ChainOp, Compiler, Def};
use girih_ir::{DType, OpCode};
use girih_kernel::control::{Control, Feed, Flow, Splat};
use girih_kernel::{Access, BufferId, BufferKind, Core, Inst, Kernel, KernelProgram};
use memory::{copied_carry, kind};
use smallvec::{SmallVec, smallvec};

/// The maximum number of elements of the vectors. The steps of longer ones run on several threads.
const MAX_POINTS: usize = 1 << 12;
/// The maximum number of values of a step.
const MAX_VALUES: usize = 256;

/// The content of a buffer of a program.
#[derive(Clone, Copy)]
enum Item {
    /// That value.
    Value(u16),
    /// That memory.
    Memory(u16),
}

/// The content of each buffer of a program; `None` where no kernel so far has computed it.
type Values = Vec<Option<Item>>;

/// The arguments of a program.
#[derive(Clone, Copy)]
enum Arguments<'a> {
    /// The operands of the loop.
    Loop,
    /// The operands of a branch in the body, whose buffers have these values.
    Branch(&'a Control, &'a Values),
}

struct Build<'a> {
    control: &'a Control,
    compiler: &'a dyn Compiler,
    points: usize,
    chain: CycleChain,
    origins: Vec<Origin>,
    places: Vec<Place>,
    /// The number of each carry that has a state.
    numbers: Vec<Option<u16>>,
    /// The value of each operand that has been read.
    operands: Vec<Option<u16>>,
    /// The value of each run-time scalar that has been read.
    scalars: Vec<(usize, u16)>,
    memories: Vec<Held>,
    /// The operand of each memory, and whether an element has been replaced.
    held: Vec<(usize, bool)>,
}

impl FusedCycle {
    /// The loop as a cycle; `None` if its steps are not elementwise, or if the compiler cannot
    /// compile them.
    pub fn new(control: &Control, name: &str, compiler: &dyn Compiler) -> Option<FusedCycle> {
        if !matches!(control.flow, Flow::While | Flow::Scan { .. }) {
            return None;
        }
        let points = points(control)?;
        let mut build = Build {
            control,
            compiler,
            points,
            chain: CycleChain { points, ..CycleChain::default() },
            origins: vec![],
            places: vec![],
            numbers: vec![],
            operands: vec![None; control.operands.len()],
            scalars: vec![],
            memories: vec![],
            held: vec![],
        };
        build.carries()?;
        if matches!(control.flow, Flow::While) {
            let program = &control.programs[0];
            let values = build.program(program, Arguments::Loop)?;
            let condition = build.result(program, &values, 0)?;
            build.chain.condition = Some((condition, build.chain.defs.len()));
        }
        let body = control.body();
        let values = build.program(body, Arguments::Loop)?;
        build.next(body, &values)?;
        let targets = build.stores(body, &values)?;
        build.finish(name, targets)
    }
}

/// The number of elements of the largest value of a step.
fn points(control: &Control) -> Option<usize> {
    let mut points = 1;
    for program in &control.programs {
        let body = std::ptr::eq(program, control.body());
        let counts = |kernel: &&Kernel| !body || copied_carry(control, kernel).is_none();
        let kernels = program.kernels.iter().filter(counts);
        points = kernels.map(elements).try_fold(points, |a, b| Some(a.max(b?)))?;
    }
    let body = control.body();
    let sizes = body.outputs.iter().enumerate().filter(|(number, _)| {
        let wanted = control.results.get(*number).is_some_and(Option::is_some);
        match *number < control.carries {
            true => kind(control, *number) == Kind::State,
            false => wanted,
        }
    });
    let sizes = sizes.map(|(_, id)| body.buffers[id.0 as usize].numel);
    points = sizes.fold(points, usize::max);
    (points <= MAX_POINTS).then_some(points)
}

/// The number of elements of a kernel's largest value; `None` for kernels that are not elementwise.
fn elements(kernel: &Kernel) -> Option<usize> {
    let most = |kernels: &[Kernel]| {
        kernels.iter().map(elements).try_fold(1, |a: usize, b| Some(a.max(b?)))
    };
    match &kernel.core {
        Core::Map | Core::Scatter { .. } => Some(kernel.points()),
        Core::Rows(rows) => most(&rows.parts),
        Core::Control(inner) if is_branch(inner) => {
            let programs = inner.programs.iter().map(|p| most(&p.kernels));
            programs.into_iter().try_fold(1, |a: usize, b| Some(a.max(b?)))
        }
        _ => None,
    }
}

/// Whether the steps of a cycle may have such a branch: both sides are computed.
fn is_branch(control: &Control) -> bool {
    match control.flow {
        Flow::Cond { dtype, .. } => dtype == DType::Bool && control.programs.len() == 2,
        Flow::Call => true,
        _ => false,
    }
}

/// Whether the access takes all elements of a buffer in the order of the points.
fn is_dense(access: &Access, extents: &[usize], numel: usize) -> bool {
    let mut next = 1;
    for (&extent, &stride) in extents.iter().zip(&access.strides).rev() {
        if extent > 1 && stride != next {
            return false;
        }
        next *= extent as isize;
    }
    access.offset == 0 && next == numel as isize
}

/// Whether elements of that dtype can be values.
fn is_known(dtype: DType) -> bool {
    !dtype.is_complex() && !is_half(dtype)
}

impl Build<'_> {
    /// The carries; those that the steps change have a state.
    fn carries(&mut self) -> Option<()> {
        let body = self.control.body();
        for carry in 0..self.control.carries {
            let buffer = &body.buffers[body.outputs[carry].0 as usize];
            let (dtype, numel) = (buffer.dtype, buffer.numel);
            let kind = kind(self.control, carry);
            let number = self.chain.carries.len() as u16;
            self.numbers.push((kind == Kind::State).then_some(number));
            if kind == Kind::State {
                self.scalar(numel)?;
                if !is_known(dtype) {
                    return None;
                }
                self.chain.carries.push(CycleCarry { dtype, scalar: numel == 1, next: 0 });
            }
            let to = self.control.results.get(carry).copied().flatten();
            let from = self.control.operands[carry];
            let missing = matches!(from, Feed::Nothing) && (kind != Kind::Fixed || to.is_some());
            if dtype.size() > 8 || missing {
                return None;
            }
            self.places.push(Place { from, to, kind, dtype, numel });
        }
        Some(())
    }

    /// Whether a value of that many elements is a scalar; `None` if it is neither a scalar nor a
    /// vector of the cycle.
    fn scalar(&self, numel: usize) -> Option<bool> {
        match numel {
            1 => Some(true),
            n => (n == self.points).then_some(false),
        }
    }

    fn def(&mut self, def: CycleDef) -> Option<u16> {
        self.chain.defs.push(def);
        (self.chain.defs.len() <= MAX_VALUES).then_some(self.chain.defs.len() as u16 - 1)
    }

    fn op(&mut self, op: ChainOp, args: SmallVec<[u16; 3]>, dtype: DType) -> Option<u16> {
        let known = is_known(dtype) && self.compiler.knows(op);
        if known { self.def(CycleDef::Value(Def::Op { op, args, dtype })) } else { None }
    }

    fn input(&mut self, origin: Origin, numel: usize, dtype: DType, advance: i32) -> Option<u16> {
        if !is_known(dtype) {
            return None;
        }
        let scalar = self.scalar(numel)?;
        self.origins.push(origin);
        self.def(CycleDef::Input { dtype, scalar, advance })
    }

    /// The value of a run-time scalar.
    fn argument(&mut self, argument: usize, dtype: DType) -> Option<u16> {
        if let Some(&(_, value)) = self.scalars.iter().find(|s| s.0 == argument) {
            return Some(value);
        }
        let value = self.input(Origin::Argument(argument), 1, dtype, 0)?;
        self.scalars.push((argument, value));
        Some(value)
    }

    /// The value of an operand of the loop.
    fn operand(&mut self, operand: usize, numel: usize, dtype: DType) -> Option<u16> {
        if let Some(value) = self.operands[operand] {
            return Some(value);
        }
        if self.places.get(operand).is_some_and(|place| place.kind == Kind::Memory) {
            return None;
        }
        let carry = self.numbers.get(operand).copied().flatten();
        let value = match (carry, self.control.operands[operand]) {
            (Some(number), _) => self.def(CycleDef::Carry { number, dtype })?,
            (None, Feed::Splat { value: Splat::Literal(l), .. }) => {
                self.def(CycleDef::Value(Def::Constant { dtype, bits: l.bits }))?
            }
            (None, Feed::Splat { value: Splat::Scalar { argument, dtype }, .. }) => {
                self.argument(argument, dtype)?
            }
            (None, Feed::Buffer(id)) => {
                let (start, advance) = match self.slice(operand) {
                    true => self.walk(numel * dtype.size())?,
                    false => (0, 0),
                };
                self.input(Origin::Buffer(id, start), numel, dtype, advance)?
            }
            (None, Feed::Nothing) => return None,
        };
        self.operands[operand] = Some(value);
        Some(value)
    }

    fn slice(&self, operand: usize) -> bool {
        let first = self.control.carries;
        (first..first + self.control.slices).contains(&operand)
    }

    /// The byte of the first step's part, and the bytes from part to part.
    fn walk(&self, bytes: usize) -> Option<(usize, i32)> {
        let Flow::Scan { length, reverse } = self.control.flow else { return None };
        let advance = i32::try_from(bytes).ok()?;
        Some(match reverse {
            true => (length.saturating_sub(1).checked_mul(bytes)?, -advance),
            false => (0, advance),
        })
    }

    /// The values of a program's buffers.
    fn program(&mut self, program: &KernelProgram, arguments: Arguments<'_>) -> Option<Values> {
        let mut values = vec![None; program.buffers.len()];
        for kernel in &program.kernels {
            self.kernel(program, kernel, arguments, &mut values)?;
        }
        // Results that are arguments.
        for &id in &program.outputs {
            if values[id.0 as usize].is_none() {
                let value = self.buffer(program, id, arguments, &values);
                values[id.0 as usize] = value.map(Item::Value);
            }
        }
        Some(values)
    }

    /// The value of a result of a program.
    fn result(&self, program: &KernelProgram, values: &Values, number: usize) -> Option<u16> {
        match values[program.outputs[number].0 as usize] {
            Some(Item::Value(value)) => Some(value),
            _ => None,
        }
    }

    /// The value of a buffer that is read.
    fn buffer(
        &mut self,
        program: &KernelProgram,
        id: BufferId,
        arguments: Arguments<'_>,
        values: &Values,
    ) -> Option<u16> {
        let at = id.0 as usize;
        let buffer = &program.buffers[at];
        match (values[at], buffer.kind, arguments) {
            (Some(Item::Value(value)), ..) => Some(value),
            (Some(Item::Memory(_)), ..) => None,
            (None, BufferKind::Argument(operand), Arguments::Loop) => {
                self.operand(operand, buffer.numel, buffer.dtype)
            }
            (None, BufferKind::Argument(operand), Arguments::Branch(control, outer)) => {
                let Feed::Buffer(id) = control.operands[operand] else { return None };
                match outer[id.0 as usize] {
                    Some(Item::Value(value)) => Some(value),
                    _ => None,
                }
            }
            (None, BufferKind::Computed, _) => None,
        }
    }

    fn kernel(
        &mut self,
        program: &KernelProgram,
        kernel: &Kernel,
        arguments: Arguments<'_>,
        values: &mut Values,
    ) -> Option<()> {
        match &kernel.core {
            Core::Map => self.map(program, kernel, arguments, values),
            Core::Scatter { .. } => self.scatter(program, kernel, arguments, values),
            Core::Rows(rows) => {
                rows.parts.iter().try_for_each(|part| self.kernel(program, part, arguments, values))
            }
            Core::Control(inner) if is_branch(inner) => {
                self.branch(program, inner, arguments, values)
            }
            _ => None,
        }
    }

    /// A branch: both sides are computed, which cannot fail, and one is selected.
    fn branch(
        &mut self,
        program: &KernelProgram,
        inner: &Control,
        arguments: Arguments<'_>,
        values: &mut Values,
    ) -> Option<()> {
        // The sides find the values of this program in the table.
        let ids = inner.operands.iter().filter_map(|feed| match feed {
            Feed::Buffer(id) => Some(*id),
            _ => None,
        });
        for id in ids {
            let value = self.buffer(program, id, arguments, values)?;
            values[id.0 as usize] = Some(Item::Value(value));
        }
        let index = match inner.flow {
            Flow::Cond { index, .. } => Some(self.buffer(program, index, arguments, values)?),
            _ => None,
        };
        let inside = Arguments::Branch(inner, values);
        let sides = inner.programs.iter().map(|p| self.program(p, inside));
        let sides: Vec<Values> = sides.collect::<Option<_>>()?;
        for (number, result) in inner.results.iter().enumerate() {
            let Some(id) = result else { continue };
            let of = |side: usize| self.result(&inner.programs[side], &sides[side], number);
            let value = match index {
                None => of(0)?,
                Some(index) => {
                    let dtype = program.buffers[id.0 as usize].dtype;
                    let args = smallvec![index, of(1)?, of(0)?];
                    self.op(ChainOp::Op(OpCode::Where, dtype), args, dtype)?
                }
            };
            values[id.0 as usize] = Some(Item::Value(value));
        }
        Some(())
    }

    fn map(
        &mut self,
        program: &KernelProgram,
        kernel: &Kernel,
        arguments: Arguments<'_>,
        values: &mut Values,
    ) -> Option<()> {
        let points = kernel.points();
        let body = std::ptr::eq(program, self.control.body());
        if let (true, Some(carry)) = (body, copied_carry(self.control, kernel)) {
            let numel = self.places[carry].numel;
            let memory = self.memory(carry, numel, self.places[carry].dtype)?;
            values[kernel.stores[0].access.buffer.0 as usize] = Some(Item::Memory(memory));
            return Some(());
        }
        self.scalar(points)?;
        let vals = self.block(program, kernel, arguments, values)?;
        for store in &kernel.stores {
            let access = &store.access;
            let numel = program.buffers[access.buffer.0 as usize].numel;
            if numel != points || !is_dense(access, &kernel.extents, numel) {
                return None;
            }
            values[access.buffer.0 as usize] = Some(Item::Value(vals[store.value.0 as usize]));
        }
        Some(())
    }

    /// The values of a kernel's body.
    fn block(
        &mut self,
        program: &KernelProgram,
        kernel: &Kernel,
        arguments: Arguments<'_>,
        values: &Values,
    ) -> Option<Vec<u16>> {
        let mut vals: Vec<u16> = Vec::with_capacity(kernel.body.insts.len());
        for inst in &kernel.body.insts {
            let value = match inst {
                Inst::Literal(l) if is_known(l.dtype) => {
                    let constant = Def::Constant { dtype: l.dtype, bits: l.bits };
                    self.def(CycleDef::Value(constant))?
                }
                Inst::Scalar { argument, dtype } => self.argument(*argument, *dtype)?,
                Inst::Load(id) => {
                    let access = kernel.access(*id);
                    let numel = program.buffers[access.buffer.0 as usize].numel;
                    if numel > 1 && !is_dense(access, &kernel.extents, numel) {
                        return None;
                    }
                    self.buffer(program, access.buffer, arguments, values)?
                }
                Inst::Op { code, args, dtype } => {
                    let from = kernel.dtype(&kernel.body, args[args.len() - 1]);
                    let values = || args.iter().map(|a| vals[a.0 as usize]).collect();
                    match code {
                        OpCode::Bitcast => return None,
                        OpCode::Cast if from == *dtype => vals[args[0].0 as usize],
                        OpCode::Cast => self.op(ChainOp::Cast(from, *dtype), values(), *dtype)?,
                        _ => self.op(ChainOp::Op(*code, from), values(), *dtype)?,
                    }
                }
                Inst::Gather { access, index, stride: 1, size } if kernel.points() == 1 => {
                    let (access, from) =
                        (kernel.access(*access), kernel.dtype(&kernel.body, *index));
                    let memory = self.memory_of(program, access, *size, arguments, values)?;
                    let index = self.index(vals[index.0 as usize], from)?;
                    self.gather(memory, index, access.dtype)?
                }
                _ => return None,
            };
            vals.push(value);
        }
        Some(vals)
    }

    /// The values of the carries at the end of a step.
    fn next(&mut self, body: &KernelProgram, values: &Values) -> Option<()> {
        for carry in 0..self.control.carries {
            if let Some(number) = self.numbers[carry] {
                self.chain.carries[number as usize].next = self.result(body, values, carry)?;
            }
        }
        Some(())
    }

    /// The stores of the results that have an element for each step.
    fn stores(&mut self, body: &KernelProgram, values: &Values) -> Option<Vec<(BufferId, usize)>> {
        let mut targets = vec![];
        let (carries, outputs) = (self.control.carries, body.outputs.len());
        for number in carries..outputs {
            let Some(to) = self.control.results.get(number).copied().flatten() else { continue };
            let buffer = &body.buffers[body.outputs[number].0 as usize];
            let value = self.result(body, values, number)?;
            targets.push(self.store(to, value, buffer.numel, buffer.dtype)?);
        }
        for carry in 0..carries {
            let Some(to) = self.control.history(carry) else { continue };
            let buffer = &body.buffers[body.outputs[carry].0 as usize];
            let value = self.operand(carry, buffer.numel, buffer.dtype)?;
            targets.push(self.store(to, value, buffer.numel, buffer.dtype)?);
        }
        Some(targets)
    }

    fn store(
        &mut self,
        to: BufferId,
        value: u16,
        numel: usize,
        dtype: DType,
    ) -> Option<(BufferId, usize)> {
        let (start, advance) = self.walk(numel * dtype.size())?;
        let scalar = self.scalar(numel)?;
        self.chain.stores.push(CycleStore { value, scalar, advance });
        Some((to, start))
    }

    fn finish(self, name: &str, targets: Vec<(BufferId, usize)>) -> Option<FusedCycle> {
        let Build { chain, origins, places, memories, .. } = self;
        let function = self.compiler.compile_cycle(&chain, name)?;
        let moves = chain.defs.iter().filter_map(|def| match def {
            CycleDef::Input { advance, .. } => Some(*advance as isize),
            _ => None,
        });
        let mut advances: Vec<isize> = moves.collect();
        advances.resize(advances.len() + chain.carries.len(), 0);
        advances.extend(chain.memories.iter().map(|memory| memory.advance as isize));
        // The place of failures.
        advances.push(0);
        advances.extend(chain.stores.iter().map(|store| store.advance as isize));
        let pace = (PACE_PS / function.step_ps().max(1)).max(1);
        let length = self.control.trips();
        Some(FusedCycle {
            function,
            chain,
            length,
            origins,
            places,
            targets,
            memories,
            advances,
            pace,
        })
    }
}
