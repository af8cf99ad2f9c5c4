// SPDX-License-Identifier: MIT OR Apache-2.0

use std::{fs, path::PathBuf};

use super::*;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts")
}

/// The variables of the buffers in the references: the server is 10.0.0.1 on interface 4, the client 10.0.0.2 on 5.
fn variables(script: &Script) -> Variables {
    let mut variables = Variables::example(&script.variables);
    let v6 = "fd00::1".parse().unwrap();
    variables.add_role(Role::Server, "10.0.0.1".parse().unwrap(), v6, 4);
    variables.add_role(Role::Client, "10.0.0.2".parse().unwrap(), v6, 5);
    variables
}

/// Returns code and input of each IOCTL of a script.
fn inputs(name: &str) -> Vec<(u32, Vec<u8>)> {
    let script = Script::read(&directory().join(name)).unwrap();
    let variables = variables(&script);
    let steps = script.threads.iter().flat_map(|thread| &thread.steps);
    let ioctls = steps.filter_map(|step| match step {
        Step::Ioctl(ioctl) => Some((ioctl.code, bytes(&ioctl.input, ioctl.size, &variables).unwrap())),
        _ => None,
    });
    ioctls.collect()
}

/// A buffer of zeros but for these bytes.
fn buffer(size: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut buffer = vec![0; size];
    for (at, bytes) in parts {
        buffer[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    buffer
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

const CLIENT_ADDRESS: [u8; 8] = [2, 0, 0, 0, 10, 0, 0, 2];
const SERVER_ADDRESS: [u8; 8] = [2, 0, 0x23, 0x28, 10, 0, 0, 1];

#[test]
fn inputs_of_ndkperf_are_those_of_its_program() {
    for (script, code, timeout) in
        [("ndkperf-rping.toml", 0x0022_0404, 15), ("ndkperf-rperf.toml", 0x0022_0408, 20)]
    {
        let log = utf16(r"C:\NDKPerfResults.log");
        let server: &[(usize, &[u8])] =
            &[(0x10, &SERVER_ADDRESS), (0x24, &[4, 0, 0, 0, 1]), (0x2c, &[timeout]), (0x34, &log)];
        let client: &[(usize, &[u8])] =
            &[(0, &CLIENT_ADDRESS), (0x10, &SERVER_ADDRESS), (0x20, &[5]), (0x34, &log)];
        let expected = [server, client].map(|parts| (code, buffer(0x23c, parts)));
        assert_eq!(inputs(script), expected, "{script}");
    }
}

#[test]
fn inputs_of_ndkping_are_those_of_its_program() {
    let log = utf16(r"C:\NDKPingResults.log");
    let server: &[(usize, &[u8])] =
        &[(0x10, &SERVER_ADDRESS), (0x24, &[4, 0, 0, 0, 1]), (0x2c, &[15]), (0x30, &log)];
    let client: &[(usize, &[u8])] =
        &[(0, &CLIENT_ADDRESS), (0x10, &SERVER_ADDRESS), (0x20, &[5]), (0x30, &log)];
    let expected = [server, client].map(|parts| (0x0022_0418, buffer(0x238, parts)));
    assert_eq!(inputs("ndkping-rping.toml"), expected);
}

#[test]
fn all_scripts_of_the_project_are_well_formed() {
    let mut count = 0;
    for entry in fs::read_dir(directory()).unwrap() {
        let script = Script::read(&entry.unwrap().path()).unwrap();
        assert!(!script.about.is_empty() && !script.drivers.is_empty(), "{}", script.name);
        count += 1;
    }
    assert!(count >= 4);
}

fn parse(text: &str) -> Result<Script, String> {
    Script::parse("test", text, Path::new("."))
}

/// A thread with one step.
fn step(members: &str) -> String {
    format!("[[thread]]\nname = 'a'\non = 'server'\n[[thread.step]]\n{members}\n")
}

#[test]
fn bad_scripts_are_refused_with_one_sentence() {
    let cases = [
        (String::new(), "it has no [[thread]]"),
        ("about = 1".into(), "line 1: invalid type"),
        ("[[thread]]\nname = 'a'\nwhere = 'server'".into(), "line 3: unknown field `where`"),
        ("[[thread]]\nname = 'a'\non = 'peer'".into(), "'peer' is no role; the roles are server and client"),
        (step("wait = '1s'\n[[thread]]\nname = 'a'\non = 'client'"), "two threads are named 'a'"),
        (step("status = 0"), "thread 'a', step 1: it does nothing"),
        (step("open = 'x'\nwait = '1s'"), "it does two things at once"),
        (step("open = 'x'\nsize = 3"), "'size' does not belong to such a step"),
        (step("wait = '1'"), "'1' is not a time such as 200ms"),
        (step("wait = '1 hour'"), "'1 hour' is not a time"),
        (step("wait_for = 'x'"), "no thread signals 'x'"),
        (step("cancel = 'x'"), "no IOCTL was started as 'x'"),
        (step("ioctl = 1\nstart = 'x'"), "'x' is started and never finished"),
        (step("ioctl = 1\nstart = 'x'\nstatus = 0"), "has its outcome at its finish"),
        (step("ioctl = -1"), "line 5: invalid value"),
        (step("ioctl = 1\ninput = [{ at = 4 }]"), "a field has no value"),
        (step("ioctl = 1\ninput = [{ u8 = 1, u16 = 2 }]"), "a field has two values"),
        (step("ioctl = 1\ninput = [{ u8 = 256 }]"), "256 does not fit 8 bits"),
        (step("ioctl = 1\ninput = [{ u32 = 'x' }]"), "'x' is not an integer"),
        (step("ioctl = 1\ninput = [{ u32 = '${x}' }]"), "there is no variable 'x'"),
        (step("ioctl = 1\ninput = [{ utf16 = '${x' }]"), "has a ${ without }"),
        (step("ioctl = 1\ninput = [{ sockaddr = '10.0.0.1' }]"), "'10.0.0.1' is not an address and a port"),
        (step("ioctl = 1\ninput = [{ hex = '1' }]"), "'1' is not pairs of hexadecimal digits"),
        (step("ioctl = 1\ninput = [{ file = 'no such file' }]"), "cannot read"),
        (step("ioctl = 1\ninput = [{ u8 = 1, length = 3 }]"), "which only a ramp and a fill have"),
        (step("ioctl = 1\ninput = [{ ramp = 1 }]"), "a ramp needs a length"),
        (step("ioctl = 1\ninput = [{ zeros = 100000000 }]"), "is longer than"),
        (step("ioctl = 1\ninput = [{ u32 = 1 }, { at = 2, u8 = 1 }]"), "begins inside the one before"),
        (step("ioctl = 1\nsize = 3\ninput = [{ u32 = 1 }]"), "the fields end at 0x4, behind the size 0x3"),
        (step("file = 'x'\nrepeats = 'y'"), "'repeats' and 'times' belong together"),
    ];
    for (text, reason) in cases {
        let refused = parse(&text).expect_err(reason);
        assert!(refused.contains(reason), "{refused}\nis not: {reason}");
        assert_eq!(refused.lines().count(), 1, "{refused}");
    }
}

#[test]
fn fields_follow_each_other_and_variables_are_replaced() {
    let script = parse(&format!(
        "set.port = 9000\n{}",
        step(
            "ioctl = 0x22E000\nsize = 40\ninput = [{ u8 = 1 }, { at = 4, u16 = -2 }, { u32 = '0x${port}' }, \
             { sockaddr_inet = '${server.address6}:${port}' }]"
        )
    ))
    .unwrap();
    let Step::Ioctl(ioctl) = &script.threads[0].steps[0] else { panic!("an IOCTL") };
    let input = bytes(&ioctl.input, ioctl.size, &variables(&script)).unwrap();
    let mut expected = vec![1, 0, 0, 0, 0xfe, 0xff, 0x00, 0x90, 0, 0, 23, 0, 0x23, 0x28, 0, 0, 0, 0, 0xfd];
    expected.resize(33, 0);
    expected.push(1);
    expected.resize(40, 0);
    assert_eq!(input, expected);
}
