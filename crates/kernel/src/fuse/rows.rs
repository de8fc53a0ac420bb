//! Row-wise fusion: kernels that pass rows to each other become one kernel over rows. A softmax, a
//! norm, a loss and their gradients then read their operand once and hold intermediate rows in the
//! cache. GEMMs whose results are larger than their operands (the scores of an attention) can join,
//! as can GEMMs that reduce such results again, so that the large results are never in memory as a
//! whole. Padding is filled row by row with the elements that it surrounds.
//!
//! Kernels are visited in order of execution. A kernel starts a group. Later kernels join it if
//! they share a buffer that is written or read, if no dependency on a kernel in between prevents
//! them from running earlier, and if there is a number of rows for which every part stays within
//! its row of the buffers that other parts write. Buffers that only the group uses then exist row
//! by row (as locals).

use super::build::Built;
use super::{Lowering, Refusal, Refused, name};
use crate::ir::{BufferId, Core, Kernel, KernelProgram, Local, RowwiseCore};
use crate::place::copied;
use crate::target::RowLimits;
use crate::verify::{along_rows, keeps_to_rows, write_disjointly};
use girih_ir::{Class, Graph, NodeId};
use smallvec::{SmallVec, smallvec};

/// The number of kernels after a group's first kernel that are considered: a bound on compile time.
const HORIZON: usize = 32;

/// A kernel, the nodes that it computes, and the buffers that it uses.
pub(super) struct FusionPart {
    pub kernel: Kernel,
    nodes: Vec<NodeId>,
    pub reads: SmallVec<[BufferId; 8]>,
    pub writes: SmallVec<[BufferId; 4]>,
    /// The buffers of which the kernel writes only a part.
    pub partly_written: SmallVec<[BufferId; 2]>,
}

impl FusionPart {
    pub fn new(program: &KernelProgram, (kernel, nodes): (Kernel, Vec<NodeId>)) -> FusionPart {
        let (reads, writes) = (kernel.reads().collect(), kernel.writes().collect());
        let mut partly_written = SmallVec::new();
        for store in kernel.all_stores() {
            let id = store.access.buffer;
            if kernel.points() < program.buffers[id.0 as usize].numel {
                partly_written.push(id);
            }
        }
        FusionPart { kernel, nodes, reads, writes, partly_written }
    }

    fn named(&self) -> impl Iterator<Item = &BufferId> {
        self.reads.iter().chain(&self.writes)
    }

    /// The node that the kernel computes last.
    pub fn root(&self) -> NodeId {
        *self.nodes.last().expect("a kernel computes a node")
    }

    /// The op that consumes a value, possibly through views.
    pub fn consumer_of(&self, graph: &Graph, value: NodeId) -> NodeId {
        let source = |mut id: NodeId| {
            while id != value && matches!(graph.node(id).op.class(), Class::View | Class::Reshape) {
                id = graph.node(id).inputs[0];
            }
            id
        };
        let consumes = |id: &NodeId| graph.node(*id).inputs.iter().any(|&i| source(i) == value);
        self.nodes.iter().copied().find(consumes).unwrap_or(self.root())
    }
}

/// Fuses the kernels of a program that pass rows to each other.
pub(super) fn group(lowering: Lowering<'_>, built: &mut Built) {
    let grouping = Rowwise { graph: lowering.graph, limits: &lowering.target.rows };
    regroup(lowering, built, &grouping);
}

/// A pass that fuses kernels with kernels that follow.
pub(super) trait Grouping {
    /// Makes a group of the kernel and of the following kernels that join it.
    fn grow(
        &self,
        program: &KernelProgram,
        following: &mut [Option<FusionPart>],
        start: FusionPart,
    ) -> Group;

    /// The following kernels that were candidates for the group and did not join it. `values` are
    /// the nodes whose values the buffers hold.
    fn declined(
        &self,
        program: &KernelProgram,
        values: &[Option<NodeId>],
        group: &Group,
        following: &[Option<FusionPart>],
    ) -> Vec<Refused>;
}

