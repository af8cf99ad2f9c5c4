//! A provider without wire: adapters of one process that reach each other by copying memory.
//!
//! Just enough of NDKPI to drive the consumer against: creates and requests answer inline or pend, callbacks
//! come from a thread of their own, one after another, and the world can be made to break.

use core::ffi::c_void;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::ptr::{self, NonNull};
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use ndk_abi::ndk::*;
use ndk_abi::netio::{AF_INET, SOCKADDR, SOCKADDR_IN};
use ndk_abi::nt::*;

type Callback = Box<dyn FnOnce() + Send>;

/// Adapters, and what lies between them.
pub struct Loopback {
    world: Arc<World>,
    thread: Option<JoinHandle<()>>,
}

struct World {
    pend: bool,
    state: Mutex<State>,
    callbacks: Mutex<Option<Sender<Callback>>>,
}

#[derive(Default)]
struct State {
    /// Objects open.
    objects: i64,
    next_token: u32,
    /// Nothing gets through any more.
    broken: bool,
    cqs: HashMap<usize, Cq>,
    qps: HashMap<usize, Qp>,
    regions: HashMap<u32, (usize, usize)>,
    listeners: HashMap<usize, Listener>,
    connectors: HashMap<usize, Connector>,
}

// SAFETY: contexts and addresses of objects, which any thread may use.
unsafe impl Send for State {}

struct Cq {
    results: VecDeque<NDK_RESULT_EX>,
    armed: bool,
    notify: (NDK_FN_CQ_NOTIFICATION_CALLBACK, usize),
}

struct Qp {
    context: usize,
    cqs: [usize; 2],
    receives: VecDeque<(usize, Vec<(usize, usize)>)>,
    /// Sends that wait for a receive of the peer: context and message.
    waiting: VecDeque<(usize, Vec<u8>)>,
    peer: Option<usize>,
    connected: bool,
}

struct Listener {
    address: Option<SocketAddrV4>,
    paused: bool,
    event: (NDK_FN_CONNECT_EVENT_CALLBACK, usize),
}

#[derive(Default)]
struct Connector {
    qp: usize,
    peer: usize,
    /// What the peer sent along.
    data: Vec<u8>,
    /// The connect or accept that pends.
    request: Option<(NDK_FN_REQUEST_COMPLETION, usize)>,
    disconnect: Option<(NDK_FN_DISCONNECT_EVENT_CALLBACK, usize)>,
    local: Option<SocketAddrV4>,
    connected: bool,
}

/// Any object: the part NDKPI knows first.
#[repr(C)]
struct Object<T> {
    ndk: T,
    world: Arc<World>,
}

impl Loopback {
    /// With `pend`, everything that may pend does.
    pub fn new(pend: bool) -> Self {
        let (sender, receiver) = channel::<Callback>();
        let thread = std::thread::spawn(move || receiver.into_iter().for_each(|callback| callback()));
        let world = World { pend, state: Mutex::default(), callbacks: Mutex::new(Some(sender)) };
        Self { world: Arc::new(world), thread: Some(thread) }
    }

    pub fn open(&self) -> NonNull<NDK_ADAPTER> {
        let header = header(NDK_OBJECT_TYPE::NdkObjectTypeAdapter);
        let ndk = NDK_ADAPTER { Header: header, Dispatch: &raw const ADAPTER };
        let object = Box::new(Object { ndk, world: Arc::clone(&self.world) });
        NonNull::from(Box::leak(object)).cast()
    }

    pub fn close(adapter: NonNull<NDK_ADAPTER>) {
        // SAFETY: opened by `open`, and closed once.
        drop(unsafe { Box::from_raw(adapter.as_ptr().cast::<Object<NDK_ADAPTER>>()) });
    }

    /// From now on every request fails, as when the peer has vanished.
    pub fn cut(&self) {
        self.world.lock().broken = true;
    }

    /// Objects that are open.
    pub fn objects(&self) -> i64 {
        self.world.lock().objects
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.world.callbacks.lock().unwrap().take();
        self.thread.take().unwrap().join().unwrap();
    }
}

impl World {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn later(&self, callback: impl FnOnce() + Send + 'static) {
        self.callbacks.lock().unwrap().as_ref().unwrap().send(Box::new(callback)).unwrap();
    }

