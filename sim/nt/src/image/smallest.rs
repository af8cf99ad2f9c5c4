// SPDX-License-Identifier: MIT OR Apache-2.0

//! The smallest driver image, for tests of loaders: one section of code that needs no relocation.

/// Offsets in the file, and of the section in memory.
const OPTIONAL: usize = 0x58;
/// The code in the file, behind the headers.
pub const CODE_AT: usize = 0x200;
const SECTION: u32 = 0x1000;

/// Offsets of fields of the headers.
pub const MACHINE: usize = 0x44;
pub const CHARACTERISTICS: usize = 0x56;
pub const MAGIC: usize = OPTIONAL;
pub const ENTRY: usize = OPTIONAL + 16;
pub const SUBSYSTEM: usize = OPTIONAL + 68;

/// `DriverEntry` stores the address of the last instruction in `DriverObject->DriverUnload` and succeeds.
const CODE: [u8; 15] = [
    0x48, 0x8d, 0x05, 0x07, 0x00, 0x00, 0x00, // lea rax, [rip + 7]
    0x48, 0x89, 0x41, 0x68, // mov [rcx + 68h], rax
    0x31, 0xc0, // xor eax, eax
    0xc3, // ret
    0xc3, // DriverUnload: ret
];

/// Returns the file.
#[must_use]
pub fn image() -> Vec<u8> {
    let mut file = vec![0; 2 * CODE_AT];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, b"MZ");
    put(0x3c, &0x40_u32.to_le_bytes());
    put(0x40, b"PE\0\0");
    put(MACHINE, &0x8664_u16.to_le_bytes());
    put(0x46, &1_u16.to_le_bytes()); // NumberOfSections
    put(0x54, &240_u16.to_le_bytes()); // SizeOfOptionalHeader
    put(CHARACTERISTICS, &0x22_u16.to_le_bytes()); // executable image, large addresses
    put(MAGIC, &0x20b_u16.to_le_bytes());
    put(ENTRY, &SECTION.to_le_bytes());
    put(OPTIONAL + 24, &0x1_4000_0000_u64.to_le_bytes()); // ImageBase
    put(OPTIONAL + 32, &SECTION.to_le_bytes()); // SectionAlignment
    put(OPTIONAL + 36, &0x200_u32.to_le_bytes()); // FileAlignment
    put(OPTIONAL + 56, &(2 * SECTION).to_le_bytes()); // SizeOfImage
    put(OPTIONAL + 60, &0x200_u32.to_le_bytes()); // SizeOfHeaders
    put(SUBSYSTEM, &1_u16.to_le_bytes()); // native
    put(OPTIONAL + 108, &16_u32.to_le_bytes()); // NumberOfRvaAndSizes
    let section = OPTIONAL + 240;
    put(section, b".text\0\0\0");
    put(section + 8, &(CODE.len() as u32).to_le_bytes());
    put(section + 12, &SECTION.to_le_bytes());
    put(section + 16, &0x200_u32.to_le_bytes()); // SizeOfRawData
    put(section + 20, &0x200_u32.to_le_bytes()); // PointerToRawData
    put(section + 36, &0x6000_0020_u32.to_le_bytes()); // code, execute, read
    put(CODE_AT, &CODE);
    file
}

/// Returns the file with a `DriverEntry` that calls an import of the kernel.
#[must_use]
pub fn with_import(name: &str) -> Vec<u8> {
    /// Offsets in the section, which is all of the file behind the headers.
    const DESCRIPTOR: usize = 0x40;
    const SLOT: usize = 0x80;
    const LOOKUP: usize = 0x90;
    const MODULE: usize = 0xa0;
    const NAME: usize = 0xb0;
    let mut file = image();
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    let address = |offset: usize| SECTION + offset as u32;
    put(OPTIONAL + 120, &address(DESCRIPTOR).to_le_bytes());
    put(OPTIONAL + 124, &40_u32.to_le_bytes());
    put(OPTIONAL + 240 + 8, &0x200_u32.to_le_bytes()); // VirtualSize
    put(CODE_AT, &[0x48, 0x83, 0xec, 0x28]); // sub rsp, 28h
    put(CODE_AT + 4, &[0xff, 0x15, 0x76, 0, 0, 0]); // call [rip + 76h]
    put(CODE_AT + 10, &[0x48, 0x83, 0xc4, 0x28, 0xc3]); // add rsp, 28h; ret
    for (field, offset) in [(0, LOOKUP), (12, MODULE), (16, SLOT)] {
        put(CODE_AT + DESCRIPTOR + field, &address(offset).to_le_bytes());
    }
    for table in [SLOT, LOOKUP] {
        put(CODE_AT + table, &address(NAME).to_le_bytes());
    }
    put(CODE_AT + MODULE, b"ntoskrnl.exe");
    put(CODE_AT + NAME + 2, name.as_bytes());
    file
}

/// Returns the file with other bytes at an offset.
#[must_use]
pub fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = image();
    file[at..at + bytes.len()].copy_from_slice(bytes);
    file
}
