// SPDX-License-Identifier: MIT OR Apache-2.0

//! Maps a PE image, relocates it, and binds its imports.

use std::{
    fs, io,
    ops::Range,
    path::{Path, PathBuf},
    ptr,
    sync::OnceLock,
};

use object::{
    FileKind, LittleEndian as LE,
    pe::{
        IMAGE_DIRECTORY_ENTRY_EXCEPTION, IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG, IMAGE_FILE_MACHINE_AMD64,
        IMAGE_FILE_RELOCS_STRIPPED, IMAGE_REL_BASED_ABSOLUTE, IMAGE_REL_BASED_DIR64,
        IMAGE_SCN_MEM_DISCARDABLE, IMAGE_SCN_MEM_EXECUTE, IMAGE_SCN_MEM_NOT_PAGED, IMAGE_SCN_MEM_WRITE,
        IMAGE_SUBSYSTEM_NATIVE, ImageNtHeaders64, ImageSectionHeader,
    },
    read::pe::{ImageNtHeaders, ImageOptionalHeader, Import, PeFile64},
};

use super::{
    error::LoadError,
    frame::Frame,
    functions::{Functions, RuntimeFunction},
    guard::{self, Guard},
    missing::{Handler, Missing},
    pauses,
    references::References,
    symbols::Symbols,
    thunk::Thunks,
};
use crate::{
    import::table::{ImportTable, Kind},
    memory::{self, PAGE_SIZE, paged::Paged},
    verifier::tolerance::Tolerances,
};

/// Options with which an image is loaded.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// Its security cookie.
    pub cookie: u64,
    pub tolerates: Tolerances,
    pub on_missing: Handler,
    pub on_unlisted: guard::Handler,
    /// Whether a `pause` lets other threads run.
    pub yields_at_pauses: bool,
}

/// A loaded image. Loading a file twice gives two images with separate globals.
pub struct Image {
    name: String,
    path: PathBuf,
    mapping: Mapping,
    entry: usize,
    functions: Functions,
    /// Offsets of the `pause` instructions that were replaced, in order.
    pauses: Vec<u32>,
    /// The code that the import table points to lives as long as the image.
    _thunks: Thunks,
    missing: Missing,
    /// The offsets of the instructions that use each missing import.
    callers: Vec<Vec<u32>>,
    guard: Option<Guard>,
    discardable: Vec<Range<usize>>,
    pageable: Vec<(Range<usize>, i32, String)>,
    tolerates: Tolerances,
    symbols: OnceLock<Option<Symbols>>,
}

