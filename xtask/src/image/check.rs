// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask image --check`: properties of the image that can be checked without running it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::Range,
};

use anyhow::{Context as _, Result, bail};
use iced_x86::{CpuidFeature, Decoder, DecoderOptions, EncodingKind, FlowControl, Instruction, Register};
use object::{
    LittleEndian as LE, pe,
    read::pe::{
        ExportTarget, ImageNtHeaders as _, ImageOptionalHeader as _, Import, PeFile64,
        ResourceDirectoryEntryData,
    },
};

use super::{
    artifact::Image,
    imports::Imports,
    symbols::{Function, Symbols, functions},
};
use crate::shell;

/// A stack frame of this size in bytes or more fails the check. A kernel stack has 24 KiB, which the driver shares with
/// its callers, its callees and, in interrupt routines, the interrupted code.
const FRAME_LIMIT: u32 = 1024;

/// Functions that may have a larger frame: a part of the name, the limit in bytes, and the reason.
const LARGE_FRAMES: [(&str, u32, &str); 7] = [
    (
        "roce::engine::Engine<nt::lock::RawSpinLock>::try_new",
        2816,
        "PASSIVE_LEVEL, once per start: constructs the engine in place",
    ),
    (
        "roce::engine::Engine<nt::lock::RawSpinLock>::poll_conn_event",
        1280,
        "returns a connection event by value, with its private data; its callers use little stack",
    ),
    (
        "roce::engine::Engine<nt::lock::RawSpinLock>::new_qp",
        1408,
        "constructs a queue pair before it is moved to pool; called directly by the consumer",
    ),
    (
        "viordma::miniport::initialize::initialize",
        1664,
        "PASSIVE_LEVEL, once per start: holds the adapter's parts",
    ),
    (
        "viordma::miniport::device_setup::build_port",
        3072,
        "PASSIVE_LEVEL, once per start: moves the queues to their final place",
    ),
    (
        "viordma::miniport::device_setup::program",
        2176,
        "PASSIVE_LEVEL, once per start: constructs the queues",
    ),
    (
        "virtio_net::nic::Nic<viordma::nic::dma::SharedMemory,viordma::nic::registers::BarAccess>::add",
        1600,
        "PASSIVE_LEVEL, once per start: moves the queues of a pair to their list",
    ),
];

/// Maximum number of problems printed per check.
const PROBLEMS_SHOWN: usize = 8;

/// Functions that panic when an allocation fails. The image must not contain any of them.
const INFALLIBLE: [&str; 4] = [
    "alloc::alloc::handle_alloc_error",
    "alloc::raw_vec::handle_error",
    "alloc::raw_vec::capacity_overflow",
    "__rust_alloc_error_handler",
];

/// One check and its result.
struct Check {
    name: &'static str,
    outcome: Result<String, Vec<String>>,
}

/// Runs every check and prints the results as a table.
///
/// # Errors
/// The image or its PDB cannot be read, or a check failed.
pub fn run(image: &Image) -> Result<()> {
    let data = fs::read(&image.sys).with_context(|| format!("cannot read {}", image.sys.display()))?;
    let pe = PeFile64::parse(&*data).with_context(|| format!("{} is not a PE image", image.sys.display()))?;
    let subject = Subject { data: &data, pe, symbols: Symbols::load(&image.pdb)?, imports: Imports::load()? };
    let code = subject.decode()?;
    let checks = [
        Check { name: "subsystem", outcome: subject.subsystem() },
        Check { name: "entry point", outcome: subject.entry() },
        Check { name: "relocatable", outcome: subject.relocatable() },
        Check {
            name: "no-execute data",
            outcome: subject.flag(pe::IMAGE_DLLCHARACTERISTICS_NX_COMPAT, "NX_COMPAT"),
        },
        Check {
            name: "signature enforced",
            outcome: subject.flag(pe::IMAGE_DLLCHARACTERISTICS_FORCE_INTEGRITY, "FORCE_INTEGRITY"),
        },
        Check { name: "sections", outcome: subject.sections() },
        Check { name: "version resource", outcome: subject.version() },
        Check { name: "imports", outcome: subject.imported() },
        Check { name: "instructions", outcome: code.instructions() },
        Check { name: "stack frames", outcome: subject.frames(&code.functions) },
        Check { name: "infallible allocation", outcome: code.infallible(&subject.symbols) },
        Check { name: "panics", outcome: code.panics(&subject.symbols) },
        Check { name: "build paths", outcome: subject.paths() },
    ];
    println!("{} ({} KiB)", image.sys.display(), data.len() / 1024);
    let mut failed = 0;
    for check in &checks {
        match &check.outcome {
            Ok(found) => println!("  ok    {:<22} {found}", check.name),
            Err(problems) => {
                failed += 1;
                for problem in problems.iter().take(PROBLEMS_SHOWN) {
                    println!("  FAIL  {:<22} {problem}", check.name);
                }
                if let Some(more) = problems.len().checked_sub(PROBLEMS_SHOWN).filter(|more| *more > 0) {
                    println!("  FAIL  {:<22} and {more} more", check.name);
                }
            }
        }
    }
    if failed > 0 {
        bail!("{failed} of {} checks of the image failed", checks.len());
    }
    Ok(())
}

