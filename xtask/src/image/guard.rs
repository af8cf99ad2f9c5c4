// SPDX-License-Identifier: MIT OR Apache-2.0

//! Control Flow Guard: the load configuration of an image, with the functions that may be called by address.

use std::collections::BTreeSet;

use object::{
    LittleEndian as LE, pe, pod,
    read::pe::{ImageNtHeaders as _, ImageOptionalHeader as _, PeFile64},
};

use super::{code::Outcome, flow::Indirect, symbols::Symbols};

/// The load configuration of an image, as far as calls by address use it. Addresses are relative to the image.
pub struct Guard {
    /// Functions that may be called by address.
    functions: Vec<u32>,
    /// The pointer that checked calls go through on x64.
    pub dispatch: u32,
    /// Functions of the image that Windows replaces by its own.
    pub replaced: [u32; 2],
}

impl Guard {
    /// Reads the load configuration of an image, and checks it.
    ///
    /// # Errors
    /// What is missing or malformed.
    pub fn read(file: &PeFile64, data: &[u8]) -> Result<Self, Vec<String>> {
        Self::parse(file, data).map_err(|problem| vec![problem])
    }

    fn parse(file: &PeFile64, data: &[u8]) -> Result<Self, String> {
        let sections = file.section_table();
        let headers = file.nt_headers().optional_header();
        if !headers.dll_characteristics().contains(pe::IMAGE_DLLCHARACTERISTICS_GUARD_CF) {
            return Err("GUARD_CF is not set".into());
        }
        let directory = file.data_directories().get(pe::IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG);
        let config = directory.ok_or("the image has no load configuration")?;
        let config = config.data(data, &sections).map_err(|error| error.to_string())?;
        let (config, _) = pod::from_bytes::<pe::ImageLoadConfigDirectory64>(config)
            .map_err(|()| "the load configuration ends early")?;
        let flags = config.guard_flags.get(LE);
        let wanted = pe::IMAGE_GUARD_CF_INSTRUMENTED | pe::IMAGE_GUARD_CF_FUNCTION_TABLE_PRESENT;
        if !flags.contains(wanted) {
            return Err(format!("the flags are {:#x}: checks or the list of functions are missing", flags.0));
        }
        let relative = |address: u64| -> Result<u32, String> {
            let offset = address.checked_sub(headers.image_base()).and_then(|it| u32::try_from(it).ok());
            offset.ok_or_else(|| format!("{address:#x} of the load configuration is outside of the image"))
        };
        let constant = |address: u32, size: usize| {
            let section = sections.section_containing(address).ok_or("a table is in no section")?;
            if section.characteristics.get(LE).contains(pe::IMAGE_SCN_MEM_WRITE) {
                return Err(format!("{address:#x} of Control Flow Guard can be written"));
            }
            let found = sections.pe_data_at(data, address).and_then(|bytes| bytes.get(..size));
            found.ok_or_else(|| "a table ends behind its section".to_owned())
        };
        let pointer = |address: u32| -> Result<u32, String> {
            let bytes = constant(address, 8)?.try_into().map_err(|_| "a pointer ends early")?;
            relative(u64::from_le_bytes(bytes))
        };
        let dispatch = relative(config.guard_cf_dispatch_function_pointer.get(LE))?;
        let check = relative(config.guard_cf_check_function_pointer.get(LE))?;
        let replaced = [pointer(check)?, pointer(dispatch)?];
        let entry = 4 + (flags.0 >> pe::IMAGE_GUARD_CF_FUNCTION_TABLE_SIZE_SHIFT) as usize;
        let size = usize::try_from(config.guard_cf_function_count.get(LE)).ok();
        let size = size.and_then(|count| count.checked_mul(entry)).ok_or("there are too many functions")?;
        let table = constant(relative(config.guard_cf_function_table.get(LE))?, size)?;
        let words = table.chunks_exact(entry).filter_map(|entry| entry.first_chunk());
        let functions: Vec<u32> = words.map(|word| u32::from_le_bytes(*word)).collect();
        if !functions.is_sorted_by(|one, two| one < two) {
            return Err("the list of functions is not in order".into());
        }
        let is_code = |address: u32| {
            let section = sections.section_containing(address);
            section.is_some_and(|it| it.characteristics.get(LE).contains(pe::IMAGE_SCN_MEM_EXECUTE))
        };
        match functions.iter().find(|address| !is_code(**address)) {
            Some(other) => Err(format!("{other:#x} is listed as a function, and is none")),
            None => Ok(Self { functions, dispatch, replaced }),
        }
    }

    /// Checks that each function whose address is `taken` is listed, and that calls of others than imports are checked.
    //= R-OPEN-39
    pub fn check(&self, taken: &BTreeSet<u32>, calls: &[Indirect], symbols: &Symbols) -> Outcome {
        let is_listed = |address: &u32| self.functions.binary_search(address).is_ok();
        let unlisted = taken.iter().filter(|address| !is_listed(address));
        let unlisted = unlisted
            .map(|&address| format!("{}: its address is taken, and it is not listed", symbols.name(address)));
        let is_unchecked = |call: &&Indirect| {
            call.targets.is_none() && !call.is_checked && !self.replaced.contains(&symbols.start(call.at))
        };
        let unchecked = calls.iter().filter(is_unchecked);
        let unchecked =
            unchecked.map(|call| format!("{}: a call by address is not checked", symbols.name(call.at)));
        let problems: Vec<String> = unlisted.chain(unchecked).collect();
        if !problems.is_empty() {
            return Err(problems);
        }
        let functions = format!("{} functions listed", self.functions.len());
        match calls.iter().filter(|call| call.is_checked).count() {
            0 => Ok(functions),
            count => Ok(format!("{functions}, {count} calls checked")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(taken: &[u32], calls: &[Indirect]) -> String {
        let guard = Guard { functions: vec![0x1000, 0x1100], dispatch: 0x3000, replaced: [0x1200, 0x1300] };
        let names = [(0x1000, "start"), (0x1100, "handler"), (0x1200, "nothing"), (0x1300, "through")];
        let outcome = guard.check(&taken.iter().copied().collect(), calls, &Symbols::of(&names));
        outcome.err().unwrap_or_default().join("\n")
    }

    #[test]
    fn a_function_whose_address_is_taken_must_be_listed() {
        assert_eq!(problems(&[0x1000, 0x1100], &[]), "");
        assert_eq!(problems(&[0x1000, 0x1110], &[]), "handler: its address is taken, and it is not listed");
    }

    #[test]
    fn a_call_of_an_unknown_function_must_be_checked() {
        let call = |at, targets: &[u32], is_checked| {
            let targets = (!targets.is_empty()).then(|| targets.iter().copied().collect());
            Indirect { at, targets, is_checked }
        };
        assert_eq!(problems(&[], &[call(0x1010, &[], true), call(0x1010, &[0x2000], false)]), "");
        assert_eq!(problems(&[], &[call(0x1300, &[], false)]), "", "what Windows replaces");
        let text = problems(&[], &[call(0x1110, &[], false)]);
        assert_eq!(text, "handler: a call by address is not checked");
    }
}
