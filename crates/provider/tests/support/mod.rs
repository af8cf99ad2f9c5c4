//! Two hosts on a wire, each with a provider, and a consumer's bare hands.
//!
//! The wire is two queues of frames; each host's receiver is a thread that plays the part of the NIC's DPC.
//! Calls go through the dispatch tables and nothing else.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(clippy::macro_metavars_in_unsafe, reason = "a test's call is unsafe as a whole")]

use core::ffi::c_void;
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::ptr::{null, null_mut};
use kernel::Owner;
use ndk_abi::ndk::*;
use ndk_abi::netio::{IN_ADDR, IN_ADDR_S_un, SOCKADDR, SOCKADDR_IN};
use ndk_abi::nt::*;
use provider::host::{Host, Link, Path, ResolveError};
use provider::{Config, Pending, Provider};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than anything takes that works.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Calls a member of an object's dispatch table.
#[macro_export]
macro_rules! call {
    ($object:expr, $member:ident $(, $argument:expr)* $(,)?) => {{
        let object = $object;
        // SAFETY: the tests call as the contract of NDKPI says.
        unsafe { ((*(*object).Dispatch).$member.expect("no member is null"))(object $(, $argument)*) }
    }};
}

/// What travels: a frame, or the word that the day is over.
type Frame = Option<Vec<u8>>;

/// What a host's NIC is made of.
struct Nic {
    ip: Ipv4Addr,
    mac: [u8; 6],
    peer: (Ipv4Addr, [u8; 6]),
    transmit: Mutex<Cable>,
    /// Nothing leaves any more.
    cut: Arc<AtomicBool>,
    present: Arc<AtomicBool>,
}

struct Cable {
    to_peer: Sender<Frame>,
    slot: Vec<u8>,
    cut: Arc<AtomicBool>,
}

impl roce::Transmit for Cable {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        if !self.cut.load(Ordering::SeqCst) {
            // The peer may have gone home already.
            let _ = self.to_peer.send(Some(self.slot[..len].to_vec()));
        }
    }
}

impl Host for Nic {
    fn transmit(&self, pump: &mut dyn FnMut(&mut dyn roce::Transmit) -> usize) {
        let mut cable = self.transmit.lock().unwrap();
        while pump(&mut *cable) != 0 {}
    }

    fn resolve(&self, _local: IpAddr, remote: IpAddr) -> Result<Path, ResolveError> {
        assert_eq!(kernel::irql::current(), kernel::irql::PASSIVE_LEVEL);
        match remote {
            IpAddr::V4(ip) if ip == self.peer.0 => Ok(Path { remote_mac: self.peer.1, mtu: 1500 }),
            IpAddr::V4(ip) if ip.octets()[..3] == self.ip.octets()[..3] => Err(ResolveError::HostUnreachable),
            _ => Err(ResolveError::NetworkUnreachable),
        }
    }

    fn is_local(&self, address: IpAddr) -> bool {
        address == IpAddr::V4(self.ip)
    }

    fn link(&self) -> Link {
        Link { mac: self.mac, mtu: 1500 }
    }

    fn is_present(&self) -> bool {
        self.present.load(Ordering::SeqCst)
    }

    fn owner(&self) -> Owner {
        Owner::new(null_mut())
    }
}

/// One host, with one NDK adapter open.
pub struct Node {
    pub provider: Arc<Provider>,
    pub ip: Ipv4Addr,
    adapter: *mut NDK_ADAPTER,
    receiver: Option<JoinHandle<()>>,
    own_queue: Sender<Frame>,
    cut: Arc<AtomicBool>,
    present: Arc<AtomicBool>,
    /// Held while a batch of frames ends.
    batch_end: Arc<Mutex<()>>,
}

/// Two hosts on one wire.
pub fn pair() -> (Node, Node) {
    pair_with(Config::default())
}

/// Two hosts whose calls pend whenever they may.
pub fn pending_pair() -> (Node, Node) {
    pair_with(Config { pending: Pending::Pend, ..Config::default() })
}

pub fn pair_with(config: Config) -> (Node, Node) {
    let (left, right) = (
        (Ipv4Addr::new(192, 0, 2, 1), [2, 0, 0, 0, 0, 1]),
        (Ipv4Addr::new(192, 0, 2, 2), [2, 0, 0, 0, 0, 2]),
    );
    let (to_left, left_queue) = channel();
    let (to_right, right_queue) = channel();
    let a = Node::new(left, right, (to_left.clone(), left_queue), to_right.clone(), config);
    let b = Node::new(right, left, (to_right, right_queue), to_left, config);
    (a, b)
}

