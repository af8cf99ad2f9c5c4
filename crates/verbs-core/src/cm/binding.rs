// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses of identifiers, and listening.

use core::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use roce::ListenSpec;

use super::event::{CmEventKind, Parameters};
use super::id::{CmId, Phase, PortSpace, State};
use super::of_engine::of_conn;
use super::ports;
use crate::device::Device;
use crate::error::Error;

/// Requests of a listener that wait for an answer, if the program names no number.
const BACKLOG: u16 = 128;

impl CmId {
    /// Binds the identifier to a local address: the unspecified one stands for all devices of its family. Port 0 stands for any.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is bound; [`Error::NoDevice`] if no device has the address; [`Error::AddressInUse`].
    pub fn bind(&self, local: SocketAddr) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.phase != Phase::Idle {
            return Err(Error::Invalid);
        }
        self.bind_state(&mut state, local)
    }

    fn bind_state(&self, state: &mut State, local: SocketAddr) -> Result<(), Error> {
        let devices = self.devices_at(local.ip(), state.one_family)?;
        let port = ports::claim(&devices, local.port())?;
        state.local = Some(SocketAddr::new(local.ip(), port));
        if !local.ip().is_unspecified() {
            state.device = devices.first().cloned();
        }
        state.claimed = devices;
        state.phase = Phase::Bound;
        Ok(())
    }

    /// Returns the devices of an address.
    fn devices_at(&self, ip: IpAddr, one_family: bool) -> Result<Vec<Arc<Device>>, Error> {
        if !ip.is_unspecified() {
            return Ok(vec![self.host.open(ip)?]);
        }
        // Those of IPv6 include IPv4, as sockets do. A device that cannot be opened is left out, and there may be none of this family, as
        // with Linux: nothing connects then.
        let same = |known: &&IpAddr| ip.is_ipv6() == known.is_ipv6() || ip.is_ipv6() && !one_family;
        let all = self.host.addresses();
        let devices: Vec<_> = all.iter().filter(same).filter_map(|&ip| self.host.keep(ip).ok()).collect();
        let is_lost = devices.is_empty() && (all.is_empty() || all.iter().any(|ip| same(&ip)));
        if is_lost { Err(Error::NoDevice) } else { Ok(devices) }
    }

    /// Finds the device by which an address is reached. An event has the result. A source is ignored if the identifier is bound, as Linux
    /// does.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the identifier is neither new nor bound, or the families differ; [`Error::NoDevice`] if no device has the source.
    pub fn resolve_address(&self, source: Option<SocketAddr>, destination: SocketAddr) -> Result<(), Error> {
        let mut state = self.state.lock();
        let source = match state.phase {
            Phase::Idle => source,
            Phase::Bound => None,
            _ => return Err(Error::Invalid),
        };
        let wanted = state.local.or(source).filter(|address| !address.ip().is_unspecified());
        if wanted.is_some_and(|wanted| wanted.is_ipv4() != destination.is_ipv4()) {
            return Err(Error::Invalid);
        }
        let port = state.local.or(source).map_or(0, |address| address.port());
        let found = match wanted {
            Some(wanted) => self.host.open(wanted.ip()),
            None => self.host.route_to(destination.ip()).and_then(|ip| self.host.open(ip)),
        };
        let device = match (found, source.is_some()) {
            (Ok(device), _) => device,
            (Err(error), true) => return Err(error),
            (Err(_), false) => {
                drop(state);
                self.emit(CmEventKind::AddressError, -libc::ENODEV, &Parameters::default());
                return Ok(());
            }
        };
        let port = if port == 0 { ports::random() } else { port };
        state.local = Some(SocketAddr::new(device.address(), port));
        state.remote = Some(destination);
        state.device = Some(device);
        state.phase = Phase::AddressResolved;
        drop(state);
        self.emit(CmEventKind::AddressResolved, 0, &Parameters::default());
        Ok(())
    }

    /// Completes the route to the resolved address. An event follows.
    ///
    /// # Errors
    /// [`Error::Invalid`] if no address was resolved.
    pub fn resolve_route(&self) -> Result<(), Error> {
        self.step(&[Phase::AddressResolved], Phase::RouteResolved)?;
        self.emit(CmEventKind::RouteResolved, 0, &Parameters::default());
        Ok(())
    }

    /// Listens on the local address; on any port of all devices if there is none.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the identifier connects or listens; [`Error::AddressInUse`].
    pub fn listen(&self, backlog: i32) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.phase == Phase::Idle {
            self.bind_state(&mut state, SocketAddr::from(([0; 4], 0)))?;
        }
        if state.phase != Phase::Bound {
            return Err(Error::Invalid);
        }
        let port = state.local.map_or(0, |local| local.port());
        let backlog = u16::try_from(backlog).ok().filter(|&backlog| backlog > 0).unwrap_or(BACKLOG);
        for device in state.claimed.clone() {
            let context = self.context(&mut state, &device);
            let spec = ListenSpec {
                ip: Some(device.address()),
                port,
                datagrams: self.space() == PortSpace::Udp,
                backlog,
                context,
            };
            match device.engine().connections().listen(&spec) {
                Ok(listener) => {
                    device.adapter().listen(port);
                    state.listeners.push((device, listener));
                }
                Err(error) => {
                    ports::unlisten(&core::mem::take(&mut state.listeners));
                    return Err(of_conn(error));
                }
            }
        }
        state.phase = Phase::Listening;
        Ok(())
    }
}