impl Image {
    /// Loads the image at `path` to the address `base`, binds its imports to `imports`, and sets its security
    /// cookie. The mapping is removed with its host's addresses. Symbols come from the `.pdb` beside the image, if
    /// there is one.
    ///
    /// # Errors
    /// See [`LoadError`].
    pub(crate) fn load(
        path: &Path,
        base: usize,
        options: Options,
        imports: &ImportTable,
    ) -> Result<Self, LoadError> {
        let bytes = fs::read(path).map_err(|error| LoadError::Read(path.to_owned(), error))?;
        if FileKind::parse(&*bytes).is_ok_and(|kind| kind == FileKind::Pe32) {
            return Err(LoadError::Refused("it is a 32-bit image".to_owned()));
        }
        let file = PeFile64::parse(&*bytes)?;
        check(&file)?;
        let optional = file.nt_headers().optional_header();
        let mapping = Mapping::new(base, optional.size_of_image() as usize).map_err(LoadError::Map)?;
        copy(&file, &bytes, &mapping)?;
        relocate(&file, &bytes, &mapping)?;
        set_cookie(&file, &bytes, &mapping, options.cookie)?;
        let (thunks, missing, slots) = bind(&file, &mapping, imports, options.on_missing)?;
        let guard = Guard::read(&file, &bytes, mapping.base, options.on_unlisted)?;
        if let Some((at, code)) = guard.as_ref().and_then(Guard::pointer) {
            mapping.write(at, &code.to_le_bytes())?;
        }
        let functions = functions(&file, &bytes)?;
        let callers = callers(&file, &functions, &mapping, &slots)?;
        let pauses =
            if options.yields_at_pauses { replace_pauses(&file, &functions, &mapping)? } else { Vec::new() };
        protect(&file, &mapping)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self {
            name,
            path: path.to_owned(),
            entry: mapping.base + optional.address_of_entry_point() as usize,
            mapping,
            functions,
            pauses,
            _thunks: thunks,
            missing,
            callers,
            guard,
            discardable: discardable(&file),
            pageable: pageable(&file),
            tolerates: options.tolerates,
            symbols: OnceLock::new(),
        })
    }

    /// Returns the file name, e.g. `viordma.sys`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub fn base(&self) -> usize {
        self.mapping.base
    }

    #[must_use]
    pub fn size(&self) -> usize {
        self.mapping.size
    }

    /// Returns the address of `DriverEntry`.
    #[must_use]
    pub fn entry(&self) -> usize {
        self.entry
    }

    /// Returns whether an address is inside the image.
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.mapping.base) < self.mapping.size
    }

    /// Returns `size` bytes at an offset.
    pub(super) fn bytes(&self, offset: usize, size: usize) -> Option<&[u8]> {
        let at = self.mapping.check(offset, size).ok()?;
        // SAFETY: inside the mapping, readable, and used for the read-only sections only.
        Some(unsafe { std::slice::from_raw_parts(at, size) })
    }

    /// Returns the four bytes of code at an address.
    pub(super) fn code_at(&self, address: usize) -> Option<[u8; 4]> {
        if self.is_discardable(address) {
            return None;
        }
        self.mapping.read(address.checked_sub(self.mapping.base)?).ok()
    }

    /// Returns whether a `pause` at this address was replaced.
    pub(super) fn has_pause_at(&self, address: usize) -> bool {
        let offset = address.checked_sub(self.base()).and_then(|offset| u32::try_from(offset).ok());
        offset.is_some_and(|offset| self.pauses.binary_search(&offset).is_ok())
    }

    /// Returns whether a function in the image may be called by its address: it is listed, or the image has no list.
    pub(super) fn allows_call(&self, address: usize) -> bool {
        self.guard.as_ref().is_none_or(|guard| guard.allows(address.wrapping_sub(self.mapping.base)))
    }

    /// Returns the imports that the simulated kernel does not have, as `module!name`. A call of one is a bug check.
    #[must_use]
    pub fn missing_imports(&self) -> &[String] {
        self.missing.names()
    }

    /// Returns the frames of the code that uses the missing import of this number, which [`Image::missing_imports`] has.
    #[must_use]
    pub fn callers_of_missing(&self, number: usize) -> Vec<Frame> {
        let callers = self.callers.get(number).into_iter().flatten();
        callers.map(|&offset| self.frame(self.base() + offset as usize)).collect()
    }

    /// Returns the faults that are tolerated of the image.
    #[must_use]
    pub fn tolerates(&self) -> Tolerances {
        self.tolerates
    }

    pub(super) fn functions(&self) -> &Functions {
        &self.functions
    }

    /// Makes the pageable sections pageable memory of the host: those whose names begin with `PAGE`.
    pub(crate) fn make_sections_pageable(&self, paged: &Paged) {
        for (section, protection, name) in &self.pageable {
            let start = self.mapping.base + section.start;
            paged.add(start..start + section.len(), *protection, format!("section {name} of {}", self.name));
        }
    }

    /// Undoes [`Image::make_sections_pageable`].
    pub(crate) fn make_sections_resident(&self, paged: &Paged) {
        for (section, ..) in &self.pageable {
            paged.remove(self.mapping.base + section.start);
        }
    }

    /// Makes the sections inaccessible that Windows frees after `DriverEntry`.
    pub(crate) fn discard_sections(&self) {
        for section in &self.discardable {
            // Cannot fail: removes access from our own mapping.
            let discarded = self.mapping.protect(section.start, section.len(), libc::PROT_NONE);
            debug_assert!(discarded.is_ok());
        }
    }

    /// Returns whether an address is in a section that is discarded after `DriverEntry`.
    pub(super) fn is_discardable(&self, address: usize) -> bool {
        let offset = address.wrapping_sub(self.mapping.base);
        self.discardable.iter().any(|section| section.contains(&offset))
    }

    /// Makes the image inaccessible after its driver was unloaded, except for reads by stack walks.
    pub(crate) fn discard(&self) {
        // Cannot fail: removes access from our own mapping.
        let discarded = self.mapping.protect(0, self.mapping.size, libc::PROT_READ);
        debug_assert!(discarded.is_ok());
    }

    /// Returns the named frame of an address in the image.
    #[must_use]
    pub fn frame(&self, address: usize) -> Frame {
        let offset = u32::try_from(address.wrapping_sub(self.base())).unwrap_or(0);
        let symbols = self.symbols.get_or_init(|| Symbols::read(&self.path.with_extension("pdb")));
        Frame {
            image: self.name.clone(),
            offset,
            symbol: symbols.as_ref().and_then(|symbols| symbols.name(offset)),
        }
    }
}

