// SPDX-License-Identifier: MIT OR Apache-2.0

// WinDbg extension for viordma.sys: adapters, queue pairs and connections of a system that is debugged, or of a kernel dump.
//
//     .scriptload C:\viordma\viordma.js
//     !viordma      every adapter, with its queue pairs and connections
//     !qp           the queue pairs; !qp 0x123456 one of them
//     !conn         the connections; !conn 0x123456 that of a queue pair
//
// It needs viordma.pdb of the same build: all offsets and the names of states are from there, except those of ADAPTER_STATES.
// It reads memory without locks: on a system that runs, a line may mix two moments.
"use strict";

// The driver, and its strict edition. Types have the same names in both.
const MODULES = ["viordma", "viordma_strict"];

// The names of adapter states, in their order. The driver stores a byte, whose type the PDB does not name.
const ADAPTER_STATES = ["Halted", "Initializing", "Paused", "Restarting", "Running", "Pausing"];

const LOCK = "nt::lock::RawSpinLock";
const QUEUE_PAIR = `roce::qp::Qp<${LOCK}>`;
const QUEUE_PAIR_SLOT = `roce::object_table::Slot<${QUEUE_PAIR} >`;
const CONNECTION_SLOT = "roce::cm::table::Slot<roce::cm::conn::Conn>";
const CONNECTION_CHUNK = `alloc::vec::Vec<${CONNECTION_SLOT},alloc::alloc::Global>`;
const ADAPTER = "viordma::miniport::adapter::Adapter";
const ADAPTERS = "viordma::miniport::adapter_list::ADAPTERS";

// Slots of a chunk of the table of queue pairs.
const CHUNK = 256;

// More is taken for damaged memory.
const MAX_CHUNKS = 65536;

function initializeScript() {
    return [
        new host.apiVersionSupport(1, 6),
        new host.functionAlias(showAdapters, "viordma"),
        new host.functionAlias(showQueuePairs, "qp"),
        new host.functionAlias(showConnections, "conn"),
    ];
}

// Numbers: what does not fit 53 bits is a host.Int64.

function toNumber(value) {
    return typeof value === "number" ? value : value.asNumber();
}

function toInt64(value) {
    return typeof value === "number" ? host.Int64(value) : value;
}

function isNull(address) {
    return toInt64(address).compareTo(0) === 0;
}

function hexadecimal(value, digits) {
    let text = toInt64(value).toString(16).replace(/^0x/, "");
    while (text.length < digits) {
        text = "0" + text;
    }
    return "0x" + text;
}

// Typed memory.

function loadedModule() {
    for (const name of MODULES) {
        try {
            if (!isNull(host.getModuleSymbolAddress(name, ADAPTERS))) {
                return name;
            }
        } catch (error) {
            // It is not loaded, or has no symbols.
        }
    }
    throw new Error("no module viordma with symbols: .reload /f viordma.sys, with viordma.pdb of the same build in .sympath");
}

// A place in memory with its type.
class View {
    constructor(module, address, type) {
        this.module = module;
        this.address = toInt64(address);
        this.type = type;
    }

    static named(module, address, name) {
        return new View(module, address, host.getModuleType(module, name));
    }

    // A field, or a field of a field: "requester.psns".
    field(path) {
        let address = this.address;
        let type = this.type;
        for (const name of path.split(".")) {
            const field = type.fields[name];
            if (field === undefined) {
                throw new Error(`${type.name} has no field ${name}: is viordma.pdb of this build?`);
            }
            address = address.add(field.offset);
            type = field.type;
        }
        return new View(this.module, address, type);
    }

    // What a structure with one field wraps: atomic integers, cells, newtypes, pointers that are not null.
    unwrap() {
        let view = this;
        for (;;) {
            const names = view.type.typeKind === "udt" ? Object.getOwnPropertyNames(view.type.fields) : [];
            const sized = names.filter(name => {
                const field = view.type.fields[name];
                return field.locationKind === "member" && toNumber(field.type.size) !== 0;
            });
            if (sized.length !== 1) {
                return view;
            }
            view = view.field(sized[0]);
        }
    }

    // An integer, a boolean or the value of a pointer.
    value() {
        const scalar = this.unwrap();
        return host.memory.readMemoryValues(scalar.address, 1, toNumber(scalar.type.size))[0];
    }

    number() {
        return toNumber(this.value());
    }

