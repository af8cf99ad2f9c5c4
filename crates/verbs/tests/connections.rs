// SPDX-License-Identifier: MIT OR Apache-2.0

//! The functions of librdmacm.

use core::ffi::{CStr, c_int, c_void};
use core::ptr::null_mut;

use verbs::abi::attributes::{IbvQpCap, IbvQpInitAttr};
use verbs::abi::flags::IBV_QPT_RC;
use verbs::abi::rdma::{
    RAI_PASSIVE, RDMA_PS_TCP, RdmaAddrinfo, RdmaCmEvent, RdmaCmId, RdmaConnParam, RdmaEventChannel,
};

use crate::rig::{call, errno, zero};

/// An address of 127.0.0.1.
fn address(port: u16) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_be_bytes([127, 0, 0, 1]).to_be() },
        sin_zero: [0; 8],
    }
}

fn attr() -> IbvQpInitAttr {
    let cap =
        IbvQpCap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 0 };
    IbvQpInitAttr { cap, qp_type: IBV_QPT_RC, ..zero() }
}

struct Channel(*mut RdmaEventChannel);

impl Channel {
    fn id(&self) -> *mut RdmaCmId {
        let mut id = null_mut();
        assert_eq!(call!(rdma_create_id(self.0, &raw mut id, null_mut(), RDMA_PS_TCP)), 0);
        id
    }

    /// Creates an identifier with a queue pair, and resolves its route to a port.
    fn client(&self, port: u16) -> *mut RdmaCmId {
        let id = self.id();
        resolve(self, id, port);
        assert_eq!(call!(rdma_create_qp(id, null_mut(), &mut attr())), 0);
        id
    }

    /// Waits for an event, which has to be `expected`. Returns it with a copy of its private data.
    fn event(&self, expected: c_int) -> (RdmaCmEvent, Vec<u8>) {
        let mut event = null_mut();
        assert_eq!(call!(rdma_get_cm_event(self.0, &raw mut event)), 0);
        // SAFETY: the event exists until it is acknowledged.
        let copy = unsafe { *event };
        // SAFETY: events of connections have these fields, and others have zeros.
        let conn = unsafe { copy.param.conn };
        let mut private_data = vec![0u8; conn.private_data_len.into()];
        if !conn.private_data.is_null() {
            // SAFETY: the event has as many bytes of private data.
            private_data.copy_from_slice(unsafe {
                core::slice::from_raw_parts(conn.private_data.cast(), conn.private_data_len.into())
            });
        }
        assert_eq!(copy.event, expected, "{:?}, status {}", name(copy.event), copy.status);
        assert_eq!(call!(rdma_ack_cm_event(event)), 0);
        (copy, private_data)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        call!(rdma_destroy_event_channel(self.0));
    }
}

fn name(event: c_int) -> &'static CStr {
    let text = call!(rdma_event_str(event));
    // SAFETY: the function returns texts that live forever.
    unsafe { CStr::from_ptr(text) }
}

/// Binds an identifier to any port and listens. Returns the port.
fn listen(id: *mut RdmaCmId) -> u16 {
    let mut local = address(0);
    assert_eq!(call!(rdma_bind_addr(id, (&raw mut local).cast())), 0);
    assert_eq!(call!(rdma_listen(id, 5)), 0);
    local_port(id)
}

/// Returns the port that an identifier is bound to.
fn local_port(id: *mut RdmaCmId) -> u16 {
    // SAFETY: `id` points to an identifier that the caller destroys later; no reference to it is made.
    let storage = unsafe { &raw const (*id).route.addr.src_storage };
    // SAFETY: the identifier has an address of IPv4.
    u16::from_be(unsafe { storage.cast::<libc::sockaddr_in>().read() }.sin_port)
}

/// Resolves address and route to a port.
fn resolve(channel: &Channel, id: *mut RdmaCmId, port: u16) {
    let mut remote = address(port);
    assert_eq!(call!(rdma_resolve_addr(id, null_mut(), (&raw mut remote).cast(), 1000)), 0);
    channel.event(0);
    assert_eq!(call!(rdma_resolve_route(id, 1000)), 0);
    channel.event(2);
}

