// SPDX-License-Identifier: MIT OR Apache-2.0

//! The trace, read by a decoder of others: the Python package etl-parser takes the metadata of each event out of the image.

use std::{
    io::Write as _,
    net::SocketAddr,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value as Json, json};
use viordma_inf::tracing::{
    profile,
    table::ROWS,
    value::{Hex, Kind, Payload, Status, Value as _},
};

use crate::{image, package::hexadecimal, packages, shell};

const PYTHON: &str = "/usr/bin/python3";

/// The decoder, and what it needs, from PyPI.
const PACKAGES: [&str; 2] = ["etl-parser==1.0.1", "construct==2.10.70"];

const SCRIPT: &str = include_str!("decode.py");

/// Returns whether the decoder is there, or could be installed into `target/python`.
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
    let directory = shell::root().join("target/python");
    if !directory.join("etl/parsers/tracelogging.py").is_file() {
        packages::require(&packages::PIP)?;
        let mut pip = Command::new(PYTHON);
        pip.args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--upgrade",
            "--root-user-action=ignore",
            "--target",
        ]);
        shell::run(pip.arg(&directory).args(PACKAGES))?;
    }
    Ok(directory)
}

/// Has the decoder read an event of each row of the table, with the metadata that the image has. Returns their number.
///
/// # Errors
/// The image lacks an event, or the decoder reads another one than was written.
pub fn check() -> Result<usize> {
    let directory = install()?;
    let script = directory.join("decode.py");
    shell::write_if_changed(&script, SCRIPT.as_bytes())?;
    let image = image::build(image::DRIVER)?.sys;
    let events: Vec<_> = ROWS
        .iter()
        .map(|row| {
            let mut payload = Payload::new();
            row.fields.iter().for_each(|field| put(field.kind, &mut payload));
            let values = hexadecimal(payload.bytes());
            json!({ "name": row.name, "values": values })
        })
        .collect();
    let mut python = Command::new(PYTHON);
    python.arg("-B").arg(&script).arg(&image).env("PYTHONPATH", &directory);
    let mut child =
        python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot run Python")?;
    let mut input = child.stdin.take().context("a pipe")?;
    input.write_all(json!({ "events": events }).to_string().as_bytes())?;
    drop(input);
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "the decoder failed");
    let answer: Json = serde_json::from_slice(&output.stdout).context("the decoder's answer")?;
    ensure!(answer["guid"] == profile::guid(), "tools derive {} from the provider's name", answer["guid"]);
    let read = answer["events"].as_array().context("no events")?;
    ensure!(read.len() == ROWS.len(), "{} events instead of {}", read.len(), ROWS.len());
    for (row, event) in ROWS.iter().zip(read) {
        let expected: Vec<_> = row.fields.iter().map(|field| json!([field.name, seen(field.kind)])).collect();
        ensure!(
            event["fields"] == Json::Array(expected),
            "{}: the decoder reads {}",
            row.name,
            event["fields"]
        );
    }
    Ok(read.len())
}

/// Puts the value of a kind that the check uses.
fn put(kind: Kind, payload: &mut Payload) {
    match kind {
        Kind::U32 => 0xFFFF_FFFE_u32.put(payload),
        Kind::Hex => Hex(0x0102_0304).put(payload),
        Kind::U64 => 0x0123_4567_89AB_CDEF_u64.put(payload),
        Kind::Text => "a text".put(payload),
        Kind::Address => address().put(payload),
        Kind::Status => Status(-2).put(payload),
    }
}

fn address() -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], 445))
}

/// Returns that value as the decoder shows it. It shows addresses as bytes, and a status as a number.
fn seen(kind: Kind) -> Json {
    match kind {
        Kind::U32 => json!(0xFFFF_FFFE_u32),
        Kind::Hex => json!(0x0102_0304),
        Kind::U64 => json!(0x0123_4567_89AB_CDEF_u64),
        Kind::Text => json!("a text"),
        Kind::Address => json!([2, 0, 1, 189, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]),
        Kind::Status => json!(-2),
    }
}
