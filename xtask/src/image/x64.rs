// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instructions of an image for x64.

use std::ops::Range;

use anyhow::{Context as _, Result};
use iced_x86::{
    CpuidFeature, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Mnemonic, Register,
};

use super::{
    code::{Call, Code},
    flow::{self, Constants},
    symbols::{Function, Symbols},
};

/// Decodes everything in executable sections, which are given by address and bytes: each function by its range, and what lies between
/// them (functions without a frame, import thunks, padding).
///
/// # Errors
/// A function reaches out of its section.
pub fn decode(
    sections: &[(u32, &[u8])],
    functions: Vec<Function>,
    symbols: &Symbols,
    constants: &dyn Constants,
) -> Result<Code> {
    let mut code = Code { functions, ..Code::default() };
    for &(start, bytes) in sections {
        for range in ranges(start..start + bytes.len() as u32, &code.functions, symbols) {
            let at = (range.start - start) as usize;
            let bytes = bytes.get(at..at + range.len()).context("a function reaches out of its section")?;
            linear(&mut code, bytes, range.start, symbols);
            code.indirect.extend(flow::indirect(bytes, range.start, constants));
        }
    }
    Ok(code)
}

/// Cuts `whole` at the beginning and end of every function.
fn ranges(whole: Range<u32>, functions: &[Function], symbols: &Symbols) -> Vec<Range<u32>> {
    let mut cuts: Vec<u32> = functions.iter().flat_map(|f| [f.range.start, f.range.end]).collect();
    cuts.extend(symbols.iter().map(|(address, _)| address));
    cuts.extend([whole.start, whole.end]);
    cuts.retain(|cut| whole.contains(cut) || *cut == whole.end);
    cuts.sort_unstable();
    cuts.dedup();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

fn linear(code: &mut Code, bytes: &[u8], start: u32, symbols: &Symbols) {
    let mut decoder = Decoder::with_ip(64, bytes, u64::from(start), DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        code.count += 1;
        let at = instruction.ip() as u32;
        if let Some(reason) = refusal(&instruction) {
            code.refused.push(format!("{reason} at {at:#x} in {}", symbols.name(at)));
        }
        if instruction.mnemonic() == Mnemonic::Lea && instruction.is_ip_rel_memory_operand() {
            code.addresses.insert(instruction.ip_rel_memory_address() as u32);
        }
        let to = instruction.near_branch_target() as u32;
        let is_jump = match instruction.flow_control() {
            FlowControl::Call => false,
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => true,
            _ => continue,
        };
        if to != 0 && (!is_jump || symbols.start(at) != symbols.start(to)) {
            code.calls.push(Call { from: at, to, is_jump });
        }
    }
}

/// Returns why a driver must not contain the instruction, if it must not. SSE and SSE2 are allowed in kernel mode on x64:
/// the kernel preserves their registers. It does not preserve AVX, x87 and MMX state for a driver.
fn refusal(instruction: &Instruction) -> Option<String> {
    if instruction.is_invalid() {
        return Some("undecodable bytes".into());
    }
    if instruction.encoding() != EncodingKind::Legacy {
        return Some(format!("{:?} ({:?})", instruction.mnemonic(), instruction.encoding()));
    }
    let old = |feature: &CpuidFeature| {
        matches!(
            feature,
            CpuidFeature::FPU
                | CpuidFeature::FPU287
                | CpuidFeature::FPU287XL_ONLY
                | CpuidFeature::FPU387
                | CpuidFeature::FPU387SL_ONLY
                | CpuidFeature::MMX
                | CpuidFeature::D3NOW
                | CpuidFeature::D3NOWEXT
        )
    };
    let register = |register: Register| register.is_mm() || register.is_st();
    let uses = (0..instruction.op_count()).any(|operand| register(instruction.op_register(operand)));
    (uses || instruction.cpuid_features().iter().any(old)).then(|| format!("{:?}", instruction.mnemonic()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8]) -> Instruction {
        Decoder::new(64, bytes, DecoderOptions::NONE).decode()
    }

    #[test]
    fn sse2_and_carry_less_multiplication_are_accepted() {
        assert_eq!(refusal(&decoded(&[0x66, 0x0f, 0xef, 0xc0])), None, "pxor xmm0, xmm0");
        assert_eq!(
            refusal(&decoded(&[0x66, 0x0f, 0x3a, 0x44, 0xc1, 0x11])),
            None,
            "pclmulqdq xmm0, xmm1, 17"
        );
    }

    #[test]
    fn avx_x87_and_mmx_are_refused() {
        assert!(refusal(&decoded(&[0xc5, 0xf9, 0xef, 0xc0])).is_some(), "vpxor xmm0, xmm0, xmm0");
        assert!(refusal(&decoded(&[0xd9, 0xee])).is_some(), "fldz");
        assert!(refusal(&decoded(&[0x0f, 0xef, 0xc0])).is_some(), "pxor mm0, mm0");
        assert!(refusal(&decoded(&[0x0f, 0x77])).is_some(), "emms");
    }

    #[test]
    fn undecodable_bytes_are_refused() {
        assert!(refusal(&decoded(&[0x06])).is_some());
    }
}
