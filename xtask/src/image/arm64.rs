// SPDX-License-Identifier: MIT OR Apache-2.0

//! Instructions of an image for arm64, as `llvm-objdump` prints them.

use std::{collections::BTreeSet, path::Path, process::Command};

use anyhow::{Context as _, Result};

use super::{
    code::{Call, Code, Outcome},
    symbols::{Function, Symbols},
};
use crate::shell;

/// Of Debian's package llvm-19, which a build needs, too.
const DISASSEMBLER: &str = "/usr/bin/llvm-objdump-19";

/// The register that a driver reads beside those that programs can read: features of the processor.
const FEATURES: &str = "ID_AA64ISAR0_EL1";

/// The functions that use instructions which a processor may lack, after they asked for them.
const CHECKED: &str = "roce_wire::icrc::clmul";

/// Instructions of the first architecture that Windows runs on, Armv8.0, which only a kernel or hypervisor needs; and the first letters of
/// those that it does not have: atomics of Armv8.1, and of groups that are options.
const REFUSED: [&str; 6] = ["hvc", "smc", "svc", "eret", "hlt", "udf"];
const ATOMICS: [&str; 11] =
    ["cas", "swp", "ldadd", "ldclr", "ldeor", "ldset", "ldsmax", "ldsmin", "ldumax", "ldumin", "stadd"];
const OPTIONS: [&str; 4] = ["pmull", "aes", "sha", "crc32"];

/// The loads and stores by which the driver accesses registers of the device.
const ACCESSES: [&str; 6] = ["ldr", "ldrb", "ldrh", "str", "strb", "strh"];

/// An instruction, as it is printed.
#[derive(Debug, PartialEq, Eq)]
pub struct Instruction {
    address: u32,
    mnemonic: String,
    operands: String,
}

/// Disassembles an image whose preferred base is `base`.
///
/// # Errors
/// The disassembler fails.
pub fn disassemble(image: &Path, base: u64) -> Result<Vec<Instruction>> {
    let mut disassembler = Command::new(DISASSEMBLER);
    let text = shell::output(disassembler.args(["--disassemble", "--no-show-raw-insn"]).arg(image))?;
    text.lines().filter(|line| line.contains(":     \t")).map(|line| parse(line, base)).collect()
}

fn parse(line: &str, base: u64) -> Result<Instruction> {
    let (address, rest) = line.split_once(':').context("a line without an address")?;
    let mut fields = rest.trim().splitn(2, '\t');
    let address = u64::from_str_radix(address.trim(), 16).with_context(|| format!("no address: {line}"))?;
    Ok(Instruction {
        address: u32::try_from(address.wrapping_sub(base)).context("an address below the image")?,
        mnemonic: fields.next().unwrap_or_default().trim().to_owned(),
        operands: fields.next().unwrap_or_default().trim().to_owned(),
    })
}

impl Instruction {
    /// Returns why a driver must not contain the instruction, if it must not.
    fn refusal(&self, function: &str) -> Option<String> {
        let is_one_of = |list: &[&str]| list.iter().any(|first| self.mnemonic.starts_with(first));
        let uses = |first: char, count: u32| {
            let words = self.operands.split(|letter: char| !letter.is_ascii_alphanumeric());
            let mut numbers = words.filter_map(|word| word.strip_prefix(first)?.parse::<u32>().ok());
            numbers.any(|number| number < count)
        };
        let words: BTreeSet<&str> =
            self.operands.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
        let is_refused = self.mnemonic.starts_with('<')
            || REFUSED.contains(&&*self.mnemonic)
            || self.mnemonic == "msr"
            || self.mnemonic == "mrs" && !self.operands.ends_with(FEATURES)
            || is_one_of(&ATOMICS)
            || is_one_of(&OPTIONS) && !function.contains(CHECKED)
            // SVE.
            || uses('z', 32)
            || uses('p', 16)
            // The platform register: the processor's block of the kernel.
            || words.contains("x18")
            || words.contains("w18");
        is_refused.then(|| format!("{} {}", self.mnemonic, self.operands))
    }

    /// Returns the bytes by which the instruction moves the stack pointer down.
    fn allocation(&self) -> u32 {
        let number = |text: &str| {
            let digits = text.trim_start_matches("0x");
            u32::from_str_radix(digits, if digits.len() == text.len() { 10 } else { 16 }).unwrap_or(0)
        };
        let is_store = self.mnemonic.starts_with("st");
        if let Some(size) = self.operands.strip_prefix("sp, sp, #").filter(|_| self.mnemonic == "sub") {
            return match size.split_once(", lsl #12") {
                Some((pages, _)) => number(pages) << 12,
                None => number(size),
            };
        }
        let written_back = self.operands.strip_suffix("]!").and_then(|rest| rest.rsplit_once("[sp, #-"));
        written_back.filter(|_| is_store).map_or(0, |(_, size)| number(size))
    }

