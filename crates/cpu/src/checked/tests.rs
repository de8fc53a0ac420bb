//! Kernels of every core whose buffers are too short by an element: checked mode finds the access
//! before it happens, in the portable executor and in generated code.

use super::*;
use girih_exec::{Prepared, Scratch};
use girih_kernel::{BufferKind, KernelProgram};

/// A program of one kernel per core, or form of it.
const PROGRAMS: [(&str, &str); 20] = [
    (
        "map",
        "b0 = argument 0: f32[64]\nb1 = f32[64]\nk over [64]\n  v0 = load b0[i0]\n  \
         v1 = exp(v0): f32\n  b1[i0] = v1\noutputs: [b1]",
    ),
    (
        "map of few points, a single call",
        "b0 = argument 0: f32[9]\nb1 = f32[9]\nk over [9]\n  v0 = load b0[i0]\n  \
         v1 = mul(v0, v0): f32\n  b1[i0] = v1\noutputs: [b1]",
    ),
    (
        "map that reads a scalar",
        "b0 = argument 0: f32[1]\nb1 = argument 1: f32[700]\nb2 = f32[700]\nk over [700]\n  \
         v0 = load b0[0]\n  v1 = load b1[i0]\n  v2 = mul(v0, v1): f32\n  b2[i0] = v2\noutputs: [b2]",
    ),
    (
        "map of halves in segments",
        "b0 = argument 0: f16[640]\nb1 = argument 1: f16[80]\nb2 = f16[640]\nk over [8, 80]\n  \
         v0 = load b0[80*i0 + i1]\n  v1 = load b1[i1]\n  v2 = add(v0, v1): f16\n  \
         b2[80*i0 + i1] = v2\noutputs: [b2]",
    ),
    (
        "transposed map",
        "b0 = argument 0: f32[6400]\nb1 = f32[6400]\nk over [80, 80]\n  v0 = load b0[i0 + 80*i1]\n  \
         v1 = neg(v0): f32\n  b1[80*i0 + i1] = v1\noutputs: [b1]",
    ),
    (
        "map backwards",
        "b0 = argument 0: i16[77]\nb1 = i16[77]\nk over [77]\n  v0 = load b0[76 - i0]\n  \
         v1 = neg(v0): i16\n  b1[i0] = v1\noutputs: [b1]",
    ),
    (
        "pooling, whose elements share an address",
        "b0 = argument 0: f32[130]\nb1 = f32[64]\nk over [64]\n  v0 = load b0[2*i0]\n  \
         v1 = load b0[2*i0 + 1]\n  v2 = load b0[2*i0 + 3]\n  v3 = maximum(v0, v1): f32\n  \
         v4 = maximum(v3, v2): f32\n  b1[i0] = v4\noutputs: [b1]",
    ),
    (
        "gather",
        "b0 = argument 0: f32[8]\nb1 = argument 1: i64[5]\nb2 = f32[5]\nk over [5]\n  \
         v0 = load b1[i0]\n  v1 = gather b0[0] + 1*v0 of 8\n  b2[i0] = v1\noutputs: [b2]",
    ),
    (
        "reduction along rows",
        "b0 = argument 0: f32[4200]\nb1 = f32[6]\nk over [6 | 700]\n  prologue:\n    \
         v0 = load b0[700*i0 + i1]\n    v1 = mul(v0, v0): f32\n  reduce sum v1\n  v0 = core: f32\n  \
         b1[i0] = v0\noutputs: [b1]",
    ),
    (
        "reduction along columns",
        "b0 = argument 0: f64[4200]\nb1 = f64[700]\nk over [700 | 6]\n  prologue:\n    \
         v0 = load b0[i0 + 700*i1]\n  reduce max v0\n  v0 = core: f64\n  b1[i0] = v0\noutputs: [b1]",
    ),
    (
        "reduction of few elements",
        "b0 = argument 0: f32[96]\nb1 = f32[32]\nk over [32 | 3]\n  prologue:\n    \
         v0 = load b0[3*i0 + i1]\n  reduce sum v0\n  v0 = core: f32\n  b1[i0] = v0\noutputs: [b1]",
    ),
    (
        "position of the maximum",
        "b0 = argument 0: f32[90]\nb1 = i64[3]\nk over [3 | 30]\n  prologue:\n    \
         v0 = load b0[30*i0 + i1]\n  reduce argmax v0\n  v0 = core: i64\n  b1[i0] = v0\noutputs: [b1]",
    ),
    (
        "gemm of f32",
        "b0 = argument 0: f32[120]\nb1 = argument 1: f32[150]\nb2 = argument 2: f32[10]\n\
         b3 = f32[80]\nk over [8, 10 | 15]\n  matmul b0[15*i0 + i2] by b1[10*i2 + i1]\n  \
         v0 = core: f32\n  v1 = load b2[i1]\n  v2 = add(v0, v1): f32\n  b3[10*i0 + i1] = v2\n\
         outputs: [b3]",
    ),
    (
        "gemm of f64",
        "b0 = argument 0: f64[120]\nb1 = argument 1: f64[150]\nb2 = f64[80]\nk over [8, 10 | 15]\n  \
         matmul b0[15*i0 + i2] by b1[10*i2 + i1]\n  v0 = core: f64\n  b2[10*i0 + i1] = v0\n\
         outputs: [b2]",
    ),
    (
        "gemm of i64",
        "b0 = argument 0: i64[120]\nb1 = argument 1: i64[150]\nb2 = i64[80]\nk over [8, 10 | 15]\n  \
         matmul b0[15*i0 + i2] by b1[10*i2 + i1]\n  v0 = core: i64\n  b2[10*i0 + i1] = v0\n\
         outputs: [b2]",
    ),
    (
        "scatter of elements",
        "b0 = argument 0: i64[3]\nb1 = argument 1: f32[3]\nb2 = f32[4]\nk over [3]\n  \
         scatter_add + 1*b0[i0] of 4, independent []\n  v0 = load b1[i0]\n  b2[0] = v0\noutputs: [b2]",
    ),
    (
        "scatter of rows",
        "b0 = argument 0: i64[3]\nb1 = argument 1: f32[48]\nb2 = f32[64]\nk over [3, 16]\n  \
         scatter_add + 16*b0[i0] of 4, independent [1]\n  v0 = load b1[16*i0 + i1]\n  b2[i1] = v0\n\
         outputs: [b2]",
    ),
    (
        "rows",
        "b0 = argument 0: f32[320]\nb1 = f32[8]\nb2 = f32[320]\nk over [8]\n  \
         local b1: 4 bytes a row\n  most over [8 | 40]\n    prologue:\n      v0 = load b0[40*i0 + i1]\n    \
         reduce max v0\n    v0 = core: f32\n    b1[i0] = v0\n  less over [8, 40]\n    \
         v0 = load b0[40*i0 + i1]\n    v1 = load b1[i0]\n    v2 = sub(v0, v1): f32\n    \
         b2[40*i0 + i1] = v2\noutputs: [b2]",
    ),
    (
        "library",
        "b0 = argument 0: f32[8]\nb1 = i64[8]\nk over [2]\n  _, b1[4] = sort(result=0, size=0)(b0[4])\n\
         outputs: [b1]",
    ),
    (
        "scan",
        "b0 = argument 0: f32[4]\nb1 = argument 1: f32[36]\nb2 = f32[4]\nb3 = u8[512]\nk over []\n  \
         b2 = scan of 9 parts with 1 carries and 1 slices(b0, b1) in b3 {\n    \
         b0 = argument 0: f32[4]\n    b1 = argument 1: f32[4]\n    b2 = f32[4]\n    add over [4]\n      \
         v0 = load b0[i0]\n      v1 = load b1[i0]\n      v2 = add(v0, v1): f32\n      b2[i0] = v2\n    \
         outputs: [b2]\n  }\noutputs: [b2]",
    ),
];

