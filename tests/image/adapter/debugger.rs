// SPDX-License-Identifier: MIT OR Apache-2.0

//! `viordma.js`, the WinDbg extension of the package, on dumps of two hosts with connected queue pairs. What it prints is compared with the
//! driver's answers to queries, with its trace, and with the frames of the link.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use device_sim::link::Faults;
use driver_states::adapter::State;
use lab::{
    image,
    os::SimOs,
    strict_image,
    testbed::{Options, Testbed},
    trace::{self, TracedEvent},
};
use ndis_sim::Miniport;
use ndk_abi::ndk::{NDK_RESULT_EX, OID_NDK_CONNECTIONS};
use ndk_consumer::{Access, Completions, Connector, Cq, Listener, Memory, Pd, Qp, ReadLimits};
use nt_sim::dump::Dump;
use support::{
    bed::{finish, miniport, started_with, word},
    captures,
    objects::{Sim, depths},
    windbg::Debugger,
};

const MOMENT: Duration = Duration::from_secs(5);
const CONNECTIONS: usize = 2;
const MESSAGES: usize = 3;
const PORT: u16 = 5445;
const PAGE: &str = "docs/debugger.md";

/// Two hosts with [`CONNECTIONS`] connections that have carried [`MESSAGES`] messages each from the first to the second. Another message on
/// the first connection is lost. The first host also has a queue pair that is not connected.
struct Scene {
    debuggers: [Debugger; 2],
    /// Local and remote addresses as the driver of each host answers.
    answers: [BTreeSet<[SocketAddr; 2]>; 2],
    trace: Vec<TracedEvent>,
    /// The PSN of the last request to each queue pair.
    sent: BTreeMap<u32, u32>,
}

/// Result of a thread of the first host: the dumps of both, and what their drivers answer at that time.
type Snapshot = ([Dump; 2], [BTreeSet<[SocketAddr; 2]>; 2]);

impl Scene {
    /// `None` if there is no image.
    fn new(name: &str, subnets: Vec<(IpAddr, u8)>) -> Option<Self> {
        let image = image()?;
        let capture = captures::path(name);
        let capture_option = Some(capture.clone());
        let options =
            Options { trace: Some(trace::ORDINARY), capture: capture_option, subnets, ..Options::default() };
        let mut bed = started_with(&options)?;
        let (dumps, answers) = connect(&bed);
        bed.stop().expect("both drivers stop");
        let trace = bed.trace();
        finish(bed);
        let debuggers = dumps.map(|dump| Debugger::new(dump, &image, &script()));
        Some(Self { debuggers, answers, trace, sent: last_requests(&capture) })
    }
}

fn script() -> PathBuf {
    lab::root().join("inf/package/viordma.js")
}

fn connect(bed: &Testbed) -> Snapshot {
    let [client, server] = bed.machines();
    let [listening, done] = [bed.event(), bed.event()];
    let remote = SocketAddr::new(server.address(), PORT);
    let serving = {
        let (listening, done) = (listening.clone(), done.clone());
        server.consumer("server", move |adapter| {
            let pd = Pd::new(adapter).expect("a protection domain");
            let buffer = Memory::new(&pd, 4096, Access::RemoteReadWrite).expect("registered memory");
            let listener = Listener::new(adapter, remote).expect("a listener");
            let mut ends = Vec::new();
            listening.set();
            for _ in 0..CONNECTIONS {
                let mut connector = listener.next(Some(MOMENT)).expect("a request");
                let (cq, completions) = Cq::new(adapter, 64).expect("a queue");
                let qp = Qp::new(&pd, &cq, &cq, 0, &depths()).expect("a queue pair");
                for _ in 0..MESSAGES {
                    qp.receive(0, &[buffer.sge(0, 64)]).expect("a receive");
                }
                connector.accept(&qp, NO_READS, &[], completions.waker()).expect("accepted");
                ends.push((connector, qp, completions));
            }
            assert!(done.wait(MOMENT));
        })
    };
    let local = SocketAddr::new(client.address(), 0);
    let miniports = bed.machines().map(miniport);
    let (other, wire) = (server.host().clone(), bed.wire().clone());
    let connecting = client.consumer("client", move |adapter| {
        assert!(listening.wait(MOMENT));
        let ends: Vec<_> = (0..CONNECTIONS).map(|_| End::new(adapter, local, remote).send()).collect();
        let pd = Pd::new(adapter).expect("a protection domain");
        let (cq, _completions) = Cq::new(adapter, 64).expect("a queue");
        let unconnected = Qp::new(&pd, &cq, &cq, 0, &depths()).expect("a queue pair");
        wire.set_faults(0, Faults { loss: 1.0, ..Faults::NONE });
        ends[0].post();
        let host = adapter.os().host();
        let dumps = [host, &other].map(|host| Dump::of(host).expect("a dump"));
        let answers = miniports.each_ref().map(connections);
        wire.set_faults(0, Faults::NONE);
        done.set();
        drop((ends, unconnected));
        (dumps, answers)
    });
    serving.join().expect("the server ends");
    connecting.join().expect("the client ends")
}