/// Checks that a kernel would load the image.
fn check(file: &PeFile64) -> Result<(), LoadError> {
    let header = file.nt_headers().file_header();
    let machine = header.machine.get(LE);
    if machine != IMAGE_FILE_MACHINE_AMD64 {
        return Err(LoadError::Refused(format!("its machine type is {:#x}, not x64 (0x8664)", machine.0)));
    }
    let optional = file.nt_headers().optional_header();
    let subsystem = optional.subsystem();
    if subsystem != IMAGE_SUBSYSTEM_NATIVE {
        let text = format!("its subsystem is {}, not native (1), as of a driver", subsystem.0);
        return Err(LoadError::Refused(text));
    }
    let (entry, size) = (optional.address_of_entry_point(), optional.size_of_image());
    if entry >= size {
        return Err(LoadError::Format(format!("its entry point {entry:#x} is outside of the image")));
    }
    for section in file.section_table().iter() {
        let flags = section.characteristics.get(LE);
        if flags.contains(IMAGE_SCN_MEM_WRITE) && flags.contains(IMAGE_SCN_MEM_EXECUTE) {
            let name = String::from_utf8_lossy(section.raw_name()).into_owned();
            return Err(LoadError::Refused(format!("section {name} is both writable and executable")));
        }
    }
    Ok(())
}

fn copy(file: &PeFile64, bytes: &[u8], mapping: &Mapping) -> Result<(), LoadError> {
    let headers = file.nt_headers().optional_header().size_of_headers() as usize;
    mapping.write(
        0,
        bytes
            .get(..headers)
            .ok_or_else(|| LoadError::Format("the file ends inside its headers".to_owned()))?,
    )?;
    for section in file.section_table().iter() {
        let data = section.pe_data(bytes)?;
        // Data in the file is padded to the file alignment.
        let size = data.len().min(section.virtual_size.get(LE) as usize);
        mapping.write(section.virtual_address.get(LE) as usize, &data[..size])?;
    }
    Ok(())
}

fn relocate(file: &PeFile64, bytes: &[u8], mapping: &Mapping) -> Result<(), LoadError> {
    let optional = file.nt_headers().optional_header();
    let delta = (mapping.base as u64).wrapping_sub(optional.image_base());
    let blocks = file.data_directories().relocation_blocks(bytes, &file.section_table())?;
    let Some(mut blocks) = blocks else {
        let is_stripped =
            file.nt_headers().file_header().characteristics.get(LE).contains(IMAGE_FILE_RELOCS_STRIPPED);
        if is_stripped && delta != 0 {
            let text = "its relocations were stripped, and it is not mapped at its preferred base";
            return Err(LoadError::Refused(text.to_owned()));
        }
        // Code without absolute addresses needs no table.
        return Ok(());
    };
    while let Some(block) = blocks.next()? {
        for relocation in block {
            match relocation.typ {
                IMAGE_REL_BASED_ABSOLUTE => {}
                IMAGE_REL_BASED_DIR64 => {
                    let at = relocation.virtual_address as usize;
                    let value = u64::from_le_bytes(mapping.read(at)?).wrapping_add(delta);
                    mapping.write(at, &value.to_le_bytes())?;
                }
                other => return Err(LoadError::Format(format!("relocation type {other}"))),
            }
        }
    }
    Ok(())
}

/// Returns the parts of an image that are code: its functions, and leaf functions, which are in no directory.
fn code_parts(file: &PeFile64, functions: &Functions) -> Vec<Range<u32>> {
    let mut parts: Vec<Range<u32>> = functions.iter().map(|function| function.begin..function.end).collect();
    for section in file.section_table().iter() {
        if section.characteristics.get(LE).contains(IMAGE_SCN_MEM_EXECUTE) {
            let start = section.virtual_address.get(LE);
            parts.extend(functions.uncovered(start..start.saturating_add(section.virtual_size.get(LE))));
        }
    }
    parts
}

/// Returns the offsets of the instructions that use each of `slots`, the entries of missing imports.
fn callers(
    file: &PeFile64,
    functions: &Functions,
    mapping: &Mapping,
    slots: &[u32],
) -> Result<Vec<Vec<u32>>, LoadError> {
    let mut sorted = slots.to_vec();
    sorted.sort_unstable();
    let mut references = References::default();
    let parts = if slots.is_empty() { Vec::new() } else { code_parts(file, functions) };
    for part in parts {
        references.add(part.start, mapping.code(&part)?, &sorted);
    }
    Ok(slots.iter().map(|&slot| references.of(slot)).collect())
}

