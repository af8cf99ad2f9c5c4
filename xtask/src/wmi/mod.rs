// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's counters in WMI: the class for `mofcomp.exe`, and its check by a compiler of others, the Python package pywbem.

pub mod counters;

use std::{fmt::Write as _, fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value as Json, json};
use viordma_inf::counters::{CLASS, GUID};

use crate::{packages, shell};

/// The file of the package.
pub const FILE: &str = "Viordma.mof";

const PYTHON: &str = "/usr/bin/python3";

/// The compiler, from PyPI, and what it needs.
const PACKAGE: &str = "pywbem==1.9.1";

const SCRIPT: &str = include_str!("compile.py");

/// Returns the class in MOF, as `mofcomp.exe` reads it.
///
/// # Errors
/// The counters cannot be read.
pub fn mof() -> Result<String> {
    let guid = uuid(GUID);
    let mut text = format!(
        "// SPDX-License-Identifier: MIT OR Apache-2.0\r\n\
         // The counters of viordma. Install-Viordma.ps1 compiles this file: mofcomp.exe {FILE}\r\n\
         #pragma autorecover\r\n\
         #pragma namespace(\"\\\\\\\\.\\\\root\\\\wmi\")\r\n\
         \r\n\
         [WMI, Dynamic, Provider(\"WmiProv\"), Locale(\"MS\\\\0x409\"), Guid(\"{{{guid}}}\"),\r\n \
         Description(\"Counters of an adapter of viordma since it started\")]\r\n\
         class {CLASS}\r\n{{\r\n    [Key, Read] string InstanceName;\r\n    [Read] boolean Active;\r\n"
    );
    for (number, (name, meaning)) in (1..).zip(counters::all()?) {
        let meaning = meaning.replace('`', "").replace('\\', "\\\\").replace('"', "\\\"");
        let _ =
            write!(text, "    [WmiDataId({number}), Read, Description(\"{meaning}\")] uint64 {name};\r\n");
    }
    Ok(text + "};\r\n")
}

/// Returns a GUID as text.
fn uuid(guid: u128) -> String {
    let digits = format!("{guid:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

/// Returns whether the compiler is there, or could be installed.
pub fn is_available() -> bool {
    match install() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("{error:#}");
            false
        }
    }
}

fn install() -> Result<PathBuf> {
    let directory = shell::root().join("target/python-mof");
    if !directory.join("pywbem/_mof_compiler.py").is_file() {
        packages::require(&packages::PIP)?;
        let mut pip = Command::new(PYTHON);
        pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--root-user-action=ignore", "--target"]);
        shell::run(pip.arg(&directory).arg(PACKAGE))?;
    }
    Ok(directory)
}

/// Has the compiler read the class, and refuse it without a line. Returns the number of its properties.
///
/// # Errors
/// The class has an error, or other properties than the driver has counters.
pub fn check() -> Result<usize> {
    let directory = install()?;
    let text = mof()?;
    let class = compile(&directory, &text)?;
    let counters = counters::all()?;
    let expected: Vec<Json> = [json!(["InstanceName", "string", null]), json!(["Active", "boolean", null])]
        .into_iter()
        .chain((1..).zip(&counters).map(|(number, (name, _))| json!([name, "uint64", number])))
        .collect();
    ensure!(class["name"] == CLASS, "the compiler reads the class {}", class["name"]);
    ensure!(class["guid"] == format!("{{{}}}", uuid(GUID)), "the compiler reads the GUID {}", class["guid"]);
    ensure!(
        class["properties"] == Json::Array(expected),
        "the compiler reads other properties: {}",
        class["properties"]
    );
    for fault in [text.replace("class ", "clas "), text.replacen("uint64 ", "uint65 ", 1)] {
        ensure!(compile(&directory, &fault).is_err(), "the compiler accepts a class with an error");
    }
    Ok(counters.len())
}

/// Has the compiler read a text. Returns name, GUID and properties of its class.
fn compile(directory: &std::path::Path, text: &str) -> Result<Json> {
    let (script, file) = (directory.join("compile.py"), directory.join(FILE));
    shell::write_if_changed(&script, SCRIPT.as_bytes())?;
    fs::write(&file, text)?;
    let mut python = Command::new(PYTHON);
    python.arg("-B").arg(&script).arg(&file).env("PYTHONPATH", directory);
    let output = python.output().context("cannot run Python")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("the compiler's answer")
}
