//! Kernels that hand rows to each other become one kernel over rows: a softmax, a norm, a loss and
//! their gradients read their operand once and keep what is between in cache. Products whose results
//! are larger than what they are made of (the scores of an attention) are part of it, and those that
//! make little of such results again, so that these never are in memory as a whole. Padding is filled
//! row by row with what it surrounds.
//!
//! Kernels are taken in order of execution. One starts a group; later ones join if they share what
//! is written or read, if nothing between keeps them from running earlier, and if there is a number
//! of rows for which every part stays within its row of what the others write. What only the group
//! uses then exists row by row.

use super::build::Built;
use super::name;
use super::share::share;
use crate::ir::{BufferId, Core, Kernel, Local, Program, Rows};
use crate::place::copied;
use crate::verify::{along_rows, apart, keeps_to_rows};
use girih_ir::{Graph, NodeId};
use smallvec::{SmallVec, smallvec};

/// How many kernels after a group's first one may join it.
const HORIZON: usize = 32;
/// Most parts of a kernel.
const MAX_PARTS: usize = 16;
/// Elements of a row, at most: what is handed on should stay in the second-level cache.
const MAX_ROW: usize = 1 << 16;
/// With fewer rows than this there is nothing to share among threads...
const FEW_ROWS: usize = 16;
/// ... which matters if there are more elements than this.
const MUCH: usize = 1 << 15;
/// A product is wide if its result has at least so many times the elements of its operands: then it
/// is cheaper to read the right one again for every few rows than to keep the result in memory.
const WIDE: usize = 2;
/// Elements of a right operand, at most: it is read again for every few rows.
const MAX_RIGHT: usize = 1 << 22;

/// A kernel, the nodes it computes, and the buffers it names.
pub(super) struct Part {
    pub kernel: Kernel,
    nodes: Vec<NodeId>,
    reads: SmallVec<[BufferId; 8]>,
    pub writes: SmallVec<[BufferId; 4]>,
    /// Those that it does not write the whole of.
    pub pieces: SmallVec<[BufferId; 2]>,
}

impl Part {
    fn new(program: &Program, (kernel, nodes): (Kernel, Vec<NodeId>)) -> Part {
        let (reads, writes) = (kernel.reads().collect(), kernel.writes().collect());
        let mut pieces = SmallVec::new();
        for store in kernel.all_stores() {
            let id = store.access.buffer;
            if kernel.points() < program.buffers[id.0 as usize].numel {
                pieces.push(id);
            }
        }
        Part { kernel, nodes, reads, writes, pieces }
    }

    fn named(&self) -> impl Iterator<Item = &BufferId> {
        self.reads.iter().chain(&self.writes)
    }
}

/// Puts the kernels of a program together that hand rows to each other.
pub(super) fn group(graph: &Graph, built: &mut Built) {
    regroup(graph, built, grow);
}

/// Puts kernels together: `grow` makes a group of one and those after it that are to join it.
pub(super) fn regroup(
    graph: &Graph,
    built: &mut Built,
    grow: impl Fn(&Program, &mut [Option<Part>], Part) -> Group,
) {
    let (mut left, uses) = parts(built);
    for first in 0..left.len() {
        let Some(start) = left[first].take() else { continue };
        let group = grow(&built.program, &mut left[first + 1..], start);
        finish(graph, built, &uses, group);
    }
}

/// The kernels of a program, which then has none, and how often each buffer is named.
fn parts(built: &mut Built) -> (Vec<Option<Part>>, Uses) {
    let kernels = std::mem::take(&mut built.program.kernels).into_iter();
    let kernels = kernels.zip(built.nodes.drain(..));
    let part = |kernel| Some(Part::new(&built.program, kernel));
    let parts: Vec<Option<Part>> = kernels.map(part).collect();
    let uses = Uses::of(&built.program, parts.iter().flatten());
    (parts, uses)
}

