// SPDX-License-Identifier: MIT OR Apache-2.0

//! Resources of the image, written as a `.res` file.
//!
//! Both linkers take a `.res` file as an input, so no resource compiler is needed on either kind of build
//! machine. Layout: `RESOURCEHEADER` (Windows menus and other resources reference).

use std::{env, fs, path::PathBuf};

pub const LANG_EN_US: u16 = 0x0409;

/// One resource, by type and name, both numbers.
pub struct Resource {
    pub kind: u16,
    pub name: u16,
    pub data: Vec<u8>,
}

/// Writes the resources below `OUT_DIR` and tells cargo to link them into the driver.
pub fn link(resources: &[Resource]) -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(env::var("OUT_DIR")?).join("resources.res");
    // The empty entry marks the 32-bit format.
    let mut file = entry(&Resource { kind: 0, name: 0, data: Vec::new() }, 0);
    for resource in resources {
        file.extend(entry(resource, LANG_EN_US));
    }
    fs::write(&path, file)?;
    println!("cargo::rustc-cdylib-link-arg={}", path.display());
    Ok(())
}

fn entry(resource: &Resource, language: u16) -> Vec<u8> {
    const MEMORY_FLAGS: u16 = 0x0030; // moveable, pure: kept for old tools, ignored by the loader
    let mut out = Vec::new();
    out.extend((resource.data.len() as u32).to_le_bytes());
    out.extend(32u32.to_le_bytes()); // header size
    for id in [resource.kind, resource.name] {
        out.extend(0xffff_u16.to_le_bytes()); // a number follows, not a name
        out.extend(id.to_le_bytes());
    }
    out.extend(0u32.to_le_bytes()); // data version
    out.extend(if resource.kind == 0 { 0 } else { MEMORY_FLAGS }.to_le_bytes());
    out.extend(language.to_le_bytes());
    out.extend(0u64.to_le_bytes()); // version, characteristics
    out.extend(&resource.data);
    align(&mut out);
    out
}

/// Pads to four bytes.
pub fn align(out: &mut Vec<u8>) {
    out.resize(out.len().next_multiple_of(4), 0);
}
