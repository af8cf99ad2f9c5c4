// SPDX-License-Identifier: MIT OR Apache-2.0

//! A connection of an adapter with itself that gets as far as a stage.
#![allow(unsafe_code, reason = "asks the system")]

use std::{ffi::c_void, net::Ipv4Addr, ptr::null};

use ndk_abi::{
    ndk::{NDK_CONNECTOR, NDK_LISTENER, NDK_QP, NDK_SHARED_ENDPOINT},
    netio::{AF_INET, SOCKADDR},
};
use nt_sim::Event;

use super::calls::{Callbacks, Request, call, wait};

/// How far a connection gets.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    Idle,
    Listening,
    /// The connect pends, unless it was fast.
    Connecting,
    /// The connect event has been raised.
    Requested,
    /// The passive side has accepted, and the connect has completed.
    Accepted,
    Connected,
}

impl Stage {
    pub const ALL: [Self; 6] =
        [Self::Idle, Self::Listening, Self::Connecting, Self::Requested, Self::Accepted, Self::Connected];
}

/// An IPv4 socket address.
#[repr(C, align(8))]
pub struct Address([u8; 16]);

impl Address {
    pub const LENGTH: u32 = 16;

    pub fn new(ip: Ipv4Addr, port: u16) -> Self {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&AF_INET.to_le_bytes());
        bytes[2..4].copy_from_slice(&port.to_be_bytes());
        bytes[4..8].copy_from_slice(&ip.octets());
        Self(bytes)
    }

    pub fn as_ptr(&self) -> *const SOCKADDR {
        (&raw const self.0).cast()
    }
}

/// The objects of a connection.
pub struct Ends {
    pub listener: *mut NDK_LISTENER,
    /// The connect events of the listener.
    pub incoming: &'static Callbacks,
    pub connector: *mut NDK_CONNECTOR,
    pub shared_endpoint: Option<*mut NDK_SHARED_ENDPOINT>,
    /// Of the active and of the passive side.
    pub qps: [*mut NDK_QP; 2],
    pub ip: Ipv4Addr,
}

unsafe extern "efiapi" fn on_disconnect(_: *mut c_void) {}

impl Ends {
    /// Connects up to `stage`. Returns the requests, and whether all that the stage needs has succeeded.
    pub fn connect(&self, event: &Event, stage: Stage) -> Result<(Vec<Request>, bool), String> {
        let mut requests = Vec::new();
        let is_reached = self.connect_to(event, stage, &mut requests)?;
        Ok((requests, is_reached))
    }

    fn connect_to(&self, event: &Event, stage: Stage, requests: &mut Vec<Request>) -> Result<bool, String> {
        let (nothing, none) = (null::<c_void>(), core::ptr::null_mut::<c_void>());
        let (at, from) = (Address::new(self.ip, 7000), Address::new(self.ip, 0));
        if stage < Stage::Listening {
            return Ok(true);
        }
        let listen = Request::new(event, |done, context| {
            call!(self.listener, NdkListen, at.as_ptr(), Address::LENGTH, done, context)
        });
        wait(event, "a callback of NdkListen", || listen.is_done())?;
        let is_listening = listen.has_succeeded();
        requests.push(listen);
        if stage < Stage::Connecting || !is_listening {
            return Ok(is_listening);
        }
        let (at, from, length) = (at.as_ptr(), from.as_ptr(), Address::LENGTH);
        let qp = self.qps[0];
        let connect = Request::new(event, |done, context| {
            if let Some(from) = self.shared_endpoint {
                call!(
                    self.connector,
                    NdkConnectWithSharedEndpoint,
                    qp,
                    from,
                    at,
                    length,
                    0,
                    0,
                    nothing,
                    0,
                    done,
                    context,
                )
            } else {
                call!(
                    self.connector,
                    NdkConnect,
                    qp,
                    from,
                    length,
                    at,
                    length,
                    0,
                    0,
                    nothing,
                    0,
                    done,
                    context,
                )
            }
        });
        if stage >= Stage::Requested {
            wait(event, "a connect event", || self.incoming.made() != 0 || connect.is_done())?;
        }
        requests.push(connect);
        if stage < Stage::Accepted {
            return Ok(stage < Stage::Requested || self.incoming.made() != 0);
        }
        if self.incoming.made() == 0 {
            return Ok(false);
        }
        let accept = Request::new(event, |done, context| {
            call!(
                self.incoming.object::<NDK_CONNECTOR>(),
                NdkAccept,
                self.qps[1],
                0,
                0,
                nothing,
                0,
                Some(on_disconnect),
                none,
                done,
                context,
            )
        });
        let connect = &requests[1];
        wait(event, "a callback of NdkConnect", || connect.is_done())?;
        let mut is_reached = connect.has_succeeded();
        let mut complete = None;
        if stage >= Stage::Connected && is_reached {
            let request = Request::new(event, |done, context| {
                call!(self.connector, NdkCompleteConnect, Some(on_disconnect), none, done, context)
            });
            wait(event, "a callback of NdkCompleteConnect", || request.is_done())?;
            wait(event, "a callback of NdkAccept", || accept.is_done())?;
            is_reached = request.has_succeeded() && accept.has_succeeded();
            complete = Some(request);
        }
        requests.push(accept);
        requests.extend(complete);
        Ok(is_reached)
    }
}
