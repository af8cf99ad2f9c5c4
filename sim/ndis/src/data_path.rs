// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sending and receiving frames through the miniport. (windows-packaging §8.4)

use std::sync::{Arc, atomic::Ordering::Relaxed};

use ndk_abi::ndis::{
    NDIS_NET_BUFFER_LIST_INFO, NDIS_RECEIVE_FLAGS_DISPATCH_LEVEL, NDIS_RECEIVE_FLAGS_RESOURCES,
    NDIS_RETURN_FLAGS_DISPATCH_LEVEL, NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL,
    NDIS_SEND_FLAGS_DISPATCH_LEVEL, NDIS_STATUS, NDIS_STATUS_ADAPTER_REMOVED, NDIS_STATUS_RESOURCES,
    NDIS_TCP_LARGE_SEND_OFFLOAD_NET_BUFFER_LIST_INFO as LargeSend, NET_BUFFER_LIST,
};
use nt_sim::{Host, Irql, Tolerance, current, guest::Guest, image::call, imports};

use crate::{
    adapter::{Adapter, AdapterState, adapter},
    coalescing,
    in_flight::{MAX_RECEIVED, SendId, Sending},
    nbl::{self, StackList},
    offload::{ReceivedFrame, SendRequest},
    priority_vlan,
    protocol::PROTOCOLS,
    rss::Received,
    rules::{broken, require},
    sg_list,
    wait::wait_until,
};

const NEXT: usize = std::mem::offset_of!(NET_BUFFER_LIST, Next);
const STATUS: usize = std::mem::offset_of!(NET_BUFFER_LIST, Status);
const SOURCE: usize = std::mem::offset_of!(NET_BUFFER_LIST, SourceHandle);
const INFO: usize = std::mem::offset_of!(NET_BUFFER_LIST, NetBufferListInfo);
const INFO_LEN: usize = 27;
const CANCEL_ID: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::NetBufferListCancelId.0 as usize * size_of::<usize>();
const CHECKSUM: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::TcpIpChecksumNetBufferListInfo.0 as usize * size_of::<usize>();
const PRIORITY_VLAN: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::Ieee8021QNetBufferListInfo.0 as usize * size_of::<usize>();
const HASH_INFO: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashInfo.0 as usize * size_of::<usize>();
const HASH_VALUE: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::NetBufferListHashValue.0 as usize * size_of::<usize>();
const COALESCED: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::TcpRecvSegCoalesceInfo.0 as usize * size_of::<usize>();
const TIMESTAMP_DELTA: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::RscTcpTimestampDelta.0 as usize * size_of::<usize>();
const LARGE_SEND: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::TcpLargeSendNetBufferListInfo.0 as usize * size_of::<usize>();
const UDP_SEGMENTATION: usize =
    INFO + NDIS_NET_BUFFER_LIST_INFO::UdpSegmentationOffloadInfo.0 as usize * size_of::<usize>();
/// NetBufferListInfo of lists that the stack returned.
const STALE_INFO: usize = 0x57a1_e157_a1e1_57a1;

/// Returns the lists of a chain.
pub(crate) fn chain(first: Guest<NET_BUFFER_LIST>) -> Vec<Guest<NET_BUFFER_LIST>> {
    const LONGEST: usize = 1 << 16;
    let mut lists = Vec::new();
    let mut at = first;
    while !at.is_null() {
        lists.push(at);
        require(lists.len() <= LONGEST, || {
            "a chain of NET_BUFFER_LISTs is longer than 65536: it may be a loop".into()
        });
        at = Guest::new(at.field::<*mut NET_BUFFER_LIST>(NEXT).read());
    }
    lists
}

