// SPDX-License-Identifier: MIT OR Apache-2.0

//! The comparison with the table reports each kind of difference.

use std::env;
use std::io::Write as _;
use std::process::{Command, Stdio};

use abi_table::{Source, Table};

/// A table of one struct, one enum, one constant, one function type and one import.
const TABLE: &str = r#"
[struct.NDK_SGE]
size = 16
align = 8
kind = "struct"
fields = [
  { name = "VirtualAddress", offset = 0, type = "PVOID", size = 8 },
  { name = "Length", offset = 8, type = "ULONG", size = 4 },
  { name = "MemoryRegionToken", offset = 12, type = "UINT32", size = 4 },
]
[enum.NDK_OBJECT_TYPE]
size = 4
values = [{ name = "NdkObjectTypeUnknown", value = 0 }, { name = "NdkObjectTypeAdapter", value = 1 }]
[typedef]
PVOID = { kind = "pointer", type = "void*" }
ULONG = { kind = "scalar", canonical = "unsigned long" }
UINT32 = { kind = "scalar", canonical = "unsigned int" }
[const.NDK_CQ_NOTIFY_ANY]
value = 2
[const.STATUS_CANCELLED]
value = 0xC0000120
[fn_type.NDK_FN_CLOSE_COMPLETION]
ret = "void"
params = [{ name = "Context", type = "PVOID" }]
irql = "<= DISPATCH_LEVEL"
[import."ntoskrnl.exe".RtlRandomEx]
kind = "export"
ret = "ULONG"
params = [{ name = "Seed", type = "ULONG*" }]
irql = "any"
[import."ntoskrnl.exe".KeRaiseIrql]
kind = "macro"
ret = "void"
params = []
[string]
[guid]
"#;

const STRUCT: &str = "
    #[repr(C)]
    pub struct NDK_SGE {
        pub VirtualAddress: *mut core::ffi::c_void,
        pub Length: u32,
        pub MemoryRegionToken: u32,
    }";

#[test]
fn a_faithful_declaration_passes() {
    let source = format!(
        r#"{STRUCT}
        #[repr(transparent)]
        pub struct NDK_OBJECT_TYPE(pub i32);
        impl NDK_OBJECT_TYPE {{
            pub const NdkObjectTypeUnknown: Self = Self(0);
            pub const NdkObjectTypeAdapter: Self = Self(1);
        }}
        pub const NDK_CQ_NOTIFY_ANY: u32 = 2;
        pub const STATUS_CANCELLED: i32 = 0xC0000120_u32 as i32;
        /// IRQL: `<= DISPATCH_LEVEL`.
        pub type NDK_FN_CLOSE_COMPLETION = unsafe extern "efiapi" fn(*mut core::ffi::c_void);
        #[cfg_attr(all(windows, feature = "kernel"), link(name = "ntoskrnl"))]
        unsafe extern "efiapi" {{
            /// IRQL: `any`.
            pub fn RtlRandomEx(Seed: *mut u32) -> u32;
        }}"#
    );
    assert_eq!(verdict(&source), Ok(()));
}

#[test]
fn members_in_another_order_are_found() {
    let swapped = "#[repr(C)]
        pub struct NDK_SGE {
            pub VirtualAddress: *mut core::ffi::c_void,
            pub MemoryRegionToken: u32,
            pub Length: u32,
        }";
    assert_found(swapped, "NDK_SGE: the table has Length at offset 8");
}

#[test]
fn a_member_of_another_type_is_found() {
    assert_found(&STRUCT.replace("Length: u32", "Length: i32"), "mismatched types");
}

#[test]
fn a_forgotten_member_is_found() {
    let shorter = STRUCT.replace("pub MemoryRegionToken: u32,", "");
    assert_found(&shorter, "NDK_SGE: lacks MemoryRegionToken");
}

#[test]
fn a_member_of_another_name_is_found() {
    let renamed = STRUCT.replace("Length", "Len");
    assert_found(&renamed, "NDK_SGE: the table has no member Len");
}

#[test]
fn a_packed_struct_is_found() {
    assert_found(&STRUCT.replace("repr(C)", "repr(C, packed(4))"), "NDK_SGE: the table's alignment is 8");
}

#[test]
fn a_struct_without_a_layout_is_found() {
    assert_found(&STRUCT.replace("#[repr(C)]", ""), "NDK_SGE: neither repr(C) nor repr(transparent)");
}