    /// Returns the target of a call or jump to a constant address.
    fn target(&self, base: u64) -> Option<u32> {
        let is_call = ["bl", "b"].contains(&&*self.mnemonic);
        let address = self.operands.split_whitespace().next().filter(|_| is_call)?;
        u32::try_from(u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?.wrapping_sub(base)).ok()
    }

    /// Returns true for a load or store of a register of the device: one register, at an address that is in another.
    fn is_access(&self) -> bool {
        let address = self.operands.split_once(", ").map_or("", |(_, address)| address);
        let inner = address.strip_prefix("[x").and_then(|rest| rest.strip_suffix(']'));
        let is_plain = inner.is_some_and(|number| number.bytes().all(|digit| digit.is_ascii_digit()));
        ACCESSES.contains(&&*self.mnemonic) && self.operands.starts_with('w') && is_plain
    }
}

/// Finds what functions call, and the instructions that a driver must not have.
pub fn code(instructions: &[Instruction], base: u64, symbols: &Symbols) -> Code {
    let mut code = Code { count: instructions.len(), ..Code::default() };
    for (index, instruction) in instructions.iter().enumerate() {
        if is_padding(instructions.get(index..).unwrap_or_default(), symbols) {
            continue;
        }
        let at = instruction.address;
        let name = symbols.name(at);
        if let Some(refused) = instruction.refusal(name) {
            code.refused.push(format!("{refused} at {at:#x} in {name}"));
        }
        let is_jump = instruction.mnemonic == "b";
        code.calls.extend(instruction.target(base).map(|to| Call { from: at, to, is_jump }));
        let start = symbols.start(at);
        let allocation = instruction.allocation();
        match code.functions.last_mut().filter(|function| function.range.start == start) {
            Some(function) => {
                function.range.end = at + 4;
                function.frame = function.frame.map(|frame| frame + allocation);
            }
            None => code.functions.push(Function { range: start..at + 4, frame: Some(allocation) }),
        }
    }
    code
}

/// Whether instructions begin with the zeros that the linker puts before a function that begins at a multiple of 16.
fn is_padding(instructions: &[Instruction], symbols: &Symbols) -> bool {
    const ALIGNMENT: u32 = 16;
    let is_zero =
        |found: &&Instruction| found.mnemonic == "udf" && ["#0", "#0x0"].contains(&&*found.operands);
    let count = instructions.iter().take_while(is_zero).count();
    let next = instructions.get(count).map(|found| found.address);
    let is_aligned = |at: u32| at.is_multiple_of(ALIGNMENT) && symbols.start(at) == at;
    (1..ALIGNMENT as usize / 4).contains(&count) && next.is_some_and(is_aligned)
}

