// SPDX-License-Identifier: MIT OR Apache-2.0

//! A loopback provider: adapters of one process that transfer data by copying memory.
//!
//! Implements the part of NDKPI that the consumer needs. Creates and requests complete inline or pend, callbacks run one after
//! another on a separate thread, and the link can be made to fail.
#![allow(unsafe_code, reason = "opens a provider and calls it through pointers")]

mod connections;
mod transfers;

use core::ffi::c_void;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::ptr::NonNull;
use std::collections::{HashMap, VecDeque};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;

use ndk_abi::ndk::*;
use ndk_abi::nt::*;

use connections::{create_connector, create_listener};
use transfers::{create_cq, create_pd, scatter};

type Callback = Box<dyn FnOnce() + Send>;

/// Adapters and the link between them.
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
    /// Number of open objects.
    objects: i64,
    next_token: u32,
    /// The link has failed.
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
    /// Private data of the peer.
    data: Vec<u8>,
    /// The pending connect or accept.
    request: Option<(NDK_FN_REQUEST_COMPLETION, usize)>,
    disconnect: Option<(NDK_FN_DISCONNECT_EVENT_CALLBACK, usize)>,
    local: Option<SocketAddrV4>,
    connected: bool,
}

/// An object: the NDK part comes first.
#[repr(C)]
struct Object<T> {
    ndk: T,
    world: Arc<World>,
}

impl Loopback {
    /// Creates a provider. With `pend`, every call that may pend does.
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

    /// Lets every later request fail, as if the peer had vanished.
    pub fn cut(&self) {
        self.world.lock().broken = true;
    }

    /// Returns the number of open objects.
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

    /// Waits for pending callbacks: none may arrive after a close that completes inline. Must not be called by a callback.
    fn quiet(&self) {
        let (done, wait) = channel();
        self.later(move || done.send(()).unwrap());
        wait.recv().unwrap();
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
        world.quiet();
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

static ADAPTER: NDK_ADAPTER_DISPATCH = NDK_ADAPTER_DISPATCH {
    NdkQueryExtension: Some(query_extension),
    NdkQueryAdapterInfo: Some(query_adapter_info),
    NdkCreateCq: Some(create_cq),
    NdkCreatePd: Some(create_pd),
    NdkCreateConnector: Some(create_connector),
    NdkCreateListener: Some(create_listener),
    ..NDK_ADAPTER_DISPATCH::zeroed()
};
/// The address tests listen at.
pub fn address() -> SocketAddr {
    SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 0).into()
}