    fn request(&self, callback: Option<NDK_FN_REQUEST_COMPLETION>, context: *mut c_void) -> NTSTATUS {
        if !self.pend {
            return STATUS_SUCCESS;
        }
        self.complete(callback.unwrap(), context as usize, STATUS_SUCCESS);
        STATUS_PENDING
    }

    fn complete(&self, callback: NDK_FN_REQUEST_COMPLETION, context: usize, status: NTSTATUS) {
        // SAFETY: the consumer's callback and its context, called once.
        self.later(move || unsafe { callback(context as *mut c_void, status) });
    }

    fn result(
        &self,
        state: &mut State,
        cq: usize,
        qp: (usize, usize),
        status: NTSTATUS,
        kind: NDK_OPERATION_TYPE,
        bytes: usize,
    ) {
        let cq = state.cqs.get_mut(&cq).unwrap();
        cq.results.push_back(NDK_RESULT_EX {
            Status: status,
            BytesTransferred: bytes as u32,
            QPContext: qp.0 as *mut c_void,
            RequestContext: qp.1 as *mut c_void,
            Type: kind,
            ProviderErrorCode: 0,
            TypeSpecificCompletionOutput: 0,
        });
        if core::mem::take(&mut cq.armed) {
            let (notify, context) = cq.notify;
            // SAFETY: the consumer's callback and its context.
            self.later(move || unsafe { notify(context as *mut c_void, STATUS_SUCCESS) });
        }
    }

    /// An initiator request has ended; a failure flushes the queue pair.
    fn initiated(
        &self,
        state: &mut State,
        qp: usize,
        context: usize,
        status: NTSTATUS,
        kind: NDK_OPERATION_TYPE,
    ) {
        let (cq, qp_context) = (state.qps[&qp].cqs[1], state.qps[&qp].context);
        self.result(state, cq, (qp_context, context), status, kind, 0);
        if status != STATUS_SUCCESS {
            self.flush(state, qp);
        }
    }

    fn flush(&self, state: &mut State, qp: usize) {
        let Some(pair) = state.qps.get_mut(&qp) else { return };
        let (receives, waiting) = (core::mem::take(&mut pair.receives), core::mem::take(&mut pair.waiting));
        pair.connected = false;
        let (cqs, context) = (pair.cqs, pair.context);
        for (request, _) in receives {
            let kind = NDK_OPERATION_TYPE::NdkOperationTypeReceive;
            self.result(state, cqs[0], (context, request), STATUS_CANCELLED, kind, 0);
        }
        for (request, _) in waiting {
            let kind = NDK_OPERATION_TYPE::NdkOperationTypeSend;
            self.result(state, cqs[1], (context, request), STATUS_CANCELLED, kind, 0);
        }
    }

    /// Delivers what `from` has sent as far as its peer has receives.
    fn deliver(&self, state: &mut State, from: usize) {
        loop {
            let Some(to) = state.qps.get(&from).and_then(|qp| qp.peer) else { return };
            let ready = state.qps.get(&to).is_some_and(|qp| !qp.receives.is_empty());
            if !ready {
                return;
            }
            let Some((request, message)) = state.qps.get_mut(&from).unwrap().waiting.pop_front() else {
                return;
            };
            let pair = state.qps.get_mut(&to).unwrap();
            let (receive, sges) = pair.receives.pop_front().unwrap();
            let (cq, context) = (pair.cqs[0], pair.context);
            assert!(sges.iter().map(|sge| sge.1).sum::<usize>() >= message.len(), "a message too long");
            scatter(&sges, &message);
            let kind = NDK_OPERATION_TYPE::NdkOperationTypeReceive;
            self.result(state, cq, (context, receive), STATUS_SUCCESS, kind, message.len());
            let kind = NDK_OPERATION_TYPE::NdkOperationTypeSend;
            self.initiated(state, from, request, STATUS_SUCCESS, kind);
        }
    }

