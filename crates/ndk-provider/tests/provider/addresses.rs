// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections over every kind of address; valid addresses for listen and connect.

use crate::support::*;
use core::net::{Ipv4Addr, SocketAddr};
use ndk_abi::ndk::NDK_SHARED_ENDPOINT;
use ndk_abi::nt::*;

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

/// Connects, checks the addresses on both sides, sends a message each way and closes.
fn connect_and_exchange(a: &Node, b: &Node, from: SocketAddr, to: SocketAddr, listener: &Listener) {
    let active = a.active();
    let connecting = active.connect(from, to, b"req");
    let passive = b.end(listener.accept());
    let accepting = passive.accept(b"ok");
    assert_eq!(connecting.wait(), STATUS_SUCCESS, "from {from} to {to}");
    let port = local_address(active.connector).expect("an address").port();
    let from = SocketAddr::new(from.ip(), port);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
    for (end, own, peer) in [(&active, from, to), (&passive, to, from)] {
        let reported = local_address(end.connector).unwrap();
        assert_eq!((reported.ip(), reported.port()), (own.ip(), own.port()));
        let reported = peer_address(end.connector).unwrap();
        assert_eq!((reported.ip(), reported.port()), (peer.ip(), peer.port()));
    }
    send_one(&active, &passive);
    send_one(&passive, &active);
    active.close();
    passive.close();
}

//= R-CONN-1, R-CONN-77, R-CONN-78
//= R-OPEN-32
#[test]
fn connections_work_over_each_kind_of_address() {
    let (a, b) = pair();
    for (from, to) in [
        (a.at(0), b.at(445)),
        (a.at_v6(0), b.at_v6(445)),
        (a.at_link_local(0), b.at_link_local(445)),
        // The scope may be omitted.
        (at("[fe80::1]:0"), at("[fe80::2]:445")),
        // A scope is ignored for other addresses.
        (at("[2001:db8::1%3]:0"), at("[2001:db8::2%4]:445")),
    ] {
        let listener = b.idle_listener();
        assert_eq!(listener.listen(to), STATUS_SUCCESS);
        connect_and_exchange(&a, &b, from, to, &listener);
        listener.close();
    }
}

