//! The host's code generator: programs of single kernels for this machine.

use crate::bottleneck::bottlenecks;
use crate::{LoadedKernel, checked};
use girih_compile::CodeGen;
use girih_exec::{Bounds, Isa};
use girih_kernel::{Kernel, KernelProgram, Target};
use girih_runtime::{Bottleneck, Result};
use smallvec::SmallVec;
use std::sync::Arc;

/// Compiles kernels for the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostCodeGen;

/// A kernel as the host's code generator compiles it; loading does not change it.
pub struct HostProgram {
    pub(crate) name: String,
    pub(crate) kernel: LoadedKernel,
    /// The size in bytes of each buffer of the program that the kernel was verified in.
    pub(crate) bytes: Arc<[usize]>,
    /// In checked mode, the bounds of the program's buffers.
    pub(crate) bounds: Option<Arc<[Bounds]>>,
}

impl CodeGen for HostCodeGen {
    type Binary = HostProgram;

    fn target(&self) -> &'static Target {
        const {
            let (given, taken) = (Target::CPU.reduction, girih_exec::REDUCTION);
            assert!(given.block == taken.block && given.lanes == taken.lanes);
        }
        &Target::CPU
    }

    fn compile(&self, kernel: &Kernel, bytes: &Arc<[usize]>) -> Result<HostProgram> {
        // Each run binds a buffer to memory of at least its size.
        let of = |&bytes: &usize| Bounds::of(bytes);
        let bounds = checked::is_on().then(|| bytes.iter().map(of).collect());
        let (name, bytes) = (kernel.name.clone(), bytes.clone());
        Ok(HostProgram { name, kernel: LoadedKernel::new(kernel), bytes, bounds })
    }

    fn fingerprint(&self) -> String {
        format!("{} {} {:?}", env!("CARGO_PKG_VERSION"), env!("GIRIH_SOURCES"), Isa::best())
    }

    fn prepackable(&self, binary: &HostProgram) -> SmallVec<[usize; 1]> {
        binary.kernel.prepackable()
    }

    fn code(&self, binary: &HostProgram) -> Vec<Vec<u8>> {
        binary.kernel.code()
    }

    fn disassembler(&self) -> fn(&[u8]) -> String {
        crate::disassembly::disassemble
    }

    fn bottlenecks(
        &self,
        program: &KernelProgram,
        binaries: &[Arc<HostProgram>],
        addresses: &[Option<usize>],
    ) -> Result<Vec<Bottleneck>> {
        let threads = crate::pool()?.num_threads();
        let machine = girih_exec::tuning::machine();
        let kernels: Vec<&LoadedKernel> = binaries.iter().map(|binary| &binary.kernel).collect();
        Ok(bottlenecks(program, &kernels, addresses, threads, machine))
    }

    fn forget(&self) {
        crate::jit::forget();
    }
}