    fn create<T>(
        self: &Arc<Self>,
        ndk: T,
        completion: Option<NDK_FN_CREATE_COMPLETION>,
        context: *mut c_void,
        into: *mut *mut T,
        enter: impl FnOnce(&mut State, usize),
    ) -> NTSTATUS {
        let object = Box::into_raw(Box::new(Object { ndk, world: Arc::clone(self) }));
        let address = object as usize;
        let mut state = self.lock();
        state.objects += 1;
        enter(&mut state, address);
        drop(state);
        if !self.pend {
            // SAFETY: the consumer passes a place for the object.
            unsafe { into.write(object.cast()) };
            return STATUS_SUCCESS;
        }
        let (completion, context) = (completion.unwrap(), context as usize);
        self.later(move || {
            // SAFETY: the consumer's callback and its context, called once.
            unsafe { completion(context as *mut c_void, STATUS_SUCCESS, address as *mut NDK_OBJECT_HEADER) };
        });
        STATUS_PENDING
    }
}

fn header(kind: NDK_OBJECT_TYPE) -> NDK_OBJECT_HEADER {
    NDK_OBJECT_HEADER {
        Version: NDK_VERSION { Major: 2, Minor: 1 },
        ObjectType: kind,
        NdkReserved: NDK_OBJECT_HEADER_RESERVED_BLOCK::zeroed(),
    }
}

fn world<T>(object: *mut T) -> Arc<World> {
    // SAFETY: all objects the consumer has were made here.
    let object = unsafe { &*object.cast::<Object<T>>() };
    Arc::clone(&object.world)
}

fn sges(list: *const NDK_SGE, count: u32) -> Vec<(usize, usize)> {
    if count == 0 {
        return Vec::new();
    }
    // SAFETY: the consumer passes `count` entries.
    let list = unsafe { core::slice::from_raw_parts(list, count as usize) };
    let address = |sge: &NDK_SGE| {
        // SAFETY: both members of the union are 8 initialized bytes.
        let address = unsafe { sge.Anonymous.VirtualAddress };
        address as usize
    };
    list.iter().map(|sge| (address(sge), sge.Length as usize)).collect()
}