#[test]
fn link_local_addresses_are_reported_with_their_scope() {
    let (a, b) = pair();
    let listener = b.idle_listener();
    assert_eq!(listener.listen(at("[fe80::2]:445")), STATUS_SUCCESS);
    assert_eq!(listener.address(), Ok(b.at_link_local(445)));
    let active = a.active();
    let connecting = active.connect(at("[fe80::1]:0"), at("[fe80::2]:445"), &[]);
    let passive = b.end(listener.accept());
    assert_eq!(local_address(passive.connector), Ok(b.at_link_local(445)));
    let from = peer_address(passive.connector).unwrap();
    assert_eq!(from, a.at_link_local(from.port()));
    let accepting = passive.accept(&[]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(local_address(active.connector), Ok(from));
    assert_eq!(peer_address(active.connector), Ok(b.at_link_local(445)));
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
    //= R-OIDNDK-19, R-OIDNDK-23
    let mut scopes = Vec::new();
    // SAFETY: the connection is between IPv6 addresses.
    b.provider.connections(|entry| scopes.push(unsafe { entry.Local.Ipv6.sin6_scope_id }));
    // SAFETY: the entry is that of the listener, which has an IPv6 address.
    b.provider.local_endpoints(|entry| scopes.push(unsafe { entry.Local.Ipv6.sin6_scope_id }));
    assert_eq!(scopes, [SCOPE; 2]);
    active.close();
    passive.close();
    listener.close();
}

//= R-CONN-2, R-CONN-5, R-CONN-17, R-CONN-50, R-CREATE-49
#[test]
fn addresses_of_another_link_are_refused() {
    let (a, b) = pair();
    let active = a.active();
    let elsewhere = [at("[fe80::1%8]:0"), at("[2001:db8::7]:0"), at("[::]:0"), at("192.0.2.7:0")];
    for from in elsewhere {
        let to = if from.is_ipv4() { b.at(445) } else { b.at_v6(445) };
        assert_eq!(active.connect(from, to, &[]).wait(), STATUS_INVALID_ADDRESS, "from {from}");
    }
    let far = at("[fe80::2%8]:445");
    assert_eq!(active.connect(a.at_link_local(0), far, &[]).wait(), STATUS_NETWORK_UNREACHABLE);
    assert_eq!(active.connect(a.at(0), b.at_v6(445), &[]).wait(), STATUS_INVALID_PARAMETER);
    let listener = a.idle_listener();
    for address in [at("[fe80::1%8]:445"), at("[2001:db8::7]:445"), at("192.0.2.7:445")] {
        assert_eq!(listener.listen(address), STATUS_INVALID_ADDRESS, "{address}");
    }
    active.close();
    listener.close();
}

//= R-INFO-29
#[test]
fn adapter_connects_to_itself() {
    let (a, _b) = pair();
    for (from, to) in [
        (a.at(0), a.at(445)),
        (a.at_v6(0), a.at_v6(445)),
        (a.at_link_local(0), a.at_link_local(445)),
        (a.at_v6(0), a.at_link_local(445)),
    ] {
        let listener = a.idle_listener();
        assert_eq!(listener.listen(to), STATUS_SUCCESS);
        for _ in 0..3 {
            connect_and_exchange(&a, &a, from, to, &listener);
        }
        listener.close();
    }
    let active = a.active();
    assert_eq!(active.connect(a.at(0), a.at(446), &[]).wait(), STATUS_CONNECTION_REFUSED, "no listener");
    active.close();
}

//= R-INFO-29
#[test]
fn bulk_data_moves_to_itself_and_to_a_peer_at_the_same_time() {
    let (a, b) = pair();
    let (active, passive, listener) = connect_over(&a, &a, a.at(0), a.at(445));
    let (other_active, other_passive, other_listener) = connect_over(&a, &b, a.at(0), b.at(446));
    let (mut source, mut sink, mut far) = (Memory::new(4 << 20), Memory::new(4 << 20), Memory::new(4 << 20));
    source.bytes().iter_mut().zip(0_u32..).for_each(|(byte, at)| *byte = (at / 3) as u8);
    let from = source.register(active.pd, 0);
    let other_from = source.register(other_active.pd, 0);
    let (to, other_to) = (sink.register(passive.pd, 7), far.register(other_passive.pd, 7));
    for round in 0..4 {
        assert_eq!(active.write(round, &[from.sge()], to.remote()), STATUS_SUCCESS);
        assert_eq!(other_active.write(round, &[other_from.sge()], other_to.remote()), STATUS_SUCCESS);
    }
    for end in [&active, &other_active] {
        for _ in 0..4 {
            assert_eq!(end.cq.next().Status, STATUS_SUCCESS);
        }
    }
    assert!(source.bytes() == sink.bytes() && source.bytes() == far.bytes());
    for region in [from, other_from, to, other_to] {
        region.close();
    }
    for end in [active, passive, other_active, other_passive] {
        end.close();
    }
    listener.close();
    other_listener.close();
}

//= R-CONN-53, R-CONN-47
#[test]
fn wildcard_listens_on_every_address_of_its_family() {
    let (a, b) = pair();
    let (v4, v6) = (b.idle_listener(), b.idle_listener());
    assert_eq!(v4.listen(at("0.0.0.0:445")), STATUS_SUCCESS);
    assert_eq!(v6.listen(at("[::]:445")), STATUS_SUCCESS);
    assert_eq!(v4.address(), Ok(at("0.0.0.0:445")));
    connect_and_exchange(&a, &b, a.at(0), b.at(445), &v4);
    connect_and_exchange(&a, &b, a.at_v6(0), b.at_v6(445), &v6);
    connect_and_exchange(&a, &b, a.at_link_local(0), b.at_link_local(445), &v6);
    v4.close();
    // The listener of the other family does not accept it.
    let active = a.active();
    assert_eq!(active.connect(a.at(0), b.at(445), &[]).wait(), STATUS_CONNECTION_REFUSED);
    active.close();
    v6.close();
}

//= R-CONN-53, R-CONN-54
#[test]
fn port_has_one_listener_per_address() {
    let (_a, b) = pair();
    let (all, one, other) = (b.idle_listener(), b.idle_listener(), b.idle_listener());
    assert_eq!(one.listen(b.at(445)), STATUS_SUCCESS);
    assert_eq!(all.listen(at("0.0.0.0:445")), STATUS_SHARING_VIOLATION);
    assert_eq!(all.listen(at("0.0.0.0:446")), STATUS_SUCCESS);
    assert_eq!(other.listen(b.at(446)), STATUS_SHARING_VIOLATION);
    assert_eq!(other.listen(b.at_v6(446)), STATUS_SUCCESS);
    for listener in [all, one, other] {
        listener.close();
    }
}

//= R-CONN-15, R-CONN-69
#[test]
fn private_data_is_accepted_up_to_its_limits() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let (request, reply) = ([0xca; 57], [0xce; 149]);
    let active = a.active();
    let refused = active.connect(a.at(0), b.at(445), &request);
    assert_eq!(refused.wait(), STATUS_INVALID_BUFFER_SIZE);
    let connecting = active.connect(a.at(0), b.at(445), &request[..56]);
    let passive = b.end(listener.accept());
    assert_eq!(passive.private_data().as_deref(), Ok(&request[..56]));
    assert_eq!(passive.accept(&reply[..149]).wait(), STATUS_INVALID_BUFFER_SIZE);
    let accepting = passive.accept(&reply[..148]);
    assert_eq!(connecting.wait(), STATUS_SUCCESS);
    assert_eq!(&active.private_data().expect("the reply's data")[..148], &reply[..148]);
    assert_eq!(active.complete(), STATUS_SUCCESS);
    assert_eq!(accepting.wait(), STATUS_SUCCESS);
    active.close();
    passive.close();

    let active = a.active();
    let connecting = active.connect(a.at(0), b.at(445), &[]);
    let connector = listener.accept();
    let too_long = call!(connector, NdkReject, reply.as_ptr().cast(), 149);
    assert_eq!(too_long, STATUS_INVALID_BUFFER_SIZE);
    assert_eq!(call!(connector, NdkReject, reply.as_ptr().cast(), 148), STATUS_SUCCESS);
    assert_eq!(connecting.wait(), STATUS_CONNECTION_REFUSED);
    assert_eq!(active.private_data().as_deref(), Ok(&reply[..148]));
    close!(connector, NdkCloseConnector);
    active.close();
    listener.close();
}