struct Subject<'data> {
    data: &'data [u8],
    pe: PeFile64<'data>,
    symbols: Symbols,
    imports: Imports,
}

type Outcome = Result<String, Vec<String>>;

fn fail<T>(problem: impl Into<String>) -> Result<T, Vec<String>> {
    Err(vec![problem.into()])
}

/// Turns an error of reading the image into a failed check.
fn malformed(error: impl std::fmt::Display) -> Vec<String> {
    vec![format!("malformed: {error}")]
}

impl<'data> Subject<'data> {
    /// The image's bytes from a relative virtual address to the end of the section.
    fn at(&self, address: u32) -> Option<&'data [u8]> {
        self.pe.section_table().pe_data_at(self.data, address)
    }

    fn flag(&self, flag: pe::DllFlags, name: &str) -> Outcome {
        let flags = self.pe.nt_headers().optional_header().dll_characteristics();
        if flags.contains(flag) { Ok(name.into()) } else { fail(format!("{name} is not set")) }
    }

    fn subsystem(&self) -> Outcome {
        match self.pe.nt_headers().optional_header().subsystem() {
            pe::IMAGE_SUBSYSTEM_NATIVE => Ok("native".into()),
            other => fail(format!("the subsystem is {other}, not native")),
        }
    }

    fn entry(&self) -> Outcome {
        let address = self.pe.nt_headers().optional_header().address_of_entry_point();
        let exports = self.pe.export_table().map_err(malformed)?;
        let exports =
            exports.map(|table| table.exports()).transpose().map_err(malformed)?.unwrap_or_default();
        let exported = exports.iter().find(|export| export.name == Some(b"DriverEntry"));
        match exported.map(|export| export.target) {
            Some(ExportTarget::Address(at)) if at == address => Ok("DriverEntry".into()),
            _ => fail(format!(
                "the entry point is {} at {address:#x}, not DriverEntry",
                self.symbols.name(address)
            )),
        }
    }

    fn relocatable(&self) -> Outcome {
        self.flag(pe::IMAGE_DLLCHARACTERISTICS_DYNAMIC_BASE, "DYNAMIC_BASE")?;
        if self.pe.nt_headers().file_header.characteristics.get(LE).contains(pe::IMAGE_FILE_RELOCS_STRIPPED) {
            return fail("relocations are stripped");
        }
        let blocks = self.pe.data_directories().relocation_blocks(self.data, &self.pe.section_table());
        let Some(mut blocks) = blocks.map_err(malformed)? else {
            return fail("the image has no relocations");
        };
        let mut count = 0;
        while let Some(block) = blocks.next().map_err(malformed)? {
            count += block.filter(|relocation| relocation.typ == pe::IMAGE_REL_BASED_DIR64).count();
        }
        Ok(format!("DYNAMIC_BASE, {count} relocations"))
    }

    fn sections(&self) -> Outcome {
        let (mut found, mut problems) = (Vec::new(), Vec::new());
        for section in self.pe.section_table().iter() {
            let name = String::from_utf8_lossy(section.raw_name()).into_owned();
            let flags = section.characteristics.get(LE);
            let may = |flag, letter| if flags.contains(flag) { letter } else { "" };
            let (write, execute) = (may(pe::IMAGE_SCN_MEM_WRITE, "W"), may(pe::IMAGE_SCN_MEM_EXECUTE, "X"));
            if !write.is_empty() && !execute.is_empty() {
                problems.push(format!("{name} is both writable and executable"));
            }
            found.push(format!("{name} {}{write}{execute}", may(pe::IMAGE_SCN_MEM_READ, "R")));
        }
        if problems.is_empty() { Ok(found.join(", ")) } else { Err(problems) }
    }

    /// The version in the image's resource must be the workspace's.
    fn version(&self) -> Outcome {
        const RT_VERSION: u16 = 16;
        // wLength wValueLength wType, "VS_VERSION_INFO", padding: the fixed part begins here.
        const FIXED: usize = 40;
        let resources = self.pe.data_directories().resource_directory(self.data, &self.pe.section_table());
        let Some(resources) = resources.map_err(malformed)? else {
            return fail("the image has no resources");
        };
        let kinds = resources.root().map_err(malformed)?;
        let mut entry = kinds.entries.iter().find(|entry| entry.name_or_id().id() == Some(RT_VERSION));
        let leaf = loop {
            let Some(found) = entry else { return fail("the image has no version resource") };
            match found.data(resources).map_err(malformed)? {
                ResourceDirectoryEntryData::Table(table) => entry = table.entries.first(),
                ResourceDirectoryEntryData::Data(leaf) => break leaf,
            }
        };
        let info = self.at(leaf.offset_to_data.get(LE)).unwrap_or_default();
        let word =
            |at: usize| info.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        if word(FIXED) != 0xfeef_04bd {
            return fail("the version resource has no VS_FIXEDFILEINFO");
        }
        let (high, low) = (word(FIXED + 8), word(FIXED + 12));
        let version = format!("{}.{}.{}", high >> 16, high & 0xffff, low >> 16);
        if version == env!("CARGO_PKG_VERSION") {
            Ok(version)
        } else {
            fail(format!("version {version} differs from the package's, {}", env!("CARGO_PKG_VERSION")))
        }
    }

    fn imported(&self) -> Outcome {
        let Some(table) = self.pe.import_table().map_err(malformed)? else { return Ok("none".into()) };
        let (mut count, mut problems) = (BTreeMap::new(), Vec::new());
        let mut descriptors = table.descriptors().map_err(malformed)?;
        while let Some(descriptor) = descriptors.next().map_err(malformed)? {
            let module = table.name(descriptor.name.get(LE)).map_err(malformed)?;
            let module = String::from_utf8_lossy(module).into_owned();
            let mut thunks = table.thunks(descriptor.original_first_thunk.get(LE)).map_err(malformed)?;
            while let Some(thunk) = thunks.next::<pe::ImageNtHeaders64>().map_err(malformed)? {
                match table.import::<pe::ImageNtHeaders64>(thunk).map_err(malformed)? {
                    Import::Ordinal(number) => problems.push(format!(
                        "imports ordinal {number} of {module}; only imports by name are allowed"
                    )),
                    Import::Name(_, name) => {
                        let name = String::from_utf8_lossy(name);
                        *count.entry(module.clone()).or_insert(0) += 1;
                        if !self.imports.contains(&module, &name) {
                            problems.push(format!("{module} {name} is not in crates/ndk-abi/abi-x64.toml"));
                        }
                    }
                }
            }
        }
        let count = count.iter().map(|(module, count)| format!("{count} of {module}")).collect::<Vec<_>>();
        if problems.is_empty() { Ok(format!("{}, all listed", count.join(", "))) } else { Err(problems) }
    }

    fn frames(&self, functions: &[Function]) -> Outcome {
        let mut sizes: Vec<(u32, &str)> = functions
            .iter()
            .filter_map(|function| Some((function.frame?, self.symbols.name(function.range.start))))
            .collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        let limit = |name: &str| {
            LARGE_FRAMES
                .iter()
                .find(|(part, ..)| name.contains(part))
                .map_or(FRAME_LIMIT, |&(_, limit, _)| limit)
        };
        let problems: Vec<String> = sizes
            .iter()
            .filter(|&&(size, name)| size >= limit(name))
            .map(|&(size, name)| format!("{name} uses {size} bytes of stack; the limit is {}", limit(name)))
            .collect();
        let Some((largest, name)) = sizes.first() else { return fail("the image has no unwind information") };
        if !problems.is_empty() {
            return Err(problems);
        }
        let excepted = match LARGE_FRAMES.len() {
            0 => String::new(),
            n => format!(", {n} exceptions"),
        };
        Ok(format!("{} functions, largest {largest} bytes ({name}){excepted}", sizes.len()))
    }

    fn paths(&self) -> Outcome {
        let root = shell::root().display().to_string();
        let found = self.data.windows(root.len()).any(|window| window == root.as_bytes());
        if found { fail(format!("the image contains the path {root}")) } else { Ok("none".into()) }
    }

    /// Decodes everything in executable sections: each function by its range, and what lies between them (functions
    /// without a frame, import thunks, padding).
    fn decode(&self) -> Result<Code> {
        let directory = self.pe.data_directories().get(pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION);
        let table = match directory {
            Some(directory) => directory.data(self.data, &self.pe.section_table())?,
            None => &[],
        };
        let mut code = Code { functions: functions(table, |at| self.at(at))?, ..Code::default() };
        for section in self.pe.section_table().iter() {
            if !section.characteristics.get(LE).contains(pe::IMAGE_SCN_MEM_EXECUTE) {
                continue;
            }
            let start = section.virtual_address.get(LE);
            let bytes = section.pe_data(self.data)?;
            // Data of a section is padded to the file alignment; code ends where the memory size ends.
            let end = start + section.virtual_size.get(LE).min(bytes.len() as u32);
            for range in ranges(start..end, &code.functions, &self.symbols) {
                let at = (range.start - start) as usize;
                let bytes =
                    bytes.get(at..at + range.len()).context("a function reaches out of its section")?;
                code.linear(bytes, range.start, &self.symbols);
            }
        }
        Ok(code)
    }
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

