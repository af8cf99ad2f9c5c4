// SPDX-License-Identifier: MIT OR Apache-2.0

//! The objects that consumers have open below each NDK adapter.
//!
//! As NDIS may, it stands between consumer and provider: while it is switched on for a host, the dispatch tables of new
//! objects are replaced by copies in which creating and closing lead here. Other functions are the provider's own.
//= R-OPEN-20

use std::{
    collections::BTreeMap,
    mem::transmute,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use ndk_abi::{
    ndk::{
        NDK_ADAPTER_DISPATCH, NDK_CONNECTOR_DISPATCH, NDK_CQ_DISPATCH, NDK_LISTENER_DISPATCH,
        NDK_MR_DISPATCH, NDK_MW_DISPATCH, NDK_OBJECT_HEADER, NDK_OBJECT_TYPE, NDK_PD_DISPATCH,
        NDK_QP_DISPATCH, NDK_SHARED_ENDPOINT_DISPATCH, NDK_SRQ_DISPATCH,
    },
    nt::{STATUS_PENDING, STATUS_SUCCESS},
};
use nt_sim::{
    BugCheck, Host, current,
    guest::Guest,
    image::{EntryPoints, call},
    imports,
    services::Slot,
    violation,
};
use parking_lot::Mutex;

/// The NDK objects of a host.
pub(crate) static NDK_OBJECTS: Slot<NdkObjects> = Slot::new();

/// Offset of `Dispatch` in every object.
const DISPATCH: usize = size_of::<NDK_OBJECT_HEADER>();
/// Largest number of parameters of a function that creates an object.
const PARAMETERS: usize = 12;

/// A function that creates an object: name, index in the parent's dispatch table, position of its completion callback.
/// The completion's context and the place for the object follow it.
struct Create {
    name: &'static str,
    index: usize,
    completion: usize,
}

/// The NDK objects of a host.
pub(crate) struct NdkObjects {
    enabled: AtomicBool,
    functions: EntryPoints,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Open objects by address, NDK adapters included.
    objects: BTreeMap<usize, Object>,
    /// Copies of the provider's dispatch tables, by address of the original.
    tables: BTreeMap<usize, Box<[usize]>>,
    /// Callbacks that lead to a consumer's, by the context that the provider has.
    callbacks: BTreeMap<usize, Callback>,
}

#[derive(Clone, Copy)]
struct Object {
    /// The NDK adapter that it belongs to.
    adapter: usize,
    kind: NDK_OBJECT_TYPE,
    /// The provider's dispatch table.
    table: usize,
}

/// A consumer's callback and its context.
#[derive(Clone, Copy)]
struct Callback {
    adapter: usize,
    function: usize,
    context: usize,
}

fn name(kind: NDK_OBJECT_TYPE) -> &'static str {
    match kind {
        NDK_OBJECT_TYPE::NdkObjectTypeCq => "CQ",
        NDK_OBJECT_TYPE::NdkObjectTypePd => "PD",
        NDK_OBJECT_TYPE::NdkObjectTypeMr => "MR",
        NDK_OBJECT_TYPE::NdkObjectTypeMw => "MW",
        NDK_OBJECT_TYPE::NdkObjectTypeSrq => "SRQ",
        NDK_OBJECT_TYPE::NdkObjectTypeQp => "QP",
        NDK_OBJECT_TYPE::NdkObjectTypeConnector => "connector",
        NDK_OBJECT_TYPE::NdkObjectTypeListener => "listener",
        NDK_OBJECT_TYPE::NdkObjectTypeSharedEndpoint => "shared endpoint",
        _ => "object",
    }
}

