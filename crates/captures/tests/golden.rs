// SPDX-License-Identifier: MIT OR Apache-2.0

//! Decodes the captures of Linux peers, unchanged and with faults.

use std::{
    fs,
    path::{Path, PathBuf},
};

use captures::{
    decode::{Content, Decoder, Fault, Frame},
    file::{self, Captured, Error},
    icrc::{self, IcrcCheck},
};

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/roce-wire/tests/vectors/rxe")
}

fn all() -> Vec<PathBuf> {
    let files = fs::read_dir(vectors()).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|ext| ext == "pcap")).collect();
    files.sort();
    files
}

fn decode(frames: &[Captured]) -> Vec<Frame> {
    let mut decoder = Decoder::new();
    frames.iter().map(|frame| decoder.frame(frame)).collect()
}

fn rping() -> Vec<Captured> {
    file::read(&vectors().join("rping_v4.pcap")).unwrap()
}

/// Creates a temporary file with this content.
fn scratch(name: &str, content: &[u8]) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).unwrap();
    path
}

#[test]
fn frames_of_linux_have_no_faults() {
    let mut roce = 0;
    for path in all() {
        for frame in decode(&file::read(&path).unwrap()) {
            assert_eq!(frame.faults, [], "{}: {frame}", path.display());
            roce += usize::from(matches!(frame.content, Content::Roce(_)));
        }
    }
    assert_eq!(roce, 1264);
}

//= rocev2 §2
#[test]
fn independent_check_accepts_every_icrc_of_linux() {
    let mut valid = 0;
    for path in all() {
        for frame in file::read(&path).unwrap() {
            match icrc::check(&frame.data) {
                IcrcCheck::Valid => valid += 1,
                IcrcCheck::NotRoce => {}
                other => panic!("{}: {other:?}", path.display()),
            }
        }
    }
    assert_eq!(valid, 1264);
}

#[test]
fn session_of_rping_is_decoded_to_text() {
    let lines: Vec<String> = decode(&rping()).iter().map(Frame::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"));
}

#[test]
fn frames_are_decoded_to_one_json_object_each() {
    let frames = decode(&rping());
    let lines: Vec<String> = frames.iter().map(|frame| serde_json::to_string(frame).unwrap()).collect();
    let shown = ["RDMA READ Request", "Acknowledge"].map(|name| format!("\"name\":\"{name}\""));
    let of_interest =
        |line: &&String| line.contains("\"other\"") || shown.iter().any(|name| line.contains(name));
    let mut shown: Vec<String> = lines.iter().filter(of_interest).take(5).cloned().collect();
    shown.extend(lines.iter().find(|line| line.contains("\"REQ\"")).cloned());
    insta::assert_snapshot!(shown.join("\n"));
}

#[test]
fn changed_frames_have_faults() {
    let rping = rping();
    let frame = rping.iter().find(|frame| icrc::check(&frame.data) == IcrcCheck::Valid).unwrap();
    let changed = |at: usize, xor: u8| {
        let mut frame = frame.clone();
        frame.data[at] ^= xor;
        decode(&[frame]).remove(0).faults
    };
    let last = frame.data.len() - 1;
    assert!(matches!(changed(last, 1)[..], [Fault::Icrc { .. }]));
    assert!(matches!(changed(last - 20, 0x80)[..], [Fault::Icrc { .. }]));
    // A reserved bit of the BTH that the ICRC covers, and one that it does not.
    let bth = 14 + 20 + 8;
    assert!(matches!(changed(bth + 8, 1)[..], [Fault::Icrc { .. }, Fault::Reencoded { at: 50 }]));
    assert!(matches!(changed(bth + 4, 1)[..], [Fault::Reencoded { at: 46 }]));
    // In an acknowledgement it is a bit of the gap hint.
    let mut ack = rping.iter().find(|frame| frame.data.get(bth) == Some(&0x11)).unwrap().clone();
    ack.data[bth + 4] |= 1;
    let ack = decode(&[ack]).remove(0);
    assert_eq!(ack.faults, []);
    assert!(ack.to_string().contains(", misses +128"), "{ack}");
    assert!(matches!(changed(bth + 1, 1)[..], [Fault::Malformed { why: "transport version" }]));
    assert!(matches!(changed(bth, 0x15 ^ 0x64)[..], [Fault::Malformed { why: "unknown opcode" }]));
}

#[test]
fn truncated_frame_is_not_malformed() {
    let mut frame = rping().into_iter().find(|frame| icrc::check(&frame.data) == IcrcCheck::Valid).unwrap();
    frame.data.truncate(96);
    assert_eq!(decode(&[frame])[0].faults, [Fault::Truncated { captured: 96 }]);
}

#[test]
fn truncated_file_reports_the_number_of_readable_frames() {
    let whole = fs::read(vectors().join("rping_v4.pcap")).unwrap();
    let path = scratch("cut.pcap", &whole[..whole.len() - 1]);
    let frames: Vec<_> = file::open(&path).unwrap().collect();
    let good = rping().len() - 1;
    assert_eq!(frames.iter().filter(|frame| frame.is_ok()).count(), good);
    let end = frames.last().unwrap().as_ref().unwrap_err();
    assert!(matches!(end, Error::Broken(_, count, _) if *count == good as u64), "{end}");
    assert_eq!(end.to_string().lines().count(), 1);
}

#[test]
fn other_files_are_rejected_with_one_line() {
    let garbage: Vec<u8> = (0..4096u32).map(|at| (at * 7 + 3) as u8).collect();
    // The magic numbers of both formats, followed by garbage.
    let pcap = [&[0xD4, 0xC3, 0xB2, 0xA1, 2, 0, 4, 0][..], &garbage].concat();
    let pcapng = [&[0x0A, 0x0D, 0x0D, 0x0A][..], &garbage].concat();
    for (name, content) in
        [("empty", &[][..]), ("garbage", &garbage), ("like.pcap", &pcap), ("like.pcapng", &pcapng)]
    {
        let result = file::read(&scratch(name, content));
        let error = result.err().unwrap_or_else(|| panic!("{name} was taken for a capture"));
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
    let missing = file::open(Path::new("/nowhere/at-all.pcap")).err().unwrap();
    assert!(matches!(missing, Error::Unreadable(..)), "{missing}");
    let directory = file::open(&vectors()).err().unwrap();
    assert!(matches!(directory, Error::NotACapture(..)), "{directory}");
}