const NO_READS: ReadLimits = ReadLimits { inbound: 0, outbound: 0 };

/// The active end of a connection.
struct End {
    qp: Qp<SimOs>,
    _connector: Connector<SimOs>,
    completions: Completions<SimOs>,
}

impl End {
    fn new(adapter: &Arc<Sim>, local: SocketAddr, remote: SocketAddr) -> Self {
        let pd = Pd::new(adapter).expect("a protection domain");
        let (cq, completions) = Cq::new(adapter, 64).expect("a queue");
        let qp = Qp::new(&pd, &cq, &cq, 0, &depths()).expect("a queue pair");
        let mut connector = Connector::new(adapter).expect("a connector");
        connector.connect(&qp, local, remote, NO_READS, &[]).expect("connected");
        connector.complete(completions.waker()).expect("completed");
        Self { qp, _connector: connector, completions }
    }

    fn post(&self) {
        self.qp.send_inline(0, b"message", 0).expect("a send");
    }

    /// Sends messages until all are acknowledged.
    fn send(mut self) -> Self {
        let mut results = [NDK_RESULT_EX::zeroed(); MESSAGES];
        for _ in 0..MESSAGES {
            self.post();
            assert_eq!(self.completions.wait(&mut results, MOMENT), Ok(1));
        }
        self
    }
}

/// Asks the driver for its connections.
fn connections(miniport: &Miniport) -> BTreeSet<[SocketAddr; 2]> {
    let answer = miniport.query(OID_NDK_CONNECTIONS, 4096).expect("an answer");
    let list: BTreeSet<_> =
        answer[16..].chunks_exact(64).map(|entry| [address(entry), address(&entry[28..])]).collect();
    assert_eq!(list.len() as u32, word(&answer, 8));
    list
}

/// Reads a `SOCKADDR_INET`.
fn address(bytes: &[u8]) -> SocketAddr {
    let ip: IpAddr = match bytes[0] {
        2 => <[u8; 4]>::try_from(&bytes[4..8]).unwrap().into(),
        _ => <[u8; 16]>::try_from(&bytes[8..24]).unwrap().into(),
    };
    SocketAddr::new(ip, u16::from_be_bytes([bytes[2], bytes[3]]))
}

/// Returns the PSN of the last SEND to each queue pair that a capture has.
fn last_requests(capture: &Path) -> BTreeMap<u32, u32> {
    let mut last = BTreeMap::new();
    for frame in ::captures::file::read(capture).expect("a capture") {
        let header = if frame.data[12..14] == [0x08, 0x00] { 34 } else { 54 };
        let bth = &frame.data[header + 8..];
        let number = |at: usize| u32::from_be_bytes([0, bth[at], bth[at + 1], bth[at + 2]]);
        if frame.data[header + 2..header + 4] == 4791_u16.to_be_bytes() && bth[0] == 4 {
            last.insert(number(5), number(9));
        }
    }
    last
}

/// The rows of a table that begins with this title, by column.
fn rows(output: &str, first: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = output.lines().skip_while(|line| !line.trim_start().starts_with(first));
    let title = lines.next().unwrap_or_else(|| panic!("no table {first} in\n{output}"));
    // A column begins where its title does.
    let starts: Vec<_> = title
        .char_indices()
        .filter(|&(at, letter)| letter != ' ' && (at < 2 || title[..at].ends_with("  ")))
        .map(|(at, _)| at)
        .collect();
    let cell = |line: &str, number: usize| {
        let end = starts.get(number + 1).copied().unwrap_or(line.len()).min(line.len());
        line.get(starts[number]..end).unwrap_or_default().trim().to_owned()
    };
    let rows = lines.take_while(|line| !line.is_empty());
    rows.map(|line| (0..starts.len()).map(|number| (cell(title, number), cell(line, number))).collect())
        .collect()
}