impl Node {
    fn new(
        (ip, mac): (Ipv4Addr, [u8; 6]),
        peer: (Ipv4Addr, [u8; 6]),
        (own_queue, queue): (Sender<Frame>, Receiver<Frame>),
        to_peer: Sender<Frame>,
        config: Config,
    ) -> Self {
        let (cut, present) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(true)));
        let cable = Cable { to_peer, slot: vec![0; 9216], cut: Arc::clone(&cut) };
        let nic = Nic {
            ip,
            mac,
            peer,
            transmit: Mutex::new(cable),
            cut: Arc::clone(&cut),
            present: Arc::clone(&present),
        };
        let provider = Arc::new(Provider::try_new(nic, config).expect("a provider"));
        provider.set_addresses(&[ip.into()]);
        let adapter = provider.open(NDK_VERSION { Major: 2, Minor: 1 }).expect("an adapter");
        let own = Arc::clone(&provider);
        let batch_end = Arc::new(Mutex::new(()));
        let turn = Arc::clone(&batch_end);
        let receiver = std::thread::spawn(move || receive(&own, &queue, &turn));
        Self { provider, ip, adapter, receiver: Some(receiver), own_queue, cut, present, batch_end }
    }

    pub fn adapter(&self) -> *mut NDK_ADAPTER {
        self.adapter
    }

    pub fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::from((self.ip, port))
    }

    /// The system has given the adapter other addresses.
    pub fn set_addresses(&self, addresses: &[IpAddr]) {
        self.provider.set_addresses(addresses);
        self.provider.transmit_ready();
    }

    /// Nothing that this host sends arrives any more.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    /// Frames are taken in, but what they tell is not told until the guard is dropped, unless a call of the
    /// consumer makes the provider do so.
    pub fn hold_batches(&self) -> MutexGuard<'_, ()> {
        self.batch_end.lock().unwrap()
    }

    /// A counter of the engine.
    pub fn counter(&self, wanted: &str) -> u64 {
        let mut found = None;
        self.provider.counters(&mut |name, value| {
            if name == wanted {
                found = Some(value);
            }
        });
        found.expect("a counter of this name")
    }

    /// The device is pulled.
    pub fn pull(&self) {
        self.cut();
        self.present.store(false, Ordering::SeqCst);
        self.provider.remove();
    }

    pub fn cq(&self, depth: u32) -> Cq {
        let seen = Seen::new();
        let raw = create(|done, context, out| {
            call!(
                self.adapter,
                NdkCreateCq,
                depth,
                Some(on_cq),
                seen.context(),
                null_mut(),
                done,
                context,
                out
            )
        });
        Cq { raw: raw.expect("a completion queue"), seen }
    }

    pub fn pd(&self) -> *mut NDK_PD {
        create(|done, context, out| call!(self.adapter, NdkCreatePd, done, context, out)).expect("a PD")
    }

    pub fn connector(&self) -> *mut NDK_CONNECTOR {
        create(|done, context, out| call!(self.adapter, NdkCreateConnector, done, context, out))
            .expect("a connector")
    }

    /// A listener on `port`.
    pub fn listener(&self, port: u16) -> Listener {
        let listener = self.idle_listener();
        assert_eq!(listener.listen(self.at(port)), STATUS_SUCCESS);
        listener
    }

    pub fn idle_listener(&self) -> Listener {
        let incoming = Box::new(Incoming::default());
        let context = (&raw const *incoming).cast_mut().cast();
        let raw = create(|done, request, out| {
            call!(self.adapter, NdkCreateListener, Some(on_connect), context, done, request, out)
        });
        Listener { raw: raw.expect("a listener"), incoming }
    }
}

/// Waits until `condition` holds.
pub fn wait(what: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: opened by `new`, closed once. Waits for every object to be closed.
            unsafe { self.provider.close(self.adapter) };
        }
        let _ = self.own_queue.send(None);
        if let Some(receiver) = self.receiver.take() {
            let _ = receiver.join();
        }
    }
}

/// The NIC's DPC: a batch of frames at a time.
fn receive(provider: &Provider, queue: &Receiver<Frame>, turn: &Mutex<()>) {
    while let Ok(Some(frame)) = queue.recv() {
        provider.receive(&frame);
        for frame in queue.try_iter().take(63) {
            let Some(frame) = frame else { return };
            provider.receive(&frame);
        }
        let _turn = turn.lock().unwrap();
        provider.batch_end();
    }
}

