//! An x86-64 assembler with the instructions that generated kernels need: a few on pointers and
//! counts, and vector instructions in VEX encoding (Intel SDM volume 2, 2.3: registers 0 to 15) and
//! in EVEX encoding (2.7: registers 0 to 31, masks, broadcasts from memory).
//!
//! Bytes are appended in order; jumps and references to constants are patched once their targets
//! are known.

/// A general register by its number: `rax` 0, `rcx` 1, `rdx` 2, `rbx` 3, `rsp` 4, `rbp` 5, `rsi` 6,
/// `rdi` 7, then `r8` to `r15`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gpr(pub u8);

/// An operand in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mem {
    /// `[base + index * scale + displacement]` with a scale of 1, 2, 4 or 8.
    Indexed { base: Gpr, index: Gpr, scale: u8, displacement: i32 },
    /// `[base + displacement]`.
    Offset { base: Gpr, displacement: i32 },
    /// The 32-bit element at `[base + displacement]`, broadcast to all lanes.
    Broadcast { base: Gpr, displacement: i32 },
    /// The constant with that number, in all lanes.
    Constant(u16),
    /// The constant with that number, as a single element: for instructions that broadcast it.
    Single(u16),
}

/// The last source of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Source {
    /// A vector register.
    Reg(u8),
    /// Memory.
    Mem(Mem),
}

/// Opcode map of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Map {
    M0F = 1,
    M0F38 = 2,
    M0F3A = 3,
}

/// Implied prefix of a vector instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Prefix {
    None = 0,
    P66 = 1,
    PF3 = 2,
    PF2 = 3,
}

/// Vector widths, with their encodings in prefixes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bits {
    B128 = 0,
    B256 = 1,
    B512 = 2,
}

/// The encoding of a vector instruction without its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct VectorOp {
    pub map: Map,
    pub prefix: Prefix,
    pub opcode: u8,
    /// Bit W, which usually means that lanes have 64 bits.
    pub wide: bool,
    /// The vector width.
    pub bits: Bits,
}

/// Masking of a vector instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Masking {
    /// The mask register; 0 for none.
    pub mask: u8,
    /// Whether masked-off lanes become zero; otherwise they are unchanged.
    pub zero: bool,
}

/// A target of jumps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Label(usize);

/// Conditions of jumps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Condition {
    Below = 2,
    NotBelow = 3,
    Equal = 4,
    NotEqual = 5,
    BelowOrEqual = 6,
}

/// The code that is being written.
#[derive(Default)]
pub(super) struct Assembler {
    code: Vec<u8>,
    /// The targets of the labels that are bound.
    labels: Vec<Option<usize>>,
    /// The positions of 32-bit distances to labels, which are patched later.
    jumps: Vec<(usize, Label)>,
    /// The positions of 32-bit distances to constants, and the end of the instruction, from which
    /// the distances count.
    references: Vec<(usize, usize, u16)>,
}

