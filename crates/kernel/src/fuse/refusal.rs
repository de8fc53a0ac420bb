//! The reasons for refused fusions, with a code and a sentence each, and the consumer that was not
//! fused. The reasons are in the order of the passes that refuse.

use girih_ir::{Class, Graph, NodeId, OpCode};

/// The reason why a value and its consumer are computed by different kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// The fusion is switched off.
    Disabled,
    /// The value is an output that other kernels, or a kernel over another space, consume too.
    Output,
    /// The consumer needs random access: a GEMM's operand, a gather's data, a scatter's indices,
    /// the operand of a library routine, a branch or a loop.
    Memory,
    /// The value is written in parts, by several kernels or by accumulation: a concat, a pad, a
    /// scatter.
    Parts,
    /// Several kernels consume the value, and computing it in each kernel costs more than storing
    /// it.
    Shared,
    /// The consumer would recompute an expensive op for each element to which the value is
    /// broadcast.
    Broadcast,
    /// One kernel reads an expensive value through two different views.
    TwoViews,
    /// A reduction or GEMM is consumed at other points than the points of its result.
    Space,
    /// The consuming kernel already computes another reduction, GEMM or scatter.
    CoreTaken,
    /// The value is the result of a library routine, whose results are dense in memory.
    Library,
    /// The value is the result of a branch or a loop.
    Control,
    /// A reshape between the value and its consumer has no affine index map.
    Reshape,
    /// The kernel has reached its maximum size.
    KernelSize,
    /// Row-wise fusion: there is no division of both kernels into rows.
    Rows,
    /// Row-wise fusion: a row does not fit in the cache.
    RowLength,
    /// Row-wise fusion: there are fewer rows than threads may need.
    FewRows,
    /// Row-wise fusion: the kernel has the highest number of parts.
    RowParts,
    /// GEMM prologue: another kernel reads the operand, or the GEMM reads the operand more than
    /// once.
    OperandShared,
    /// GEMM prologue: the operand is too large to be packed once.
    OperandSize,
    /// GEMM prologue: the GEMM has too many rows to pack B once.
    OperandRows,
    /// GEMM prologue: the GEMM does not read the operand in long contiguous runs.
    OperandOrder,
    /// Horizontal fusion: the kernel has its highest size.
    GroupSize,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Refusal; 22] = [
        Refusal::Disabled,
        Refusal::Output,
        Refusal::Memory,
        Refusal::Parts,
        Refusal::Shared,
        Refusal::Broadcast,
        Refusal::TwoViews,
        Refusal::Space,
        Refusal::CoreTaken,
        Refusal::Library,
        Refusal::Control,
        Refusal::Reshape,
        Refusal::KernelSize,
        Refusal::Rows,
        Refusal::RowLength,
        Refusal::FewRows,
        Refusal::RowParts,
        Refusal::OperandShared,
        Refusal::OperandSize,
        Refusal::OperandRows,
        Refusal::OperandOrder,
        Refusal::GroupSize,
    ];

    /// The position of the pass that refuses for this reason, among the passes in order.
    pub(super) fn pass(self) -> usize {
        match self {
            Refusal::Rows | Refusal::RowLength | Refusal::FewRows | Refusal::RowParts => 1,
            Refusal::OperandShared
            | Refusal::OperandSize
            | Refusal::OperandRows
            | Refusal::OperandOrder => 2,
            Refusal::GroupSize => 3,
            _ => 0,
        }
    }

    /// Whether the pass that refuses fuses kernels with each other.
    pub(super) fn is_of_kernels(self) -> bool {
        self.pass() > 0
    }

    /// The reason in one word, for tools.
    pub fn code(self) -> &'static str {
        match self {
            Refusal::Disabled => "disabled",
            Refusal::Output => "output",
            Refusal::Memory => "memory",
            Refusal::Parts => "parts",
            Refusal::Shared => "shared",
            Refusal::Broadcast => "broadcast",
            Refusal::TwoViews => "two_views",
            Refusal::Space => "space",
            Refusal::CoreTaken => "core_taken",
            Refusal::Library => "library",
            Refusal::Control => "control",
            Refusal::Reshape => "reshape",
            Refusal::KernelSize => "kernel_size",
            Refusal::Rows => "rows",
            Refusal::RowLength => "row_length",
            Refusal::FewRows => "few_rows",
            Refusal::RowParts => "row_parts",
            Refusal::OperandShared => "operand_shared",
            Refusal::OperandSize => "operand_size",
            Refusal::OperandRows => "operand_rows",
            Refusal::OperandOrder => "operand_order",
            Refusal::GroupSize => "group_size",
        }
    }

    /// The reason as a sentence; `{value}` and `{user}` stand for the two nodes.
    pub fn sentence(self) -> &'static str {
        match self {
            Refusal::Disabled => "the fusion of {value} into {user} is switched off",
            Refusal::Output => {
                "{value} is a result that {user} reads in another order than it is stored in, or \
                 that several kernels read"
            }
            Refusal::Memory => {
                "{user} reads {value} in an order of its own, more than once or at computed \
                 positions, so it must be in memory"
            }
            Refusal::Parts => {
                "{value} is written part by part, and must be complete before {user} reads it"
            }
            Refusal::Shared => {
                "several kernels need {value}, that of {user} among them, and computing it in each \
                 costs more than keeping it"
            }
            Refusal::Broadcast => {
                "{user} would compute {value}, which is expensive, again for every element it is \
                 broadcast to"
            }
            Refusal::TwoViews => {
                "{user} reads {value}, which is expensive, through two views and would compute it \
                 twice"
            }
            Refusal::Space => {
                "{user} needs {value} at other points than those at which the reduction or matrix \
                 product yields it"
            }
            Refusal::CoreTaken => {
                "the kernel of {user} has another reduction, matrix product or scatter than \
                 {value} at its core"
            }
            Refusal::Library => {
                "{value} comes from a library routine, which writes whole rows or matrices to \
                 memory, where {user} reads it"
            }
            Refusal::Control => {
                "{value} comes from a branch or a loop, which runs kernels of its own and writes to \
                 memory, where {user} reads it"
            }
            Refusal::Reshape => {
                "a reshape between {value} and {user} mixes axes that no strides can describe"
            }
            Refusal::KernelSize => "the kernel of {user} is too large already to take {value}",
            Refusal::Rows => {
                "{value} and {user} do not run row by row: {user} reads other rows of {value} than \
                 the one that it computes"
            }
            Refusal::RowLength => {
                "{value} and {user} do not run row by row: a row does not fit in the cache"
            }
            Refusal::FewRows => {
                "{value} and {user} do not run row by row: there are too few rows for the threads"
            }
            Refusal::RowParts => {
                "{user} is not computed by the kernel of {value}, which has the highest number of \
                 parts"
            }
            Refusal::OperandShared => {
                "{user} does not compute {value} as it packs its operands, because {value} is a \
                 result, or is read elsewhere or more than once"
            }
            Refusal::OperandSize => {
                "{user} does not compute {value} as it packs its operands, because {value} is too \
                 large to be packed once"
            }
            Refusal::OperandRows => {
                "{user} does not compute {value} as it packs its operands, because it has so many \
                 rows that it packs {value} several times"
            }
            Refusal::OperandOrder => {
                "{user} does not compute {value} as it packs its operands, because it reads \
                 {value} in short runs"
            }
            Refusal::GroupSize => {
                "{value} does not run in one kernel with {user} and others, because that kernel \
                 has the highest size"
            }
        }
    }
}

