// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sending and receiving frames through the miniport and the filter modules above it. (windows-packaging §8.4; WDK: "Filter Module Send
//! and Receive Operations")

use std::{collections::BTreeMap, sync::Arc};

use ndk_abi::ndis::{
    NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NDIS_RECEIVE_FLAGS_RESOURCES, NDIS_RETURN_FLAGS_DISPATCH_LEVEL,
    NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL, NDIS_SEND_FLAGS_DISPATCH_LEVEL, NDIS_STATUS,
    NDIS_STATUS_ADAPTER_REMOVED, NDIS_STATUS_PAUSED, NDIS_STATUS_RESOURCES,
    NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO as LargeSend, NET_BUFFER_LIST,
};
use nt_sim::{Host, Irql, current, guest::Guest, image::call, imports};

use crate::{
    adapter::{Adapter, AdapterState, adapter},
    filter_module::{self, FilterModule, Handler},
    in_flight::{Held, MAX_RECEIVED, SendId, Sending},
    list_fields::{
        CANCEL_ID, CHECKSUM, HASH_VALUE, INFO, INFO_LEN, LARGE_SEND, PRIORITY_VLAN, SOURCE, STALE_INFO,
        STATUS, UDP_SEGMENTATION, chain, link,
    },
    nbl::{self, StackList},
    offload::SendRequest,
    protocol::PROTOCOLS,
    receive_checks::{check_frames, check_indicated, frame_of},
    rules::{self, broken, require},
    sg_list,
    wait::{OnExit, wait_until},
};

/// Checks that flags that say `DISPATCH_LEVEL` are true.
pub(crate) fn check_level(what: &str, flags: u32, at_dispatch: u32) {
    let claimed = flags & at_dispatch != 0;
    let actual = current().irql() == Irql::DISPATCH_LEVEL;
    require(!claimed || actual, rules::COUNTED, || {
        format!("{what}: the flags say DISPATCH_LEVEL, but it was called at {}", current().irql())
    });
}

impl Adapter {
    /// Passes frames to the miniport in one chain, one list each; keeps their status. None is passed when resources run low. On a
    /// thread of the host.
    pub(crate) fn send(
        &self,
        host: &Host,
        frames: &[(Vec<u8>, SendRequest)],
        cancel_id: usize,
    ) -> Vec<SendId> {
        let ids: Vec<_> = frames.iter().map(|_| self.data_path.state.lock().next_send()).collect();
        let mut lists = Vec::new();
        for (frame, request) in frames {
            let Some(list) = StackList::new(host, frame, request.mdl_len) else {
                for list in lists {
                    StackList::free(list, host);
                }
                self.fail(&ids, NDIS_STATUS_RESOURCES);
                return ids;
            };
            lists.push(list);
        }
        for list in &lists {
            list.list.field::<usize>(CANCEL_ID).write(cancel_id);
        }
        let sent = self.while_bound(
            |_| true,
            || {
                let requests = frames.iter().map(|&(_, request)| request);
                let sends = lists.into_iter().zip(ids.iter().copied().map(Some)).zip(requests);
                self.submit(host, sends.map(|((list, id), request)| Sending { list, id, request }));
            },
        );
        if !sent {
            // NDIS removed the adapter: a protocol driver has no binding to it.
            self.fail(&ids, NDIS_STATUS_ADAPTER_REMOVED);
        }
        ids
    }

    /// Passes frames to the miniport in one list, each behind `offset` bytes of its MDLs. As [`Adapter::send`] otherwise.
    pub(crate) fn send_list(&self, host: &Host, frames: &[&[u8]], mdl_len: usize, offset: usize) -> SendId {
        let id = self.data_path.state.lock().next_send();
        let request = SendRequest::default();
        let Some(list) = StackList::with_offset(host, frames, mdl_len, offset) else {
            self.fail(&[id], NDIS_STATUS_RESOURCES);
            return id;
        };
        let submit = || self.submit(host, [Sending { list, id: Some(id), request }]);
        if !self.while_bound(|_| true, submit) {
            self.fail(&[id], NDIS_STATUS_ADAPTER_REMOVED);
        }
        id
    }

