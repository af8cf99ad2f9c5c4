// SPDX-License-Identifier: MIT OR Apache-2.0

//! Dependencies of programs and kernel modules, read from their ELF files.

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use object::{
    Endianness, Object as _, ObjectSection as _,
    elf::{DT_NEEDED, DT_STRSZ, DT_STRTAB, FileHeader64, PT_INTERP},
    read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _},
};

/// Returns the names of the shared libraries that a program or a library is linked with.
pub fn libraries(content: &[u8]) -> Result<Vec<String>> {
    let header = FileHeader64::<Endianness>::parse(content)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, content)?;
    let mut dynamic = None;
    for segment in segments {
        dynamic = dynamic.or(segment.dynamic(endian, content)?);
    }
    // A static program has no dependencies.
    let Some(dynamic) = dynamic else { return Ok(Vec::new()) };
    let value =
        |tag| dynamic.iter().find(|entry| entry.d_tag(endian) == tag).map(|entry| entry.d_val(endian));
    let (Some(address), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
        bail!("no dynamic strings")
    };
    let strings = segments
        .iter()
        .find_map(|segment| segment.data_range(endian, content, address, size).ok().flatten())
        .context("dynamic strings are not in the file")?;
    let needed = dynamic.iter().filter(|entry| entry.d_tag(endian) == DT_NEEDED);
    needed
        .map(|entry| {
            let start = usize::try_from(entry.d_val(endian))?;
            let name = strings.get(start..).context("a name beyond the dynamic strings")?;
            let end = name.iter().position(|&byte| byte == 0).context("a name without an end")?;
            Ok(String::from_utf8(name[..end].to_vec())?)
        })
        .collect()
}

/// Returns the absolute path of a program's dynamic loader, if it has one.
pub fn loader(content: &[u8]) -> Result<Option<String>> {
    let header = FileHeader64::<Endianness>::parse(content)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, content)?;
    let Some(segment) = segments.iter().find(|segment| segment.p_type(endian) == PT_INTERP) else {
        return Ok(None);
    };
    let name = segment.data(endian, content).ok().context("the loader's name is not in the file")?;
    Ok(Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned()))
}

/// Returns the names of the kernel modules that a module depends on, from its `.modinfo` section.
pub fn modules(path: &Path, content: &[u8]) -> Result<Vec<String>> {
    let file = object::File::parse(content).with_context(|| format!("{} is no module", path.display()))?;
    let section = file.section_by_name(".modinfo").context("a module without information")?;
    let information = section.data()?;
    let depends = information.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(depends.unwrap_or_default()).into_owned();
    Ok(names.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect())
}