#[test]
fn a_struct_that_the_table_does_not_list_is_found() {
    assert_found(&STRUCT.replace("NDK_SGE", "NDK_SEG"), "NDK_SEG: not in the table");
}

#[test]
fn a_wrong_constant_is_found() {
    assert_found("pub const NDK_CQ_NOTIFY_ANY: u32 = 3;", "NDK_CQ_NOTIFY_ANY: the table has 2");
}

#[test]
fn a_constant_too_narrow_for_its_value_is_found() {
    assert_found("pub const STATUS_CANCELLED: u16 = 0x120;", "STATUS_CANCELLED: the table has 3221225760");
}

#[test]
fn a_wrong_or_missing_enumerator_is_found() {
    let declaration = "#[repr(transparent)] pub struct NDK_OBJECT_TYPE(pub i32);";
    let first = "pub const NdkObjectTypeUnknown: Self = Self(0);";
    let wrong = format!(
        "{declaration} impl NDK_OBJECT_TYPE {{ {first} pub const NdkObjectTypeAdapter: Self = Self(2); }}"
    );
    assert_found(&wrong, "NDK_OBJECT_TYPE: the table has NdkObjectTypeAdapter = 1");
    let missing = format!("{declaration} impl NDK_OBJECT_TYPE {{ {first} }}");
    assert_found(&missing, "NDK_OBJECT_TYPE: lacks NdkObjectTypeAdapter");
}

#[test]
fn a_wrong_signature_convention_or_irql_is_found() {
    let declare = |irql: &str, ty: &str| {
        format!("/// IRQL: `{irql}`.\npub type NDK_FN_CLOSE_COMPLETION = unsafe extern {ty};")
    };
    let faithful = r#""efiapi" fn(*mut core::ffi::c_void)"#;
    assert_found(&declare("any", faithful), "IRQL in its docs is Some(\"any\")");
    let extra = r#""efiapi" fn(*mut core::ffi::c_void, u32)"#;
    assert_found(&declare("<= DISPATCH_LEVEL", extra), "Same<");
    let convention = r#""C" fn(*mut core::ffi::c_void)"#;
    assert_found(&declare("<= DISPATCH_LEVEL", convention), "Same<");
}

#[test]
fn a_wrong_import_is_found() {
    let declare = |library: &str, function: &str| {
        format!(
            "#[cfg_attr(all(windows, feature = \"kernel\"), link(name = \"{library}\"))]\n\
             unsafe extern \"efiapi\" {{ /// IRQL: `any`.\n{function} }}"
        )
    };
    let faithful = "pub fn RtlRandomEx(Seed: *mut u32) -> u32;";
    assert_found(&declare("ndis", faithful), "RtlRandomEx: exported by ntoskrnl.exe, declared in ndis");
    let wrong = "pub fn RtlRandomEx(Seed: *mut u64) -> u32;";
    assert_found(&declare("ntoskrnl", wrong), "mismatched types");
    let unknown = "pub fn RtlRandom(Seed: *mut u32) -> u32;";
    assert_found(&declare("ntoskrnl", unknown), "RtlRandom: the table has no such import");
    let r#macro = "pub fn KeRaiseIrql();";
    assert_found(&declare("ntoskrnl", r#macro), "KeRaiseIrql: macro, not exported");
}

fn assert_found(source: &str, message: &str) {
    let report = verdict(source).expect_err("the declaration is wrong");
    assert!(report.contains(message), "expected {message:?} in:\n{report}");
}

/// Puts `source` through the checks, the compiler's part included.
fn verdict(source: &str) -> Result<(), String> {
    let table = Table::parse(TABLE)?;
    let mut parsed = Source::default();
    parsed.add("", source)?;
    let assertions = abi_table::checks(&table, &parsed).map_err(|problems| problems.join("\n"))?;
    compile(&format!("#![no_std]\n{source}\nmod checks {{ {assertions} }}"))
}

fn compile(text: &str) -> Result<(), String> {
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let mut rustc = Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition=2024", "--crate-type=lib", "--crate-name=declaration", "--emit=metadata"])
        .args(["--cap-lints=allow", "--out-dir"])
        .arg(directory.path())
        .arg("-")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let mut stdin = rustc.stdin.take().expect("stdin is piped");
    stdin.write_all(text.as_bytes()).map_err(|error| error.to_string())?;
    drop(stdin);
    let output = rustc.wait_with_output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
