//! Convolutions as GEMMs over windows of images, against plain sums.

use super::*;
use crate::gemm::GeneratedGemm;
use crate::gemm::microkernels::avx512_enabled;

/// A GEMM of `rows` filters of `side` by `side` taps and `channels` channels with the windows of
/// `batch` images. `image` is an image's height and width.
struct Windows {
    rows: usize,
    batch: usize,
    channels: usize,
    side: usize,
    image: [usize; 2],
    body: bool,
}

impl Windows {
    fn positions(&self) -> [usize; 2] {
        self.image.map(|extent| extent - self.side + 1)
    }

    fn k(&self) -> usize {
        self.channels * self.side * self.side
    }

    /// Extents of batch, rows, positions, channels and taps.
    fn kernel(&self) -> Kernel {
        let ([height, width], [down, across]) = (self.image, self.positions());
        let (side, plane) = (self.side as isize, (height * width) as isize);
        let w = width as isize;
        let access = |buffer: u32, strides: &[isize]| Access {
            buffer: BufferId(buffer),
            dtype: DType::F32,
            offset: 0,
            strides: SmallVec::from_slice(strides),
        };
        let k = self.k() as isize;
        let left = access(0, &[0, k, 0, 0, side * side, side, 1]);
        let right = access(1, &[plane * self.channels as isize, 0, w, 1, plane, w, 1]);
        let mut body = Block::default();
        let mut value = body.push(Inst::Core { dtype: DType::F32 });
        if self.body {
            let bias = body.push(Inst::Load(AccessId(0)));
            let args = SmallVec::from_slice(&[value, bias]);
            value = body.push(Inst::Op { code: OpCode::Add, args, dtype: DType::F32 });
        }
        let (positions, across_) = ((down * across) as isize, across as isize);
        let out = [positions * self.rows as isize, positions, across_, 1];
        let extents = [self.batch, self.rows, down, across, self.channels, self.side, self.side];
        Kernel {
            name: "windows".into(),
            extents: SmallVec::from_slice(&extents),
            parallel: 4,
            accesses: vec![access(2, &[0, 1, 0, 0])],
            core: Core::Gemm { lhs: left, rhs: right, dtype: DType::F32, rows: 1, columns: 2 },
            body,
            stores: vec![Store { access: access(3, &out), value }],
        }
    }

    /// The operands, of few bits so that sums are exact, and the kernel's result.
    fn run(&self, threads: usize) -> [Vec<f32>; 4] {
        self.run_with(threads, None)
    }

    fn run_with(&self, threads: usize, store: Option<&dyn PrepackedStore>) -> [Vec<f32>; 4] {
        let [down, across] = self.positions();
        let pixels = self.image[0] * self.image[1];
        let draw = |n: usize, seed: usize| -> Vec<f32> {
            (0..n).map(|i| ((i * 7919 + seed * 104_729) % 17) as f32 / 4.0 - 2.0).collect()
        };
        let mut buffers = [
            draw(self.rows * self.k(), 0),
            draw(self.batch * self.channels * pixels, 1),
            draw(self.rows, 2),
            vec![0.0; self.batch * self.rows * down * across],
        ];
        let bounds = buffers.each_ref().map(|b| Bounds::of(4 * b.len()));
        let pointers = buffers.each_mut().map(|b| b.as_mut_ptr() as *mut u8);
        let workspace = std::ptr::null_mut();
        let bindings =
            Bindings { buffers: &pointers, arguments: &[], workspace, bounds: Some(&bounds) };
        let loaded = match store {
            None => LoadedKernel::checked(&self.kernel()),
            Some(_) => LoadedKernel::new(&self.kernel()),
        };
        // SAFETY: the accesses stay inside buffers of these sizes.
        unsafe { loaded.run_with_prepacked(&bindings, &Pool::new(threads), store) }.unwrap();
        buffers
    }