/// What a callback was called with, each time.
#[derive(Default)]
pub struct Seen {
    calls: Mutex<Vec<NTSTATUS>>,
    changed: Condvar,
}

impl Seen {
    /// Lives on: the provider may call late, and the test shall see that.
    pub fn new() -> &'static Self {
        Box::leak(Box::default())
    }

    pub fn context(&'static self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    pub fn note(&self, status: NTSTATUS) {
        self.calls.lock().unwrap().push(status);
        self.changed.notify_all();
    }

    pub fn count(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// Waits for the `n`th call; what it was called with.
    pub fn wait(&self, n: usize) -> NTSTATUS {
        let calls = self.calls.lock().unwrap();
        let (calls, timeout) =
            self.changed.wait_timeout_while(calls, PATIENCE, |calls| calls.len() < n).unwrap();
        assert!(!timeout.timed_out(), "callback {n} did not come");
        calls[n - 1]
    }
}

fn seen<'a>(context: *mut c_void) -> &'a Seen {
    assert!(kernel::irql::current() <= kernel::irql::DISPATCH_LEVEL);
    // SAFETY: every context of a callback below is a `Seen` that lives for ever.
    unsafe { &*context.cast::<Seen>() }
}

pub unsafe extern "efiapi" fn on_request(context: *mut c_void, status: NTSTATUS) {
    seen(context).note(status);
}

pub unsafe extern "efiapi" fn on_close(context: *mut c_void) {
    seen(context).note(STATUS_SUCCESS);
}

pub unsafe extern "efiapi" fn on_cq(context: *mut c_void, status: NTSTATUS) {
    seen(context).note(status);
}

pub unsafe extern "efiapi" fn on_disconnect(context: *mut c_void) {
    seen(context).note(STATUS_SUCCESS);
}

struct CreateSeen {
    object: Mutex<Option<(NTSTATUS, usize)>>,
    changed: Condvar,
}

unsafe extern "efiapi" fn on_create(context: *mut c_void, status: NTSTATUS, object: *mut NDK_OBJECT_HEADER) {
    // SAFETY: `create` keeps it until the call has come.
    let seen = unsafe { &*context.cast::<CreateSeen>() };
    let before = seen.object.lock().unwrap().replace((status, object.expose_provenance()));
    assert!(before.is_none(), "created twice");
    seen.changed.notify_all();
}

type CreateCall<'a, T> =
    dyn FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS + 'a;

/// Makes a create call and waits for its answer, whichever way it comes.
///
/// //= R-CREATE-1, R-CREATE-2, R-CREATE-3, R-CREATE-5, R-CREATE-7
pub fn create<T>(
    call: impl FnOnce(Option<NDK_FN_CREATE_COMPLETION>, *mut c_void, *mut *mut T) -> NTSTATUS,
) -> Result<*mut T, NTSTATUS> {
    create_dyn(Box::new(call))
}

fn create_dyn<T>(call: Box<CreateCall<'_, T>>) -> Result<*mut T, NTSTATUS> {
    let seen: &'static CreateSeen =
        Box::leak(Box::new(CreateSeen { object: Mutex::new(None), changed: Condvar::new() }));
    let canary = core::ptr::without_provenance_mut(0x5a5a_5a50);
    let mut out: *mut T = canary;
    match call(Some(on_create), core::ptr::from_ref(seen).cast_mut().cast(), &raw mut out) {
        STATUS_PENDING => {
            let object = seen.object.lock().unwrap();
            let (object, _) = seen.changed.wait_timeout_while(object, PATIENCE, |o| o.is_none()).unwrap();
            assert_eq!(out, canary, "the slot was written though the call pended");
            let (status, object) = object.expect("the create callback did not come");
            assert_eq!(status == STATUS_SUCCESS, object != 0);
            if status == STATUS_SUCCESS {
                Ok(core::ptr::with_exposed_provenance_mut(object))
            } else {
                Err(status)
            }
        }
        status => {
            assert!(seen.object.lock().unwrap().is_none(), "called back though answered inline");
            if status == STATUS_SUCCESS {
                assert_ne!(out, canary);
                Ok(out)
            } else {
                assert!(out.is_null(), "a failed create left something in the slot");
                Err(status)
            }
        }
    }
}

