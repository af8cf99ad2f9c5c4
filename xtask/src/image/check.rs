// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask image --check`: properties of the image that can be checked without running it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use anyhow::{Context as _, Result, bail};
use object::{
    LittleEndian as LE, Object as _, pe,
    read::pe::{
        ExportTarget, ImageNtHeaders as _, ImageOptionalHeader as _, Import, PeFile64,
        ResourceDirectoryEntryData,
    },
};
use viordma_inf::Edition;

use super::{
    architecture::Architecture,
    arm64,
    artifact::Image,
    code::{Code, Outcome},
    flow::Constants,
    guard::Guard,
    imports::Imports,
    stack,
    symbols::{Function, Symbols, functions},
    x64,
};
use crate::{drivers::DRIVERS, shell};

/// A stack frame of this size in bytes or more fails the check. A kernel stack has 24 KiB, which the driver shares with
/// its callers, its callees and, in interrupt routines, the interrupted code.
const FRAME_LIMIT: u32 = 1024;

/// Functions that may have a larger frame: a part of the name, the limit in bytes, and the reason.
const LARGE_FRAMES: [(&str, u32, &str); 8] = [
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
        1088,
        "PASSIVE_LEVEL, once per start: constructs the queues",
    ),
    (
        "viordma::miniport::device_setup::add_pair",
        2048,
        "PASSIVE_LEVEL, once per start: moves the queues of a pair to their final place",
    ),
    (
        "virtio_net::nic::Nic<viordma::nic::dma::SharedMemory,viordma::nic::registers::BarAccess>::add",
        1600,
        "PASSIVE_LEVEL, once per start: moves the queues of a pair to their list",
    ),
];

/// Printed where the stack depth is not checked.
const NO_DEPTH: &str =
    "not checked: indirect calls are followed on x64 alone, whose image is built of the same sources";

/// Maximum number of problems printed per check.
const PROBLEMS_SHOWN: usize = 8;

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
    let architecture = match pe.nt_headers().file_header.machine.get(LE) {
        pe::IMAGE_FILE_MACHINE_AMD64 => Architecture::X64,
        pe::IMAGE_FILE_MACHINE_ARM64 => Architecture::Arm64,
        other => bail!("{} is for the machine {:#x}", image.sys.display(), other.0),
    };
    let imports = Imports::load(architecture)?;
    let symbols = Symbols::load(&image.pdb)?;
    let guard = Guard::read(&pe, &data);
    let pdb = fs::read(&image.pdb).with_context(|| format!("cannot read {}", image.pdb.display()))?;
    let subject = Subject { data: &data, pdb: &pdb, pe, architecture, symbols, imports, guard };
    let mut checks = subject.headers();
    checks.extend(match architecture {
        Architecture::X64 => {
            let code = subject.decode()?;
            let mut checks = subject.check_code(&code, "AVX, x87 or MMX");
            checks.push(subject.guarded(&code)?);
            checks.extend(subject.depths(&code)?);
            checks
        }
        Architecture::Arm64 => {
            let base = subject.pe.nt_headers().optional_header().image_base();
            let instructions = arm64::disassemble(&image.sys, base)?;
            let code = arm64::code(&instructions, base, &subject.symbols);
            let registers = arm64::registers(&instructions, &subject.symbols);
            let mut checks = subject.check_code(&code, "a hypervisor's, SVE, or later than Armv8.0");
            checks.push(Check { name: "device registers", outcome: registers });
            checks.push(subject.guarded(&code)?);
            checks.push(Check { name: "stack depth", outcome: Ok(NO_DEPTH.into()) });
            checks
        }
    });
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

/// Offset of the checksum from the PE signature: that, the file header, and the optional header's first fields.
const CHECKSUM: usize = 4 + 20 + 64;

/// Returns the checksum of an image: the sum of its words with carry, but for that of the checksum itself, and its length.
fn checksum(data: &[u8], field: usize) -> u32 {
    let word = |(at, pair): (usize, &[u8])| {
        let is_field = (field..field + 4).contains(&(at * 2));
        let bytes = [pair[0], pair.get(1).copied().unwrap_or(0)];
        if is_field { 0 } else { u64::from(u16::from_le_bytes(bytes)) }
    };
    let sum = data.chunks(2).enumerate().map(word).sum::<u64>();
    // Carries are added as they occur; 65535 is a sum of its own.
    let folded = match sum % 0xffff {
        0 if sum > 0 => 0xffff,
        rest => rest,
    };
    folded as u32 + data.len() as u32
}

