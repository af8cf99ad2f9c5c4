# SPDX-License-Identifier: MIT OR Apache-2.0
"""Checks the ICRC of each RoCEv2 frame of captures with zlib, without any code of the engine.

Reads pcap files of Ethernet or IP packets. Prints "OK BAD OTHER": numbers of frames with a right ICRC, with a wrong one, and of frames
that are not RoCEv2 over UDP. IBTA Volume 1, annex A17.3.3: masked are TOS, TTL and checksum of IPv4, traffic class, flow label
and hop limit of IPv6, the UDP checksum, and the byte after the P_Key's word of the BTH.
"""

import struct
import sys
import zlib

ETHERNET, RAW, IPV4, IPV6 = 1, 101, 228, 229


def packets(data):
    """Yields the IP packet of each frame, or None."""
    magic = data[:4]
    order = "<" if magic in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    if order == ">" and magic not in (b"\xa1\xb2\xc3\xd4", b"\xa1\xb2\x3c\x4d"):
        sys.exit("no pcap file")
    link = struct.unpack(order + "I", data[20:24])[0] & 0xFFFF
    at = 24
    while at + 16 <= len(data):
        captured, length = struct.unpack(order + "II", data[at + 8 : at + 16])
        frame = data[at + 16 : at + 16 + captured]
        at += 16 + captured
        if captured != length or len(frame) != captured:
            sys.exit("a frame is cut off")
        if link in (RAW, IPV4, IPV6):
            yield frame
        elif link == ETHERNET and frame[12:14] in (b"\x08\x00", b"\x86\xdd"):
            yield frame[14:]
        elif link == ETHERNET:
            yield None
        else:
            sys.exit("unknown link type %d" % link)


def masked(packet):
    """Returns the bytes that the ICRC covers, and the ICRC; None if the packet is not RoCEv2."""
    if packet is None:
        return None
    if packet[0] >> 4 == 4:
        size, protocol, total = (packet[0] & 15) * 4, packet[9], struct.unpack(">H", packet[2:4])[0]
        fields = [1, 8, 10, 11]
    else:
        size, protocol, total = 40, packet[6], 40 + struct.unpack(">H", packet[4:6])[0]
        fields = [1, 2, 3, 7]
    if protocol != 17 or struct.unpack(">H", packet[size + 2 : size + 4])[0] != 4791:
        return None
    packet = packet[:total]
    body, icrc = bytearray(packet[:-4]), packet[-4:]
    if packet[0] >> 4 == 6:
        body[0] |= 15
    for field in fields + [size + 6, size + 7, size + 8 + 4]:
        body[field] = 255
    return bytes(body), icrc


good = bad = other = 0
for name in sys.argv[1:]:
    with open(name, "rb") as file:
        for packet in packets(file.read()):
            parts = masked(packet)
            if parts is None:
                other += 1
            elif struct.pack("<I", zlib.crc32(b"\xff" * 8 + parts[0])) == parts[1]:
                good += 1
            else:
                bad += 1
print(good, bad, other)
