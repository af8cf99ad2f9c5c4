// SPDX-License-Identifier: MIT OR Apache-2.0

// The objects of WinDbg's JavaScript provider that scripts use here, as Microsoft documents them ("JavaScript Debugger Scripting", "Native
// Debugger Objects in JavaScript Extensions"). What is not here does not exist: using it is an error, so that a script keeps to these.
//
// The functions whose names begin with `native` are of `mod.rs`.
"use strict";

// A 64-bit number. Not a number of JavaScript: `+` and `<` refuse it, as they give nonsense in WinDbg.
class Integer64 {
    constructor(value) {
        this.value = BigInt.asUintN(64, value);
    }

    static from(value) {
        if (value instanceof Integer64) {
            return value;
        }
        if (!Number.isSafeInteger(value)) {
            throw new TypeError(`${value} is not an integer`);
        }
        return new Integer64(BigInt(value));
    }

    add(other) {
        return new Integer64(this.value + Integer64.from(other).value);
    }

    subtract(other) {
        return new Integer64(this.value - Integer64.from(other).value);
    }

    compareTo(other) {
        const { value } = Integer64.from(other);
        return this.value < value ? -1 : this.value > value ? 1 : 0;
    }

    asNumber() {
        if (this.value > BigInt(Number.MAX_SAFE_INTEGER)) {
            throw new RangeError("a 64-bit number loses bits");
        }
        return Number(this.value);
    }

    toString(radix) {
        return this.value.toString(radix);
    }

    [Symbol.toPrimitive](hint) {
        if (hint !== "string") {
            throw new TypeError("arithmetic with a 64-bit number");
        }
        return this.value.toString();
    }
}

const described = new Map();

// A type object.
function typeAt(index) {
    if (!described.has(index)) {
        const { name, kind, size, base, fields } = JSON.parse(nativeType(index));
        const type = { name, typeKind: kind, size: Integer64.from(size), fields: {} };
        Object.defineProperty(type, "baseType", { get: () => base === null ? undefined : typeAt(base) });
        for (const field of fields) {
            type.fields[field.name] = field.type === null
                ? { name: field.name, locationKind: "constant", value: field.value }
                : {
                    name: field.name,
                    locationKind: "member",
                    offset: Integer64.from(field.value),
                    get type() {
                        return typeAt(field.type);
                    },
                };
        }
        described.set(index, strict(type, name));
    }
    return described.get(index);
}

// An object whose unknown properties are errors.
function strict(object, name) {
    return new Proxy(object, {
        get(target, property) {
            if (property in target || typeof property === "symbol") {
                return target[property];
            }
            throw new TypeError(`${name} has no property ${property}`);
        },
    });
}

function symbol(module, name) {
    const found = nativeSymbol(module, name);
    if (found === undefined) {
        throw new Error(`${module}!${name} is not known`);
    }
    const { address, type } = JSON.parse(found);
    return { address: new Integer64(BigInt(address)), type: typeAt(type) };
}

const host = strict({
    apiVersionSupport: class {
        constructor(major, minor) {
            this.version = [major, minor];
        }
    },
    functionAlias: class {
        constructor(call, name) {
            this.alias = [name, call];
        }
    },
    Int64: (low, high) => new Integer64(BigInt(low) + (BigInt(high === undefined ? 0 : high) << 32n)),
    diagnostics: strict({ debugLog: (...texts) => nativePrint(texts.join("")) }, "host.diagnostics"),
    getModuleSymbol: (module, name) => strict({ targetType: symbol(module, name).type }, "an object"),
    getModuleSymbolAddress: (module, name) => symbol(module, name).address,
    getModuleType: (module, name) => {
        const index = nativeTypeNamed(module, name);
        if (index === undefined) {
            throw new Error(`${module} has no type ${name}`);
        }
        return typeAt(index);
    },
    memory: strict({
        readMemoryValues: (address, count, size) => {
            const bytes = nativeRead(Integer64.from(address).value.toString(), count * size);
            if (bytes === undefined) {
                throw new Error(`Unable to read memory at Address 0x${Integer64.from(address).toString(16)}`);
            }
            const values = [];
            for (let at = 0; at < bytes.length; at += size) {
                let value = 0n;
                for (let byte = size - 1; byte >= 0; byte -= 1) {
                    value = value << 8n | BigInt(bytes[at + byte]);
                }
                values.push(size === 8 ? new Integer64(value) : Number(value));
            }
            return values;
        },
    }, "host.memory"),
}, "host");

// Runs `!name argument`.
function runCommand(name, argument) {
    const entry = initializeScript().map(entry => entry.alias).find(alias => alias !== undefined && alias[0] === name);
    if (entry === undefined) {
        throw new Error(`no command ${name}`);
    }
    entry[1](argument);
}
