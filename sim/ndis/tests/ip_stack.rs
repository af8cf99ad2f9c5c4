// SPDX-License-Identifier: MIT OR Apache-2.0

//! The IP stack above a miniport that finds its neighbors by frames.

use std::{mem::offset_of, net::Ipv4Addr, sync::Mutex};

use crate::common::{
    lists,
    scripted::{Script, host, register, run, simulation},
};
use ndis_sim::{IpHost as _, Miniport, data_path, list_fields, nbl, netio::Discovery};
use ndk_abi::ndis::{NDIS_STATUS, NDIS_STATUS_SUCCESS, NET_BUFFER, NET_BUFFER_LIST};
use nt_sim::{Irql, current, guest::Guest, nt::time};

/// Frames that the stack has sent.
static SENT: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

fn send(handle: usize, chain: *mut NET_BUFFER_LIST) {
    for list in list_fields::chain(Guest::new(chain)) {
        let first = list.field::<*mut NET_BUFFER>(offset_of!(NET_BUFFER_LIST, FirstNetBuffer)).read();
        let mut frame = [0; 42];
        nbl::NdisGetDataBuffer(Guest::new(first), 42, Guest::null(), 1, 0).read_bytes(&mut frame);
        SENT.lock().unwrap().push(frame.to_vec());
        list.field::<NDIS_STATUS>(list_fields::STATUS).write(NDIS_STATUS_SUCCESS);
    }
    let flags = u32::from(current().irql() == Irql::DISPATCH_LEVEL);
    data_path::NdisMSendNetBufferListsComplete(handle, Guest::new(chain), flags);
}

/// Operation, address of the sender, and target of a frame of ARP.
fn arp(frame: &[u8]) -> (u8, [u8; 4], [u8; 4]) {
    assert_eq!(frame[12..20], [8, 6, 0, 1, 8, 0, 6, 4]);
    (frame[21], frame[28..32].try_into().unwrap(), frame[38..42].try_into().unwrap())
}

#[test]
fn addresses_are_announced_at_start_and_requests_for_them_are_answered() {
    let (own, other) = ([10, 0, 0, 1], [10, 0, 0, 2]);
    let mut sim = simulation();
    let host = host(&mut sim);
    host.set_discovery(Discovery::OnWire);
    host.add_address(Ipv4Addr::from(own).into(), 24);
    let script = Script { send: Some(send), answer: Some(|_, _| NDIS_STATUS_SUCCESS), ..Script::default() };
    assert_eq!(register(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).expect("it starts");
    let handle = miniport.adapter().handle;
    let indicate = move || {
        let mut request = vec![0xff; 6];
        request.extend([4, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 4, 0, 0, 0, 0, 2]);
        request.extend(other);
        request.extend([0; 6]);
        request.extend(own);
        request.resize(60, 0);
        let list = lists::list_of(handle, &request);
        data_path::NdisMIndicateReceiveNetBufferLists(handle, list, 0, 1, 0);
        time::sleep(1_000_000);
        lists::free(list);
    };
    run(&host, "miniport", indicate);
    miniport.halt().expect("the host lives");
    assert_eq!(sim.verdict().to_string(), "no violation");
    let sent: Vec<_> = SENT.lock().unwrap().iter().map(|frame| arp(frame)).collect();
    assert_eq!(sent, [(1, own, own), (2, own, other)]);
}