fn gather(sges: &[(usize, usize)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (address, length) in sges {
        // SAFETY: the consumer's registered memory.
        bytes.extend_from_slice(unsafe { core::slice::from_raw_parts(*address as *const u8, *length) });
    }
    bytes
}

fn scatter(sges: &[(usize, usize)], mut bytes: &[u8]) {
    for (address, length) in sges {
        let (now, later) = bytes.split_at(bytes.len().min(*length));
        // SAFETY: the consumer's registered memory.
        unsafe { ptr::copy_nonoverlapping(now.as_ptr(), *address as *mut u8, now.len()) };
        bytes = later;
    }
}

fn ipv4(address: *const SOCKADDR) -> SocketAddrV4 {
    // SAFETY: tests use IPv4 only.
    let address = unsafe { address.cast::<SOCKADDR_IN>().read_unaligned() };
    SocketAddrV4::new(
        Ipv4Addr::from(address.sin_addr.S_un.S_addr.to_ne_bytes()),
        u16::from_be(address.sin_port),
    )
}

fn put_address(address: Option<SocketAddrV4>, into: *mut SOCKADDR, length: *mut u32) -> NTSTATUS {
    let Some(address) = address else { return STATUS_CONNECTION_INVALID };
    let mut raw = SOCKADDR_IN::zeroed();
    raw.sin_family = AF_INET;
    raw.sin_port = address.port().to_be();
    raw.sin_addr.S_un.S_addr = u32::from_ne_bytes(address.ip().octets());
    // SAFETY: the consumer passes room for any address.
    unsafe { into.cast::<SOCKADDR_IN>().write_unaligned(raw) };
    // SAFETY: the consumer passes a length.
    unsafe { length.write(size_of::<SOCKADDR_IN>() as u32) };
    STATUS_SUCCESS
}

fn bytes(data: *const c_void, length: u32) -> Vec<u8> {
    // SAFETY: the consumer passes `length` bytes.
    unsafe { core::slice::from_raw_parts(data.cast::<u8>(), length as usize) }.to_vec()
}

unsafe extern "efiapi" fn close<T>(
    object: *mut NDK_OBJECT_HEADER,
    completion: Option<NDK_FN_CLOSE_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    // SAFETY: made by `create`, closed once.
    let object = unsafe { Box::from_raw(object.cast::<Object<T>>()) };
    let world = Arc::clone(&object.world);
    let key = &raw const *object as usize;
    drop(object);
    let mut state = world.lock();
    state.objects -= 1;
    state.cqs.remove(&key);
    state.listeners.remove(&key);
    if let Some(connector) = state.connectors.remove(&key) {
        leave(&world, &mut state, &connector);
    }
    if let Some(qp) = state.qps.remove(&key) {
        assert!(qp.receives.is_empty() && qp.waiting.is_empty(), "a queue pair closed with requests");
    }
    drop(state);
    if !world.pend {
        return STATUS_SUCCESS;
    }
    let (completion, context) = (completion.unwrap(), context as usize);
    // SAFETY: the consumer's callback and its context, called once.
    world.later(move || unsafe { completion(context as *mut c_void) });
    STATUS_PENDING
}

/// Tells the peer of `connector` that this side is gone.
fn leave(world: &World, state: &mut State, connector: &Connector) {
    let Some(peer) = state.connectors.get_mut(&connector.peer) else { return };
    if let Some((request, context)) = peer.request.take() {
        world.complete(request, context, STATUS_CONNECTION_ABORTED);
    }
    if core::mem::take(&mut peer.connected) && !state.broken {
        let (event, context) = peer.disconnect.unwrap();
        // SAFETY: the consumer's callback and its context, called once.
        world.later(move || unsafe { event(context as *mut c_void) });
    }
}

unsafe extern "efiapi" fn query_extension(
    _: *mut NDK_OBJECT_HEADER,
    _: *mut GUID,
    _: NDK_VERSION,
    _: *mut NDK_EXTENSION_INTERFACE,
) -> NTSTATUS {
    STATUS_NOT_SUPPORTED
}

unsafe extern "efiapi" fn query_adapter_info(
    _: *mut NDK_ADAPTER,
    place: *mut NDK_ADAPTER_INFO,
    _: *mut u32,
) -> NTSTATUS {
    let limits = NDK_ADAPTER_INFO { MaxInboundReadLimit: 16, MaxOutboundReadLimit: 16, ..Default::default() };
    // SAFETY: the consumer passes room for it.
    unsafe { place.write(limits) };
    STATUS_SUCCESS
}

unsafe extern "efiapi" fn create_cq(
    adapter: *mut NDK_ADAPTER,
    _: u32,
    notify: Option<NDK_FN_CQ_NOTIFICATION_CALLBACK>,
    notify_context: *mut c_void,
    _: *mut GROUP_AFFINITY,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_CQ,
) -> NTSTATUS {
    let ndk = NDK_CQ { Header: header(NDK_OBJECT_TYPE::NdkObjectTypeCq), Dispatch: &raw const CQ };
    let notify = (notify.unwrap(), notify_context as usize);
    world(adapter).create(ndk, completion, context, into, |state, key| {
        state.cqs.insert(key, Cq { results: VecDeque::new(), armed: false, notify });
    })
}

unsafe extern "efiapi" fn arm_cq(cq: *mut NDK_CQ, _: u32) {
    let world = world(cq);
    let mut state = world.lock();
    let cq = state.cqs.get_mut(&(cq as usize)).unwrap();
    cq.armed = cq.results.is_empty();
    if !cq.armed {
        let (notify, context) = cq.notify;
        // SAFETY: the consumer's callback and its context.
        world.later(move || unsafe { notify(context as *mut c_void, STATUS_SUCCESS) });
    }
}

unsafe extern "efiapi" fn get_results(cq: *mut NDK_CQ, into: *mut NDK_RESULT_EX, count: u32) -> u32 {
    let world = world(cq);
    let mut state = world.lock();
    let results = &mut state.cqs.get_mut(&(cq as usize)).unwrap().results;
    let count = results.len().min(count as usize);
    for (index, result) in results.drain(..count).enumerate() {
        // SAFETY: the consumer passes room for `count` results.
        let place = unsafe { into.add(index) };
        // SAFETY: as above.
        unsafe { place.write(result) };
    }
    count as u32
}

unsafe extern "efiapi" fn create_pd(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_PD,
) -> NTSTATUS {
    let ndk = NDK_PD { Header: header(NDK_OBJECT_TYPE::NdkObjectTypePd), Dispatch: &raw const PD };
    world(adapter).create(ndk, completion, context, into, |_, _| {})
}

unsafe extern "efiapi" fn create_mr(
    pd: *mut NDK_PD,
    _: BOOLEAN,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_MR,
) -> NTSTATUS {
    let ndk = NDK_MR { Header: header(NDK_OBJECT_TYPE::NdkObjectTypeMr), Dispatch: &raw const MR };
    world(pd).create(ndk, completion, context, into, |_, _| {})
}

unsafe extern "efiapi" fn register(
    mr: *mut NDK_MR,
    mdl: *mut MDL,
    length: usize,
    _: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(mr);
    // SAFETY: the consumer passes a list.
    let mdl = unsafe { &*mdl };
    let mut state = world.lock();
    state.next_token += 1;
    let token = state.next_token;
    state.regions.insert(token, (mdl.StartVa as usize + mdl.ByteOffset as usize, length));
    // The region's token is kept where NDIS has its own notes.
    // SAFETY: the region is open, and nobody else uses it now.
    unsafe { (*mr).Header.NdkReserved.rf[0] = token as usize as *mut c_void };
    drop(state);
    world.request(completion, context)
}

unsafe extern "efiapi" fn deregister(
    mr: *mut NDK_MR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(mr);
    // SAFETY: the region is open.
    let token = unsafe { token(mr) };
    assert!(world.lock().regions.remove(&token).is_some(), "not registered");
    world.request(completion, context)
}

unsafe extern "efiapi" fn token(mr: *mut NDK_MR) -> u32 {
    // SAFETY: the consumer passes an open region.
    let mr = unsafe { &*mr };
    mr.Header.NdkReserved.rf[0] as usize as u32
}

unsafe extern "efiapi" fn create_qp(
    pd: *mut NDK_PD,
    receive_cq: *mut NDK_CQ,
    initiator_cq: *mut NDK_CQ,
    qp_context: *mut c_void,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_QP,
) -> NTSTATUS {
    let ndk = NDK_QP { Header: header(NDK_OBJECT_TYPE::NdkObjectTypeQp), Dispatch: &raw const QP };
    let qp = Qp {
        context: qp_context as usize,
        cqs: [receive_cq as usize, initiator_cq as usize],
        receives: VecDeque::new(),
        waiting: VecDeque::new(),
        peer: None,
        connected: false,
    };
    world(pd).create(ndk, completion, context, into, |state, key| drop(state.qps.insert(key, qp)))
}

unsafe extern "efiapi" fn flush(qp: *mut NDK_QP) {
    let world = world(qp);
    world.flush(&mut world.lock(), qp as usize);
}

unsafe extern "efiapi" fn receive(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
) -> NTSTATUS {
    let world = world(qp);
    let mut state = world.lock();
    let pair = state.qps.get_mut(&(qp as usize)).unwrap();
    pair.receives.push_back((context as usize, sges(list, count)));
    if let Some(peer) = pair.peer {
        world.deliver(&mut state, peer);
    }
    STATUS_SUCCESS
}

unsafe extern "efiapi" fn send(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    _: u32,
) -> NTSTATUS {
    let (world, qp) = (world(qp), qp as usize);
    let mut state = world.lock();
    if !state.qps[&qp].connected {
        return STATUS_CONNECTION_INVALID;
    }
    if state.broken {
        let kind = NDK_OPERATION_TYPE::NdkOperationTypeSend;
        world.initiated(&mut state, qp, context as usize, STATUS_IO_TIMEOUT, kind);
        return STATUS_SUCCESS;
    }
    let message = gather(&sges(list, count));
    state.qps.get_mut(&qp).unwrap().waiting.push_back((context as usize, message));
    world.deliver(&mut state, qp);
    STATUS_SUCCESS
}

fn transfer(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    (address, token): (u64, u32),
    kind: NDK_OPERATION_TYPE,
) -> NTSTATUS {
    let (world, qp) = (world(qp), qp as usize);
    let mut state = world.lock();
    if !state.qps[&qp].connected {
        return STATUS_CONNECTION_INVALID;
    }
    let list = sges(list, count);
    let length: usize = list.iter().map(|sge| sge.1).sum();
    let region = state.regions.get(&token).copied();
    let inside = length == 0
        || region.is_some_and(|(base, size)| {
            (address as usize).checked_sub(base).is_some_and(|offset| offset + length <= size)
        });
    let status = match (state.broken, inside) {
        (true, _) => STATUS_IO_TIMEOUT,
        (false, false) => STATUS_ACCESS_VIOLATION,
        (false, true) if kind == NDK_OPERATION_TYPE::NdkOperationTypeWrite => {
            scatter(&[(address as usize, length)], &gather(&list));
            STATUS_SUCCESS
        }
        (false, true) => {
            scatter(&list, &gather(&[(address as usize, length)][..usize::from(length != 0)]));
            STATUS_SUCCESS
        }
    };
    world.initiated(&mut state, qp, context as usize, status, kind);
    STATUS_SUCCESS
}

unsafe extern "efiapi" fn read(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    address: u64,
    token: u32,
    _: u32,
) -> NTSTATUS {
    transfer(qp, context, list, count, (address, token), NDK_OPERATION_TYPE::NdkOperationTypeRead)
}

unsafe extern "efiapi" fn write(
    qp: *mut NDK_QP,
    context: *mut c_void,
    list: *const NDK_SGE,
    count: u32,
    address: u64,
    token: u32,
    _: u32,
) -> NTSTATUS {
    transfer(qp, context, list, count, (address, token), NDK_OPERATION_TYPE::NdkOperationTypeWrite)
}

fn new_connector(
    world: &Arc<World>,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    let kind = header(NDK_OBJECT_TYPE::NdkObjectTypeConnector);
    let ndk = NDK_CONNECTOR { Header: kind, Dispatch: &raw const CONNECTOR };
    world.create(ndk, completion, context, into, |state, key| {
        state.connectors.insert(key, Connector::default());
    })
}

unsafe extern "efiapi" fn create_connector(
    adapter: *mut NDK_ADAPTER,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_CONNECTOR,
) -> NTSTATUS {
    new_connector(&world(adapter), completion, context, into)
}

unsafe extern "efiapi" fn connect(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    local: *const SOCKADDR,
    _: u32,
    remote: *const SOCKADDR,
    _: u32,
    _: u32,
    _: u32,
    data: *const c_void,
    length: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(connector);
    let (key, local, remote) = (connector as usize, ipv4(local), ipv4(remote));
    let mut state = world.lock();
    let event =
        state.listeners.values().find(|listener| !listener.paused && listener.address == Some(remote));
    let Some((event, event_context)) = event.map(|listener| listener.event) else {
        return STATUS_CONNECTION_REFUSED;
    };
    let passive = Object {
        ndk: NDK_CONNECTOR {
            Header: header(NDK_OBJECT_TYPE::NdkObjectTypeConnector),
            Dispatch: &raw const CONNECTOR,
        },
        world: Arc::clone(&world),
    };
    let passive = Box::into_raw(Box::new(passive)) as usize;
    state.objects += 1;
    let data = bytes(data, length);
    let incoming = Connector { peer: key, data, local: Some(remote), ..Connector::default() };
    state.connectors.insert(passive, incoming);
    let active = state.connectors.get_mut(&key).unwrap();
    active.qp = qp as usize;
    active.peer = passive;
    active.local = Some(local);
    active.request = Some((completion.unwrap(), context as usize));
    drop(state);
    // SAFETY: the consumer's callback and its context; the connector is its own from here on.
    world.later(move || unsafe { event(event_context as *mut c_void, passive as *mut NDK_CONNECTOR) });
    STATUS_PENDING
}

unsafe extern "efiapi" fn accept(
    connector: *mut NDK_CONNECTOR,
    qp: *mut NDK_QP,
    _: u32,
    _: u32,
    data: *const c_void,
    length: u32,
    disconnect: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    disconnect_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(connector);
    let mut state = world.lock();
    let passive = state.connectors.get_mut(&(connector as usize)).unwrap();
    passive.qp = qp as usize;
    passive.disconnect = Some((disconnect.unwrap(), disconnect_context as usize));
    passive.request = Some((completion.unwrap(), context as usize));
    let peer = passive.peer;
    let Some(active) = state.connectors.get_mut(&peer) else { return STATUS_CONNECTION_ABORTED };
    active.data = bytes(data, length);
    let (request, request_context) = active.request.take().unwrap();
    let active = active.qp;
    state.qps.get_mut(&active).unwrap().peer = Some(qp as usize);
    state.qps.get_mut(&(qp as usize)).unwrap().peer = Some(active);
    drop(state);
    world.complete(request, request_context, STATUS_SUCCESS);
    STATUS_PENDING
}

unsafe extern "efiapi" fn complete_connect(
    connector: *mut NDK_CONNECTOR,
    disconnect: Option<NDK_FN_DISCONNECT_EVENT_CALLBACK>,
    disconnect_context: *mut c_void,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(connector);
    let mut state = world.lock();
    let active = state.connectors.get_mut(&(connector as usize)).unwrap();
    active.disconnect = Some((disconnect.unwrap(), disconnect_context as usize));
    active.connected = true;
    let (peer, qp) = (active.peer, active.qp);
    let Some(passive) = state.connectors.get_mut(&peer) else { return STATUS_CONNECTION_ABORTED };
    passive.connected = true;
    let (request, request_context) = passive.request.take().unwrap();
    let passive = passive.qp;
    state.qps.get_mut(&qp).unwrap().connected = true;
    state.qps.get_mut(&passive).unwrap().connected = true;
    drop(state);
    world.complete(request, request_context, STATUS_SUCCESS);
    world.request(completion, context)
}

unsafe extern "efiapi" fn reject(connector: *mut NDK_CONNECTOR, _: *const c_void, _: u32) -> NTSTATUS {
    let world = world(connector);
    let mut state = world.lock();
    let peer = state.connectors[&(connector as usize)].peer;
    let Some(peer) = state.connectors.get_mut(&peer) else { return STATUS_CONNECTION_ABORTED };
    let (request, context) = peer.request.take().unwrap();
    world.complete(request, context, STATUS_CONNECTION_REFUSED);
    STATUS_SUCCESS
}

unsafe extern "efiapi" fn connection_data(
    connector: *mut NDK_CONNECTOR,
    inbound: *mut u32,
    outbound: *mut u32,
    into: *mut c_void,
    length: *mut u32,
) -> NTSTATUS {
    let world = world(connector);
    let state = world.lock();
    let data = &state.connectors[&(connector as usize)].data;
    for limit in [inbound, outbound] {
        // SAFETY: the consumer asks for both limits.
        unsafe { limit.write(16) };
    }
    if !into.is_null() {
        // SAFETY: the consumer asked for the size before.
        unsafe { ptr::copy_nonoverlapping(data.as_ptr(), into.cast(), data.len()) };
    }
    // SAFETY: the consumer passes a length.
    unsafe { length.write(data.len() as u32) };
    STATUS_SUCCESS
}

unsafe extern "efiapi" fn local_address(
    connector: *mut NDK_CONNECTOR,
    into: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let world = world(connector);
    let address = world.lock().connectors[&(connector as usize)].local;
    put_address(address, into, length)
}

unsafe extern "efiapi" fn disconnect(
    connector: *mut NDK_CONNECTOR,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let (world, key) = (world(connector), connector as usize);
    let mut state = world.lock();
    let mut connector = state.connectors.remove(&key).unwrap();
    connector.connected = false;
    leave(&world, &mut state, &connector);
    world.flush(&mut state, connector.qp);
    connector.peer = 0;
    state.connectors.insert(key, connector);
    drop(state);
    world.request(completion, context)
}

unsafe extern "efiapi" fn create_listener(
    adapter: *mut NDK_ADAPTER,
    event: Option<NDK_FN_CONNECT_EVENT_CALLBACK>,
    event_context: *mut c_void,
    completion: Option<NDK_FN_CREATE_COMPLETION>,
    context: *mut c_void,
    into: *mut *mut NDK_LISTENER,
) -> NTSTATUS {
    let kind = header(NDK_OBJECT_TYPE::NdkObjectTypeListener);
    let ndk = NDK_LISTENER { Header: kind, Dispatch: &raw const LISTENER };
    let event = (event.unwrap(), event_context as usize);
    world(adapter).create(ndk, completion, context, into, |state, key| {
        state.listeners.insert(key, Listener { address: None, paused: false, event });
    })
}

unsafe extern "efiapi" fn listen(
    listener: *mut NDK_LISTENER,
    address: *const SOCKADDR,
    _: u32,
    completion: Option<NDK_FN_REQUEST_COMPLETION>,
    context: *mut c_void,
) -> NTSTATUS {
    let world = world(listener);
    let mut address = ipv4(address);
    if address.port() == 0 {
        address.set_port(49152);
    }
    world.lock().listeners.get_mut(&(listener as usize)).unwrap().address = Some(address);
    world.request(completion, context)
}

unsafe extern "efiapi" fn listener_address(
    listener: *mut NDK_LISTENER,
    into: *mut SOCKADDR,
    length: *mut u32,
) -> NTSTATUS {
    let world = world(listener);
    let address = world.lock().listeners[&(listener as usize)].address;
    put_address(address, into, length)
}

unsafe extern "efiapi" fn control_events(listener: *mut NDK_LISTENER, pause: BOOLEAN) {
    let world = world(listener);
    world.lock().listeners.get_mut(&(listener as usize)).unwrap().paused = pause != 0;
}

static ADAPTER: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: Some(query_extension),
    NdkQueryAdapterInfo: Some(query_adapter_info),
    NdkCreateCq: Some(create_cq),
    NdkCreatePd: Some(create_pd),
    NdkCreateConnector: Some(create_connector),
    NdkCreateListener: Some(create_listener),
    ..NDK_ADAPTER_DISPATCH::zeroed()
};
static CQ: NDK_CQ_DISPATCH = NDK_CQ_DISPATCH {
    NdkCloseCq: Some(close::<NDK_CQ>),
    NdkArmCq: Some(arm_cq),
    NdkGetCqResultsEx: Some(get_results),
    ..NDK_CQ_DISPATCH::zeroed()
};
static PD: NDK_PD_DISPATCH = NDK_PD_DISPATCH {
    NdkClosePd: Some(close::<NDK_PD>),
    NdkCreateMr: Some(create_mr),
    NdkCreateQp: Some(create_qp),
    ..NDK_PD_DISPATCH::zeroed()
};
static MR: NDK_MR_DISPATCH = NDK_MR_DISPATCH {
    NdkCloseMr: Some(close::<NDK_MR>),
    NdkRegisterMr: Some(register),
    NdkDeregisterMr: Some(deregister),
    NdkGetLocalTokenFromMr: Some(token),
    NdkGetRemoteTokenFromMr: Some(token),
    ..NDK_MR_DISPATCH::zeroed()
};
static QP: NDK_QP_DISPATCH = NDK_QP_DISPATCH {
    NdkCloseQp: Some(close::<NDK_QP>),
    NdkFlush: Some(flush),
    NdkSend: Some(send),
    NdkReceive: Some(receive),
    NdkRead: Some(read),
    NdkWrite: Some(write),
    ..NDK_QP_DISPATCH::zeroed()
};
static CONNECTOR: NDK_CONNECTOR_DISPATCH = NDK_CONNECTOR_DISPATCH {
    NdkCloseConnector: Some(close::<NDK_CONNECTOR>),
    NdkConnect: Some(connect),
    NdkAccept: Some(accept),
    NdkCompleteConnect: Some(complete_connect),
    NdkReject: Some(reject),
    NdkGetConnectionData: Some(connection_data),
    NdkGetLocalAddress: Some(local_address),
    NdkDisconnect: Some(disconnect),
    ..NDK_CONNECTOR_DISPATCH::zeroed()
};
static LISTENER: NDK_LISTENER_DISPATCH = NDK_LISTENER_DISPATCH {
    NdkCloseListener: Some(close::<NDK_LISTENER>),
    NdkListen: Some(listen),
    NdkGetLocalAddress: Some(listener_address),
    NdkControlConnectEvents: Some(control_events),
    ..NDK_LISTENER_DISPATCH::zeroed()
};

/// The address tests listen at.
pub fn address() -> SocketAddr {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 0).into()
}
