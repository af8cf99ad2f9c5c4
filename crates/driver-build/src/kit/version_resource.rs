// SPDX-License-Identifier: MIT OR Apache-2.0

//! The image's version resource, generated from the package's metadata.
//!
//! Layouts: `VS_VERSIONINFO`, `VS_FIXEDFILEINFO`, `StringFileInfo`, `VarFileInfo` (Windows menus and other
//! resources reference).

use std::env;

use super::resources::{LANG_EN_US, Resource, align};

const RT_VERSION: u16 = 16;
const VS_VERSION_INFO: u16 = 1;
const VS_FFI_SIGNATURE: u32 = 0xfeef_04bd;
const VS_FFI_STRUCVERSION: u32 = 0x0001_0000;
const VS_FFI_FILEFLAGSMASK: u32 = 0x3f;
const VS_FF_PRERELEASE: u32 = 0x02;
const VOS_NT_WINDOWS32: u32 = 0x0004_0004;
const VFT_DRV: u32 = 3;
const VFT2_DRV_NETWORK: u32 = 6;
const CODE_PAGE_UNICODE: u16 = 1200;

/// Returns the resource of an image of this name, without an extension.
pub fn resource(image: &str) -> Result<Resource, Box<dyn std::error::Error>> {
    Ok(Resource { kind: RT_VERSION, name: VS_VERSION_INFO, data: version_info(image)?.bytes() })
}

fn version_info(image: &str) -> Result<Block, Box<dyn std::error::Error>> {
    let name = env::var("CARGO_PKG_NAME")?;
    let version = env::var("CARGO_PKG_VERSION")?;
    let number = |part: &str| -> Result<u32, Box<dyn std::error::Error>> { Ok(env::var(part)?.parse()?) };
    let high = number("CARGO_PKG_VERSION_MAJOR")? << 16 | number("CARGO_PKG_VERSION_MINOR")?;
    let low = number("CARGO_PKG_VERSION_PATCH")? << 16;
    let flags = if high >> 16 == 0 { VS_FF_PRERELEASE } else { 0 };
    let fixed = [
        VS_FFI_SIGNATURE,
        VS_FFI_STRUCVERSION,
        high, // file version
        low,
        high, // product version
        low,
        VS_FFI_FILEFLAGSMASK,
        flags,
        VOS_NT_WINDOWS32,
        VFT_DRV,
        VFT2_DRV_NETWORK,
        0, // date: see the image's time stamp
        0,
    ];
    let strings = [
        ("CompanyName", "viordma project".to_owned()),
        ("FileDescription", env::var("CARGO_PKG_DESCRIPTION")?),
        ("FileVersion", version.clone()),
        ("InternalName", format!("{image}.sys")),
        ("LegalCopyright", format!("The {name} authors, {}", env::var("CARGO_PKG_LICENSE")?)),
        ("OriginalFilename", format!("{image}.sys")),
        ("ProductName", name),
        ("ProductVersion", version),
    ];
    let table = Block {
        key: format!("{LANG_EN_US:04x}{CODE_PAGE_UNICODE:04x}"),
        value: Value::None,
        children: strings.into_iter().map(|(key, text)| Block::text(key, text)).collect(),
    };
    let translation = Block {
        key: "Translation".into(),
        value: Value::Binary([LANG_EN_US, CODE_PAGE_UNICODE].iter().flat_map(|v| v.to_le_bytes()).collect()),
        children: Vec::new(),
    };
    Ok(Block {
        key: "VS_VERSION_INFO".into(),
        value: Value::Binary(fixed.iter().flat_map(|v| v.to_le_bytes()).collect()),
        children: vec![Block::parent("StringFileInfo", table), Block::parent("VarFileInfo", translation)],
    })
}

/// One node of the version tree: `wLength wValueLength wType szKey padding Value padding Children`.
struct Block {
    key: String,
    value: Value,
    children: Vec<Block>,
}

enum Value {
    None,
    Binary(Vec<u8>),
    Text(String),
}

impl Block {
    fn text(key: &str, text: String) -> Self {
        Self { key: key.into(), value: Value::Text(text), children: Vec::new() }
    }

    fn parent(key: &str, child: Self) -> Self {
        Self { key: key.into(), value: Value::None, children: vec![child] }
    }

    fn bytes(&self) -> Vec<u8> {
        // The value's length counts bytes for binary values and UTF-16 units for text.
        let (value, value_length, kind) = match &self.value {
            Value::None => (Vec::new(), 0, 1u16),
            Value::Binary(bytes) => (bytes.clone(), bytes.len(), 0),
            Value::Text(text) => {
                let bytes = utf16z(text);
                let units = bytes.len() / 2;
                (bytes, units, 1)
            }
        };
        let mut out = vec![0, 0];
        out.extend((value_length as u16).to_le_bytes());
        out.extend(kind.to_le_bytes());
        out.extend(utf16z(&self.key));
        align(&mut out);
        out.extend(value);
        for child in &self.children {
            align(&mut out);
            out.extend(child.bytes());
        }
        let length = out.len() as u16;
        out[..2].copy_from_slice(&length.to_le_bytes());
        out
    }
}

fn utf16z(text: &str) -> Vec<u8> {
    text.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect()
}
