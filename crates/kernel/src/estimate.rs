//! Estimates of the bytes and operations of a kernel from its definition, for explanations. They do
//! not estimate times.

use crate::control::{Control, Flow};
use crate::ir::{Access, Block, Buffer, BufferId, Core, Inst, Kernel, KernelProgram, RowwiseCore};
use girih_ir::ops::Cost;
use girih_ir::{DType, Traffic};
use smallvec::SmallVec;

/// The elements read of each buffer so far.
struct Reads<'a> {
    buffers: &'a [Buffer],
    elements: Vec<(BufferId, u64)>,
}

impl Reads<'_> {
    /// Adds a read of at most `elements` elements of a buffer.
    fn add(&mut self, buffer: BufferId, elements: u64) {
        let all = self.buffers[buffer.0 as usize].numel as u64;
        match self.elements.iter_mut().find(|(b, _)| *b == buffer) {
            Some((_, sum)) => *sum = all.min(sum.saturating_add(elements)),
            None => self.elements.push((buffer, all.min(elements))),
        }
    }

    fn bytes(&self) -> u64 {
        let bytes = |&(b, n): &(BufferId, u64)| n * self.buffers[b.0 as usize].dtype.size() as u64;
        self.elements.iter().map(bytes).sum()
    }
}

fn product(sizes: impl Iterator<Item = usize>) -> u64 {
    sizes.fold(1, |product, size| product.saturating_mul(size as u64))
}

/// The maximum number of elements that a walk reaches.
fn reach(kernel: &Kernel, access: &Access) -> u64 {
    let moves = access.strides.iter().zip(&kernel.extents).filter(|(stride, _)| **stride != 0);
    product(moves.map(|(_, &size)| size))
}

fn is_arithmetic(inst: &Inst) -> bool {
    match inst {
        Inst::Op { code, dtype, .. } => *dtype != DType::Bool && code.def().cost != Cost::Move,
        _ => false,
    }
}

fn arithmetic(block: &Block) -> u64 {
    block.insts.iter().filter(|i| is_arithmetic(i)).count() as u64
}

impl Kernel {
    /// The traffic of one run in a program with these buffers.
    pub fn traffic(&self, buffers: &[Buffer]) -> Traffic {
        if let Core::Rows(rows) = &self.core {
            return self.rows_traffic(rows, buffers);
        }
        let points = product(self.extents[..self.parallel].iter().copied());
        let all = product(self.extents.iter().copied());
        let mut reads = Reads { buffers, elements: Vec::new() };
        let mut flops = arithmetic(&self.body).saturating_mul(points);
        self.block_reads(&mut reads, &self.body, points);
        match &self.core {
            Core::Map => {}
            Core::Reduce { prologue, .. } => {
                self.block_reads(&mut reads, prologue, all);
                flops = flops.saturating_add((arithmetic(prologue) + 1).saturating_mul(all));
            }
            Core::Gemm { lhs, rhs, .. } => {
                [lhs, rhs].into_iter().for_each(|a| reads.add(a.buffer, reach(self, a)));
                flops = flops.saturating_add(all.saturating_mul(2));
            }
            Core::Scatter { index, .. } => {
                reads.add(index.buffer, reach(self, index));
                flops = flops.saturating_add(points);
            }
            Core::Control(_) | Core::Rows(_) => {}
            Core::Library(routine) => {
                routine.operands.iter().for_each(|i| reads.add(i.buffer, u64::MAX));
                // One step per element of a row.
                let elements = routine.operands.iter().map(|i| product(i.dims.iter().copied()));
                flops = elements.fold(0, u64::saturating_add).saturating_mul(points);
            }
        }
        if let Core::Control(control) = &self.core {
            return control.traffic();
        }
        let bytes_read = reads.bytes();
        let mut writes = Reads { buffers, elements: Vec::new() };
        for store in self.all_stores() {
            let elements = match self.core {
                // The whole buffer is set to zero first.
                Core::Scatter { zeroed: true, .. } => u64::MAX,
                Core::Scatter { .. } => points,
                _ => reach(self, &store.access),
            };
            writes.add(store.access.buffer, elements);
        }
        if let Core::Library(routine) = &self.core {
            routine.results.iter().flatten().for_each(|i| writes.add(i.buffer, u64::MAX));
        }
        Traffic { bytes_read, bytes_written: writes.bytes(), flops }
    }