    /// Completes sends that the miniport does not get.
    fn fail(&self, ids: &[SendId], status: NDIS_STATUS) {
        self.data_path.state.lock().statuses.extend(ids.iter().map(|&id| (id, status)));
    }

    /// Cancels the sends with `cancel_id` that are still waiting. Does nothing if the adapter is being halted. On a thread of the host.
    pub(crate) fn cancel_sends(&self, cancel_id: usize) {
        let _ = self.while_bound(|_| true, || cancel_below(self, self.filters().len() + 1, cancel_id));
    }

    /// Sends a frame without waiting, if the adapter runs. On a thread of the host, IRQL <= `DISPATCH_LEVEL`.
    pub(crate) fn transmit(&self, host: &Host, frame: &[u8]) {
        self.while_running(|| {
            let request = SendRequest::default();
            self.submit(host, StackList::new(host, frame, 0).map(|list| Sending { list, id: None, request }));
        });
    }

    /// Runs `body` if the adapter runs; the adapter is not halted meanwhile.
    pub(crate) fn while_running(&self, body: impl FnOnce()) {
        let _ = self.while_bound(|state| state == AdapterState::Running, body);
    }

    /// Runs `body` if the state is as wanted and the adapter is not being halted; it is not halted meanwhile.
    fn while_bound(&self, wanted: impl FnOnce(AdapterState) -> bool, body: impl FnOnce()) -> bool {
        {
            let mut state = self.data_path.state.lock();
            if state.closed || !wanted(self.state()) {
                return false;
            }
            state.bound += 1;
        }
        let _end = OnExit(|| self.data_path.state.lock().bound -= 1);
        body();
        true
    }

    /// Ends the bindings of protocol drivers, before the adapter is halted.
    pub(crate) fn unbind(&self) {
        {
            let mut state = self.data_path.state.lock();
            state.closed = true;
            state.on_received = None;
        }
        self.await_bound();
    }

    /// Waits until no thread is inside [`Adapter::while_running`]. The adapter must not be running.
    pub(crate) fn await_bound(&self) {
        wait_until(|| self.data_path.state.lock().bound == 0);
    }

    /// Passes lists of the stack down in one chain.
    fn submit(&self, host: &Host, sends: impl IntoIterator<Item = Sending>) {
        let mut lists = Vec::new();
        for send in sends {
            let this = send.list.list;
            this.field::<usize>(SOURCE).write(self.binding);
            this.field::<usize>(CHECKSUM).write(send.request.checksum as usize);
            this.field::<usize>(LARGE_SEND).write(send.request.large_send as usize);
            this.field::<usize>(PRIORITY_VLAN).write(send.request.priority_vlan as usize);
            this.field::<usize>(UDP_SEGMENTATION).write(send.request.udp_segmentation as usize);
            this.field::<usize>(HASH_VALUE).write(send.request.hash as usize);
            send.list.lengthen(send.request.missing);
            if send.request.is_empty {
                send.list.remove_buffers();
            }
            self.data_path.state.lock().sending.insert(this.address(), send);
            lists.push(this);
        }
        let at_dispatch = current().irql() == Irql::DISPATCH_LEVEL;
        let flags = if at_dispatch { NDIS_SEND_FLAGS_DISPATCH_LEVEL } else { 0 };
        pass_down(self, host, self.filters().len() + 1, &lists, flags);
    }

    /// Returns the status of a send once it is completed.
    pub(crate) fn send_status(&self, id: SendId) -> Option<NDIS_STATUS> {
        self.data_path.state.lock().statuses.remove(&id)
    }

    /// Takes the lists of sends back from the miniport.
    pub(crate) fn complete_sends(&self, host: &Host, lists: &[Guest<NET_BUFFER_LIST>], flags: u32) {
        complete_from(self, host, 0, lists, flags);
    }

    /// Checks received lists of the miniport and passes them up. `what` names the function that indicates them.
    pub(crate) fn indicate(
        self: &Arc<Self>,
        host: &Arc<Host>,
        what: &str,
        lists: &[Guest<NET_BUFFER_LIST>],
        flags: u32,
    ) {
        self.require_state(what, &[AdapterState::Running, AdapterState::Pausing]);
        for &list in lists {
            check_indicated(self, host, list);
        }
        for &list in lists {
            check_frames(self, host, list);
            if flags & NDIS_RECEIVE_FLAGS_RESOURCES == 0 {
                let is_new = self.data_path.state.lock().lent.insert(list.address());
                host.state(&nbl::LENT).lock().insert(list.address());
                require(is_new, rules::OWNED, || {
                    "a NET_BUFFER_LIST was indicated that the stack has not returned yet".into()
                });
            }
        }
        pass_up(self, host, 0, lists, flags);
    }

