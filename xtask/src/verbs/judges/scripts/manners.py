# SPDX-License-Identifier: MIT OR Apache-2.0
"""What programs do beside RDMA while a device is open: signals, children, unmapping memory, unloading a library.

Prints "ok" and the name of each part. A part that fails ends the program with an error.
"""

import ctypes
import mmap
import os
import signal
import subprocess
import sys
import time

from pyverbs.addr import AHAttr, GlobalRoute
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
import pyverbs.enums as e

LENGTH = 1 << 16
COUNT = 50


class Side:
    """A queue pair with memory and a completion queue with a channel."""

    def __init__(self, context):
        self.pd = PD(context)
        self.mr = MR(self.pd, LENGTH, e.IBV_ACCESS_LOCAL_WRITE)
        self.channel = CompChannel(context)
        self.cq = CQ(context, 16, None, self.channel)
        self.cq.req_notify()
        attributes = QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=QPCap(16, 16, 1, 1))
        self.qp = QP(self.pd, attributes)

    def connect(self, context, peer):
        route = GlobalRoute(dgid=context.query_gid(1, 0), sgid_index=0)
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = e.IBV_ACCESS_LOCAL_WRITE
        self.qp.to_init(attributes)
        attributes.path_mtu = e.IBV_MTU_1024
        attributes.max_dest_rd_atomic = attributes.max_rd_atomic = 1
        attributes.min_rnr_timer, attributes.rnr_retry, attributes.retry_cnt, attributes.timeout = 12, 7, 7, 14
        attributes.dest_qp_num = peer.qp.qp_num
        attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rtr(attributes)
        self.qp.to_rts(attributes)

    def sge(self):
        return SGE(self.mr.buf, LENGTH, self.mr.lkey)

    def completion(self):
        """Waits for an event and a completion, through signals."""
        while True:
            count, list = self.cq.poll()
            if count:
                if list[0].status != e.IBV_WC_SUCCESS:
                    sys.exit("a request failed with status %d" % list[0].status)
                return
            try:
                self.channel.get_cq_event(self.cq)
            except Exception as error:
                if "Interrupted" not in str(error):
                    raise
                continue
            self.cq.ack_events(1)
            self.cq.req_notify()


def transfer(sides, number):
    """Sends a message, and compares it."""
    a, b = sides
    data = bytes([number % 251]) * LENGTH
    a.mr.write(data, LENGTH)
    b.qp.post_recv(RecvWR(num_sge=1, sg=[b.sge()]))
    a.qp.post_send(SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[a.sge()]))
    b.completion()
    a.completion()
    if b.mr.read(LENGTH, 0) != data:
        sys.exit("the data differ")


def signals(sides):
    seen = []
    signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    for number in range(COUNT):
        transfer(sides, number)
    while len(seen) < 20:
        time.sleep(0.001)
    signal.setitimer(signal.ITIMER_REAL, 0)


def threads_with_signals():
    """No thread of the library takes signals of the program: each one blocks all."""
    library = 0
    for task in os.listdir("/proc/self/task"):
        with open("/proc/self/task/%s/comm" % task) as file:
            name = file.read().strip()
        with open("/proc/self/task/%s/status" % task) as file:
            blocked = next(line.split()[1] for line in file if line.startswith("SigBlk:"))
        if name.startswith("viordma"):
            library += 1
            if int(blocked, 16) & 1 << signal.SIGALRM - 1 == 0:
                sys.exit("thread %s takes signals" % name)
    if library == 0:
        sys.exit("no thread of the library: %s" % os.listdir("/proc/self/task"))


def children(sides):
    for number in range(COUNT):
        child = os.fork()
        if child == 0:
            os._exit(7)
        transfer(sides, number)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 7:
            sys.exit("a child failed")
    # One that outlives a transfer, and runs another program.
    other = subprocess.Popen(["sleep", "0.3"])
    for number in range(COUNT):
        transfer(sides, number)
    if other.wait() != 0:
        sys.exit("a child failed")


def unloading():
    """Unloads the library before a device is open, and while one is, whose thread goes on. It stays where it is."""
    program = (
        "import _ctypes, ctypes, time\n"
        "library = ctypes.CDLL('libibverbs.so.1')\n"
        "library.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)\n"
        "devices = library.ibv_get_device_list(None)\n"
        "_ctypes.dlclose(library._handle)\n"
        "assert 'libibverbs' in open('/proc/self/maps').read()\n"
        "library = ctypes.CDLL('libibverbs.so.1')\n"
        "library.ibv_open_device.restype = ctypes.c_void_p\n"
        "library.ibv_open_device.argtypes = [ctypes.c_void_p]\n"
        "assert library.ibv_open_device(devices[0])\n"
        "_ctypes.dlclose(library._handle)\n"
        "time.sleep(0.2)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program])
    if ended.returncode != 0:
        sys.exit("a program that unloads the library ends with %d" % ended.returncode)


def unmapping():
    """Memory that is unmapped under a region ends the process that accesses it, with the signal of such an access."""
    ended = subprocess.run([sys.executable, "-B", __file__, "unmapped"])
    if ended.returncode != -signal.SIGSEGV:
        sys.exit("a program that unmaps memory under a region ends with %d" % ended.returncode)


def access_unmapped():
    context = Context(name="viordma0")
    side = Side(context)
    side.connect(context, side)
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    address = libc.mmap(None, LENGTH, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    mr = MR(side.pd, LENGTH, e.IBV_ACCESS_LOCAL_WRITE, address=address)
    libc.munmap(address, LENGTH)
    side.qp.post_recv(RecvWR(num_sge=1, sg=[side.sge()]))
    side.qp.post_send(SendWR(opcode=e.IBV_WR_SEND, num_sge=1, sg=[SGE(address, LENGTH, mr.lkey)]))
    side.completion()


def main():
    if sys.argv[1:] == ["unmapped"]:
        access_unmapped()
        return
    context = Context(name="viordma0")
    sides = [Side(context), Side(context)]
    for side, peer in (sides, sides[::-1]):
        side.connect(context, peer)
    parts = [
        ("signals", lambda: signals(sides)),
        ("threads", threads_with_signals),
        ("children", lambda: children(sides)),
        ("unmapping", unmapping),
        ("unloading", unloading),
    ]
    for name, part in parts:
        part()
        print("ok", name, flush=True)


main()