/// Returns the size of the dispatch table of a type of object, and the functions in it that lead here, by index.
fn table_of(kind: NDK_OBJECT_TYPE) -> (usize, &'static [(usize, &'static str)]) {
    const CLOSE: &[(usize, &str)] = &[(0, "NdkCloseObject")];
    match kind {
        NDK_OBJECT_TYPE::NdkObjectTypeAdapter => (
            size_of::<NDK_ADAPTER_DISPATCH>(),
            &[
                (2, "NdkCreateCq"),
                (3, "NdkCreatePd"),
                (4, "NdkCreateSharedEndpoint"),
                (5, "NdkCreateConnector"),
                (6, "NdkCreateListener"),
            ],
        ),
        NDK_OBJECT_TYPE::NdkObjectTypePd => (
            size_of::<NDK_PD_DISPATCH>(),
            &[
                (0, "NdkCloseObject"),
                (2, "NdkCreateMr"),
                (3, "NdkCreateMw"),
                (4, "NdkCreateSrq"),
                (5, "NdkCreateQp"),
                (6, "NdkCreateQpWithSrq"),
            ],
        ),
        NDK_OBJECT_TYPE::NdkObjectTypeCq => (size_of::<NDK_CQ_DISPATCH>(), CLOSE),
        NDK_OBJECT_TYPE::NdkObjectTypeMr => (size_of::<NDK_MR_DISPATCH>(), CLOSE),
        NDK_OBJECT_TYPE::NdkObjectTypeMw => (size_of::<NDK_MW_DISPATCH>(), CLOSE),
        NDK_OBJECT_TYPE::NdkObjectTypeSrq => (size_of::<NDK_SRQ_DISPATCH>(), CLOSE),
        NDK_OBJECT_TYPE::NdkObjectTypeQp => (size_of::<NDK_QP_DISPATCH>(), CLOSE),
        NDK_OBJECT_TYPE::NdkObjectTypeConnector => (size_of::<NDK_CONNECTOR_DISPATCH>(), CLOSE),
        NDK_OBJECT_TYPE::NdkObjectTypeListener => (size_of::<NDK_LISTENER_DISPATCH>(), CLOSE),
        NDK_OBJECT_TYPE::NdkObjectTypeSharedEndpoint => (size_of::<NDK_SHARED_ENDPOINT_DISPATCH>(), CLOSE),
        _ => (0, &[]),
    }
}

#[cold]
fn misuse(text: String) -> ! {
    violation(BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION, text)
}

impl NdkObjects {
    /// # Panics
    /// When the machine has no memory.
    pub fn new() -> Self {
        Self {
            enabled: AtomicBool::new(false),
            functions: EntryPoints::new(FUNCTIONS).expect("memory for code"),
            state: Mutex::default(),
        }
    }

    /// Switches the accounting on for NDK adapters that are opened from now on.
    pub fn enable(&self) {
        self.enabled.store(true, SeqCst);
    }

    /// Begins to account for an NDK adapter.
    pub fn opened(&self, adapter: usize) {
        if self.enabled.load(SeqCst) {
            self.adopt(adapter, adapter);
        }
    }

    /// Ends the accounting for an NDK adapter, which is closed.
    pub fn closed(&self, adapter: usize) {
        let mut state = self.state.lock();
        state.objects.retain(|_, object| object.adapter != adapter);
        state.callbacks.retain(|_, callback| callback.adapter != adapter);
    }

    /// Returns the types of the objects open below an NDK adapter, in the order of their numbers.
    pub fn open_below(&self, adapter: usize) -> Vec<&'static str> {
        let state = self.state.lock();
        let below = state
            .objects
            .iter()
            .filter(|&(&address, object)| object.adapter == adapter && address != adapter);
        let mut kinds: Vec<_> = below.map(|(_, object)| object.kind.0).collect();
        kinds.sort_unstable();
        kinds.into_iter().map(|kind| name(NDK_OBJECT_TYPE(kind))).collect()
    }

    /// Records a new object and gives it a dispatch table that leads here.
    fn adopt(&self, adapter: usize, address: usize) {
        let object = Guest::<NDK_OBJECT_HEADER>::from_address(address);
        let kind = object.read().ObjectType;
        let dispatch = object.field::<usize>(DISPATCH);
        let table = dispatch.read();
        let (size, replaced) = table_of(kind);
        if size == 0 {
            return;
        }
        let mut copy = vec![0; size / size_of::<usize>()];
        for (index, entry) in copy.iter_mut().enumerate() {
            *entry = Guest::<usize>::from_address(table).add(index).read();
        }
        for &(index, function) in replaced {
            copy[index] = self.functions.address(function);
        }
        let mut state = self.state.lock();
        let copy = state.tables.entry(table).or_insert_with(|| copy.into_boxed_slice());
        let copy = copy.as_ptr().expose_provenance();
        state.objects.insert(address, Object { adapter, kind, table });
        drop(state);
        dispatch.write(copy);
    }

    fn object(&self, what: &str, address: usize) -> Object {
        let found = self.state.lock().objects.get(&address).copied();
        found.unwrap_or_else(|| misuse(format!("{what}: {address:#x} is not an open NDK object")))
    }

    /// Returns a context for a callback of the provider that leads to a consumer's.
    fn add_callback(&self, host: &Host, callback: Callback) -> usize {
        let context = host.new_handle();
        self.state.lock().callbacks.insert(context, callback);
        context
    }

    fn take_callback(&self, context: usize) -> Option<Callback> {
        self.state.lock().callbacks.remove(&context)
    }
}