    bytes(count) {
        return host.memory.readMemoryValues(this.address, count, 1);
    }

    // The name of an enumerator.
    enumerator() {
        const number = this.number();
        const fields = this.unwrap().type.fields;
        const name = Object.getOwnPropertyNames(fields).find(name => toNumber(fields[name].value) === number);
        return name === undefined ? `${number}?` : name;
    }

    // What a fallible::Arc refers to.
    shared() {
        const pointer = this.field("value").unwrap();
        return new View(this.module, pointer.value(), pointer.type.baseType);
    }

    // What a lock protects, without the lock.
    locked() {
        return this.field("data.value");
    }

    // The elements of a vector, of the named type or of so many bytes.
    *elements(type) {
        const count = this.field("len").number();
        if (count > MAX_CHUNKS) {
            throw new Error(`a vector of ${count} elements`);
        }
        const size = toNumber(type.size);
        let address = toInt64(this.field("buf.inner.ptr").value());
        for (let index = 0; index < count; index += 1) {
            yield new View(this.module, address, type);
            address = address.add(size);
        }
    }
}

// Objects of the driver.

function adapters(module) {
    const list = host.getModuleSymbolAddress(module, ADAPTERS);
    const count = toNumber(host.getModuleSymbol(module, ADAPTERS).targetType.size) / 8;
    return Array.from(host.memory.readMemoryValues(list, count, 8))
        .filter(address => !isNull(address))
        .map(address => View.named(module, address, ADAPTER));
}

function provider(adapter) {
    return adapter.field("ndk.shared").shared().field("provider");
}

function engine(adapter) {
    return provider(adapter).field("state").shared().field("engine").shared();
}

function* queuePairs(adapter) {
    const module = adapter.module;
    const slot = host.getModuleType(module, QUEUE_PAIR_SLOT);
    const type = host.getModuleType(module, QUEUE_PAIR);
    const chunks = engine(adapter).field("qps.table.chunks");
    // A chunk's pointer has the size of a number of the same kind: that of the vector's length.
    for (const chunk of chunks.elements(chunks.field("len").type)) {
        const first = toInt64(chunk.value());
        for (let index = 0; index < CHUNK && !isNull(first); index += 1) {
            const view = new View(module, first.add(index * toNumber(slot.size)), slot);
            const address = toInt64(host.memory.readMemoryValues(view.field("value").address, 1, 8)[0]);
            if (!isNull(address)) {
                yield new QueuePair(new View(module, address, type));
            }
        }
    }
}

// The PSN of a packet, of which the lower half of its sequence number is enough: PSNs have 24 bits.
function psnOf(start, sequence) {
    return (start + sequence) % 0x1000000;
}

class QueuePair {
    constructor(view) {
        const transport = view.field("transport").locked();
        const requester = transport.field("requester");
        const responder = transport.field("responder");
        const psn = (half, sequence) => {
            const low = host.memory.readMemoryValues(half.field(sequence).address, 1, 4)[0];
            return psnOf(half.field("psns.start").number(), low);
        };
        this.address = view.address;
        this.number = view.field("attributes.qpn").number();
        this.shard = view.field("shard").number();
        this.state = transport.field("state").enumerator();
        // The next PSN to send for the first time, the oldest one that is not acknowledged, and the one that is expected (ePSN).
        this.next = psn(requester, "high");
        this.unacknowledged = psn(requester, "una");
        this.expected = psn(responder, "expected");
    }
}

function* connections(adapter) {
    const chunks = engine(adapter).field("connections.table").locked().field("cm.conns.slots.conns.chunks");
    const chunk = host.getModuleType(adapter.module, CONNECTION_CHUNK);
    const slot = host.getModuleType(adapter.module, CONNECTION_SLOT);
    for (const slots of chunks.elements(chunk)) {
        for (const view of slots.elements(slot)) {
            if (view.field("used").number() !== 0) {
                yield new Connection(view.field("value"));
            }
        }
    }
}

class Connection {
    constructor(view) {
        this.address = view.address;
        this.state = view.field("state").enumerator();
        this.local = endpoint(view.field("path.local_ip"), view.field("local_port"));
        this.remote = endpoint(view.field("path.remote_ip"), view.field("remote_port"));
        this.queuePair = view.field("local.qpn").number();
        this.peer = view.field("peer.qpn").number();
    }
}

