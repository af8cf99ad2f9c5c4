// SPDX-License-Identifier: MIT OR Apache-2.0

//! Control Flow Guard: calls of functions in variables, to functions that the image lists as targets of such calls.
//!
//! An image that was compiled for it makes these calls through a pointer that its load configuration names. Windows with memory
//! integrity replaces the pointer; so does this module, by code that compares the target with the list:
//!
//! ```text
//!         mov r11, -base
//!         add r11, rax
//!         cmp r11, size
//!         jae valid
//!         mov r10, bitmap
//!         bt [r10], r11
//!         jnc invalid
//! valid:  jmp rax
//! invalid:
//!         mov rcx, rax
//!         mov r11, handler
//!         jmp r11
//! ```
//!
//! Not checked: targets in other images, and in sections without code, which fault in another way.

use std::ops::Range;

use object::{
    LittleEndian as LE,
    pe::{IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG, IMAGE_SCN_MEM_EXECUTE},
    read::pe::{ImageNtHeaders, ImageOptionalHeader, PeFile64},
};

use super::{code::Code, error::LoadError, thunk::Thunks};

/// Is called instead of a target that the image does not list, with its address.
pub type Handler = extern "efiapi" fn(usize);

/// Offsets in `IMAGE_LOAD_CONFIG_DIRECTORY64`, and the size of an image's that has them.
const DISPATCH: usize = 0x78;
const TABLE: usize = 0x80;
const COUNT: usize = 0x88;
const FLAGS: usize = 0x90;
const SIZE: usize = 0x94;

/// `IMAGE_GUARD_CF_FUNCTION_TABLE_PRESENT`: the image has a list.
const TABLE_PRESENT: u32 = 0x400;

/// The list of an image, and the code that compares with it.
pub struct Guard {
    /// Offsets of the functions, in order.
    targets: Box<[u32]>,
    /// Where the image keeps the pointer to the code.
    dispatch: Option<usize>,
    code: Code,
    /// The code refers to them by their addresses.
    _valid: Box<[u64]>,
    _handler: Thunks,
}

impl Guard {
    /// Reads the list of an image that will be at the address `base`. `None` if it has none.
    ///
    /// # Errors
    /// The list is not inside of the image, or not in order; or there is no memory for the code.
    pub fn read(
        file: &PeFile64,
        bytes: &[u8],
        base: usize,
        handler: Handler,
    ) -> Result<Option<Self>, LoadError> {
        let sections = file.section_table();
        let Some(directory) = file.data_directories().get(IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG) else {
            return Ok(None);
        };
        let config = directory.data(bytes, &sections)?;
        let config = config.get(..directory.size.get(LE) as usize).unwrap_or(config);
        if config.len() < SIZE {
            return Ok(None);
        }
        let flags = u32::from_le_bytes(field(config, FLAGS)?);
        let optional = file.nt_headers().optional_header();
        let size = optional.size_of_image();
        let offset = |at| -> Result<Option<usize>, LoadError> {
            let address = u64::from_le_bytes(field(config, at)?);
            let offset = address.checked_sub(optional.image_base()).filter(|offset| *offset < size.into());
            let malformed =
                || LoadError::Format(format!("{address:#x} of its load configuration is outside of it"));
            if address == 0 { Ok(None) } else { Ok(Some(offset.ok_or_else(malformed)? as usize)) }
        };
        let (Some(table), true) = (offset(TABLE)?, flags & TABLE_PRESENT != 0) else { return Ok(None) };
        let count = u64::from_le_bytes(field(config, COUNT)?) as usize;
        // The upper four bits of the flags: bytes of each entry behind the offset.
        let entry = 4 + (flags >> 28) as usize;
        let data = u32::try_from(table).ok().and_then(|table| sections.pe_data_at(bytes, table));
        let data = data.and_then(|data| data.get(..count.checked_mul(entry)?));
        let data =
            data.ok_or_else(|| LoadError::Format("its list of functions is outside of it".to_owned()))?;
        let targets: Result<Box<[u32]>, _> =
            data.chunks_exact(entry).map(|entry| field(entry, 0).map(u32::from_le_bytes)).collect();
        let targets = targets?;
        if !targets.is_sorted_by(|one, two| one < two) || targets.last().is_some_and(|last| *last >= size) {
            return Err(LoadError::Refused("its list of functions is not in order".to_owned()));
        }
        let code = sections.iter().filter(|it| it.characteristics.get(LE).contains(IMAGE_SCN_MEM_EXECUTE));
        let code = code.map(|it| {
            let start = it.virtual_address.get(LE);
            start..start.saturating_add(it.virtual_size.get(LE)).min(size)
        });
        let valid = valid(size, code, &targets);
        let thunks = Thunks::new(&[(handler as *const ()).expose_provenance()]).map_err(LoadError::Map)?;
        let bitmap = valid.as_ptr().expose_provenance();
        let code = Code::new(&comparison(base, size, bitmap, thunks.address(0))).map_err(LoadError::Map)?;
        Ok(Some(Self { targets, dispatch: offset(DISPATCH)?, code, _valid: valid, _handler: thunks }))
    }

    /// Returns the offset of the pointer that the image calls through, and the address that belongs there.
    pub fn pointer(&self) -> Option<(usize, usize)> {
        Some((self.dispatch?, self.code.base()))
    }

    /// Returns whether the function at this offset may be called by its address.
    pub fn allows(&self, offset: usize) -> bool {
        u32::try_from(offset).is_ok_and(|offset| self.targets.binary_search(&offset).is_ok())
    }
}

fn field<const N: usize>(data: &[u8], at: usize) -> Result<[u8; N], LoadError> {
    let bytes = data.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| LoadError::Format("its load configuration ends early".to_owned()))
}

/// Returns a bit for each byte of an image: set, unless the byte is one of code and no target.
fn valid(size: u32, code: impl Iterator<Item = Range<u32>>, targets: &[u32]) -> Box<[u64]> {
    let mut valid = vec![u64::MAX; (size as usize).div_ceil(64)];
    for at in code.flatten() {
        valid[at as usize / 64] &= !(1 << (at % 64));
    }
    for &at in targets {
        valid[at as usize / 64] |= 1 << (at % 64);
    }
    valid.into()
}

/// Returns the code of the module's documentation.
fn comparison(base: usize, size: u32, bitmap: usize, handler: usize) -> Vec<u8> {
    let parts: [&[u8]; 11] = [
        &[0x49, 0xbb],
        &base.wrapping_neg().to_le_bytes(),
        &[0x49, 0x01, 0xc3, 0x49, 0x81, 0xfb],
        &size.to_le_bytes(),
        &[0x73, 0x10, 0x49, 0xba],
        &bitmap.to_le_bytes(),
        &[0x4d, 0x0f, 0xa3, 0x1a, 0x73, 0x02],
        &[0xff, 0xe0],
        &[0x48, 0x89, 0xc1, 0x49, 0xbb],
        &handler.to_le_bytes(),
        &[0x41, 0xff, 0xe3],
    ];
    parts.concat()
}
