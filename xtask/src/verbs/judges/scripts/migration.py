# SPDX-License-Identifier: MIT OR Apache-2.0
"""Migrates a virtual machine of QEMU over RDMA, and compares its memory.

migration.py to ADDRESS    waits for a virtual machine, and checks that its memory has the pattern
migration.py from ADDRESS  fills the memory of a virtual machine with the pattern, and migrates it there
"""

import hashlib
import json
import subprocess
import sys
import time

PORT = 4444
MEMORY = 64  # MiB
# Above what firmware uses.
BEGIN, LENGTH = 16 << 20, 32 << 20
LIMIT = 60  # s


def pattern():
    """Returns bytes in which no page is equal to another one, or empty."""
    blocks = (hashlib.sha512(number.to_bytes(4, "big")).digest() * 64 for number in range(LENGTH >> 12))
    return b"".join(blocks)


class Machine:
    """A virtual machine that waits at its first instruction, and its monitor."""

    def __init__(self, *options):
        command = ["qemu-system-x86_64", "-M", "pc", "-accel", "tcg", "-m", str(MEMORY), "-S"]
        command += ["-nodefaults", "-no-user-config", "-display", "none", "-qmp", "stdio", *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdout.readline()
        self.ask("qmp_capabilities")

    def ask(self, command, **arguments):
        """Returns the answer to a command of the monitor."""
        line = json.dumps({"execute": command, "arguments": arguments}) + "\n"
        self.process.stdin.write(line.encode())
        self.process.stdin.flush()
        # QEMU also prints there what it does with RDMA.
        for line in filter(lambda line: line.startswith(b"{"), self.process.stdout):
            answer = json.loads(line)
            if "error" in answer:
                sys.exit("%s: %s" % (command, answer["error"]["desc"]))
            if "return" in answer:
                return answer["return"]
        sys.exit("QEMU has ended: %s" % self.process.wait())

    def wait(self):
        """Waits for the end of the migration, and returns what QEMU says about it."""
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline:
            state = self.ask("query-migrate")
            if state.get("status") == "completed":
                return state
            if state.get("status") == "failed":
                sys.exit("the migration failed: %s" % state.get("error-desc"))
            time.sleep(0.05)
        sys.exit("no end of the migration in time")

    def end(self):
        self.ask("quit")
        status = self.process.wait()
        if status != 0:
            sys.exit("QEMU ends with status %d" % status)


direction, address = sys.argv[1:]
uri = "rdma:%s:%d" % (address, PORT)
if direction == "to":
    machine = Machine("-incoming", uri)
    machine.wait()
    machine.ask("pmemsave", val=BEGIN, size=LENGTH, filename="arrived")
    with open("arrived", "rb") as file:
        if file.read() != pattern():
            sys.exit("the memory differs")
    print("the memory has arrived")
else:
    with open("pattern", "wb") as file:
        file.write(pattern())
    machine = Machine("-device", "loader,file=pattern,addr=%#x,force-raw=on" % BEGIN)
    machine.ask("migrate-set-parameters", **{"max-bandwidth": 10 << 30})
    machine.ask("migrate", uri=uri)
    state = machine.wait()
    print("migrated: %s" % json.dumps(state["ram"]))
machine.end()