/// Calls the provider's function, which takes up to [`PARAMETERS`] parameters: the caller removes them from the stack.
fn call_provider(name: &str, function: usize, p: [usize; PARAMETERS]) -> i32 {
    type Function = unsafe extern "efiapi" fn(
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
        usize,
    ) -> i32;
    // SAFETY: an entry of the provider's dispatch table, all of which take integers and addresses.
    let function: Function = unsafe { transmute(function) };
    // SAFETY: the consumer's arguments; the convention ignores superfluous ones.
    call(name, || unsafe {
        function(p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11])
    })
}

fn create<const N: usize>(what: &Create, parameters: [usize; N]) -> i32 {
    const LISTENER_EVENT: usize = 1;
    let host = current().host().clone();
    let objects = host.state(&NDK_OBJECTS);
    let parent = objects.object(what.name, parameters[0]);
    let adapter = parent.adapter;
    let mut passed = [0; PARAMETERS];
    passed[..N].copy_from_slice(&parameters);
    let mut redirect = |at: usize, to: &str| {
        let callback = Callback { adapter, function: passed[at], context: passed[at + 1] };
        (callback.function != 0).then(|| {
            let context = objects.add_callback(&host, callback);
            (passed[at], passed[at + 1]) = (objects.functions.address(to), context);
            context
        })
    };
    let completion = redirect(what.completion, "NdkCreateCompletion");
    if what.name == "NdkCreateListener" {
        redirect(LISTENER_EVENT, "NdkConnectEvent");
    }
    let function = Guest::<usize>::from_address(parent.table).add(what.index).read();
    let status = call_provider(what.name, function, passed);
    if status != STATUS_PENDING {
        if let Some(context) = completion {
            let _ = objects.take_callback(context);
        }
        if status == STATUS_SUCCESS {
            let created = Guest::<usize>::from_address(parameters[what.completion + 2]).read();
            objects.adopt(adapter, created);
        }
    }
    status
}

