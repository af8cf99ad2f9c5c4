// SPDX-License-Identifier: MIT OR Apache-2.0

//! The catalog of a package: a certificate trust list with the digests of image and INF, in a PKCS #7 message.
//!
//! Members are of the second version, with SHA-256 digests (1.3.6.1.4.1.311.12.1.3), which Windows 8 and later read. Attributes are those
//! that `inf2cat` writes. osslsigncode verifies the result; Windows has not seen it.

use anyhow::{Context as _, Result, ensure};
use der::{
    Any, AnyRef, Decode as _, Encode as _, Reader as _, Sequence, SliceReader,
    asn1::{BmpString, ContextSpecific, Null, ObjectIdentifier, OctetString, SetOfVec, UtcTime},
};
use sha2::{Digest as _, Sha256};

use super::{authenticode, contents::Contents};
use crate::image::architecture::Architecture;

const SIGNED_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.7.2");
const SHA256: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.101.3.4.2.1");
/// Of Microsoft: `szOID_CTL`, `szOID_CATALOG_LIST`, `szOID_CATALOG_LIST_MEMBER_V2`, `CAT_NAMEVALUE_OBJID`, `CAT_MEMBERINFO2_OBJID`,
/// `SPC_INDIRECT_DATA_OBJID`, `SPC_PE_IMAGE_DATA_OBJID`, `SPC_CAB_DATA_OBJID` (any other file).
const TRUST_LIST: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.10.1");
const CATALOG: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.12.1.1");
const MEMBER: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.12.1.3");
const NAME_VALUE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.12.2.1");
const MEMBER_INFO: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.12.2.3");
const INDIRECT_DATA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.2.1.4");
const PE_IMAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.2.1.15");
const FLAT_FILE: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.4.1.311.2.1.25");

/// `SpcPeImageData`: no flags, `[0] { SpcLink [2] { unicode [0] "" } }`; and such a link alone.
const PE_IMAGE_DATA: [u8; 11] = [0x30, 0x09, 0x03, 0x01, 0x00, 0xa0, 0x04, 0xa2, 0x02, 0x80, 0x00];
const LINK: [u8; 4] = [0xa2, 0x02, 0x80, 0x00];

/// The value of [`MEMBER_INFO`]: an empty `[0]`.
const NO_INFO: [u8; 2] = [0x80, 0x00];

/// `CRYPTCAT_ATTR_DATAASCII | CRYPTCAT_ATTR_AUTHENTICATED` and the like, as `inf2cat` writes it.
const FLAGS: u32 = 0x1001_0001;

#[derive(Sequence)]
struct Algorithm {
    identifier: ObjectIdentifier,
    parameters: Null,
}

#[derive(Sequence)]
struct Identifier {
    identifier: ObjectIdentifier,
}

#[derive(Sequence)]
struct Attribute {
    identifier: ObjectIdentifier,
    values: SetOfVec<Any>,
}

#[derive(Sequence)]
struct NameValue {
    name: BmpString,
    flags: u32,
    value: OctetString,
}

#[derive(Sequence)]
struct Extension {
    identifier: ObjectIdentifier,
    value: OctetString,
}

#[derive(Sequence)]
struct TypeAndValue {
    identifier: ObjectIdentifier,
    value: Any,
}

#[derive(Sequence)]
struct DigestInfo {
    algorithm: Algorithm,
    digest: OctetString,
}

#[derive(Sequence)]
struct IndirectData {
    data: TypeAndValue,
    digest: DigestInfo,
}

#[derive(Sequence)]
struct Member {
    tag: OctetString,
    attributes: SetOfVec<Any>,
}

#[derive(Sequence)]
struct TrustList {
    usage: Identifier,
    list: OctetString,
    time: UtcTime,
    algorithm: Algorithm,
    members: Vec<Member>,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    extensions: Vec<Extension>,
}

#[derive(Sequence)]
struct ContentInfo {
    identifier: ObjectIdentifier,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    content: Any,
}

/// A `SignedData` without signatures.
#[derive(Sequence)]
struct SignedData {
    version: u8,
    algorithms: SetOfVec<Any>,
    content: ContentInfo,
    signers: SetOfVec<Any>,
}

/// Returns the unsigned catalog of an image and its INF. `seconds` since 1970 is its time; `ids` are the hardware ids of the INF.
///
/// # Errors
/// The image is none.
pub fn encode(
    files: [(&str, &[u8]); 2],
    architecture: Architecture,
    ids: &[String],
    seconds: u64,
) -> Result<Vec<u8>> {
    let mut members = Vec::new();
    let mut list = Sha256::new();
    for (name, data) in files {
        list.update(data);
        members.push(member(name, data)?);
    }
    members.sort_by(|a: &Member, b| a.tag.as_bytes().cmp(b.tag.as_bytes()));
    let mut extensions = vec![extension("OS", systems(architecture))?];
    for (index, id) in (1..).zip(ids) {
        extensions.push(extension(&format!("HWID{index}"), &id.to_lowercase())?);
    }
    let content = TrustList {
        usage: Identifier { identifier: CATALOG },
        list: OctetString::new(&list.finalize()[..16])?,
        time: UtcTime::from_unix_duration(std::time::Duration::from_secs(seconds))?,
        algorithm: Algorithm { identifier: MEMBER, parameters: Null },
        members,
        extensions,
    };
    let signed = SignedData {
        version: 1,
        algorithms: SetOfVec::new(),
        content: ContentInfo { identifier: TRUST_LIST, content: Any::encode_from(&content)? },
        signers: SetOfVec::new(),
    };
    Ok(ContentInfo { identifier: SIGNED_DATA, content: Any::encode_from(&signed)? }.to_der()?)
}