/// Replaces each `pause` in a function by an instruction that faults. Returns their offsets, in order.
fn replace_pauses(file: &PeFile64, functions: &Functions, mapping: &Mapping) -> Result<Vec<u32>, LoadError> {
    let mut pauses = Vec::new();
    for part in code_parts(file, functions) {
        pauses.extend(pauses::find(part.start, mapping.code(&part)?));
    }
    pauses.sort_unstable();
    pauses.dedup();
    for &pause in &pauses {
        mapping.write(pause as usize, &pauses::FAULT)?;
    }
    Ok(pauses)
}

/// Sets the cookie that code compiled with stack checks (`/GS`) compares, as the loader of Windows does: the
/// entry point of an image refuses to run with the one it was linked with.
fn set_cookie(file: &PeFile64, bytes: &[u8], mapping: &Mapping, cookie: u64) -> Result<(), LoadError> {
    /// Offset of `SecurityCookie` in `IMAGE_LOAD_CONFIG_DIRECTORY64`.
    const SECURITY_COOKIE: usize = 0x58;
    let Some(directory) = file.data_directories().get(IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG) else {
        return Ok(());
    };
    let config = directory.data(bytes, &file.section_table())?;
    if config.len() < SECURITY_COOKIE + 8 {
        return Ok(());
    }
    let at = directory.virtual_address.get(LE) as usize + SECURITY_COOKIE;
    match usize::from_le_bytes(mapping.read(at)?) {
        0 => Ok(()),
        address => mapping.write(address.wrapping_sub(mapping.base), &cookie.to_le_bytes()),
    }
}

/// Returns the sections that are discarded after `DriverEntry`, as offsets from the base.
fn discardable(file: &PeFile64) -> Vec<Range<usize>> {
    let sections = file.section_table();
    let discardable =
        sections.iter().filter(|section| section.characteristics.get(LE).contains(IMAGE_SCN_MEM_DISCARDABLE));
    discardable
        .map(|section| {
            let start = section.virtual_address.get(LE) as usize;
            start..start + (section.virtual_size.get(LE) as usize).next_multiple_of(PAGE_SIZE)
        })
        .collect()
}

/// Binds the imports. Returns the offsets of the entries of those that are missing, too.
fn bind(
    file: &PeFile64,
    mapping: &Mapping,
    imports: &ImportTable,
    on_missing: Handler,
) -> Result<(Thunks, Missing, Vec<u32>), LoadError> {
    let mut names = Vec::new();
    let mut missing_slots = Vec::new();
    let mut slots = Vec::new();
    if let Some(table) = file.import_table()? {
        let mut descriptors = table.descriptors()?;
        while let Some(descriptor) = descriptors.next()? {
            let module = String::from_utf8_lossy(table.name(descriptor.name.get(LE))?).to_lowercase();
            let mut thunks = table.thunks(descriptor.original_first_thunk.get(LE))?;
            let mut slot = descriptor.first_thunk.get(LE) as usize;
            while let Some(thunk) = thunks.next::<ImageNtHeaders64>()? {
                let name = match table.import::<ImageNtHeaders64>(thunk)? {
                    Import::Name(_, name) => String::from_utf8_lossy(name).into_owned(),
                    Import::Ordinal(number) => format!("#{number}"),
                };
                let target = if let Some(import) = imports.find(&module, &name) {
                    match import.kind {
                        Kind::Function => Target::Import((import.address)()),
                        Kind::Variable => Target::Variable((import.address)()),
                    }
                } else {
                    names.push(format!("{module}!{name}"));
                    // Offsets from the base have 32 bits.
                    missing_slots.push(slot as u32);
                    Target::Missing(names.len() - 1)
                };
                slots.push((slot, target));
                slot += size_of::<u64>();
            }
        }
    }
    let missing = Missing::new(names, on_missing).map_err(LoadError::Map)?;
    let targets: Vec<usize> = slots
        .iter()
        .map(|&(_, target)| match target {
            Target::Import(address) | Target::Variable(address) => address,
            Target::Missing(index) => missing.address(index),
        })
        .collect();
    let thunks = Thunks::new(&targets).map_err(LoadError::Map)?;
    for (index, &(slot, target)) in slots.iter().enumerate() {
        let address = match target {
            Target::Variable(address) => address,
            Target::Import(_) | Target::Missing(_) => thunks.address(index),
        };
        mapping.write(slot, &address.to_le_bytes())?;
    }
    Ok((thunks, missing, missing_slots))
}

