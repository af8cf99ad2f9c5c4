// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask decode`: prints a capture as the engine decodes it, one line for each frame, and reports what is wrong.

use std::{
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use anyhow::{Result, anyhow};
use captures::{
    decode::{Content, Decoder, Fault, Frame},
    file::{self, Error},
};

use crate::{exit::Exit, tshark, workspace};

/// Decode a capture frame by frame, and report what is wrong with it.
///
/// Every RoCE frame is decoded, its ICRC is computed by two implementations, and it is encoded again. The exit code is
/// 1 if a RoCE frame is malformed, has a wrong ICRC or encodes to other bytes, or if the file ends in the middle of a
/// frame; it is 2 if the file is not a capture.
#[derive(clap::Args)]
pub struct Options {
    /// A pcap or pcapng file of Ethernet frames
    pub file: PathBuf,
    /// Print one JSON object for each frame instead of text
    #[arg(long)]
    pub json: bool,
    /// Print only frames with something wrong, and the summary
    #[arg(long, conflicts_with = "json")]
    pub quiet: bool,
    /// Also dissect the capture by tshark: count its frames by kind, and fail if one is malformed
    #[arg(long, conflicts_with = "json")]
    pub tshark: bool,
}

/// Frame counts of a capture.
#[derive(Default)]
pub struct Summary {
    pub frames: u64,
    pub roce: u64,
    pub malformed: u64,
    pub wrong_icrc: u64,
    pub reencoded: u64,
    pub truncated: u64,
}

impl Summary {
    fn add(&mut self, frame: &Frame) {
        self.frames += 1;
        self.roce += u64::from(!matches!(frame.content, Content::Other { .. }));
        for fault in &frame.faults {
            let count = match fault {
                Fault::Truncated { .. } => &mut self.truncated,
                Fault::Malformed { .. } => &mut self.malformed,
                Fault::Icrc { .. } | Fault::Disputed => &mut self.wrong_icrc,
                Fault::Reencoded { .. } => &mut self.reencoded,
            };
            *count += 1;
        }
    }

    /// Describes what is wrong; `None` when nothing is.
    fn complaint(&self) -> Option<String> {
        let found: Vec<String> = [
            (self.malformed, "malformed"),
            (self.wrong_icrc, "with a wrong ICRC"),
            (self.reencoded, "that encode to other bytes"),
            (self.truncated, "truncated by the capture"),
        ]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
        (!found.is_empty()).then(|| format!("RoCE frames: {}", found.join(", ")))
    }
}

/// Runs the command.
///
/// # Errors
/// The capture cannot be read, or a frame does not pass the checks.
pub fn run(options: &Options) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match print(options, &mut out) {
        // The reader, for example `head`, has closed the pipe.
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other,
    }
}

fn print(options: &Options, out: &mut impl Write) -> Result<()> {
    let mut summary = Summary::default();
    let end = each_frame(&options.file, |frame| {
        summary.add(frame);
        if options.json {
            serde_json::to_writer(&mut *out, frame)?;
            writeln!(out)?;
        } else if !options.quiet || !frame.faults.is_empty() {
            writeln!(out, "{frame}")?;
        }
        Ok(())
    });
    if summary.frames == 0 && end.is_ok() {
        eprintln!("{} is a capture without frames", options.file.display());
    } else if !options.json && summary.frames > 0 {
        let Summary { frames, roce, .. } = summary;
        writeln!(out, "{frames} frames, {roce} of them RoCE: decoded, checked and encoded again")?;
    }
    out.flush()?;
    end?;
    if options.tshark {
        workspace::provide(&["tshark"])?;
        tshark::check_well_formed(&options.file)?;
        for (kind, count) in tshark::packet_kinds(&options.file)? {
            writeln!(out, "  {count:>7} {kind}")?;
        }
        out.flush()?;
    }
    summary.complaint().map_or(Ok(()), |complaint| Err(anyhow!("{}: {complaint}", options.file.display())))
}

/// Checks that each RoCE frame of a capture is well-formed, has the right ICRC, and encodes to the same bytes.
///
/// # Errors
/// A frame does not pass, or the capture cannot be read.
pub fn check(capture: &Path) -> Result<Summary> {
    let mut summary = Summary::default();
    each_frame(capture, |frame| {
        summary.add(frame);
        if frame.faults.is_empty() { Ok(()) } else { Err(anyhow!("{}: {frame}", capture.display())) }
    })?;
    Ok(summary)
}

fn each_frame(path: &Path, mut work: impl FnMut(&Frame) -> Result<()>) -> Result<()> {
    let frames = file::open(path).map_err(|error| Exit::usage(error.to_string()))?;
    let mut decoder = Decoder::new();
    for captured in frames {
        let captured = captured.map_err(|error| match error {
            Error::Broken(..) => anyhow!(error),
            other => Exit::usage(other.to_string()),
        })?;
        work(&decoder.frame(&captured))?;
    }
    Ok(())
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(kind)
            || cause
                .downcast_ref::<serde_json::Error>()
                .is_some_and(|error| error.io_error_kind() == Some(io::ErrorKind::BrokenPipe))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::exit::exit_code;

    fn golden() -> PathBuf {
        workspace::root().join("crates/roce-wire/tests/vectors/rxe/rping_v4.pcap")
    }

    /// Decodes `content` as a capture; returns the exit code and everything that was printed.
    fn decode(content: &[u8]) -> (u8, String) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("capture");
        fs::write(&file, content).unwrap();
        let mut out = Vec::new();
        let result = print(&Options { file, json: false, quiet: false, tshark: false }, &mut out);
        let code = result.as_ref().map_or_else(exit_code, |()| 0);
        let error = result.err().map_or(String::new(), |error| format!("{error:#}"));
        assert!(error.lines().count() <= 1, "{error}");
        (code, String::from_utf8(out).unwrap() + &error)
    }

    #[test]
    fn valid_capture_exits_with_0_and_prints_a_line_for_each_frame() {
        let content = fs::read(golden()).unwrap();
        let (code, text) = decode(&content);
        assert_eq!(code, 0, "{text}");
        assert_eq!(text.lines().count(), 1 + file::read(&golden()).unwrap().len());
    }

    #[test]
    fn wrong_icrc_exits_with_1() {
        let mut content = fs::read(golden()).unwrap();
        let last = content.len() - 1 - 84;
        content[last] ^= 1;
        let (code, text) = decode(&content);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains("RoCE frames: 1 "), "{text}");
    }

    #[test]
    fn truncated_capture_exits_with_1_and_another_file_with_2() {
        let content = fs::read(golden()).unwrap();
        let (code, text) = decode(&content[..content.len() - 1]);
        assert!(code == 1 && text.contains("truncated"), "{text}");
        assert_eq!(decode(b"no capture at all").0, 2);
        let missing = Options { file: "/nowhere/at-all".into(), json: true, quiet: false, tshark: false };
        assert_eq!(exit_code(&print(&missing, &mut Vec::new()).unwrap_err()), 2);
    }
}