// An IP address and a port.
function endpoint(ip, port) {
    const variant = ip.field("tag").number() === 0 ? "variant0" : "variant1";
    const octets = ip.field(`${variant}.value.__0.octets`);
    const bytes = Array.from(octets.bytes(toNumber(octets.type.size)));
    if (bytes.length === 4) {
        return `${bytes.join(".")}:${port.number()}`;
    }
    const groups = [];
    for (let index = 0; index < bytes.length; index += 2) {
        groups.push((bytes[index] * 256 + bytes[index + 1]).toString(16));
    }
    // The longest run of zeros is left out (RFC 5952).
    const text = `:${groups.join(":")}:`;
    const runs = (text.match(/:(0:){2,}/g) || [text]).sort((one, other) => other.length - one.length);
    const short = text.replace(runs[0], runs[0] === text ? text : "::");
    return `[${short.replace(/^:(?!:)/, "").replace(/([^:]):$/, "$1")}]:${port.number()}`;
}

// Output.

function print(line) {
    host.diagnostics.debugLog(line.replace(/ +$/, "") + "\n");
}

// Lines of columns, the first with their titles; `none` if there are no others.
function table(lines, none) {
    if (lines.length === 1) {
        print(`  ${none}`);
        return;
    }
    const widths = lines[0].map((_, column) => Math.max(...lines.map(line => String(line[column]).length)));
    for (const line of lines) {
        let text = "";
        line.forEach((cell, column) => {
            text += "  " + cell;
            for (let length = String(cell).length; length < widths[column]; length += 1) {
                text += " ";
            }
        });
        print(text);
    }
}

// Calls `show` for each adapter. Memory that cannot be read ends one adapter, not the command.
function each(show) {
    const module = loadedModule();
    const list = adapters(module);
    print(`${module}: ${list.length} ${list.length === 1 ? "adapter" : "adapters"}`);
    for (const adapter of list) {
        try {
            showAdapter(adapter);
            show(adapter);
        } catch (error) {
            print(`  ${error.message || error}`);
        }
    }
}

function showAdapter(adapter) {
    const state = adapter.field("state").number();
    const ndk = provider(adapter);
    const enabled = ndk.field("enabled").number() !== 0 ? "enabled" : "disabled";
    print(`Adapter ${hexadecimal(adapter.address, 16)}: ${ADAPTER_STATES[state] || state}, `
        + `NDIS handle ${hexadecimal(adapter.field("handle").value(), 16)}, `
        + `RDMA ${enabled}, NDK adapters open: ${ndk.field("open_adapters").number()}`);
}

function showAdapters() {
    each(adapter => {
        showQueuePairsOf(adapter, undefined);
        print("");
        showConnectionsOf(adapter, undefined);
        print("");
    });
}

function showQueuePairs(number) {
    each(adapter => showQueuePairsOf(adapter, number));
}

function showConnections(number) {
    each(adapter => showConnectionsOf(adapter, number));
}

function isWanted(number, wanted) {
    return wanted === undefined || toNumber(wanted) === number;
}

function showQueuePairsOf(adapter, wanted) {
    const peers = new Map();
    for (const connection of connections(adapter)) {
        peers.set(connection.queuePair, connection);
    }
    const lines = [["QP", "State", "Shard", "Next PSN", "Unacked", "Expected", "Peer", "Address"]];
    for (const pair of queuePairs(adapter)) {
        if (isWanted(pair.number, wanted)) {
            const connection = peers.get(pair.number);
            const peer = connection === undefined ? "" : `${connection.remote} ${hexadecimal(connection.peer, 6)}`;
            lines.push([hexadecimal(pair.number, 6), pair.state, pair.shard, pair.next, pair.unacknowledged, pair.expected, peer,
                hexadecimal(pair.address, 16)]);
        }
    }
    table(lines, "no queue pairs");
}

function showConnectionsOf(adapter, wanted) {
    const lines = [["Connection", "Local", "Remote", "QP", "Peer's QP", "Address"]];
    for (const connection of connections(adapter)) {
        if (isWanted(connection.queuePair, wanted)) {
            lines.push([connection.state, connection.local, connection.remote, hexadecimal(connection.queuePair, 6),
                hexadecimal(connection.peer, 6), hexadecimal(connection.address, 16)]);
        }
    }
    table(lines, "no connections");
}
