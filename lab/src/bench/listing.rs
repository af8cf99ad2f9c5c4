// SPDX-License-Identifier: MIT OR Apache-2.0

//! The work that the instructions of the engine's fast paths do: each is attributed to the line of this project that it was compiled for, functions of
//! libraries that were inlined there included, and each line to a concern.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::{BufRead as _, Write as _},
    ops::AddAssign as _,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};

use super::{
    callgrind,
    instructions::{PATHS, RUNS, WORK},
};
use crate::{exit::Exit, workspace};

/// Concerns of source files, by the beginning of their paths below `crates/`. The first row that fits counts.
const CONCERNS: [(&str, &str); 31] = [
    ("roce-wire/src/icrc/", "ICRC, and the copy of the payload with it"),
    ("roce/src/transport/packet/payload_copy", "ICRC, and the copy of the payload with it"),
    ("roce-wire/", "headers: recognition, bounds, fields"),
    ("roce/src/transport/packet/", "headers: recognition, bounds, fields"),
    ("roce/src/transport/peer", "headers: recognition, bounds, fields"),
    ("roce/src/object_table/", "lookup of queue pair and region, and its use against removal"),
    ("roce/src/qp.rs", "lookup of queue pair and region, and its use against removal"),
    ("roce/src/random.rs", "keyed numbers: QPN and key to slot"),
    ("roce/src/number_prefix.rs", "keyed numbers: QPN and key to slot"),
    ("roce/src/region/", "memory: key, domain, range, rights, addresses"),
    ("roce/src/memory.rs", "memory: key, domain, range, rights, addresses"),
    ("roce/src/sge_cursor.rs", "memory: key, domain, range, rights, addresses"),
    ("roce/src/transport/requester/recovery/", "losses: timeouts, round trips, windows, probes"),
    ("roce/src/transport/requester/retransmit_timer", "losses: timeouts, round trips, windows, probes"),
    ("roce/src/transport/out_of_order", "losses: timeouts, round trips, windows, probes"),
    ("roce/src/transport/congestion/", "losses: timeouts, round trips, windows, probes"),
    ("roce/src/timer_wheel.rs", "losses: timeouts, round trips, windows, probes"),
    ("roce/src/cq", "completion, and its notification"),
    ("roce/src/moderation.rs", "completion, and its notification"),
    ("roce/src/notices.rs", "completion, and its notification"),
    ("roce/src/transport/requester/completion", "completion, and its notification"),
    ("roce/src/stats.rs", "statistics"),
    ("roce/src/prefetch.rs", "prefetches of cache lines"),
    ("roce/src/transport/cache_lines.rs", "prefetches of cache lines"),
    ("roce/src/transport/requester/", "state of the requester: send queue, PSNs, credits, fences"),
    ("roce/src/transport/responder/", "state of the responder: PSN, receive, acknowledgement"),
    ("roce/src/recv_queue.rs", "state of the responder: PSN, receive, acknowledgement"),
    ("roce/src/transport/", "link: lock, state, which half has something to send"),
    ("roce/src/", "engine: batches, lists of queue pairs that are ready, slots of frames"),
    ("fallible/", "engine: batches, lists of queue pairs that are ready, slots of frames"),
    ("roce-testkit/", "locks and transmit queue of the bench"),
];

/// The concern of code that no source file of `crates/` contains.
const OTHERS: &str = "the bench, and memcpy of the system";

/// Instructions by source line: file below the project's folder, and line.
type Lines = BTreeMap<(String, u32), u64>;

/// Writes what each path does into `directory`: a file of lines for each, and a table of concerns, which is printed, too.
///
/// # Errors
/// The folder cannot be made, callgrind or addr2line cannot run, or a file cannot be written.
pub fn write(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)
        .map_err(|error| Exit::usage(format!("cannot create {}: {error}", directory.display())))?;
    let mut concerns: BTreeMap<&str, [u64; PATHS.len()]> = BTreeMap::new();
    for (at, (name, function)) in PATHS.iter().enumerate() {
        let toggle = format!("--toggle-collect={function}");
        let options: Vec<&str> = callgrind::BY_INSTRUCTION.into_iter().chain([toggle.as_str()]).collect();
        let profile = callgrind::run(&options, WORK)?;
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        let mut of_libraries = 0;
        for (address, count) in profile.of_this_program()? {
            address.map_or(&mut of_libraries, |address| counts.entry(address).or_default()).add_assign(count);
        }
        let mut lines = by_line(&counts)?;
        *lines.entry(Default::default()).or_default() += of_libraries;
        for ((file, _), count) in &lines {
            concerns.entry(concern(file)).or_default()[at] += count;
        }
        let path = directory.join(name.replace(' ', "-")).with_extension("txt");
        fs::write(&path, listing(&lines)).with_context(|| format!("cannot write {}", path.display()))?;
    }
    let path = directory.join("concerns.md");
    let table = table(&concerns);
    print!("{table}");
    fs::write(&path, table).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the lines of instructions, by addr2line, which names the functions inlined there, the innermost first.