    /// Makes the stack keep received lists from now on, or return those it kept.
    pub(crate) fn keep_received(self: &Arc<Self>, host: &Arc<Host>, keep: bool) {
        let kept = {
            let mut state = self.data_path.state.lock();
            state.keeps_received = keep;
            if keep { Vec::new() } else { std::mem::take(&mut state.kept) }
        };
        if !kept.is_empty() {
            let (this, on) = (self.clone(), host.clone());
            let lists: Vec<_> = kept.into_iter().map(Guest::from_address).collect();
            host.queue_dpc(current().cpu(), move || return_lists(&this, &on, &lists));
        }
    }
}

/// Passes the cancellation of sends to the driver below the place `from`.
pub(crate) fn cancel_below(adapter: &Adapter, from: usize, cancel_id: usize) {
    let id = std::ptr::without_provenance_mut(cancel_id);
    let filters = adapter.filters();
    let modules = filters[..from - 1].iter().rev();
    if let Some(module) = modules.into_iter().find(|module| module.driver.has(Handler::CancelSend)) {
        let _ = module.while_unpaused(|| {
            // SAFETY: the type of the handler.
            let handler: filter_module::Cancel = unsafe { module.driver.handler(Handler::CancelSend) };
            call(Handler::CancelSend.name(), || {
                // SAFETY: the filter driver registered the function under this contract; the ID is a value, not an address.
                unsafe { handler(module.context() as *mut _, id) }
            });
        });
        return;
    }
    let Some(handler) = adapter.driver.characteristics.CancelSendHandler else { return };
    call("MiniportCancelSend", || {
        // SAFETY: the image registered the function under this contract; the ID is a value, not an address.
        unsafe { handler(adapter.context() as *mut _, id) }
    });
}

/// Passes sent lists to the driver below the place `from`: a filter module, or the miniport. Those for a module that is paused are
/// completed.
pub(crate) fn pass_down(
    adapter: &Adapter,
    host: &Host,
    from: usize,
    lists: &[Guest<NET_BUFFER_LIST>],
    flags: u32,
) {
    if lists.is_empty() {
        return;
    }
    let filters = adapter.filters();
    let below = (1..from).rev().find(|&place| filters[place - 1].driver.has(Handler::Send));
    let place = below.unwrap_or(0);
    for list in lists {
        let source = list.field::<usize>(SOURCE).read();
        let held = Held { place, source, keeps: true };
        adapter.data_path.state.lock().below.insert(list.address(), held);
    }
    let first = link(lists);
    let Some(module) = below.map(|place| &filters[place - 1]) else {
        let Some(handler) = adapter.driver.characteristics.SendNetBufferListsHandler else { return };
        call("MiniportSendNetBufferLists", || {
            // SAFETY: the image registered the function under this contract; the list is its until completed.
            unsafe { handler(adapter.context() as *mut _, first.as_ptr(), 0, flags) }
        });
        return;
    };
    let passed = module.while_unpaused(|| {
        // SAFETY: the type of the handler.
        let handler: filter_module::Send = unsafe { module.driver.handler(Handler::Send) };
        call(Handler::Send.name(), || {
            // SAFETY: the filter driver registered the function under this contract; the lists are its own until completed.
            unsafe { handler(module.context() as *mut _, first.as_ptr(), 0, flags) }
        });
    });
    if !passed {
        for list in lists {
            list.field::<NDIS_STATUS>(STATUS).write(NDIS_STATUS_PAUSED);
        }
        complete_from(adapter, host, place, lists, 0);
    }
}