fn param(data: &[u8]) -> RdmaConnParam {
    RdmaConnParam {
        private_data: data.as_ptr().cast::<c_void>(),
        private_data_len: data.len().try_into().unwrap(),
        responder_resources: 3,
        initiator_depth: 2,
        retry_count: 7,
        rnr_retry_count: 7,
        ..zero()
    }
}

#[test]
fn a_connection_is_made_and_ended_by_events() {
    let (active, passive) =
        (Channel(call!(rdma_create_event_channel())), Channel(call!(rdma_create_event_channel())));
    let listener = passive.id();
    let port = listen(listener);
    let client = active.client(port);
    assert_eq!(call!(rdma_connect(client, &mut param(b"hello"))), 0);
    let (request, data) = passive.event(4);
    assert_eq!((request.listen_id, &data[..5], data.len()), (listener, &b"hello"[..], 56));
    // SAFETY: a request has these fields.
    let asked = unsafe { request.param.conn };
    assert_eq!((asked.responder_resources, asked.initiator_depth), (2, 3), "from this side's view");
    let server = request.id;
    assert_eq!(call!(rdma_create_qp(server, null_mut(), &mut attr())), 0);
    assert_eq!(call!(rdma_accept(server, &mut param(b"welcome"))), 0);
    let (_, data) = active.event(9);
    assert_eq!((&data[..7], data.len()), (&b"welcome"[..], 196));
    assert_eq!(passive.event(9).0.id, server);
    assert_eq!(call!(rdma_disconnect(client)), 0);
    assert_eq!(passive.event(10).0.id, server);
    assert_eq!(call!(rdma_disconnect(server)), 0);
    assert_eq!(active.event(10).0.id, client);
    for id in [client, server] {
        call!(rdma_destroy_qp(id));
        assert_eq!(call!(rdma_destroy_id(id)), 0);
    }
    assert_eq!(call!(rdma_destroy_id(listener)), 0);
    assert_eq!(call!(rdma_destroy_id(listener)), -1);
    assert_eq!(errno(), libc::EINVAL);
}

#[test]
fn a_request_is_refused_by_the_program_or_without_a_listener() {
    let (active, passive) =
        (Channel(call!(rdma_create_event_channel())), Channel(call!(rdma_create_event_channel())));
    let listener = passive.id();
    let port = listen(listener);
    let client = active.client(port);
    assert_eq!(call!(rdma_connect(client, null_mut())), 0);
    let server = passive.event(4).0.id;
    assert_eq!(call!(rdma_reject(server, b"no".as_ptr().cast(), 2)), 0);
    let (event, data) = active.event(8);
    assert_eq!((event.status, &data[..2]), (28, &b"no"[..]));
    assert_eq!(call!(rdma_destroy_id(server)), 0);
    assert_eq!(call!(rdma_destroy_id(listener)), 0);
    call!(rdma_destroy_qp(client));
    assert_eq!(call!(rdma_destroy_id(client)), 0);
    let client = active.client(port);
    assert_eq!(call!(rdma_connect(client, null_mut())), 0);
    assert_eq!(active.event(8).0.status, 8, "invalid service ID");
    call!(rdma_destroy_qp(client));
    assert_eq!(call!(rdma_destroy_id(client)), 0);
}

#[test]
fn calls_in_the_wrong_order_fail() {
    let channel = Channel(call!(rdma_create_event_channel()));
    let id = channel.id();
    let failed = |result: c_int, error: c_int| assert_eq!((result, errno()), (-1, error));
    failed(call!(rdma_resolve_route(id, 0)), libc::EINVAL);
    failed(call!(rdma_connect(id, null_mut())), libc::EINVAL);
    failed(call!(rdma_accept(id, null_mut())), libc::EINVAL);
    failed(call!(rdma_disconnect(id)), libc::EINVAL);
    failed(call!(rdma_reject(id, null_mut(), 0)), libc::EINVAL);
    failed(call!(rdma_create_qp(id, null_mut(), &mut attr())), libc::EINVAL);
    failed(call!(rdma_bind_addr(id, null_mut())), libc::EINVAL);
    // No device has the address.
    let mut other = address(0);
    other.sin_addr.s_addr = u32::from_be_bytes([192, 0, 2, 1]).to_be();
    failed(call!(rdma_bind_addr(id, (&raw mut other).cast())), libc::ENODEV);
    let port = listen(id);
    let second = channel.id();
    let mut same = address(port);
    failed(call!(rdma_bind_addr(second, (&raw mut same).cast())), libc::EADDRINUSE);
    failed(call!(rdma_listen(id, 1)), libc::EINVAL);
    assert_eq!((call!(rdma_destroy_id(second)), call!(rdma_destroy_id(id))), (0, 0));
    let mut none = null_mut();
    failed(call!(rdma_create_id(channel.0, &raw mut none, null_mut(), 1)), libc::EOPNOTSUPP);
}

