//! The function of a chain, and where it reads and writes.

use super::chain::Compiled;
use super::code::Reg;
use super::walk::Walk;
use smallvec::SmallVec;

/// Where a function of a chain reads or writes.
pub(crate) enum Stream {
    /// The elements of a register; of one that is the same at all points, the first.
    Register { reg: Reg, size: u8 },
    /// Elements of a buffer, consecutive (or, read, all one or every second) within a segment.
    Memory { buffer: u32, walk: Walk, size: u8 },
    /// In a register, the result of each segment's fold.
    Total { reg: Reg, size: u8 },
}

impl Stream {
    /// Bytes from its place at a segment of that length to the next, and for how many segments, from
    /// each multiple of it on.
    fn step(&self, segment: usize) -> (isize, usize) {
        match self {
            Stream::Register { size, .. } => ((segment * *size as usize) as isize, usize::MAX),
            Stream::Total { size, .. } => (*size as isize, usize::MAX),
            Stream::Memory { walk, size, .. } => {
                let (step, segments) = walk.run_steps(segment);
                (step * *size as isize, segments)
            }
        }
    }
}

/// Where the streams of a chain are. Filled where it lies: a copy of what was just written reads
/// more at once than any one store wrote, and waits for all stores before it, results of the last
/// function among them.
pub(crate) type Pointers = SmallVec<[*mut u8; 16]>;

/// A chain and its operands.
pub(crate) struct Fused {
    pub function: Box<dyn Compiled>,
    /// Of each input, then of each output.
    pub streams: Vec<Stream>,
    /// Number of inputs.
    pub inputs: usize,
    /// The function runs over no more points than lie between two multiples of this.
    pub segment: usize,
    /// Bytes by which each stream goes on from a segment to the next, as it does for so many of them
    /// from each multiple of their number on.
    pub steps: Vec<isize>,
    regular: usize,
}

impl Fused {
    pub fn new(
        function: Box<dyn Compiled>,
        streams: Vec<Stream>,
        inputs: usize,
        segment: usize,
    ) -> Fused {
        let (mut steps, mut regular) = (Vec::new(), 0);
        if segment < usize::MAX {
            for (step, segments) in streams.iter().map(|s| s.step(segment)) {
                steps.push(step);
                if segments < usize::MAX / segment {
                    regular = gcd(regular, segments);
                }
            }
        }
        // All of them, if every stream is as regular as that.
        let regular = if regular == 0 { usize::MAX } else { regular };
        Fused { function, streams, inputs, segment, steps, regular }
    }

    /// Segments from a point on that can run one after another, and the points of each; the number
    /// of points is not 0.
    pub fn run_from(&self, point: usize, points: usize) -> (usize, usize) {
        let len = self.segment - point % self.segment;
        if len > points || len < self.segment {
            return (1, len.min(points));
        }
        let at = point / self.segment;
        ((points / len).min(self.regular - at % self.regular), len)
    }

    /// Bytes by which each stream goes on from a row of so many points to the next, as they all do
    /// for `rows` rows from a point on; `None` if they do not. `core` is the register whose elements
    /// are the caller's, and how they go on.
    pub fn row_steps(
        &self,
        point: usize,
        (rows, row): (usize, usize),
        core: (Reg, isize),
    ) -> Option<SmallVec<[isize; 16]>> {
        let dense = self.segment == usize::MAX;
        let regular = self.segment == row && (point / row) % self.regular + rows <= self.regular;
        let step = |(i, stream): (usize, &Stream)| match stream {
            Stream::Register { reg, .. } if *reg == core.0 => Some(core.1),
            Stream::Register { size: 0, .. } => Some(0),
            Stream::Memory { size, .. } if dense => Some((row * *size as usize) as isize),
            Stream::Memory { .. } if regular => Some(self.steps[i]),
            _ => None,
        };
        self.streams.iter().enumerate().map(step).collect()
    }
}

/// The greatest common divisor.
pub(super) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