    /// The traffic of the parts, except for intermediate results.
    fn rows_traffic(&self, rows: &RowwiseCore, buffers: &[Buffer]) -> Traffic {
        let parts = rows.parts.iter().map(|p| p.traffic(buffers));
        let flops = parts.fold(0u64, |sum, t| sum.saturating_add(t.flops));
        let (mut reads, mut writes) =
            (Reads { buffers, elements: vec![] }, Reads { buffers, elements: vec![] });
        let outside: SmallVec<[BufferId; 16]> = self.reads().collect();
        let kept: SmallVec<[BufferId; 8]> = self.writes().collect();
        for part in &rows.parts {
            let loads = part.accesses.iter().chain(part.operands());
            for access in loads.filter(|a| outside.contains(&a.buffer)) {
                reads.add(access.buffer, reach(part, access));
            }
            for store in part.all_stores() {
                if kept.contains(&store.access.buffer) {
                    writes.add(store.access.buffer, reach(part, &store.access));
                }
            }
        }
        Traffic { bytes_read: reads.bytes(), bytes_written: writes.bytes(), flops }
    }

    fn block_reads(&self, reads: &mut Reads<'_>, block: &Block, points: u64) {
        for inst in &block.insts {
            match inst {
                Inst::Load(id) => {
                    let access = self.access(*id);
                    reads.add(access.buffer, reach(self, access));
                }
                Inst::Gather { access, .. } => reads.add(self.access(*access).buffer, points),
                _ => {}
            }
        }
    }
}

impl Control {
    /// The traffic of the programs: of each iteration if the number of iterations is known,
    /// otherwise of one iteration; for branches, the traffic of the largest program.
    fn traffic(&self) -> Traffic {
        let of = |program: &KernelProgram| {
            let kernels = program.kernels.iter().map(|k| k.traffic(&program.buffers));
            kernels.fold(Traffic::default(), |sum, traffic| sum + traffic)
        };
        let all: Vec<Traffic> = self.programs.iter().map(of).collect();
        if let Flow::Cond { .. } = self.flow {
            let most = |field: fn(&Traffic) -> u64| all.iter().map(field).max().unwrap_or(0);
            return Traffic {
                bytes_read: most(|t| t.bytes_read),
                bytes_written: most(|t| t.bytes_written),
                flops: most(|t| t.flops),
            };
        }
        let once = all.into_iter().fold(Traffic::default(), |sum, traffic| sum + traffic);
        let times = |n: u64| n.saturating_mul(self.trips().unwrap_or(1) as u64);
        Traffic {
            bytes_read: times(once.bytes_read),
            bytes_written: times(once.bytes_written),
            flops: times(once.flops),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FusionOptions, Target, lower};
    use girih_ir::{AxisSet, GraphBuilder, NodeId, Result, TensorSpec};

    fn traffic(record: impl Fn(&mut GraphBuilder) -> Result<NodeId>) -> Traffic {
        let mut b = GraphBuilder::default();
        let out = record(&mut b).unwrap();
        let program = lower(&b.finish([out]), FusionOptions::ALL, &Target::CPU).unwrap();
        assert_eq!(program.kernels.len(), 1, "{program}");
        program.kernels[0].traffic(&program.buffers)
    }

    fn input(b: &mut GraphBuilder, shape: &[usize]) -> NodeId {
        b.input(TensorSpec::new(shape, DType::F32))
    }

    #[test]
    fn a_gemm_reads_its_operands_and_multiplies_and_adds() {
        let found = traffic(|b| {
            let (x, y, bias) = (input(b, &[2, 3]), input(b, &[3, 5]), input(b, &[5]));
            let matmul = b.matmul(x, y)?;
            b.add(matmul, bias)
        });
        let expected = Traffic { bytes_read: 4 * (6 + 15 + 5), bytes_written: 40, flops: 60 + 10 };
        assert_eq!(found, expected);
    }

    #[test]
    fn broadcasts_and_slices_count_only_the_bytes_read() {
        let found = traffic(|b| {
            let (x, y) = (input(b, &[4, 6]), input(b, &[6]));
            let x = b.slice_axis(x, 0, 1, 2)?;
            b.mul(x, y)
        });
        assert_eq!(found, Traffic { bytes_read: 4 * (12 + 6), bytes_written: 48, flops: 12 });
        // Two views of one buffer read it once.
        let found = traffic(|b| {
            let x = input(b, &[3, 3]);
            let t = b.transpose(x)?;
            b.add(x, t)
        });
        assert_eq!(found, Traffic { bytes_read: 36, bytes_written: 36, flops: 9 });
    }

    #[test]
    fn a_reduction_computes_its_prologue_everywhere_and_its_epilogue_once() {
        let found = traffic(|b| {
            let x = input(b, &[4, 5]);
            let square = b.mul(x, x)?;
            let sum = b.sum(square, AxisSet::one(1), false)?;
            b.sqrt(sum)
        });
        assert_eq!(found, Traffic { bytes_read: 80, bytes_written: 16, flops: 20 + 20 + 4 });
    }
}