#[test]
fn a_queue_pair_that_cannot_be_created_leaves_nothing_behind() {
    let channel = Channel(call!(rdma_create_event_channel()));
    let id = channel.id();
    resolve(&channel, id, 5);
    let mut attr = attr();
    // More than a completion queue holds, and more than a queue pair.
    for receives in [(1 << 20) + 1, (1 << 14) + 1] {
        attr.cap.max_recv_wr = receives;
        assert_eq!((call!(rdma_create_qp(id, null_mut(), &raw mut attr)), errno()), (-1, libc::EINVAL));
        // SAFETY: the identifier is destroyed at the end of the test, and no call writes to it meanwhile.
        let shown = unsafe { &*id };
        assert!(shown.qp.is_null() && shown.send_cq.is_null() && shown.recv_cq.is_null());
        assert!(attr.send_cq.is_null() && attr.recv_cq.is_null());
    }
    attr.cap.max_recv_wr = 4;
    assert_eq!(call!(rdma_create_qp(id, null_mut(), &raw mut attr)), 0);
    call!(rdma_destroy_qp(id));
    assert_eq!(call!(rdma_destroy_id(id)), 0);
}

/// The program does not see the event of a call that has waited.
#[test]
fn an_identifier_whose_calls_wait_goes_with_its_last_event() {
    let mut id = null_mut();
    assert_eq!(call!(rdma_create_id(null_mut(), &raw mut id, null_mut(), RDMA_PS_TCP)), 0);
    let mut remote = address(5);
    assert_eq!(call!(rdma_resolve_addr(id, null_mut(), (&raw mut remote).cast(), 1000)), 0);
    assert_eq!(call!(rdma_destroy_id(id)), 0);
}

#[test]
fn endpoints_connect_without_events() {
    let mut hints: RdmaAddrinfo = zero();
    (hints.ai_flags, hints.ai_port_space) = (RAI_PASSIVE, RDMA_PS_TCP);
    let mut info = null_mut();
    let node = c"127.0.0.1".as_ptr();
    assert_eq!(call!(rdma_getaddrinfo(node, c"0".as_ptr(), &raw const hints, &raw mut info)), 0);
    let mut listener = null_mut();
    assert_eq!(call!(rdma_create_ep(&raw mut listener, info, null_mut(), &mut attr())), 0);
    call!(rdma_freeaddrinfo(info));
    assert_eq!(call!(rdma_listen(listener, 1)), 0);
    let port = local_port(listener);
    let client = std::thread::spawn(move || {
        let service = std::ffi::CString::new(port.to_string()).unwrap();
        let (mut info, mut id, hints) =
            (null_mut(), null_mut(), RdmaAddrinfo { ai_port_space: RDMA_PS_TCP, ..zero() });
        let node = c"127.0.0.1".as_ptr();
        assert_eq!(call!(rdma_getaddrinfo(node, service.as_ptr(), &raw const hints, &raw mut info)), 0);
        assert_eq!(call!(rdma_create_ep(&raw mut id, info, null_mut(), &mut attr())), 0);
        call!(rdma_freeaddrinfo(info));
        assert_eq!(call!(rdma_connect(id, null_mut())), 0);
        assert_eq!(call!(rdma_disconnect(id)), 0);
        call!(rdma_destroy_ep(id));
    });
    let mut server = null_mut();
    assert_eq!(call!(rdma_get_request(listener, &raw mut server)), 0);
    assert_eq!(call!(rdma_accept(server, null_mut())), 0);
    assert_eq!(call!(rdma_disconnect(server)), 0);
    client.join().unwrap();
    call!(rdma_destroy_ep(server));
    call!(rdma_destroy_ep(listener));
    // A name that no address has.
    let mut info = null_mut();
    assert_eq!(call!(rdma_getaddrinfo(c"no.invalid".as_ptr(), null_mut(), null_mut(), &raw mut info)), -1);
}