/// Makes a call that may pend and waits for its answer, whichever way it comes.
pub fn request(call: impl FnOnce(Option<NDK_FN_REQUEST_COMPLETION>, *mut c_void) -> NTSTATUS) -> NTSTATUS {
    let seen = Seen::new();
    match call(Some(on_request), seen.context()) {
        STATUS_PENDING => seen.wait(1),
        status => {
            assert_eq!(seen.count(), 0, "called back though answered inline");
            status
        }
    }
}

/// Closes an object of any type without waiting.
#[macro_export]
macro_rules! begin_close {
    ($object:expr, $member:ident) => {{
        let seen = $crate::support::Seen::new();
        let object = $object;
        // SAFETY: the tests close each object once.
        let status = unsafe {
            ((*(*object).Dispatch).$member.expect("no member is null"))(
                object.cast(),
                Some($crate::support::on_close),
                seen.context(),
            )
        };
        $crate::support::Closing::new(status, seen)
    }};
}

/// Closes an object of any type and waits until it is closed.
#[macro_export]
macro_rules! close {
    ($object:expr, $member:ident) => {
        $crate::begin_close!($object, $member).wait()
    };
}

/// A close under way.
pub struct Closing {
    pub status: NTSTATUS,
    seen: &'static Seen,
}

impl Closing {
    pub fn new(status: NTSTATUS, seen: &'static Seen) -> Self {
        assert!(matches!(status, STATUS_SUCCESS | STATUS_PENDING), "close answered {status:#x}");
        Self { status, seen }
    }

    pub fn is_done(&self) -> bool {
        self.status == STATUS_SUCCESS || self.seen.count() != 0
    }

    //= R-CLOSE-1, R-CLOSE-2
    pub fn wait(self) {
        if self.status == STATUS_PENDING {
            self.seen.wait(1);
        }
        assert!(self.seen.count() <= 1);
    }
}

/// A completion queue with what its notification callback saw.
pub struct Cq {
    pub raw: *mut NDK_CQ,
    pub seen: &'static Seen,
}

impl Cq {
    /// Waits for the next completion.
    pub fn next(&self) -> NDK_RESULT_EX {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(result) = self.poll() {
                return result;
            }
            assert!(Instant::now() < end, "no completion came");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    pub fn poll(&self) -> Option<NDK_RESULT_EX> {
        let mut result = core::mem::MaybeUninit::<NDK_RESULT_EX>::uninit();
        let count = call!(self.raw, NdkGetCqResultsEx, result.as_mut_ptr(), 1);
        // SAFETY: one result was written.
        (count == 1).then(|| unsafe { result.assume_init() })
    }

    pub fn arm(&self, kind: u32) {
        call!(self.raw, NdkArmCq, kind);
    }

    pub fn close(self) {
        close!(self.raw, NdkCloseCq);
    }
}

/// A listener with the connectors that came in.
pub struct Listener {
    pub raw: *mut NDK_LISTENER,
    incoming: Box<Incoming>,
}

#[derive(Default)]
struct Incoming {
    connectors: Mutex<Vec<usize>>,
    changed: Condvar,
}

unsafe extern "efiapi" fn on_connect(context: *mut c_void, connector: *mut NDK_CONNECTOR) {
    // SAFETY: the context is the listener's, which is closed before it goes.
    let incoming = unsafe { &*context.cast::<Incoming>() };
    incoming.connectors.lock().unwrap().push(connector.expose_provenance());
    incoming.changed.notify_all();
}

impl Listener {
    pub fn listen(&self, address: SocketAddr) -> NTSTATUS {
        let (bytes, length) = socket_address(address);
        request(|done, context| call!(self.raw, NdkListen, (&raw const bytes).cast(), length, done, context))
    }

    /// Waits for the next incoming connector.
    pub fn accept(&self) -> *mut NDK_CONNECTOR {
        let connectors = self.incoming.connectors.lock().unwrap();
        let (mut connectors, _) =
            self.incoming.changed.wait_timeout_while(connectors, PATIENCE, |c| c.is_empty()).unwrap();
        assert!(!connectors.is_empty(), "nobody came");
        core::ptr::with_exposed_provenance_mut(connectors.remove(0))
    }