    /// The variant; `None` without generated code.
    fn variant(&self) -> Option<&'static str> {
        Some(GeneratedGemm::new(&self.kernel(), &[])?.variant())
    }

    fn check(&self) {
        let [left, right, bias, found] = self.run(1);
        for threads in 2..=3 {
            assert_eq!(self.run(threads)[3], found, "{threads} threads");
        }
        let ([height, width], [down, across]) = (self.image, self.positions());
        let (side, depth) = (self.side, self.k());
        for (i, &found) in found.iter().enumerate() {
            let (y, x) = (i / across % down, i % across);
            let (batch, row) = (i / (across * down * self.rows), i / (across * down) % self.rows);
            let term = |k: usize| {
                let (channel, dy, dx) = (k / (side * side), k / side % side, k % side);
                let plane = (batch * self.channels + channel) * height * width;
                left[row * depth + k] * right[plane + (y + dy) * width + x + dx]
            };
            let sum: f32 = (0..depth).map(term).sum();
            let want = if self.body { sum + bias[row] } else { sum };
            assert_eq!(found, want, "batch {batch} row {row} at {y} {x}");
        }
    }
}

#[test]
fn windows_are_packed_or_read_by_indirection() {
    const PACKED: Option<&str> = Some("B packed ahead");
    const INDIRECT: Option<&str> = Some("indirect B");
    const TRANSPOSED: Option<&str> = Some("transposed convolution");
    // The variant on AVX-512, and on AVX2.
    for (rows, channels, side, image, variants) in [
        // Rows of 20 positions, of one vector, and of one more.
        (14, 5, 3, [17, 22], [INDIRECT, TRANSPOSED]),
        (40, 3, 3, [21, 18], [TRANSPOSED, TRANSPOSED]),
        (9, 4, 2, [23, 18], [INDIRECT, INDIRECT]),
        // In blocks.
        (10, 240, 3, [16, 22], [INDIRECT, INDIRECT]),
        (16, 240, 3, [16, 22], [INDIRECT, TRANSPOSED]),
        // Rows shorter than a vector, where no vector spans three rows; then some do.
        (30, 3, 3, [25, 16], [TRANSPOSED, TRANSPOSED]),
        (18, 3, 3, [25, 16], [INDIRECT, INDIRECT]),
        (30, 3, 3, [45, 11], [TRANSPOSED, TRANSPOSED]),
        (18, 3, 3, [45, 11], [PACKED, PACKED]),
        // Images of fewer positions than a chunk or a tile has.
        (33, 40, 3, [9, 9], [None, TRANSPOSED]),
        (48, 7, 3, [7, 4], [None, None]),
        // All in one row.
        (12, 3, 3, [3, 300], [INDIRECT, INDIRECT]),
        (24, 3, 3, [3, 300], [None, TRANSPOSED]),
        // As the machine decides.
        (700, 2, 3, [17, 22], [TRANSPOSED, TRANSPOSED]),
    ] {
        for (batch, body) in [(1, false), (3, true), (7, false)] {
            let windows = Windows { rows, batch, channels, side, image, body };
            windows.check();
            let expected = variants[!avx512_enabled() as usize];
            if let (Some(found), Some(expected)) = (windows.variant(), expected) {
                assert_eq!(found, expected, "{rows} {image:?}");
            }
        }
    }
}

#[test]
fn filters_are_prepacked_once_for_several_runs() {
    let windows = Windows { rows: 45, batch: 2, channels: 20, side: 3, image: [9, 11], body: true };
    let Some(gemm) = GeneratedGemm::new(&windows.kernel(), &[]) else { return };
    let transposed = gemm.variant() == "transposed convolution";
    assert_eq!(gemm.prepackable(), transposed.then_some(0));
    let results = [false, true].map(|packs| {
        let store = CountingStore { packs, ..Default::default() };
        let found = windows.run_with(2, Some(&store));
        assert_eq!(store.asked.get(), transposed as usize);
        found
    });
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], windows.run(1));
}