fn by_line(counts: &BTreeMap<u64, u64>) -> Result<Lines> {
    workspace::provide(&["addr2line"])?;
    let program = std::env::current_exe().context("cannot find this program")?;
    let mut addr2line = Command::new("addr2line");
    addr2line.args(["--inlines", "--addresses", "--exe"]).arg(&program);
    let mut child = addr2line.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut addresses = child.stdin.take().context("no input")?;
    let text: Vec<String> = counts.keys().map(|address| format!("{address:#x}\n")).collect();
    let writer = std::thread::spawn(move || addresses.write_all(text.concat().as_bytes()));
    let output = std::io::BufReader::new(child.stdout.take().context("no output")?);
    let output: Vec<String> = output.lines().collect::<Result<_, _>>()?;
    writer.join().ok().context("addr2line was not given the addresses")??;
    ensure!(child.wait()?.success(), "addr2line failed");
    in_output(&output, counts, workspace::root())
}

/// Reads the output of addr2line: an address, and the lines of its functions.
fn in_output(output: &[String], counts: &BTreeMap<u64, u64>, root: &Path) -> Result<Lines> {
    let mut lines = Lines::new();
    let mut place = None;
    let mut address = None;
    let mut add = |address: Option<u64>, place: Option<(String, u32)>| {
        if let Some(count) = address.and_then(|address| counts.get(&address)) {
            *lines.entry(place.unwrap_or_default()).or_default() += count;
        }
    };
    for line in output {
        if let Some(digits) = line.strip_prefix("0x") {
            add(address.take(), place.take());
            address = Some(u64::from_str_radix(digits, 16)?);
        } else if place.is_none() {
            place = of_project(line, root);
        }
    }
    add(address, place);
    Ok(lines)
}

/// Returns file and line of `FILE:LINE` or `FILE:LINE (discriminator 2)` if the file is one of `crates/`.
fn of_project(line: &str, root: &Path) -> Option<(String, u32)> {
    let (file, line) = line.rsplit_once(':')?;
    let file = Path::new(file).strip_prefix(root).ok()?.to_str()?;
    let file = file.strip_prefix("crates/")?;
    let line = line.split_whitespace().next()?.parse().ok()?;
    Some((file.to_owned(), line))
}

fn concern(file: &str) -> &'static str {
    CONCERNS.iter().find(|(prefix, _)| file.starts_with(prefix)).map_or(OTHERS, |&(_, concern)| concern)
}

/// Instructions of one run, by line.
fn listing(lines: &Lines) -> String {
    let mut text = String::new();
    for ((file, line), count) in lines {
        let place = if file.is_empty() { OTHERS.to_owned() } else { format!("crates/{file}:{line}") };
        let _ = writeln!(text, "{:8.2}  {place}", *count as f64 / RUNS as f64);
    }
    text
}

/// The table of concerns, the largest first.
fn table(concerns: &BTreeMap<&str, [u64; PATHS.len()]>) -> String {
    let mut rows: Vec<_> = concerns.iter().collect();
    rows.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.iter().sum::<u64>()));
    let mut text = format!("| instructions | {} |\n", PATHS.map(|(name, _)| name).join(" | "));
    text += "| --- | --- | --- | --- |\n";
    let mut total = [0; PATHS.len()];
    let mut row = |name: &str, counts: &[u64; PATHS.len()]| {
        let counts = counts.map(|count| format!("{:.0}", count as f64 / RUNS as f64));
        let _ = writeln!(text, "| {name} | {} |", counts.join(" | "));
    };
    for (name, counts) in rows {
        row(name, counts);
        total.iter_mut().zip(counts).for_each(|(total, count)| *total += count);
    }
    row("all", &total);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_belong_to_the_innermost_line_of_the_project() {
        let output = [
            "0x0000000000001000",
            "/rustc/library/core/src/num/uint_macros.rs:7",
            "/project/crates/roce/src/cq.rs:12 (discriminator 3)",
            "/project/crates/roce/src/engine/receive.rs:40",
            "0x0000000000001004",
            "??:0",
            "0x0000000000001008",
            "/project/crates/roce/src/cq.rs:12",
        ]
        .map(str::to_owned);
        let counts = BTreeMap::from([(0x1000, 5), (0x1004, 2), (0x1008, 1)]);
        let lines = in_output(&output, &counts, Path::new("/project")).unwrap();
        let expected = [((String::new(), 0), 2), (("roce/src/cq.rs".to_owned(), 12), 6)];
        assert_eq!(lines, Lines::from(expected));
    }

    #[test]
    fn each_concern_has_a_file_that_exists() {
        let crates = workspace::root().join("crates");
        for (prefix, _) in CONCERNS {
            let path = crates.join(prefix);
            let folder = path.parent().unwrap();
            let name = path.file_name().unwrap().to_str().unwrap();
            let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
            assert!(files.any(|file| file.to_str().unwrap().starts_with(name)), "{prefix}");
        }
    }

    #[test]
    fn table_has_the_largest_concern_first_and_the_sum_last() {
        let counts = BTreeMap::from([("few", [1000, 0, 1000]), ("many", [5000, 6000, 0])]);
        let table = table(&counts);
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows, ["| many | 5 | 6 | 0 |", "| few | 1 | 0 | 1 |", "| all | 6 | 6 | 1 |"]);
    }
}