/// Completes a send of the stack.
fn complete(adapter: &Adapter, host: &Host, list: Guest<NET_BUFFER_LIST>, flags: u32) {
    let status = list.field::<NDIS_STATUS>(STATUS).read();
    let sent = {
        let mut state = adapter.data_path.state.lock();
        state.flagged_completions += u64::from(flags & NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL != 0);
        let sent = state.sending.remove(&list.address());
        if let Some(id) = sent.as_ref().and_then(|sent| sent.id) {
            state.statuses.insert(id, status);
        }
        sent
    };
    let sent = sent.expect("a list without another maker is one that the stack has sent");
    if sent.request.large_send != 0 {
        // The type remains; of version 1 no bytes were sent, of version 2 the rest is reserved.
        let (result, expected) =
            (list.field::<usize>(LARGE_SEND).read(), sent.request.large_send & LargeSend::TYPE_V2);
        require(result == expected as usize, rules::LARGE_SEND, || {
            format!("TcpLargeSendNetBufferListInfo of a completed list is {result:#x}, not {expected:#x}")
        });
    }
    sent.list.free(host);
    adapter.data_path.changed.set();
}

/// The driver that gets a list back next.
#[derive(Clone, Copy)]
struct Next {
    place: usize,
    /// It has made the list.
    is_maker: bool,
}

impl Next {
    /// Returns the first module of `places` that has made a list of `source`, or handles lists of others; if there is none, the driver at
    /// `end`, which has made it.
    fn of(
        filters: &[Arc<FilterModule>],
        mut places: impl Iterator<Item = usize>,
        end: usize,
        (source, handler): (usize, Handler),
    ) -> Self {
        let makes = |place: usize| filters[place - 1].handle == source;
        let found = places.find(|&place| makes(place) || filters[place - 1].driver.has(handler));
        Self { place: found.unwrap_or(end), is_maker: found.is_none_or(makes) }
    }

    /// Records that it has the list.
    fn record(self, held: &mut BTreeMap<usize, Held>, list: Guest<NET_BUFFER_LIST>) {
        if self.is_maker {
            held.remove(&list.address());
        } else if let Some(held) = held.get_mut(&list.address()) {
            held.place = self.place;
        }
    }
}

/// Takes a sent list back from the driver at `place`. Returns the place of the driver that gets it next: the one that has made the list,
/// or a filter module that lets lists pass.
fn take_back(adapter: &Adapter, host: &Host, place: usize, list: Guest<NET_BUFFER_LIST>) -> usize {
    let held = adapter.data_path.state.lock().below.get(&list.address()).copied();
    let Some(held) = held.filter(|held| held.place == place) else {
        let [function, driver] = match place {
            0 => ["NdisMSendNetBufferListsComplete", "miniport"],
            _ => ["NdisFSendNetBufferListsComplete", "filter module"],
        };
        broken(rules::OWNED, format!("{function} of {:#x}, which the {driver} does not hold", list.address()))
    };
    require(
        place != 0 || !nbl::buffers(list).any(|buffer| sg_list::is_mapped(host, buffer.address())),
        rules::SG_LIST,
        || {
            "a send was completed whose scatter/gather list is not freed: the device may still read its data"
                .into()
        },
    );
    let source = list.field::<usize>(SOURCE).read();
    require(source == held.source, rules::SOURCE, || {
        let driver = if place == 0 { "miniport" } else { "filter module" };
        format!("the {driver} changed the SourceHandle of a sent NET_BUFFER_LIST to {source:#x}")
    });
    let filters = adapter.filters();
    let stack = filters.len() + 1;
    let next = Next::of(&filters, place + 1..stack, stack, (source, Handler::SendComplete));
    next.record(&mut adapter.data_path.state.lock().below, list);
    next.place
}

/// Completes sent lists that the driver at `place` has.
pub(crate) fn complete_from(
    adapter: &Adapter,
    host: &Host,
    place: usize,
    lists: &[Guest<NET_BUFFER_LIST>],
    flags: u32,
) {
    let filters = adapter.filters();
    for (next, lists) in runs(lists, |list| take_back(adapter, host, place, list)) {
        let Some(module) = filters.get(next - 1) else {
            for list in lists {
                complete(adapter, host, list, flags);
            }
            continue;
        };
        give_to(module, Handler::SendComplete, &lists, flags);
    }
}