struct Subject<'data> {
    data: &'data [u8],
    pdb: &'data [u8],
    pe: PeFile64<'data>,
    architecture: Architecture,
    symbols: Symbols,
    imports: Imports,
    guard: Result<Guard, Vec<String>>,
}

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

    /// Checks what does not depend on instructions.
    fn headers(&self) -> Vec<Check> {
        vec![
            Check { name: "subsystem", outcome: self.subsystem() },
            Check { name: "entry point", outcome: self.entry() },
            Check { name: "versions", outcome: self.versions() },
            Check { name: "checksum", outcome: self.checksum() },
            Check { name: "relocatable", outcome: self.relocatable() },
            Check {
                name: "no-execute data",
                outcome: self.flag(pe::IMAGE_DLLCHARACTERISTICS_NX_COMPAT, "NX_COMPAT"),
            },
            Check {
                name: "signature enforced",
                outcome: self.flag(pe::IMAGE_DLLCHARACTERISTICS_FORCE_INTEGRITY, "FORCE_INTEGRITY"),
            },
            Check { name: "sections", outcome: self.sections() },
            Check { name: "version resource", outcome: self.version() },
            Check { name: "imports", outcome: self.imported() },
            Check { name: "build paths", outcome: self.paths() },
        ]
    }

    /// Checks instructions, of which there must be none of a group.
    fn check_code(&self, code: &Code, refused: &str) -> Vec<Check> {
        vec![
            Check { name: "instructions", outcome: code.instructions(refused) },
            Check { name: "stack frames", outcome: self.frames(&code.functions) },
            Check { name: "infallible allocation", outcome: code.infallible(&self.symbols) },
            Check { name: "panics", outcome: code.panics(&self.symbols) },
        ]
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

    /// Windows 10 and Server 2016: the first systems of that number.
    fn versions(&self) -> Outcome {
        let headers = self.pe.nt_headers().optional_header();
        let system = (headers.major_operating_system_version(), headers.minor_operating_system_version());
        let subsystem = (headers.major_subsystem_version(), headers.minor_subsystem_version());
        match (system, subsystem) {
            ((10, 0), (10, 0)) => Ok("operating system and subsystem 10.0".into()),
            _ => fail(format!("operating system {system:?}, subsystem {subsystem:?}, not 10.0")),
        }
    }

    /// The loader refuses a driver whose checksum is wrong.
    fn checksum(&self) -> Outcome {
        let stored = self.pe.nt_headers().optional_header().check_sum();
        let address = self.pe.dos_header().nt_headers_offset() as usize;
        let computed = checksum(self.data, address + CHECKSUM);
        if stored == computed {
            Ok(format!("{stored:#x}"))
        } else {
            fail(format!("{stored:#x}, not {computed:#x}"))
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
                            problems.push(format!(
                                "{module} {name} is not in {}",
                                Imports::table(self.architecture)
                            ));
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
        let has_root = |data: &[u8]| data.windows(root.len()).any(|window| window == root.as_bytes());
        match [("image", self.data), ("debug information", self.pdb)].iter().find(|(_, data)| has_root(data))
        {
            Some((name, _)) => fail(format!("the {name} contains the path {root}")),
            None => Ok("none, nor in the debug information".into()),
        }
    }

    /// Reads the unwind tables, and decodes the executable sections.
    fn decode(&self) -> Result<Code> {
        let directory = self.pe.data_directories().get(pe::IMAGE_DIRECTORY_ENTRY_EXCEPTION);
        let table = match directory {
            Some(directory) => directory.data(self.data, &self.pe.section_table())?,
            None => &[],
        };
        let mut sections = Vec::new();
        for section in self.pe.section_table().iter() {
            if !section.characteristics.get(LE).contains(pe::IMAGE_SCN_MEM_EXECUTE) {
                continue;
            }
            let bytes = section.pe_data(self.data)?;
            // Data of a section is padded to the file alignment; code ends where the memory size ends.
            let len = bytes.len().min(section.virtual_size.get(LE) as usize);
            sections.push((section.virtual_address.get(LE), bytes.get(..len).unwrap_or_default()));
        }
        x64::decode(&sections, functions(table, |at| self.at(at))?, &self.symbols, self)
    }

    /// Checks calls and stack of the driver, both editions. The name of its debug information says which driver it is.
    fn depths(&self, code: &Code) -> Result<Vec<Check>> {
        let info = self.pe.pdb_info()?;
        let path = info.map(|info| String::from_utf8_lossy(info.path()).into_owned()).unwrap_or_default();
        let file = path.rsplit(['/', '\\']).next().unwrap_or_default();
        match file.strip_suffix(".pdb").unwrap_or_default() {
            name if name == Edition::Standard.name() => self.stack(code, Edition::Standard),
            name if name == Edition::Strict.name() => self.stack(code, Edition::Strict),
            name if DRIVERS.contains(&name) => {
                let outcome = Ok(format!("not determined: {name} has no table of entry points"));
                Ok(vec![Check { name: "stack depth", outcome }])
            }
            _ => {
                let outcome =
                    fail(format!("the debug information is {path:?}, which is that of no driver here"));
                Ok(vec![Check { name: "stack depth", outcome }])
            }
        }
    }

    /// Returns the addresses of code that code or data contains, but for those that Windows replaces.
    fn taken(&self, code: &Code) -> Result<BTreeSet<u32>> {
        let sections = self.pe.section_table();
        let mut pointers = code.addresses.clone();
        if let Some(mut blocks) = self.pe.data_directories().relocation_blocks(self.data, &sections)? {
            while let Some(block) = blocks.next()? {
                let all = block.filter(|relocation| relocation.typ == pe::IMAGE_REL_BASED_DIR64);
                let read = |address| self.address(self.at(address)?);
                pointers.extend(all.filter_map(|relocation| read(relocation.virtual_address)));
            }
        }
        let is_code = |address: u32| {
            let section = sections.section_containing(address);
            section.is_some_and(|it| it.characteristics.get(LE).contains(pe::IMAGE_SCN_MEM_EXECUTE))
        };
        let is_replaced =
            |address: u32| self.guard.as_ref().is_ok_and(|guard| guard.replaced.contains(&address));
        Ok(pointers.into_iter().filter(|&address| is_code(address) && !is_replaced(address)).collect())
    }

    /// Checks what Control Flow Guard needs.
    fn guarded(&self, code: &Code) -> Result<Check> {
        let taken = self.taken(code)?;
        let outcome = self.guard.as_ref().map_err(Clone::clone);
        let outcome = outcome.and_then(|guard| guard.check(&taken, &code.indirect, &self.symbols));
        Ok(Check { name: "control flow guard", outcome })
    }

    /// Checks the depth of the stack below entry points.
    fn stack(&self, code: &Code, edition: Edition) -> Result<Vec<Check>> {
        let taken = self.taken(code)?;
        let outcomes = stack::check(&stack::Subject { code, symbols: &self.symbols, taken }, edition)?;
        let names = ["calls"].into_iter().chain(std::iter::repeat("stack depth"));
        Ok(names.zip(outcomes).map(|(name, outcome)| Check { name, outcome }).collect())
    }

    /// Reads a pointer as an address relative to the image.
    fn address(&self, bytes: &[u8]) -> Option<u32> {
        let pointer = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
        let headers = self.pe.nt_headers().optional_header();
        let address = u32::try_from(pointer.checked_sub(headers.image_base())?).ok()?;
        (address < headers.size_of_image()).then_some(address)
    }

    /// Returns the image's bytes at an address that cannot be written.
    fn constant(&self, address: u32) -> Option<&'data [u8]> {
        let section = self.pe.section_table().section_containing(address)?;
        let is_writable = section.characteristics.get(LE).contains(pe::IMAGE_SCN_MEM_WRITE);
        self.at(address).filter(|_| !is_writable)
    }
}

