// SPDX-License-Identifier: MIT OR Apache-2.0

use proptest::prelude::*;

use super::*;

/// Longest data of tests that try many lengths: Miri takes 10 ms a byte.
const LONGEST: usize = if cfg!(miri) { 100 } else { 9000 };

/// The implementations that this machine can run.
fn implementations() -> impl Iterator<Item = Crc> {
    [Some(Crc::table()), Crc::clmul()].into_iter().flatten()
}

#[test]
fn check_value_is_that_of_crc32() {
    for crc in implementations() {
        assert_eq!(crc.update(CrcState::START, b"123456789").value(), 0xCBF4_3926, "{}", crc.name());
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[test]
fn the_instruction_is_used_where_the_processor_has_it() {
    let has_it = std::is_x86_feature_detected!("pclmulqdq");
    assert_eq!(Crc::clmul().is_some(), has_it);
    assert_eq!(Crc::detect(), Crc::clmul().unwrap_or(Crc::table()));
    assert!(!has_it || std::env::var_os(WITHOUT_INSTRUCTION).is_none(), "the emulated processor lacks it");
}

#[cfg(all(target_arch = "aarch64", target_os = "linux"))]
#[test]
fn the_instruction_is_used_where_the_processor_has_it() {
    assert_eq!(Crc::clmul().is_some(), std::arch::is_aarch64_feature_detected!("pmull"));
    assert_eq!(Crc::detect(), Crc::clmul().unwrap_or(Crc::table()));
}

/// Environment variable that is set on an emulated processor without the instruction.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const WITHOUT_INSTRUCTION: &str = "ROCE_WIRE_WITHOUT_PCLMULQDQ";

/// Runs this program's tests of the ICRC on the oldest x64 processor that QEMU emulates. On a machine without QEMU, the test passes,
/// and adds itself to the file of skipped tests that `cargo xtask test` names.
#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#[test]
fn tables_are_used_on_a_processor_without_the_instruction() {
    use std::{env, fs::OpenOptions, io::Write as _, path::Path, process::Command};

    if env::var_os(WITHOUT_INSTRUCTION).is_some() {
        return;
    }
    let qemu = Path::new("/usr/bin/qemu-x86_64-static");
    if !qemu.exists() {
        let line = "roce_wire icrc::tests::tables_are_used_on_a_processor_without_the_instruction: no QEMU";
        if let Some(file) = env::var_os("NTSIM_SKIPPED_TESTS") {
            let mut file = OpenOptions::new().append(true).open(file).expect("the file of skipped tests");
            writeln!(file, "{line}").expect("the file is writable");
        }
        return;
    }
    let mut emulated = Command::new(qemu);
    emulated.args(["-cpu", "qemu64"]).arg(env::current_exe().expect("this program")).arg("icrc::");
    let output = emulated.env(WITHOUT_INSTRUCTION, "1").output().expect("QEMU runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("the_instruction_is_used_where_the_processor_has_it ... ok"), "{text}");
}

#[test]
fn packets_of_any_length_have_the_same_icrc_by_tables_and_by_the_instruction() {
    let bytes: Vec<u8> = (0..=255).collect();
    for crc in implementations() {
        for (is_v4, headers) in [(true, LEAD + 20 + 8 + 12), (false, LEAD + 40 + 8 + 12)] {
            for len in (0..bytes.len()).step_by(if cfg!(miri) { 51 } else { 1 }) {
                let led = &bytes[..len];
                let by_table = of_packet(Crc::table(), is_v4, led);
                let state = if is_v4 {
                    crc.of_packet::<false>(led, &masks::V4)
                } else {
                    crc.of_packet::<true>(led, &masks::V6)
                };
                assert_eq!(state.unwrap_or(by_table), by_table, "{} {is_v4} {len}", crc.name());
                // No frame of a peer goes through the tables.
                let is_frame = len >= headers && len % 4 == 0;
                assert!(!is_frame || state.is_some() || crc == Crc::table(), "{is_v4} {len}");
            }
        }
    }
}

#[test]
fn headers_without_payload_have_the_same_icrc_by_tables_and_by_the_instruction() {
    let (bth, ext) = ([0x0102_0304, 0x8516_2738, 0xF1E2_D3C4], [0xA5; 28]);
    for crc in implementations() {
        for len in [0, 4, 8, 16, 20, 28] {
            let state = |crc: Crc| crc.end(crc.begin(CrcState(0x1234_5678), bth, &ext[..len]));
            assert_eq!(state(crc), state(Crc::table()), "{} {len}", crc.name());
        }
    }
}

//= rocev2 §2
#[test]
fn eight_bytes_of_ones_give_the_start_of_the_icrc() {
    assert_eq!(Crc::table().update(CrcState::START, &[0xFF; 8]), CrcState::ICRC_START);
}

#[test]
fn every_length_up_to_400_agrees_with_crc32fast() {
    let data: Vec<u8> = (0..LONGEST.min(400) as u32).map(|i| (i * 7 + (i >> 3)) as u8).collect();
    for len in 0..data.len() {
        let data = &data[..len];
        for crc in implementations() {
            let name = crc.name();
            assert_eq!(crc.update(CrcState::START, data).value(), crc32fast::hash(data), "{name} {len}");
        }
    }
}

#[test]
fn copying_uses_the_shorter_length() {
    for crc in implementations() {
        let mut dst = [0xEE; 40];
        let state = crc.copy(&mut dst, &[1; 33], CrcState::START.into());
        assert_eq!(crc.end(state).value(), crc32fast::hash(&[1; 33]));
        assert_eq!(dst[..33], [1; 33]);
        assert_eq!(dst[33..], [0xEE; 7]);
        let state = crc.copy(&mut dst[..5], &[2; 33], CrcState::START.into());
        assert_eq!(crc.end(state).value(), crc32fast::hash(&[2; 5]));
        assert_eq!(dst[..6], [2, 2, 2, 2, 2, 1]);
    }
}

proptest! {
    #[test]
    fn any_data_at_any_alignment_in_any_pieces_agrees_with_crc32fast(
        data in proptest::collection::vec(any::<u8>(), 0..LONGEST),
        skip in 0usize..64,
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
        dst_skip in 0usize..64,
    ) {
        let data = data.get(skip..).unwrap_or_default();
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(data.len() + 1)).collect();
        cuts.extend([0, data.len()]);
        cuts.sort_unstable();
        let expected = crc32fast::hash(data);
        for crc in implementations() {
            let (mut summed, mut copied) = (CrcState::START, Running::from(CrcState::START));
            let mut dst = vec![0xEE; data.len() + dst_skip + 64];
            for cut in cuts.windows(2) {
                let piece = &data[cut[0]..cut[1]];
                summed = crc.update(summed, piece);
                copied = crc.copy(&mut dst[dst_skip + cut[0]..][..piece.len()], piece, copied);
            }
            prop_assert_eq!(summed.value(), expected, "{}", crc.name());
            prop_assert_eq!(crc.end(copied).value(), expected, "{}", crc.name());
            prop_assert_eq!(&dst[dst_skip..][..data.len()], data);
            prop_assert!(dst[..dst_skip].iter().chain(&dst[dst_skip + data.len()..]).all(|&b| b == 0xEE));
        }
    }
}