/// Passes received lists to the driver above the place `from`: a filter module, or the stack. Those for a module that is paused are
/// given back.
pub(crate) fn pass_up(
    adapter: &Arc<Adapter>,
    host: &Arc<Host>,
    from: usize,
    lists: &[Guest<NET_BUFFER_LIST>],
    flags: u32,
) {
    if lists.is_empty() {
        return;
    }
    let filters = adapter.filters();
    let above = (from + 1..=filters.len()).find(|&place| filters[place - 1].driver.has(Handler::Receive));
    let place = above.unwrap_or(filters.len() + 1);
    let keeps = flags & NDIS_RECEIVE_FLAGS_RESOURCES == 0;
    let hold = |list: &Guest<NET_BUFFER_LIST>| {
        let held = Held { place, source: list.field::<usize>(SOURCE).read(), keeps };
        adapter.data_path.state.lock().above.insert(list.address(), held)
    };
    let before: Vec<_> = lists.iter().map(hold).collect();
    let first = link(lists);
    if let Some(module) = above.map(|place| &filters[place - 1]) {
        let passed = module.while_unpaused(|| {
            // SAFETY: the type of the handler.
            let handler: filter_module::Receive = unsafe { module.driver.handler(Handler::Receive) };
            call(Handler::Receive.name(), || {
                let count = lists.len() as u32;
                // SAFETY: the filter driver registered the function under this contract; the flags say how long it may use the lists.
                unsafe { handler(module.context() as *mut _, first.as_ptr(), 0, count, flags) }
            });
        });
        if !passed && keeps {
            give_back(adapter, host, place, lists, 0);
        }
    } else {
        deliver(adapter, host, lists, keeps);
    }
    if !keeps {
        // They are again with the driver that has lent them for the call.
        let mut state = adapter.data_path.state.lock();
        for (list, before) in lists.iter().zip(before) {
            state.above.remove(&list.address());
            state.above.extend(before.map(|held| (list.address(), held)));
        }
    }
}

/// Passes received lists to the stack, which returns them if it `keeps` them.
fn deliver(adapter: &Arc<Adapter>, host: &Arc<Host>, lists: &[Guest<NET_BUFFER_LIST>], keeps: bool) {
    for &list in lists {
        for buffer in nbl::buffers(list) {
            let frame = frame_of(list, buffer);
            for protocol in host.state(&PROTOCOLS) {
                protocol.received(host, adapter, &frame.bytes);
            }
            let handler = adapter.data_path.state.lock().on_received.clone();
            if let Some(handler) = handler {
                handler(&frame.bytes);
            }
            let mut state = adapter.data_path.state.lock();
            if state.received.len() == MAX_RECEIVED {
                state.received.pop_front();
            }
            state.received.push_back(frame);
        }
    }
    adapter.data_path.arrived.set();
    if keeps {
        let mut state = adapter.data_path.state.lock();
        if state.keeps_received {
            state.kept.extend(lists.iter().map(|list| list.address()));
            return;
        }
        let returns_at_once = state.returns_at_once;
        drop(state);
        if returns_at_once {
            return_lists(adapter, host, lists);
            return;
        }
        // The stack returns the lists later, together and in another order.
        let (this, on, lists) = (adapter.clone(), host.clone(), lists.to_vec());
        host.queue_dpc(current().cpu(), move || return_lists(&this, &on, &lists));
    }
}

/// Returns lists that the stack has received, in another order.
fn return_lists(adapter: &Adapter, host: &Host, lists: &[Guest<NET_BUFFER_LIST>]) {
    let at_dispatch = current().irql() == Irql::DISPATCH_LEVEL;
    let flags = if at_dispatch { NDIS_RETURN_FLAGS_DISPATCH_LEVEL } else { 0 };
    let lists: Vec<_> = lists.iter().rev().copied().collect();
    for list in &lists {
        // Drivers above use the list's information, and leave it as it is.
        list.field::<[usize; INFO_LEN]>(INFO).write([STALE_INFO; INFO_LEN]);
    }
    give_back(adapter, host, adapter.filters().len() + 1, &lists, flags);
}

