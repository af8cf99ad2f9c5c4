// SPDX-License-Identifier: MIT OR Apache-2.0

//! The software bill of materials, in the format of CycloneDX 1.6: what the linker took, and nothing that only built it. It has no time
//! and no random number, so that it is the same for each build of a commit.

use anyhow::Result;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{
    authenticode,
    contents::{Contents, hexadecimal},
    source::Source,
};
use crate::image::{Linked, Origin, architecture::Architecture};

/// Returns the text of the bill.
///
/// # Errors
/// The image is none.
pub fn text(
    source: &Source,
    contents: &Contents,
    architecture: Architecture,
    linked: &[Linked],
) -> Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let root = format!("pkg:generic/{}@{version}", contents.driver);
    let components: Vec<Value> = linked.iter().map(component).collect();
    let references: Vec<String> = linked.iter().map(reference).collect();
    let image = hexadecimal(&authenticode::digest(contents.file("sys")?)?);
    let bill = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": serial_number(&format!("{} {}", source.commit, contents.folder)),
        "version": 1,
        "metadata": {
            "component": {
                "type": "device-driver",
                "bom-ref": root,
                "name": contents.driver,
                "version": version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
            },
            "properties": [
                { "name": "viordma:architecture", "value": architecture.name() },
                { "name": "viordma:authenticode-sha256", "value": image },
                { "name": "viordma:commit", "value": source.commit },
            ],
        },
        "components": components,
        "dependencies": [{ "ref": root, "dependsOn": references }],
    });
    Ok(serde_json::to_string_pretty(&bill)? + "\n")
}

fn component(package: &Linked) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": reference(package),
        "name": package.name,
        "version": package.version,
        "licenses": [{ "expression": package.license.replace('/', " OR ") }],
    });
    if package.origin == Origin::Registry {
        component["purl"] = json!(reference(package));
        if let Some(hash) = &package.hash {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": hash }]);
        }
    }
    component
}

fn reference(package: &Linked) -> String {
    let kind = if package.origin == Origin::Registry { "cargo" } else { "generic" };
    format!("pkg:{kind}/{}@{}", package.name, package.version)
}

/// Returns a UUID (version 8, of our own making) of a text.
fn serial_number(text: &str) -> String {
    let mut bytes: [u8; 16] =
        Sha256::digest(text.as_bytes())[..16].try_into().expect("a digest has 32 bytes");
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = hexadecimal(&bytes);
    format!("urn:uuid:{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}