/// Fuses kernels: each kernel that is in no group yet starts a group.
pub(super) fn regroup(lowering: Lowering<'_>, built: &mut Built, grouping: &impl Grouping) {
    let (mut left, uses) = parts(built);
    for first in 0..left.len() {
        let Some(start) = left[first].take() else { continue };
        let group = grouping.grow(&built.program, &mut left[first + 1..], start);
        if let Some(refusals) = &mut built.refusals {
            let (program, values) = (&built.program, &built.values);
            // The group may have a fusion that an earlier pass over kernels refused.
            refusals.retain(|refused| !(refused.reason.is_of_kernels() && group.has(refused)));
            refusals.extend(grouping.declined(program, values, &group, &left[first + 1..]));
        }
        finish(lowering, built, &uses, group);
    }
}

/// Takes the kernels out of a program, and counts the uses of each buffer.
fn parts(built: &mut Built) -> (Vec<Option<FusionPart>>, Uses) {
    let kernels = std::mem::take(&mut built.program.kernels).into_iter();
    let kernels = kernels.zip(built.nodes.drain(..));
    let part = |kernel| Some(FusionPart::new(&built.program, kernel));
    let parts: Vec<Option<FusionPart>> = kernels.map(part).collect();
    let uses = Uses::of(&built.program, parts.iter().flatten());
    (parts, uses)
}

/// Row-wise fusion.
struct Rowwise<'a> {
    graph: &'a Graph,
    limits: &'a RowLimits,
}

impl Grouping for Rowwise<'_> {
    fn grow(
        &self,
        program: &KernelProgram,
        following: &mut [Option<FusionPart>],
        start: FusionPart,
    ) -> Group {
        let limits = self.limits;
        let mut group = Group::new(limits, program, start);
        if group.rows.is_empty() {
            return group;
        }
        let mut skipped = Named::none(program);
        for next in following.iter_mut().take(HORIZON) {
            if group.rows.is_empty() || group.parts.len() == limits.max_parts {
                break;
            }
            let Some(part) = next else { continue };
            let fits = match group.meets(limits, part) && !skipped.prevents(part) {
                true => group.rows_with(limits, program, part),
                false => RowCounts::new(),
            };
            if fits.is_empty() {
                skipped.add(part);
            } else {
                group.rows = fits;
                group.extend(next.take());
            }
        }
        group
    }

    /// The candidates are kernels over rows that read a result of the group, and that no kernel in
    /// between prevents from joining.
    fn declined(
        &self,
        program: &KernelProgram,
        values: &[Option<NodeId>],
        group: &Group,
        following: &[Option<FusionPart>],
    ) -> Vec<Refused> {
        let mut declined = Vec::new();
        if candidates(self.limits, &group.parts[0].kernel).is_empty() {
            return declined;
        }
        let mut skipped = Named::none(program);
        for part in following.iter().take(HORIZON).flatten() {
            let result = part.reads.iter().find(|&&id| group.named.written.contains(id));
            let value = result.and_then(|id| values.get(id.0 as usize).copied().flatten());
            let candidate = group.meets(self.limits, part) && has_rows(self.limits, &part.kernel);
            if let Some(node) = value
                && candidate
                && !skipped.prevents(part)
            {
                let reason = group.reason(self.limits, program, part);
                let consumer = Some(part.consumer_of(self.graph, node));
                declined.push(Refused { node, reason, consumer });
            }
            skipped.add(part);
        }
        declined
    }
}

/// A set of buffers.
struct BufferSet(Vec<bool>);

impl BufferSet {
    fn none(program: &KernelProgram) -> BufferSet {
        BufferSet(vec![false; program.buffers.len()])
    }

    fn add(&mut self, ids: &[BufferId]) {
        ids.iter().for_each(|id| self.0[id.0 as usize] = true);
    }

    fn contains(&self, id: BufferId) -> bool {
        self.0[id.0 as usize]
    }
}

/// Numbers of rows.
type RowCounts = SmallVec<[usize; 4]>;

/// Kernels that will be fused.
pub(super) struct Group {
    pub parts: Vec<FusionPart>,
    /// The numbers of rows over which they can be fused.
    pub rows: RowCounts,
    pub named: Named,
    /// Buffers that are written, but not as a whole by one part.
    partly_written: BufferSet,
    /// The number of elements of the largest part.
    elements: usize,
}

impl Group {
    fn new(limits: &RowLimits, program: &KernelProgram, start: FusionPart) -> Group {
        let rows = Group::empty(program).rows_with(limits, program, &start);
        Group { rows, ..Group::of_one(program, start) }
    }