/// Runs the only kernel of a program, portable or generated, with these bounds; the buffers
/// themselves have room for what it does.
fn outcome(program: &KernelProgram, bounds: &[Bounds], portable: bool) -> Result<(), ExecError> {
    let bytes = |i: usize| program.buffers[i].size_bytes();
    let mut memory: Vec<Guarded> = (0..bounds.len()).map(|i| Guarded::new(bytes(i))).collect();
    for (i, guarded) in memory.iter_mut().enumerate() {
        // SAFETY: of the memory's size. As indices, the bytes are -1: the last element of an axis.
        unsafe { guarded.start().write_bytes(0xff, bytes(i)) };
    }
    let buffers: Vec<*mut u8> = memory.iter_mut().map(Guarded::start).collect();
    let kernel = &program.kernels[0];
    let prepared = Prepared::new(kernel);
    let mut workspace = Guarded::new(prepared.workspace_bytes());
    let (workspace, bounds) = (workspace.start(), Some(bounds));
    let bindings = Bindings { buffers: &buffers, arguments: &[], workspace, bounds };
    // SAFETY: the buffers have the sizes of the verified program.
    unsafe {
        match portable {
            true => prepared.run(&bindings, &mut Scratch::new()),
            false => LoadedKernel::checked(kernel).run(&bindings, &Pool::new(2)),
        }
    }
}