/// Takes a received list back from the driver at `place`. Returns the place of the driver that gets it next.
fn take_received_back(adapter: &Adapter, host: &Host, place: usize, list: Guest<NET_BUFFER_LIST>) -> usize {
    let held = adapter.data_path.state.lock().above.get(&list.address()).copied();
    let Some(held) = held.filter(|held| held.place == place) else {
        broken(
            rules::OWNED,
            format!("a received list {:#x} was returned by a driver that does not hold it", list.address()),
        )
    };
    require(held.keeps, rules::RESOURCES, || {
        format!("{:#x}, which was indicated with NDIS_RECEIVE_FLAGS_RESOURCES, was returned", list.address())
    });
    let next = Next::of(&adapter.filters(), (1..place).rev(), 0, (held.source, Handler::Return));
    let mut state = adapter.data_path.state.lock();
    next.record(&mut state.above, list);
    if next.is_maker {
        state.lent.remove(&list.address());
        host.state(&nbl::LENT).lock().remove(&list.address());
    }
    next.place
}

/// Gives received lists back that the driver at `place` has.
pub(crate) fn give_back(
    adapter: &Adapter,
    host: &Host,
    place: usize,
    lists: &[Guest<NET_BUFFER_LIST>],
    flags: u32,
) {
    let filters = adapter.filters();
    for (next, lists) in runs(lists, |list| take_received_back(adapter, host, place, list)) {
        if let Some(module) = next.checked_sub(1).and_then(|index| filters.get(index)) {
            give_to(module, Handler::Return, &lists, flags);
            continue;
        }
        let Some(handler) = adapter.driver.characteristics.ReturnNetBufferListsHandler else { return };
        let first = link(&lists);
        call("MiniportReturnNetBufferLists", || {
            // SAFETY: the image registered the function under this contract; the lists are its own.
            unsafe { handler(adapter.context() as *mut _, first.as_ptr(), flags) }
        });
    }
}

/// Divides lists where `place` changes, which is called for each.
fn runs(
    lists: &[Guest<NET_BUFFER_LIST>],
    mut place: impl FnMut(Guest<NET_BUFFER_LIST>) -> usize,
) -> Vec<(usize, Vec<Guest<NET_BUFFER_LIST>>)> {
    let mut runs: Vec<(usize, Vec<_>)> = Vec::new();
    for &list in lists {
        let next = place(list);
        match runs.last_mut() {
            Some((last, run)) if *last == next => run.push(list),
            _ => runs.push((next, vec![list])),
        }
    }
    runs
}

/// Gives lists back to a filter module.
fn give_to(module: &FilterModule, handler: Handler, lists: &[Guest<NET_BUFFER_LIST>], flags: u32) {
    let first = link(lists);
    module.entered(|| {
        // SAFETY: the type of both handlers.
        let give_back: filter_module::GiveBack = unsafe { module.driver.handler(handler) };
        call(handler.name(), || {
            // SAFETY: the filter driver registered the function under this contract.
            unsafe { give_back(module.context() as *mut _, first.as_ptr(), flags) }
        });
    });
}

imports! { IMPORTS: "ndis.sys" =>
    /// Completes sends.
    [<= DISPATCH_LEVEL]
    fn NdisMSendNetBufferListsComplete(handle: usize, lists: Guest<NET_BUFFER_LIST>, flags: u32) {
        check_level("NdisMSendNetBufferListsComplete", flags, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL);
        let host = current().host().clone();
        adapter(handle).complete_sends(&host, &chain(lists), flags);
    }

    /// Indicates received lists to the stack.
    [<= DISPATCH_LEVEL]
    fn NdisMIndicateReceiveNetBufferLists(
        handle: usize,
        lists: Guest<NET_BUFFER_LIST>,
        _port: u32,
        count: u32,
        flags: u32,
    ) {
        check_level("NdisMIndicateReceiveNetBufferLists", flags, NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL);
        let adapter = adapter(handle);
        let lists = chain(lists);
        require(lists.len() == count as usize, rules::COUNTED, || format!("NdisMIndicateReceiveNetBufferLists: NumberOfNetBufferLists is {count}, the chain has {}", lists.len()));
        require(adapter.data_path.allows(count), rules::THROTTLE, || {
            "a receive DPC indicated more lists than MaxNblsToIndicate allows".into()
        });
        adapter.data_path.indicating(|| {
            adapter.indicate(&current().host().clone(), "NdisMIndicateReceiveNetBufferLists", &lists, flags);
        });
    }
}