/// The target that an import is bound to.
#[derive(Clone, Copy)]
enum Target {
    /// The address of the function.
    Import(usize),
    /// The address of the variable.
    Variable(usize),
    /// The number among the missing ones.
    Missing(usize),
}

fn functions(file: &PeFile64, bytes: &[u8]) -> Result<Functions, LoadError> {
    let Some(directory) = file.data_directories().get(IMAGE_DIRECTORY_ENTRY_EXCEPTION) else {
        return Ok(Functions::default());
    };
    let data = directory.data(bytes, &file.section_table())?;
    Ok(Functions::new(data.chunks_exact(12).map(RuntimeFunction::parse).collect()))
}

/// Returns the sections that Windows pages, as offsets from the base, with their protection and names: those whose names
/// begin with `PAGE`, unless their flags forbid it.
fn pageable(file: &PeFile64) -> Vec<(Range<usize>, i32, String)> {
    let sections = file.section_table();
    let pageable = sections.iter().filter(|section| {
        let flags = section.characteristics.get(LE);
        section.raw_name().starts_with(b"PAGE")
            && !flags.contains(IMAGE_SCN_MEM_NOT_PAGED)
            && !flags.contains(IMAGE_SCN_MEM_DISCARDABLE)
    });
    pageable
        .map(|section| {
            let start = section.virtual_address.get(LE) as usize;
            let end = start + (section.virtual_size.get(LE) as usize).next_multiple_of(PAGE_SIZE);
            let name = String::from_utf8_lossy(section.raw_name()).into_owned();
            (start..end, protection(section), name)
        })
        .collect()
}

/// Returns the access that a section allows, as `mprotect` takes it.
fn protection(section: &ImageSectionHeader) -> i32 {
    let flags = section.characteristics.get(LE);
    let mut protection = libc::PROT_READ;
    if flags.contains(IMAGE_SCN_MEM_WRITE) {
        protection |= libc::PROT_WRITE;
    }
    if flags.contains(IMAGE_SCN_MEM_EXECUTE) {
        protection |= libc::PROT_EXEC;
    }
    protection
}

/// Sets the protection of each section; everything between sections is read-only.
fn protect(file: &PeFile64, mapping: &Mapping) -> Result<(), LoadError> {
    mapping.protect(0, mapping.size, libc::PROT_READ)?;
    for section in file.section_table().iter() {
        mapping.protect(
            section.virtual_address.get(LE) as usize,
            section.virtual_size.get(LE) as usize,
            protection(section),
        )?;
    }
    Ok(())
}

/// The memory of an image.
struct Mapping {
    base: usize,
    size: usize,
}

impl Mapping {
    fn new(base: usize, size: usize) -> io::Result<Self> {
        let size = size.next_multiple_of(PAGE_SIZE);
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        memory::map(base, size, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, None)?;
        Ok(Self { base, size })
    }

    fn check(&self, offset: usize, size: usize) -> Result<*mut u8, LoadError> {
        match offset.checked_add(size) {
            Some(end) if end <= self.size => Ok(ptr::with_exposed_provenance_mut(self.base + offset)),
            _ => Err(LoadError::Format(format!("{offset:#x} is outside of the image"))),
        }
    }

    fn write(&self, offset: usize, data: &[u8]) -> Result<(), LoadError> {
        let at = self.check(offset, data.len())?;
        // SAFETY: inside the mapping, as just checked, and writable until `protect`.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), at, data.len()) };
        Ok(())
    }

    fn read<const N: usize>(&self, offset: usize) -> Result<[u8; N], LoadError> {
        let at = self.check(offset, N)?;
        // SAFETY: inside the mapping, as just checked; bytes have no alignment.
        Ok(unsafe { at.cast::<[u8; N]>().read() })
    }

    /// Returns a part of the image that is code. It is not written while it is borrowed.
    fn code(&self, part: &Range<u32>) -> Result<&[u8], LoadError> {
        let size = part.end.saturating_sub(part.start) as usize;
        let at = self.check(part.start as usize, size)?;
        // SAFETY: inside the mapping, as just checked; it is written by the loader only, which drops the slice first.
        Ok(unsafe { std::slice::from_raw_parts(at, size) })
    }

    fn protect(&self, offset: usize, size: usize, protection: i32) -> Result<(), LoadError> {
        let size = size.next_multiple_of(PAGE_SIZE);
        let at = self.check(offset, size)?;
        // SAFETY: the pages of our own mapping, which no Rust object lives in.
        match unsafe { libc::mprotect(at.cast(), size, protection) } {
            0 => Ok(()),
            _ => Err(LoadError::Map(io::Error::last_os_error())),
        }
    }
}