#[test]
fn a_buffer_without_its_last_or_first_element_is_found_in_every_core() {
    for (name, text) in PROGRAMS {
        let program = KernelProgram::parse(text).unwrap_or_else(|e| panic!("{name}: {e}\n{text}"));
        let whole: Vec<Bounds> =
            program.buffers.iter().map(|buffer| Bounds::of(buffer.size_bytes())).collect();
        let kernel = &program.kernels[0];
        let named: Vec<BufferId> = kernel.reads().chain(kernel.writes()).collect();
        for portable in [true, false] {
            let as_whole = outcome(&program, &whole, portable);
            assert_eq!(as_whole, Ok(()), "{name}, portable: {portable}\n{text}");
            for id in named.iter().map(|id| id.0 as usize) {
                // Not every byte of a workspace is used.
                let size = match program.buffers[id].dtype {
                    girih_ir::DType::U8 => program.buffers[id].numel,
                    dtype => dtype.size(),
                };
                let mut shorter = whole.clone();
                shorter[id].end -= size as isize;
                let found = outcome(&program, &shorter, portable);
                let error = found.expect_err(&format!("{name}: b{id} too short, {portable}"));
                let ExecError::OutsideOfBuffer { buffer, bytes, bounds } = &error else {
                    panic!("{name}: {error}")
                };
                assert!(bytes.end > bounds.end, "{name}: {error}");
                let inside = matches!(kernel.core, Core::Control(_));
                assert!(*buffer == id || inside, "{name}: {error}, not of b{id}");
            }
        }
    }
}

/// A kernel that has a local runs as if the local had memory elsewhere, as independent parts of one
/// row did.
#[test]
fn a_local_without_memory_is_found() {
    let text = "b0 = argument 0: f32[33]\nb1 = f32[33]\nb2 = f32[33]\nk over [33]\n  \
                v0 = load b0[i0]\n  v1 = exp(v0): f32\n  b1[i0] = v1\n  b2[i0] = v1\n\
                outputs: [b1, b2]";
    let program = KernelProgram::parse(text).unwrap();
    assert!(program.buffers.iter().skip(1).all(|b| b.kind == BufferKind::Computed));
    let mut bounds = vec![Bounds::of(132); 3];
    bounds[1] = Bounds::NOTHING;
    for portable in [true, false] {
        let error = outcome(&program, &bounds, portable).unwrap_err();
        let text = "bytes 0 to 132 of buffer b1 are outside of its bounds 0 to 0";
        assert!(error.to_string().starts_with(text), "{error}");
    }
}

#[test]
fn damage_of_guard_bytes_and_operands_is_found() {
    for (at, want) in [(-1, Some(-1)), (-1024, Some(-1024)), (0, None), (9, None), (10, Some(10))] {
        let mut memory = Guarded::new(10);
        // SAFETY: within the guard bytes of the memory.
        unsafe { *memory.start().offset(at) = 1 };
        assert_eq!(memory.damage(), want, "{at}");
    }
    let write = |memory: *mut u8, at: usize| {
        // SAFETY: as above.
        unsafe { *memory.add(at) = 1 }
    };
    with_guarded(100, |memory| write(memory, 99));
    assert_eq!(reported(), Ok(()));
    with_guarded(100, |memory| write(memory, 100));
    let error = reported().unwrap_err().to_string();
    assert!(error.starts_with("byte 100 of temporary memory of 100 bytes"), "{error}");
    // An operand that the kernel changes, and one that it does not.
    let mut operand = [7u8; 64];
    for (written, changes, sound) in
        [(false, false, true), (false, true, false), (true, true, true)]
    {
        let mut memory = Guarded::new(64);
        // SAFETY: both have 64 bytes.
        unsafe { memory.start().copy_from_nonoverlapping(operand.as_ptr(), 64) };
        if changes {
            write(memory.start(), 3);
        }
        let address = operand.as_mut_ptr();
        let copy = Copied { address, buffer: 5, bytes: 64, written, memory };
        // SAFETY: the operand has 64 bytes, and only this thread uses them.
        let outcome = unsafe { copy.finish() };
        assert_eq!(outcome.is_ok(), sound, "{outcome:?}");
    }
    assert_eq!(operand[3], 1, "what the kernel may write is copied back");
}
