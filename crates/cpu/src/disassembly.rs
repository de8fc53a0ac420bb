//! Generated code as text.

/// Machine code as text: one instruction per line with its offset, and constants after the
/// instructions that read them; without the feature `asm`, its bytes.
pub fn disassemble(code: &[u8]) -> String {
    #[cfg(all(target_arch = "x86_64", any(feature = "asm", test)))]
    return x86::disassemble(code).iter().map(|(_, line)| format!("{line}\n")).collect();
    #[cfg(not(all(target_arch = "x86_64", any(feature = "asm", test))))]
    return girih_runtime::report::hexadecimal(code);
}

#[cfg(all(target_arch = "x86_64", any(feature = "asm", test)))]
pub(crate) mod x86 {
    use iced_x86::{
        Decoder, DecoderOptions, Formatter, Instruction, IntelFormatter, MemorySize, Mnemonic,
    };

    /// The instructions before the constants, with their lines. An invalid instruction is the last.
    pub fn disassemble(code: &[u8]) -> Vec<(Instruction, String)> {
        let mut decoder = Decoder::with_ip(64, code, 0, DecoderOptions::NONE);
        let mut formatter = IntelFormatter::new();
        let (mut lines, mut end) = (Vec::new(), code.len() as u64);
        while decoder.ip() < end {
            let inst = decoder.decode();
            let mut line = format!("{:>4x} ", inst.ip());
            formatter.format(&inst, &mut line);
            if inst.is_ip_rel_memory_operand() {
                let at = inst.ip_rel_memory_address();
                end = end.min(at);
                line += &constant(code, at as usize, inst.memory_size());
            }
            lines.push((inst, line));
            if inst.is_invalid() {
                break;
            }
        }
        // Constants are aligned.
        while lines.last().is_some_and(|(inst, _)| inst.mnemonic() == Mnemonic::Nop) {
            lines.pop();
        }
        lines
    }

    /// The number at an offset, as a comment.
    fn constant(code: &[u8], at: usize, size: MemorySize) -> String {
        let bytes = |n: usize| {
            let mut word = [0; 8];
            let found = code.get(at..at + n)?;
            word[..n].copy_from_slice(found);
            Some(u64::from_le_bytes(word))
        };
        let element = size.element_type();
        let text = match (element, element.size()) {
            (MemorySize::Float32, _) => bytes(4).map(|b| f32::from_bits(b as u32).to_string()),
            (MemorySize::Float64, _) => bytes(8).map(|b| f64::from_bits(b).to_string()),
            (_, n @ (4 | 8)) => bytes(n).map(|b| format!("{b:#x}")),
            _ => None,
        };
        text.map_or(String::new(), |text| format!(" ; {text}"))
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_shown_with_their_constants() {
        // vmulps ymm0, ymm0, [rip + 1]; ret; 8 times 0.5
        let mut code = vec![0xc5, 0xfc, 0x59, 0x05, 1, 0, 0, 0, 0xc3];
        code.extend(0.5f32.to_le_bytes().repeat(8));
        assert_eq!(disassemble(&code), "   0 vmulps ymm0,ymm0,[9] ; 0.5\n   8 ret\n");
    }
}