    pub fn close(self) {
        close!(self.raw, NdkCloseListener);
    }
}

/// An address as the consumer passes it.
pub fn socket_address(address: SocketAddr) -> (SOCKADDR_IN, u32) {
    let SocketAddr::V4(v4) = address else { panic!("the wire is IPv4") };
    let bytes = SOCKADDR_IN {
        sin_family: 2,
        sin_port: v4.port().to_be(),
        sin_addr: IN_ADDR { S_un: IN_ADDR_S_un { S_addr: u32::from_ne_bytes(v4.ip().octets()) } },
        sin_zero: [0; 8],
    };
    (bytes, 16)
}

/// Everything one end of a connection needs.
pub struct End {
    pub cq: Cq,
    pub pd: *mut NDK_PD,
    pub qp: *mut NDK_QP,
    pub connector: *mut NDK_CONNECTOR,
    pub disconnected: &'static Seen,
}

/// A queue pair of 32 and 32 requests of 4 elements, with 64 bytes of inline data.
pub fn qp(pd: *mut NDK_PD, cq: &Cq) -> *mut NDK_QP {
    create(|done, context, out| {
        call!(pd, NdkCreateQp, cq.raw, cq.raw, QP_CONTEXT, 32, 32, 4, 4, 64, done, context, out)
    })
    .expect("a queue pair")
}

impl Node {
    fn end(&self, connector: *mut NDK_CONNECTOR) -> End {
        let (cq, pd) = (self.cq(256), self.pd());
        let qp = qp(pd, &cq);
        End { cq, pd, qp, connector, disconnected: Seen::new() }
    }

    /// An end with a connector of its own.
    pub fn active(&self) -> End {
        self.end(self.connector())
    }

    /// An end for an incoming connector.
    pub fn passive(&self, connector: *mut NDK_CONNECTOR) -> End {
        self.end(connector)
    }
}

pub const QP_CONTEXT: *mut c_void = core::ptr::without_provenance_mut(0x0051_5051);

/// A connect under way.
pub struct Connecting {
    status: NTSTATUS,
    seen: &'static Seen,
}

impl Connecting {
    pub fn wait(&self) -> NTSTATUS {
        if self.status == STATUS_PENDING { self.seen.wait(1) } else { self.status }
    }

    pub fn is_done(&self) -> bool {
        self.status != STATUS_PENDING || self.seen.count() != 0
    }
}

impl End {
    pub fn connect(&self, from: SocketAddr, to: SocketAddr, data: &[u8]) -> Connecting {
        let ((source, source_length), (target, target_length)) = (socket_address(from), socket_address(to));
        let seen = Seen::new();
        let status = call!(
            self.connector,
            NdkConnect,
            self.qp,
            (&raw const source).cast::<SOCKADDR>(),
            source_length,
            (&raw const target).cast::<SOCKADDR>(),
            target_length,
            8,
            8,
            data.as_ptr().cast(),
            data.len() as u32,
            Some(on_request),
            seen.context(),
        );
        Connecting { status, seen }
    }

    pub fn complete(&self) -> NTSTATUS {
        request(|done, context| {
            call!(
                self.connector,
                NdkCompleteConnect,
                Some(on_disconnect),
                self.disconnected.context(),
                done,
                context
            )
        })
    }

    pub fn accept(&self, data: &[u8]) -> Connecting {
        let seen = Seen::new();
        let status = call!(
            self.connector,
            NdkAccept,
            self.qp,
            16,
            4,
            data.as_ptr().cast(),
            data.len() as u32,
            Some(on_disconnect),
            self.disconnected.context(),
            Some(on_request),
            seen.context(),
        );
        Connecting { status, seen }
    }

    pub fn disconnect(&self) -> NTSTATUS {
        request(|done, context| call!(self.connector, NdkDisconnect, done, context))
    }

    pub fn private_data(&self) -> Result<Vec<u8>, NTSTATUS> {
        private_data(self.connector)
    }

    pub fn receive(&self, context: u64, sges: &[NDK_SGE]) -> NTSTATUS {
        call!(self.qp, NdkReceive, pointer(context), list(sges), sges.len() as u32)
    }

    pub fn send(&self, context: u64, sges: &[NDK_SGE], flags: u32) -> NTSTATUS {
        call!(self.qp, NdkSend, pointer(context), list(sges), sges.len() as u32, flags)
    }

    pub fn write(&self, context: u64, sges: &[NDK_SGE], to: (u64, u32)) -> NTSTATUS {
        self.write_flagged(context, sges, to, 0)
    }

    pub fn write_flagged(&self, context: u64, sges: &[NDK_SGE], to: (u64, u32), flags: u32) -> NTSTATUS {
        call!(self.qp, NdkWrite, pointer(context), list(sges), sges.len() as u32, to.0, to.1, flags)
    }

    pub fn read(&self, context: u64, sges: &[NDK_SGE], from: (u64, u32)) -> NTSTATUS {
        call!(self.qp, NdkRead, pointer(context), list(sges), sges.len() as u32, from.0, from.1, 0)
    }