/// The kernel with those of the following that join it.
fn grow(program: &Program, following: &mut [Option<Part>], start: Part) -> Group {
    let mut group = Group::new(program, start);
    if group.rows.is_empty() {
        return group;
    }
    let mut skipped = Named::none(program);
    for next in following.iter_mut().take(HORIZON) {
        if group.rows.is_empty() || group.parts.len() == MAX_PARTS {
            break;
        }
        let Some(part) = next else { continue };
        let fits = match group.meets(part) && !skipped.hinder(part) {
            true => group.rows_with(program, part),
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

/// A set of buffers.
struct Buffers(Vec<bool>);

impl Buffers {
    fn none(program: &Program) -> Buffers {
        Buffers(vec![false; program.buffers.len()])
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

/// Kernels that will be one.
pub(super) struct Group {
    pub parts: Vec<Part>,
    /// Over how many rows they can be.
    pub rows: RowCounts,
    pub named: Named,
    /// Written, but not as a whole by one part.
    pieces: Buffers,
    /// Elements of the largest part.
    elements: usize,
}

impl Group {
    fn new(program: &Program, start: Part) -> Group {
        let rows = Group::empty(program).rows_with(program, &start);
        Group { rows, ..Group::of_one(program, start) }
    }

    /// A kernel as a single row.
    pub fn of_one(program: &Program, start: Part) -> Group {
        let mut group = Group { rows: smallvec![1], ..Group::empty(program) };
        group.extend([start]);
        group
    }

    fn empty(program: &Program) -> Group {
        Group {
            parts: Vec::new(),
            rows: RowCounts::new(),
            named: Named::none(program),
            pieces: Buffers::none(program),
            elements: 0,
        }
    }

    pub fn extend(&mut self, parts: impl IntoIterator<Item = Part>) {
        for part in parts {
            self.named.add(&part);
            self.pieces.add(&part.pieces);
            self.elements = self.elements.max(elements(&part.kernel));
            self.parts.push(part);
        }
    }

    /// True if a kernel can be a part and reads what the group reads or writes, or stores into what
    /// the group filled. (A copy that it stores into may turn out to be nothing to do.)
    fn meets(&self, part: &Part) -> bool {
        let touches = |&id: &BufferId| self.named.contains(id);
        let copies = || self.parts.iter().any(|p| copied(&p.kernel).is_some());
        let filled = |&id: &BufferId| self.named.written.contains(id) && !self.pieces.contains(id);
        match part.kernel.core {
            Core::Map | Core::Reduce { .. } => {
                part.reads.iter().any(touches) || part.writes.iter().any(filled) && !copies()
            }
            Core::Matmul { .. } => self.goes_on_with(part),
            _ => false,
        }
    }

    /// True if a product takes up what the group computes: a wide one, or one that makes little of
    /// the rows of a wide one's.
    fn goes_on_with(&self, part: &Part) -> bool {
        let Some([lhs, rhs, out]) = sizes(&part.kernel) else { return false };
        let narrow = || {
            let after = self.parts.iter().any(|part| is_wide(&part.kernel));
            lhs >= WIDE * out && rhs <= MAX_RIGHT && after
        };
        (is_wide(&part.kernel) || narrow())
            && part.reads.iter().any(|&id| self.named.written.contains(id))
    }

    /// Over how many rows the group and a kernel can be one.
    fn rows_with(&self, program: &Program, part: &Part) -> RowCounts {
        let Part { kernel, reads, writes, pieces, .. } = part;
        let parts = self.parts.iter().map(|part| &part.kernel).chain([kernel]);
        let shared = |id: BufferId| {
            let written = self.named.written.contains(id) || writes.contains(&id);
            let in_pieces = self.pieces.contains(id) || pieces.contains(&id);
            written && !(in_pieces && apart(program, parts.clone(), id))
        };
        // What holds for the parts holds on, unless they share more with the kernel.
        let new = |id: &BufferId| !self.named.contains(*id);
        let apart = writes.iter().all(new) && reads.iter().all(|id| !self.pieces.contains(*id));
        let elements = self.elements.max(elements(kernel));
        let stays =
            |k: &Kernel, rows| keeps_to_rows(program, k, rows, shared) && along_rows(k, rows);
        let of = |&(rows, known): &(usize, bool)| {
            pays(elements, rows)
                && stays(kernel, rows)
                && (known && apart || self.parts.iter().all(|part| stays(&part.kernel, rows)))
        };
        let new = candidates(kernel).into_iter().filter(|rows| !self.rows.contains(rows));
        let known = self.rows.iter().map(|&rows| (rows, true));
        known.chain(new.map(|rows| (rows, false))).filter(of).map(|(rows, _)| rows).collect()
    }
}

/// Elements that a part works on; of a product, those that it hands on.
pub(super) fn elements(kernel: &Kernel) -> usize {
    match kernel.core {
        Core::Matmul { .. } => kernel.points(),
        _ => kernel.points().saturating_mul(kernel.reduced()),
    }
}

/// Elements of one product's left operand, right operand and result.
fn sizes(kernel: &Kernel) -> Option<[usize; 3]> {
    let dims = kernel.matmul_dims()?;
    let (m, n, k) = (kernel.size(&dims.rows), kernel.size(&dims.columns), kernel.reduced());
    Some([m * k, k * n, m * n])
}

fn is_wide(kernel: &Kernel) -> bool {
    sizes(kernel).is_some_and(|[lhs, rhs, out]| out >= WIDE * (lhs + rhs) && rhs <= MAX_RIGHT)
}

/// Numbers of rows that a kernel may be cut into.
fn candidates(kernel: &Kernel) -> RowCounts {
    let mut rows = RowCounts::new();
    let end = match kernel.core {
        Core::Map | Core::Reduce { .. } => kernel.parallel,
        Core::Matmul { columns, .. } if is_wide(kernel) => kernel.parallel - columns,
        _ => return rows,
    };
    let mut product = 1;
    for &extent in &kernel.extents[..end] {
        product *= extent;
        if extent > 1 {
            rows.push(product);
        }
    }
    rows
}

/// What some kernels read and write.
pub(super) struct Named {
    read: Buffers,
    written: Buffers,
}

impl Named {
    /// By no kernel yet.
    pub fn none(program: &Program) -> Named {
        Named { read: Buffers::none(program), written: Buffers::none(program) }
    }

    pub fn add(&mut self, part: &Part) {
        self.read.add(&part.reads);
        self.written.add(&part.writes);
    }

    fn contains(&self, id: BufferId) -> bool {
        self.read.contains(id) || self.written.contains(id)
    }

    /// True if a kernel that comes after them cannot run before or with them.
    pub fn hinder(&self, part: &Part) -> bool {
        part.reads.iter().any(|&id| self.written.contains(id))
            || part.writes.iter().any(|&id| self.contains(id))
    }
}

/// True if rows are short enough for the cache and many enough for the threads.
fn pays(elements: usize, rows: usize) -> bool {
    elements / rows <= MAX_ROW && (rows >= FEW_ROWS || elements <= MUCH)
}

/// How often each buffer is named, as a result of the program or by a kernel.
struct Uses(Vec<u32>);

impl Uses {
    fn of<'a>(program: &'a Program, parts: impl Iterator<Item = &'a Part>) -> Uses {
        let mut uses = Uses(vec![0; program.buffers.len()]);
        let named = program.outputs.iter().chain(parts.flat_map(Part::named));
        named.for_each(|id| uses.0[id.0 as usize] += 1);
        uses
    }

    /// By buffer, how often others than these kernels name it.
    fn besides(&self, parts: &[Part]) -> Uses {
        let mut others = self.0.clone();
        parts.iter().flat_map(Part::named).for_each(|id| others[id.0 as usize] -= 1);
        Uses(others)
    }

    /// True of a buffer that is named; one made since is not.
    fn contains(&self, id: BufferId) -> bool {
        self.0.get(id.0 as usize).is_some_and(|&count| count > 0)
    }
}

/// Adds the kernel of a group to the program.
fn finish(graph: &Graph, built: &mut Built, uses: &Uses, mut group: Group) {
    let (kernel, nodes) = match group.parts.len() {
        1 => {
            let Part { kernel, nodes, .. } = group.parts.remove(0);
            (kernel, nodes)
        }
        _ => together(graph, &mut built.program, uses, group),
    };
    built.program.kernels.push(kernel);
    built.nodes.push(nodes);
}

/// The kernel of several parts, and the nodes it computes.
fn together(
    graph: &Graph,
    program: &mut Program,
    uses: &Uses,
    group: Group,
) -> (Kernel, Vec<NodeId>) {
    let rows = group.rows.iter().copied().max().unwrap_or(1);
    let outside = uses.besides(&group.parts);
    let parts = group.parts.into_iter().map(|part| (part.kernel, part.nodes));
    let (mut parts, nodes): (Vec<Kernel>, Vec<Vec<NodeId>>) = parts.unzip();
    share(program, &mut parts);
    let mut locals: Vec<Local> = Vec::new();
    for buffer in parts.iter().flat_map(Kernel::writes) {
        if !outside.contains(buffer) && locals.iter().all(|l| l.buffer != buffer) {
            let row_bytes = program.buffers[buffer.0 as usize].size_bytes() / rows;
            locals.push(Local { buffer, row_bytes });
        }
    }
    over_rows(graph, rows, (parts, nodes), locals)
}

/// A kernel over so many rows of parts, each with the nodes it computes.
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
        core: Core::Rows(Box::new(Rows { parts, locals })),
        body: Default::default(),
        stores: Vec::new(),
    };
    (kernel, nodes)
}