impl Constants for Subject<'_> {
    fn pointer(&self, address: u32) -> Option<u32> {
        self.address(self.constant(address)?)
    }

    fn offset(&self, address: u32) -> Option<i32> {
        Some(i32::from_le_bytes(self.constant(address)?.get(..4)?.try_into().ok()?))
    }

    fn is_import(&self, address: u32) -> bool {
        let table = self.pe.data_directories().get(pe::IMAGE_DIRECTORY_ENTRY_IAT);
        table.is_some_and(|table| {
            address
                .checked_sub(table.virtual_address.get(LE))
                .is_some_and(|offset| offset < table.size.get(LE))
        })
    }

    fn is_guard(&self, address: u32) -> bool {
        self.guard.as_ref().is_ok_and(|guard| guard.dispatch == address)
    }
}

#[cfg(test)]
mod tests {
    use super::checksum;

    #[test]
    fn a_checksum_adds_words_with_carry_and_the_length() {
        assert_eq!(checksum(&[1, 0, 2, 0], 100), 3 + 4);
        assert_eq!(checksum(&[0xff, 0xff, 2, 0], 100), 2 + 4, "a carry");
        assert_eq!(checksum(&[0xff, 0xff, 0, 0], 100), 0xffff + 4);
        assert_eq!(checksum(&[1, 0, 9, 9, 9, 9, 2], 2), 3 + 7, "without the field itself, and an odd length");
    }
}
