//! GEMM: `C = A B`, with an epilogue on C and prologues on A and B.
//!
//! [`GeneratedGemm`] multiplies f32, halves and integers of up to 32 bits in generated
//! micro-kernels, on machines with AVX2 or AVX-512. [`RowwiseGemm`] is the same for the GEMMs of
//! kernels over rows. [`crate::strategy`] has the other ways to multiply, and chooses among all.
//!
//! A `Problem` describes the computation, and a `Variant` the loops and micro-kernels. `plan`
//! chooses the variant by one table. Most GEMMs are blocked (Goto and van de Geijn; BLIS). The
//! columns of B are divided into panels. Several panels form a slab, which is packed into the L2
//! cache and used by all row tiles. If a chunk has few row tiles, the first tile reads B in memory
//! and packs it for the others. Weights that many runs use stay packed (`prepacked`). A is packed
//! once for all chunks, or by each chunk if it is large, or read in memory if there are few columns.
//!
//! A convolution is a GEMM. The rows, the columns and K of an operand may each have any number of
//! strided dimensions, so the windows of an image are the B of a GEMM: the windows are packed
//! directly from the image (there is no im2col matrix), or read through an indirection if A has few
//! rows (`indirect`). On AVX2, the windows are the rows of the transposed GEMM, which reads them in
//! the images (`transposed`). A fused operand (prologue) is computed block by block as it is packed
//! (`prologue`).
//!
//! Halves are widened to f32 when they are read, accumulated in f32 and rounded once. (The bfloat16
//! dot-product instructions would flush subnormals and round twice per pair, and on Sapphire Rapids
//! they have half the throughput of these multiply-adds.) Each element is one chain of
//! multiply-adds for any blocking, so neither the number of threads nor the position of the element
//! changes its bits. With split-K (`split_k`), each element has one chain per part; a dot product
//! (`dots`) has one chain per lane. Integers are accumulated modulo 2^32 for every operand and
//! result dtype. GEMMs of bfloat16 with many rows, and all but the smallest of bytes, run on AMX
//! (`amx_vnni`) if the machine has it, which is several times as fast. Without AMX, GEMMs of bytes
//! run on VNNI if there is VNNI.

mod amx_vnni;
mod blocking;
mod chunk;
#[cfg(test)]
mod describe;
mod dots;
mod drive;
mod generated;
mod indirect;
mod integers;
mod memory;
mod microkernels;
mod operand;
mod pack;
mod panels;
mod plan;
mod prepacked;
mod problem;
mod prologue;
mod rowwise;
mod small;
mod split_k;
#[cfg(test)]
mod tests;
mod transposed;

pub(crate) use generated::GeneratedGemm;
pub(crate) use rowwise::RowwiseGemm;