fn number(cell: &str) -> u32 {
    let digits = cell.strip_prefix("0x");
    digits.map_or_else(|| cell.parse(), |digits| u32::from_str_radix(digits, 16)).unwrap()
}

#[test]
fn connections_of_a_dump_are_those_that_the_driver_answers() {
    let v6 = vec![("fd00::".parse().unwrap(), 64)];
    for (name, subnets) in [("debugger", Options::default().subnets), ("debugger-v6", v6)] {
        let Some(scene) = Scene::new(name, subnets) else { return };
        for (number, (debugger, answers)) in scene.debuggers.iter().zip(&scene.answers).enumerate() {
            assert_eq!(answers.len(), CONNECTIONS);
            let output = debugger.run("!conn").unwrap();
            let established =
                rows(&output, "Connection").into_iter().filter(|row| row["Connection"] == "Established");
            let shown: BTreeSet<[SocketAddr; 2]> =
                established.map(|row| ["Local", "Remote"].map(|end| row[end].parse().unwrap())).collect();
            assert_eq!(shown, *answers, "host {number}:\n{output}");
        }
    }
}

#[test]
fn queue_pairs_of_a_dump_have_the_states_of_the_trace_and_the_numbers_of_the_frames() {
    let Some(scene) = Scene::new("debugger-queue-pairs", Options::default().subnets) else { return };
    let outputs = scene.debuggers.each_ref().map(|debugger| debugger.run("!qp").unwrap());
    let [clients, servers] = outputs.each_ref().map(|output| rows(output, "QP"));
    assert_eq!((clients.len(), servers.len()), (CONNECTIONS + 1, CONNECTIONS), "{}", outputs.concat());
    for (host, list) in [("alpha", &clients), ("beta", &servers)] {
        for row in list {
            let mut changes = scene.trace.iter().filter(|event| {
                event.host == host
                    && event.name() == "QueuePairChanged"
                    && event.field("QueuePair") == number(&row["QP"]).to_string()
                    && event.field("To") != "Error"
            });
            let state = changes.next_back().map_or_else(|| "Init".to_owned(), |change| change.field("To"));
            assert_eq!(row["State"], state, "{row:?}");
        }
    }
    let connected: Vec<_> = clients.iter().filter(|row| row["State"] == "Rts").collect();
    assert_eq!(connected.len(), CONNECTIONS);
    for (client, lost) in connected.into_iter().zip([1, 0]) {
        let [_, peer] = client["Peer"].split(' ').collect::<Vec<_>>()[..] else { panic!("{client:?}") };
        let server = servers.iter().find(|row| row["QP"] == peer).expect("the peer has it");
        assert!(server["Peer"].ends_with(&format!(" {}", client["QP"])), "{server:?}");
        let next = (scene.sent[&number(peer)] + 1) % (1 << 24);
        assert_eq!(
            ["Next PSN", "Unacked"].map(|column| number(&client[column])),
            [next, next - lost],
            "{client:?}"
        );
        assert_eq!(number(&server["Expected"]), next - lost, "{server:?}");
        assert_eq!(client["Expected"], server["Next PSN"]);
        let one = scene.debuggers[0].run(&format!("!qp {}", client["QP"])).unwrap();
        assert_eq!(rows(&one, "QP"), std::slice::from_ref(client));
        let one = scene.debuggers[0].run(&format!("!conn {}", client["QP"])).unwrap();
        let [connection] = &rows(&one, "Connection")[..] else { panic!("{one}") };
        assert_eq!([&connection["QP"], &connection["Peer's QP"]], [&client["QP"], peer]);
    }
    assert_eq!(
        scene.debuggers[0].evaluate("[psnOf(0xfffffe, 1), psnOf(0xfffffe, 3)]").unwrap(),
        "[16777215,1]"
    );
    let none = scene.debuggers[0].run("!qp 0x1").unwrap();
    assert!(none.ends_with("  no queue pairs\n"), "{none}");
}