imports! { FUNCTIONS: "ndk" =>
    /// `NdkCreateCq`.
    [<= DISPATCH_LEVEL]
    fn NdkCreateCq(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize) -> i32 {
        create(&Create { name: "NdkCreateCq", index: 2, completion: 5 }, [a, b, c, d, e, f, g, h])
    }

    /// `NdkCreatePd`.
    [<= DISPATCH_LEVEL]
    fn NdkCreatePd(a: usize, b: usize, c: usize, d: usize) -> i32 {
        create(&Create { name: "NdkCreatePd", index: 3, completion: 1 }, [a, b, c, d])
    }

    /// `NdkCreateSharedEndpoint`.
    [<= DISPATCH_LEVEL]
    fn NdkCreateSharedEndpoint(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i32 {
        create(&Create { name: "NdkCreateSharedEndpoint", index: 4, completion: 3 }, [a, b, c, d, e, f])
    }

    /// `NdkCreateConnector`.
    [<= DISPATCH_LEVEL]
    fn NdkCreateConnector(a: usize, b: usize, c: usize, d: usize) -> i32 {
        create(&Create { name: "NdkCreateConnector", index: 5, completion: 1 }, [a, b, c, d])
    }

    /// `NdkCreateListener`.
    [<= DISPATCH_LEVEL]
    fn NdkCreateListener(a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i32 {
        create(&Create { name: "NdkCreateListener", index: 6, completion: 3 }, [a, b, c, d, e, f])
    }

    /// `NdkCreateMr`.
    [<= DISPATCH_LEVEL]
    fn NdkCreateMr(a: usize, b: usize, c: usize, d: usize, e: usize) -> i32 {
        create(&Create { name: "NdkCreateMr", index: 2, completion: 2 }, [a, b, c, d, e])
    }

    /// `NdkCreateMw`.
    [<= DISPATCH_LEVEL]
    fn NdkCreateMw(a: usize, b: usize, c: usize, d: usize) -> i32 {
        create(&Create { name: "NdkCreateMw", index: 3, completion: 1 }, [a, b, c, d])
    }

    /// `NdkCreateSrq`.
    [<= DISPATCH_LEVEL]
    fn NdkCreateSrq(
        a: usize, b: usize, c: usize, d: usize, e: usize, f: usize, g: usize, h: usize, i: usize, j: usize,
    ) -> i32 {
        create(&Create { name: "NdkCreateSrq", index: 4, completion: 7 }, [a, b, c, d, e, f, g, h, i, j])
    }

    /// `NdkCreateQp`.
    [<= DISPATCH_LEVEL]
    fn NdkCreateQp(
        a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
        g: usize, h: usize, i: usize, j: usize, k: usize, l: usize,
    ) -> i32 {
        create(&Create { name: "NdkCreateQp", index: 5, completion: 9 }, [a, b, c, d, e, f, g, h, i, j, k, l])
    }

    /// `NdkCreateQpWithSrq`.
    [<= DISPATCH_LEVEL]
    fn NdkCreateQpWithSrq(
        a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
        g: usize, h: usize, i: usize, j: usize, k: usize,
    ) -> i32 {
        create(&Create { name: "NdkCreateQpWithSrq", index: 6, completion: 8 }, [a, b, c, d, e, f, g, h, i, j, k])
    }

    /// Passes the completion of a pended creation to the consumer.
    [<= DISPATCH_LEVEL]
    fn NdkCreateCompletion(context: usize, status: i32, object: usize) {
        let host = current().host().clone();
        let objects = host.state(&NDK_OBJECTS);
        let Some(callback) = objects.take_callback(context) else {
            misuse(format!("the provider called a creation's completion twice, or with context {context:#x}"))
        };
        if status == STATUS_SUCCESS {
            objects.adopt(callback.adapter, object);
        }
        // SAFETY: the consumer's callback, of this type.
        let function: unsafe extern "efiapi" fn(usize, i32, usize) = unsafe { transmute(callback.function) };
        // SAFETY: with the context that the consumer passed.
        call("NdkCreateCompletion", || unsafe { function(callback.context, status, object) });
    }

    /// Passes a connection request and its connector to the consumer.
    [<= DISPATCH_LEVEL]
    fn NdkConnectEvent(context: usize, connector: usize) {
        let host = current().host().clone();
        let objects = host.state(&NDK_OBJECTS);
        let callback = objects.state.lock().callbacks.get(&context).copied();
        let Some(callback) = callback else {
            misuse(format!("the provider called a connect event with context {context:#x}"))
        };
        objects.adopt(callback.adapter, connector);
        // SAFETY: the consumer's callback, of this type.
        let function: unsafe extern "efiapi" fn(usize, usize) = unsafe { transmute(callback.function) };
        // SAFETY: with the context that the consumer passed.
        call("NdkConnectEventCallback", || unsafe { function(callback.context, connector) });
    }

    /// Closes an object of any type. It is no longer accounted for, also while the close pends.
    [<= DISPATCH_LEVEL]
    fn NdkCloseObject(object: usize, completion: usize, context: usize) -> i32 {
        let host = current().host().clone();
        let objects = host.state(&NDK_OBJECTS);
        // Before the call: the provider may give its memory to another object.
        let closed = objects.state.lock().objects.remove(&object);
        let Some(closed) = closed else {
            misuse(format!("an NDK object was closed twice, or {object:#x} is none"))
        };
        let close: usize = Guest::<usize>::from_address(closed.table).read();
        let mut passed = [0; PARAMETERS];
        passed[..3].copy_from_slice(&[object, completion, context]);
        let status = call_provider("NdkCloseObject", close, passed);
        if status != STATUS_SUCCESS && status != STATUS_PENDING {
            objects.state.lock().objects.insert(object, closed);
        }
        status
    }
}
