//! Programs that run as a whole on the calling thread: custom ops in the reference evaluator, and
//! tests. They run in checked mode.

use super::{Bindings, Bounds, ExecError, Line, Prepared, Scratch};
use girih_kernel::verify::verify;
use girih_kernel::{BufferId, BufferKind, Kernel, KernelProgram};

/// Runs a program on the calling thread and returns the bytes of its outputs. `arguments` has the
/// bytes of the arguments that are buffers, and `scalars` the words of the others (as
/// [`Bindings::arguments`]), both by argument number.
///
/// Errors: those of the kernels; [`ExecError::OutsideOfBuffer`].
/// Panics: if the program is not well formed, or an argument is missing or has another size.
pub fn run_program(
    program: &KernelProgram,
    arguments: &[impl AsRef<[u8]>],
    scalars: &[[u64; 2]],
) -> Result<Vec<Vec<u8>>, ExecError> {
    verify(program).expect("the program is well formed");
    let mut memory = ProgramMemory::new(program, arguments);
    let mut scratch = Scratch::new();
    for kernel in &program.kernels {
        // SAFETY: a kernel of the verified program.
        unsafe { memory.run(kernel, scalars, &mut scratch)? };
    }
    Ok(program.outputs.iter().map(|&id| memory.bytes(id).to_vec()).collect())
}

/// The buffers of a program. The bytes of a computed buffer are 0xff until a kernel writes them.
pub(crate) struct ProgramMemory {
    buffers: Vec<Vec<Line>>,
    /// The size of each buffer in bytes.
    sizes: Vec<usize>,
}

impl ProgramMemory {
    /// Buffers with these arguments.
    pub fn new(program: &KernelProgram, arguments: &[impl AsRef<[u8]>]) -> ProgramMemory {
        let sizes: Vec<usize> = program.buffers.iter().map(|b| b.size_bytes()).collect();
        let mut buffers: Vec<Vec<Line>> = sizes.iter().map(|&size| lines(size)).collect();
        for (buffer, memory) in program.buffers.iter().zip(&mut buffers) {
            if let BufferKind::Argument(position) = buffer.kind {
                let bytes = arguments[position].as_ref();
                assert_eq!(bytes.len(), buffer.size_bytes(), "the bytes of argument {position}");
                let start = memory.as_mut_ptr().cast::<u8>();
                // SAFETY: the memory has at least as many bytes as the buffer.
                unsafe { start.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            }
        }
        ProgramMemory { buffers, sizes }
    }

    /// Runs a kernel.
    ///
    /// # Safety
    /// The kernel is one of the program, which is verified.
    pub unsafe fn run(
        &mut self,
        kernel: &Kernel,
        scalars: &[[u64; 2]],
        scratch: &mut Scratch,
    ) -> Result<(), ExecError> {
        let starts: Vec<*mut u8> =
            self.buffers.iter_mut().map(|lines| lines.as_mut_ptr().cast()).collect();
        let prepared = Prepared::new(kernel);
        let mut workspace = lines(prepared.workspace_bytes());
        let workspace = workspace.as_mut_ptr().cast();
        let bounds: Vec<Bounds> = self.bounds_of(kernel);
        let bounds = Some(&bounds[..]);
        let bindings = Bindings { buffers: &starts, arguments: scalars, workspace, bounds };
        // SAFETY: each buffer has its own memory of its size, aligned to 64, which only this thread
        // uses; so has the workspace.
        unsafe { prepared.run(&bindings, scratch) }
    }

    /// The bounds of the buffers that a kernel names. Locals have none, since the kernel must provide
    /// their memory itself.
    fn bounds_of(&self, kernel: &Kernel) -> Vec<Bounds> {
        let mut bounds = vec![Bounds::NOTHING; self.sizes.len()];
        for id in kernel.reads().chain(kernel.writes()) {
            bounds[id.0 as usize] = Bounds::of(self.sizes[id.0 as usize]);
        }
        bounds
    }

    /// The bytes of a buffer.
    pub fn bytes(&self, id: BufferId) -> &[u8] {
        let at = id.0 as usize;
        // SAFETY: the memory has at least as many bytes as the buffer.
        unsafe { std::slice::from_raw_parts(self.buffers[at].as_ptr().cast(), self.sizes[at]) }
    }
}

/// At least that many bytes, all 0xff.
fn lines(bytes: usize) -> Vec<Line> {
    vec![Line([0xff; 64]); bytes.div_ceil(64)]
}