/// Results of decoding.
#[derive(Default)]
struct Code {
    functions: Vec<Function>,
    count: usize,
    /// Instructions that a driver must not contain.
    refused: Vec<String>,
    /// Direct calls and jumps: from, to.
    calls: Vec<(u32, u32)>,
}

impl Code {
    fn linear(&mut self, bytes: &[u8], start: u32, symbols: &Symbols) {
        let mut decoder = Decoder::with_ip(64, bytes, u64::from(start), DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            self.count += 1;
            let at = instruction.ip() as u32;
            if let Some(reason) = refusal(&instruction) {
                self.refused.push(format!("{reason} at {at:#x} in {}", symbols.name(at)));
            }
            if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::UnconditionalBranch)
                && instruction.near_branch_target() != 0
            {
                self.calls.push((at, instruction.near_branch_target() as u32));
            }
        }
    }

    fn instructions(&self) -> Outcome {
        if self.refused.is_empty() {
            Ok(format!("{} decoded, none of AVX, x87 or MMX", self.count))
        } else {
            Err(self.refused.clone())
        }
    }

    fn infallible(&self, symbols: &Symbols) -> Outcome {
        let is_infallible = |name: &str| INFALLIBLE.iter().any(|part| name.contains(part));
        let present: Vec<&str> =
            symbols.iter().map(|(_, name)| name).filter(|name| is_infallible(name)).collect();
        if present.is_empty() {
            return Ok("none".into());
        }
        let callers: BTreeSet<&str> = self
            .calls
            .iter()
            .filter(|&&(_, to)| is_infallible(symbols.name(to)))
            .map(|&(from, _)| symbols.name(from))
            .filter(|caller| !is_infallible(caller))
            .collect();
        if callers.is_empty() {
            return Err(present.into_iter().map(|name| format!("the image contains {name}")).collect());
        }
        Err(callers.into_iter().map(|caller| format!("{caller} panics when an allocation fails")).collect())
    }

    /// The image must not call a panic function: the compiler must have proven that no panic can occur.
    fn panics(&self, symbols: &Symbols) -> Result<String, Vec<String>> {
        let mut callers = BTreeMap::<&str, usize>::new();
        for &(from, to) in &self.calls {
            let (caller, target) = (symbols.name(from), symbols.name(to));
            if is_panic(target) && !is_panic(caller) {
                *callers.entry(caller).or_default() += 1;
            }
        }
        if callers.is_empty() {
            return Ok("no call of a panic function".into());
        }
        Err(callers
            .into_iter()
            .map(|(caller, count)| format!("{caller} calls panic functions at {count} places"))
            .collect())
    }
}

fn is_panic(name: &str) -> bool {
    [
        "core::panicking::",
        "core::option::unwrap_failed",
        "core::option::expect_failed",
        "core::result::unwrap_failed",
        "core::slice::index::",
        "core::str::slice_error_fail",
        "core::cell::panic_already",
    ]
    .iter()
    .any(|panic| name.starts_with(panic))
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
