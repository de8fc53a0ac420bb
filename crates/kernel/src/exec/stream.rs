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
pub(crate) type Pointers = SmallVec<[*mut u8; 24]>;

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
    /// Of each stream, the number of its walk among those that have different distances.
    walks: Vec<u16>,
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
        let walks = numbers(&streams);
        Fused { function, streams, inputs, segment, steps, regular, walks }
    }

    /// The elements that streams of memory are at, of others 0: distances are computed once for
    /// walks that have the same, as the taps of a kernel have.
    pub fn elements(&self, point: usize) -> impl Iterator<Item = isize> {
        let mut distances: SmallVec<[isize; 8]> = SmallVec::new();
        self.streams.iter().zip(&self.walks).map(move |(stream, &number)| {
            let Stream::Memory { walk, .. } = stream else { return 0 };
            if number as usize == distances.len() {
                distances.push(walk.distance(point));
            }
            walk.offset + distances[number as usize]
        })
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

/// The number of each stream's walk among those that are not parallel, in the order of the first of
/// each; 0 of streams of other kinds.
fn numbers<'a>(streams: &'a [Stream]) -> Vec<u16> {
    let mut walks: Vec<&'a Walk> = vec![];
    let number = |stream: &'a Stream| {
        let Stream::Memory { walk, .. } = stream else { return 0 };
        let known = walks.iter().position(|known| known.is_parallel(walk));
        known.unwrap_or_else(|| {
            walks.push(walk);
            walks.len() - 1
        }) as u16
    };
    streams.iter().map(number).collect()
}

/// The greatest common divisor.
pub(super) fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not to be run.
    struct Nothing;

    impl Compiled for Nothing {
        unsafe fn run(&self, _: &[*mut u8], _: usize) {
            unreachable!("nothing runs it")
        }

        fn cost_ps(&self) -> usize {
            0
        }

        fn code(&self) -> &[u8] {
            &[]
        }
    }

    #[test]
    fn streams_are_where_their_walks_are_whether_others_are_parallel_or_not() {
        let walk =
            |offset, strides: [isize; 3]| Walk::new(offset, [4, 5, 6].into_iter().zip(strides));
        let image = [0, 1, 9].map(|offset| walk(offset, [100, 10, 1]));
        let [a, b, c] = image;
        let (row, out) = (walk(2, [7, 0, 0]), walk(0, [30, 6, 1]));
        let walks = [a, row, b, out, c];
        let memory = |walk: &Walk| Stream::Memory { buffer: 0, walk: walk.clone(), size: 4 };
        let mut streams: Vec<Stream> = walks.iter().map(memory).collect();
        streams.insert(1, Stream::Register { reg: 0, size: 4 });
        let fused = Fused::new(Box::new(Nothing), streams, 4, 6);
        assert_eq!(fused.walks, [0, 0, 1, 0, 2, 0]);
        for point in (0..120).step_by(6) {
            let [a, row, b, out, c] = walks.each_ref().map(|walk| walk.at(point));
            assert_eq!(fused.elements(point).collect::<Vec<_>>(), [a, 0, row, b, out, c]);
        }
    }
}