/// Checks the accesses to registers of the device, which are next to a barrier that no other code has.
pub fn registers(instructions: &[Instruction], symbols: &Symbols) -> Outcome {
    let is_barrier = |at: usize| {
        instructions.get(at).is_some_and(|found| found.mnemonic == "dmb" && found.operands == "sy")
    };
    let is_access = |at: usize, first: &str| {
        let found = instructions.get(at);
        found.is_some_and(|found| found.is_access() && found.mnemonic.starts_with(first))
    };
    let (mut loads, mut stores, mut problems) = (0, 0, Vec::new());
    for at in (0..instructions.len()).filter(|&at| is_barrier(at)) {
        let is_after_load = at > 0 && is_access(at - 1, "ldr");
        let is_before_store = is_access(at + 1, "str") && is_barrier(at + 2);
        let is_after_store = at > 1 && is_access(at - 1, "str") && is_barrier(at - 2);
        loads += usize::from(is_after_load);
        stores += usize::from(is_before_store);
        if !is_after_load && !is_before_store && !is_after_store {
            let address = instructions.get(at).map_or(0, |found| found.address);
            problems
                .push(format!("a barrier without an access at {address:#x} in {}", symbols.name(address)));
        }
    }
    if loads == 0 || stores == 0 {
        problems.push(format!("{loads} loads and {stores} stores of registers of the device"));
    }
    if problems.is_empty() {
        Ok(format!("{loads} loads and {stores} stores, each one instruction with a plain address"))
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn instruction(text: &str) -> Instruction {
        let text = text.replacen(' ', "\t", 1);
        parse(&format!("180001004:     \t{text}"), 0x1_8000_0000).unwrap()
    }

    fn instructions(lines: &[&str]) -> Vec<Instruction> {
        lines.iter().map(|line| instruction(line)).collect()
    }

    #[test]
    fn lines_of_the_disassembler_are_parsed() {
        let bl = instruction("bl 0x180001000 <DriverEntry>");
        assert_eq!((bl.address, bl.target(0x1_8000_0000)), (0x1004, Some(0x1000)));
        assert_eq!(instruction("ret").target(0), None);
        assert_eq!(instruction("sub sp, sp, #0xe0").allocation(), 0xe0);
        assert_eq!(instruction("sub sp, sp, #0x1, lsl #12").allocation(), 0x1000);
        assert_eq!(instruction("stp x29, x30, [sp, #-0x20]!").allocation(), 0x20);
        assert_eq!(instruction("str x30, [sp, #-16]!").allocation(), 16);
        assert_eq!(instruction("ldr x30, [sp, #-0x10]!").allocation(), 0);
    }

    #[test]
    fn instructions_of_hypervisors_of_later_processors_and_the_platform_register_are_refused() {
        let refused = [
            "hvc #0",
            "smc #0",
            "msr DAIF, x0",
            "mrs x0, MIDR_EL1",
            "casal x0, x1, [x2]",
            "swpal x0, x1, [x2]",
            "ldadd x0, x1, [x2]",
            "pmull v0.1q, v0.1d, v1.1d",
            "add z0.d, z0.d, z1.d",
            "ptrue p0.s",
            "ldr x0, [x18, #0x10]",
            "mov w18, w0",
            "<unknown>",
            "udf #0",
        ];
        for line in refused {
            assert!(instruction(line).refusal("f").is_some(), "{line}");
        }
        for line in [
            "ldaxr x0, [x1]",
            "mrs x0, ID_AA64ISAR0_EL1",
            "ldp x0, x1, [sp]",
            "add v0.2d, v1.2d, v2.2d",
            "dmb ish",
        ] {
            assert!(instruction(line).refusal("f").is_none(), "{line}");
        }
        assert!(instruction("pmull v0.1q, v0.1d, v1.1d").refusal("roce_wire::icrc::clmul::run").is_none());
    }

    #[test]
    fn zeros_before_an_aligned_function_are_padding() {
        let symbols = Symbols::of(&[(0x1000, "f"), (0x1010, "g"), (0x1018, "h")]);
        let refused = |lines: &[&str]| {
            let mut all = instructions(lines);
            for (found, address) in all.iter_mut().zip((0x1000..).step_by(4)) {
                found.address = address;
            }
            code(&all, 0, &symbols).refused.len()
        };
        assert_eq!(refused(&["nop", "ret", "udf #0x0", "udf #0x0", "ret"]), 0);
        assert_eq!(refused(&["nop", "udf #0x0", "nop", "ret", "ret"]), 1, "inside of a function");
        assert_eq!(refused(&["nop", "nop", "nop", "ret", "ret", "udf #0x0", "ret"]), 1, "before one at 8");
        assert_eq!(refused(&["nop", "nop", "nop", "udf #0x1", "ret"]), 1);
        assert_eq!(refused(&["nop", "nop", "ret", "udf #0x0"]), 1, "at the end");
        assert_eq!(refused(&["udf #0x0", "udf #0x0", "udf #0x0", "udf #0x0", "ret"]), 1, "the first of four");
    }

    #[test]
    fn accesses_to_registers_are_single_and_plain() {
        let symbols = Symbols::default();
        let good = ["ldrb w0, [x1]", "dmb sy", "dmb sy", "str w0, [x1]", "dmb sy"];
        assert!(registers(&instructions(&good), &symbols).unwrap().starts_with("1 loads and 1 stores"));
        for other in [
            "ldrb w0, [x1], #0x1",
            "ldrb w0, [x1, #0x4]",
            "ldp w0, w2, [x1]",
            "ldr x0, [x1]",
            "ldrb w0, [x1]!",
        ] {
            let mut lines = good;
            lines[0] = other;
            assert!(registers(&instructions(&lines), &symbols).is_err(), "{other}");
        }
        assert!(registers(&instructions(&good[..2]), &symbols).is_err(), "no stores");
        assert!(
            registers(&instructions(&[&good[..4], &["ret"]].concat()), &symbols).is_err(),
            "no barrier behind"
        );
    }
}