//= R-CONN-101
#[test]
fn too_many_addresses_are_reported_as_an_error() {
    let (a, b) = pair();
    let own = [b.at(0).ip()];
    let many: Vec<_> = (0..2000_u32).map(|number| Ipv4Addr::from_bits(0x0A01_0000 + number).into()).collect();
    assert_eq!(b.provider.set_addresses(&many), Err(STATUS_INSUFFICIENT_RESOURCES));
    assert_eq!(b.provider.set_addresses(&own), Ok(()));
    let listener = b.idle_listener();
    assert_eq!(listener.listen(b.at(445)), STATUS_SUCCESS);
    connect_and_exchange(&a, &b, a.at(0), b.at(445), &listener);
    listener.close();
}

//= R-CONN-101
#[test]
fn listener_on_a_removed_address_gets_no_requests() {
    let (a, b) = pair();
    let (removed, remaining) = (b.idle_listener(), b.idle_listener());
    assert_eq!(removed.listen(b.at(445)), STATUS_SUCCESS);
    assert_eq!(remaining.listen(b.at_v6(445)), STATUS_SUCCESS);
    let addresses = [b.at_v6(0).ip(), b.at_link_local(0).ip()];
    let (active, passive, listener) = connect_over(&a, &b, a.at_v6(0), b.at_v6(446));
    b.host.set_addresses(&addresses);
    assert!(passive.disconnected.count() == 0, "its address remains");
    let unanswered = a.active();
    let connecting = unanswered.connect(a.at(0), b.at(445), &[]);
    connect_and_exchange(&a, &b, a.at_v6(0), b.at_v6(445), &remaining);
    assert!(removed.is_idle() && !connecting.is_done());
    unanswered.close();
    assert_eq!(connecting.wait(), STATUS_CANCELLED);
    active.close();
    passive.close();
    for listener in [removed, remaining, listener] {
        listener.close();
    }
}

/// All ephemeral ports of an address in use: 49152 to 65535.
//= R-CREATE-47, R-CREATE-50, R-CONN-1, R-CONN-50
#[test]
#[cfg_attr(miri, ignore = "creates 16384 objects")]
fn address_without_a_free_ephemeral_port_is_refused() {
    let (a, b) = pair();
    let endpoints: Vec<_> = (0..16_384).map(|_| a.shared_endpoint(0)).collect();
    let address = socket_address(a.at(0)).0;
    let another: Result<*mut NDK_SHARED_ENDPOINT, _> = create(|done, context, out| {
        call!(a.adapter(), NdkCreateSharedEndpoint, (&raw const address).cast(), 16, done, context, out)
    });
    assert_eq!(another, Err(STATUS_TOO_MANY_ADDRESSES));
    let (listener, active) = (a.idle_listener(), a.active());
    assert_eq!(listener.listen(a.at(0)), STATUS_TOO_MANY_ADDRESSES);
    assert_eq!(active.connect(a.at(0), b.at(445), &[]).wait(), STATUS_TOO_MANY_ADDRESSES);
    // Another port, another address, and one that is free again.
    assert_eq!(listener.listen(a.at(445)), STATUS_SUCCESS);
    close!(a.shared_endpoint(446), NdkCloseSharedEndpoint);
    close!(endpoints[7], NdkCloseSharedEndpoint);
    let again = a.shared_endpoint(0);
    for endpoint in
        endpoints.iter().enumerate().filter(|(index, _)| *index != 7).map(|(_, endpoint)| *endpoint)
    {
        close!(endpoint, NdkCloseSharedEndpoint);
    }
    close!(again, NdkCloseSharedEndpoint);
    active.close();
    listener.close();
}
