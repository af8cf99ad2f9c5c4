# SPDX-License-Identifier: MIT OR Apache-2.0
"""Reads events of TraceLogging by the package etl-parser: metadata from an image, values from standard input.

Arguments: image. Input: JSON, a list of {"name", "values" (hexadecimal)}. Output: JSON, a list of {"name", "fields"} with the fields as a list
of [name, value]; null for an event whose metadata the image does not have.
"""
import hashlib
import json
import struct
import sys
import uuid

from etl.parsers.tracelogging import TlMetaData, TraceLogging


def metadata(image, name):
    """Returns the metadata of the event in the image."""
    needle = name.encode() + b"\0"
    at = image.find(needle)
    while at >= 0:
        start = at - 3
        length = struct.unpack_from("<H", image, start)[0]
        if image[start + 2] == 0 and 3 + len(needle) <= length < 1024:
            return image[start : start + length]
        at = image.find(needle, at + 1)
    return None


def fields(found, values):
    event = TraceLogging()
    event.load(found, bytes.fromhex(values))
    names = [field.name for field in TlMetaData.parse(found).fields]
    return [[name, value(event[name])] for name in names]


def value(seen):
    return list(seen) if isinstance(seen, (list, bytes)) else seen


def guid(name):
    """Returns the GUID that tools derive from the name of a provider."""
    space = bytes.fromhex("482C2DB2C39047C887F81A15BFC130FB")
    digest = bytearray(hashlib.sha1(space + name.upper().encode("utf-16-be")).digest()[:16])
    digest[7] = digest[7] & 0x0F | 0x50
    return str(uuid.UUID(bytes_le=bytes(digest)))


image = open(sys.argv[1], "rb").read()
answers = []
for event in json.load(sys.stdin)["events"]:
    found = metadata(image, event["name"])
    answers.append({"name": event["name"], "fields": found and fields(found, event["values"])})
json.dump({"guid": guid("Viordma"), "events": answers}, sys.stdout)