    /// A group of one kernel, over a single row.
    pub fn of_one(program: &KernelProgram, start: FusionPart) -> Group {
        let mut group = Group { rows: smallvec![1], ..Group::empty(program) };
        group.extend([start]);
        group
    }

    fn empty(program: &KernelProgram) -> Group {
        Group {
            parts: Vec::new(),
            rows: RowCounts::new(),
            named: Named::none(program),
            partly_written: BufferSet::none(program),
            elements: 0,
        }
    }

    pub fn extend(&mut self, parts: impl IntoIterator<Item = FusionPart>) {
        for part in parts {
            self.named.add(&part);
            self.partly_written.add(&part.partly_written);
            self.elements = self.elements.max(elements(&part.kernel));
            self.parts.push(part);
        }
    }

    /// Whether one part of the group computes the value and another part computes its consumer.
    fn has(&self, refused: &Refused) -> bool {
        let part_of = |id: NodeId| self.parts.iter().position(|part| part.nodes.contains(&id));
        let (value, consumer) = (part_of(refused.node), refused.consumer.and_then(part_of));
        value.is_some() && consumer.is_some() && value != consumer
    }

    /// Whether a kernel can be a part and reads a buffer that the group reads or writes, or stores
    /// into a buffer that the group filled. (False if the group has a copy: buffer donation may
    /// elide a copy that is stored into.)
    fn meets(&self, limits: &RowLimits, part: &FusionPart) -> bool {
        let touches = |&id: &BufferId| self.named.contains(id);
        let copies = || self.parts.iter().any(|p| copied(&p.kernel).is_some());
        let filled =
            |&id: &BufferId| self.named.written.contains(id) && !self.partly_written.contains(id);
        match part.kernel.core {
            Core::Map | Core::Reduce { .. } => {
                part.reads.iter().any(touches) || part.writes.iter().any(filled) && !copies()
            }
            Core::Gemm { .. } => self.goes_on_with(limits, part),
            _ => false,
        }
    }

    /// Whether a GEMM consumes a result of the group and is wide, or reduces the rows of a wide
    /// GEMM of the group.
    fn goes_on_with(&self, limits: &RowLimits, part: &FusionPart) -> bool {
        let Some([lhs, rhs, out]) = sizes(&part.kernel) else { return false };
        let narrow = || {
            let after = self.parts.iter().any(|part| is_wide(limits, &part.kernel));
            lhs >= limits.wide_ratio * out && rhs <= limits.max_b && after
        };
        (is_wide(limits, &part.kernel) || narrow())
            && part.reads.iter().any(|&id| self.named.written.contains(id))
    }

    /// Whether `kernel`, which is in the group or is the kernel that joins the group, stays within
    /// its rows of the buffers that other parts write.
    fn stays(
        &self,
        program: &KernelProgram,
        joins: &FusionPart,
        kernel: &Kernel,
        rows: usize,
    ) -> bool {
        let FusionPart { writes, partly_written, .. } = joins;
        let parts = self.parts.iter().map(|part| &part.kernel).chain([&joins.kernel]);
        let shared = |id: BufferId| {
            let written = self.named.written.contains(id) || writes.contains(&id);
            let in_parts = self.partly_written.contains(id) || partly_written.contains(&id);
            written && !(in_parts && write_disjointly(program, parts.clone(), id))
        };
        keeps_to_rows(program, kernel, rows, shared) && along_rows(kernel, rows)
    }

    /// The reason why a candidate is not in the group.
    fn reason(&self, limits: &RowLimits, program: &KernelProgram, part: &FusionPart) -> Refusal {
        if self.parts.len() == limits.max_parts {
            return Refusal::RowParts;
        }
        let kernels = || self.parts.iter().map(|part| &part.kernel).chain([&part.kernel]);
        let mut counts: Vec<usize> = kernels().flat_map(|k| candidates(limits, k)).collect();
        counts.retain(|&rows| kernels().all(|kernel| self.stays(program, part, kernel, rows)));
        let elements = self.elements.max(elements(&part.kernel));
        match counts.iter().min_by_key(|&rows| elements / rows) {
            None => Refusal::Rows,
            Some(&rows) if elements / rows > limits.max_row => Refusal::RowLength,
            Some(&rows) if !self.fits(limits, program, part, rows) => Refusal::RowLength,
            Some(_) => Refusal::FewRows,
        }
    }