#[test]
fn an_adapter_is_shown_with_all_it_has_as_the_page_quotes() {
    let Some(scene) = Scene::new("debugger-page", Options::default().subnets) else { return };
    let output = scene.debuggers[0].run("!viordma").unwrap();
    let adapter = output.lines().nth(1).unwrap();
    assert!(adapter.starts_with("Adapter 0x") && adapter.contains(": Running, NDIS handle 0x"), "{output}");
    assert!(adapter.ends_with(", RDMA enabled, NDK adapters open: 1"), "{output}");
    assert_eq!(rows(&output, "QP").len(), CONNECTIONS + 1);
    assert_eq!(rows(&output, "Connection").len(), CONNECTIONS);
    let page = fs::read_to_string(lab::root().join(PAGE)).expect("the page");
    let commands = scene.debuggers[0]
        .evaluate(
            "initializeScript().filter(entry => 'alias' in entry).map(entry => entry.alias[0]).join(' ')",
        )
        .unwrap();
    let explained: BTreeSet<_> =
        page.lines().filter_map(|line| line.strip_prefix("| `!")?.split(['`', ' ']).next()).collect();
    assert_eq!(commands.trim_matches('"').split(' ').collect::<BTreeSet<_>>(), explained, "{PAGE}");
    let quoted = page.split("```text\n0: kd> !viordma\n").nth(1).and_then(|rest| rest.split("```").next());
    let masked = |text: &str| text.lines().map(without_numbers).collect::<Vec<_>>();
    assert_eq!(masked(quoted.expect("the page quotes it")), masked(&output), "{PAGE}: it prints\n{output}");
}

/// Replaces each number by `#`: they change with the driver.
fn without_numbers(line: &str) -> String {
    let mut masked = String::new();
    for word in line.split_whitespace() {
        let is_number = word.starts_with("0x") || word.starts_with(|first: char| first.is_ascii_digit());
        let is_address = word.contains(['.', '[']);
        masked.push_str(if is_number && !is_address {
            "#"
        } else {
            word.trim_end_matches(|last: char| last.is_ascii_digit())
        });
        masked.push(' ');
    }
    masked
}

#[test]
fn an_adapter_that_was_halted_is_not_listed_in_either_edition() {
    for (module, image) in [("viordma", image()), ("viordma_strict", strict_image())] {
        let Some(image) = image else { return };
        let mut bed = Testbed::new(&image, &Options::default()).expect("the image can be loaded");
        bed.start().expect("both drivers start");
        let debugger = |bed: &Testbed| {
            let dump = Dump::of(bed.machines()[0].host()).expect("a dump");
            Debugger::new(dump, &image, &script())
        };
        let before = debugger(&bed);
        assert!(before.run("!viordma").unwrap().starts_with(&format!("{module}: 1 adapter\nAdapter 0x")));
        let names: Vec<_> = State::ALL.iter().map(|state| format!("\"{state:?}\"")).collect();
        assert_eq!(before.evaluate("ADAPTER_STATES").unwrap(), format!("[{}]", names.join(",")));
        bed.machine_mut(0).halt_adapter().expect("the adapter halts");
        assert_eq!(debugger(&bed).run("!viordma").unwrap(), format!("{module}: 0 adapters\n"));
        bed.machine_mut(0).start_adapter().expect("the adapter starts");
        assert!(debugger(&bed).run("!conn").unwrap().ends_with("  no connections\n"));
        finish(bed);
    }
}

#[test]
fn what_a_small_dump_lacks_is_reported_and_does_not_end_the_command() {
    let Some(image) = image() else { return };
    let Some(bed) = started_with(&Options::default()) else { return };
    let mut dump = Dump::of(bed.machines()[0].host()).expect("a dump");
    dump.remove_pool();
    let output = Debugger::new(dump, &image, &script()).run("!viordma").unwrap();
    assert!(output.starts_with("viordma: 1 adapter\n  Unable to read memory at Address 0x"), "{output}");
    finish(bed);
}

/// WinDbg's engine knows ECMAScript 2015, the one of these tests more.
#[test]
fn the_script_uses_no_syntax_that_is_newer_than_windbg() {
    let text = fs::read_to_string(script()).unwrap();
    let code: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    for newer in [
        "?.",
        "??",
        "**",
        "padStart",
        "padEnd",
        "async ",
        "await ",
        "BigInt",
        "catch {",
        "includes(",
        "#",
        ".flat",
    ] {
        assert!(!code.iter().any(|line| line.contains(newer)), "{newer}");
    }
}