/// A fusion that was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// The value that the kernel of the consumer does not compute. Horizontal fusion: the result of
    /// a kernel that does not run together with the consumer's.
    pub node: NodeId,
    /// The reason.
    pub reason: Refusal,
    /// An op that would have been fused with the value, possibly through views. If there are
    /// several such ops, an op to which the reason applies. `None` if only a view of the value is
    /// consumed.
    pub consumer: Option<NodeId>,
}

/// Refusals with their consumers, in order of passes, then of nodes.
pub(super) fn complete(graph: &Graph, mut refusals: Vec<Refused>) -> Vec<Refused> {
    refusals.sort_unstable_by_key(|refused| (refused.reason.pass(), *refused));
    refusals.dedup();
    let mut users: Vec<Vec<NodeId>> = vec![Vec::new(); graph.len()];
    let live = graph.live();
    for (id, node) in graph.nodes().filter(|(id, _)| live[id.index()]) {
        node.inputs.iter().for_each(|i| users[i.index()].push(id));
    }
    for Refused { node, reason, consumer } in &mut refusals {
        *consumer = consumer.or_else(|| find_consumer(graph, &users, *node, *reason));
    }
    refusals
}

fn find_consumer(
    graph: &Graph,
    users: &[Vec<NodeId>],
    node: NodeId,
    reason: Refusal,
) -> Option<NodeId> {
    // Consumers through views, nearest first, and whether there is a reshape in between.
    let mut found: Vec<(NodeId, bool)> = Vec::new();
    let mut next = vec![(node, false)];
    let mut at = 0;
    while let Some(&(value, reshaped)) = next.get(at) {
        at += 1;
        for &user in &users[value.index()] {
            let (class, seen) = (graph.node(user).op.class(), |l: &[(NodeId, bool)]| {
                l.iter().any(|(n, _)| *n == user)
            });
            match class {
                Class::View | Class::Reshape if !seen(&next) => {
                    next.push((user, reshaped || class == Class::Reshape));
                }
                Class::View | Class::Reshape => {}
                _ if !seen(&found) => found.push((user, reshaped)),
                _ => {}
            }
        }
    }
    let fits = |&(user, reshaped): &(NodeId, bool)| match reason {
        Refusal::Memory => {
            !matches!(graph.node(user).op.class(), Class::Elementwise | Class::Reduction)
                || matches!(graph.node(user).op.code, OpCode::Take | OpCode::TakeAlongAxis)
        }
        Refusal::Reshape => reshaped,
        _ => true,
    };
    found.iter().copied().find(fits).or(found.first().copied()).map(|(user, _)| user)
}