/// Systems that the catalog names: Server 2022 and Server 2025.
const fn systems(architecture: Architecture) -> &'static str {
    match architecture {
        Architecture::X64 => "Server_v100_X64_21H2,Server_v100_X64_24H2",
        Architecture::Arm64 => "Server_v100_ARM64_21H2,Server_v100_ARM64_24H2",
    }
}

fn member(name: &str, data: &[u8]) -> Result<Member> {
    let is_image = data.starts_with(b"MZ");
    let digest = OctetString::new(digest(data)?)?;
    let value = if is_image { Any::from_der(&PE_IMAGE_DATA)? } else { Any::from_der(&LINK)? };
    let data = IndirectData {
        data: TypeAndValue { identifier: if is_image { PE_IMAGE } else { FLAT_FILE }, value },
        digest: DigestInfo {
            algorithm: Algorithm { identifier: SHA256, parameters: Null },
            digest: digest.clone(),
        },
    };
    let mut attributes = SetOfVec::new();
    for (identifier, value) in [
        (INDIRECT_DATA, Any::encode_from(&data)?),
        (NAME_VALUE, Any::encode_from(&name_value("OSAttr", "2:10.0")?)?),
        (NAME_VALUE, Any::encode_from(&name_value("File", name)?)?),
        (MEMBER_INFO, Any::from_der(&NO_INFO)?),
    ] {
        let attribute = Attribute { identifier, values: SetOfVec::try_from(vec![value])? };
        attributes.insert(Any::encode_from(&attribute)?)?;
    }
    Ok(Member { tag: digest, attributes })
}

/// Returns the digest that a catalog has of a file.
fn digest(data: &[u8]) -> Result<[u8; 32]> {
    if data.starts_with(b"MZ") { authenticode::digest(data) } else { Ok(Sha256::digest(data).into()) }
}

fn name_value(name: &str, value: &str) -> Result<NameValue> {
    let units: Vec<u8> = value.encode_utf16().chain([0]).flat_map(u16::to_le_bytes).collect();
    Ok(NameValue { name: BmpString::from_utf8(name)?, flags: FLAGS, value: OctetString::new(units)? })
}

fn extension(name: &str, value: &str) -> Result<Extension> {
    let value = OctetString::new(name_value(name, value)?.to_der()?)?;
    Ok(Extension { identifier: NAME_VALUE, value })
}

/// Checks that a catalog, signed or not, has the digests of image and INF, and no others.
///
/// # Errors
/// The name of the file that it has no digest of.
pub fn check(catalog: &[u8], contents: &Contents) -> Result<()> {
    let content = elements(content(catalog)?)?;
    let list = content.get(1).context("the catalog is empty")?;
    let list = ContextSpecific::<Any>::from_der(&list.to_der()?)?.value;
    let list = elements(list.value())?;
    let mut tags = Vec::new();
    for member in elements(list.get(4).context("the catalog has no members")?.value())? {
        tags.push(elements(member.value())?.first().context("a member has no tag")?.value().to_vec());
    }
    for extension in ["sys", "inf"] {
        let digest = digest(contents.file(extension)?)?;
        let is_listed = tags.iter().any(|tag| *tag == digest);
        ensure!(is_listed, "{} differs from what the catalog lists", contents.name(extension));
    }
    ensure!(tags.len() == 2, "the catalog lists {} files instead of 2", tags.len());
    Ok(())
}

/// Returns what a catalog's signature is about: type and trust list.
///
/// # Errors
/// The data is no catalog.
pub fn content(catalog: &[u8]) -> Result<&[u8]> {
    let [message] = elements(catalog)?[..] else { anyhow::bail!("no catalog") };
    let message = elements(message.value())?;
    let [signed] = elements(message.get(1).context("no catalog")?.value())?[..] else {
        anyhow::bail!("no catalog")
    };
    Ok(elements(signed.value())?.get(2).context("no catalog")?.value())
}

/// Returns the values that follow each other in `data`.
fn elements(data: &[u8]) -> Result<Vec<AnyRef<'_>>> {
    let mut reader = SliceReader::new(data)?;
    let mut all = Vec::new();
    while !reader.is_finished() {
        all.push(AnyRef::decode(&mut reader)?);
    }
    Ok(all)
}