impl Assembler {
    fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend_from_slice(bytes);
    }

    /// A new label, which must be bound later.
    pub fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to the current position.
    pub fn bind(&mut self, label: Label) {
        self.labels[label.0] = Some(self.code.len());
    }

    /// Jumps if the condition holds.
    pub fn jump_if(&mut self, condition: Condition, label: Label) {
        self.bytes(&[0x0f, 0x80 | condition as u8]);
        self.jumps.push((self.code.len(), label));
        self.bytes(&[0; 4]);
    }

    /// Pads the code to a multiple of `to` bytes with as few no-operations as possible.
    pub fn align(&mut self, to: usize) {
        // Forms of one to nine bytes (Intel SDM volume 2B, NOP).
        const FORMS: [&[u8]; 9] = [
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0],
            &[0x0f, 0x1f, 0x40, 0],
            &[0x0f, 0x1f, 0x44, 0, 0],
            &[0x66, 0x0f, 0x1f, 0x44, 0, 0],
            &[0x0f, 0x1f, 0x80, 0, 0, 0, 0],
            &[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
            &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        ];
        let mut missing = self.code.len().next_multiple_of(to) - self.code.len();
        while missing > 0 {
            let bytes = missing.min(FORMS.len());
            self.bytes(FORMS[bytes - 1]);
            missing -= bytes;
        }
    }

    // General registers.

    fn rex(reg: u8, rm: u8) -> u8 {
        0x48 | (reg >> 3) << 2 | rm >> 3
    }

    /// `op reg, rm` on 64 bits.
    fn op_rr(&mut self, opcode: u8, rm: Gpr, reg: Gpr) {
        self.bytes(&[Self::rex(reg.0, rm.0), opcode, 0xc0 | (reg.0 & 7) << 3 | rm.0 & 7]);
    }

    /// `op rm, value` on 64 bits.
    fn op_imm(&mut self, extension: u8, rm: Gpr, value: i32) {
        let operand = 0xc0 | extension << 3 | rm.0 & 7;
        match i8::try_from(value) {
            Ok(short) => self.bytes(&[Self::rex(0, rm.0), 0x83, operand, short as u8]),
            Err(_) => {
                self.bytes(&[Self::rex(0, rm.0), 0x81, operand]);
                self.bytes(&value.to_le_bytes());
            }
        }
    }

    /// `to += value`.
    pub fn add(&mut self, to: Gpr, value: i32) {
        self.op_imm(0, to, value);
    }

    /// `to -= value`; sets the condition "below" if `value` was greater than `to`.
    pub fn sub(&mut self, to: Gpr, value: i32) {
        self.op_imm(5, to, value);
    }

    /// `to += by`.
    pub fn add_reg(&mut self, to: Gpr, by: Gpr) {
        self.op_rr(0x01, to, by);
    }

    /// Prefetches the line at `[base + displacement]` into all cache levels.
    pub fn prefetch(&mut self, base: Gpr, displacement: i32) {
        self.bytes(&[Self::rex(0, base.0), 0x0f, 0x18]);
        // The hint with number 1 is `prefetcht0`.
        self.address(1, Mem::Offset { base, displacement }, 0);
    }

    /// Prefetches the line at `[base + index * scale + displacement]`.
    pub fn prefetch_at(&mut self, base: Gpr, index: Gpr, scale: u8, displacement: i32) {
        self.bytes(&[0x40 | (index.0 >> 3) << 1 | base.0 >> 3, 0x0f, 0x18]);
        self.indexed(1, base, index, scale, displacement);
    }

    /// `to -= by`; sets the condition "equal" if the result is 0.
    pub fn sub_reg(&mut self, to: Gpr, by: Gpr) {
        self.op_rr(0x29, to, by);
    }

    /// Compares two registers; sets the condition "below" if `a < b`, unsigned.
    pub fn compare(&mut self, a: Gpr, b: Gpr) {
        self.op_rr(0x39, a, b);
    }

    /// `to = 0`.
    pub fn zero(&mut self, to: Gpr) {
        self.op_rr(0x31, to, to);
    }

    /// `to = value`.
    pub fn set(&mut self, to: Gpr, value: u64) {
        self.bytes(&[0x48 | to.0 >> 3, 0xb8 | to.0 & 7]);
        self.bytes(&value.to_le_bytes());
    }

    /// `to = [base + displacement]`.
    pub fn load(&mut self, to: Gpr, base: Gpr, displacement: i32) {
        self.bytes(&[Self::rex(to.0, base.0), 0x8b]);
        self.address(to.0, Mem::Offset { base, displacement }, 0);
    }

    /// `[base + displacement] = from`.
    pub fn store(&mut self, base: Gpr, displacement: i32, from: Gpr) {
        self.bytes(&[Self::rex(from.0, base.0), 0x89]);
        self.address(from.0, Mem::Offset { base, displacement }, 0);
    }

    /// `[base + displacement] += by`.
    pub fn add_to_memory(&mut self, base: Gpr, displacement: i32, by: Gpr) {
        self.bytes(&[Self::rex(by.0, base.0), 0x01]);
        self.address(by.0, Mem::Offset { base, displacement }, 0);
    }

    /// `to = base + displacement`.
    pub fn lea(&mut self, to: Gpr, base: Gpr, displacement: i32) {
        self.bytes(&[Self::rex(to.0, base.0), 0x8d]);
        self.address(to.0, Mem::Offset { base, displacement }, 0);
    }

    /// Calls the function at that address; `rax` is clobbered.
    pub fn call(&mut self, address: usize) {
        self.bytes(&[0x48, 0xb8]);
        self.bytes(&(address as u64).to_le_bytes());
        self.bytes(&[0xff, 0xd0]);
    }

    /// Jumps.
    pub fn jump(&mut self, label: Label) {
        self.bytes(&[0xe9]);
        self.jumps.push((self.code.len(), label));
        self.bytes(&[0; 4]);
    }

    /// `to = ` the mask's 16 bits; `to` is one of the first eight.
    pub fn mask_to(&mut self, to: Gpr, mask: u8) {
        self.bytes(&[0xc5, 0xf8, 0x93, 0xc0 | to.0 << 3 | mask]);
    }

    /// Sets the condition "equal" if none of the mask's 16 bits is set.
    pub fn mask_test(&mut self, mask: u8) {
        self.bytes(&[0xc5, 0xf8, 0x98, 0xc0 | mask << 3 | mask]);
    }

    /// `[base + displacement] = ` the mask's 16 bits.
    pub fn mask_store(&mut self, mask: u8, base: Gpr, displacement: i32) {
        self.bytes(&[0xc5, 0xf8, 0x91]);
        self.address(mask, Mem::Offset { base, displacement }, 0);
    }

    /// `mask = [base + displacement]`.
    pub fn mask_load(&mut self, mask: u8, base: Gpr, displacement: i32) {
        self.bytes(&[0xc5, 0xf8, 0x90]);
        self.address(mask, Mem::Offset { base, displacement }, 0);
    }

    /// `to = from` on 64 bits.
    pub fn copy(&mut self, to: Gpr, from: Gpr) {
        self.op_rr(0x89, to, from);
    }

    /// Sets the condition "equal" if the register is 0.
    pub fn test(&mut self, reg: Gpr) {
        self.op_rr(0x85, reg, reg);
    }

    /// `to = [base + index * bytes]` for 1, 2, 4 or 8 bytes; the other bytes of `to` are
    /// unspecified.
    pub fn load_element(&mut self, to: Gpr, from: Mem, bytes: u8) {
        self.element(if bytes == 1 { 0x8a } else { 0x8b }, to, from, bytes);
    }

    /// `[base + index * bytes] = from`, for that many bytes.
    pub fn store_element(&mut self, from: Gpr, to: Mem, bytes: u8) {
        self.element(if bytes == 1 { 0x88 } else { 0x89 }, from, to, bytes);
    }

    fn element(&mut self, opcode: u8, reg: Gpr, mem: Mem, bytes: u8) {
        if bytes == 2 {
            self.bytes(&[0x66]);
        }
        let (base, index) = match mem {
            Mem::Indexed { base, index, .. } => (base.0 >> 3, index.0 >> 3),
            Mem::Offset { base, .. } => (base.0 >> 3, 0),
            _ => unreachable!("elements are addressed by registers"),
        };
        let wide = (bytes == 8) as u8;
        let rex = 0x40 | wide << 3 | (reg.0 >> 3) << 2 | index << 1 | base;
        self.bytes(&[rex, opcode]);
        self.address(reg.0, mem, 0);
    }

    /// `to = base + index * scale + displacement`.
    pub fn lea_indexed(&mut self, to: Gpr, base: Gpr, index: Gpr, scale: u8, displacement: i32) {
        let rex = 0x48 | (to.0 >> 3) << 2 | (index.0 >> 3) << 1 | base.0 >> 3;
        self.bytes(&[rex, 0x8d]);
        self.indexed(to.0, base, index, scale, displacement);
    }

    /// The operand `[base + index * scale + displacement]`.
    fn indexed(&mut self, reg: u8, base: Gpr, index: Gpr, scale: u8, displacement: i32) {
        let sib = (scale.trailing_zeros() as u8) << 6 | (index.0 & 7) << 3 | base.0 & 7;
        self.bytes(&[0x84 | (reg & 7) << 3, sib]);
        self.bytes(&displacement.to_le_bytes());
    }

    /// Orders non-temporal stores before this point before all later stores.
    pub fn store_fence(&mut self) {
        self.bytes(&[0x0f, 0xae, 0xf8]);
    }

    /// Clears the upper halves of vector registers.
    pub fn clear_upper(&mut self) {
        self.bytes(&[0xc5, 0xf8, 0x77]);
    }

    /// Sets the `n` lowest of 32 bits of the mask register, or all bits if `n` is greater than 32.
    pub fn low_bits(&mut self, mask: u8, n: Gpr, scratch: Gpr) {
        // mov scratch, -1 (sign-extended); bzhi scratch, scratch, n; kmovd mask, scratch
        self.bytes(&[Self::rex(0, scratch.0), 0xc7, 0xc0 | scratch.0 & 7, 0xff, 0xff, 0xff, 0xff]);
        let rxb = 0xe2 & !((scratch.0 >> 3) << 7) & !((scratch.0 >> 3) << 5);
        let operand = !n.0 & 15;
        self.bytes(&[0xc4, rxb, operand << 3, 0xf5, 0xc0 | (scratch.0 & 7) << 3 | scratch.0 & 7]);
        let b = if scratch.0 > 7 { 0xc1 } else { 0xe1 };
        self.bytes(&[0xc4, b, 0x7b, 0x92, 0xc0 | mask << 3 | scratch.0 & 7]);
    }

    /// Saves a register on the stack.
    pub fn push(&mut self, reg: Gpr) {
        if reg.0 > 7 {
            self.bytes(&[0x41]);
        }
        self.bytes(&[0x50 | reg.0 & 7]);
    }

    /// Restores a register from the stack.
    pub fn pop(&mut self, reg: Gpr) {
        if reg.0 > 7 {
            self.bytes(&[0x41]);
        }
        self.bytes(&[0x58 | reg.0 & 7]);
    }

    /// `rbp = rsp`, and allocates that many bytes below, aligned to 64.
    pub fn enter_frame(&mut self, bytes: i32) {
        self.bytes(&[0x48, 0x89, 0xe5]);
        self.op_imm(5, Gpr(4), bytes);
        // and rsp, -64
        self.bytes(&[0x48, 0x83, 0xe4, 0xc0]);
    }

    /// `rsp = rbp`.
    pub fn leave_frame(&mut self) {
        self.bytes(&[0x48, 0x89, 0xec]);
    }

    /// Clears the upper halves of vector registers and returns.
    pub fn leave(&mut self) {
        self.bytes(&[0xc5, 0xf8, 0x77, 0xc3]);
    }

    // Vectors.

    /// Like [`Assembler::evex`], in VEX encoding with registers 0 to 15. A constant in memory is a
    /// whole vector.
    pub fn vex(&mut self, op: VectorOp, dst: u8, a: u8, b: Source, imm: Option<u8>) {
        let (x, low) = match b {
            Source::Reg(reg) => (0, reg >> 3),
            Source::Mem(Mem::Indexed { base, index, .. }) => (index.0 >> 3, base.0 >> 3),
            Source::Mem(Mem::Offset { base, .. }) => (0, base.0 >> 3),
            Source::Mem(Mem::Constant(_) | Mem::Single(_)) => (0, 0),
            Source::Mem(Mem::Broadcast { .. }) => unreachable!("VEX has no such operands"),
        };
        let first = (!dst >> 3 & 1) << 7 | (!x & 1) << 6 | (!low & 1) << 5 | op.map as u8;
        let second = (op.wide as u8) << 7 | (!a & 15) << 3 | (op.bits as u8) << 2 | op.prefix as u8;
        self.bytes(&[0xc4, first, second, op.opcode]);
        match b {
            Source::Reg(reg) => self.bytes(&[0xc0 | (dst & 7) << 3 | reg & 7]),
            Source::Mem(mem) => self.address(dst & 7, mem, imm.is_some() as usize),
        }
        self.code.extend(imm);
    }

    /// `dst = op(a, b)`; `dst` or `a` may be an opcode extension where the instruction requires it,
    /// and `a` is 0 if the instruction has no such operand.
    pub fn evex(
        &mut self,
        op: VectorOp,
        dst: u8,
        a: u8,
        b: Source,
        masking: Masking,
        imm: Option<u8>,
    ) {
        let (x, low, broadcast) = match b {
            Source::Reg(reg) => (reg >> 4 & 1, reg >> 3 & 1, false),
            Source::Mem(Mem::Indexed { base, index, .. }) => (index.0 >> 3, base.0 >> 3, false),
            Source::Mem(Mem::Offset { base, .. }) => (0, base.0 >> 3, false),
            Source::Mem(Mem::Broadcast { base, .. }) => (0, base.0 >> 3, true),
            Source::Mem(Mem::Constant(_)) => (0, 0, true),
            Source::Mem(Mem::Single(_)) => (0, 0, false),
        };
        let p0 = (!dst >> 3 & 1) << 7
            | (!x & 1) << 6
            | (!low & 1) << 5
            | (!dst >> 4 & 1) << 4
            | op.map as u8;
        let p1 = (op.wide as u8) << 7 | (!a & 15) << 3 | 1 << 2 | op.prefix as u8;
        let p2 = (masking.zero as u8) << 7
            | (op.bits as u8) << 5
            | (broadcast as u8) << 4
            | (!a >> 4 & 1) << 3
            | masking.mask;
        self.bytes(&[0x62, p0, p1, p2, op.opcode]);
        match b {
            Source::Reg(reg) => self.bytes(&[0xc0 | (dst & 7) << 3 | reg & 7]),
            Source::Mem(mem) => self.address(dst & 7, mem, imm.is_some() as usize),
        }
        self.code.extend(imm);
    }

    /// Emits ModRM, SIB and displacement of a memory operand; `after` bytes of the instruction
    /// follow.
    fn address(&mut self, reg: u8, mem: Mem, after: usize) {
        let reg = (reg & 7) << 3;
        match mem {
            Mem::Indexed { base, index, scale, displacement } => {
                let scale = scale.trailing_zeros() as u8;
                let sib = scale << 6 | (index.0 & 7) << 3 | base.0 & 7;
                // A base register with number 5 has no encoding without displacement.
                if displacement != 0 || base.0 & 7 == 5 {
                    self.bytes(&[0x80 | reg | 4, sib]);
                    self.bytes(&displacement.to_le_bytes());
                } else {
                    self.bytes(&[reg | 4, sib]);
                }
            }
            Mem::Offset { base, displacement } | Mem::Broadcast { base, displacement } => {
                self.bytes(&[0x80 | reg | base.0 & 7]);
                if base.0 & 7 == 4 {
                    self.bytes(&[0x24]);
                }
                self.bytes(&displacement.to_le_bytes());
            }
            Mem::Constant(number) | Mem::Single(number) => {
                self.bytes(&[reg | 5]);
                let at = self.code.len();
                self.references.push((at, at + 4 + after, number));
                self.bytes(&[0; 4]);
            }
        }
    }

    /// `to = a`'s 16 bits shifted left.
    pub fn mask_left(&mut self, to: u8, a: u8, by: u8) {
        self.bytes(&[0xc4, 0xe3, 0xf9, 0x32, 0xc0 | to << 3 | a, by]);
    }

    /// `to = a`'s 32 bits shifted right.
    pub fn mask_right(&mut self, to: u8, a: u8, by: u8) {
        self.bytes(&[0xc4, 0xe3, 0x79, 0x31, 0xc0 | to << 3 | a, by]);
    }

    /// `to = op(a, b)` on masks of 16 lanes.
    pub fn mask_op(&mut self, opcode: u8, to: u8, a: u8, b: u8) {
        self.bytes(&[0xc5, (!a & 15) << 3 | 0x84, opcode, 0xc0 | to << 3 | b]);
    }

    /// `to = !a` on masks of 16 lanes.
    pub fn mask_not(&mut self, to: u8, a: u8) {
        self.bytes(&[0xc5, 0xf8, 0x44, 0xc0 | to << 3 | a]);
    }

    /// The code, followed by the constants: little-endian bytes, each aligned to its size.
    ///
    /// Panics: if a label that is jumped to was not bound.
    pub fn finish(mut self, constants: &[Vec<u8>]) -> Vec<u8> {
        // Larger constants first, to reduce padding.
        let mut order: Vec<usize> = (0..constants.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(constants[i].len()));
        let mut places = vec![0; constants.len()];
        let mut pool = self.code.len();
        for &i in &order {
            pool = pool.next_multiple_of(constants[i].len());
            places[i] = pool;
            pool += constants[i].len();
        }
        for (at, end, number) in std::mem::take(&mut self.references) {
            self.patch(at, end, places[number as usize]);
        }
        for (at, label) in std::mem::take(&mut self.jumps) {
            let target = self.labels[label.0].expect("every label is bound");
            self.patch(at, at + 4, target);
        }
        for i in order {
            self.code.resize(places[i], 0x90);
            self.code.extend_from_slice(&constants[i]);
        }
        self.code
    }

    fn patch(&mut self, at: usize, from: usize, to: usize) {
        let distance = to as i64 - from as i64;
        let distance = i32::try_from(distance).expect("code is far shorter than 2 GiB");
        self.code[at..at + 4].copy_from_slice(&distance.to_le_bytes());
    }
}