    /// Whether a row of each buffer that the group and a kernel write fits the local memory.
    fn fits(
        &self,
        limits: &RowLimits,
        program: &KernelProgram,
        part: &FusionPart,
        rows: usize,
    ) -> bool {
        if limits.local_memory_bytes == usize::MAX {
            return true;
        }
        let parts = self.parts.iter().chain([part]);
        let mut written: Vec<BufferId> = parts.flat_map(|p| p.writes.iter().copied()).collect();
        written.sort_unstable();
        written.dedup();
        let row_bytes = |id: &BufferId| program.buffers[id.0 as usize].size_bytes() / rows;
        written.iter().map(row_bytes).sum::<usize>() <= limits.local_memory_bytes
    }

    /// The numbers of rows over which the group and a kernel can be fused.
    fn rows_with(
        &self,
        limits: &RowLimits,
        program: &KernelProgram,
        part: &FusionPart,
    ) -> RowCounts {
        let FusionPart { kernel, reads, writes, .. } = part;
        // The condition still holds for the parts, unless they share further buffers with the
        // kernel.
        let new = |id: &BufferId| !self.named.contains(*id);
        let unrelated =
            writes.iter().all(new) && reads.iter().all(|id| !self.partly_written.contains(*id));
        let elements = self.elements.max(elements(kernel));
        let stays = |k: &Kernel, rows| self.stays(program, part, k, rows);
        let of = |&(rows, known): &(usize, bool)| {
            pays(limits, elements, rows)
                && self.fits(limits, program, part, rows)
                && stays(kernel, rows)
                && (known && unrelated || self.parts.iter().all(|part| stays(&part.kernel, rows)))
        };
        let new = candidates(limits, kernel).into_iter().filter(|rows| !self.rows.contains(rows));
        let known = self.rows.iter().map(|&rows| (rows, true));
        known.chain(new.map(|rows| (rows, false))).filter(of).map(|(rows, _)| rows).collect()
    }
}

/// The number of elements that a part processes; for a GEMM, the number of elements of its result.
pub(super) fn elements(kernel: &Kernel) -> usize {
    match kernel.core {
        Core::Gemm { .. } => kernel.points(),
        _ => kernel.points().saturating_mul(kernel.reduced()),
    }
}

/// The number of elements of A, B and the result of one entry of the batch.
fn sizes(kernel: &Kernel) -> Option<[usize; 3]> {
    let dims = kernel.gemm_dims()?;
    let (m, n, k) = (kernel.size(&dims.rows), kernel.size(&dims.columns), kernel.reduced());
    Some([m * k, k * n, m * n])
}

/// Whether the kernel is a GEMM whose result is larger than its operands.
fn is_wide(limits: &RowLimits, kernel: &Kernel) -> bool {
    let wide = |[lhs, rhs, out]: [usize; 3]| out >= limits.wide_ratio * (lhs + rhs);
    sizes(kernel).is_some_and(|sizes| wide(sizes) && sizes[1] <= limits.max_b)
}

/// The numbers of rows into which a kernel may be divided.
fn candidates(limits: &RowLimits, kernel: &Kernel) -> RowCounts {
    let mut rows = RowCounts::new();
    let end = match kernel.core {
        Core::Map | Core::Reduce { .. } => kernel.parallel,
        Core::Gemm { columns, .. } if is_wide(limits, kernel) => kernel.parallel - columns,
        _ => return rows,
    };
    let mut count = 1;
    for &extent in &kernel.extents[..end] {
        count *= extent;
        if extent > 1 {
            rows.push(count);
        }
    }
    rows
}

/// Whether a kernel may be a part of a kernel over several rows.
fn has_rows(limits: &RowLimits, kernel: &Kernel) -> bool {
    matches!(kernel.core, Core::Gemm { .. }) || !candidates(limits, kernel).is_empty()
}

/// The buffers that some kernels read and write.
pub(super) struct Named {
    read: BufferSet,
    written: BufferSet,
}

impl Named {
    /// The buffers of no kernels.
    pub fn none(program: &KernelProgram) -> Named {
        Named { read: BufferSet::none(program), written: BufferSet::none(program) }
    }