    /// Closes everything, the connector first.
    pub fn close(self) {
        close!(self.connector, NdkCloseConnector);
        close!(self.qp, NdkCloseQp);
        self.cq.close();
        close!(self.pd, NdkClosePd);
    }
}

/// What the peer sent while connecting.
pub fn private_data(connector: *mut NDK_CONNECTOR) -> Result<Vec<u8>, NTSTATUS> {
    let mut length = 0;
    match call!(connector, NdkGetConnectionData, null_mut(), null_mut(), null_mut(), &raw mut length) {
        STATUS_SUCCESS => {}
        status => return Err(status),
    }
    let mut data = vec![0xee_u8; length as usize];
    let pointer = data.as_mut_ptr().cast();
    let status = call!(connector, NdkGetConnectionData, null_mut(), null_mut(), pointer, &raw mut length);
    assert_eq!(status, STATUS_SUCCESS);
    Ok(data)
}

pub fn pointer(context: u64) -> *mut c_void {
    core::ptr::with_exposed_provenance_mut(context as usize)
}

fn list(sges: &[NDK_SGE]) -> *const NDK_SGE {
    if sges.is_empty() { null() } else { sges.as_ptr() }
}

/// Connects the two hosts.
pub fn connect(a: &Node, b: &Node) -> (End, End, Listener) {
    let listener = b.listener(445);
    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let passive = b.passive(listener.accept());
    let accepting = passive.accept(&[]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
    (active, passive, listener)
}

/// Memory with a list that describes it at a made-up virtual address.
pub struct Memory {
    pages: Vec<u8>,
    start: usize,
    words: Vec<u64>,
    length: usize,
}

/// Nothing is there: an index only.
pub const MADE_UP: u64 = 0xffff_9000_0000_0000;

impl Memory {
    pub fn new(length: usize) -> Self {
        Self::at_offset(length, 0)
    }

    pub fn at_offset(length: usize, offset: usize) -> Self {
        let count = (offset + length).div_ceil(4096);
        let mut pages = vec![0; (count + 1) * 4096];
        let first = pages.as_mut_ptr().expose_provenance().next_multiple_of(4096);
        let mut words = vec![0u64; 6];
        words.extend((0..count).map(|page| (first / 4096 + page) as u64));
        let header = MDL {
            Next: null_mut(),
            Size: 48,
            MdlFlags: MDL_PAGES_LOCKED,
            Process: null_mut(),
            MappedSystemVa: null_mut(),
            StartVa: MADE_UP as usize as *mut c_void,
            ByteCount: length as u32,
            ByteOffset: offset as u32,
        };
        // SAFETY: six words are a header's 48 bytes.
        unsafe { words.as_mut_ptr().cast::<MDL>().write(header) };
        Self { start: first + offset, pages, words, length }
    }

    pub fn mdl(&self) -> *mut MDL {
        self.words.as_ptr().cast_mut().cast()
    }

    pub fn base(&self) -> u64 {
        MADE_UP + (self.start % 4096) as u64
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        let skip = self.start - self.pages.as_ptr().addr();
        &mut self.pages[skip..][..self.length]
    }

    /// Registered in `pd` with `flags`.
    pub fn register(&self, pd: *mut NDK_PD, flags: u32) -> Registered {
        let mr: *mut NDK_MR =
            create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)).expect("an MR");
        assert_eq!(
            request(|done, context| call!(mr, NdkRegisterMr, self.mdl(), self.length, flags, done, context)),
            STATUS_SUCCESS
        );
        Registered { mr, base: self.base(), length: self.length }
    }
}

pub struct Registered {
    pub mr: *mut NDK_MR,
    base: u64,
    length: usize,
}

impl Registered {
    pub fn token(&self) -> u32 {
        call!(self.mr, NdkGetRemoteTokenFromMr)
    }

    /// All of it.
    pub fn sge(&self) -> NDK_SGE {
        self.part(0, self.length)
    }

    pub fn part(&self, offset: usize, length: usize) -> NDK_SGE {
        NDK_SGE {
            Anonymous: NDK_SGE_Anonymous { VirtualAddress: (self.base as usize + offset) as *mut c_void },
            Length: length as u32,
            MemoryRegionToken: call!(self.mr, NdkGetLocalTokenFromMr),
        }
    }

    /// For a peer.
    pub fn remote(&self) -> (u64, u32) {
        (self.base, self.token())
    }

    pub fn close(self) {
        close!(self.mr, NdkCloseMr);
    }
}
