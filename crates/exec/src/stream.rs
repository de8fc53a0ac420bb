//! The compiled function of a chain, and the memory that it reads and writes.

use super::chain::Compiled;
use super::code::Reg;
use super::walk::Walk;
use smallvec::SmallVec;

/// An operand or result of a chain's function.
pub(crate) enum Stream {
    /// The elements of a register; for a loop-invariant register, the first element.
    Register { reg: Reg, size: u8 },
    /// Elements of a buffer with a constant stride within a segment; the stride is 1 for writes.
    Memory { buffer: u32, walk: Walk, size: u8 },
    /// A register of the results of each segment's fold.
    Total { reg: Reg, size: u8 },
}

impl Stream {
    /// The number of bytes between the addresses of consecutive segments of that length, and the
    /// number of segments for which this distance is constant, counted from each multiple of that
    /// number.
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

/// The addresses of a chain's streams. The table is filled in place: a copy of addresses that were
/// just written would read more bytes at once than any single store wrote, so store forwarding
/// would fail, and the read would wait for all earlier stores, including results of the last
/// function.
pub(crate) type Pointers = SmallVec<[*mut u8; 24]>;

/// A compiled chain and its streams.
pub(crate) struct Fused {
    pub function: Box<dyn Compiled>,
    /// The stream of each input, then of each output.
    pub streams: Vec<Stream>,
    /// The number of inputs.
    pub inputs: usize,
    /// The number of points of a segment. A call of the function has points of a single segment:
    /// points between two multiples of this number.
    pub segment: usize,
    /// The number of bytes by which each stream advances from segment to segment. This distance
    /// holds for `regular` segments, counted from each multiple of `regular`.
    pub steps: Vec<isize>,
    regular: usize,
    /// For each stream, the number of its walk among the walks with different distances.
    walks: Vec<u16>,
    /// The inputs that have no address of their own: the stream by whose address they are read, and
    /// the number of bytes from it.
    pub besides: Vec<(u16, i32)>,
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
        // All segments, if every stream is regular throughout.
        let regular = if regular == 0 { usize::MAX } else { regular };
        let walks = numbers(&streams);
        Fused { function, streams, inputs, segment, steps, regular, walks, besides: Vec::new() }
    }

    /// The current element of streams in memory, and 0 for other streams. Distances are computed
    /// once for walks with equal distances, such as the walks of a convolution's taps.
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

    /// The number of segments from a point on that can run consecutively, and the number of points
    /// of each segment, which is not 0.
    pub fn run_from(&self, point: usize, points: usize) -> (usize, usize) {
        let len = self.segment_left(point);
        if len > points || len < self.segment {
            return (1, len.min(points));
        }
        let at = point / self.segment;
        ((points / len).min(self.regular - at % self.regular), len)
    }

    /// Runs the function at `len` points of each of `count` segments. The pointers are those of the
    /// first segment, and unspecified afterwards.
    ///
    /// # Safety
    /// As [`Compiled::run`] for each segment; the streams advance by [`Fused::steps`] from segment
    /// to segment.
    #[inline]
    pub unsafe fn run_segments(&self, pointers: &mut Pointers, len: usize, count: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match count {
                1 => self.function.run(pointers, len),
                _ => self.function.run_rows(pointers, len, (count, &self.steps)),
            }
        }
    }

    /// The number of bytes by which each stream advances from a row of `row` points to the next
    /// row, if this number is constant for `rows` rows from a point on, and the rows begin at the
    /// same point of a segment; else `None`. `core` has the register whose elements the caller provides, and the number of bytes between its rows.
    pub fn row_steps(
        &self,
        point: usize,
        (rows, row): (usize, usize),
        core: (Reg, isize),
    ) -> Option<SmallVec<[isize; 16]>> {
        if self.segment != usize::MAX && row % self.segment != 0 {
            return None;
        }
        let step = |stream: &Stream| match stream {
            Stream::Register { reg, .. } if *reg == core.0 => Some(core.1),
            Stream::Register { size: 0, .. } => Some(0),
            Stream::Memory { walk, size, .. } => {
                walk.row_step(point, (rows, row)).map(|step| step * *size as isize)
            }
            _ => None,
        };
        self.streams.iter().map(step).collect()
    }

    /// The number of points from a point to the end of its segment.
    pub fn segment_left(&self, point: usize) -> usize {
        self.segment - point % self.segment
    }
}

/// For each stream, the number of its walk among the walks with different distances, in order of
/// first occurrence; 0 for streams that are not in memory.
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

    /// A function that is never run.
    struct Nothing;

    impl Compiled for Nothing {
        unsafe fn run(&self, _: &[*mut u8], _: usize) {
            unreachable!("nothing runs it")
        }

        unsafe fn run_rows(&self, _: &mut [*mut u8], _: usize, _: (usize, &[isize])) {
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
    fn fused_streams_have_the_addresses_of_separate_walks() {
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