fn check_level(what: &str, flags: u32, at_dispatch: u32) {
    let claimed = flags & at_dispatch != 0;
    let actual = current().irql() == Irql::DISPATCH_LEVEL;
    require(!claimed || actual, || {
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
                self.submit(sends.map(|((list, id), request)| Sending { list, id, request }));
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
        let submit = || self.submit([Sending { list, id: Some(id), request }]);
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
        let Some(handler) = self.driver.characteristics.CancelSendHandler else { return };
        let cancel = || {
            call("MiniportCancelSend", || {
                // SAFETY: the image registered the function under this contract; the ID is a value, not an address.
                unsafe { handler(self.context() as *mut _, std::ptr::without_provenance_mut(cancel_id)) }
            });
        };
        let _ = self.while_bound(|_| true, cancel);
    }

    /// Sends a frame without waiting, if the adapter runs. On a thread of the host, IRQL <= `DISPATCH_LEVEL`.
    pub(crate) fn transmit(&self, host: &Host, frame: &[u8]) {
        self.while_running(|| {
            let request = SendRequest::default();
            self.submit(StackList::new(host, frame, 0).map(|list| Sending { list, id: None, request }));
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
        body();
        self.data_path.state.lock().bound -= 1;
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

    /// Passes lists to the miniport in one chain.
    fn submit(&self, sends: impl IntoIterator<Item = Sending>) {
        let Some(handler) = self.driver.characteristics.SendNetBufferListsHandler else { return };
        let mut first = Guest::<NET_BUFFER_LIST>::null();
        let mut last: Option<Guest<NET_BUFFER_LIST>> = None;
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
            match last.replace(this) {
                Some(last) => last.field::<*mut NET_BUFFER_LIST>(NEXT).write(this.as_ptr()),
                None => first = this,
            }
            self.data_path.state.lock().sending.insert(this.address(), send);
        }
        if first.is_null() {
            return;
        }
        let at_dispatch = current().irql() == Irql::DISPATCH_LEVEL;
        let flags = if at_dispatch { NDIS_SEND_FLAGS_DISPATCH_LEVEL } else { 0 };
        call("MiniportSendNetBufferLists", || {
            // SAFETY: the image registered the function under this contract; the list is its until completed.
            unsafe { handler(self.context() as *mut _, first.as_ptr(), 0, flags) }
        });
    }

    /// Returns the status of a send once it is completed.
    pub(crate) fn send_status(&self, id: SendId) -> Option<NDIS_STATUS> {
        self.data_path.state.lock().statuses.remove(&id)
    }

    fn complete(&self, host: &Host, list: Guest<NET_BUFFER_LIST>, flags: u32) {
        let status = list.field::<NDIS_STATUS>(STATUS).read();
        let source = list.field::<usize>(SOURCE).read();
        let sent = {
            let mut state = self.data_path.state.lock();
            state.flagged_completions += u64::from(flags & NDIS_SEND_COMPLETE_FLAGS_DISPATCH_LEVEL != 0);
            let sent = state.sending.remove(&list.address());
            if let Some(id) = sent.as_ref().and_then(|sent| sent.id) {
                state.statuses.insert(id, status);
            }
            sent
        };
        let Some(sent) = sent else {
            broken(format!(
                "NdisMSendNetBufferListsComplete of {:#x}, which the miniport does not hold",
                list.address()
            ))
        };
        if sent.request.large_send != 0 {
            // The type remains; of version 1 no bytes were sent, of version 2 the rest is reserved.
            let (result, expected) =
                (list.field::<usize>(LARGE_SEND).read(), sent.request.large_send & LargeSend::TYPE_V2);
            require(result == expected as usize, || {
                format!("TcpLargeSendNetBufferListInfo of a completed list is {result:#x}, not {expected:#x}")
            });
        }
        require(!nbl::buffers(list).any(|buffer| sg_list::is_mapped(host, buffer.address())), || {
            "a send was completed whose scatter/gather list is not freed: the device may still read its data"
                .into()
        });
        require(source == self.binding, || {
            format!("the miniport changed the SourceHandle of a sent NET_BUFFER_LIST to {source:#x}")
        });
        sent.list.free(host);
        self.data_path.changed.set();
    }

    /// Takes the lists of sends back from the miniport.
    pub(crate) fn complete_sends(&self, host: &Host, lists: &[Guest<NET_BUFFER_LIST>], flags: u32) {
        for &list in lists {
            self.complete(host, list, flags);
        }
    }

    /// Checks received lists and passes them to the stack. `what` names the function that indicates them.
    pub(crate) fn indicate(
        self: &Arc<Self>,
        host: &Arc<Host>,
        what: &str,
        lists: &[Guest<NET_BUFFER_LIST>],
        flags: u32,
    ) {
        self.require_state(what, &[AdapterState::Running, AdapterState::Pausing]);
        for list in lists {
            require(list.field::<usize>(SOURCE).read() == self.handle, || {
                "the SourceHandle of a received NET_BUFFER_LIST is not the adapter's handle".into()
            });
            let info = list.field::<[usize; INFO_LEN]>(INFO);
            let words = info.read();
            if words.contains(&STALE_INFO) {
                let text = "a received NET_BUFFER_LIST has NetBufferListInfo of an earlier frame";
                self.driver.undocumented(host, Tolerance::StaleInfo, text);
                info.write(words.map(|word| if word == STALE_INFO { 0 } else { word }));
            }
            if !host.state(&nbl::LONG_MDLS).load(Relaxed) {
                nbl::buffers(*list).for_each(nbl::require_exact_mdls);
            }
        }
        self.receive(host, lists, flags);
    }

    /// Checks hash and processor of a received frame.
    fn check_scaling(&self, host: &Host, list: Guest<NET_BUFFER_LIST>, bytes: &[u8]) {
        let frame = Received {
            bytes,
            info: list.field::<usize>(HASH_INFO).read() as u32,
            value: list.field::<usize>(HASH_VALUE).read() as u32,
            processor: current().cpu().0,
        };
        let now = host.world().now();
        let checked = self.rss.lock().check(&frame, now);
        if let Err(violated) = checked {
            broken(violated);
        }
    }

    fn receive(self: &Arc<Self>, host: &Arc<Host>, lists: &[Guest<NET_BUFFER_LIST>], flags: u32) {
        let keeps = flags & NDIS_RECEIVE_FLAGS_RESOURCES == 0;
        for &list in lists {
            for buffer in nbl::buffers(list) {
                let checksum = list.field::<usize>(CHECKSUM).read() as u32;
                let priority_vlan = list.field::<usize>(PRIORITY_VLAN).read() as u32;
                let coalesced = list.field::<usize>(COALESCED).read() as u32;
                let frame = ReceivedFrame { bytes: nbl::bytes(buffer), checksum, priority_vlan, coalesced };
                let general = self.attributes().general;
                priority_vlan::require_true(&frame, general.map_or(0, |general| general.MacOptions));
                let reported = self.offloads.lock().reported(host.world().now());
                reported.checksums.require_true(&frame);
                let unit = coalescing::Indicated {
                    frame: &frame,
                    buffers: nbl::buffers(list).count(),
                    timestamp_delta: list.field::<usize>(TIMESTAMP_DELTA).read(),
                };
                let mtu = general.map_or(u32::MAX, |general| general.MtuSize);
                if let Err(wrong) = unit.check(reported.coalescing, mtu) {
                    broken(wrong);
                }
                self.check_scaling(host, list, &frame.bytes);
                for protocol in host.state(&PROTOCOLS) {
                    protocol.received(host, self, &frame.bytes);
                }
                let handler = self.data_path.state.lock().on_received.clone();
                if let Some(handler) = handler {
                    handler(&frame.bytes);
                }
                let mut state = self.data_path.state.lock();
                if state.received.len() == MAX_RECEIVED {
                    state.received.pop_front();
                }
                state.received.push_back(frame);
            }
            if keeps {
                let is_new = self.data_path.state.lock().lent.insert(list.address());
                host.state(&nbl::LENT).lock().insert(list.address());
                require(is_new, || {
                    "a NET_BUFFER_LIST was indicated that the stack has not returned yet".into()
                });
            }
        }
        self.data_path.changed.set();
        self.data_path.arrived.set();
        if keeps {
            let mut state = self.data_path.state.lock();
            if state.keeps_received {
                state.kept.extend(lists.iter().map(|list| list.address()));
                return;
            }
            let returns_at_once = state.returns_at_once;
            drop(state);
            if returns_at_once {
                self.return_lists(host, lists);
                return;
            }
            // The stack returns the lists later, together and in another order.
            let (this, on, lists) = (self.clone(), host.clone(), lists.to_vec());
            host.queue_dpc(current().cpu(), move || this.return_lists(&on, &lists));
        }
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
            host.queue_dpc(current().cpu(), move || this.return_lists(&on, &lists));
        }
    }

    fn return_lists(&self, host: &Host, lists: &[Guest<NET_BUFFER_LIST>]) {
        let at_dispatch = current().irql() == Irql::DISPATCH_LEVEL;
        let flags = if at_dispatch { NDIS_RETURN_FLAGS_DISPATCH_LEVEL } else { 0 };
        let mut first = Guest::<NET_BUFFER_LIST>::null();
        for list in lists {
            list.field::<*mut NET_BUFFER_LIST>(NEXT).write(first.as_ptr());
            first = *list;
            // Drivers above use the list's information, and leave it as it is.
            list.field::<[usize; INFO_LEN]>(INFO).write([STALE_INFO; INFO_LEN]);
            self.data_path.state.lock().lent.remove(&list.address());
            host.state(&nbl::LENT).lock().remove(&list.address());
        }
        let Some(handler) = self.driver.characteristics.ReturnNetBufferListsHandler else { return };
        call("MiniportReturnNetBufferLists", || {
            // SAFETY: the image registered the function under this contract; the lists are its own.
            unsafe { handler(self.context() as *mut _, first.as_ptr(), flags) }
        });
        self.data_path.changed.set();
    }
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
        require(lists.len() == count as usize, || format!("NdisMIndicateReceiveNetBufferLists: NumberOfNetBufferLists is {count}, the chain has {}", lists.len()));
        require(adapter.data_path.allows(count), || {
            "a receive DPC indicated more lists than MaxNblsToIndicate allows".into()
        });
        adapter.data_path.indicating(|| {
            adapter.indicate(&current().host().clone(), "NdisMIndicateReceiveNetBufferLists", &lists, flags);
        });
    }
}