    pub fn add(&mut self, part: &FusionPart) {
        self.read.add(&part.reads);
        self.written.add(&part.writes);
    }

    fn contains(&self, id: BufferId) -> bool {
        self.read.contains(id) || self.written.contains(id)
    }

    /// Whether a later kernel depends on these kernels, so that it cannot run before them or with
    /// them.
    pub fn prevents(&self, part: &FusionPart) -> bool {
        part.reads.iter().any(|&id| self.written.contains(id))
            || part.writes.iter().any(|&id| self.contains(id))
    }
}

/// Whether rows are short enough for the cache and numerous enough for the threads.
fn pays(limits: &RowLimits, elements: usize, rows: usize) -> bool {
    let enough = rows >= limits.min_rows || elements <= limits.max_elements_of_few_rows;
    elements / rows <= limits.max_row && enough
}

/// The number of uses of each buffer, as an output of the program or by a kernel.
struct Uses(Vec<u32>);

impl Uses {
    fn of<'a>(program: &'a KernelProgram, parts: impl Iterator<Item = &'a FusionPart>) -> Uses {
        let mut uses = Uses(vec![0; program.buffers.len()]);
        let named = program.outputs.iter().chain(parts.flat_map(FusionPart::named));
        named.for_each(|id| uses.0[id.0 as usize] += 1);
        uses
    }

    /// The uses of each buffer by anything but these kernels.
    fn besides(&self, parts: &[FusionPart]) -> Uses {
        let mut others = self.0.clone();
        parts.iter().flat_map(FusionPart::named).for_each(|id| others[id.0 as usize] -= 1);
        Uses(others)
    }

    /// Whether the buffer is used.
    fn contains(&self, id: BufferId) -> bool {
        self.0[id.0 as usize] > 0
    }
}

/// Adds the kernel of a group to the program.
fn finish(lowering: Lowering<'_>, built: &mut Built, uses: &Uses, mut group: Group) {
    let (kernel, nodes) = match group.parts.len() {
        1 => {
            let FusionPart { kernel, nodes, .. } = group.parts.remove(0);
            (kernel, nodes)
        }
        _ => fuse_parts(lowering.graph, &built.program, uses, group),
    };
    built.program.kernels.push(kernel);
    built.nodes.push(nodes);
}

/// Fuses the parts of a group into one kernel; also returns the nodes that the kernel computes.
fn fuse_parts(
    graph: &Graph,
    program: &KernelProgram,
    uses: &Uses,
    group: Group,
) -> (Kernel, Vec<NodeId>) {
    let rows = group.rows.iter().copied().max().unwrap_or(1);
    let outside = uses.besides(&group.parts);
    let parts = group.parts.into_iter().map(|part| (part.kernel, part.nodes));
    let (parts, nodes): (Vec<Kernel>, Vec<Vec<NodeId>>) = parts.unzip();
    let mut locals: Vec<Local> = Vec::new();
    let read: Vec<BufferId> = parts.iter().flat_map(Kernel::reads).collect();
    for buffer in parts.iter().flat_map(Kernel::writes) {
        // A local passes rows from part to part; a buffer that nothing reads is none.
        let passes_rows = !outside.contains(buffer) && read.contains(&buffer);
        if passes_rows && locals.iter().all(|l| l.buffer != buffer) {
            let row_bytes = program.buffers[buffer.0 as usize].size_bytes() / rows;
            locals.push(Local { buffer, row_bytes });
        }
    }
    over_rows(graph, rows, (parts, nodes), locals)
}

/// A kernel over `rows` rows of parts, each with the nodes that it computes.
pub(super) fn over_rows(
    graph: &Graph,
    rows: usize,
    (parts, nodes): (Vec<Kernel>, Vec<Vec<NodeId>>),
    locals: Vec<Local>,
) -> (Kernel, Vec<NodeId>) {
    let nodes: Vec<NodeId> = nodes.concat();
    let fallback = graph.node(nodes[0]).op.name();
    let kernel = Kernel {
        name: name::of(graph, &nodes, fallback),
        extents: smallvec![rows],
        parallel: 1,
        accesses: Vec::new(),
        core: Core::Rows(Box::new(RowwiseCore { parts, locals })),
        body: Default::default(),
        stores: Vec::new(),
    };
    (kernel, nodes)
}
